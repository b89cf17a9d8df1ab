/* Segments as the writer leaves them, read again: after a power failure at any change, torn or damaged at any
 * byte, with disks that fail or are full, and over rotations and starts. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "fault_store.h"
#include "power_store.h"
#include "ps/log/log_room.h"
#include "ps/log/log_segments.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"
#include "uring_there.h"

#define DIRECTORY "/ckpt"

enum { RECORDS_MAX = 64, SEEDS = 4 };

static const struct ps_log_base empty = {.id = 0};

static uint64_t fate; /* that is looked at: scripts/mutants.sh wants to know it */

/* A log of one core that is being written. */
struct log_file_test {
    const struct ps_store *store;
    const char *directory;
    struct ps_log_counters counters;
    struct ps_log_writer *writer;
    uint64_t now_us, number;
};

static enum mr_status segment_make(const struct ps_store *store, const char *directory, uint64_t number,
                                   const struct ps_log_base *base, const struct ps_log_cut *cut,
                                   struct ps_log_file *file, char text[PS_TEXT_BYTES])
{
    const struct ps_log_segment segment = {.number = number, .core_count = 1, .base = base, .cuts = cut};
    return ps_log_create(store, directory, &segment, file, text);
}

static void log_begin(struct log_file_test *t, const struct ps_store *store, const char *directory,
                      const struct ps_log_base *base)
{
    char text[PS_TEXT_BYTES];
    const char *note;
    struct ps_log_file file;
    *t = (struct log_file_test){.store = store, .directory = directory, .now_us = 1000000, .number = 1};
    if (segment_make(store, directory, 1, base, NULL, &file, text) != MR_OK)
        fail_msg("%s", text);
    assert_int_equal(ps_log_writer_create(store, &t->counters, &t->writer, &note), 0);
    ps_log_writer_switch(t->writer, &file);
}

static void rotate(struct log_file_test *t, const struct ps_log_base *base)
{
    char text[PS_TEXT_BYTES];
    struct ps_log_file file;
    if (segment_make(t->store, t->directory, ++t->number, base, NULL, &file, text) != MR_OK)
        fail_msg("%s", text);
    ps_log_writer_switch(t->writer, &file);
}

/* Record number n: so many evicted keys, each n. */
static void append_keys(struct log_file_test *t, uint32_t n, uint32_t count)
{
    const struct ps_log_record record = {
        .kind = PS_LOG_EVICTED, .feature = n, .bytes = count * sizeof(uint64_t)};
    assert_true(ps_log_writer_has_room(t->writer, record.bytes));
    uint64_t *keys = (uint64_t *)(void *)ps_log_writer_append(t->writer, &record);
    for (uint32_t i = 0; i < count; i++)
        keys[i] = n;
}

static void append(struct log_file_test *t, uint32_t n)
{
    append_keys(t, n, n % 7 + 1);
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
    struct ps_log_replay *replay = NULL;
    struct ps_log_header first;
    uint64_t torn_bytes;
    *count = 0;
    *cut = (struct ps_log_cut){0};
    enum mr_status status = ps_log_list(store, directory, &list, text);
    if (status == MR_OK)
        status = ps_log_find(store, directory, &list, base, &first, text);
    if (status != MR_OK || first.number == 0) {
        free(list.numbers);
        return status;
    }
    status = ps_log_replay_open(store, directory, &list, first.number, 0, &replay, text);
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
        fail_msg("%s, seed %u", text, (unsigned)fate);
    return count;
}

static void expect_refused(const struct ps_store *store, const char *directory, const char *says)
{
    char text[PS_TEXT_BYTES] = "";
    struct ps_log_cut cut;
    uint32_t count;
    if (count_records(store, directory, &empty, &count, &cut, text) != MR_CHECKPOINT_CORRUPT)
        fail_msg("%u records are read, and \"%s\" is not said, seed %u", (unsigned)count, says,
                 (unsigned)fate);
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
            fate = seed;
            const uint32_t found = expect_records(power_store_calls(after), DIRECTORY, &empty);
            if (found < count && at >= changes[found])
                fail_msg("after %s: record %u was durable, and is not there, seed %u",
                         power_store_change(power, at - 1), (unsigned)found, (unsigned)seed);
            power_store_destroy(after);
        }
    }
    power_store_destroy(power);
}

