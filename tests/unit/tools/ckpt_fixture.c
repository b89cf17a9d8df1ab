#include "tests/test.h"
#include "tests/unit/tools/ckpt_fixture.h"

#include <string.h>
#include "tests/unit/ps/checkpoint_fixture.h"

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

static uint8_t *append(struct ckpt_fixture_writer *w, uint32_t core, const struct ps_record *record)
{
    uint8_t *at = fixture_append(w->writer, core, record);
    assert_non_null(at);
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
    fixture_publish(w->writer, cores);
}
