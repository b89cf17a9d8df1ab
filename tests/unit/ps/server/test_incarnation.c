/* What a node keeps beside its checkpoints: the incarnation, which rises at every start, and its history. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "ps/core/history.h"
#include "ps/server/incarnation.h"
#include "tests/test.h"

static char directory[64];
static char path[128];

static int incarnation_make(void **state)
{
    snprintf(directory, sizeof(directory), "/tmp/millrace-incarnation-XXXXXX");
    return mkdtemp(directory) == NULL || snprintf(path, sizeof(path), "%s/incarnation", directory) < 0;
}

static int incarnation_destroy(void **state)
{
    (void)unlink(path);
    return rmdir(directory);
}

static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

TEST(rises_from_1, incarnation_make, incarnation_destroy)
{
    char error[256];
    for (uint32_t expected = 1; expected <= 3; expected++) {
        uint32_t incarnation = 0;
        assert_int_equal(ps_incarnation_next(NULL, directory, &incarnation, error, sizeof(error)), MR_OK);
        assert_int_equal(incarnation, expected);
    }
    write_file("41\n");
    uint32_t incarnation;
    assert_int_equal(ps_incarnation_next(NULL, directory, &incarnation, error, sizeof(error)), MR_OK);
    assert_int_equal(incarnation, 42);
}

TEST(makes_the_directory, incarnation_make, incarnation_destroy)
{
    char error[256], below[80];
    uint32_t incarnation;
    snprintf(below, sizeof(below), "%s/below", directory);
    assert_int_equal(ps_incarnation_next(NULL, below, &incarnation, error, sizeof(error)), MR_OK);
    snprintf(path, sizeof(path), "%s/incarnation", below);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(below), 0);
    snprintf(below, sizeof(below), "%s/no/where", directory);
    assert_int_equal(ps_incarnation_next(NULL, below, &incarnation, error, sizeof(error)), MR_IO_ERROR);
    assert_non_null(strstr(error, below));
}

TEST(refuses_a_file_that_is_no_number, incarnation_make, incarnation_destroy)
{
    const char *const texts[] = {"", "\n", "x\n", "12", "12x\n", "4294967295\n", "99999999999999999999\n"};
    char error[256];
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        uint32_t incarnation = 7;
        write_file(texts[i]);
        assert_int_equal(ps_incarnation_next(NULL, directory, &incarnation, error, sizeof(error)),
                         MR_IO_ERROR);
        assert_non_null(strstr(error, path));
        assert_int_equal(incarnation, 7);
    }
}

TEST(without_a_directory_it_is_the_time, incarnation_make, incarnation_destroy)
{
    char error[256];
    uint32_t incarnation = 0;
    assert_int_equal(ps_incarnation_next(NULL, "", &incarnation, error, sizeof(error)), MR_OK);
    assert_true(incarnation > 1600000000);
}

TEST(start_ids_are_never_the_same, incarnation_make, incarnation_destroy)
{
    char error[256];
    uint64_t a = 0, b = 0;
    assert_int_equal(ps_incarnation_start_id(&a, error, sizeof(error)), MR_OK);
    assert_int_equal(ps_incarnation_start_id(&b, error, sizeof(error)), MR_OK);
    assert_true(a != 0 && b != 0 && a != b);
}

/* ---- history ---- */

static struct ps_history history;
static char history_path[128];

static int make_for_history(void **state)
{
    int failed = incarnation_make(state);
    snprintf(history_path, sizeof(history_path), "%s/history", directory);
    memset(&history, 0xa5, sizeof(history));
    return failed;
}

static int destroy_history(void **state)
{
    (void)unlink(history_path);
    return incarnation_destroy(state);
}

static enum mr_status open_history(char error[256])
{
    return ps_history_open(NULL, directory, &history, error, 256);
}

TEST(history_is_what_was_written, make_for_history, destroy_history)
{
    char error[256];
    assert_int_equal(open_history(error), MR_OK);
    uint32_t lineage = history.lineage;
    assert_true(lineage != 0 && history.last_feature == 0 && history.restores == 0);
    assert_false(ps_history_goes_back(&history, 0));
    history.last_feature = 17;
    ps_history_restored(&history, "/a b/c", 5, 8);
    history.restores++;
    ps_history_replaced(&history, 3);
    history.restores++;
    ps_history_replaced(&history, 9);
    ps_history_replaced(&history, 3);
    assert_int_equal(ps_history_write(NULL, directory, &history, error, sizeof(error)), MR_OK);
    memset(&history, 0xa5, sizeof(history));
    assert_int_equal(open_history(error), MR_OK);
    assert_int_equal(history.lineage, lineage);
    assert_int_equal(history.last_feature, 17);
    assert_int_equal(history.restores, 3);
    assert_int_equal(ps_history_taken_back(&history, 3), 3);
    assert_int_equal(ps_history_taken_back(&history, 9), 3);
    assert_int_equal(ps_history_taken_back(&history, 4), 1);
    assert_true(ps_history_goes_back(&history, 8));
    assert_int_equal(history.back_id, 5);
    assert_string_equal(history.back_directory, "/a b/c");
    assert_false(ps_history_goes_back(&history, 9)); /* it has saved since */
    ps_history_restored(&history, "", 0, 9);
    assert_false(ps_history_goes_back(&history, 9)); /* there is nothing later */
    assert_int_equal(ps_history_taken_back(&history, 3), 4);
    assert_int_equal(ps_history_taken_back(&history, 4), 4);
}

TEST(a_wiped_directory_has_another_lineage, make_for_history, destroy_history)
{
    char error[256];
    assert_int_equal(open_history(error), MR_OK);
    uint32_t lineage = history.lineage;
    assert_int_equal(unlink(history_path), 0);
    assert_int_equal(open_history(error), MR_OK);
    assert_true(history.lineage != lineage);
    assert_int_equal(ps_history_open(NULL, "", &history, error, sizeof(error)), MR_OK);
    assert_true(history.lineage != 0 && history.lineage != lineage);
}

TEST(refuses_a_history_that_nobody_wrote, make_for_history, destroy_history)
{
    const char *const texts[] = {"",
                                 "lineage 1",
                                 "lineage 0\n",
                                 "features 3\n",
                                 "lineage 1\nfeatures 65536\n",
                                 "lineage 1\nrestores 1 2\n",
                                 "lineage 1\nrestores 1 1\nreplaced 3 2\n",
                                 "lineage 1\nback 1\n",
                                 "lineage 1\nmore 1\n",
                                 "lineage 1 \n"};
    char error[256];
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        snprintf(path, sizeof(path), "%s", history_path);
        write_file(texts[i]);
        assert_int_equal(open_history(error), MR_IO_ERROR);
        assert_non_null(strstr(error, history_path));
    }
}

/* However many features are replaced and dropped in the course of time. */
TEST(replaced_features_that_are_dropped_take_no_place)
{
    static struct ps_history h;
    for (uint32_t id = 1; id <= MR_FEATURE_MAX + 1; id++) {
        h.restores++;
        ps_history_replaced(&h, id);
        assert_int_equal(ps_history_taken_back(&h, id), h.restores);
        ps_history_dropped(&h, id);
    }
    assert_int_equal(h.replaced_count, 0);
}
