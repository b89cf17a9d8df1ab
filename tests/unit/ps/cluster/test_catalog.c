#include <stdio.h>
#include <string.h>

#include "dataplane/wire/format/op.h"
#include "ps/cluster/catalog.h"
#include "tests/test.h"

static struct ps_cluster_catalog catalog, next;
static uint32_t ids[8];
static enum mr_status status;
static char text[PS_RULES_TEXT_BYTES];

static bool may_alter(const struct mr_feature *is, const struct mr_feature *after, char *why, size_t bytes)
{
    (void)is;
    if (after->learning_rate < 1)
        return true;
    (void)snprintf(why, bytes, "too fast");
    return false;
}

static struct ps_catalog_request request_to_create(const struct mr_feature *features, uint32_t count)
{
    return (struct ps_catalog_request){
        .kind = PS_CATALOG_CREATE, .feature_count = count, .features = features, .ids = ids};
}

static enum ps_catalog_request_state catalog_ask(struct ps_catalog_request *request)
{
    return ps_cluster_catalog_try(&catalog, request, &next, &status, text);
}

static void catalog_take(void)
{
    assert_int_equal(next.version, catalog.version + 1);
    ps_cluster_catalog_copy(&catalog, &next);
}

static struct ps_cluster_report at(uint64_t version)
{
    return (struct ps_cluster_report){.features = {.has_catalog = true, .catalog = version}};
}

static struct ps_cluster_report failing(uint64_t version)
{
    return (struct ps_cluster_report){.features = {.has_catalog = true,
                                                   .catalog = version - 1,
                                                   .failed = version,
                                                   .failed_status = MR_OUT_OF_MEMORY,
                                                   .failed_text = "node b: no room"}};
}

static void settle(void)
{
    const struct ps_cluster_report all = at(catalog.version);
    assert_true(ps_cluster_catalog_settle(&catalog, &all, 1, &next));
    catalog_take();
}

/* user 1, item 2: final, version 2 */
static int catalog_begin(void **state)
{
    const struct mr_feature features[] = {mr_feature_table("user", 8), mr_feature_table("item", 4)};
    struct ps_catalog_request request = request_to_create(features, 2);
    memset(&catalog, 0, sizeof(catalog));
    if (catalog_ask(&request) != PS_CATALOG_WRITES)
        return -1;
    catalog_take();
    settle();
    return catalog_ask(&request) == PS_CATALOG_MADE ? 0 : -1;
}

TEST(test_create, catalog_begin)
{
    const struct mr_feature features[] = {mr_feature_table("ad", 8), mr_feature_table("item", 4),
                                          mr_feature_table("ad", 8)};
    struct ps_catalog_request request = request_to_create(features, 3);
    assert_int_equal(catalog_ask(&request), PS_CATALOG_WRITES);
    assert_int_equal(catalog.count, 2);
    catalog_take();
    assert_int_equal(catalog.count, 3);
    assert_int_equal(catalog.last_feature, 3);
    assert_int_equal(catalog.features[2].id, 3);
    assert_int_equal(catalog.features[2].since, 3);
    assert_false(catalog.features[2].is_final);
    assert_int_equal(catalog_ask(&request), PS_CATALOG_WAITS);
    settle();
    assert_int_equal(catalog_ask(&request), PS_CATALOG_MADE);
    assert_int_equal(request.final_since, 4);
    assert_int_equal(ids[0], 3);
    assert_int_equal(ids[1], 2);
    assert_int_equal(ids[2], 3);
}

/* A caller that is no operator has another limit. */
TEST(test_create_has_the_callers_limit, catalog_begin)
{
    const struct mr_feature features[] = {mr_feature_table("ad", 8), mr_feature_table("item", 4)};
    struct ps_catalog_request request = request_to_create(features, 2);
    request.features_max = catalog.count;
    assert_int_equal(catalog_ask(&request), PS_CATALOG_FAILED);
    assert_int_equal(status, MR_UNAUTHORIZED);
    assert_non_null(strstr(text, "trainers create tables and variables until there are 2"));
    request.features_max++; /* one of them is there */
    assert_int_equal(catalog_ask(&request), PS_CATALOG_WRITES);
}

