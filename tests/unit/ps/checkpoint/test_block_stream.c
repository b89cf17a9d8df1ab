/* Blocks read ahead by threads: their order, the exact place where a bad one ends it, and visitors that stop
 * early. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint_fixture.h"
#include "fault_store.h"
#include "ps/checkpoint/block_stream.h"
#include "tests/test.h"
#include "tests/wait.h"

#define ROWS    600000u /* 12 blocks on each core: worth a few threads */
#define NOWHERE UINT32_MAX

#define DAMAGED_BLOCK 6u /* of core 1's file */

struct seen {
    uint32_t batch;
    uint32_t blocks, last_count;
    uint32_t stop_at; /* the visitor has enough with this block */
};

static enum mr_status block_stream_look(void *arg, uint32_t link, const uint8_t *const *blocks,
                                        uint32_t count)
{
    struct seen *seen = arg;
    assert_int_equal(link, 0);
    assert_int_in_range(count, 1, seen->batch);
    assert_true(seen->last_count == 0 || seen->last_count == seen->batch); /* only the last are fewer */
    seen->last_count = count;
    for (uint32_t i = 0; i < count; i++) {
        const struct ps_block_header *header = (const struct ps_block_header *)(const void *)blocks[i];
        assert_int_equal(header->core, seen->blocks % FIXTURE_CORES);
        assert_int_equal(header->number, seen->blocks / FIXTURE_CORES);
        if (seen->blocks++ == seen->stop_at)
            return MR_BUSY;
    }
    return MR_OK;
}

static struct ps_reader *save_and_open_from(const struct ps_store *store, const char *directory)
{
    struct ps_reader *r = NULL;
    char text[PS_TEXT_BYTES];
    if (access(fixture_path(directory, 1, PS_MANIFEST_NAME), F_OK) != 0)
        assert_int_equal(fixture_save(ps_store_local(), directory, 1, ROWS).status, MR_OK);
    assert_int_equal(ps_reader_open_unread(store, directory, 1, &r, text), MR_OK);
    assert_string_equal(text, "");
    return r;
}

static struct ps_reader *save_and_open(const char *directory)
{
    return save_and_open_from(NULL, directory);
}

TEST(test_files_take_turns_whatever_the_batch, temporary_directory_setup, temporary_directory_teardown)
{
    static const uint32_t batches[] = {1, 2, 3, 7, PS_STREAM_BATCH_MAX};
    for (size_t i = 0; i < sizeof(batches) / sizeof(*batches); i++) {
        struct ps_reader *r = save_and_open(*state);
        struct seen seen = {.batch = batches[i], .stop_at = NOWHERE};
        char text[PS_TEXT_BYTES] = "";
        assert_int_equal(ps_reader_blocks(r, batches[i], 1, block_stream_look, &seen, text), MR_OK);
        assert_true(seen.blocks >= 20);
        assert_false(ps_reader_is_damaged(r));
        assert_string_equal(text, "");
        fixture_check(r, 1, ROWS); /* and once more */
        ps_reader_close(r);
    }
}

/* All before it are handed out, and none after it, though others are read ahead. */
TEST(test_a_bad_block_ends_it_exactly_there, temporary_directory_setup, temporary_directory_teardown)
{
    static const uint32_t batches[] = {1, 4, PS_STREAM_BATCH_MAX};
    ps_reader_close(save_and_open(*state));
    fixture_flip(fixture_path(*state, 1, "core-001.mrc"), DAMAGED_BLOCK * (off_t)PS_BLOCK_BYTES + 70000,
                 0x10);
    for (size_t i = 0; i < sizeof(batches) / sizeof(*batches); i++) {
        struct ps_reader *r = save_and_open(*state);
        struct seen seen = {.batch = batches[i], .stop_at = NOWHERE};
        char text[PS_TEXT_BYTES] = "";
        assert_int_equal(ps_reader_blocks(r, batches[i], 1, block_stream_look, &seen, text),
                         MR_CHECKPOINT_CORRUPT);
        assert_int_equal(seen.blocks, DAMAGED_BLOCK * FIXTURE_CORES + 1);
        assert_true(ps_reader_is_damaged(r));
        assert_non_null(strstr(text, "core-001.mrc: block 6: "));
        ps_reader_close(r);
    }
}

TEST(test_a_missing_file_is_told_before_the_first_block, temporary_directory_setup,
     temporary_directory_teardown)
{
    struct ps_reader *r = save_and_open(*state);
    struct seen seen = {.batch = 1, .stop_at = NOWHERE};
    char text[PS_TEXT_BYTES] = "";
    assert_int_equal(unlink(fixture_path(*state, 1, "core-001.mrc")), 0);
    assert_int_equal(ps_reader_blocks(r, 1, 1, block_stream_look, &seen, text), MR_CHECKPOINT_CORRUPT);
    assert_int_equal(seen.blocks, 0);
    assert_true(ps_reader_is_damaged(r));
    assert_non_null(strstr(text, "core-001.mrc: it is missing"));
    ps_reader_close(r);
}

