#include "dataplane/wire/base/clock_name.h"
#include "trainer_client/hub/service.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/mr_feature.h"

#define STARTS_WAITING_MAX 64u /* START_SAMPLEs that wait for a file to be read through */

struct hub_service {
    struct hub *hub;
    struct {
        struct mr_call_ref ref;
        uint64_t plan_number;
    } waiting[STARTS_WAITING_MAX];
    uint32_t waiting_count;
};

struct hub_service *hub_service_create(struct hub *hub)
{
    struct hub_service *service = calloc(1, sizeof(*service));
    if (service != NULL)
        service->hub = hub;
    return service;
}

void hub_service_destroy(struct hub_service *service)
{
    free(service);
}

static void reply_tensors(struct mr_endpoint *ep, struct mr_call_ref ref, struct mr_tensor *tensors,
                          uint32_t count)
{
    if (mr_reply_begin(ep, ref, MR_OK, tensors, count))
        mr_reply_end(ep, ref);
    else
        mr_reply_busy(ep, ref);
}

static void reply_body(struct mr_endpoint *ep, struct mr_call_ref ref, enum mr_body body,
                       const uint64_t *words)
{
    struct mr_tensor t = mr_body_tensor(body, words);
    reply_tensors(ep, ref, &t, 1);
}

/* ---- START_SAMPLE ---- */

static void reply_started(struct hub *hub, struct mr_endpoint *ep, struct mr_call_ref ref)
{
    const uint64_t words[MR_SAMPLE_INFO_WORDS] = {[MR_SAMPLE_INFO_SAMPLES] = hub->info.samples,
                                                  [MR_SAMPLE_INFO_SLOTS] = hub->info.format->slots,
                                                  [MR_SAMPLE_INFO_DENSE] = hub->info.format->dense,
                                                  [MR_SAMPLE_INFO_STREAM] = hub->parts.all[0].stream,
                                                  [MR_SAMPLE_INFO_BATCHES] = hub->batches,
                                                  [MR_SAMPLE_INFO_KEYS] = hub->info.keys,
                                                  [MR_SAMPLE_INFO_BROKEN_LINES] = hub->info.broken_lines};
    reply_body(ep, ref, MR_BODY_SAMPLE_INFO, words);
}

static bool is_over(const struct hub *hub, uint64_t now_us)
{
    switch (hub->stage) {
    case HUB_IDLE:
    case HUB_FAILED:
        return true;
    case HUB_OPENING:
        return false;
    case HUB_RUNNING:
        break;
    }
    /* Nobody trains on it any more: a plan given up must not keep others out for ever. */
    return hub_parts_at_end(&hub->parts) ||
           hub_trainers_alive(&hub->trainers, hub->plan_number, now_us, hub->config.trainer_timeout_us) == 0;
}

/* `why_not` (HUB_DIFFERENCE_BYTES): what sets the request apart from the plan that is taken up. */
static bool can_join(const struct hub *hub, const struct hub_request *request, char *why_not)
{
    bool taken_up = hub->stage == HUB_OPENING || hub->stage == HUB_RUNNING;
    /* At its end it is taken up again: held-out samples are read again, and others may have changed since. */
    bool read_through = hub->stage == HUB_RUNNING && hub_parts_at_end(&hub->parts);
    return !hub_request_differs(&hub->request, request, why_not, HUB_DIFFERENCE_BYTES) && taken_up &&
           !read_through;
}

static void wait_for_start(struct hub_service *service, struct mr_endpoint *ep,
                           const struct mr_request *request)
{
    if (service->waiting_count == STARTS_WAITING_MAX || mr_reply_later(ep, request) == NULL) {
        mr_reply_busy(ep, request->ref);
        return;
    }
    service->waiting[service->waiting_count].ref = request->ref;
    service->waiting[service->waiting_count].plan_number = service->hub->plan_number;
    service->waiting_count++;
}

