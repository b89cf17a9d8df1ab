#include "chain_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/reader_each.h"

#include <string.h>

#define FILTER_BYTES 64u

static void append_keys(struct ps_writer *w, uint32_t core, uint32_t kind, const uint64_t *keys,
                        const uint8_t *values, uint32_t count)
{
    struct ps_record record = {.kind = kind, .feature = FIXTURE_TABLE, .count = count, .bytes = 8ull * count};
    if (count == 0)
        return;
    if (kind == PS_RECORD_ROWS) {
        record.row_bytes = FIXTURE_ROW_BYTES;
        record.bytes += (uint64_t)count * FIXTURE_ROW_BYTES;
    }
    uint8_t *at = ps_writer_append(w, core, &record);
    assert_true(at || ps_writer_failed(w));
    if (!at)
        return;
    memcpy(at, keys, 8ull * count);
    for (uint32_t i = 0; i < count && kind == PS_RECORD_ROWS; i++)
        memset(at + 8ull * count + (size_t)i * FIXTURE_ROW_BYTES, values[i], FIXTURE_ROW_BYTES);
}

static void fill_rows(struct ps_writer *w, uint32_t core, const uint8_t changes[CHAIN_KEYS])
{
    uint64_t rows[CHAIN_KEYS], gone[CHAIN_KEYS];
    uint8_t values[CHAIN_KEYS];
    uint32_t row_count = 0, gone_count = 0;
    for (uint32_t key = core; key < CHAIN_KEYS; key += FIXTURE_CORES) {
        if (changes[key] == CHAIN_GONE) {
            gone[gone_count++] = key;
        } else if (changes[key] != CHAIN_NOTHING) {
            values[row_count] = changes[key];
            rows[row_count++] = key;
        }
    }
    append_keys(w, core, PS_RECORD_ROWS, rows, values, row_count);
    append_keys(w, core, PS_RECORD_GONE, gone, NULL, gone_count);
}

static void append_small(struct ps_writer *w, uint32_t core, const struct ps_record *record, uint64_t id)
{
    uint8_t *at = ps_writer_append(w, core, record);
    assert_true(at || ps_writer_failed(w));
    if (at)
        memset(at, (int)id, record->bytes);
}

static void fill_small(struct ps_writer *w, uint32_t core, uint64_t id)
{
    const struct ps_record client = {.kind = PS_RECORD_CLIENT, .feature = core, .bytes = 24};
    const struct ps_record variable = {
        .kind = PS_RECORD_VARIABLE, .feature = FIXTURE_VARIABLE, .count = 20, .bytes = 20};
    const struct ps_record observations = {.kind = PS_RECORD_OBSERVATIONS,
                                           .feature = FIXTURE_TABLE,
                                           .count = FILTER_BYTES,
                                           .bytes = FILTER_BYTES,
                                           .offset = core};
    append_small(w, core, &client, id);
    append_small(w, core, &observations, id);
    if (core == 0)
        append_small(w, core, &variable, id);
}

enum mr_status chain_try_save(const struct ps_store *store, const char *directory, uint64_t id,
                              uint64_t parent, const uint8_t changes[CHAIN_KEYS])
{
    char text[PS_TEXT_BYTES] = "";
    struct ps_writer *w;
    struct ps_writer_options options = fixture_options(directory, id);
    options.parent_id = parent;
    enum mr_status status = ps_writer_start(store, &options, &w, text);
    if (status != MR_OK)
        return status;
    for (uint32_t core = 0; core < FIXTURE_CORES; core++) {
        fill_rows(w, core, changes);
        fill_small(w, core, id);
        ps_writer_core_done(w, core);
    }
    return fixture_finish(w).status;
}

void chain_save(const struct ps_store *store, const char *directory, uint64_t id, uint64_t parent,
                const uint8_t changes[CHAIN_KEYS])
{
    assert_int_equal(chain_try_save(store, directory, id, parent, changes), MR_OK);
}

void chain_save_key(const char *directory, uint64_t id, uint64_t parent, uint32_t key, uint8_t change)
{
    uint8_t changes[CHAIN_KEYS] = {0};
    assert_true(key < CHAIN_KEYS);
    changes[key] = change;
    chain_save(NULL, directory, id, parent, changes);
}

struct seen {
    uint64_t id;
    uint8_t *values;
    uint8_t filters[FIXTURE_CORES];
    uint32_t clients, variables;
};

static enum mr_status see(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    struct seen *seen = arg;
    const uint64_t *keys = (const uint64_t *)(const void *)bytes;
    switch (record->kind) {
    case PS_RECORD_ROWS:
        for (uint32_t i = 0; i < record->count; i++)
            seen->values[keys[i]] = bytes[8ull * record->count + (size_t)i * record->row_bytes];
        break;
    case PS_RECORD_GONE:
        for (uint32_t i = 0; i < record->count; i++)
            seen->values[keys[i]] = 0;
        break;
    case PS_RECORD_OBSERVATIONS:
        seen->filters[record->offset] = bytes[0];
        break;
    default:
        seen->clients += record->kind == PS_RECORD_CLIENT;
        seen->variables += record->kind == PS_RECORD_VARIABLE;
        assert_int_equal(bytes[0], seen->id);
    }
    return MR_OK;
}

void chain_read(struct ps_reader *r, uint64_t id, uint8_t values[CHAIN_KEYS])
{
    struct seen seen = {.id = id, .values = values};
    char text[PS_TEXT_BYTES] = "";
    memset(values, 0, CHAIN_KEYS);
    assert_int_equal(ps_reader_manifest(r)->id, id);
    assert_int_equal(reader_each(r, see, &seen, text), MR_OK);
    assert_int_equal(seen.clients, FIXTURE_CORES);
    assert_int_equal(seen.variables, 1);
    for (uint32_t core = 0; core < FIXTURE_CORES; core++)
        assert_int_equal(seen.filters[core], id);
}

void chain_check(const char *directory, uint64_t asked_id, uint64_t id, uint32_t link_count,
                 const uint8_t *const *changes)
{
    uint8_t expected[CHAIN_KEYS] = {0}, values[CHAIN_KEYS];
    char text[PS_TEXT_BYTES] = "";
    struct ps_reader *r = NULL;
    for (uint32_t link = 0; link < link_count; link++)
        for (uint32_t key = 0; key < CHAIN_KEYS; key++)
            if (changes[link][key] != CHAIN_NOTHING)
                expected[key] = changes[link][key] == CHAIN_GONE ? 0 : changes[link][key];
    if (ps_reader_open(NULL, directory, asked_id, &r, text) != MR_OK)
        fail_msg("%s", text);
    assert_int_equal(ps_reader_chain(r)->count, link_count);
    chain_read(r, id, values);
    assert_memory_equal(values, expected, CHAIN_KEYS);
    ps_reader_close(r);
}