/* It has no block that could tell. */
TEST(test_an_empty_file_is_not_what_the_manifest_names, temporary_directory_setup,
     temporary_directory_teardown)
{
    struct ps_manifest manifest = {.version = PS_FORMAT_VERSION, .id = 1, .file_count = 1};
    struct ps_stream *s = NULL;
    char text[PS_TEXT_BYTES] = "";
    char path[PS_PATH_BYTES];
    assert_true(ps_path_join(*state, "core-000.mrc", path));
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
    manifest.files[0].records = 1;
    assert_int_equal(ps_stream_open(ps_store_local(), *state, &manifest, 1, 1, &s, text),
                     MR_CHECKPOINT_CORRUPT);
    assert_non_null(strstr(text, "core-000.mrc: its blocks are not those"));
    assert_null(s);
}

TEST(test_a_visitor_may_stop, temporary_directory_setup, temporary_directory_teardown)
{
    static const uint32_t places[] = {0, 1, 7, 19};
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        struct ps_reader *r = save_and_open(*state);
        struct seen seen = {.batch = 3, .stop_at = places[i]};
        char text[PS_TEXT_BYTES] = "the visitor's";
        assert_int_equal(ps_reader_blocks(r, 3, 1, block_stream_look, &seen, text), MR_BUSY);
        assert_int_equal(seen.blocks, places[i] + 1);
        assert_false(ps_reader_is_damaged(r));
        assert_string_equal(text, "the visitor's");
        ps_reader_close(r);
    }
}

/* With two held the batch before stays until the next visit, and the end is reported, however it comes. */
struct held {
    struct seen seen;
    const uint8_t *before[PS_STREAM_BATCH_MAX];
    uint32_t before_count, numbers[PS_STREAM_BATCH_MAX];
    uint32_t ends;
    const struct fault_store *store;
    uint32_t reads_before; /* of this checkpoint's blocks */
    uint32_t total;        /* blocks */
    uint32_t readable;     /* of these: nothing is read behind a bad one, for sure */
};

/* Waits until all is read that there is room for: three batches and a block for each thread, behind those
 * that are no longer held. */
static void wait_until_full(const struct held *h, uint32_t count)
{
    const uint32_t most = h->total / 4, threads = most < PS_STREAM_THREADS ? most : PS_STREAM_THREADS;
    const uint32_t taken_before = h->seen.blocks - count;
    const uint32_t released = taken_before > h->seen.batch ? taken_before - h->seen.batch : 0;
    const uint32_t reads = released + 3 * h->seen.batch + threads;
    WAIT_UNTIL(atomic_load(&h->store->reads) - h->reads_before >=
               (reads < h->readable ? reads : h->readable));
}

static void check_before(const struct held *h)
{
    for (uint32_t i = 0; i < h->before_count; i++) {
        const struct ps_block_header *header = (const struct ps_block_header *)(const void *)h->before[i];
        assert_int_equal(header->number * FIXTURE_CORES + header->core, h->numbers[i]);
    }
}

static enum mr_status look_held(void *arg, uint32_t link, const uint8_t *const *blocks, uint32_t count)
{
    struct held *h = arg;
    assert_int_equal(h->ends, 0);
    check_before(h);
    if (count == 0) {
        h->ends++;
        return MR_OK;
    }
    const uint32_t first = h->seen.blocks;
    enum mr_status status = block_stream_look(&h->seen, link, blocks, count);
    if (status == MR_OK)
        wait_until_full(h, count);
    check_before(h);
    h->before_count = count;
    for (uint32_t i = 0; i < count; i++) {
        h->before[i] = blocks[i];
        h->numbers[i] = first + i;
    }
    return status;
}

TEST(test_the_batch_before_is_held, temporary_directory_setup, temporary_directory_teardown)
{
    static const uint32_t batches[] = {1, 3, 4};
    struct fault_store store;
    fault_store_init(&store);
    ps_reader_close(save_and_open(*state));
    for (size_t i = 0; i < 3 * sizeof(batches) / sizeof(*batches); i++) {
        const uint32_t batch = batches[i / 3];
        const bool stops = i % 3 == 1, is_damaged = i % 3 == 2;
        struct ps_reader *r = save_and_open_from(&store.store, *state);
        const struct ps_manifest *m = ps_reader_manifest(r);
        struct held h = {.seen = {.batch = batch, .stop_at = stops ? 9 : NOWHERE},
                         .store = &store,
                         .reads_before = atomic_load(&store.reads)};
        for (uint32_t core = 0; core < m->file_count; core++)
            h.total += m->files[core].blocks;
        h.readable = is_damaged ? DAMAGED_BLOCK * FIXTURE_CORES + 2 : h.total;
        char text[PS_TEXT_BYTES] = "";
        if (is_damaged)
            fixture_flip(fixture_path(*state, 1, "core-001.mrc"),
                         DAMAGED_BLOCK * (off_t)PS_BLOCK_BYTES + 70000, 0x10);
        assert_int_equal(ps_reader_blocks(r, batch, 2, look_held, &h, text), stops ? MR_BUSY
                                                                             : is_damaged
                                                                                 ? MR_CHECKPOINT_CORRUPT
                                                                                 : MR_OK);
        assert_int_equal(h.ends, 1);
        assert_int_equal(ps_reader_is_damaged(r), is_damaged);
        if (is_damaged)
            fixture_flip(fixture_path(*state, 1, "core-001.mrc"),
                         DAMAGED_BLOCK * (off_t)PS_BLOCK_BYTES + 70000, 0x10);
        ps_reader_close(r);
    }
}