static void start_sample(struct hub_service *service, struct mr_endpoint *ep,
                         const struct mr_request *request)
{
    struct hub *hub = service->hub;
    struct hub_request wanted;
    const char *why;
    enum mr_status status = hub_request_parse(request->message, &wanted, &why);
    if (status != MR_OK) {
        mr_reply_error(ep, request->ref, status, "%s", why);
        return;
    }
    char why_not[HUB_DIFFERENCE_BYTES] = "";
    if (!can_join(hub, &wanted, why_not)) {
        if (!is_over(hub, request->now_us)) {
            mr_reply_error(
                ep, request->ref, MR_ALREADY_STARTED,
                "this hub has a plan with %s; %" PRIu64 " of %" PRIu64
                " batches of %.200s are done; another plan may start when all are, or when no trainer "
                "has asked for this one for %" PRIu64 " s",
                why_not, hub_parts_count(&hub->parts).applied, hub->batches, hub->request.path,
                hub->config.trainer_timeout_us / 1000000);
            return;
        }
        if (hub->stage == HUB_RUNNING && hub_parts_at_end(&hub->parts))
            hub->ended_plan = hub->plan_number;
        hub->request = wanted;
        hub->stage = HUB_OPENING;
        hub->plan_number++;
        hub_nudge(hub);
    }
    hub_trainers_join(&hub->trainers, request->client_uuid, hub->plan_number, request->now_us);
    if (hub->stage == HUB_RUNNING)
        reply_started(hub, ep, request->ref);
    else
        wait_for_start(service, ep, request);
}

void hub_service_poll(struct hub_service *service, struct mr_endpoint *ep)
{
    struct hub *hub = service->hub;
    uint32_t kept = 0;
    pthread_mutex_lock(&hub->lock);
    for (uint32_t i = 0; i < service->waiting_count; i++) {
        struct mr_call_ref ref = service->waiting[i].ref;
        if (service->waiting[i].plan_number != hub->plan_number)
            mr_reply_error(ep, ref, MR_ALREADY_STARTED, "another trainer's plan was taken up meanwhile");
        else if (hub->stage == HUB_OPENING)
            service->waiting[kept++] = service->waiting[i];
        else if (hub->stage == HUB_RUNNING)
            reply_started(hub, ep, ref);
        else
            mr_reply_error(ep, ref, hub->status, "%s", hub->error);
    }
    service->waiting_count = kept;
    pthread_mutex_unlock(&hub->lock);
}

/* ---- READ_SAMPLE ---- */

static void note_done(struct hub *hub, const struct mr_tensor *ids)
{
    const uint64_t *id = ids->data;
    for (uint32_t i = 0; i < ids->dims[0]; i++) {
        struct hub_part *part = hub_parts_find(&hub->parts, mr_batch_stream(id[i]));
        if (part != NULL)
            hub_plan_done(&part->plan, mr_batch_sequence(id[i]));
    }
    if (hub->request.held_out && hub_parts_at_end(&hub->parts))
        hub->ended_plan = hub->plan_number;
    if (ids->dims[0] > 0) {
        hub_drop_void_feeds(hub); /* one taken back and fed again may have been among them */
        hub_nudge(hub);
    }
}

static struct hub_feed *feed_of(struct hub *hub, const struct hub_part *part, uint64_t sequence)
{
    for (uint32_t i = 0; i < HUB_PREFETCH_MAX; i++)
        if (hub->feeds[i].ready && &hub->parts.all[hub->feeds[i].part] == part &&
            hub->feeds[i].batch.sequence == sequence)
            return &hub->feeds[i];
    return NULL;
}

static void reply_not_ready(const struct hub *hub, struct mr_endpoint *ep, struct mr_call_ref ref)
{
    if (hub->waits_for[0] != '\0')
        mr_reply_error(ep, ref, MR_NOT_READY, "%s", hub->waits_for);
    else
        mr_reply_status(ep, ref, MR_NOT_READY);
}

