/* Damage of every kind: the damaged checkpoint is refused, naming file and block; without an id the older one
 * is taken. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint_fixture.h"
#include "fault_store.h"
#include "tests/test.h"
#include "tests/unit/ps/reader_each.h"

#define OLD_ROWS 300u
#define NEW_ROWS 60000u /* two blocks on each core */

static void save_two(const char *directory)
{
    assert_int_equal(fixture_save(ps_store_local(), directory, 1, OLD_ROWS).status, MR_OK);
    assert_int_equal(fixture_save(ps_store_local(), directory, 2, NEW_ROWS).status, MR_OK);
}

/* Checkpoint 2 is damaged: by id it is refused with a text that holds `expected`, without one the reader
 * falls back. */
static void check_damaged(const char *directory, const char *expected)
{
    struct ps_reader *r = NULL;
    char text[PS_TEXT_BYTES] = "";
    assert_int_equal(ps_reader_open(NULL, directory, 2, &r, text), MR_CHECKPOINT_CORRUPT);
    assert_null(r);
    assert_says(text, expected);
    memset(text, 0, sizeof(text));
    assert_int_equal(ps_reader_open(NULL, directory, 0, &r, text), MR_OK);
    assert_non_null(strstr(text, expected));
    fixture_check(r, 1, OLD_ROWS);
    ps_reader_close(r);
}

static uint8_t swap_byte(const char *path, off_t at, uint8_t byte)
{
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    uint8_t before;
    assert_int_equal(pread(fd, &before, 1, at), 1);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
    return before;
}

static off_t file_bytes(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

TEST(test_a_changed_byte_anywhere_in_a_block, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_two(directory);
    /* magic, version, hash, id, core, number, payload bytes, record count, reserved, record header, content,
     * middle, end */
    static const off_t places[] = {0,  4,  8,  16, 24, 32, 36,     40,
                                   44, 48, 63, 64, 72, 96, 500000, PS_BLOCK_BYTES - 1};
    for (uint32_t core = 0; core < FIXTURE_CORES; core++) {
        char name[PS_FILE_NAME_BYTES];
        ps_file_name(core, name);
        for (uint32_t block = 0; block < 2; block++)
            for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
                const char *path = fixture_path(directory, 2, name);
                const off_t at = block * (off_t)PS_BLOCK_BYTES + places[i];
                uint8_t before = swap_byte(path, at, 0);
                swap_byte(path, at, (uint8_t)(before ^ 0x5A));
                char expected[48];
                (void)snprintf(expected, sizeof(expected), "%s: block %u: ", name, block);
                check_damaged(directory, expected);
                swap_byte(fixture_path(directory, 2, name), at, before);
            }
    }
    struct ps_reader *r;
    char text[PS_TEXT_BYTES];
    assert_int_equal(ps_reader_open(NULL, directory, 0, &r, text), MR_OK);
    fixture_check(r, 2, NEW_ROWS);
    ps_reader_close(r);
}

TEST(test_a_changed_byte_in_the_manifest, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_two(directory);
    const off_t bytes = file_bytes(fixture_path(directory, 2, "MANIFEST"));
    for (off_t at = 0; at < bytes; at += 13) {
        uint8_t before = swap_byte(fixture_path(directory, 2, "MANIFEST"), at, 0);
        check_damaged(directory, "MANIFEST");
        swap_byte(fixture_path(directory, 2, "MANIFEST"), at, before);
    }
}

TEST(test_files_that_are_cut_or_longer, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_two(directory);
    const char *path = fixture_path(directory, 2, "core-001.mrc");
    const off_t bytes = file_bytes(path);
    const off_t others[] = {0, 1, PS_BLOCK_BYTES, bytes - 1, bytes + 1, bytes + PS_BLOCK_BYTES};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        char *copy = strdup(fixture_path(directory, 2, "core-001.mrc"));
        char *kept = NULL;
        assert_true(asprintf(&kept, "%s.kept", copy) > 0);
        assert_int_equal(rename(copy, kept), 0);
        FILE *in = fopen(kept, "r"), *out = fopen(copy, "w");
        for (off_t n = 0; n < bytes; n++)
            (void)putc_unlocked(getc_unlocked(in), out);
        fclose(in);
        fclose(out);
        assert_int_equal(truncate(copy, others[i]), 0);
        check_damaged(directory, "core-001.mrc: its length");
        assert_int_equal(rename(kept, copy), 0);
        free(copy);
        free(kept);
    }
}

TEST(test_missing_files, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_two(directory);
    assert_int_equal(unlink(fixture_path(directory, 2, "core-001.mrc")), 0);
    check_damaged(directory, "core-001.mrc: it is missing");
    assert_int_equal(mkdir(fixture_path(directory, 2, "core-001.mrc"), 0755), 0);
    check_damaged(directory, "core-001.mrc");
    assert_int_equal(unlink(fixture_path(directory, 2, "MANIFEST")), 0);
    check_damaged(directory, "MANIFEST: it is missing");
    assert_int_equal(mkfifo(fixture_path(directory, 2, "MANIFEST"), 0600), 0);
    check_damaged(directory, "MANIFEST");
}