TEST(blocks_in_room_made_ahead_survive_a_power_failure_at_any_change)
{
    enum { BLOCKS = 12, KEYS = 8192, SEEDS_HERE = 2 };
    struct log_file_test t;
    uint32_t changes[BLOCKS];
    struct power_store *power = power_store_create();
    const struct ps_store *store = power_store_calls(power);
    assert_int_equal(store->make_directory(store->self, DIRECTORY), 0);
    assert_int_equal(store->sync_directory(store->self, "/"), 0);
    log_begin(&t, store, DIRECTORY, &empty);
    for (uint32_t n = 0; n < BLOCKS;
         n++) { /* more than a segment has at first, while room is made beside it */
        append_keys(&t, n, KEYS);
        flush(&t);
        changes[n] = power_store_changes(power);
    }
    ps_log_writer_destroy(t.writer);
    uint64_t file_bytes;
    int64_t written_s;
    assert_int_equal(store->facts(store->self, DIRECTORY "/log/segment-1.000", &file_bytes, &written_s), 0);
    assert_true(file_bytes >= PS_LOG_FIRST_BYTES + PS_LOG_ALIGN * (uint64_t)BLOCKS);
    for (uint32_t at = 0; at <= power_store_changes(power); at++) {
        for (uint64_t seed = 0; seed < POWER_DRAWN + SEEDS_HERE; seed++) {
            struct power_store *after = power_store_after_failure(power, at, seed);
            fate = seed;
            const uint32_t found = expect_records(power_store_calls(after), DIRECTORY, &empty);
            if (found < BLOCKS && at >= changes[found])
                fail_msg("after %s: block %u was durable, and is not there, seed %u",
                         power_store_change(power, at - 1), (unsigned)found, (unsigned)seed);
            power_store_destroy(after);
        }
    }
    power_store_destroy(power);
}

TEST(no_block_is_written_where_room_is_still_made)
{
    static struct fault_store faults;
    struct ps_io_threads *threads;
    static struct ps_log_room room; /* a thread may have it when the test has failed */
    struct ps_store_file *file;
    uint64_t to;
    char *directory = temporary_directory_make();
    char path[256];
    fault_store_init(&faults);
    room.store = &faults.store;
    snprintf(path, sizeof(path), "%s/room", directory);
    assert_int_equal(faults.store.create(faults.store.self, path, true, &file), 0);
    assert_int_equal(ps_io_threads_create("room", 1, &threads), 0);
    atomic_store(&faults.hold_writes, true);
    ps_log_room_begin(&room, threads, file, PS_LOG_ROOM_BYTES_MIN, 0);
    assert_true(ps_log_room_allows(&room, file, PS_LOG_ROOM_BYTES_MIN));
    const bool is_allowed = ps_log_room_allows(&room, file, PS_LOG_ROOM_BYTES_MIN + PS_LOG_ALIGN);
    atomic_store(&faults.hold_writes, false); /* it ends early */
    if (is_allowed)
        fail_msg("a block may be written where room is made, seed 0");
    assert_ptr_equal(ps_io_threads_take(threads, PS_IO_FOREVER), &room.job);
    assert_ptr_equal(ps_log_room_end(&room, 0, &to), file);
    assert_true(to < 2 * PS_LOG_ROOM_BYTES_MIN);
    assert_true(ps_log_room_allows(&room, file, PS_LOG_ROOM_BYTES_MIN + PS_LOG_ALIGN));
    ps_io_threads_destroy(threads);
    assert_int_equal(faults.store.close(file), 0);
    assert_int_equal(temporary_directory_remove(directory), 0);
}

/* A start that goes on in the next segment; how many records it has found. */
static uint32_t start_again(struct log_file_test *t, const struct ps_store *store)
{
    struct ps_log_cut cut;
    struct ps_log_list list;
    struct ps_log_file file;
    char text[PS_TEXT_BYTES];
    const char *note;
    uint32_t count;
    *t = (struct log_file_test){.store = store, .directory = DIRECTORY, .now_us = 1000000};
    if (ps_log_list(store, DIRECTORY, &list, text) != MR_OK)
        fail_msg("%s, seed %u", text, (unsigned)fate);
    t->number = list.numbers[list.count - 1] + 1;
    free(list.numbers);
    if (count_records(store, DIRECTORY, &empty, &count, &cut, text) != MR_OK ||
        segment_make(store, DIRECTORY, t->number, NULL, &cut, &file, text) != MR_OK)
        fail_msg("%s, seed %u", text, (unsigned)fate);
    assert_int_equal(ps_log_writer_create(store, &t->counters, &t->writer, &note), 0);
    ps_log_writer_switch(t->writer, &file);
    return count;
}

