#include "tests/unit/trainer_client/canned_answers.h"

#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/format/capture.h"
#include "dataplane/rpc/world/world.h"
#include "dataplane/wire/format/bodies.h"
#include "dataplane/wire/format/cluster.h"
#include "dataplane/wire/format/move.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_annotation.h"
#include "dataplane/wire/format/recent_calls.h"
#include "millrace_observe.h"

void canned_reply(struct mr_endpoint *ep, const struct mr_request *r, struct mr_tensor *tensors,
                  uint32_t count)
{
    if (mr_reply_begin(ep, r->ref, MR_OK, tensors, count))
        mr_reply_end(ep, r->ref);
    else
        mr_reply_busy(ep, r->ref);
}

static void canned_heartbeat(struct mr_endpoint *ep, uint32_t core, const struct mr_request *r)
{
    uint64_t words[MR_HEARTBEAT_WORDS] = {
        MR_NODE_SERVING, 1, 1000, 250000, r->message->preamble.step, core, 2, 3, 40 + core, 50, 60, 70};
    struct mr_tensor t = mr_body_tensor(MR_BODY_HEARTBEAT, words);
    canned_reply(ep, r, &t, 1);
}

/* A clock that is ahead of the client's by CANNED_CLOCK_AHEAD_NS. */
static void canned_tell_clock(struct mr_endpoint *ep, uint32_t core, const struct mr_request *r)
{
    const uint64_t words[MR_CLOCK_WORDS] = {CANNED_CLOCK_NAME, mr_clock_ns() + CANNED_CLOCK_AHEAD_NS};
    struct mr_tensor t = mr_body_tensor(MR_BODY_CLOCK, words);
    canned_reply(ep, r, &t, 1);
}

static void canned_stats(struct mr_endpoint *ep, uint32_t core, const struct mr_request *r)
{
    static const char names[] = "wire.requests\ncore.index";
    uint64_t values[2] = {UINT64_C(9), core};
    struct mr_tensor t[2] = {mr_tensor_1d(MR_U8, sizeof(names) - 1, names), mr_tensor_1d(MR_U64, 2, values)};
    canned_reply(ep, r, t, 2);
}

static void canned_memory(struct mr_endpoint *ep, uint32_t core, const struct mr_request *r)
{
    uint64_t words[MR_MEMORY_WORDS] = {100, 90, 80, 70, 60, 50, 40, 30, 20, 10, 5, 0};
    uint64_t tables[2][MR_MEMORY_TABLE_WORDS] = {{1, 2, 3, 4, 5, 6, 7, 8}, {9, 10 + core}};
    struct mr_tensor t[2] = {mr_body_tensor(MR_BODY_MEMORY, words),
                             mr_body_rows(MR_BODY_MEMORY_TABLE, 2, tables)};
    canned_reply(ep, r, t, 2);
}

/* Four packets of 10 to 13 bytes, of which a read gets what fits into 100 bytes; to start, what was asked. */
static void canned_capture(struct mr_endpoint *ep, uint32_t core, const struct mr_request *r)
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
            text, sizeof(text), "machine %u\nsystem\n%.*s\n%llx %llx %llu %llu %llu %llu\n", core,
            (int)t[1].dims[0], (const char *)t[1].data, (unsigned long long)ask[MR_CAPTURE_ASK_OPS],
            (unsigned long long)ask[MR_CAPTURE_ASK_IP + 1], (unsigned long long)ask[MR_CAPTURE_ASK_PORT],
            (unsigned long long)ask[MR_CAPTURE_ASK_SNAP_BYTES], (unsigned long long)ask[MR_CAPTURE_ASK_KIB],
            (unsigned long long)ask[MR_CAPTURE_ASK_IDLE_MS]);
        out[1] = mr_tensor_1d(MR_U8, (uint32_t)n, text);
    }
    canned_reply(ep, r, out, 2);
}