TEST(test_create_is_all_or_nothing, catalog_begin)
{
    const struct mr_feature features[] = {mr_feature_table("new", 8), mr_feature_table("item", 5)};
    struct ps_catalog_request request = request_to_create(features, 2);
    assert_int_equal(catalog_ask(&request), PS_CATALOG_FAILED);
    assert_int_equal(status, MR_FEATURE_MISMATCH);
    assert_string_equal(text, "item exists with dim 4, not 5; millrace ctl list shows its options");
    struct mr_feature wrong[] = {mr_feature_table("new", 8), mr_feature_table("new", 9)};
    request = request_to_create(wrong, 2);
    assert_int_equal(catalog_ask(&request), PS_CATALOG_FAILED);
    assert_int_equal(status, MR_FEATURE_MISMATCH);
    wrong[0].learning_rate = -1;
    assert_int_equal(catalog_ask(&request), PS_CATALOG_FAILED);
    assert_int_equal(status, MR_INVALID_ARGUMENT);
}

TEST(test_a_create_that_fails_somewhere_is_taken_back, catalog_begin)
{
    const struct mr_feature features[] = {mr_feature_table("a", 8), mr_feature_table("b", 8)};
    const struct mr_feature other[] = {mr_feature_table("c", 8)};
    struct ps_catalog_request request = request_to_create(features, 2), third = request_to_create(other, 1);
    assert_int_equal(catalog_ask(&request), PS_CATALOG_WRITES);
    catalog_take();
    assert_int_equal(catalog_ask(&third), PS_CATALOG_WRITES);
    catalog_take();
    const struct ps_cluster_report reports[] = {at(4), failing(3), {.features = {.has_catalog = false}}};
    assert_true(ps_cluster_catalog_settle(&catalog, reports, 3, &next));
    catalog_take();
    assert_int_equal(catalog.count, 3); /* c waits for the one that failed at what came before */
    assert_int_equal(catalog.features[2].id, 5);
    assert_false(catalog.features[2].is_final);
    assert_false(ps_cluster_catalog_settle(&catalog, reports, 3, &next));
    assert_int_equal(catalog_ask(&third), PS_CATALOG_WAITS);
    assert_int_equal(catalog_ask(&request), PS_CATALOG_FAILED);
    assert_int_equal(status, MR_OUT_OF_MEMORY);
    assert_string_equal(text, "node b: no room; no feature was created");

    request.written_as = 0; /* asked again: with new numbers */
    assert_int_equal(catalog_ask(&request), PS_CATALOG_WRITES);
    assert_int_equal(ids[0], 6);
    catalog_take();
    settle();
    assert_int_equal(catalog_ask(&request), PS_CATALOG_MADE);
}

TEST(test_only_the_last_failures_are_kept, catalog_begin)
{
    const struct mr_feature f = mr_feature_table("a", 8);
    for (uint32_t i = 0; i < PS_CLUSTER_TAKEN_BACK_MAX + 3; i++) {
        struct ps_catalog_request request = request_to_create(&f, 1);
        assert_int_equal(catalog_ask(&request), PS_CATALOG_WRITES);
        catalog_take();
        const struct ps_cluster_report report = failing(catalog.version);
        assert_true(ps_cluster_catalog_settle(&catalog, &report, 1, &next));
        catalog_take();
        assert_int_equal(catalog_ask(&request), PS_CATALOG_FAILED);
    }
    assert_int_equal(catalog.taken_back_count, PS_CLUSTER_TAKEN_BACK_MAX);
    assert_int_equal(catalog.taken_back[PS_CLUSTER_TAKEN_BACK_MAX - 1].since, catalog.version - 1);
    assert_int_equal(catalog.last_feature, 2 + PS_CLUSTER_TAKEN_BACK_MAX + 3);
}

