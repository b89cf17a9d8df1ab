#include <stdio.h>
#include <string.h>

#include "dataplane/wire/format/capability.h"
#include "dataplane/wire/format/op.h"
#include "ps/cluster/catalog_member.h"
#include "tests/test.h"

#define DEADLINE_US 1000u

/* The coordinator's catalogue, the other node's report, and what the member asked for. */
static struct ps_cluster_catalog catalog, written;
static struct ps_cluster_features_report own, other;
static struct ps_catalog_member m;
static bool fails, must_wait, other_lacks;
static uint64_t used, in_use; /* capabilities */
static uint32_t ids[4];
static struct asked {
    uint32_t writes, applied, reports, answers;
    bool serves;
    struct ps_catalog_pending *answered;
    enum mr_status status;
    char text[PS_RULES_TEXT_BYTES];
} asked;

static void write_catalog(void *context, const struct ps_cluster_catalog *next)
{
    (void)context;
    asked.writes++;
    ps_cluster_catalog_copy(&written, next);
}

static bool catalog_member_apply(void *context, const struct ps_cluster_catalog *c,
                                 struct ps_cluster_features_report *report)
{
    (void)context;
    if (must_wait)
        return false;
    asked.applied++;
    report->catalog = fails ? c->version - 1 : c->version;
    report->failed = fails ? c->version : 0;
    report->failed_status = fails ? MR_OUT_OF_MEMORY : MR_OK;
    (void)snprintf(report->failed_text, sizeof(report->failed_text), "%s", fails ? "no room" : "");
    return true;
}

static void report_is(void *context, const struct ps_cluster_features_report *report)
{
    (void)context;
    asked.reports++;
    own = *report;
}

static void serve(void *context, uint64_t session)
{
    (void)context;
    asked.serves = session != 0;
}

/* The other node has all, or lacks something. */
static enum mr_status use(void *context, uint64_t needs, char *text)
{
    (void)context;
    used |= needs;
    (void)snprintf(text, PS_RULES_TEXT_BYTES, "node b lacks it");
    return other_lacks ? MR_VERSION_MISMATCH : MR_OK;
}

static void catalog_member_answer(void *context, struct ps_catalog_pending *pending, enum mr_status status,
                                  const char *text)
{
    (void)context;
    asked.answers++;
    asked.answered = pending;
    asked.status = status;
    (void)snprintf(asked.text, sizeof(asked.text), "%s", text);
}

static const struct ps_catalog_member_ops ops = {.write = write_catalog,
                                                 .apply = catalog_member_apply,
                                                 .report = report_is,
                                                 .serve = serve,
                                                 .use = use,
                                                 .answer = catalog_member_answer};

/* A round of the coordinator: the node's entry is written, then all is read. */
static bool view_at(uint64_t now_us, bool leads)
{
    const struct ps_cluster_report reports[] = {{.features = other}, {.features = own}};
    const struct ps_catalog_view view = {.session = 5,
                                         .catalog = &catalog,
                                         .in_use = in_use,
                                         .reports = reports,
                                         .report_count = 2,
                                         .own = 1,
                                         .leads = leads};
    return ps_catalog_member_viewed(&m, &view, now_us);
}

static bool view(void)
{
    return view_at(0, false);
}

/* The coordinator takes what the member proposed, and tells it. */
static void take_written(void)
{
    assert_int_equal(written.version, catalog.version + 1);
    ps_cluster_catalog_copy(&catalog, &written);
    ps_catalog_member_written(&m, written.version, PS_WRITTEN, 0);
}

static int catalog_member_begin(void **state)
{
    memset(&catalog, 0, sizeof(catalog));
    memset(&own, 0, sizeof(own));
    other = (struct ps_cluster_features_report){.has_catalog = true};
    asked = (struct asked){0};
    fails = must_wait = other_lacks = false;
    used = in_use = 0;
    return ps_catalog_member_init(&m, &ops, NULL) ? 0 : -1;
}

