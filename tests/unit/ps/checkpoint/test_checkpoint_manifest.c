#include <stdalign.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "checkpoint_fixture.h"
#include "tests/test.h"

static struct mr_feature features[2];
static uint32_t ids[2];

static struct ps_saved_parameter parameters[] = {
    {.name = "net/a", .rank = 2, .dims = {3, 4}, .step = UINT64_MAX},
    {.name = "net/a", .optimizer = "t1", .rule = MR_OPT_MOMENTUM, .rank = 1, .dims = {13}, .step = 5},
    {.name = "net/a", .optimizer = "t2", .rule = MR_OPT_SGD, .rank = 1, .dims = {0}, .step = 6},
    {.name = "net/b", .rank = 1, .dims = {1}, .step = 1},
};
#define PARAMETERS (sizeof(parameters) / sizeof(parameters[0]))

static struct ps_manifest example(void)
{
    fixture_features(features, ids);
    struct ps_manifest m = {.version = PS_FORMAT_VERSION,
                            .needs = MR_CAN(DENSE) | MR_CAN(ADAM_STEP),
                            .written_by = "0.3.0+1a2b3c4d",
                            .id = 12,
                            .incarnation = UINT32_MAX,
                            .ancestry = {.count = 2, .starts = {{UINT64_MAX, 11}, {0xABC, 0}}},
                            .feature_count = 2,
                            .features = features,
                            .feature_ids = ids,
                            .parameter_count = PARAMETERS,
                            .parameters = parameters,
                            .file_count = 3};
    m.files[0] = (struct ps_manifest_file){
        .blocks = 2, .payload_bytes = 1048000, .records = 9, .hash = {.low = 1, .high = UINT64_MAX}};
    m.files[2] = (struct ps_manifest_file){
        .blocks = 1, .payload_bytes = 56, .records = 1, .hash = {.low = 0xABCDEF, .high = 0}};
    return m;
}

static char *example_text(void)
{
    struct ps_manifest m = example();
    char *text = ps_manifest_print(&m);
    assert_non_null(text);
    return text;
}

TEST(test_comes_back_as_it_was)
{
    struct ps_manifest m = example(), back;
    features[0].init_a = -0.0f;
    features[0].init_b = 1.7014117e37f;
    features[0].weight_decay = 1e-45f;
    features[0].optimizer_args[1] = 0.1f;
    features[0].capacity_rows = UINT64_MAX;
    char *text = ps_manifest_print(&m), why[PS_TEXT_BYTES];
    assert_non_null(text);
    assert_true(ps_manifest_parse(text, strlen(text), &back, why));
    assert_int_equal(back.version, PS_FORMAT_VERSION);
    assert_int_equal(back.needs, m.needs);
    assert_string_equal(back.written_by, m.written_by);
    assert_int_equal(back.id, m.id);
    assert_int_equal(back.incarnation, m.incarnation);
    assert_memory_equal(&back.ancestry, &m.ancestry, sizeof(m.ancestry));
    assert_int_equal(back.feature_count, 2);
    assert_int_equal(back.parameter_count, PARAMETERS);
    assert_memory_equal(back.parameters, parameters, sizeof(parameters));
    assert_int_equal(ps_saved_parameter_bytes(&back.parameters[0]), 48);
    assert_int_equal(ps_saved_parameter_bytes(&back.parameters[2]), 0);
    assert_memory_equal(back.features, features, sizeof(features));
    assert_memory_equal(back.feature_ids, ids, sizeof(ids));
    assert_int_equal(back.file_count, 3);
    assert_memory_equal(back.files, m.files, sizeof(m.files));
    assert_int_equal(ps_manifest_feature_kind(&back, FIXTURE_TABLE), MR_TABLE);
    assert_int_equal(ps_manifest_feature_kind(&back, FIXTURE_VARIABLE), MR_VARIABLE);
    assert_int_equal(ps_manifest_feature_kind(&back, 1), 0);
    ps_manifest_clear(&back);
    free(text);
}