TEST(test_what_decides, catalog_begin)
{
    const struct mr_feature f = mr_feature_table("a", 8);
    struct ps_catalog_request request = request_to_create(&f, 1);
    assert_false(ps_cluster_catalog_settle(&catalog, NULL, 0, &next));
    assert_int_equal(catalog_ask(&request), PS_CATALOG_WRITES);
    catalog_take();
    struct ps_cluster_report reports[] = {at(3), at(2), {.features = {.has_catalog = false}}};
    assert_false(ps_cluster_catalog_settle(&catalog, reports, 3, &next));     /* the second lacks it */
    assert_false(ps_cluster_catalog_settle(&catalog, reports + 2, 1, &next)); /* nobody has tried it */
    assert_false(ps_cluster_catalog_settle(&catalog, NULL, 0, &next));
    reports[1] = at(3);
    assert_true(ps_cluster_catalog_settle(&catalog, reports, 3, &next));
    assert_true(next.features[2].is_final);
    reports[2].features.failed = 3; /* it would never serve */
    assert_true(ps_cluster_catalog_settle(&catalog, reports, 3, &next));
    assert_int_equal(next.count, 2);
}

TEST(test_limits, catalog_begin)
{
    struct mr_feature f = mr_feature_table("x", 1);
    struct ps_catalog_request request = request_to_create(&f, 1);
    for (uint32_t i = 2; i < PS_CLUSTER_FEATURES_MAX; i++) {
        catalog.features[i] =
            (struct ps_cluster_feature){.id = i + 1, .is_final = true, .since = 2, .feature = f};
        (void)snprintf(catalog.features[i].feature.name, MR_NAME_BYTES, "f%u", i);
    }
    catalog.count = catalog.last_feature = PS_CLUSTER_FEATURES_MAX;
    assert_int_equal(catalog_ask(&request), PS_CATALOG_FAILED);
    assert_string_equal(
        text, "a cluster has at most 2048 features, and has 2048: drop some, or run another cluster");
    catalog.count--;
    assert_int_equal(catalog_ask(&request), PS_CATALOG_WRITES);
    catalog.last_feature = MR_FEATURE_ID_MAX;
    assert_int_equal(catalog_ask(&request), PS_CATALOG_FAILED);
    assert_int_equal(status, MR_INVALID_ARGUMENT);
}

static struct ps_catalog_request request_to_drop(const char names[][MR_NAME_BYTES], uint32_t count)
{
    return (struct ps_catalog_request){
        .kind = PS_CATALOG_DROP, .name_count = count, .names = names[0], .ids = ids};
}

TEST(test_drop, catalog_begin)
{
    static const char names[3][MR_NAME_BYTES] = {"item", "user", "item"};
    static const char unknown[2][MR_NAME_BYTES] = {"user", "who"};
    struct ps_catalog_request request = request_to_drop(unknown, 2);
    assert_int_equal(catalog_ask(&request), PS_CATALOG_FAILED);
    assert_int_equal(status, MR_UNKNOWN_TABLE);
    request = request_to_drop(names, 3);
    assert_int_equal(catalog_ask(&request), PS_CATALOG_WRITES);
    assert_int_equal(next.count, 0);
    assert_int_equal(request.id_count, 2);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 2);

    /* somebody creates one of that name meanwhile: it is another feature */
    catalog_take();
    const struct mr_feature f = mr_feature_table("item", 4);
    uint32_t id;
    struct ps_catalog_request again = request_to_create(&f, 1);
    again.ids = &id;
    assert_int_equal(catalog_ask(&again), PS_CATALOG_WRITES);
    assert_int_equal(id, 3);
    catalog_take();
    assert_int_equal(catalog_ask(&request), PS_CATALOG_MADE);
    struct ps_catalog_request other = request_to_drop(names, 1);
    assert_int_equal(catalog_ask(&other), PS_CATALOG_WAITS);
    settle();
    assert_int_equal(catalog_ask(&other), PS_CATALOG_WRITES);
}