TEST(test_an_empty_or_huge_manifest, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_two(directory);
    assert_int_equal(truncate(fixture_path(directory, 2, "MANIFEST"), 0), 0);
    check_damaged(directory, "MANIFEST: it is empty");
    assert_int_equal(truncate(fixture_path(directory, 2, "MANIFEST"), PS_MANIFEST_BYTES_MAX + 1), 0);
    check_damaged(directory, "MANIFEST: it is too long");
}

/* Whole, valid blocks in a wrong place: another file of the same checkpoint, and another checkpoint. */
TEST(test_exchanged_files, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_two(directory);
    char *zero = strdup(fixture_path(directory, 2, "core-000.mrc"));
    char *one = strdup(fixture_path(directory, 2, "core-001.mrc"));
    char *aside = strdup(fixture_path(directory, 2, "aside"));
    assert_int_equal(rename(zero, aside) | rename(one, zero) | rename(aside, one), 0);
    check_damaged(directory, "block 0: it belongs in another place");
    assert_int_equal(rename(zero, aside) | rename(one, zero) | rename(aside, one), 0);

    assert_int_equal(fixture_save(ps_store_local(), directory, 3, NEW_ROWS).status, MR_OK);
    assert_int_equal(rename(fixture_path(directory, 3, "core-000.mrc"), zero), 0);
    assert_int_equal(ps_store_remove_tree(ps_store_local(), fixture_path(directory, 3, ""), NULL), 0);
    check_damaged(directory, "block 0: it belongs to another checkpoint");
    free(zero);
    free(one);
    free(aside);
}

/* A valid checkpoint under another checkpoint's name. */
TEST(test_a_renamed_checkpoint, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_two(directory);
    char *three = strdup(fixture_path(directory, 3, ""));
    assert_int_equal(rename(fixture_path(directory, 2, ""), three), 0);
    free(three);
    struct ps_reader *r;
    char text[PS_TEXT_BYTES];
    assert_int_equal(ps_reader_open(NULL, directory, 3, &r, text), MR_CHECKPOINT_CORRUPT);
    assert_non_null(strstr(text, "it belongs to another checkpoint"));
    assert_int_equal(ps_reader_open(NULL, directory, 2, &r, text), MR_CHECKPOINT_NOT_FOUND);
}

/* The same id written twice, with other content: blocks fit in, the manifest's hash of hashes tells. */
TEST(test_blocks_of_an_earlier_attempt, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_two(directory);
    char *kept = NULL;
    assert_true(asprintf(&kept, "%s/kept", directory) > 0);
    assert_int_equal(rename(fixture_path(directory, 2, "core-000.mrc"), kept), 0);
    assert_int_equal(ps_store_remove_tree(ps_store_local(), fixture_path(directory, 2, ""), NULL), 0);
    struct ps_writer *w;
    char text[PS_TEXT_BYTES];
    assert_int_equal(fixture_start(ps_store_local(), directory, 2, &w, text), MR_OK);
    assert_true(fixture_fill(w, 99, 0, NEW_ROWS));
    fixture_publish(w, FIXTURE_CORES);
    assert_int_equal(rename(kept, fixture_path(directory, 2, "core-000.mrc")), 0);
    check_damaged(directory, "core-000.mrc: its blocks are not those that the MANIFEST names");
    free(kept);
}

TEST(test_nothing_there, temporary_directory_setup, temporary_directory_teardown)
{
    struct ps_reader *r = NULL;
    char text[PS_TEXT_BYTES], path[PS_PATH_BYTES];
    assert_int_equal(ps_reader_open(NULL, *state, 0, &r, text), MR_CHECKPOINT_NOT_FOUND);
    assert_non_null(strstr(text, "there is no checkpoint"));
    assert_int_equal(ps_reader_open(NULL, *state, 8, &r, text), MR_CHECKPOINT_NOT_FOUND);
    assert_non_null(strstr(text, "ckpt-8"));
    assert_true(ps_path_join(*state, "away", path));
    assert_int_equal(ps_reader_open(NULL, path, 0, &r, text), MR_CHECKPOINT_NOT_FOUND);
    assert_int_equal(ps_reader_open(NULL, path, 1, &r, text), MR_CHECKPOINT_NOT_FOUND);
    assert_null(r);
}

/* What a later version wrote is not damaged: older parameters are not taken in its place. */
TEST(test_a_newer_format_is_no_reason_to_fall_back, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    struct ps_reader *r = NULL;
    char text[PS_TEXT_BYTES], says[128];
    save_two(directory);
    fixture_make_newer(directory, 2);
    assert_int_equal(ps_reader_open(NULL, directory, 0, &r, text), MR_CHECKPOINT_NEWER);
    (void)snprintf(says, sizeof(says),
                   "ckpt-2/MANIFEST: it is of format %u, this version (%s) reads up to %u: ",
                   PS_FORMAT_VERSION + 1, mr_version_text(), PS_FORMAT_VERSION);
    assert_non_null(strstr(text, says));
    assert_int_equal(ps_reader_open(NULL, directory, 2, &r, text), MR_CHECKPOINT_NEWER);
    assert_null(r);
    assert_int_equal(ps_reader_open(NULL, directory, 1, &r, text), MR_OK);
    ps_reader_close(r);
}