TEST(test_a_delta_names_its_parent)
{
    struct ps_manifest m = example(), back;
    char why[PS_TEXT_BYTES];
    m.parent = 11;
    m.parent_hash = (struct ps_hash){.low = 5, .high = UINT64_MAX - 1};
    m.step = UINT64_MAX;
    m.is_at_step = true;
    m.clock_s = UINT32_MAX;
    char *text = ps_manifest_print(&m);
    assert_non_null(text);
    assert_true(ps_manifest_parse(text, strlen(text), &back, why));
    assert_int_equal(back.parent, 11);
    assert_memory_equal(&back.parent_hash, &m.parent_hash, sizeof(m.parent_hash));
    assert_int_equal(back.step, UINT64_MAX);
    assert_true(back.is_at_step);
    assert_int_equal(back.clock_s, UINT32_MAX);
    /* The hash that children know it by is the one in the text. */
    char digits[48];
    (void)snprintf(digits, sizeof(digits), "\"hash\": \"%016" PRIx64 "%016" PRIx64 "\"", back.hash.high,
                   back.hash.low);
    assert_non_null(strstr(text, digits));
    ps_manifest_clear(&back);
    free(text);
}

/* Of a whole one nothing changes, so that versions without partial ones read it. */
TEST(test_a_partial_one_says_so)
{
    struct ps_manifest m = example(), back;
    char why[PS_TEXT_BYTES];
    char *text = ps_manifest_print(&m);
    assert_null(strstr(text, "partial"));
    free(text);
    m.is_partial = true;
    text = ps_manifest_print(&m);
    assert_non_null(strstr(text, "\"partial\": true"));
    assert_true(ps_manifest_parse(text, strlen(text), &back, why));
    assert_true(back.is_partial);
    ps_manifest_clear(&back);
    free(text);
    m.parent = 11;
    text = ps_manifest_print(&m);
    assert_false(ps_manifest_parse(text, strlen(text), &back, why));
    assert_non_null(strstr(why, "exclude each other"));
    free(text);
}

/* Version 2 has none of the fields of chains; a text of version 3 without them, or of version 2 with them, is
 * none. */
TEST(test_an_older_manifest_has_no_chain)
{
    struct ps_manifest m = example(), back;
    char why[PS_TEXT_BYTES];
    m.version = PS_FORMAT_VERSION_2;
    char *text = ps_manifest_print(&m);
    assert_non_null(text);
    assert_null(strstr(text, "parent"));
    assert_null(strstr(text, "step\""));
    assert_true(ps_manifest_parse(text, strlen(text), &back, why));
    assert_int_equal(back.version, PS_FORMAT_VERSION_2);
    assert_int_equal(back.parent, 0);
    ps_manifest_clear(&back);
    free(text);
}

TEST(test_a_manifest_of_version_4_has_no_parameters)
{
    struct ps_manifest m = example(), back;
    char why[PS_TEXT_BYTES];
    m.version = PS_FORMAT_VERSION_4;
    m.clock_s = 5;
    char *text = ps_manifest_print(&m);
    assert_non_null(text);
    assert_null(strstr(text, "parameters"));
    assert_true(ps_manifest_parse(text, strlen(text), &back, why));
    assert_int_equal(back.clock_s, 5);
    assert_int_equal(back.parameter_count, 0);
    ps_manifest_clear(&back);
    free(text);
}

/* 0.1 wrote version 4 without an ancestry; later versions must have one. */
TEST(test_a_manifest_of_0_1_has_no_ancestry)
{
    struct ps_manifest m = example(), back;
    char why[PS_TEXT_BYTES];
    m.version = PS_FORMAT_VERSION_4;
    m.lacks_ancestry = true;
    char *text = ps_manifest_print(&m);
    assert_non_null(text);
    assert_null(strstr(text, "ancestry"));
    assert_true(ps_manifest_parse(text, strlen(text), &back, why));
    assert_true(back.lacks_ancestry);
    assert_int_equal(back.ancestry.count, 0);
    ps_manifest_clear(&back);
    free(text);

    m.version = PS_FORMAT_VERSION_5;
    text = ps_manifest_print(&m);
    assert_false(ps_manifest_parse(text, strlen(text), &back, why));
    assert_non_null(strstr(why, "ancestry"));
    free(text);
}

/* What needs nothing new is as versions before 0.3.0 read it. */
TEST(test_a_manifest_of_version_6_needs_nothing)
{
    struct ps_manifest m = example(), back;
    char why[PS_TEXT_BYTES];
    m.version = PS_FORMAT_VERSION_6;
    char *text = ps_manifest_print(&m);
    assert_non_null(text);
    assert_null(strstr(text, "needs"));
    assert_null(strstr(text, "written_by"));
    assert_true(ps_manifest_parse(text, strlen(text), &back, why));
    assert_int_equal(back.needs, 0);
    assert_string_equal(back.written_by, "");
    ps_manifest_clear(&back);
    free(text);
}