static int catalog_member_end(void **state)
{
    ps_catalog_member_destroy(&m);
    return 0;
}

static void serve_now(void)
{
    assert_true(view());
    assert_true(view());
    assert_true(asked.serves);
}

static struct ps_catalog_pending request_to_freeze(uint32_t level)
{
    return (struct ps_catalog_pending){.request = {.kind = PS_CATALOG_FREEZE, .freeze = level},
                                       .deadline_us = DEADLINE_US};
}

static struct ps_catalog_pending request_to_create(const struct mr_feature *f)
{
    return (struct ps_catalog_pending){
        .request = {.kind = PS_CATALOG_CREATE, .feature_count = 1, .features = f, .ids = ids},
        .deadline_us = DEADLINE_US};
}

/* First the map says that it is in use, then the catalogue has the feature. */
TEST(test_what_a_feature_needs_comes_into_use_first, catalog_member_begin, catalog_member_end)
{
    struct mr_feature f = mr_feature_table("t", 4);
    f.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1;
    struct ps_catalog_pending request = request_to_create(&f);
    serve_now();
    ps_catalog_member_ask(&m, &request, 0);
    assert_int_equal(used, MR_CAN(DENSE));
    assert_true(view());
    assert_int_equal(asked.writes, 0);
    assert_int_equal(asked.answers, 0);
    in_use = MR_CAN(DENSE);
    assert_true(view());
    assert_int_equal(asked.writes, 1);
    assert_int_equal(written.count, 1);
}

TEST(test_what_some_node_lacks_is_refused, catalog_member_begin, catalog_member_end)
{
    struct mr_feature f = mr_feature_table("t", 4), plain = f;
    mr_feature_set_optimizer(&f, MR_OPT_ADAM);
    f.optimizer_args[3] = 1;
    struct ps_catalog_pending request = request_to_create(&f), second = request_to_create(&plain);
    other_lacks = true;
    serve_now();
    ps_catalog_member_ask(&m, &request, 0);
    assert_int_equal(asked.answers, 1);
    assert_ptr_equal(asked.answered, &request);
    assert_int_equal(asked.status, MR_VERSION_MISMATCH);
    assert_string_equal(asked.text, "node b lacks it");
    assert_int_equal(asked.writes, 0);
    ps_catalog_member_ask(&m, &second, 0); /* and nothing else waits for it */
    assert_int_equal(asked.writes, 1);
}

TEST(test_serves_once_its_entry_says_what_the_catalogue_says, catalog_member_begin, catalog_member_end)
{
    assert_true(ps_catalog_member_is_waiting(&m));
    assert_true(view());
    assert_int_equal(asked.applied, 1);
    assert_false(asked.serves); /* nobody knew that it is to be waited for */
    catalog.version = 1;
    assert_true(view());
    assert_false(asked.serves);
    assert_int_equal(own.catalog, 1);
    assert_true(view());
    assert_true(asked.serves);
    assert_int_equal(asked.applied, 2);
    assert_false(ps_catalog_member_is_waiting(&m));

    ps_catalog_member_expired(&m);
    assert_false(asked.serves);
    assert_false(own.has_catalog);
    catalog.version = 2;
    assert_true(view());
    assert_false(asked.serves);
    assert_true(view());
    assert_true(asked.serves);
}

TEST(test_a_node_that_lacks_something_does_not_serve, catalog_member_begin, catalog_member_end)
{
    catalog.version = 1;
    fails = true;
    assert_true(view());
    assert_true(view());
    assert_false(asked.serves);
    assert_false(own.has_catalog);
    assert_int_equal(own.failed, 1);
    fails = false;
    ps_catalog_member_tick(&m, 0);
    assert_true(own.has_catalog);
    assert_true(view());
    assert_true(asked.serves);
}

