#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/wire/format/op.h"
#include "ps/cluster/catalog_json.h"
#include "tests/test.h"

static struct ps_cluster_catalog catalog, again;
static char text[PS_CLUSTER_TEXT_BYTES];

static int catalog_json_begin(void **state)
{
    memset(&catalog, 0, sizeof(catalog));
    catalog.version = 7;
    catalog.last_feature = 12;
    catalog.freeze = MR_FREEZE_ALL;
    catalog.count = 2;
    catalog.features[0] = (struct ps_cluster_feature){
        .id = 3, .is_final = true, .since = 1, .feature = mr_feature_table("user", 16)};
    catalog.features[0].feature.seed = UINT64_C(0xfedcba9876543210);
    catalog.features[0].feature.learning_rate = 0.1f;
    catalog.features[1] = (struct ps_cluster_feature){
        .id = 12, .since = 7, .feature = mr_feature_variable("bias", 1, (const uint32_t[]){5})};
    return 0;
}

static void expect_same(void)
{
    char *json = ps_cluster_catalog_json(&catalog);
    assert_non_null(json);
    memset(&again, 0xa5, sizeof(again));
    if (!ps_cluster_catalog_parse(json, strlen(json), &again, text))
        fail_msg("%s", text);
    free(json);
    assert_int_equal(again.version, catalog.version);
    assert_int_equal(again.last_feature, catalog.last_feature);
    assert_int_equal(again.freeze, catalog.freeze);
    assert_int_equal(again.count, catalog.count);
    for (uint32_t i = 0; i < catalog.count; i++) {
        const struct ps_cluster_feature *a = &again.features[i], *b = &catalog.features[i];
        assert_true(a->id == b->id && a->is_final == b->is_final && a->since == b->since);
        assert_memory_equal(&a->feature, &b->feature, sizeof(a->feature));
    }
    assert_int_equal(again.taken_back_count, catalog.taken_back_count);
    for (uint32_t i = 0; i < catalog.taken_back_count; i++) {
        assert_int_equal(again.taken_back[i].since, catalog.taken_back[i].since);
        assert_int_equal(again.taken_back[i].status, catalog.taken_back[i].status);
        assert_string_equal(again.taken_back[i].text, catalog.taken_back[i].text);
    }
}

TEST(test_catalogues_are_read_as_they_were_written, catalog_json_begin)
{
    expect_same();
    catalog.taken_back[catalog.taken_back_count++] =
        (struct ps_cluster_taken_back){.since = 5, .status = MR_OUT_OF_MEMORY, .text = "\"no\" room"};
    expect_same();
    memset(&catalog, 0, sizeof(catalog));
    expect_same();
}

/* Whatever its names and numbers are. */
TEST(test_the_largest_catalogue_fits_a_znode, catalog_json_begin)
{
    catalog.version = INT64_MAX;
    catalog.last_feature = MR_FEATURE_ID_MAX;
    catalog.count = PS_CLUSTER_FEATURES_MAX;
    for (uint32_t i = 0; i < catalog.count; i++) {
        catalog.features[i] = (struct ps_cluster_feature){.id = MR_FEATURE_ID_MAX - catalog.count + i + 1,
                                                          .since = INT64_MAX,
                                                          .feature = mr_feature_table("", 16)};
        (void)snprintf(catalog.features[i].feature.name, MR_NAME_BYTES, "%063u", i);
    }
    catalog.taken_back_count = PS_CLUSTER_TAKEN_BACK_MAX;
    for (uint32_t i = 0; i < PS_CLUSTER_TAKEN_BACK_MAX; i++) {
        catalog.taken_back[i] =
            (struct ps_cluster_taken_back){.since = INT64_MAX, .status = MR_OUT_OF_MEMORY};
        memset(catalog.taken_back[i].text, '\x01', PS_CLUSTER_FAILED_BYTES - 1); /* six characters in JSON */
    }
    expect_same();
    char *json = ps_cluster_catalog_json(&catalog);
    assert_true(strlen(json) < (1u << 20) - 4096);
    free(json);
}

/* What a good catalogue becomes if one text in it is replaced, and what is said of it. */
TEST(test_what_is_no_catalogue_is_refused, catalog_json_begin)
{
    static const struct {
        const char *of, *by, *says;
    } cases[] = {
        {"{\"format\":1", "{\"format\":3", "format: is 3, and this version of millraced ("},
        {"{\"format\":1", "{\"format\":0", "format: is 0, and this version of millraced ("},
        {"\"version\":7", "\"version\":-7", "version: is no number"},
        {"\"last_feature\":12", "\"last_feature\":11", "id: is no number"},
        {"\"last_feature\":12", "\"last_feature\":65536", "last_feature: is no number"},
        {"\"freeze\":2", "\"freeze\":3", "freeze: is no number"},
        {"\"features\":", "\"feature\":", "features: is no list"},
        {"\"id\":3", "\"id\":12", "id: is not above the one before"},
        {"\"id\":3", "\"id\":0", "id: is not above the one before"},
        {"\"since\":1", "\"since\":8", "since: is no number"},
        {"\"since\":1", "\"since\":0", "since: is no version"},
        {"\"final\":true", "\"final\":1", "final: is neither true nor false"},
        {"\"name\":\"user\"", "\"name\":\"us er\"", "is no feature of this version: name"},
        {"\"name\":\"user\"", "\"name\":\"\"", "name: is no name"},
        {"\"name\":\"bias\"", "\"name\":\"user\"", "name: is there twice"},
        {"\"rest\":\"01", "\"rest\":\"0g", "rest: is not hexadecimal"},
        {"\"rest\":\"01", "\"rest\":\"1", "rest: is no descriptor of this version"},
        {"\"taken_back\":[]", "\"taken_back\":[{\"since\":8}]", "since: is no number"},
        {"\"taken_back\":[]", "\"taken_back\":7", "taken_back: is no list"},
    };
    char *json = ps_cluster_catalog_json(&catalog);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char bad[2048];
        const char *at = strstr(json, cases[i].of);
        if (at == NULL)
            fail_msg("case %zu is not in %s", i, json);
        (void)snprintf(bad, sizeof(bad), "%.*s%s%s", (int)(at - json), json, cases[i].by,
                       at + strlen(cases[i].of));
        if (ps_cluster_catalog_parse(bad, strlen(bad), &again, text))
            fail_msg("case %zu was taken", i);
        if (strncmp(text, cases[i].says, strlen(cases[i].says)) != 0)
            fail_msg("case %zu: \"%s\" does not begin with \"%s\"", i, text, cases[i].says);
    }
    free(json);
}

/* A node that lacks what a feature needs must not read it. */
TEST(test_what_features_need_makes_another_format, catalog_json_begin)
{
    char *json = ps_cluster_catalog_json(&catalog);
    assert_non_null(strstr(json, "\"format\":1,"));
    free(json);
    catalog.features[0].feature.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1;
    expect_same();
    json = ps_cluster_catalog_json(&catalog);
    assert_non_null(strstr(json, "\"format\":2,"));
    free(json);
}
