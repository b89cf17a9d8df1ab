#include "checkpoint_fixture.h"
#include "tests/unit/ps/reader_each.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#include "tests/test.h"
#include "tests/wait.h"

#define ROWS_PER_RECORD 100u
#define VARIABLE_BYTES  20u

void fixture_features(struct mr_feature features[2], uint32_t ids[2])
{
    memset(features, 0, 2 * sizeof(*features));
    features[0] = (struct mr_feature){.name = "embedding",
                                      .kind = MR_TABLE,
                                      .dtype = MR_F32,
                                      .rank = 1,
                                      .dims = {FIXTURE_DIM},
                                      .initializer = MR_INIT_NORMAL,
                                      .init_b = 0.1f,
                                      .seed = UINT64_MAX - 6,
                                      .optimizer = MR_OPT_ADAGRAD,
                                      .learning_rate = 0.1f,
                                      .optimizer_args = {0.0f, 1e-10f}};
    features[1] = (struct mr_feature){.name = "bias",
                                      .kind = MR_VARIABLE,
                                      .dtype = MR_F32,
                                      .rank = 1,
                                      .dims = {VARIABLE_BYTES / 4},
                                      .initializer = MR_INIT_CONSTANT,
                                      .optimizer = MR_OPT_SGD,
                                      .learning_rate = 0.01f};
    ids[0] = FIXTURE_TABLE;
    ids[1] = FIXTURE_VARIABLE;
}

struct ps_writer_options fixture_options(const char *directory, uint64_t id)
{
    static struct mr_feature features[2];
    static uint32_t ids[2];
    fixture_features(features, ids);
    return (struct ps_writer_options){.directory = directory,
                                      .id = id,
                                      .features = features,
                                      .feature_ids = ids,
                                      .feature_count = 2,
                                      .core_count = FIXTURE_CORES,
                                      .incarnation = 5,
                                      .buffers_per_core = 2};
}

enum mr_status fixture_start(const struct ps_store *store, const char *directory, uint64_t id,
                             struct ps_writer **out, char *text)
{
    const struct ps_writer_options options = fixture_options(directory, id);
    return ps_writer_start(store, &options, out, text);
}

/* A core would wait between its loops. */
uint8_t *fixture_append(struct ps_writer *w, uint32_t core, const struct ps_record *record)
{
    uint8_t *at;
    WAIT_UNTIL((at = ps_writer_append(w, core, record)) != NULL || ps_writer_failed(w));
    return at;
}

/* Every byte of a row depends on the checkpoint's id, the key and the place. */
static uint8_t row_byte(uint64_t id, uint64_t key, uint32_t i)
{
    return (uint8_t)((id * 31 + key * 7 + i) % 251);
}

static bool fill_rows(struct ps_writer *w, uint64_t id, uint32_t core, uint64_t first, uint32_t count)
{
    struct ps_record record = {.kind = PS_RECORD_ROWS,
                               .feature = FIXTURE_TABLE,
                               .count = count,
                               .row_bytes = FIXTURE_ROW_BYTES,
                               .bytes = (uint64_t)count * (8 + FIXTURE_ROW_BYTES)};
    uint8_t *at = fixture_append(w, core, &record);
    if (!at)
        return false;
    for (uint32_t r = 0; r < count; r++) {
        uint64_t key = first + (uint64_t)r * FIXTURE_CORES;
        memcpy(at + r * 8, &key, 8);
        for (uint32_t i = 0; i < FIXTURE_ROW_BYTES; i++)
            at[count * 8 + r * FIXTURE_ROW_BYTES + i] = row_byte(id, key, i);
    }
    return true;
}

static bool fill_value(struct ps_writer *w, uint64_t id, uint32_t core, struct ps_record record)
{
    uint8_t *at = fixture_append(w, core, &record);
    for (uint32_t i = 0; at && i < record.bytes; i++)
        at[i] = row_byte(id, record.kind, i);
    return at != NULL;
}

bool fixture_fill(struct ps_writer *w, uint64_t id, uint32_t core, uint32_t rows)
{
    for (uint64_t key = core; key < rows; key += (uint64_t)ROWS_PER_RECORD * FIXTURE_CORES) {
        uint64_t left = (rows - key + FIXTURE_CORES - 1) / FIXTURE_CORES;
        if (!fill_rows(w, id, core, key, left < ROWS_PER_RECORD ? (uint32_t)left : ROWS_PER_RECORD))
            return false;
    }
    bool ok = fill_value(w, id, core, (struct ps_record){.kind = PS_RECORD_CLIENT, .bytes = 24}) &&
              fill_value(w, id, core, (struct ps_record){.kind = PS_RECORD_STREAM, .bytes = 32});
    if (core == 0)
        ok = ok && fill_value(w, id, core,
                              (struct ps_record){.kind = PS_RECORD_VARIABLE,
                                                 .feature = FIXTURE_VARIABLE,
                                                 .count = VARIABLE_BYTES,
                                                 .bytes = VARIABLE_BYTES});
    return ok;
}

struct ps_writer_status fixture_finish(struct ps_writer *w)
{
    struct ps_writer_status status;
    WAIT_UNTIL(ps_writer_status(w, &status), status.done);
    ps_writer_finish(w);
    return status;
}

void fixture_publish(struct ps_writer *w, uint32_t cores)
{
    for (uint32_t core = 0; core < cores; core++)
        ps_writer_core_done(w, core);
    const struct ps_writer_status status = fixture_finish(w);
    if (status.status != MR_OK)
        fail_msg("%s", status.text);
}