TEST(test_alter, catalog_begin)
{
    struct mr_feature features[] = {mr_feature_table("user", 8), mr_feature_table("user", 8)};
    features[1].learning_rate = 0.5f;
    struct ps_catalog_request request = {
        .kind = PS_CATALOG_ALTER, .feature_count = 2, .features = features, .may_alter = may_alter};
    assert_int_equal(catalog_ask(&request), PS_CATALOG_WRITES);
    catalog_take();
    assert_int_equal(catalog_ask(&request), PS_CATALOG_MADE);
    assert_true(request.is.learning_rate == 0.5f && catalog.features[0].feature.learning_rate == 0.5f);
    features[1].learning_rate = 2;
    assert_int_equal(catalog_ask(&request), PS_CATALOG_FAILED);
    assert_string_equal(text, "user: too fast");
    features[1] = features[0];
    features[1].dims[0] = 9;
    assert_int_equal(catalog_ask(&request), PS_CATALOG_FAILED);
    assert_int_equal(status, MR_UNSUPPORTED);
    features[0] = mr_feature_table("who", 8);
    assert_int_equal(catalog_ask(&request), PS_CATALOG_FAILED);
    assert_int_equal(status, MR_UNKNOWN_TABLE);
}

/* A cluster begins with a checkpoint's features under their numbers, once, whoever asks. */
TEST(test_begin)
{
    const struct mr_feature features[2] = {mr_feature_table("b", 4), mr_feature_table("a", 4)};
    uint32_t numbers[2] = {9, 4};
    struct ps_catalog_request request = {
        .kind = PS_CATALOG_BEGIN, .features = features, .feature_count = 2, .ids = numbers};
    catalog = (struct ps_cluster_catalog){.freeze = MR_FREEZE_ADMIT, .version = 3};
    assert_int_equal(catalog_ask(&request), PS_CATALOG_WRITES);
    catalog_take();
    assert_int_equal(catalog_ask(&request), PS_CATALOG_MADE);
    assert_int_equal(catalog.version, 4);
    assert_int_equal(catalog.freeze, MR_FREEZE_ADMIT);
    assert_int_equal(catalog.count, 2);
    assert_int_equal(catalog.last_feature, 9);
    assert_string_equal(catalog.features[0].feature.name, "a");
    assert_int_equal(catalog.features[0].id, 4);
    assert_int_equal(catalog.features[1].id, 9);
    assert_true(catalog.features[0].is_final && catalog.features[1].is_final);
    assert_false(ps_cluster_catalog_is_open(&catalog));

    static const char dropped[][MR_NAME_BYTES] = {"a"};
    struct ps_catalog_request drop = request_to_drop(dropped, 1);
    assert_int_equal(catalog_ask(&drop), PS_CATALOG_WRITES);
    catalog_take();
    assert_int_equal(catalog_ask(&request), PS_CATALOG_MADE); /* a node that starts later */
    struct ps_catalog_request create = request_to_create(&features[1], 1);
    assert_int_equal(catalog_ask(&create), PS_CATALOG_WRITES);
    catalog_take();
    assert_int_equal(catalog.last_feature, 10);
}

TEST(test_a_cluster_that_has_begun_otherwise)
{
    const struct mr_feature features[2] = {mr_feature_table("a", 4), mr_feature_table("b", 4)};
    uint32_t numbers[2] = {1, 2};
    struct ps_catalog_request create = request_to_create(&features[1], 1);
    struct ps_catalog_request request = {
        .kind = PS_CATALOG_BEGIN, .features = features, .feature_count = 2, .ids = numbers};
    memset(&catalog, 0, sizeof(catalog));
    assert_int_equal(catalog_ask(&create), PS_CATALOG_WRITES);
    catalog_take();
    assert_int_equal(catalog_ask(&request), PS_CATALOG_FAILED);
    assert_non_null(strstr(text, "begun with other features: 1 were created"));
    catalog.last_feature = 2; /* but number 1 is "b" */
    assert_int_equal(catalog_ask(&request), PS_CATALOG_FAILED);
    request.feature_count = 0; /* nothing to begin with */
    assert_int_equal(catalog_ask(&request), PS_CATALOG_MADE);
}

TEST(test_freeze, catalog_begin)
{
    struct ps_catalog_request request = {.kind = PS_CATALOG_FREEZE, .freeze = MR_FREEZE_ADMIT};
    assert_int_equal(catalog_ask(&request), PS_CATALOG_WRITES);
    catalog_take();
    assert_int_equal(catalog_ask(&request), PS_CATALOG_MADE);
    assert_int_equal(catalog.freeze, MR_FREEZE_ADMIT);
}
