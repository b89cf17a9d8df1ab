/* Segments as the writer leaves them, read again: after a power failure at any change, torn or damaged at any
 * byte, with disks that fail or are full, and over rotations and starts. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fault_store.h"
#include "power_store.h"
#include "ps/log/log_segments.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"

#define DIRECTORY "/ckpt"

enum { RECORDS_MAX = 64, SEEDS = 4 };

static const struct ps_log_base empty = {.id = 0};

/* A log of one core that is being written. */
struct log_file_test {
    const struct ps_store *store;
    const char *directory;
    struct ps_log_counters counters;
    struct ps_log_writer *writer;
    uint64_t now_us, number;
};

static void log_begin(struct log_file_test *t, const struct ps_store *store, const char *directory,
                      const struct ps_log_base *base)
{
    char text[PS_TEXT_BYTES];
    const char *note;
    struct ps_log_file file;
    *t = (struct log_file_test){.store = store, .directory = directory, .now_us = 1000000, .number = 1};
    if (ps_log_create(store, directory, 1, 1, base, NULL, &file, text) != MR_OK)
        fail_msg("%s", text);
    assert_int_equal(ps_log_writer_create(store, &t->counters, &t->writer, &note), 0);
    ps_log_writer_switch(t->writer, &file);
}

static void rotate(struct log_file_test *t, const struct ps_log_base *base)
{
    char text[PS_TEXT_BYTES];
    struct ps_log_file file;
    if (ps_log_create(t->store, t->directory, ++t->number, 1, base, NULL, &file, text) != MR_OK)
        fail_msg("%s", text);
    ps_log_writer_switch(t->writer, &file);
}

/* Record number n: n + 1 evicted keys, each n. */
static void append(struct log_file_test *t, uint32_t n)
{
    const struct ps_log_record record = {
        .kind = PS_LOG_EVICTED, .feature = n, .bytes = (n % 7 + 1) * sizeof(uint64_t)};
    assert_true(ps_log_writer_has_room(t->writer, record.bytes));
    uint64_t *keys = (uint64_t *)(void *)ps_log_writer_append(t->writer, &record);
    for (uint32_t i = 0; i < n % 7 + 1; i++)
        keys[i] = n;
}

static void segments_poll(struct log_file_test *t)
{
    t->now_us += PS_LOG_GROUP_US;
    (void)ps_log_writer_poll(t->writer, t->now_us);
}

static void flush(struct log_file_test *t)
{
    const uint64_t position = ps_log_writer_position(t->writer);
    do
        segments_poll(t);
    while (ps_log_writer_durable(t->writer) < position);
}

/* The records of core 0 that follow `base`, which are numbered from 0; how many. */
static enum mr_status count_records(const struct ps_store *store, const char *directory,
                                    const struct ps_log_base *base, uint32_t *count, struct ps_log_cut *cut,
                                    char text[PS_TEXT_BYTES])
{
    struct ps_log_list list;
    struct ps_log_replay *replay;
    uint64_t first, torn_bytes;
    uint32_t cores;
    *count = 0;
    *cut = (struct ps_log_cut){0};
    enum mr_status status = ps_log_list(store, directory, &list, text);
    if (status == MR_OK)
        status = ps_log_find(store, directory, &list, base, &first, &cores, text);
    if (status != MR_OK || first == 0) {
        free(list.numbers);
        return status;
    }
    status = ps_log_replay_open(store, directory, &list, first, 0, &replay, text);
    free(list.numbers);
    while (status == MR_OK) {
        const struct ps_log_record *record;
        uint8_t *content;
        status = ps_log_replay_next(replay, &record, &content, text);
        if (status == MR_OK && record == NULL) {
            *cut = ps_log_replay_cut(replay, &torn_bytes);
            break;
        }
        if (status == MR_OK) {
            assert_int_equal(record->feature, *count);
            assert_int_equal(*(const uint64_t *)(const void *)content, *count);
            ++*count;
        }
    }
    ps_log_replay_close(replay);
    return status;
}

