#include <stdio.h>
#include <string.h>
#include "millrace_admin.h"
#include "trainer_client/hub/plan/request.h"
#include "trainer_client/hub/plan/stream.h"
#include "tests/test.h"

static uint64_t fields[8];
static char path[2000];
static struct mr_message message;

static struct mr_tensor text(const char *s)
{
    return mr_tensor_1d(MR_U8, (uint32_t)strlen(s), s);
}

/* A good request, for each test to spoil. */
static void prepare(void)
{
    const uint64_t good[8] = {512, 2, 1, 200000, 1, 1, 7, 0};
    memcpy(fields, good, sizeof(fields));
    snprintf(path, sizeof(path), "/data/x");
    memset(&message, 0, sizeof(message));
    message.preamble.tensor_count = 4;
    message.tensors[0] = text(path);
    message.tensors[1] = text("criteo");
    message.tensors[2] = mr_tensor_1d(MR_U64, 8, fields);
    message.tensors[3] = text("fm");
}

static enum mr_status request_parse(struct hub_request *out)
{
    const char *why = NULL;
    enum mr_status status = hub_request_parse(&message, out, &why);
    assert_true((status == MR_OK) == (why == NULL));
    return status;
}

TEST(a_good_request)
{
    struct hub_request r;
    prepare();
    assert_int_equal(request_parse(&r), MR_OK);
    assert_string_equal(r.path, "/data/x");
    assert_string_equal(r.format, "criteo");
    assert_string_equal(r.table, "fm");
    assert_int_equal(r.batch_samples, 512);
    assert_int_equal(r.epochs, 2);
    assert_int_equal(r.shuffle_seed, 1);
    assert_int_equal(r.held_out_ppm, 200000);
    assert_true(r.held_out);
    assert_true(r.strict);
    assert_int_equal(r.run, 7);
}

TEST(fields_have_ranges)
{
    static const struct {
        uint64_t value;
        uint32_t field;
        enum mr_status status;
    } cases[] = {
        {0, 0, MR_INVALID_ARGUMENT},          {65536, 0, MR_OK},           {65537, 0, MR_INVALID_ARGUMENT},
        {UINT64_MAX, 0, MR_INVALID_ARGUMENT}, {0, 1, MR_INVALID_ARGUMENT}, {1000000, 1, MR_OK},
        {1000001, 1, MR_INVALID_ARGUMENT},    {900000, 3, MR_OK},          {900001, 3, MR_INVALID_ARGUMENT},
        {2, 4, MR_INVALID_ARGUMENT},          {UINT64_MAX, 6, MR_OK}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hub_request r;
        prepare();
        fields[cases[i].field] = cases[i].value;
        assert_int_equal(request_parse(&r), cases[i].status);
    }
}

TEST(texts_fit_and_are_not_empty)
{
    for (uint32_t t = 0; t < 4; t++) {
        struct hub_request r, before;
        memset(&r, 0x5a, sizeof(r));
        before = r;
        if (t == 2)
            continue;
        prepare();
        message.tensors[t] = text("");
        assert_int_equal(request_parse(&r), MR_INVALID_ARGUMENT);
        memset(path, 'a', 1500);
        path[1500] = '\0';
        message.tensors[t] = text(path);
        assert_int_equal(request_parse(&r), MR_INVALID_ARGUMENT);
        message.tensors[t] = mr_tensor_1d(MR_U8, 3, "a\0b");
        assert_int_equal(request_parse(&r), MR_INVALID_ARGUMENT);
        message.tensors[t] = mr_tensor_1d(MR_U64, 8, fields);
        assert_int_equal(request_parse(&r), MR_INVALID_ARGUMENT);
        assert_memory_equal(&r, &before, sizeof(r));
    }
}

TEST(the_shape_is_checked)
{
    struct hub_request r;
    prepare();
    message.preamble.tensor_count = 3;
    assert_int_equal(request_parse(&r), MR_BAD_MESSAGE);
    prepare();
    message.tensors[2].dims[0] = 7;
    assert_int_equal(request_parse(&r), MR_BAD_MESSAGE);
    prepare();
    message.tensors[2].dtype = MR_U32;
    assert_int_equal(request_parse(&r), MR_BAD_MESSAGE);
}