/* What a start has applied is there for the next, also what the process that died had not flushed. */
TEST(what_a_start_has_read_survives_a_power_failure_after_it)
{
    struct log_file_test t;
    struct fault_store faults;
    struct power_store *power = power_store_create();
    const struct ps_store *store = power_store_calls(power);
    assert_int_equal(store->make_directory(store->self, DIRECTORY), 0);
    assert_int_equal(store->sync_directory(store->self, "/"), 0);
    fault_store_init(&faults);
    faults.below = store;
    faults.mode = FAULT_FOR_EVER;
    log_begin(&t, &faults.store, DIRECTORY, &empty);
    append(&t, 0);
    flush(&t);
    append(&t, 1);
    faults.fail_at = atomic_load(&faults.calls) + 2; /* its write succeeds, and no flush does */
    while (ps_log_writer_error(t.writer) == 0)
        segments_poll(&t);
    ps_log_writer_destroy(t.writer);
    assert_int_equal(start_again(&t, store), 2);
    const uint32_t from = power_store_changes(power);
    append(&t, 2);
    flush(&t);
    ps_log_writer_destroy(t.writer);
    for (uint32_t at = from; at <= power_store_changes(power); at++) {
        for (uint64_t seed = 0; seed < POWER_DRAWN + SEEDS; seed++) {
            struct power_store *after = power_store_after_failure(power, at, seed);
            fate = seed;
            if (expect_records(power_store_calls(after), DIRECTORY, &empty) < 2)
                fail_msg("after %s: what a start had read is not there, seed %u",
                         power_store_change(power, at - 1), (unsigned)seed);
            power_store_destroy(after);
        }
    }
    power_store_destroy(power);
}

/* Starts that fail anywhere, one after the other. */
TEST(a_start_that_dies_is_no_damage_to_the_next)
{
    struct log_file_test t;
    struct power_store *first = power_store_create(), *power = first;
    const struct ps_store *store = power_store_calls(power);
    assert_int_equal(store->make_directory(store->self, DIRECTORY), 0);
    assert_int_equal(store->sync_directory(store->self, "/"), 0);
    log_begin(&t, store, DIRECTORY, &empty);
    append(&t, 0);
    flush(&t);
    ps_log_writer_destroy(t.writer);
    const uint32_t from = power_store_changes(power);
    assert_int_equal(start_again(&t, store), 1);
    ps_log_writer_destroy(t.writer);
    for (uint32_t at = from; at <= power_store_changes(power); at++) {
        for (uint64_t seed = 0; seed < POWER_DRAWN + SEEDS; seed++) {
            struct power_store *after = power_store_after_failure(power, at, seed);
            store = power_store_calls(after);
            fate = seed;
            for (uint32_t n = 1; n < 3; n++) { /* segment 2 has a header, or none, or is not there */
                const uint32_t found = start_again(&t, store);
                if (found != n)
                    fail_msg("after %s: %u records in place of %u, seed %u",
                             power_store_change(first, at - 1), (unsigned)found, (unsigned)n, (unsigned)seed);
                append(&t, n);
                flush(&t);
                ps_log_writer_destroy(t.writer);
            }
            assert_int_equal(expect_records(store, DIRECTORY, &empty), 3);
            power_store_destroy(after);
        }
    }
    power_store_destroy(power);
}

/* ---- torn and damaged files ---- */

enum { ROOM_BLOCKS = 2 }; /* zeros behind the blocks, of which the tests keep so many */

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
    assert_int_equal(ftell(file), PS_LOG_FIRST_BYTES);
    d->length = (4 + ROOM_BLOCKS) * PS_LOG_ALIGN;
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

static int sync_nothing(struct ps_store_file *file)
{
    (void)file;
    return 0;
}

/* For thousands of reads, each of which would flush what it has read. */
static struct ps_store store_without_sync(void)
{
    struct ps_store store = *ps_store_local();
    store.sync = sync_nothing;
    return store;
}

TEST(a_file_that_ends_at_any_byte_has_what_was_whole)
{
    struct on_disk d;
    const struct ps_store quick = store_without_sync();
    disk_begin(&d);
    disk_write(&d, d.bytes, d.length);
    for (long length = 4 * (long)PS_LOG_ALIGN; length >= 0; length--) {
        uint32_t expected = 0;
        for (uint32_t block = 1; block < 4; block++)
            expected += length >= (long)(block * PS_LOG_ALIGN) + used_bytes(&d, block) ? 2 : 0;
        assert_int_equal(truncate(d.path, length), 0);
        assert_int_equal(expect_records(&quick, d.directory, &empty), expected);
    }
    disk_end(&d);
}