static uint32_t expect_records(const struct ps_store *store, const char *directory,
                               const struct ps_log_base *base)
{
    char text[PS_TEXT_BYTES] = "";
    struct ps_log_cut cut;
    uint32_t count;
    if (count_records(store, directory, base, &count, &cut, text) != MR_OK)
        fail_msg("%s", text);
    return count;
}

static void expect_refused(const struct ps_store *store, const char *directory, const char *says)
{
    char text[PS_TEXT_BYTES] = "";
    struct ps_log_cut cut;
    uint32_t count;
    assert_int_equal(count_records(store, directory, &empty, &count, &cut, text), MR_CHECKPOINT_CORRUPT);
    assert_says(text, says);
}

/* ---- power failures ---- */

TEST(what_was_durable_survives_a_power_failure_at_any_change)
{
    struct log_file_test t;
    uint32_t changes[RECORDS_MAX], count = 0; /* after record n was durable */
    struct power_store *power = power_store_create();
    const struct ps_store *store = power_store_calls(power);
    const struct ps_log_base cut_of = {.id = 3};
    assert_int_equal(store->make_directory(store->self, DIRECTORY), 0);
    assert_int_equal(store->sync_directory(store->self, "/"), 0);
    log_begin(&t, store, DIRECTORY, &empty);
    while (count < 24) {
        const uint32_t group = 1 + count % 3;
        for (uint32_t i = 0; i < group; i++)
            append(&t, count + i);
        flush(&t);
        for (uint32_t i = 0; i < group; i++)
            changes[count++] = power_store_changes(power);
        if (count % 4 == 0)
            rotate(&t, &cut_of); /* of a save that was never published */
    }
    ps_log_writer_destroy(t.writer);
    for (uint32_t at = 0; at <= power_store_changes(power); at++) {
        for (uint64_t seed = 0; seed < POWER_DRAWN + SEEDS; seed++) {
            struct power_store *after = power_store_after_failure(power, at, seed);
            const uint32_t found = expect_records(power_store_calls(after), DIRECTORY, &empty);
            if (found < count && at >= changes[found])
                fail_msg("after %s: record %u was durable, and is not there, seed %u",
                         power_store_change(power, at - 1), (unsigned)found, (unsigned)seed);
            power_store_destroy(after);
        }
    }
    power_store_destroy(power);
}

/* ---- torn and damaged files ---- */

struct on_disk {
    char *directory;
    char path[256];
    uint8_t *bytes; /* of segment 1, as it was written */
    long length;
};

static void disk_write(const struct on_disk *d, const uint8_t *bytes, long length)
{
    const int fd = open(d->path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, bytes, (size_t)length) == length);
    assert_int_equal(close(fd), 0);
}