/* Two calls, the second of which is not timed; what was asked comes back in the first one's times. */
static void canned_recent_calls(struct mr_endpoint *ep, uint32_t core, const struct mr_request *r)
{
    const uint64_t *ask = r->message->tensors[0].data;
    uint64_t words[MR_RECENT_WORDS] = {12, 7, 3, 5000000, 900, 2};
    uint64_t calls[2][MR_RECENT_CALL_WORDS] = {
        {41, ask[MR_RECENT_ASK_POSITION], ask[MR_RECENT_ASK_SLOW_NS], 1, 100, 20, MR_OP_LOOKUP, MR_NO_MEMORY,
         6, 4000, 32100, 64, 0, 0, 41000},
        {42, 4000000, 900000, 0, 0, 0, MR_OP_COUNT, MR_OK, 0, 0, 64, 80, 0, 0, 41000}};
    const uint8_t ipv4[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)core};
    memcpy(&calls[0][MR_RECENT_CALL_IP], ipv4, sizeof(ipv4));
    struct mr_tensor t[2] = {mr_body_tensor(MR_BODY_RECENT, words),
                             mr_body_rows(MR_BODY_RECENT_CALL, 2, calls)};
    canned_reply(ep, r, t, 2);
}

static void canned_checkpoint_status(struct mr_endpoint *ep, uint32_t core, const struct mr_request *r)
{
    static const char error[] = "disk full";
    uint64_t words[MR_PROGRESS_WORDS] = {MR_NODE_SERVING - 1, 1, 5, 10, 20, 6, MR_IO_ERROR, 28};
    uint64_t details[MR_DETAIL_WORDS] = {0};
    struct mr_tensor t[5] = {mr_body_tensor(MR_BODY_PROGRESS, words),
                             mr_tensor_1d(MR_U8, sizeof(error) - 1, error),
                             mr_body_tensor(MR_BODY_DETAIL, details), mr_body_rows(MR_BODY_SAVE_ROW, 0, NULL),
                             mr_tensor_1d(MR_U8, 0, error)};
    canned_reply(ep, r, t, 5);
}

/* With names: says what they are. */
static void canned_save(struct mr_endpoint *ep, uint32_t core, const struct mr_request *r)
{
    const uint64_t number = 1;
    struct mr_tensor id = mr_tensor_1d(MR_U64, 1, &number);
    const struct mr_tensor *names = &r->message->tensors[2];
    if (r->message->preamble.tensor_count == 3)
        mr_reply_error(ep, r->ref, MR_UNKNOWN_TABLE, "%u names of %u, the last is %s", names->dims[0],
                       names->dims[1],
                       (const char *)names->data + (names->dims[0] - 1) * (size_t)MR_NAME_BYTES);
    else
        canned_reply(ep, r, &id, 1);
}