/* All nodes start, and all lack what is not final: the leader takes it back all the same. */
TEST(test_who_does_not_serve_settles, catalog_member_begin, catalog_member_end)
{
    catalog.version = catalog.last_feature = catalog.count = 1;
    catalog.features[0] =
        (struct ps_cluster_feature){.id = 1, .since = 1, .feature = mr_feature_table("user", 4)};
    other.has_catalog = false;
    fails = true;
    assert_true(view_at(0, true));
    assert_true(view_at(0, true));
    assert_false(asked.serves);
    assert_int_equal(asked.writes, 1);
    assert_int_equal(written.count, 0);
}

TEST(test_an_older_catalogue_changes_nothing, catalog_member_begin, catalog_member_end)
{
    catalog.version = 3;
    serve_now();
    catalog.version = 2;
    assert_false(view());
    assert_int_equal(m.catalog->version, 3);
    assert_int_equal(asked.applied, 1);
}

TEST(test_a_change_is_answered_when_everybody_has_it, catalog_member_begin, catalog_member_end)
{
    struct ps_catalog_pending request = request_to_freeze(MR_FREEZE_ALL);
    ps_catalog_member_ask(&m, &request, 0);
    assert_int_equal(asked.writes, 0);
    serve_now();
    assert_int_equal(asked.writes, 1);
    assert_int_equal(written.freeze, MR_FREEZE_ALL);
    assert_true(view());
    assert_int_equal(asked.writes, 1); /* one at a time */
    take_written();
    assert_true(view());
    assert_int_equal(asked.answers, 0);
    assert_true(view());
    assert_int_equal(asked.answers, 0);
    assert_true(ps_catalog_member_is_waiting(&m));
    other.catalog = 1;
    assert_true(view());
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.status, MR_OK);
    assert_ptr_equal(asked.answered, &request);
    assert_false(ps_catalog_member_is_waiting(&m));
}

TEST(test_a_change_that_came_too_late_is_made_again, catalog_member_begin, catalog_member_end)
{
    struct ps_catalog_pending request = request_to_freeze(MR_FREEZE_ALL);
    serve_now();
    ps_catalog_member_ask(&m, &request, 0);
    catalog.version = 1;
    ps_catalog_member_written(&m, written.version, PS_NOT_WRITTEN, 0);
    assert_int_equal(asked.writes, 1);
    assert_true(view());
    assert_int_equal(asked.writes, 2);
    assert_int_equal(written.version, 2);
}

TEST(test_a_drop_whose_answer_was_lost, catalog_member_begin, catalog_member_end)
{
    static const char name[1][MR_NAME_BYTES] = {"user"};
    struct ps_catalog_pending request = {
        .request = {.kind = PS_CATALOG_DROP, .name_count = 1, .names = name[0], .ids = ids},
        .deadline_us = DEADLINE_US};
    catalog.version = catalog.last_feature = catalog.count = 1;
    catalog.features[0] = (struct ps_cluster_feature){
        .id = 1, .is_final = true, .since = 1, .feature = mr_feature_table("user", 4)};
    serve_now();
    ps_catalog_member_ask(&m, &request, 0);
    assert_int_equal(asked.writes, 1);
    ps_catalog_member_written(&m, written.version, PS_PERHAPS_WRITTEN, 0);
    assert_int_equal(asked.answers, 0);
    ps_cluster_catalog_copy(&catalog, &written);
    other.catalog = 2;
    assert_true(view());
    assert_true(view());
    assert_int_equal(asked.status, MR_OK);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.writes, 1);
}

