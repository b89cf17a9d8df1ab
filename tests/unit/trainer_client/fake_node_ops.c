/* What the fake node answers about itself, its checkpoints, and samples as a hub. */
#include "tests/unit/trainer_client/fake_node_ops.h"

#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/format/capture.h"
#include "dataplane/wire/format/recent_calls.h"

void fake_reply(struct mr_endpoint *ep, const struct mr_request *r, struct mr_tensor *tensors, uint32_t count)
{
    if (mr_reply_begin(ep, r->ref, MR_OK, tensors, count))
        mr_reply_end(ep, r->ref);
    else
        mr_reply_busy(ep, r->ref);
}

void fake_heartbeat(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    uint64_t words[MR_HEARTBEAT_WORDS] = {MR_NODE_SERVING,
                                          core->node->incarnation,
                                          1000,
                                          250000,
                                          r->message->preamble.step,
                                          core->index,
                                          2,
                                          3,
                                          40 + core->index,
                                          50,
                                          60,
                                          70};
    struct mr_tensor t = mr_body_tensor(MR_BODY_HEARTBEAT, words);
    fake_reply(ep, r, &t, 1);
}

/* A clock that is ahead of the client's by FAKE_CLOCK_AHEAD_NS. */
void fake_tell_clock(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const uint64_t words[MR_CLOCK_WORDS] = {FAKE_CLOCK_NAME, mr_clock_ns() + FAKE_CLOCK_AHEAD_NS};
    struct mr_tensor t = mr_body_tensor(MR_BODY_CLOCK, words);
    fake_reply(ep, r, &t, 1);
}

void fake_stats(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    static const char names[] = "wire.requests\ncore.index";
    uint64_t values[2] = {core->requests, core->index};
    struct mr_tensor t[2] = {mr_tensor_1d(MR_U8, sizeof(names) - 1, names), mr_tensor_1d(MR_U64, 2, values)};
    fake_reply(ep, r, t, 2);
}

void fake_memory(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    uint64_t words[MR_MEMORY_WORDS] = {100, 90, 80, 70, 60, 50, 40, 30, 20, 10, 5, 0};
    uint64_t tables[2][MR_MEMORY_TABLE_WORDS] = {{1, 2, 3, 4, 5, 6, 7, 8}, {9, 10 + core->index}};
    struct mr_tensor t[2] = {mr_body_tensor(MR_BODY_MEMORY, words),
                             mr_body_rows(MR_BODY_MEMORY_TABLE, 2, tables)};
    fake_reply(ep, r, t, 2);
}

/* Four packets of 10 to 13 bytes, of which a read gets what fits into 100 bytes; to start, what was asked. */
void fake_capture(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    static _Alignas(8) uint8_t stream[256];
    const struct mr_tensor *t = r->message->tensors;
    const uint64_t *ask = t[0].data;
    uint64_t words[MR_CAPTURE_WORDS] = {MR_CAPTURE_LINK_IP, 0, 9, 7, 5, 512};
    char text[256];
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const struct mr_capture_record record = {100 + i, 1000, 10 + i, i, i & 1};
        memcpy(stream + bytes, &record, sizeof(record));
        memset(stream + bytes + sizeof(record), (int)i, record.captured_bytes);
        bytes += mr_capture_record_bytes(record.captured_bytes);
    }
    if (ask[MR_CAPTURE_ASK_KIND] == MR_CAPTURE_END) {
        mr_reply_status(ep, r->ref, MR_OK);
        return;
    }
    const uint64_t from = ask[MR_CAPTURE_ASK_POSITION], left = bytes - from;
    struct mr_tensor out[2] = {mr_body_tensor(MR_BODY_CAPTURE, words),
                               mr_tensor_1d(MR_U8, (uint32_t)(left < 100 ? left : 100), stream + from)};
    words[MR_CAPTURE_LEFT] = left - out[1].bytes;
    if (ask[MR_CAPTURE_ASK_KIND] == MR_CAPTURE_START) {
        const int n = snprintf(
            text, sizeof(text), "machine %u\nsystem\n%.*s\n%llx %llx %llu %llu %llu %llu\n", core->index,
            (int)t[1].dims[0], (const char *)t[1].data, (unsigned long long)ask[MR_CAPTURE_ASK_OPS],
            (unsigned long long)ask[MR_CAPTURE_ASK_IP + 1], (unsigned long long)ask[MR_CAPTURE_ASK_PORT],
            (unsigned long long)ask[MR_CAPTURE_ASK_SNAP_BYTES], (unsigned long long)ask[MR_CAPTURE_ASK_KIB],
            (unsigned long long)ask[MR_CAPTURE_ASK_IDLE_MS]);
        out[1] = mr_tensor_1d(MR_U8, (uint32_t)n, text);
    }
    fake_reply(ep, r, out, 2);
}

/* Two calls, the second of which is not timed; what was asked comes back in the first one's times. */
void fake_recent_calls(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const uint64_t *ask = r->message->tensors[0].data;
    uint64_t words[MR_RECENT_WORDS] = {12, 7, 3, 5000000, 900, 2};
    uint64_t calls[2][MR_RECENT_CALL_WORDS] = {
        {41, ask[MR_RECENT_ASK_POSITION], ask[MR_RECENT_ASK_SLOW_NS], 1, 100, 20, MR_OP_LOOKUP, MR_NO_MEMORY,
         6, 4000, 32100, 64, 0, 0, 41000},
        {42, 4000000, 900000, 0, 0, 0, MR_OP_COUNT, MR_OK, 0, 0, 64, 80, 0, 0, 41000}};
    const uint8_t ipv4[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)core->index};
    memcpy(&calls[0][MR_RECENT_CALL_IP], ipv4, sizeof(ipv4));
    struct mr_tensor t[2] = {mr_body_tensor(MR_BODY_RECENT, words),
                             mr_body_rows(MR_BODY_RECENT_CALL, 2, calls)};
    fake_reply(ep, r, t, 2);
}