/* With names: says what was asked for. Otherwise as before there were parameters. */
static void canned_restore(struct mr_endpoint *ep, uint32_t core, const struct mr_request *r)
{
    uint64_t restored[MR_RESTORED_WORDS] = {7, 40, 1, 2, 1};
    struct mr_tensor answer = mr_tensor_1d(MR_U64, MR_RESTORED_PARAMETERS, restored);
    const struct mr_restore_pair *pairs = r->message->tensors[2].data;
    char text[256] = "";
    size_t at = 0;
    if (r->message->preamble.tensor_count != 4) {
        canned_reply(ep, r, &answer, 1);
        return;
    }
    for (uint32_t i = 0; i < r->message->tensors[2].dims[0]; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s>%s ", pairs[i].name, pairs[i].new_name);
    mr_reply_error(ep, r->ref, MR_UNKNOWN_TABLE, "%sid=%u flags=%u", text,
                   (unsigned)*(const uint64_t *)r->message->tensors[1].data,
                   *(const uint32_t *)r->message->tensors[3].data);
}

/* The hub's side: one batch, then the end. */
static void canned_sample(struct mr_endpoint *ep, uint32_t core, const struct mr_request *r)
{
    const struct mr_message *m = r->message;
    if (m->preamble.op == MR_OP_START_SAMPLE) {
        const uint64_t *plan = m->tensors[2].data;
        uint64_t words[MR_SAMPLE_INFO_WORDS] = {plan[0], plan[1], plan[2], plan[3],
                                                plan[4], plan[5], plan[6], m->tensors[3].bytes};
        struct mr_tensor t = mr_body_tensor(MR_BODY_SAMPLE_INFO, words);
        canned_reply(ep, r, &t, 1);
    } else if (m->tensors[0].dims[0] > 0) {
        mr_reply_status(ep, r->ref, MR_END_OF_DATA);
    } else {
        uint64_t words[MR_SAMPLE_BATCH_WORDS] = {7, 2, 1, 0};
        float dense[6] = {0, 1, 2, 3, 4, 5}, labels[2] = {0, 1};
        struct mr_tensor t[3] = {mr_body_tensor(MR_BODY_SAMPLE_BATCH, words),
                                 mr_tensor_2d(MR_F32, 2, 3, dense), mr_tensor_1d(MR_F32, 2, labels)};
        canned_reply(ep, r, t, 3);
    }
}

static void canned_hub_status(struct mr_endpoint *ep, uint32_t core, const struct mr_request *r)
{
    uint64_t words[MR_HUB_WORDS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 0};
    struct mr_tensor t = mr_body_tensor(MR_BODY_HUB, words);
    canned_reply(ep, r, &t, 1);
}

bool canned_answer(struct mr_endpoint *ep, uint32_t core, const struct mr_request *request)
{
    static void (*const ops[MR_OP_COUNT])(struct mr_endpoint *, uint32_t, const struct mr_request *) = {
        [MR_OP_SAVE] = canned_save,
        [MR_OP_RESTORE] = canned_restore,
        [MR_OP_CHECKPOINT_STATUS] = canned_checkpoint_status,
        [MR_OP_HEARTBEAT] = canned_heartbeat,
        [MR_OP_STATS] = canned_stats,
        [MR_OP_MEMORY] = canned_memory,
        [MR_OP_CAPTURE] = canned_capture,
        [MR_OP_START_SAMPLE] = canned_sample,
        [MR_OP_READ_SAMPLE] = canned_sample,
        [MR_OP_HUB_STATUS] = canned_hub_status,
        [MR_OP_RECENT_CALLS] = canned_recent_calls,
        [MR_OP_CLOCK] = canned_tell_clock,
    };
    const uint8_t op = request->message->preamble.op;
    if (op >= MR_OP_COUNT || ops[op] == NULL)
        return false;
    ops[op](ep, core, request);
    return true;
}

/* ---- a server of ill will ---- */

static void hostile_cluster(struct mr_endpoint *ep, const struct mr_request *r)
{
    static struct mr_cluster_node node = {.name = CANNED_HOSTILE, .address = CANNED_HOSTILE, .core_count = 1};
    static uint16_t cores[MR_PARTITION_COUNT];
    static uint8_t owner[MR_PARTITION_COUNT];
    uint32_t head[MR_NODE_INFO_WORDS] = {1, 1, 0, MR_MESSAGE_BYTES_MAX};
    uint64_t words[MR_CLUSTER_WORDS] = {[MR_CLUSTER_EPOCH] = 1, [MR_CLUSTER_NODES] = 1};
    struct mr_tensor t[2 + MR_CLUSTER_TENSORS] = {
        mr_body_tensor(MR_BODY_NODE_INFO, head), mr_tensor_1d(MR_U16, MR_PARTITION_COUNT, cores),
        mr_body_tensor(MR_BODY_CLUSTER, words), mr_tensor_2d(MR_U8, 1, sizeof(node), &node),
        mr_tensor_1d(MR_U8, MR_PARTITION_COUNT, owner)};
    memcpy(node.version, CANNED_HOSTILE, sizeof(CANNED_HOSTILE));
    canned_reply(ep, r, t, 2 + MR_CLUSTER_TENSORS);
}

static void hostile_list(struct mr_endpoint *ep, const struct mr_request *r)
{
    uint64_t sizes[MR_LIST_WORDS] = {0};
    uint32_t id = 1, history[MR_LIST_HISTORY_WORDS + 1] = {0};
    struct mr_feature feature = mr_feature_table(CANNED_HOSTILE, 2);
    struct mr_tensor t[5] = {mr_tensor_2d(MR_U8, 1, sizeof(feature), &feature), mr_tensor_1d(MR_U32, 1, &id),
                             mr_body_rows(MR_BODY_LIST, 1, sizes),
                             mr_tensor_1d(MR_U32, MR_LIST_HISTORY_WORDS + 1, history),
                             mr_body_rows(MR_BODY_LIST_START, 0, NULL)};
    canned_reply(ep, r, t, 5);
}

static void hostile_moves(struct mr_endpoint *ep, const struct mr_request *r)
{
    static char names[2][MR_CLUSTER_NAME_BYTES] = {CANNED_HOSTILE, CANNED_HOSTILE};
    uint64_t words[MR_MOVES_WORDS] = {0};
    uint64_t move[MR_MOVES_ROW_WORDS] = {
        [MR_MOVES_ROW_ID] = 1, [MR_MOVES_ROW_TO] = 1, [MR_MOVES_ROW_COUNT] = 1};
    struct mr_tensor t[3] = {mr_body_tensor(MR_BODY_MOVES, words), mr_body_rows(MR_BODY_MOVES_ROW, 1, move),
                             mr_tensor_2d(MR_U8, 2, MR_CLUSTER_NAME_BYTES, names)};
    canned_reply(ep, r, t, 3);
}

bool hostile_answer(struct mr_endpoint *ep, uint32_t core, const struct mr_request *r)
{
    static const char text[] = CANNED_HOSTILE, line[] = CANNED_HOSTILE " = " CANNED_HOSTILE "\n";
    static struct mr_member_wire member = {.name = CANNED_HOSTILE};
    static struct mr_annotation annotation = {
        .event = CANNED_HOSTILE, .client = CANNED_HOSTILE, .text = CANNED_HOSTILE};
    uint64_t words[MR_WORLD_WORDS] = {0}, save[12] = {1}, failed[MR_HEARTBEAT_WORDS] = {MR_NODE_FAILED};
    struct mr_tensor texts = mr_tensor_1d(MR_U8, sizeof(text) - 1, text);
    struct mr_tensor lines = mr_tensor_1d(MR_U8, sizeof(line) - 1, line);
    switch (r->message->preamble.op) {
    case MR_OP_FACTS:
        canned_reply(ep, r, &lines, 1);
        break;
    case MR_OP_RPC_STATUS:
        canned_reply(ep, r,
                     (struct mr_tensor[3]){mr_body_tensor(MR_BODY_WORLD, words),
                                           mr_tensor_2d(MR_U8, 1, sizeof(member), &member), lines},
                     3);
        break;
    case MR_OP_ANNOTATE:
        canned_reply(ep, r,
                     (struct mr_tensor[2]){mr_body_tensor(MR_BODY_ANNOTATIONS, words),
                                           mr_tensor_2d(MR_U8, 1, sizeof(annotation), &annotation)},
                     2);
        break;
    case MR_OP_HEARTBEAT:
        canned_reply(ep, r, (struct mr_tensor[2]){mr_body_tensor(MR_BODY_HEARTBEAT, failed), texts}, 2);
        break;
    case MR_OP_CAPTURE:
        canned_reply(ep, r, (struct mr_tensor[2]){mr_body_tensor(MR_BODY_CAPTURE, words), texts}, 2);
        break;
    case MR_OP_MEMORY: /* of a form that no version has */
        canned_reply(ep, r, &texts, 1);
        break;
    case MR_OP_STATS:
        canned_reply(ep, r, (struct mr_tensor[2]){texts, mr_tensor_1d(MR_U64, 1, words)}, 2);
        break;
    case MR_OP_CHECKPOINT_STATUS:
        canned_reply(ep, r,
                     (struct mr_tensor[5]){mr_body_tensor(MR_BODY_PROGRESS, words), texts,
                                           mr_body_tensor(MR_BODY_DETAIL, words),
                                           mr_tensor_2d(MR_U64, 1, 12, save), texts},
                     5);
        break;
    case MR_OP_NODE_INFO:
        hostile_cluster(ep, r);
        break;
    case MR_OP_LIST:
        hostile_list(ep, r);
        break;
    case MR_OP_MOVES:
        hostile_moves(ep, r);
        break;
    default:
        mr_reply_error(ep, r->ref, MR_INVALID_ARGUMENT, CANNED_HOSTILE);
    }
    return true;
}