/* Three blocks of two records. */
static void disk_begin(struct on_disk *d)
{
    struct log_file_test t;
    d->directory = temporary_directory_make();
    log_begin(&t, ps_store_local(), d->directory, &empty);
    for (uint32_t n = 0; n < 6; n += 2) {
        append(&t, n);
        append(&t, n + 1);
        flush(&t);
    }
    ps_log_writer_destroy(t.writer);
    snprintf(d->path, sizeof(d->path), "%s/log/segment-1.000", d->directory);
    FILE *file = fopen(d->path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    d->length = ftell(file);
    assert_int_equal(d->length, 4 * PS_LOG_ALIGN);
    rewind(file);
    d->bytes = malloc((size_t)d->length);
    assert_int_equal(fread(d->bytes, 1, (size_t)d->length, file), d->length);
    (void)fclose(file);
}

static void disk_end(struct on_disk *d)
{
    free(d->bytes);
    assert_int_equal(temporary_directory_remove(d->directory), 0);
}

/* Bytes of a block that say something; zeros follow. */
static long used_bytes(const struct on_disk *d, uint32_t block)
{
    const struct ps_log_block *b =
        (const struct ps_log_block *)(const void *)(d->bytes + block * PS_LOG_ALIGN);
    return (long)(sizeof(*b) + b->bytes);
}

TEST(a_file_that_ends_at_any_byte_has_what_was_whole)
{
    struct on_disk d;
    disk_begin(&d);
    for (long length = 0; length <= d.length; length++) {
        uint32_t expected = 0;
        for (uint32_t block = 1; block < 4; block++)
            expected += length >= (long)(block * PS_LOG_ALIGN) + used_bytes(&d, block) ? 2 : 0;
        disk_write(&d, d.bytes, length);
        assert_int_equal(expect_records(ps_store_local(), d.directory, &empty), expected);
    }
    disk_end(&d);
}

TEST(a_wrong_byte_in_the_last_block_cuts_it_off_and_elsewhere_is_refused)
{
    struct on_disk d;
    disk_begin(&d);
    for (uint32_t block = 0; block < 4; block++) {
        const long end = block == 0 ? (long)sizeof(struct ps_log_header) : used_bytes(&d, block);
        for (long i = 0; i < end; i++) {
            uint8_t *at = &d.bytes[block * PS_LOG_ALIGN + i];
            *at ^= 0x40;
            disk_write(&d, d.bytes, d.length);
            *at ^= 0x40;
            if (block == 3)
                assert_int_equal(expect_records(ps_store_local(), d.directory, &empty), 4);
            else
                expect_refused(ps_store_local(), d.directory, block == 0 ? "segment" : "at byte");
        }
    }
    disk_end(&d);
}

TEST(a_block_that_is_missing_is_refused)
{
    struct on_disk d;
    disk_begin(&d);
    memset(d.bytes + 2 * PS_LOG_ALIGN, 0, PS_LOG_ALIGN);
    disk_write(&d, d.bytes, d.length);
    expect_refused(ps_store_local(), d.directory, "at byte 8192");
    memmove(d.bytes + 2 * PS_LOG_ALIGN, d.bytes + 3 * PS_LOG_ALIGN, PS_LOG_ALIGN);
    disk_write(&d, d.bytes, d.length - PS_LOG_ALIGN);
    expect_refused(ps_store_local(), d.directory, "missing");
    disk_end(&d);
}

TEST(a_torn_end_is_the_end_also_for_later_starts)
{
    struct on_disk d;
    struct ps_log_file file;
    struct ps_log_cut cut;
    struct ps_log_counters counters = {0};
    struct log_file_test t = {.store = ps_store_local(), .now_us = 1000000, .number = 2};
    char text[PS_TEXT_BYTES];
    const char *note;
    uint32_t count;
    disk_begin(&d);
    d.bytes[3 * PS_LOG_ALIGN + 100] ^= 1;
    disk_write(&d, d.bytes, d.length);
    assert_int_equal(count_records(ps_store_local(), d.directory, &empty, &count, &cut, text), MR_OK);
    assert_int_equal(count, 4);
    assert_int_equal(cut.number, 1);
    assert_int_equal(cut.bytes, 3 * PS_LOG_ALIGN);
    /* The start that found this goes on in a segment of its own. */
    assert_int_equal(ps_log_create(ps_store_local(), d.directory, 2, 1, NULL, &cut, &file, text), MR_OK);
    assert_int_equal(ps_log_writer_create(ps_store_local(), &counters, &t.writer, &note), 0);
    ps_log_writer_switch(t.writer, &file);
    append(&t, 4);
    flush(&t);
    ps_log_writer_destroy(t.writer);
    assert_int_equal(expect_records(ps_store_local(), d.directory, &empty), 5);
    /* What was whole before the cut must stay so. */
    d.bytes[2 * PS_LOG_ALIGN + 100] ^= 1;
    disk_write(&d, d.bytes, d.length);
    expect_refused(ps_store_local(), d.directory, "damaged before");
    disk_end(&d);
}

TEST(records_behind_a_torn_segment_are_refused)
{
    struct on_disk d;
    struct log_file_test t;
    const struct ps_log_base cut_of = {.id = 9};
    char text[PS_TEXT_BYTES];
    disk_begin(&d);
    assert_int_equal(temporary_directory_remove(d.directory), 0);
    d.directory = temporary_directory_make();
    snprintf(d.path, sizeof(d.path), "%s/log/segment-1.000", d.directory);
    log_begin(&t, ps_store_local(), d.directory, &empty);
    append(&t, 0);
    flush(&t);
    rotate(&t, &cut_of);
    append(&t, 1);
    flush(&t);
    ps_log_writer_destroy(t.writer);
    assert_int_equal(expect_records(ps_store_local(), d.directory, &empty), 2);
    assert_int_equal(truncate(d.path, PS_LOG_ALIGN + 100), 0);
    expect_refused(ps_store_local(), d.directory, "later segments have records");
    assert_int_equal(unlink(d.path), 0);
    struct ps_log_list list;
    uint64_t first;
    uint32_t cores;
    assert_int_equal(ps_log_list(ps_store_local(), d.directory, &list, text), MR_OK);
    assert_int_equal(ps_log_find(ps_store_local(), d.directory, &list, &empty, &first, &cores, text), MR_OK);
    assert_int_equal(first, 0); /* nothing follows the empty node any more */
    free(list.numbers);
    disk_end(&d);
}

/* ---- rotation ---- */

TEST(segments_follow_their_checkpoint_and_go_with_the_next)
{
    struct log_file_test t;
    char *directory = temporary_directory_make();
    const struct ps_log_base one = {.id = 1}, two = {.id = 2}, elsewhere = {.id = 1, .directory = "/else"};
    char text[PS_TEXT_BYTES];
    struct ps_log_list list;
    log_begin(&t, ps_store_local(), directory, &one);
    append(&t, 0); /* before a cut whose save fails, */
    rotate(&t, &two);
    append(&t, 1);
    rotate(&t, &two); /* and one of the same number that succeeds */
    append(&t, 0);
    append(&t, 1);
    append(&t, 2);
    ps_log_writer_destroy(t.writer); /* writes what is left */
    assert_int_equal(expect_records(ps_store_local(), directory, &two), 3);
    assert_int_equal(expect_records(ps_store_local(), directory, &elsewhere), 0);
    assert_int_equal(ps_log_remove_before(ps_store_local(), directory, 3), 0);
    assert_int_equal(ps_log_list(ps_store_local(), directory, &list, text), MR_OK);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.numbers[0], 3);
    free(list.numbers);
    assert_int_equal(expect_records(ps_store_local(), directory, &one), 0);
    assert_int_equal(expect_records(ps_store_local(), directory, &two), 3);
    assert_int_equal(temporary_directory_remove(directory), 0);
}