/* The checks of a record against the list of parameters. */
TEST(test_records_of_parameters_belong_to_one)
{
    struct ps_manifest m = example();
    static alignas(8) uint8_t block[PS_BLOCK_BYTES];
    struct ps_block_header *header = (struct ps_block_header *)(void *)block;
    struct ps_record *record = (struct ps_record *)(void *)(block + sizeof(*header));
    header->record_count = 1;
    *record =
        (struct ps_record){.kind = PS_RECORD_PARAMETER, .feature = 0, .count = 40, .bytes = 40, .offset = 8};
    assert_null(ps_record_check(record));
    assert_null(ps_manifest_block_check(&m, block));
    record->offset = 12;
    assert_string_equal(ps_manifest_block_check(&m, block), "it holds a part beyond the end of a parameter");
    record->offset = UINT64_MAX;
    assert_non_null(ps_manifest_block_check(&m, block));
    record->offset = 0;
    record->feature = PARAMETERS;
    assert_string_equal(ps_manifest_block_check(&m, block),
                        "it holds a parameter that the manifest does not name");
    record->count = 0;
    assert_non_null(ps_record_check(record));
}

TEST(test_a_manifest_of_version_3_has_no_clock_and_no_ancestry)
{
    struct ps_manifest m = example(), back;
    char why[PS_TEXT_BYTES];
    m.version = PS_FORMAT_VERSION_3;
    m.step = 7;
    m.clock_s = 5;
    char *text = ps_manifest_print(&m);
    assert_non_null(text);
    assert_null(strstr(text, "clock_s"));
    assert_null(strstr(text, "ancestry"));
    assert_true(ps_manifest_parse(text, strlen(text), &back, why));
    assert_int_equal(back.version, PS_FORMAT_VERSION_3);
    assert_int_equal(back.step, 7);
    assert_int_equal(back.clock_s, 0);
    assert_int_equal(back.ancestry.count, 0);
    ps_manifest_clear(&back);
    free(text);
}

/* Of many starts the newest are kept. */
TEST(test_starts_go_on)
{
    struct ps_ancestry a;
    ps_ancestry_begin(&a, NULL, 100, 0);
    for (uint64_t id = 101; id < 120; id++)
        ps_ancestry_begin(&a, &a, id, id - 100);
    assert_int_equal(a.count, PS_STARTS_MAX);
    for (uint32_t i = 0; i < PS_STARTS_MAX; i++) {
        assert_int_equal(a.starts[i].id, 119 - i);
        assert_int_equal(a.starts[i].from, 19 - i);
    }
    ps_ancestry_begin(&a, NULL, 200, 3);
    assert_int_equal(a.count, 1);
}

TEST(test_fields_that_came_later_are_there_when_they_are_not_0)
{
    struct ps_manifest m = example(), back;
    char *text = example_text(), why[PS_TEXT_BYTES];
    assert_null(strstr(text, "filter_bytes"));
    assert_null(strstr(text, "schedule"));
    free(text);
    features[0].admission = MR_ADMIT_OBSERVATIONS;
    features[0].admission_arg = 3;
    features[0].memory_bytes = UINT64_MAX;
    features[0].filter_bytes = MR_FILTER_BYTES_MAX;
    features[0].schedule = MR_SCHEDULE_LINEAR;
    features[0].schedule_warmup_steps = 7;
    features[0].schedule_steps = UINT32_MAX;
    features[0].learning_rate_end = 0.1f;
    features[1].learning_rate_end = -0.0f;
    text = ps_manifest_print(&m);
    assert_non_null(text);
    assert_true(ps_manifest_parse(text, strlen(text), &back, why));
    assert_memory_equal(back.features, features, sizeof(features));
    ps_manifest_clear(&back);
    free(text);
}

TEST(test_what_json_cannot_hold_is_not_printed)
{
    struct ps_manifest m = example();
    features[0].init_a = NAN;
    assert_null(ps_manifest_print(&m));
    features[0].init_a = INFINITY;
    assert_null(ps_manifest_print(&m));
    features[0].init_a = 0.0f;
    features[1].name[0] = (char)0xFF;
    assert_null(ps_manifest_print(&m));
}

TEST(test_each_changed_byte_is_found)
{
    /* 0x20 makes E of the e in 1e-10, and 0x01 another decimal of the same double. */
    static const char masks[] = {0x01, 0x20, (char)0x80};
    char *text = example_text(), why[PS_TEXT_BYTES];
    const size_t n = strlen(text);
    struct ps_manifest m;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof(masks); k++) {
            text[i] = (char)(text[i] ^ masks[k]);
            why[0] = '\0';
            assert_false(ps_manifest_parse(text, n, &m, why));
            assert_int_not_equal(why[0], '\0');
            text[i] = (char)(text[i] ^ masks[k]);
        }
    free(text);
}

