/* What a core's last calls were, and those around slow ones. */
#include <stdio.h>
#include <string.h>
#include "dataplane/udp/address.h"
#include "dataplane/wire/format/recent_calls.h"
#include "trainer_client/api/calls.h"

struct context {
    uint64_t ask[MR_RECENT_ASK_WORDS];
    struct mr_recent_calls_state *state; /* may be NULL */
    void (*visit)(void *arg, const struct mr_recent_call *call);
    void *arg;
};

static void visit_one(const struct context *context, const uint64_t *w)
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

static enum mr_status finish(struct mr_future *f, struct mr_reply **reply)
{
    const struct context *context = f->context;
    const struct mr_tensor *words = mrc_part_tensor(f, 0, 0, MR_U64, 1);
    const struct mr_tensor *calls = mrc_part_tensor(f, 0, 1, MR_U64, 2);
    (void)reply;
    if (words == NULL || words->dims[0] < MR_RECENT_WORDS || calls == NULL ||
        calls->dims[1] < MR_RECENT_CALL_WORDS)
        return mrc_part_garbled(f, 0);
    const uint64_t *w = words->data;
    if (context->state != NULL)
        *context->state = (struct mr_recent_calls_state){.next = w[MR_RECENT_NEXT],
                                                         .lost = w[MR_RECENT_LOST],
                                                         .left = w[MR_RECENT_LEFT],
                                                         .now_ns = w[MR_RECENT_NOW_NS],
                                                         .calls = w[MR_RECENT_CALLS],
                                                         .slow = w[MR_RECENT_SLOW]};
    for (uint64_t i = 0; i < calls->dims[0]; i++)
        visit_one(context, (const uint64_t *)calls->data + i * calls->dims[1]);
    return MR_OK;
}

enum mr_status mr_recent_calls(struct mr_client *client, const struct mr_options *options, uint32_t core,
                               uint64_t slow_ns, uint64_t position, struct mr_recent_calls_state *state,
                               void (*visit)(void *arg, const struct mr_recent_call *call), void *arg)
{
    struct mr_future *f;
    uint32_t map_changes = 0;
    enum mr_status status = mrc_check_core("mr_recent_calls", client, core, &map_changes);
    if (status != MR_OK)
        return status;
    if (visit == NULL)
        return mrc_bad_argument("mr_recent_calls", "visit is NULL");
    status = mrc_future_new(client, options, MR_OP_RECENT_CALLS, 0, 1, 1, sizeof(struct context), &f);
    if (status != MR_OK)
        return status;
    struct context *context = f->context;
    *context = (struct context){
        {[MR_RECENT_ASK_POSITION] = position, [MR_RECENT_ASK_SLOW_NS] = slow_ns}, state, visit, arg};
    f->parts[0].owner = (uint16_t)core;
    f->finish = finish;
    mrc_part_add(f, 0, mr_tensor_1d(MR_U64, MR_RECENT_ASK_WORDS, context->ask));
    return mrc_run_by_map(f, map_changes, options, NULL);
}