static void hand_out(struct hub *hub, struct mr_endpoint *ep, const struct mr_request *request)
{
    uint64_t sequence, begin_ns = mr_trace_begin(hub->trace);
    struct hub_part *part = hub_parts_hand_out(&hub->parts, request->now_us, &sequence);
    if (part == NULL) {
        reply_not_ready(hub, ep, request->ref);
        return;
    }
    struct hub_feed *feed = feed_of(hub, part, sequence);
    assert(feed != NULL);
    const struct hub_batch *b = &feed->batch;
    const uint64_t head[MR_SAMPLE_BATCH_WORDS] = {
        [MR_SAMPLE_BATCH_ID] = (uint64_t)part->stream << MR_BATCH_SEQUENCE_BITS | sequence,
        [MR_SAMPLE_BATCH_SAMPLES] = b->samples,
        [MR_SAMPLE_BATCH_EPOCH] = b->epoch,
        [MR_SAMPLE_BATCH_FIRST_SAMPLE] = b->first_sample};
    struct mr_tensor tensors[3] = {
        mr_body_tensor(MR_BODY_SAMPLE_BATCH, head),
        mr_tensor_2d(MR_F32, b->samples, b->dense_count, b->dense),
        mr_tensor_1d(MR_F32, b->samples, b->labels),
    };
    if (!mr_reply_begin(ep, request->ref, MR_OK, tensors, 3)) {
        hub_plan_give_back(&part->plan, sequence);
        mr_reply_busy(ep, request->ref);
        return;
    }
    mr_reply_end(ep, request->ref);
    feed->used = feed->ready = false;
    hub_nudge(hub);
    mr_trace_span(hub->trace, HUB_TRACK_SERVING, "hand out", begin_ns, head[MR_SAMPLE_BATCH_ID]);
}

static void read_sample(struct hub_service *service, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct hub *hub = service->hub;
    const struct mr_message *m = request->message;
    if (m->preamble.tensor_count != 1 || m->tensors[0].dtype != MR_U64 || m->tensors[0].rank != 1) {
        mr_reply_error(ep, request->ref, MR_BAD_MESSAGE, "READ_SAMPLE takes u64[n] batch ids");
        return;
    }
    uint64_t plan = hub_trainers_seen(&hub->trainers, request->client_uuid, request->now_us);
    if (plan == 0 || (plan != hub->plan_number && plan > hub->ended_plan)) {
        mr_reply_status(ep, request->ref, MR_NOT_STARTED);
    } else if (plan != hub->plan_number) {
        mr_reply_status(ep, request->ref, MR_END_OF_DATA); /* of the plan it took part in */
    } else if (hub->stage == HUB_FAILED) {
        mr_reply_error(ep, request->ref, hub->status, "%s", hub->error);
    } else if (hub->stage == HUB_OPENING) {
        reply_not_ready(hub, ep, request->ref);
    } else {
        note_done(hub, &m->tensors[0]);
        if (hub_parts_at_end(&hub->parts)) {
            mr_reply_status(ep, request->ref, MR_END_OF_DATA);
            hub_trainers_told_end(&hub->trainers, request->client_uuid);
        } else {
            hand_out(hub, ep, request);
        }
    }
}

/* ---- the hub as a node of one core ---- */

static uint32_t waiting_batches(const struct hub *hub)
{
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < HUB_PREFETCH_MAX; i++)
        waiting += hub->feeds[i].ready;
    return waiting;
}

static void hub_status(struct hub_service *service, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct hub *hub = service->hub;
    const struct hub_parts_counts p = hub_parts_count(&hub->parts);
    bool running = hub->stage == HUB_RUNNING;
    uint64_t per_epoch = running ? hub->batches / hub->request.epochs : 0;
    const uint64_t words[MR_HUB_WORDS] = {
        [MR_HUB_SAMPLES_READ] = hub->samples_read,
        [MR_HUB_HANDED_OUT] = p.handed_out,
        [MR_HUB_APPLIED] = p.applied,
        [MR_HUB_HANDED_AGAIN] = p.handed_again,
        [MR_HUB_EXPIRED] = p.expired,
        [MR_HUB_BROKEN_LINES] = hub->info.broken_lines,
        [MR_HUB_TRAINERS] = hub_trainers_alive(&hub->trainers, hub->plan_number, request->now_us,
                                               hub->config.trainer_timeout_us),
        [MR_HUB_FED] = p.fed,
        [MR_HUB_WAITING] = waiting_batches(hub),
        [MR_HUB_EPOCH] = per_epoch > 0 ? hub->parts.all[0].plan.oldest / per_epoch : 0,
        [MR_HUB_IS_AT_END] = running && hub_parts_at_end(&hub->parts),
    };
    reply_body(ep, request->ref, MR_BODY_HUB, words);
}

