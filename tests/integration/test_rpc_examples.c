/* The examples of remote calls, as their pages run them: every rank a process over loopback. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/integration/worker_programs.h"

static const char *update_parameters, *score;

/* Both workers end with the same parameters, to the bit, and with what was to be found: 1, 2, 3 ... */
static void update_parameters_finds_them(void **state)
{
    struct worker_program server, workers[2];
    unsigned port = worker_free_port();

    worker_start(&server, update_parameters, "--rank 0 --master-port %u", port);
    worker_start(&workers[0], update_parameters, "--rank 1 --master-port %u", port);
    worker_start(&workers[1], update_parameters, "--rank 2 --master-port %u", port);
    worker_finish(&workers[0], 0);
    worker_finish(&workers[1], 0);
    worker_finish(&server, 0);
    assert_string_equal(server.text, "update_parameters: ok rounds=100 workers=2\n");

    const char *found[2];
    char *at;

    for (int i = 0; i < 2; i++) {
        found[i] = strstr(workers[i].text, "update_parameters: parameters");
        if (found[i] == NULL)
            fail_msg("no parameters: %s", workers[i].text);
    }
    assert_string_equal(found[0], found[1]);
    at = workers[0].text + (found[0] - workers[0].text) + strlen("update_parameters: parameters");
    for (int i = 1; i <= 8; i++)
        assert_float_equal(strtod(at, &at), i, 0.05);
}

/* Whoever waits for a gradient that does not come is told whose it is. */
static void update_parameters_names_who_is_missing(void **state)
{
    struct worker_program server, workers[2];
    unsigned port = worker_free_port();

    worker_start(&server, update_parameters, "--rank 0 --master-port %u", port);
    worker_start(&workers[0], update_parameters, "--rank 1 --master-port %u", port);
    worker_start(&workers[1], update_parameters, "--rank 2 --master-port %u --rounds 99", port);
    worker_finish(&workers[0], 1);
    worker_finish(&workers[1], 0);
    worker_finish(&server, 1);
    worker_said(&workers[0],
                "update_parameters: rank 1: update: update on worker \"server\" (rank 0): round 99: no "
                "gradient from rank 2\n");
    worker_said(&server, "update_parameters: 99 of 100 rounds were done\n");
}

/* Labels are drawn by the server's model, so an answer that belongs to another request shows in the loss; sums are in the order of
 * requests, so it is always the same. */
static void score_streams(void **state)
{
    struct worker_program server, trainers[2];
    unsigned port = worker_free_port();

    worker_start(&server, score, "--world-size 3 --rank 0 --master_port %u", port);
    worker_start(&trainers[0], score, "--world-size=3 --rank=1 --master-port %u --requests 300", port);
    worker_start(&trainers[1], score,
                 "--world_size 3 --rank 2 --master-port %u --requests 60 --batch 1000 --under-way 1", port);
    worker_finish(&trainers[0], 0);
    worker_finish(&trainers[1], 0);
    worker_finish(&server, 0);
    assert_float_equal(worker_number(&trainers[0], "samples"), 300 * 64, 0);
    assert_float_equal(worker_number(&trainers[1], "samples"), 60 * 1000, 0);
    for (int i = 0; i < 2; i++) {
        worker_said(&trainers[i], "score: ok ");
        assert_true(worker_number(&trainers[i], "logloss") < 0.57); /* 0.693: of no use */
        assert_true(worker_number(&trainers[i], "samples_per_s") > 0);
    }
}

/* A wrong command line ends with one line and 2. */
static void refused(const char *program, const char *line, const char *says)
{
    struct worker_program p;

    worker_start(&p, program, "%s", line);
    worker_finish(&p, 2);
    worker_said(&p, says);
    assert_ptr_equal(strchr(p.text, '\n') + 1, p.text + strlen(p.text));
}

static void command_lines_are_checked(void **state)
{
    const char *const programs[] = {update_parameters, score};
    struct worker_program p;

    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        worker_start(&p, programs[i], "--help");
        worker_finish(&p, 0);
        worker_said(&p, "usage: ");
        worker_said(&p, "  --master-port N ");
        refused(programs[i], "--world-size 2", "--rank is missing; see ");
        refused(programs[i], "--rank 3", "--rank 3 is not below --world-size ");
        refused(programs[i], "--rank 1.5", "--rank '1.5' is not a whole number from 0 to 16; see ");
        refused(programs[i], "--rank=", "--rank '' is not a whole number");
        refused(programs[i], "--rnk 1", "unknown option '--rnk'; see ");
        refused(programs[i], "--rank", "--rank needs a value; see ");
        refused(programs[i], "--master-port 70000", "--master-port '70000' is not");
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(update_parameters_finds_them),
        cmocka_unit_test(update_parameters_names_who_is_missing),
        cmocka_unit_test(score_streams),
        cmocka_unit_test(command_lines_are_checked),
    };

    if (argc < 3)
        return 2;
    update_parameters = argv[1];
    score = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
