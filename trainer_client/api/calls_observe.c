/* What a core says of itself and its calls: facts, annotations, last calls, histograms of latencies,
 * clock. */
#include <assert.h>
#include <string.h>
#include "dataplane/udp/address.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/clock_name.h"
#include "dataplane/wire/base/clock_offset.h"
#include "dataplane/wire/base/printable.h"
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/recent_calls.h"
#include "millrace_observe.h"
#include "trainer_client/api/calls.h"

/* ---- facts: what the node runs on, and its configuration ---- */

struct facts_context {
    void (*visit)(void *arg, const char *name, const char *value);
    void *arg;
};

/* "name = value"; lines that are none are left out. */
static void facts_visit_line(const struct facts_context *context, const char *line, size_t bytes)
{
    char copy[1024];
    if (bytes >= sizeof(copy))
        return;
    (void)mr_printable(copy, sizeof(copy), line, bytes);
    char *equals = strstr(copy, " = ");
    if (equals == NULL)
        return;
    *equals = '\0';
    context->visit(context->arg, copy, equals + 3);
}

static enum mr_status finish_facts(struct mr_future *f, struct mr_reply **reply)
{
    const struct mr_tensor *text = mrc_answer_tensor(f, 0, 0, MR_U8, 1);
    (void)reply;
    if (text == NULL)
        return mrc_answer_garbled(f, 0);
    const char *at = text->data, *end = at + text->bytes;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        const size_t bytes = (size_t)((line_end != NULL ? line_end : end) - at);
        facts_visit_line(f->context, at, bytes);
        at += bytes + 1;
    }
    return MR_OK;
}

enum mr_status mr_facts(struct mr_client *client, const struct mr_options *options, uint32_t core,
                        void (*visit)(void *arg, const char *name, const char *value), void *arg)
{
    const struct facts_context context = {visit, arg};
    const struct mrc_core_call call = {.name = "mr_facts",
                                       .op = MR_OP_FACTS,
                                       .finish = finish_facts,
                                       .context = &context,
                                       .context_bytes = sizeof(context)};
    if (visit == NULL)
        return mrc_bad_argument("mr_facts", "visit is NULL");
    return mrc_run_on_core(client, options, core, &call, NULL);
}

/* ---- annotations ---- */

static_assert(sizeof(struct mr_annotation) == 256, "as on the wire");

struct annotations_context {
    uint64_t *last, *missed;
    void (*visit)(void *arg, const struct mr_annotation *annotation);
    void *arg;
};

static bool is_terminated(const char *text, size_t room)
{
    return memchr(text, '\0', room) != NULL;
}

static enum mr_status finish_annotations(struct mr_future *f, struct mr_reply **reply)
{
    const struct annotations_context *context = f->context;
    uint64_t words[MR_ANNOTATIONS_WORDS];
    const struct mr_tensor *annotations = mrc_answer_tensor(f, 0, 1, MR_U8, 2);
    (void)reply;
    if (!mrc_answer_body(f, 0, 0, MR_BODY_ANNOTATIONS, words) || annotations == NULL ||
        annotations->dims[1] != sizeof(struct mr_annotation))
        return mrc_answer_garbled(f, 0);
    const struct mr_annotation *list = annotations->data;
    for (uint32_t i = 0; i < annotations->dims[0]; i++) {
        if (!is_terminated(list[i].event, sizeof(list[i].event)) ||
            !is_terminated(list[i].client, sizeof(list[i].client)) ||
            !is_terminated(list[i].text, sizeof(list[i].text)))
            return mrc_answer_garbled(f, 0);
        struct mr_annotation annotation = list[i];
        mr_make_printable(annotation.event, sizeof(annotation.event));
        mr_make_printable(annotation.client, sizeof(annotation.client));
        mr_make_printable(annotation.text, sizeof(annotation.text));
        if (context->visit != NULL)
            context->visit(context->arg, &annotation);
    }
    if (context->last != NULL)
        *context->last = words[MR_ANNOTATIONS_LAST];
    if (context->missed != NULL)
        *context->missed = words[MR_ANNOTATIONS_MISSED];
    return MR_OK;
}