TEST(a_wrong_byte_in_the_last_block_cuts_it_off_and_elsewhere_is_refused)
{
    struct on_disk d;
    disk_begin(&d);
    disk_write(&d, d.bytes, d.length);
    const struct ps_store quick = store_without_sync();
    const int fd = open(d.path, O_WRONLY);
    assert_true(fd >= 0);
    for (uint32_t block = 0; block < 4; block++) {
        const long end = block == 0 ? (long)sizeof(struct ps_log_header) : used_bytes(&d, block);
        for (long i = 0; i < end; i++) {
            const off_t at = block * (off_t)PS_LOG_ALIGN + i;
            const uint8_t right = d.bytes[at], wrong = right ^ 0x40;
            assert_int_equal(pwrite(fd, &wrong, 1, at), 1);
            if (block == 3)
                assert_int_equal(expect_records(&quick, d.directory, &empty), 4);
            else
                expect_refused(&quick, d.directory, block == 0 ? "segment" : "at byte");
            assert_int_equal(pwrite(fd, &right, 1, at), 1);
        }
    }
    assert_int_equal(close(fd), 0);
    disk_end(&d);
}

TEST(a_block_that_is_missing_is_refused)
{
    struct on_disk d;
    disk_begin(&d);
    memset(d.bytes + 2 * PS_LOG_ALIGN, 0, PS_LOG_ALIGN);
    disk_write(&d, d.bytes, d.length);
    expect_refused(ps_store_local(), d.directory, "at byte 8192");
    memmove(d.bytes + 2 * PS_LOG_ALIGN, d.bytes + 3 * PS_LOG_ALIGN, 2 * PS_LOG_ALIGN);
    disk_write(&d, d.bytes, d.length);
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
    assert_int_equal(segment_make(ps_store_local(), d.directory, 2, NULL, &cut, &file, text), MR_OK);
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
    memset(d.bytes + 2 * PS_LOG_ALIGN, 0, 2 * PS_LOG_ALIGN); /* as if no block had been there */
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
    assert_int_equal(truncate(d.path, 2 * PS_LOG_ALIGN), 0); /* without the block that says it is the last */
    expect_refused(ps_store_local(), d.directory, "later segments have records");
    assert_int_equal(truncate(d.path, PS_LOG_ALIGN + 100), 0);
    expect_refused(ps_store_local(), d.directory, "later segments have records");
    assert_int_equal(truncate(d.path, PS_LOG_ALIGN), 0);
    assert_int_equal(truncate(d.path, PS_LOG_FIRST_BYTES), 0);
    expect_refused(ps_store_local(), d.directory, "later segments have records");
    assert_int_equal(unlink(d.path), 0);
    struct ps_log_list list;
    struct ps_log_header first;
    assert_int_equal(ps_log_list(ps_store_local(), d.directory, &list, text), MR_OK);
    assert_int_equal(ps_log_find(ps_store_local(), d.directory, &list, &empty, &first, text), MR_OK);
    assert_int_equal(first.number, 0); /* nothing follows the empty node any more */
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
    const struct ps_log_segment segment = {.number = 1, .core_count = 2, .base = &empty};
    struct ps_log_list list;
    char text[PS_TEXT_BYTES];
    char *directory = temporary_directory_make();
    bool is_made = false;
    for (uint32_t fail_at = 1; !is_made; fail_at++) {
        fault_store_init(&faults);
        faults.mode = FAULT_ONCE;
        faults.error = ENOSPC;
        faults.fail_at = fail_at;
        is_made = ps_log_create(&faults.store, directory, &segment, files, text) == MR_OK;
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

/* A core sleeps until then, and does not look. */
TEST(the_kernel_rings_when_a_flush_has_ended)
{
    struct log_file_test t;
    if (!uring_there())
        skip();
    char *directory = temporary_directory_make();
    const int bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct pollfd rung = {.fd = bell, .events = POLLIN};
    assert_true(bell >= 0);
    log_begin(&t, ps_store_local(), directory, &empty);
    ps_log_writer_notify(t.writer, bell);
    append(&t, 0);
    uint64_t due_us = ps_log_writer_poll(t.writer, t.now_us);
    while (ps_log_writer_durable(t.writer) == 0) { /* a bell that does not ring is waited for in vain */
        if (due_us == UINT64_MAX)
            assert_int_equal(poll(&rung, 1, -1), 1);
        due_us = ps_log_writer_poll(t.writer, ++t.now_us);
    }
    assert_int_equal(due_us, UINT64_MAX); /* nothing is left to do */
    ps_log_writer_destroy(t.writer);
    assert_int_equal(close(bell), 0);
    assert_int_equal(temporary_directory_remove(directory), 0);
}

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