static void heartbeat(struct hub_service *service, struct mr_endpoint *ep, const struct mr_request *request)
{
    const struct hub *hub = service->hub;
    const uint64_t words[MR_HEARTBEAT_WORDS] = {[MR_HEARTBEAT_STATE] = MR_NODE_SERVING,
                                                [MR_HEARTBEAT_INCARNATION] = hub->incarnation,
                                                [MR_HEARTBEAT_UPTIME_US] = request->now_us - hub->started_us,
                                                [MR_HEARTBEAT_BATCHES] = waiting_batches(hub),
                                                [MR_HEARTBEAT_MEMORY_BYTES] = mr_endpoint_memory_used(ep)};
    reply_body(ep, request->ref, MR_BODY_HEARTBEAT, words);
}

static void node_info(struct hub_service *service, struct mr_endpoint *ep, const struct mr_request *request)
{
    static const uint16_t owners[MR_PARTITION_COUNT]; /* all on core 0 */
    const uint32_t words[MR_NODE_INFO_WORDS] = {
        [MR_NODE_INFO_CORES] = 1,
        [MR_NODE_INFO_MAP_VERSION] = 1,
        [MR_NODE_INFO_BASE_PORT] = atomic_load(&service->hub->port),
        [MR_NODE_INFO_MESSAGE_BYTES_MAX] = MR_MESSAGE_BYTES_MAX,
    };
    struct mr_tensor t[2] = {mr_body_tensor(MR_BODY_NODE_INFO, words),
                             mr_tensor_1d(MR_U16, MR_PARTITION_COUNT, owners)};
    reply_tensors(ep, request->ref, t, 2);
}

static void echo(struct hub_service *service, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct mr_tensor t[MR_TENSORS_MAX];
    uint32_t count = request->message->preamble.tensor_count;
    memcpy(t, request->message->tensors, count * sizeof(t[0]));
    reply_tensors(ep, request->ref, t, count);
}

static void tell_clock(struct hub_service *service, struct mr_endpoint *ep, const struct mr_request *request)
{
    (void)service;
    const uint64_t words[MR_CLOCK_WORDS] = {[MR_CLOCK_NAME] = mr_clock_name(), [MR_CLOCK_NS] = mr_clock_ns()};
    reply_body(ep, request->ref, MR_BODY_CLOCK, words);
}

/* ---- dispatch ---- */

void hub_service_on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    static void (*const dispatch[MR_OP_COUNT])(struct hub_service *, struct mr_endpoint *,
                                               const struct mr_request *) = {
        [MR_OP_NODE_INFO] = node_info,     [MR_OP_ECHO] = echo,
        [MR_OP_HEARTBEAT] = heartbeat,     [MR_OP_START_SAMPLE] = start_sample,
        [MR_OP_READ_SAMPLE] = read_sample, [MR_OP_HUB_STATUS] = hub_status,
        [MR_OP_CLOCK] = tell_clock,
    };
    struct hub_service *service = app;
    uint32_t op = request->message->preamble.op;
    if (op >= MR_OP_COUNT || dispatch[op] == NULL) {
        mr_reply_error(ep, request->ref, MR_UNKNOWN_OP,
                       "a hub does not serve %s: name the parameter server instead", mr_op_name(op));
        return;
    }
    pthread_mutex_lock(&service->hub->lock);
    dispatch[op](service, ep, request);
    pthread_mutex_unlock(&service->hub->lock);
}