static enum mr_status run_annotations(struct mr_client *client, const struct mr_options *options,
                                      uint32_t core, const char *name, const char *text, uint64_t since,
                                      const struct annotations_context *context)
{
    const struct mr_tensor tensors[] = {mr_tensor_1d(MR_U64, 1, &since),
                                        mr_tensor_1d(MR_U8, (uint32_t)strlen(text), text)};
    const struct mrc_core_call call = {.name = name,
                                       .op = MR_OP_ANNOTATE,
                                       .tensors = tensors,
                                       .tensor_count = 2,
                                       .finish = finish_annotations,
                                       .context = context,
                                       .context_bytes = sizeof(*context)};
    return mrc_run_on_core(client, options, core, &call, NULL);
}

enum mr_status mr_annotate(struct mr_client *client, const struct mr_options *options, const char *text)
{
    const struct annotations_context context = {.last = NULL};
    if (text == NULL || text[0] == '\0')
        return mrc_bad_argument("mr_annotate", "text is empty");
    if (strlen(text) >= MR_ANNOTATION_TEXT_BYTES)
        return mrc_error(MR_INVALID_ARGUMENT, "mr_annotate: a text of %zu bytes; there may be %u",
                         strlen(text), MR_ANNOTATION_TEXT_BYTES - 1);
    return run_annotations(client, options, 0, "mr_annotate", text, UINT64_MAX, &context);
}

enum mr_status mr_annotations(struct mr_client *client, const struct mr_options *options, uint32_t core,
                              uint64_t since, uint64_t *last, uint64_t *missed,
                              void (*visit)(void *arg, const struct mr_annotation *annotation), void *arg)
{
    struct annotations_context context = {.visit = visit, .arg = arg};
    context.last = last;
    context.missed = missed;
    return run_annotations(client, options, core, "mr_annotations", "", since, &context);
}

/* ---- the last calls, and those around slow ones ---- */

struct recent_context {
    struct mr_recent_calls_state *state; /* may be NULL */
    void (*visit)(void *arg, const struct mr_recent_call *call);
    void *arg;
};

static void recent_visit(const struct recent_context *context, const uint64_t *w)
{
    struct mr_address client = {.port = (uint16_t)w[MR_RECENT_CALL_PORT]};
    const uint64_t before_ns = w[MR_RECENT_CALL_WAIT_NS] + w[MR_RECENT_CALL_WORK_NS];
    const uint64_t total_ns = w[MR_RECENT_CALL_TOTAL_NS];
    const bool is_timed = w[MR_RECENT_CALL_IS_TIMED] != 0;
    struct mr_recent_call call = {.number = w[MR_RECENT_CALL_NUMBER],
                                  .arrived_ns = w[MR_RECENT_CALL_ARRIVED_NS],
                                  .total_ns = total_ns,
                                  .is_timed = is_timed,
                                  .wait_ns = is_timed ? w[MR_RECENT_CALL_WAIT_NS] : 0,
                                  .work_ns = is_timed ? w[MR_RECENT_CALL_WORK_NS] : 0,
                                  .send_ns = is_timed && total_ns > before_ns ? total_ns - before_ns : 0,
                                  .op = mr_op_name((uint32_t)w[MR_RECENT_CALL_OP]),
                                  .status = (uint32_t)w[MR_RECENT_CALL_STATUS],
                                  .table = (uint32_t)w[MR_RECENT_CALL_TABLE],
                                  .keys = (uint32_t)w[MR_RECENT_CALL_KEYS],
                                  .request_bytes = (uint32_t)w[MR_RECENT_CALL_REQUEST_BYTES],
                                  .reply_bytes = (uint32_t)w[MR_RECENT_CALL_REPLY_BYTES]};
    static_assert(sizeof(call.client) >= MR_ADDRESS_TEXT_BYTES, "an address fits");
    memcpy(client.ip, w + MR_RECENT_CALL_IP, sizeof(client.ip));
    mr_address_text(&client, call.client);
    context->visit(context->arg, &call);
}

static enum mr_status finish_recent(struct mr_future *f, struct mr_reply **reply)
{
    const struct recent_context *context = f->context;
    uint64_t w[MR_RECENT_WORDS], call[MR_RECENT_CALL_WORDS];
    const struct mr_tensor *calls = mrc_answer_body_rows(f, 0, 1, MR_BODY_RECENT_CALL);
    (void)reply;
    if (!mrc_answer_body(f, 0, 0, MR_BODY_RECENT, w) || calls == NULL)
        return mrc_answer_garbled(f, 0);
    if (context->state != NULL)
        *context->state = (struct mr_recent_calls_state){.next = w[MR_RECENT_NEXT],
                                                         .lost = w[MR_RECENT_LOST],
                                                         .left = w[MR_RECENT_LEFT],
                                                         .now_ns = w[MR_RECENT_NOW_NS],
                                                         .calls = w[MR_RECENT_CALLS],
                                                         .slow = w[MR_RECENT_SLOW]};
    for (uint32_t i = 0; i < calls->dims[0]; i++) {
        mr_body_read_row(MR_BODY_RECENT_CALL, calls, i, call);
        recent_visit(context, call);
    }
    return MR_OK;
}