static void expect_unknown(const char *directory, const char *where, const char *key, json_t *value,
                           const char *says)
{
    struct ps_reader *r = NULL;
    char text[PS_TEXT_BYTES];
    fixture_rewrite(fixture_path(directory, 2, PS_MANIFEST_NAME), where, key, value);
    assert_int_equal(ps_reader_open(NULL, directory, 0, &r, text), MR_CHECKPOINT_NEWER);
    if (strstr(text, says) == NULL || strstr(text, mr_version_text()) == NULL)
        fail_msg("\"%s\" does not say %s", text, says);
    assert_int_equal(ps_reader_open(NULL, directory, 2, &r, text), MR_CHECKPOINT_NEWER);
    assert_null(r);
}

/* Its hash is right, so it is as it was written: by a version that knows more than this one. */
TEST(test_unknown_content_is_no_damage, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_two(directory);
    expect_unknown(directory, "features", "optimizer", json_integer(17), "optimizer");
    fixture_rewrite(fixture_path(directory, 2, PS_MANIFEST_NAME), "features", "optimizer",
                    json_integer(MR_OPT_ADAGRAD));
    expect_unknown(directory, "features", "cuteness", json_real(1.5), "not as it was written");
}

TEST(test_an_unknown_capability_is_no_damage, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_two(directory);
    const char *path = fixture_path(directory, 2, PS_MANIFEST_NAME);
    fixture_rewrite(path, "", "version", json_integer(PS_FORMAT_VERSION));
    fixture_rewrite(path, "", "written_by", json_string("0.9.1+0badcafe"));
    expect_unknown(directory, "", "needs", json_pack("[s,s]", "dense", "telepathy"),
                   "it needs \"telepathy\", and was written by version 0.9.1+0badcafe");
}

/* A machine short of descriptors, or a disk that fails to read now, is no reason to take older parameters. */
static void fail_each_call_and_fall_back_never(const char *directory, int error)
{
    struct fault_store f;
    uint32_t refused = 0;
    for (uint32_t n = 1;; n++) {
        assert_true(n < 100);
        fault_store_init(&f);
        f.fail_at = n;
        f.error = error;
        struct ps_reader *r = NULL;
        char text[PS_TEXT_BYTES];
        enum mr_status status = ps_reader_open(&f.store, directory, 0, &r, text);
        refused += status == MR_IO_ERROR;
        if (status == MR_OK)
            assert_int_equal(ps_reader_manifest(r)->id, 2);
        ps_reader_close(r);
        if (!f.triggered)
            break;
    }
    assert_true(refused >= 3);
}

TEST(test_an_error_of_the_machine_is_no_reason_to_fall_back, temporary_directory_setup,
     temporary_directory_teardown)
{
    static const int errors[] = {EMFILE, EIO, EINVAL, EACCES};
    save_two(*state);
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
        fail_each_call_and_fall_back_never(*state, errors[i]);
}

static enum mr_status stop_at_third(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    (void)record;
    (void)bytes;
    uint32_t *seen = arg;
    return ++*seen == 3 ? MR_OUT_OF_MEMORY : MR_OK;
}

TEST(test_the_visitor_can_stop, temporary_directory_setup, temporary_directory_teardown)
{
    save_two(*state);
    struct ps_reader *r;
    char text[PS_TEXT_BYTES];
    uint32_t seen = 0;
    assert_int_equal(ps_reader_open(NULL, *state, 0, &r, text), MR_OK);
    assert_int_equal(reader_each(r, stop_at_third, &seen, text), MR_OUT_OF_MEMORY);
    assert_int_equal(seen, 3);
    ps_reader_close(r);
}

/* Damage after opening is noticed before the damaged block reaches the visitor. */
TEST(test_damage_after_opening, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_two(directory);
    struct ps_reader *r;
    char text[PS_TEXT_BYTES];
    uint32_t seen = 10; /* never stops */
    assert_int_equal(ps_reader_open(NULL, directory, 2, &r, text), MR_OK);
    swap_byte(fixture_path(directory, 2, "core-000.mrc"), 200, 0xEE);
    swap_byte(fixture_path(directory, 2, "core-000.mrc"), 201, 0xEE);
    assert_int_equal(reader_each(r, stop_at_third, &seen, text), MR_CHECKPOINT_CORRUPT);
    assert_int_equal(seen, 10);
    assert_non_null(strstr(text, "core-000.mrc: block 0: its hash"));
    ps_reader_close(r);
}
