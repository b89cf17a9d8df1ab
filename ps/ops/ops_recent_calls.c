/* What this core's last calls were, and those around slow ones (dataplane/wire/format/recent_calls.h). */
#include <inttypes.h>
#include <string.h>
#include "dataplane/wire/base/tick_clock.h"
#include "dataplane/wire/call/call_records.h"
#include "dataplane/wire/format/recent_calls.h"
#include "ps/ops/ops.h"

static void call_words(const struct mr_call_record *r, uint64_t *words)
{
    const bool is_timed = r->wait_ns >= 0;
    const uint64_t all[MR_RECENT_CALL_WORDS] = {
        [MR_RECENT_CALL_NUMBER] = r->number,
        [MR_RECENT_CALL_ARRIVED_NS] = r->arrived_ns,
        [MR_RECENT_CALL_TOTAL_NS] = (uint64_t)r->total_ns,
        [MR_RECENT_CALL_IS_TIMED] = is_timed,
        [MR_RECENT_CALL_WAIT_NS] = is_timed ? (uint64_t)r->wait_ns : 0,
        [MR_RECENT_CALL_WORK_NS] = (uint64_t)r->work_ns,
        [MR_RECENT_CALL_OP] = r->op,
        [MR_RECENT_CALL_STATUS] = r->status,
        [MR_RECENT_CALL_TABLE] = r->table,
        [MR_RECENT_CALL_KEYS] = r->keys,
        [MR_RECENT_CALL_REQUEST_BYTES] = r->request_bytes,
        [MR_RECENT_CALL_REPLY_BYTES] = r->reply_bytes,
        [MR_RECENT_CALL_PORT] = r->port,
    };
    memcpy(words, all, sizeof(all));
    memcpy(words + MR_RECENT_CALL_IP, r->ip, sizeof(r->ip));
}

/* Where to begin in the ring. A position of before a restart of the server is behind its end. */
static uint64_t position_in(const struct mr_call_ring *ring, uint64_t asked, uint64_t *lost)
{
    const uint64_t oldest = mr_call_ring_oldest(ring);
    *lost = 0;
    if (asked == MR_RECENT_FROM_NOW)
        return ring->count;
    if (asked > ring->count)
        return oldest;
    if (asked < oldest)
        *lost = oldest - asked;
    return asked < oldest ? oldest : asked;
}

void ps_op_recent_calls(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    const struct ps_op op = ps_op_of(core_app, ep, request);
    struct mr_call_records *records = mr_endpoint_call_records(ep);
    uint64_t ask[MR_RECENT_ASK_WORDS];
    if (!ps_check_body(&op, 0, MR_BODY_RECENT_ASK, ask))
        return;
    const uint64_t slow_ns = ask[MR_RECENT_ASK_SLOW_NS];
    if (slow_ns > MR_RECENT_SLOW_MAX) {
        ps_refuse(&op, MR_INVALID_ARGUMENT,
                  "recent calls: %" PRIu64 " ns are too many for a slow call: at most %" PRIu64, slow_ns,
                  MR_RECENT_SLOW_MAX);
        return;
    }
    if (slow_ns > 0)
        mr_call_records_watch(records, slow_ns, op.now_us);
    const struct mr_call_ring *ring = slow_ns > 0 ? &records->selected : &records->last;
    uint64_t words[MR_RECENT_WORDS] = {[MR_RECENT_NOW_NS] = mr_tick_ns(),
                                       [MR_RECENT_CALLS] = records->last.count,
                                       [MR_RECENT_SLOW] = records->slow_count};
    const uint64_t from = position_in(ring, ask[MR_RECENT_ASK_POSITION], &words[MR_RECENT_LOST]);
    const uint64_t there = ring->count - from;
    const uint32_t count = there < MR_RECENT_CALLS_MAX ? (uint32_t)there : MR_RECENT_CALLS_MAX;
    words[MR_RECENT_NEXT] = from + count;
    words[MR_RECENT_LEFT] = there - count;
    struct mr_tensor tensors[2] = {mr_body_tensor(MR_BODY_RECENT, words),
                                   mr_body_rows(MR_BODY_RECENT_CALL, count, NULL)};
    if (!ps_reply_begin(ep, request, tensors, 2))
        return;
    for (uint32_t i = 0; i < count; i++)
        call_words(mr_call_ring_at(ring, from + i),
                   (uint64_t *)tensors[1].data + (size_t)i * MR_RECENT_CALL_WORDS);
    mr_reply_end(ep, request->ref);
}
