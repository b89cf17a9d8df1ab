#include "tests/unit/tools/ckpt_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int ckpt_fixture_setup(void **state)
{
    const char *base = getenv("TMPDIR");
    char *path = NULL;
    if (asprintf(&path, "%s/millrace-ckpt-XXXXXX", base ? base : "/tmp") < 0 || !mkdtemp(path))
        return -1;
    *state = path;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

int ckpt_fixture_teardown(void **state)
{
    int result = nftw(*state, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return result;
}

void ckpt_fixture_start(struct ckpt_fixture_writer *w, const char *directory, uint64_t id, uint64_t parent,
                        const struct mr_feature *features, uint32_t feature_count, uint32_t cores)
{
    uint32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    char text[256] = "";
    const struct ps_writer_options options = {.directory = directory,
                                              .features = features,
                                              .feature_ids = ids,
                                              .feature_count = feature_count,
                                              .id = id,
                                              .parent_id = parent,
                                              .step = 10 * id,
                                              .is_at_step = true,
                                              .core_count = cores,
                                              .incarnation = 3,
                                              .buffers_per_core = 2};
    assert_true(feature_count <= 8);
    if (ps_writer_start(NULL, &options, &w->writer, text) != MR_OK)
        fail_msg("%s", text);
}

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static uint8_t *append(struct ckpt_fixture_writer *w, uint32_t core, const struct ps_record *record)
{
    uint8_t *at;
    while (!(at = ps_writer_append(w->writer, core, record))) {
        assert_false(ps_writer_failed(w->writer));
        nap();
    }
    return at;
}

void ckpt_fixture_record(struct ckpt_fixture_writer *w, uint32_t core, const struct ps_record *record,
                         const void *bytes)
{
    memcpy(append(w, core, record), bytes, record->bytes);
}

void ckpt_fixture_rows(struct ckpt_fixture_writer *w, uint32_t core, uint32_t feature, const uint64_t *keys,
                       const void *rows, uint32_t row_bytes, uint32_t count)
{
    const struct ps_record record = {.kind = PS_RECORD_ROWS,
                                     .feature = feature,
                                     .count = count,
                                     .row_bytes = row_bytes,
                                     .bytes = count * (sizeof(*keys) + row_bytes)};
    uint8_t *to = append(w, core, &record);
    memcpy(to, keys, count * sizeof(*keys));
    memcpy(to + count * sizeof(*keys), rows, (size_t)count * row_bytes);
}

void ckpt_fixture_gone(struct ckpt_fixture_writer *w, uint32_t core, uint32_t feature, const uint64_t *keys,
                       uint32_t count)
{
    const struct ps_record record = {
        .kind = PS_RECORD_GONE, .feature = feature, .count = count, .bytes = count * sizeof(*keys)};
    ckpt_fixture_record(w, core, &record, keys);
}

void ckpt_fixture_publish(struct ckpt_fixture_writer *w, uint32_t cores)
{
    struct ps_writer_status status;
    for (uint32_t core = 0; core < cores; core++)
        ps_writer_core_done(w->writer, core);
    for (ps_writer_status(w->writer, &status); !status.done; ps_writer_status(w->writer, &status))
        nap();
    ps_writer_finish(w->writer);
    if (status.status != MR_OK)
        fail_msg("%s", status.text);
}

void ckpt_fixture_damage(const char *directory, uint64_t id, const char *file, long offset)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/ckpt-%" PRIu64 "/%s", directory, id, file);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, offset, SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, offset, SEEK_SET), 0);
    assert_int_equal(fputc(c ^ 1, f), c ^ 1);
    assert_int_equal(fclose(f), 0);
}