TEST(test_each_shorter_text_is_refused)
{
    char *text = example_text(), why[PS_TEXT_BYTES];
    struct ps_manifest m;
    for (size_t n = 0; n < strlen(text); n++)
        assert_false(ps_manifest_parse(text, n, &m, why));
    free(text);
}

/* Changes one value and makes the hash right again: the checks after the hash must hold by themselves.
 * `where` is "", "features" or "files" (their first entry). */
static void check_refused(const char *where, const char *key, json_t *value, const char *expected)
{
    char *text = example_text(), why[PS_TEXT_BYTES] = "";
    json_t *root = json_loads(text, 0, NULL);
    free(text);
    json_t *object = where[0] ? json_array_get(json_object_get(root, where), 0) : root;
    assert_non_null(object);
    if (value)
        assert_int_equal(json_object_set_new(object, key, value), 0);
    else
        assert_int_equal(json_object_del(object, key), 0);
    json_object_del(root, "hash");
    char *canonical = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    XXH128_hash_t hash = XXH3_128bits(canonical, strlen(canonical));
    json_object_set_new(root, "hash", json_sprintf("%016" PRIx64 "%016" PRIx64, hash.high64, hash.low64));
    text = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    struct ps_manifest m;
    assert_false(ps_manifest_parse(text, strlen(text), &m, why));
    if (!strstr(why, expected))
        fail_msg("\"%s\" does not name %s", why, expected);
    free(canonical);
    free(text);
    json_decref(root);
}

TEST(test_wrong_fields_are_named)
{
    check_refused("", "format", json_string("tar"), "format");
    check_refused("", "needs", NULL, "needs");
    check_refused("", "needs", json_array(), "needs");
    check_refused("", "needs", json_pack("[s]", "Dense;"), "needs");
    check_refused("", "needs", json_pack("[i]", 1), "needs");
    check_refused("", "needs", json_pack("[s,s]", "dense", "dense"), "as it was written");
    check_refused("", "needs", json_pack("[s,s]", "dense", "telepathy"),
                  "it needs \"telepathy\", and was written by version 0.3.0+1a2b3c4d");
    check_refused("", "written_by", NULL, "written_by");
    check_refused("", "written_by", json_string("\x1b[2J"), "as it was written");
    check_refused("", "version", json_integer(PS_FORMAT_VERSION_6), "as it was written");
    check_refused("", "format", NULL, "format");
    check_refused("", "version", json_integer(PS_FORMAT_VERSION + 1), "version");
    check_refused("", "version", json_integer(0), "version");
    check_refused("", "id", json_integer(0), "id");
    check_refused("", "id", json_integer(-3), "id");
    check_refused("", "id", json_real(3.0), "id");
    check_refused("", "incarnation", json_integer(INT64_C(1) << 32), "incarnation");
    check_refused("", "parent", NULL, "parent");
    check_refused("", "parent", json_integer(12), "parent"); /* itself */
    check_refused("", "parent", json_integer(-1), "parent");
    check_refused("", "parent", json_integer(11), "parent_hash");
    check_refused("", "parent_hash", json_string("0123456789abcdef0123456789abcdef"), "as it was written");
    check_refused("", "step", json_integer(3), "step");
    check_refused("", "at_step", json_integer(1), "at_step");
    check_refused("", "version", json_integer(PS_FORMAT_VERSION_2), "as it was written");
    check_refused("", "version", json_integer(PS_FORMAT_VERSION_3), "as it was written");
    check_refused("", "clock_s", NULL, "clock_s");
    check_refused("", "clock_s", json_integer(INT64_C(1) << 32), "clock_s");
    check_refused("", "ancestry", NULL, "ancestry");
    check_refused("", "ancestry", json_pack("[{}, {}, {}, {}, {}, {}, {}, {}, {}]"), "ancestry");
    check_refused("ancestry", "start", json_string("12"), "start");
    check_refused("ancestry", "start", json_string("0123456789abcdeF"), "start");
    check_refused("ancestry", "from", json_integer(-1), "from");
    check_refused("", "features", json_object(), "features");
    check_refused("", "files", json_array(), "files");
    check_refused("files", "name", json_string("../../etc/passwd"), "core-000.mrc");
    check_refused("files", "blocks", json_integer(INT64_MAX), "blocks");
    check_refused("files", "payload_bytes", json_integer(3 << 20), "payload_bytes");
    check_refused("files", "records", json_integer(1 << 20), "records");
    check_refused("files", "hash", json_string("12"), "hash");
    check_refused("files", "hash", json_string("0123456789abcdef0123456789abcdeF"), "hash");
    check_refused("features", "id", json_integer(65536), "id");
    check_refused("features", "id", json_integer(FIXTURE_VARIABLE), "named twice");
    check_refused("features", "name", json_string("bias"), "named twice");
    check_refused("features", "name", json_string(""), "name");
    check_refused("features", "name",
                  json_string("a123456789b123456789c123456789d123456789e123456789f123456789g123"), "63");
    check_refused("features", "dims", json_pack("[i,i,i,i,i]", 1, 1, 1, 1, 1), "dims");
    check_refused("features", "dims", json_pack("[i]", -1), "dims");
    check_refused("features", "optimizer_args", json_pack("[f]", 1.0), "optimizer_args");
    check_refused("features", "seed", json_integer(3), "seed");
    check_refused("features", "seed", json_string("007"), "seed");
    check_refused("features", "seed", json_string("18446744073709551616"), "seed");
    check_refused("features", "learning_rate", json_real(1e300), "learning_rate");
    check_refused("features", "learning_rate", json_real(0.1), "learning_rate"); /* no float is exactly 0.1 */
    check_refused("features", "learning_rate", json_real(-0.5), "learning_rate");
    check_refused("features", "optimizer", json_integer(999), "optimizer");
    check_refused("features", "kind", json_integer(3), "kind");
    check_refused("features", "clip_norm", NULL, "clip_norm");
    check_refused("", "parameters", json_array(), "parameters");
    check_refused("", "version", json_integer(PS_FORMAT_VERSION_4), "as it was written");
    check_refused("parameters", "name", json_string("two words"), "name");
    check_refused("parameters", "name", json_string(""), "name");
    check_refused("parameters", "name", json_string("net/b"), "not in its place");
    check_refused("parameters", "optimizer", json_string("t0"), "rule");
    check_refused("parameters", "rule", json_integer(1), "as it was written");
    check_refused("parameters", "dims", json_pack("[I,I]", (json_int_t)UINT32_MAX, (json_int_t)UINT32_MAX),
                  "too large");
    check_refused("parameters", "step", json_integer(1), "step");
}