void fake_checkpoint(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    static const char error[] = "disk full";
    struct fake_node *node = core->node;
    uint64_t words[MR_PROGRESS_WORDS] = {
        MR_NODE_SERVING - 1, node->checkpoint_id, 5, 10, 20, 6, MR_IO_ERROR, 28};
    uint64_t details[MR_DETAIL_WORDS] = {0};
    struct mr_tensor id = mr_tensor_1d(MR_U64, 1, &node->checkpoint_id);
    struct mr_tensor t[5] = {mr_body_tensor(MR_BODY_PROGRESS, words),
                             mr_tensor_1d(MR_U8, sizeof(error) - 1, error),
                             mr_body_tensor(MR_BODY_DETAIL, details), mr_body_rows(MR_BODY_SAVE_ROW, 0, NULL),
                             mr_tensor_1d(MR_U8, 0, error)};
    if (r->message->preamble.op == MR_OP_CHECKPOINT_STATUS) {
        fake_reply(ep, r, t, 5);
        return;
    }
    if (r->message->tensors[0].bytes != 4 || memcmp(r->message->tensors[0].data, "/dir", 4) != 0) {
        mr_reply_error(ep, r->ref, MR_IO_ERROR, "no such directory");
        return;
    }
    if (r->message->preamble.op == MR_OP_SAVE && r->message->preamble.tensor_count == 3) {
        const struct mr_tensor *names = &r->message->tensors[2];
        mr_reply_error(ep, r->ref, MR_UNKNOWN_TABLE, "%u names of %u, the last is %s", names->dims[0],
                       names->dims[1],
                       (const char *)names->data + (names->dims[0] - 1) * (size_t)MR_NAME_BYTES);
        return;
    }
    if (r->message->preamble.tensor_count == 4) { /* says what it was asked for */
        const struct mr_restore_pair *pairs = r->message->tensors[2].data;
        char text[256] = "";
        size_t at = 0;
        for (uint32_t i = 0; i < r->message->tensors[2].dims[0]; i++)
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s>%s ", pairs[i].name, pairs[i].new_name);
        mr_reply_error(ep, r->ref, MR_UNKNOWN_TABLE, "%sid=%u flags=%u", text,
                       (unsigned)*(const uint64_t *)r->message->tensors[1].data,
                       *(const uint32_t *)r->message->tensors[3].data);
        return;
    }
    if (r->message->preamble.op == MR_OP_SAVE && atomic_load(&node->saves_ignored) > 0) {
        (void)mr_reply_later(ep, r);
        atomic_fetch_sub(&node->saves_ignored, 1);
    } else if (r->message->preamble.op == MR_OP_SAVE) {
        node->checkpoint_id++;
        atomic_store(&node->applied_at_save, atomic_load(&node->applied));
        fake_reply(ep, r, &id, 1);
    } else {
        uint64_t restored[MR_RESTORED_WORDS] = {node->checkpoint_id, 40, 1, 2, 1};
        struct mr_tensor answer =
            mr_tensor_1d(MR_U64, MR_RESTORED_PARAMETERS, restored); /* as before these */
        fake_reply(ep, r, &answer, 1);
    }
}

/* The hub's side: one batch, then the end. */
void fake_sample(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const struct mr_message *m = r->message;
    if (m->preamble.op == MR_OP_START_SAMPLE) {
        const uint64_t *plan = m->tensors[2].data;
        uint64_t words[MR_SAMPLE_INFO_WORDS] = {plan[0], plan[1], plan[2], plan[3],
                                                plan[4], plan[5], plan[6], m->tensors[3].bytes};
        struct mr_tensor t = mr_body_tensor(MR_BODY_SAMPLE_INFO, words);
        fake_reply(ep, r, &t, 1);
    } else if (m->tensors[0].dims[0] > 0) {
        mr_reply_status(ep, r->ref, MR_END_OF_DATA);
    } else {
        uint64_t words[MR_SAMPLE_BATCH_WORDS] = {7, 2, 1, 0};
        float dense[6] = {0, 1, 2, 3, 4, 5}, labels[2] = {0, 1};
        struct mr_tensor t[3] = {mr_body_tensor(MR_BODY_SAMPLE_BATCH, words),
                                 mr_tensor_2d(MR_F32, 2, 3, dense), mr_tensor_1d(MR_F32, 2, labels)};
        fake_reply(ep, r, t, 3);
    }
}

void fake_hub_status(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    uint64_t words[MR_HUB_WORDS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 0};
    struct mr_tensor t = mr_body_tensor(MR_BODY_HUB, words);
    fake_reply(ep, r, &t, 1);
}

void fake_freeze(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    core->node->freeze = *(const uint32_t *)r->message->tensors[0].data;
    mr_reply_status(ep, r->ref, MR_OK);
}

void fake_echo(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    struct mr_tensor tensors[MR_TENSORS_MAX];
    uint32_t count = r->message->preamble.tensor_count;
    memcpy(tensors, r->message->tensors, count * sizeof(tensors[0]));
    fake_reply(ep, r, tensors, count);
}