TEST(test_create, catalog_member_begin, catalog_member_end)
{
    const struct mr_feature f = mr_feature_table("user", 4);
    struct ps_catalog_pending request = request_to_create(&f);
    serve_now();
    ps_catalog_member_ask(&m, &request, 0);
    take_written();
    assert_true(view());
    assert_true(view());
    assert_int_equal(asked.writes, 1);
    other.catalog = 1;
    assert_true(view()); /* whoever waits for it settles it */
    assert_int_equal(asked.writes, 2);
    assert_true(written.features[0].is_final);
    assert_int_equal(asked.answers, 0);
    take_written();
    other.catalog = 2;
    assert_true(view());
    assert_true(view()); /* both know that it is final */
    assert_int_equal(asked.status, MR_OK);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(ids[0], 1);

    struct ps_catalog_pending again = request_to_create(&f);
    catalog.version = 3; /* which the other one does not have yet, but it has all of this */
    assert_true(view());
    ps_catalog_member_ask(&m, &again, 0);
    assert_int_equal(asked.answers, 2);
}

TEST(test_a_create_that_fails_here, catalog_member_begin, catalog_member_end)
{
    const struct mr_feature f = mr_feature_table("user", 4);
    struct ps_catalog_pending request = request_to_create(&f);
    serve_now();
    const uint32_t applied = asked.applied;
    ps_catalog_member_ask(&m, &request, 0);
    take_written();
    fails = true;
    assert_true(view());
    assert_true(own.has_catalog); /* it serves, and others wait for it */
    assert_int_equal(own.catalog, 0);
    assert_int_equal(own.failed, 1);
    assert_true(view());
    ps_catalog_member_tick(&m, 0);
    assert_int_equal(asked.applied, applied + 1); /* trying again would change nothing */
    assert_int_equal(asked.writes, 2);
    assert_int_equal(written.count, 0);
    fails = false;
    take_written();
    assert_true(view());
    assert_int_equal(own.failed, 0);
    assert_int_equal(asked.status, MR_OUT_OF_MEMORY);
    assert_string_equal(asked.text, "no room; no feature was created");
}

TEST(test_the_leader_settles_what_others_began, catalog_member_begin, catalog_member_end)
{
    catalog.version = catalog.last_feature = catalog.count = 1;
    catalog.features[0] =
        (struct ps_cluster_feature){.id = 1, .since = 1, .feature = mr_feature_table("user", 4)};
    other.catalog = 1;
    serve_now();
    assert_true(view());
    assert_int_equal(asked.writes, 0);
    assert_true(view_at(0, true));
    assert_int_equal(asked.writes, 1);
    assert_true(written.features[0].is_final);
    assert_true(ps_catalog_member_is_waiting(&m));
}

TEST(test_what_must_wait_is_tried_again, catalog_member_begin, catalog_member_end)
{
    serve_now();
    must_wait = true;
    catalog.version = 1;
    assert_true(view());
    assert_int_equal(own.catalog, 0);
    must_wait = false;
    ps_catalog_member_tick(&m, 0);
    assert_int_equal(own.catalog, 1);

    const uint32_t applied = asked.applied; /* and after a restore */
    ps_catalog_member_again(&m);
    assert_int_equal(asked.applied, applied + 1);
}

TEST(test_every_call_ends, catalog_member_begin, catalog_member_end)
{
    struct ps_catalog_pending early = request_to_freeze(MR_FREEZE_ALL),
                              late = request_to_freeze(MR_FREEZE_ADMIT);
    ps_catalog_member_ask(&m, &early, 0);
    ps_catalog_member_tick(&m, DEADLINE_US - 1);
    assert_int_equal(asked.answers, 0);
    ps_catalog_member_tick(&m, DEADLINE_US);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.status, MR_DEADLINE_EXCEEDED);
    assert_non_null(strstr(asked.text, "coordinator does not answer"));
    serve_now();
    ps_catalog_member_ask(&m, &late, 0);
    take_written();
    assert_true(view());
    assert_true(view_at(DEADLINE_US, false));
    assert_int_equal(asked.answers, 2);
    assert_non_null(strstr(asked.text, "not every node"));
    ps_catalog_member_ask(&m, &early, 0);
    ps_catalog_member_refuse(&m, MR_SHUTTING_DOWN, "the node is stopping");
    assert_int_equal(asked.answers, 3);
    assert_null(m.pending);
}