/* ---- disks that fail ---- */

static void write_with_faults(bool descriptors, enum fault_mode mode, int error)
{
    struct log_file_test t;
    struct fault_store faults;
    char *directory = temporary_directory_make();
    fault_store_init(&faults);
    faults.descriptors = descriptors;
    log_begin(&t, &faults.store, directory, &empty);
    append(&t, 0);
    flush(&t);
    faults.mode = mode;
    faults.error = error;
    faults.fail_at = atomic_load(&faults.calls) + 1;
    append(&t, 1);
    while (ps_log_writer_error(t.writer) == 0)
        segments_poll(&t);
    assert_int_equal(ps_log_writer_error(t.writer), error);
    assert_int_equal(t.counters.stalled, 1);
    assert_int_equal(ps_log_writer_durable(t.writer), 1);
    assert_false(ps_log_writer_promise(t.writer, 100));
    append(&t, 2); /* what happens all the same has room */
    if (mode == FAULT_FOR_EVER) {
        const uint64_t failed = t.counters.errors;
        while (t.counters.errors == failed)
            segments_poll(&t);
        assert_int_equal(ps_log_writer_durable(t.writer), 1);
    }
    faults.fail_at = 0;
    flush(&t);
    assert_int_equal(ps_log_writer_error(t.writer), 0);
    assert_true(ps_log_writer_promise(t.writer, 100));
    ps_log_writer_destroy(t.writer);
    assert_int_equal(expect_records(ps_store_local(), directory, &empty), 3);
    assert_int_equal(temporary_directory_remove(directory), 0);
}

