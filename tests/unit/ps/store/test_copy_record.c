/* The record of a copy: what was written is read again, and what is damaged is no record. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ps/store/copy_record.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"

static char path[PS_PATH_BYTES];

static int set_up(void **state)
{
    *state = temporary_directory_make();
    (void)snprintf(path, sizeof(path), "%s/" PS_COPY_RECORD_NAME, (const char *)*state);
    return 0;
}

static int tear_down(void **state)
{
    return temporary_directory_remove(*state);
}

static void write_one(const char *directory)
{
    struct ps_copy_record record;
    const struct ps_hash hash = {.low = 1, .high = UINT64_MAX};
    assert_true(ps_copy_record_begin(&record, "s3://models/my ads", 7, hash, 3));
    record.files[0] = (struct ps_copy_file){
        .is_whole = true, .sent = 9, .mark = {.bytes = 9, .text = "\"an etag\""}, .hash = {3, 4}};
    record.files[2] =
        (struct ps_copy_file){.sent = 90, .mark = {.bytes = 80, .text = "1 80 an upload/1"}, .hash = {5, 6}};
    memset(record.files[2].mark.text + 16, 'x', sizeof(record.files[2].mark.text) - 17);
    ps_copy_record_write(directory, &record);
    ps_copy_record_clear(&record);
}

/* Another user of a shared directory may have made one. */
TEST(a_link_is_not_written_through, set_up, tear_down)
{
    char link[PS_PATH_BYTES + 8], victim[PS_PATH_BYTES];
    (void)snprintf(link, sizeof(link), "%s.new", path);
    (void)snprintf(victim, sizeof(victim), "%s/victim", (const char *)*state);
    assert_int_equal(symlink(victim, link), 0);
    write_one(*state);
    assert_int_equal(access(victim, F_OK), -1);
    assert_int_equal(access(path, F_OK), 0);
}

TEST(what_was_written_is_read, set_up, tear_down)
{
    struct ps_copy_record r;
    assert_false(ps_copy_record_read(*state, &r));
    write_one(*state);
    assert_true(ps_copy_record_read(*state, &r));
    assert_string_equal(r.to, "s3://models/my ads");
    assert_int_equal(r.id, 7);
    assert_int_equal(r.manifest.low, 1);
    assert_int_equal(r.manifest.high, UINT64_MAX);
    assert_int_equal(r.file_count, 3);
    assert_true(r.files[0].is_whole);
    assert_int_equal(r.files[0].mark.bytes, 9);
    assert_string_equal(r.files[0].mark.text, "\"an etag\"");
    assert_int_equal(r.files[0].hash.high, 4);
    assert_false(r.files[1].is_whole);
    assert_int_equal(r.files[1].mark.bytes, 0);
    assert_false(r.files[2].is_whole);
    assert_int_equal(r.files[2].sent, 90);
    assert_int_equal(r.files[2].mark.bytes, 80);
    assert_int_equal(strlen(r.files[2].mark.text), sizeof(r.files[2].mark.text) - 1);
    assert_int_equal(r.files[2].hash.low, 5);
    ps_copy_record_clear(&r);
    ps_copy_record_remove(*state);
    assert_false(ps_copy_record_read(*state, &r));
}

static size_t read_bytes(char *out, size_t room)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    const size_t bytes = fread(out, 1, room, file);
    (void)fclose(file);
    return bytes;
}

static void write_bytes(const char *data, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    (void)fclose(file);
}

/* Each byte changed, and each length that it could have been cut to. */
TEST(a_damaged_record_is_none, set_up, tear_down)
{
    static char good[4096], bad[4096];
    struct ps_copy_record r;
    write_one(*state);
    const size_t bytes = read_bytes(good, sizeof(good));
    assert_int_in_range(bytes, 100, sizeof(good) - 1);
    for (size_t i = 0; i < bytes - 1; i++) { /* the last is the end of the last line */
        memcpy(bad, good, bytes);
        bad[i] ^= 1;
        write_bytes(bad, bytes);
        if (ps_copy_record_read(*state, &r))
            fail_msg("byte %zu was changed", i);
        write_bytes(good, i);
        if (ps_copy_record_read(*state, &r))
            fail_msg("it was cut to %zu bytes", i);
    }
    write_bytes(good, bytes);
    assert_true(ps_copy_record_read(*state, &r));
    ps_copy_record_clear(&r);
}