TEST(every_field_tells_plans_apart)
{
    static const char *const numbers[] = {
        "batch_samples ",  "epochs ", "shuffle_seed ", "held-out millionths ", "part held-out, not training",
        "strict 1, not 0", "run "};
    static const char *const texts[] = {"path ", "format ", "", "table "};
    struct hub_request a, b;
    char difference[HUB_DIFFERENCE_BYTES];
    prepare();
    assert_int_equal(request_parse(&a), MR_OK);
    assert_int_equal(request_parse(&b), MR_OK);
    assert_false(hub_request_differs(&a, &b, NULL, 0));
    const struct mr_plan plan = hub_request_plan(&a, 5, 0);
    struct mr_plan other = hub_request_plan(&b, 5, 0);
    assert_true(mr_plan_same(&plan, &other));
    for (uint32_t field = 0; field < 7; field++) {
        prepare();
        fields[field] = field == 4 || field == 5 ? 0 : fields[field] + 1;
        assert_int_equal(request_parse(&b), MR_OK);
        assert_true(hub_request_differs(&a, &b, difference, sizeof(difference)));
        assert_int_equal(strncmp(difference, numbers[field], strlen(numbers[field])), 0);
        other = hub_request_plan(&b, 5, 0);
        assert_int_equal(mr_plan_same(&plan, &other),
                         field == 5); /* strictness changes nothing of what is applied */
    }
    for (uint32_t t = 0; t < 4; t++) {
        prepare();
        if (t != 2) {
            message.tensors[t] = text("other");
            assert_int_equal(request_parse(&b), MR_OK);
            assert_true(hub_request_differs(&a, &b, difference, sizeof(difference)));
            assert_int_equal(strncmp(difference, texts[t], strlen(texts[t])), 0);
            other = hub_request_plan(&b, 5, 0);
            assert_false(mr_plan_same(&plan, &other));
        }
    }
    other = hub_request_plan(&a, 5, 1);
    assert_false(mr_plan_same(&plan, &other));
    other = hub_request_plan(&a, 6, 0);
    assert_false(mr_plan_same(&plan, &other));
    assert_memory_equal(plan.request, other.request,
                        sizeof(plan.request)); /* the same plan, of other samples */
    assert_true(hub_request_stream(&a, 3) <= 0xffff);
}

/* Where a text ends counts as well. */
TEST(texts_do_not_run_together)
{
    struct hub_request a, b;
    prepare();
    message.tensors[0] = text("/a");
    message.tensors[1] = text("bc");
    assert_int_equal(request_parse(&a), MR_OK);
    message.tensors[0] = text("/ab");
    message.tensors[1] = text("c");
    assert_int_equal(request_parse(&b), MR_OK);
    const struct mr_plan x = hub_request_plan(&a, 0, 0), y = hub_request_plan(&b, 0, 0);
    assert_false(mr_plan_same(&x, &y));
}

static struct mr_stream stream(uint32_t number, uint64_t plan, uint64_t data, uint64_t applied)
{
    return (struct mr_stream){.stream = number, .plan = {plan, plan, data}, .applied = applied};
}

TEST(a_plan_finds_its_stream)
{
    const struct mr_plan plan = {{7, 7}, 1};
    struct mr_stream streams[] = {stream(65534, 3, 1, 9), stream(65535, 7, 1, 9), stream(0, 4, 1, 0)};
    uint32_t number;
    /* Its own, wherever it is. */
    assert_int_equal(hub_stream_choose(streams, 3, &plan, 65534, &number), HUB_STREAM_OWN);
    assert_int_equal(number, 65535);
    /* Else the preferred one, or the next that is free. */
    streams[1] = stream(65535, 5, 1, 9);
    assert_int_equal(hub_stream_choose(streams, 3, &plan, 40, &number), HUB_STREAM_FREE);
    assert_int_equal(number, 40);
    assert_int_equal(hub_stream_choose(streams, 3, &plan, 65534, &number), HUB_STREAM_FREE);
    assert_int_equal(number, 1);
    /* With other samples it is another plan, but for one that has applied of those. */
    streams[1] = stream(65535, 7, 2, 9);
    assert_int_equal(hub_stream_choose(streams, 3, &plan, 40, &number), HUB_STREAM_CHANGED);
    assert_int_equal(number, 65535);
    streams[1].applied = 0;
    assert_int_equal(hub_stream_choose(streams, 3, &plan, 40, &number), HUB_STREAM_FREE);
    /* Cores that disagree: nobody goes on with it. */
    streams[1] = stream(65535, 7, 1, 9);
    streams[1].differs = true;
    assert_int_equal(hub_stream_choose(streams, 3, &plan, 65535, &number), HUB_STREAM_FREE);
    assert_int_equal(number, 1);
    /* Of a version that kept no plans: only under the number that the plan had then. */
    streams[1] = stream(65535, UINT64_MAX, UINT64_MAX, 9);
    assert_int_equal(hub_stream_choose(streams, 3, &plan, 65535, &number), HUB_STREAM_ADOPTED);
    assert_int_equal(number, 65535);
    assert_int_equal(hub_stream_choose(streams, 3, &plan, 65534, &number), HUB_STREAM_FREE);
    assert_int_equal(number, 1);
}
