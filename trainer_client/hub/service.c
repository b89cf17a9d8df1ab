#include "trainer_client/hub/service_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define START_FIELDS 8u

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

/* ---- START_SAMPLE ---- */

static void reply_started(struct hub *hub, struct mr_endpoint *ep, struct mr_call_ref ref)
{
    const uint64_t fields[START_FIELDS] = {
        hub->info.samples, hub->info.format->slots, hub->info.format->dense, hub->stream,
        hub->batches,      hub->info.keys,          hub->info.broken_lines};
    hub_reply_numbers(ep, ref, fields, START_FIELDS);
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
    return hub_plan_at_end(&hub->plan) ||
           hub_trainers_alive(&hub->trainers, hub->plan_number, now_us, hub->config.trainer_timeout_us) == 0;
}

/* `why_not` (HUB_DIFFERENCE_BYTES): what sets the request apart from the plan that is taken up. */
static bool can_join(const struct hub *hub, const struct hub_request *request, char *why_not)
{
    bool taken_up = hub->stage == HUB_OPENING || hub->stage == HUB_RUNNING;
    /* At its end it is taken up again: held-out samples are read again, and others may have changed since. */
    bool read_through = hub->stage == HUB_RUNNING && hub_plan_at_end(&hub->plan);
    return !hub_request_differs(&hub->request, request, why_not, HUB_DIFFERENCE_BYTES) && taken_up &&
           !read_through;
}

static void wait_for_start(struct hub_service *service, struct mr_endpoint *ep,
                           const struct mr_request *request)
{
    if (service->waiting_count == HUB_STARTS_WAITING_MAX || mr_reply_later(ep, request) == NULL) {
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
            mr_reply_error(ep, request->ref, MR_ALREADY_STARTED,
                           "this hub has a plan with %s; %" PRIu64 " of %" PRIu64
                           " batches of %.200s are done",
                           why_not, hub->plan.applied, hub->batches, hub->request.path);
            return;
        }
        if (hub->stage == HUB_RUNNING && hub_plan_at_end(&hub->plan))
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
    for (uint32_t i = 0; i < ids->dims[0]; i++)
        if (mr_batch_stream(id[i]) == hub->stream)
            hub_plan_done(&hub->plan, mr_batch_sequence(id[i]));
    if (hub->request.held_out && hub_plan_at_end(&hub->plan))
        hub->ended_plan = hub->plan_number;
    if (ids->dims[0] > 0) {
        hub_drop_void_feeds(hub); /* one taken back and fed again may have been among them */
        hub_nudge(hub);
    }
}

static struct hub_feed *feed_of(struct hub *hub, uint64_t sequence)
{
    for (uint32_t i = 0; i < HUB_PREFETCH_MAX; i++)
        if (hub->feeds[i].ready && hub->feeds[i].batch.sequence == sequence)
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
    uint64_t sequence;
    if (!hub_plan_hand_out(&hub->plan, request->now_us, &sequence)) {
        reply_not_ready(hub, ep, request->ref);
        return;
    }
    struct hub_feed *feed = feed_of(hub, sequence);
    assert(feed != NULL);
    const struct hub_batch *b = &feed->batch;
    const uint64_t head[4] = {(uint64_t)hub->stream << MR_BATCH_SEQUENCE_BITS | sequence, b->samples,
                              b->epoch, b->first_sample};
    struct mr_tensor tensors[3] = {
        mr_tensor_1d(MR_U64, 4, head),
        mr_tensor_2d(MR_F32, b->samples, b->dense_count, b->dense),
        mr_tensor_1d(MR_F32, b->samples, b->labels),
    };
    if (!mr_reply_begin(ep, request->ref, MR_OK, tensors, 3)) {
        hub_plan_give_back(&hub->plan, sequence);
        mr_reply_busy(ep, request->ref);
        return;
    }
    mr_reply_end(ep, request->ref);
    feed->used = feed->ready = false;
    hub_nudge(hub);
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
        if (hub_plan_at_end(&hub->plan))
            mr_reply_status(ep, request->ref, MR_END_OF_DATA);
        else
            hand_out(hub, ep, request);
    }
}

void hub_service_on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    static void (*const dispatch[MR_OP_COUNT])(struct hub_service *, struct mr_endpoint *,
                                               const struct mr_request *) = {
        [MR_OP_NODE_INFO] = hub_op_node_info, [MR_OP_ECHO] = hub_op_echo,
        [MR_OP_HEARTBEAT] = hub_op_heartbeat, [MR_OP_START_SAMPLE] = start_sample,
        [MR_OP_READ_SAMPLE] = read_sample,    [MR_OP_HUB_STATUS] = hub_op_status,
    };
    struct hub_service *service = app;
    uint32_t op = request->message->preamble.op;
    if (op >= MR_OP_COUNT || dispatch[op] == NULL) {
        mr_reply_error(ep, request->ref, MR_UNKNOWN_OP, "a hub does not serve %s", mr_op_name(op));
        return;
    }
    pthread_mutex_lock(&service->hub->lock);
    dispatch[op](service, ep, request);
    pthread_mutex_unlock(&service->hub->lock);
}