TEST(a_full_disk_is_waited_for)
{
    write_with_faults(false, FAULT_FOR_EVER, ENOSPC);
}

TEST(a_failed_flush_is_made_again_with_its_write)
{
    write_with_faults(false, FAULT_ONCE, EIO);
}

TEST(what_is_not_durable_is_bounded)
{
    struct log_file_test t;
    struct fault_store faults;
    char *directory = temporary_directory_make();
    fault_store_init(&faults);
    log_begin(&t, &faults.store, directory, &empty);
    faults.mode = FAULT_FOR_EVER;
    faults.error = ENOSPC;
    faults.fail_at = atomic_load(&faults.calls) + 1;
    uint32_t n = 0;
    const struct ps_log_record record = {.kind = PS_LOG_FORGET, .bytes = PS_LOG_SMALL_BYTES};
    for (; ps_log_writer_has_room(t.writer, record.bytes); n++)
        memset(ps_log_writer_append(t.writer, &record), 1, record.bytes);
    assert_true(t.counters.lag_bytes <= PS_LOG_PENDING_BYTES + 2 * PS_LOG_BLOCK_BYTES);
    assert_true(n >= PS_LOG_PENDING_BYTES / PS_LOG_BLOCK_BYTES);
    faults.fail_at = 0;
    flush(&t);
    assert_int_equal(t.counters.lag_bytes, 0);
    assert_true(ps_log_writer_has_room(t.writer, record.bytes));
    ps_log_writer_destroy(t.writer);
    assert_int_equal(temporary_directory_remove(directory), 0);
}

TEST(a_segment_that_cannot_be_made_leaves_nothing)
{
    struct fault_store faults;
    struct ps_log_file files[2];
    struct ps_log_list list;
    char text[PS_TEXT_BYTES];
    char *directory = temporary_directory_make();
    bool is_made = false;
    for (uint32_t fail_at = 1; !is_made; fail_at++) {
        fault_store_init(&faults);
        faults.mode = FAULT_ONCE;
        faults.error = ENOSPC;
        faults.fail_at = fail_at;
        is_made = ps_log_create(&faults.store, directory, 1, 2, &empty, NULL, files, text) == MR_OK;
        assert_int_equal(ps_log_list(ps_store_local(), directory, &list, text), MR_OK);
        assert_int_equal(list.count, is_made);
        free(list.numbers);
    }
    ps_log_discard(&faults.store, directory, 1, 2, files);
    assert_int_equal(ps_log_list(ps_store_local(), directory, &list, text), MR_OK);
    assert_int_equal(list.count, 0);
    assert_int_equal(temporary_directory_remove(directory), 0);
}

/* ---- groups ---- */

TEST(one_flush_takes_what_has_come_meanwhile)
{
    struct log_file_test t;
    char *directory = temporary_directory_make();
    log_begin(&t, ps_store_local(), directory, &empty);
    append(&t, 0);
    (void)ps_log_writer_poll(t.writer, t.now_us); /* at once: none runs */
    for (uint32_t n = 1; n < 40; n++)
        append(&t, n);
    flush(&t);
    assert_int_equal(t.counters.flushes, 2);
    append(&t, 40);
    (void)ps_log_writer_poll(t.writer, t.now_us); /* the last began just now */
    assert_int_equal(t.counters.lag_bytes, ps_log_record_space((40 % 7 + 1) * sizeof(uint64_t)));
    flush(&t);
    assert_int_equal(t.counters.flushes, 3);
    ps_log_writer_destroy(t.writer);
    assert_int_equal(expect_records(ps_store_local(), directory, &empty), 41);
    assert_int_equal(temporary_directory_remove(directory), 0);
}