TEST(test_the_same_content_in_other_spaces_is_refused)
{
    char *text = example_text(), why[PS_TEXT_BYTES];
    json_t *root = json_loads(text, 0, NULL);
    char *compact = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    struct ps_manifest m;
    assert_false(ps_manifest_parse(compact, strlen(compact), &m, why));
    assert_non_null(strstr(why, "not as it was written"));
    json_decref(root);
    free(compact);
    free(text);
}

/* A block of one record, of which only the header counts here. */
static const char *block_check(const struct ps_manifest *m, uint32_t kind, uint32_t feature)
{
    struct {
        struct ps_block_header header;
        struct ps_record record;
        uint64_t key;
    } block = {.header = {.record_count = 1}, .record = {.kind = kind, .feature = feature, .bytes = 8}};
    return ps_manifest_block_check(m, (const uint8_t *)&block);
}

TEST(test_records_belong_to_features_of_the_manifest)
{
    struct ps_manifest m = example();
    static const uint32_t of_tables[] = {PS_RECORD_ROWS, PS_RECORD_GONE, PS_RECORD_OBSERVATIONS};
    m.parent = 11;
    for (size_t i = 0; i < 3; i++) {
        assert_null(block_check(&m, of_tables[i], FIXTURE_TABLE));
        assert_non_null(block_check(&m, of_tables[i], FIXTURE_VARIABLE));
        assert_non_null(block_check(&m, of_tables[i], 1));
    }
    assert_null(block_check(&m, PS_RECORD_VARIABLE, FIXTURE_VARIABLE));
    assert_non_null(block_check(&m, PS_RECORD_VARIABLE, FIXTURE_TABLE));
    assert_null(block_check(&m, PS_RECORD_CLIENT, 1));
    m.parent = 0;
    assert_non_null(strstr(block_check(&m, PS_RECORD_GONE, FIXTURE_TABLE), "no parent"));
    assert_null(block_check(&m, PS_RECORD_OBSERVATIONS, FIXTURE_TABLE));
}

TEST(test_not_even_json)
{
    static const char *const texts[] = {
        "", "{", "[]", "null", "{}", "{\"format\":1}", "{\"a\":1,\"a\":2}", "\xff\xfe"};
    struct ps_manifest m;
    char why[PS_TEXT_BYTES];
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        assert_false(ps_manifest_parse(texts[i], strlen(texts[i]), &m, why));
}
