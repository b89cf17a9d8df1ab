/* The examples of remote calls, as their pages run them: every rank a process over loopback. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/integration/rpc/worker_programs.h"
#include "tests/test.h"

static const char *update_parameters, *score;
#ifdef HAS_LAYERS
static const char *pipeline, *mnist;
static char pictures[] = "/tmp/millrace-pictures-XXXXXX";
#endif

/* Both workers end with the same parameters, to the bit, and with what was to be found: 1, 2, 3 ... */
TEST(update_parameters_finds_them)
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
TEST(update_parameters_names_who_is_missing)
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

/* Labels are drawn by the server's model, so an answer that belongs to another request shows in the loss;
 * sums are in the order of requests, so it is always the same. */
TEST(score_streams)
{
    struct worker_program server, trainers[2];
    unsigned port = worker_free_port();
    worker_start(&server, score, "--world-size 3 --rank 0 --master_port %u", port);
    worker_start(&trainers[0], score, "--world-size=3 --rank=1 --master-port %u --requests 300", port);
    worker_start(&trainers[1], score,
                 "--world_size 3 --rank 2 --master-port %u --requests 60 --batch 1000 --in-flight 1", port);
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

#ifdef HAS_LAYERS
TEST(pipeline_learns)
{
    struct worker_program trainer, halves[2];
    unsigned port = worker_free_port();
    worker_start(&trainer, pipeline, "--rank 0 --master-port %u", port);
    worker_start(&halves[0], pipeline, "--rank 1 --master-port %u", port);
    worker_start(&halves[1], pipeline, "--rank 2 --master-port %u", port);
    worker_finish(&trainer, 0);
    worker_finish(&halves[0], 0);
    worker_finish(&halves[1], 0);
    worker_said(&trainer, "pipeline: step 0 loss 1.");
    worker_said(&trainer, "pipeline: ok accuracy=0.9");
    assert_string_equal(halves[0].text, "");
    assert_string_equal(halves[1].text, "");
}

/* ---- mnist, on pictures made up here ---- */

enum { SIDE = 28, PIXELS = SIDE * SIDE, TRAIN = 1600, TEST = 200 };

static void rpc_examples_put(FILE *file, uint32_t number)
{
    const uint8_t bytes[4] = {(uint8_t)(number >> 24), (uint8_t)(number >> 16), (uint8_t)(number >> 8),
                              (uint8_t)number};
    assert_int_equal(fwrite(bytes, 1, sizeof(bytes), file), sizeof(bytes));
}

static FILE *open_in(const char *directory, const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    return file;
}

/* A white square whose place says the class, among grey noise. */
static void write_pictures(const char *directory, const char *images_name, const char *labels_name,
                           uint32_t count)
{
    FILE *images = open_in(directory, images_name), *labels = open_in(directory, labels_name);
    uint64_t state = count;
    rpc_examples_put(images, 0x803);
    rpc_examples_put(images, count);
    rpc_examples_put(images, SIDE);
    rpc_examples_put(images, SIDE);
    rpc_examples_put(labels, 0x801);
    rpc_examples_put(labels, count);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t picture[PIXELS], label = (uint8_t)(i % 10);
        for (int p = 0; p < PIXELS; p++) {
            int row = p / SIDE - 2 - label / 5 * 12, column = p % SIDE - 1 - label % 5 * 5;
            state = state * 6364136223846793005u + 1442695040888963407u;
            picture[p] = row >= 0 && row < 10 && column >= 0 && column < 5 ? 255 : (uint8_t)(state >> 58);
        }
        assert_int_equal(fwrite(picture, 1, PIXELS, images), PIXELS);
        assert_int_equal(fputc(label, labels), label);
    }
    assert_int_equal(fclose(images), 0);
    assert_int_equal(fclose(labels), 0);
}

