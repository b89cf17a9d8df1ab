/* The hub's state, and what it answers as a node of one core. */
#include <string.h>
#include "dataplane/wire/format/mr_feature.h"
#include "trainer_client/hub/service_internal.h"

#define STATUS_FIELDS 12u

void hub_reply_numbers(struct mr_endpoint *ep, struct mr_call_ref ref, const uint64_t *numbers,
                       uint32_t count)
{
    struct mr_tensor t = mr_tensor_1d(MR_U64, count, numbers);
    if (mr_reply_begin(ep, ref, MR_OK, &t, 1))
        mr_reply_end(ep, ref);
    else
        mr_reply_busy(ep, ref);
}

static uint32_t waiting_batches(const struct hub *hub)
{
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < HUB_PREFETCH_MAX; i++)
        waiting += hub->feeds[i].ready;
    return waiting;
}

void hub_op_status(struct hub_service *service, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct hub *hub = service->hub;
    const struct hub_plan *p = &hub->plan;
    bool running = hub->stage == HUB_RUNNING;
    uint64_t per_epoch = running ? hub->batches / hub->request.epochs : 0;
    const uint64_t fields[STATUS_FIELDS] = {
        hub->samples_read,
        p->handed_out,
        p->applied,
        p->handed_again,
        p->expired,
        hub->info.broken_lines,
        hub_trainers_alive(&hub->trainers, hub->plan_number, request->now_us, hub->config.trainer_timeout_us),
        p->fed,
        waiting_batches(hub),
        per_epoch > 0 ? p->oldest / per_epoch : 0,
        running && hub_plan_at_end(p),
    };
    hub_reply_numbers(ep, request->ref, fields, STATUS_FIELDS);
}

void hub_op_heartbeat(struct hub_service *service, struct mr_endpoint *ep, const struct mr_request *request)
{
    const struct hub *hub = service->hub;
    const uint64_t words[MR_HEARTBEAT_WORDS] = {[MR_HEARTBEAT_STATE] = MR_NODE_SERVING,
                                                [MR_HEARTBEAT_INCARNATION] = hub->incarnation,
                                                [MR_HEARTBEAT_UPTIME_US] = request->now_us - hub->started_us,
                                                [MR_HEARTBEAT_BATCHES] = waiting_batches(hub),
                                                [MR_HEARTBEAT_MEMORY_BYTES] = mr_endpoint_memory_used(ep)};
    hub_reply_numbers(ep, request->ref, words, MR_HEARTBEAT_WORDS);
}

void hub_op_node_info(struct hub_service *service, struct mr_endpoint *ep, const struct mr_request *request)
{
    static const uint16_t owners[MR_PARTITION_COUNT]; /* all on core 0 */
    const uint32_t fields[4] = {1, 1, atomic_load(&service->hub->port), MR_MESSAGE_BYTES_MAX};
    struct mr_tensor t[2] = {mr_tensor_1d(MR_U32, 4, fields),
                             mr_tensor_1d(MR_U16, MR_PARTITION_COUNT, owners)};
    if (mr_reply_begin(ep, request->ref, MR_OK, t, 2))
        mr_reply_end(ep, request->ref);
    else
        mr_reply_busy(ep, request->ref);
}

void hub_op_echo(struct hub_service *service, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct mr_tensor t[MR_TENSORS_MAX];
    uint32_t count = request->message->preamble.tensor_count;
    memcpy(t, request->message->tensors, count * sizeof(t[0]));
    if (mr_reply_begin(ep, request->ref, MR_OK, t, count))
        mr_reply_end(ep, request->ref);
    else
        mr_reply_busy(ep, request->ref);
}