enum mr_status mr_recent_calls(struct mr_client *client, const struct mr_options *options, uint32_t core,
                               uint64_t slow_ns, uint64_t position, struct mr_recent_calls_state *state,
                               void (*visit)(void *arg, const struct mr_recent_call *call), void *arg)
{
    const uint64_t ask[MR_RECENT_ASK_WORDS] = {
        [MR_RECENT_ASK_POSITION] = position, [MR_RECENT_ASK_SLOW_NS] = slow_ns};
    const struct mr_tensor tensor = mr_body_tensor(MR_BODY_RECENT_ASK, ask);
    const struct recent_context context = {state, visit, arg};
    const struct mrc_core_call call = {.name = "mr_recent_calls",
                                       .op = MR_OP_RECENT_CALLS,
                                       .tensors = &tensor,
                                       .tensor_count = 1,
                                       .finish = finish_recent,
                                       .context = &context,
                                       .context_bytes = sizeof(context)};
    if (visit == NULL)
        return mrc_bad_argument("mr_recent_calls", "visit is NULL");
    return mrc_run_on_core(client, options, core, &call, NULL);
}

/* ---- histograms of how long calls take: the server's, and the client's own ---- */

struct latency_context {
    void (*visit)(void *arg, const char *op, const char *phase, const struct mr_histogram *histogram);
    void *arg;
};

static const char *const phase_names[MR_LATENCY_PHASES] = {
    [MR_LATENCY_WAIT] = "wait", [MR_LATENCY_WORK] = "work", [MR_LATENCY_SEND] = "send"};

struct latency_answer {
    const struct mr_tensor *whose, *sums; /* rows */
    const uint32_t *begins;               /* [count + 1] */
    const uint16_t *buckets;
    const uint64_t *counts;
};

/* Unknown operations and phases, of a newer server, are left out. */
static bool latency_visit(const struct latency_context *context, const struct latency_answer *a, uint32_t i)
{
    uint32_t whose[MR_LATENCY_WORDS];
    uint64_t sums[MR_LATENCY_SUM_WORDS];
    mr_body_read_row(MR_BODY_LATENCY, a->whose, i, whose);
    mr_body_read_row(MR_BODY_LATENCY_SUM, a->sums, i, sums);
    struct mr_histogram h = {.sum_ns = sums[MR_LATENCY_SUM_NS], .max_ns = sums[MR_LATENCY_SUM_MAX_NS]};
    for (uint32_t at = a->begins[i]; at < a->begins[i + 1]; at++) {
        if (a->buckets[at] >= MR_HISTOGRAM_BUCKETS)
            return false;
        h.buckets[a->buckets[at]] = a->counts[at];
        h.count += a->counts[at];
    }
    if (whose[MR_LATENCY_OP] < MR_OP_COUNT && whose[MR_LATENCY_PHASE] < MR_LATENCY_PHASES)
        context->visit(context->arg, mr_op_name(whose[MR_LATENCY_OP]), phase_names[whose[MR_LATENCY_PHASE]],
                       &h);
    return true;
}

static bool is_in_order(const uint32_t *begins, uint64_t count, uint64_t buckets)
{
    for (uint64_t i = 0; i < count; i++)
        if (begins[i] > begins[i + 1])
            return false;
    return begins[0] == 0 && begins[count] == buckets;
}

static enum mr_status finish_latencies(struct mr_future *f, struct mr_reply **reply)
{
    const struct mr_tensor *whose = mrc_answer_body_rows(f, 0, 0, MR_BODY_LATENCY);
    const struct mr_tensor *sums = mrc_answer_body_rows(f, 0, 1, MR_BODY_LATENCY_SUM);
    const struct mr_tensor *begins = mrc_answer_tensor(f, 0, 2, MR_U32, 1);
    const struct mr_tensor *buckets = mrc_answer_tensor(f, 0, 3, MR_U16, 1);
    const struct mr_tensor *counts = mrc_answer_tensor(f, 0, 4, MR_U64, 1);
    if (whose == NULL || sums == NULL || begins == NULL || buckets == NULL || counts == NULL ||
        sums->dims[0] != whose->dims[0] || begins->dims[0] != whose->dims[0] + 1 ||
        buckets->dims[0] != counts->dims[0] || !is_in_order(begins->data, whose->dims[0], buckets->dims[0]))
        return mrc_answer_garbled(f, 0);
    const struct latency_answer a = {whose, sums, begins->data, buckets->data, counts->data};
    for (uint32_t i = 0; i < whose->dims[0]; i++)
        if (!latency_visit(f->context, &a, i))
            return mrc_answer_garbled(f, 0);
    return MR_OK;
}