struct ps_writer_status fixture_save(const struct ps_store *store, const char *directory, uint64_t id,
                                     uint32_t rows)
{
    struct ps_writer_status status = {.done = true};
    struct ps_writer *w = NULL;
    status.status = fixture_start(store, directory, id, &w, status.text);
    if (status.status != MR_OK)
        return status;
    for (uint32_t core = 0; core < FIXTURE_CORES; core++) {
        (void)fixture_fill(w, id, core, rows);
        ps_writer_core_done(w, core);
    }
    return fixture_finish(w);
}

struct seen {
    uint64_t id;
    uint32_t rows;
    uint8_t *times; /* by key */
    uint32_t variables, clients, streams;
};

static void check_value(struct seen *seen, const struct ps_record *record, const uint8_t *bytes)
{
    for (uint32_t i = 0; i < record->bytes; i++)
        assert_int_equal(bytes[i], row_byte(seen->id, record->kind, i));
}

static enum mr_status check_record(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    struct seen *seen = arg;
    assert_int_equal((uintptr_t)bytes % 8, 0);
    seen->variables += record->kind == PS_RECORD_VARIABLE;
    seen->clients += record->kind == PS_RECORD_CLIENT;
    seen->streams += record->kind == PS_RECORD_STREAM;
    if (record->kind != PS_RECORD_ROWS) {
        check_value(seen, record, bytes);
        return MR_OK;
    }
    assert_int_equal(record->feature, FIXTURE_TABLE);
    for (uint32_t r = 0; r < record->count; r++) {
        uint64_t key;
        memcpy(&key, bytes + r * 8, 8);
        assert_true(key < seen->rows);
        seen->times[key]++;
        uint8_t row[FIXTURE_ROW_BYTES];
        for (uint32_t i = 0; i < FIXTURE_ROW_BYTES; i++)
            row[i] = row_byte(seen->id, key, i);
        assert_memory_equal(bytes + record->count * 8 + r * FIXTURE_ROW_BYTES, row, sizeof(row));
    }
    return MR_OK;
}

void fixture_check(struct ps_reader *r, uint64_t id, uint32_t rows)
{
    char text[PS_TEXT_BYTES] = "";
    struct seen seen = {.id = id, .rows = rows, .times = calloc(rows + 1u, 1)};
    assert_non_null(seen.times);
    assert_int_equal(ps_reader_manifest(r)->id, id);
    assert_int_equal(reader_each(r, check_record, &seen, text), MR_OK);
    for (uint32_t key = 0; key < rows; key++)
        assert_int_equal(seen.times[key], 1);
    assert_int_equal(seen.variables, 1);
    assert_int_equal(seen.clients, FIXTURE_CORES);
    assert_int_equal(seen.streams, FIXTURE_CORES);
    free(seen.times);
}

const char *fixture_path(const char *directory, uint64_t id, const char *file)
{
    static char path[2 * PS_PATH_BYTES];
    char checkpoint[PS_PATH_BYTES];
    assert_true(ps_path_published(directory, id, checkpoint));
    (void)snprintf(path, sizeof(path), "%s/%s", checkpoint, file);
    return path;
}

void fixture_flip(const char *path, off_t at, uint8_t mask)
{
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= mask;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    assert_int_equal(close(fd), 0);
}

struct counting {
    const char *prefix;
    uint32_t count;
};

static void count_name(void *arg, const char *name)
{
    struct counting *counting = arg;
    counting->count += strncmp(name, counting->prefix, strlen(counting->prefix)) == 0;
}

uint32_t fixture_count_on(const struct ps_store *store, const char *directory, const char *prefix)
{
    struct counting counting = {.prefix = prefix};
    assert_int_equal(store->list(store->self, directory, count_name, &counting), 0);
    return counting.count;
}

uint32_t fixture_count(const char *directory, const char *prefix)
{
    return fixture_count_on(ps_store_local(), directory, prefix);
}

void fixture_make_newer(const char *directory, uint64_t id)
{
    static const char version[] = "\"version\": ";
    char text[1 << 16];
    FILE *f = fopen(fixture_path(directory, id, PS_MANIFEST_NAME), "r+b");
    assert_non_null(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    const char *at = strstr(text, version);
    assert_non_null(at);
    assert_int_equal(fseek(f, at - text + (long)strlen(version), SEEK_SET), 0);
    assert_int_equal(fputc('0' + PS_FORMAT_VERSION + 1, f), '0' + PS_FORMAT_VERSION + 1);
    assert_int_equal(fclose(f), 0);
}

void fixture_rewrite(const char *path, const char *where, const char *key, json_t *value)
{
    json_t *root = json_load_file(path, 0, NULL);
    json_t *object = where[0] != '\0' ? json_array_get(json_object_get(root, where), 0) : root;
    assert_non_null(object);
    assert_int_equal(value != NULL ? json_object_set_new(object, key, value) : json_object_del(object, key),
                     0);
    json_object_del(root, "hash");
    char *canonical = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    const XXH128_hash_t hash = XXH3_128bits(canonical, strlen(canonical));
    json_object_set_new(root, "hash", json_sprintf("%016" PRIx64 "%016" PRIx64, hash.high64, hash.low64));
    assert_int_equal(json_dump_file(root, path, JSON_INDENT(1) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17)),
                     0);
    free(canonical);
    json_decref(root);
}