static int make_pictures(void **state)
{
    snprintf(pictures, sizeof(pictures), "/tmp/millrace-pictures-XXXXXX");
    if (mkdtemp(pictures) == NULL)
        return -1;
    write_pictures(pictures, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", TRAIN);
    write_pictures(pictures, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", TEST);
    return 0;
}

static int remove_pictures(void **state)
{
    static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                        "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
    char path[256];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/%s", pictures, names[i]);
        (void)unlink(path);
    }
    return rmdir(pictures);
}

static void mnist_learns(uint32_t trainers)
{
    struct worker_program server, others[4];
    unsigned port = worker_free_port();
    uint32_t tested = 0;
    worker_start(&server, mnist, "--world-size %u --rank 0 --master-port %u --accuracy 0.9 --threads 2",
                 trainers + 1, port);
    for (uint32_t i = 0; i < trainers; i++)
        worker_start(&others[i], mnist, "--world_size %u --rank %u --master_port %u --data %s --num_gpus 0",
                     trainers + 1, i + 1, port, pictures);
    for (uint32_t i = 0; i < trainers; i++) {
        char first[64];
        worker_finish(&others[i], 0);
        snprintf(first, sizeof(first), "Rank %u training batch 0 loss ", i + 1);
        worker_said(&others[i], first);
        tested += strstr(others[i].text, ": accuracy ") != NULL;
    }
    worker_finish(&server, 0);
    assert_int_equal(tested, 1);
    worker_said(&server, "mnist: ok accuracy=");
    assert_float_equal(worker_number(&server, "trainers"), trainers, 0);
    assert_true(worker_number(&server, "accuracy") >= 0.9);
    assert_true(worker_number(&server, "images_per_s") > 0);
}

TEST(one_trainer_trains_mnist, make_pictures, remove_pictures)
{
    mnist_learns(1);
}

TEST(four_trainers_train_mnist, make_pictures, remove_pictures)
{
    mnist_learns(4);
}

TEST(mnist_says_who_died, make_pictures, remove_pictures)
{
    struct worker_program server, others[2];
    unsigned port = worker_free_port();
    char line[128];
    worker_start(&server, mnist, "--world-size 3 --rank 0 --master-port %u", port);
    for (uint32_t i = 0; i < 2; i++)
        worker_start(&others[i], mnist, "--world-size 3 --rank %u --master-port %u --data %s", i + 1, port,
                     pictures);
    assert_non_null(fgets(line, sizeof(line), others[1].from));
    assert_int_equal(kill(others[1].pid, SIGKILL), 0);
    worker_finish(&others[0], 0);
    worker_finish(&others[1], -SIGKILL);
    worker_finish(&server, 1);
    worker_said(&server, "mnist: rank 0: trainer_2 (rank 2) ended before it was done\n");
    worker_said(&server, "mnist: rank 0: 1 of 2 trainers were done, the model was not tested\n");
}

TEST(mnist_says_what_is_wrong, make_pictures, remove_pictures)
{
    struct worker_program p;
    char path[256];
    worker_start(&p, mnist, "--rank 1 --data /nonexistent");
    worker_finish(&p, 1);
    assert_string_equal(
        p.text, "mnist: rank 1: cannot read /nonexistent/train-images-idx3-ubyte: scripts/fetch-mnist.sh DIR "
                "brings MNIST's files\n");
    snprintf(path, sizeof(path), "%s/t10k-labels-idx1-ubyte", pictures);
    assert_int_equal(truncate(path, 8 + TEST - 1), 0);
    worker_start(&p, mnist, "--rank 1 --data %s", pictures);
    worker_finish(&p, 1);
    worker_said(&p, "t10k-labels-idx1-ubyte has 207 bytes, and says that it has 200 items: it is damaged\n");
    worker_start(&p, mnist, "--rank 1 --num-gpus 1");
    worker_finish(&p, 2);
    worker_said(&p, "mnist: --num-gpus 1: layers are computed on CPUs only; see mnist --help\n");
    worker_start(&p, mnist, "--rank 0 --world-size 1");
    worker_finish(&p, 2);
    worker_said(&p, "mnist: --world-size 1 is a server without trainers; see mnist --help\n");
    worker_start(&p, pipeline, "--rank 0 --world-size 2");
    worker_finish(&p, 2);
    worker_said(&p, "pipeline: --world-size 2: it is a world of 3; see pipeline --help\n");
}
#endif

/* A wrong command line ends with one line and 2. */
static void refused(const char *program, const char *line, const char *says)
{
    struct worker_program p;
    worker_start(&p, program, "%s", line);
    worker_finish(&p, 2);
    worker_said(&p, says);
    assert_ptr_equal(strchr(p.text, '\n') + 1, p.text + strlen(p.text));
}

TEST(command_lines_are_checked)
{
    const char *const programs[] = {update_parameters, score};
    struct worker_program p;
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        worker_start(&p, programs[i], "--help");
        worker_finish(&p, 0);
        worker_said(&p, "usage: ");
        worker_said(&p, "  --master-port N ");
        refused(programs[i], "--world-size 2", "--rank is missing; see ");
        refused(programs[i], "--rank 3", "--rank 3 is not below --world-size ");
        refused(programs[i], "--rank 1.5", "--rank must be a whole number from 0 to 16, not \"1.5\"; see ");
        refused(programs[i], "--rank=", "not \"\"");
        refused(programs[i], "--rnk 1", "unknown option --rnk; see ");
        refused(programs[i], "--rank", "--rank needs a value; see ");
        refused(programs[i], "--master-port 70000",
                "--master-port must be a whole number from 1 to 65535, not \"70000\"");
    }
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    update_parameters = argv[1];
    score = argv[2];
#ifdef HAS_LAYERS
    if (argc < 5)
        return 2;
    pipeline = argv[3];
    mnist = argv[4];
#endif
    return tests_run(NULL, NULL);
}