enum mr_status mr_latencies(struct mr_client *client, const struct mr_options *options, uint32_t core,
                            void (*visit)(void *arg, const char *op, const char *phase,
                                          const struct mr_histogram *histogram),
                            void *arg)
{
    const struct latency_context context = {.visit = visit, .arg = arg};
    const struct mrc_core_call call = {.name = "mr_latencies",
                                       .op = MR_OP_LATENCY,
                                       .finish = finish_latencies,
                                       .context = &context,
                                       .context_bytes = sizeof(context)};
    if (visit == NULL)
        return mrc_bad_argument("mr_latencies", "visit is NULL");
    return mrc_run_on_core(client, options, core, &call, NULL);
}

enum mr_status
mr_client_latencies(struct mr_client *client,
                    void (*visit)(void *arg, const char *op, const struct mr_histogram *histogram), void *arg)
{
    if (client == NULL || visit == NULL)
        return mrc_bad_argument("mr_client_latencies", client == NULL ? "client is NULL" : "visit is NULL");
    if (mrc_is_inherited(client))
        return mrc_check_process(client, "mr_client_latencies");
    for (uint32_t op = 0; op < MR_OP_COUNT; op++) {
        struct mr_histogram copy;
        pthread_mutex_lock(&client->lock);
        const bool has = client->latencies[op] != NULL;
        if (has)
            mr_histogram_read(client->latencies[op], &copy);
        pthread_mutex_unlock(&client->lock);
        if (has)
            visit(arg, mr_op_name(op), &copy);
    }
    return MR_OK;
}

/* ---- how far the clocks of servers and hubs are ahead of this process's ---- */

struct clock_context {
    struct mr_clock_offset *out;
    uint64_t begin_ns;
};

static enum mr_status finish_clock(struct mr_future *f, struct mr_reply **reply)
{
    const struct clock_context *context = f->context;
    const uint64_t end_ns = mr_clock_ns();
    uint64_t words[MR_CLOCK_WORDS];
    if (!mrc_answer_body(f, 0, 0, MR_BODY_CLOCK, words))
        return mrc_answer_garbled(f, 0);
    *context->out = (struct mr_clock_offset){.own_clock = mr_clock_name(),
                                             .peer_clock = words[MR_CLOCK_NAME],
                                             .at_ns = (context->begin_ns + end_ns) / 2};
    if (context->out->own_clock != words[MR_CLOCK_NAME])
        mr_clock_exchange(context->begin_ns, words[MR_CLOCK_NS], end_ns, &context->out->offset_ns,
                          &context->out->error_ns);
    return MR_OK;
}

static enum mr_status clock_exchange(struct mr_client *client, const struct mr_options *options,
                                     uint32_t core, struct mr_clock_offset *out)
{
    const struct clock_context context = {.out = out, .begin_ns = mr_clock_ns()};
    const struct mrc_core_call call = {.name = "mr_clock_offset",
                                       .op = MR_OP_CLOCK,
                                       .finish = finish_clock,
                                       .context = &context,
                                       .context_bytes = sizeof(context)};
    return mrc_run_on_core(client, options, core, &call, NULL);
}

enum mr_status mr_clock_offset(struct mr_client *client, const struct mr_options *options, uint32_t core,
                               struct mr_clock_offset *out)
{
    if (out == NULL)
        return mrc_bad_argument("mr_clock_offset", "out is NULL");
    enum mr_status status = clock_exchange(client, options, core, out);
    if (options != NULL && options->future != NULL)
        return status;
    for (int i = 1; i < MR_CLOCK_EXCHANGES && status == MR_OK && out->error_ns > 0; i++) {
        struct mr_clock_offset other = *out;
        status = clock_exchange(client, options, core, &other);
        if (status == MR_OK && (other.peer_clock != out->peer_clock || other.error_ns < out->error_ns))
            *out = other;
    }
    return status;
}
