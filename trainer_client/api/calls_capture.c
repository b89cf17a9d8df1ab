/* Packets that a core receives and sends. */
#include <string.h>
#include "dataplane/udp/address.h"
#include "dataplane/wire/base/printable.h"
#include "dataplane/wire/format/capture.h"
#include "millrace_observe.h"
#include "trainer_client/api/calls.h"

#define SNAP_BYTES_DEFAULT 512u
#define RING_KIB_DEFAULT   8192u
#define IDLE_MS_DEFAULT    10000u

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value != 0 ? value : otherwise;
}

/* ---- the request ---- */

static enum mr_status add_op(const char *name, uint64_t *words)
{
    for (uint32_t op = 1; op < MR_OP_COUNT; op++) {
        if (strcmp(mr_op_name(op), name) == 0) {
            words[MR_CAPTURE_ASK_OPS + op / 64] |= UINT64_C(1) << (op % 64);
            return MR_OK;
        }
    }
    return mrc_error(MR_INVALID_ARGUMENT,
                     "mr_capture: there is no operation \"%s\"; they have the names of docs/protocol.md in "
                     "lower case, such as lookup or push_grad",
                     name);
}

/* "10.0.0.7:41000", "[fd00::7]:41000", but not "fd00::7". */
static bool names_port(const char *address)
{
    const char *colon = strrchr(address, ':');
    return colon != NULL && (strchr(address, ':') == colon || (colon > address && colon[-1] == ']'));
}

static enum mr_status add_peer(const char *peer, uint64_t *words)
{
    struct mr_address address;
    char why[256];
    if (mr_address_resolve(peer, false, &address, why, sizeof(why)) != MR_OK)
        return mrc_error(MR_INVALID_ARGUMENT, "mr_capture: peer: %s", why);
    memcpy(words + MR_CAPTURE_ASK_IP, address.ip, sizeof(address.ip));
    words[MR_CAPTURE_ASK_PORT] = names_port(peer) ? address.port : 0;
    return MR_OK;
}

static enum mr_status add_start(const struct mr_capture_request *r, uint64_t *words)
{
    enum mr_status status = MR_OK;
    if (r->who != NULL && strlen(r->who) >= MR_CAPTURE_WHO_BYTES)
        return mrc_error(MR_INVALID_ARGUMENT, "mr_capture: who has %zu bytes; it may have %u", strlen(r->who),
                         MR_CAPTURE_WHO_BYTES - 1);
    if (r->ops == NULL && r->op_count > 0)
        return mrc_bad_argument("mr_capture", "ops is NULL");
    words[MR_CAPTURE_ASK_SNAP_BYTES] = or_default(r->snap_bytes, SNAP_BYTES_DEFAULT);
    words[MR_CAPTURE_ASK_KIB] = or_default(r->ring_kib, RING_KIB_DEFAULT);
    words[MR_CAPTURE_ASK_IDLE_MS] = or_default(r->idle_ms, IDLE_MS_DEFAULT);
    for (uint32_t i = 0; i < r->op_count && status == MR_OK; i++)
        status = add_op(r->ops[i], words);
    return status == MR_OK && r->peer != NULL ? add_peer(r->peer, words) : status;
}

/* ---- the answer ---- */

struct context {
    uint64_t words[MR_CAPTURE_ASK_WORDS];
    struct mr_capture_state *state; /* may be NULL */
    void (*visit)(void *arg, const struct mr_captured *packet);
    void *arg;
};

/* The next line of the text, made printable, as much of it as there is room for. */
static void copy_line(const char **at, const char *end, char *out, size_t out_bytes)
{
    const char *line_end = memchr(*at, '\n', (size_t)(end - *at));
    const char *stop = line_end != NULL ? line_end : end;
    (void)mr_printable(out, out_bytes, *at, (size_t)(stop - *at));
    *at = line_end != NULL ? line_end + 1 : end;
}

static void take_text(const struct mr_tensor *text, struct mr_capture_state *state)
{
    const char *at = text->data, *end = at + text->bytes;
    copy_line(&at, end, state->machine, sizeof(state->machine));
    copy_line(&at, end, state->system, sizeof(state->system));
    copy_line(&at, end, state->program, sizeof(state->program));
    copy_line(&at, end, state->port, sizeof(state->port));
}

/* Visits whole records; the last one may continue in the next answer. Returns the bytes of those; UINT64_MAX:
 * they are malformed. */
static uint64_t take_records(const struct context *context, const struct mr_tensor *block)
{
    const uint8_t *bytes = block->data;
    uint64_t at = 0;
    while (block->bytes - at >= sizeof(struct mr_capture_record)) {
        struct mr_capture_record record;
        memcpy(&record, bytes + at, sizeof(record));
        if (record.captured_bytes > MR_CAPTURE_SNAP_MAX || record.captured_bytes > record.bytes)
            return UINT64_MAX;
        const uint32_t record_bytes = mr_capture_record_bytes(record.captured_bytes);
        if (record_bytes > block->bytes - at)
            break;
        const struct mr_captured packet = {.time_ns = record.time_ns,
                                           .bytes = bytes + at + sizeof(record),
                                           .captured_bytes = record.captured_bytes,
                                           .packet_bytes = record.bytes,
                                           .lost = record.lost,
                                           .is_sent = (record.flags & MR_CAPTURE_SENT) != 0};
        if (context->visit != NULL)
            context->visit(context->arg, &packet);
        at += record_bytes;
    }
    return at;
}

static enum mr_status calls_capture_finish(struct mr_future *f, struct mr_reply **reply)
{
    const struct context *context = f->context;
    const uint64_t kind = context->words[MR_CAPTURE_ASK_KIND];
    struct mr_capture_state state = {.next = 0};
    (void)reply;
    if (kind == MR_CAPTURE_END)
        return MR_OK;
    uint64_t w[MR_CAPTURE_WORDS];
    const struct mr_tensor *block = mrc_answer_tensor(f, 0, 1, MR_U8, 1);
    if (!mrc_answer_body(f, 0, 0, MR_BODY_CAPTURE, w) || block == NULL)
        return mrc_answer_garbled(f, 0);
    state.seen = w[MR_CAPTURE_SEEN];
    state.wanted = w[MR_CAPTURE_WANTED];
    state.lost = w[MR_CAPTURE_LOST];
    state.link_type = (uint32_t)w[MR_CAPTURE_LINK_TYPE];
    state.snap_bytes = (uint32_t)w[MR_CAPTURE_SNAP];
    if (kind == MR_CAPTURE_START) {
        take_text(block, &state);
    } else {
        const uint64_t taken = take_records(context, block);
        if (taken == UINT64_MAX)
            return mrc_answer_garbled(f, 0);
        state.next = context->words[MR_CAPTURE_ASK_POSITION] + taken;
        state.left_bytes = w[MR_CAPTURE_LEFT] + block->bytes - taken;
    }
    if (context->state != NULL)
        *context->state = state;
    return MR_OK;
}

/* ---- the call ---- */

static const enum mr_capture_kind kinds[] = {[MR_REQUEST_CAPTURE_START] = MR_CAPTURE_START,
                                             [MR_REQUEST_CAPTURE_READ] = MR_CAPTURE_READ,
                                             [MR_REQUEST_CAPTURE_HALT] = MR_CAPTURE_HALT,
                                             [MR_REQUEST_CAPTURE_END] = MR_CAPTURE_END};

static enum mr_status make_words(const struct mr_capture_request *request,
                                 uint64_t words[MR_CAPTURE_ASK_WORDS])
{
    const uint32_t kind = (uint32_t)request->kind;
    if (kind < MR_REQUEST_CAPTURE_START || kind > MR_REQUEST_CAPTURE_END)
        return mrc_error(MR_INVALID_ARGUMENT, "mr_capture: kind %u is none", kind);
    if (request->id == 0)
        return mrc_bad_argument("mr_capture", "id is 0; draw random bits");
    words[MR_CAPTURE_ASK_KIND] = kinds[kind];
    words[MR_CAPTURE_ASK_ID] = request->id;
    words[MR_CAPTURE_ASK_POSITION] = request->position;
    return kind == MR_REQUEST_CAPTURE_START ? add_start(request, words) : MR_OK;
}

enum mr_status mr_capture(struct mr_client *client, const struct mr_options *options, uint32_t core,
                          const struct mr_capture_request *request, struct mr_capture_state *state,
                          void (*visit)(void *arg, const struct mr_captured *packet), void *arg)
{
    struct context context = {.state = state, .visit = visit, .arg = arg};
    if (request == NULL)
        return mrc_bad_argument("mr_capture", "request is NULL");
    const enum mr_status status = make_words(request, context.words);
    if (status != MR_OK)
        return status;
    const char *who = request->who != NULL ? request->who : "";
    const struct mr_tensor tensors[] = {mr_body_tensor(MR_BODY_CAPTURE_ASK, context.words),
                                        mr_tensor_1d(MR_U8, (uint32_t)strlen(who), who)};
    const struct mrc_core_call call = {.name = "mr_capture",
                                       .op = MR_OP_CAPTURE,
                                       .tensors = tensors,
                                       .tensor_count = request->kind == MR_REQUEST_CAPTURE_START ? 2 : 1,
                                       .finish = calls_capture_finish,
                                       .context = &context,
                                       .context_bytes = sizeof(context)};
    return mrc_run_on_core(client, options, core, &call, NULL);
}
