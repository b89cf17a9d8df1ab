#include "dataplane/rpc/world/long_message.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "dataplane/rpc/base/rpc.h"

#define RETRY_US 1000u  /* without memory for a call */
#define LOOK_US  20000u /* to see whether a message that waits for memory is still wanted */
/* {id, offset, bytes}. 0 bytes: the receiver is done with it; with offset 1 it has not looked at it. */
#define MIB_SHIFT 20

/* ---- memory ---- */

bool mr_long_is(const struct mr_rpc *agent, uint64_t bytes)
{
    return bytes > agent->config.long_from_bytes;
}

bool mr_long_reserve(struct mr_rpc *agent, uint64_t bytes)
{
    uint64_t taken = atomic_load(&agent->longs.bytes);
    do {
        if (bytes > agent->config.long_memory_bytes || taken > agent->config.long_memory_bytes - bytes)
            return false;
    } while (!atomic_compare_exchange_weak(&agent->longs.bytes, &taken, taken + bytes));
    return true;
}

void mr_long_unreserve(struct mr_rpc *agent, uint64_t bytes)
{
    atomic_fetch_sub(&agent->longs.bytes, bytes);
}

/* ---- at the sender ---- */

static uint8_t *make_room(struct mr_tensor *tensors, uint32_t tensor_count)
{
    uint64_t bytes = MR_TENSOR_ALIGN;
    for (uint32_t i = 0; i < tensor_count; i++)
        if (tensors[i].data == NULL)
            bytes += (tensors[i].bytes + MR_TENSOR_ALIGN - 1) / MR_TENSOR_ALIGN * MR_TENSOR_ALIGN;
    uint8_t *room = aligned_alloc(MR_TENSOR_ALIGN, bytes), *at = room;

    for (uint32_t i = 0; room != NULL && i < tensor_count; i++) {
        if (tensors[i].data != NULL)
            continue;
        tensors[i].data = at;
        at += (tensors[i].bytes + MR_TENSOR_ALIGN - 1) / MR_TENSOR_ALIGN * MR_TENSOR_ALIGN;
    }
    return room;
}

struct mr_long_out *mr_long_out_new(struct mr_rpc *agent, uint32_t to, uint8_t op, struct mr_tensor *tensors,
                                    uint32_t tensor_count, uint64_t words[MR_LONG_NOTE_WORDS])
{
    struct mr_long_out *out = malloc(sizeof(*out));
    if (out == NULL)
        return NULL;
    *out = (struct mr_long_out){.to = to,
                                .id = ++agent->longs.last_id,
                                .bytes = mr_message_long_bytes(tensors, tensor_count),
                                .preamble = {.op = op, .step = agent->config.rank},
                                .room = make_room(tensors, tensor_count),
                                .tensor_count = tensor_count};
    if (out->room == NULL) {
        free(out);
        return NULL;
    }
    memcpy(out->tensors, tensors, tensor_count * sizeof(*tensors));
    mr_list_append(&agent->longs.out, &out->link);
    words[MR_LONG_NOTE_ID] = out->id;
    words[MR_LONG_NOTE_BYTES] = out->bytes;
    return out;
}

void mr_long_out_end(struct mr_rpc *agent, struct mr_long_out *out, bool unread)
{
    if (out == NULL)
        return;
    mr_list_remove(&out->link);
    if (unread && out->unread != NULL)
        out->unread(agent, out->of);
    if (out->gone != NULL)
        out->gone(agent, out->of);
    free(out->room);
    free(out);
}

static struct mr_long_out *long_message_find(struct mr_rpc *agent, uint64_t id, uint32_t to)
{
    for (struct mr_link *link = agent->longs.out.next; link != &agent->longs.out; link = link->next) {
        struct mr_long_out *out = MR_CONTAINER(link, struct mr_long_out, link);
        if (out->id == id && out->to == to)
            return out;
    }
    return NULL;
}

void mr_long_serve_part(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    uint64_t words[MR_PART_WORDS];
    if (request->message->preamble.tensor_count != 1 ||
        !mr_body_read(MR_BODY_PART, &request->message->tensors[0], words)) {
        mr_reply_status(ep, request->ref, MR_BAD_MESSAGE);
        return;
    }
    const uint64_t offset = words[MR_PART_OFFSET], bytes = words[MR_PART_BYTES];
    struct mr_long_out *out = long_message_find(agent, words[MR_PART_ID], from->rank);

    if (bytes == 0) {
        mr_reply_status(ep, request->ref, MR_OK);
        mr_long_out_end(agent, out, offset != 0);
        return;
    }
    if (out == NULL || (out->call != NULL && out->call->over != NULL && *out->call->over)) {
        mr_reply_status(ep, request->ref, MR_CANCELLED);
        return;
    }
    if (bytes > MR_LONG_PART_BYTES || offset > out->bytes || bytes > out->bytes - offset) {
        mr_reply_status(ep, request->ref, MR_BAD_MESSAGE);
        return;
    }
    struct mr_tensor part = mr_tensor_1d(MR_U8, (uint32_t)bytes, NULL);

    if (!mr_reply_begin(ep, request->ref, MR_OK, &part, 1)) {
        mr_reply_busy(ep, request->ref);
        return;
    }
    mr_message_read_part(&out->preamble, out->tensors, out->tensor_count, offset, (uint32_t)bytes, part.data);
    mr_reply_end(ep, request->ref);
}

/* ---- at the receiver ---- */

bool mr_long_is_note(const struct mr_message *message)
{
    const struct mr_tensor *first = &message->tensors[0];
    return message->preamble.tensor_count == 1 && first->dtype == MR_U64 &&
           first->bytes == MR_LONG_NOTE_WORDS * sizeof(uint64_t);
}

static void memory_free(struct mr_long_in *in)
{
    if (in->memory == NULL)
        return;
    (void)munmap(in->memory, in->bytes);
    in->memory = NULL;
    mr_long_unreserve(in->agent, in->bytes);
    in->agent->longs.look = true;
}

void mr_long_release(struct mr_long_in *in)
{
    if (in == NULL)
        return;
    memory_free(in);
    if (in->note != NULL)
        in->agent->longs.serving--;
    free(in);
}

static void give_up(struct mr_long_in *in, enum mr_status status, const char *why)
{
    if (in->status != MR_OK)
        return;
    in->status = status;
    snprintf(in->why, sizeof(in->why), "%s", why);
}

/* Takes memory for the message. False: it waits for memory, or was given up. */
static bool memory_take(struct mr_long_in *in)
{
    struct mr_rpc *agent = in->agent;
    const struct mr_agent_config *config = &agent->config;
    char why[sizeof(in->why)];
    if (in->bytes > config->long_bytes_max) {
        snprintf(why, sizeof(why),
                 "a message of %" PRIu64
                 " MiB came, and \"%s\" takes at most %zu MiB: see message_bytes, or a node's " MR_LONG_KEY,
                 (in->bytes >> MIB_SHIFT) + 1, agent->name, config->long_bytes_max >> MIB_SHIFT);
        give_up(in, MR_TOO_LARGE, why);
        return false;
    }
    if (!mr_long_reserve(agent, in->bytes)) {
        if (agent->longs.serving > 0)
            return false;
        snprintf(
            why, sizeof(why),
            "a message of %llu MiB came, and %llu MiB of the %zu MiB for long ones are in use on \"%s\": see "
            "long_memory_bytes, or a node's " MR_LONG_MEMORY_KEY,
            (unsigned long long)(in->bytes >> MIB_SHIFT),
            (unsigned long long)(atomic_load(&agent->longs.bytes) >> MIB_SHIFT),
            config->long_memory_bytes >> MIB_SHIFT, agent->name);
        give_up(in, MR_NO_MEMORY, why);
        return false;
    }
    void *memory =
        mmap(NULL, in->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED) {
        mr_long_unreserve(agent, in->bytes);
        give_up(in, MR_NO_MEMORY, "the system has no memory for a long message");
        return false;
    }
    in->memory = memory;
    return true;
}

static void go_on(struct mr_long_in *in);

/* ---- the end ---- */

/* Makes the answer that would report this error. */
static void make_error(struct mr_long_in *in)
{
    in->message.preamble = in->preamble;
    in->message.preamble.status = (uint16_t)in->status;
    in->message.preamble.tensor_count = in->why[0] != 0;
    in->message.tensors[0] = mr_tensor_1d(MR_U8, (uint32_t)strlen(in->why), in->why);
}

static void end_reply(struct mr_long_in *in)
{
    struct mr_rpc *agent = in->agent;
    struct mr_agent_call *call = in->call;
    agent->longs.serving--;
    if (in->status != MR_OK)
        make_error(in);
    if (!call->ended(agent, call, in->status, &in->message))
        mr_long_release(in);
}

static void answer_error(struct mr_long_in *in)
{
    struct mr_endpoint *ep = in->agent->config.endpoint;
    if (in->why[0] == 0)
        mr_reply_status(ep, in->note->ref, in->status);
    else
        mr_reply_error(ep, in->note->ref, in->status, "%s", in->why);
    mr_long_release(in);
}

static void hand_on(struct mr_long_in *in)
{
    struct mr_rpc *agent = in->agent;
    struct mr_long_in *before = agent->longs.dispatched; /* set if a death in its handler led here */
    enum mr_long_taken taken_before = agent->longs.taken;
    in->request = *in->note;
    in->request.message = &in->message;
    agent->longs.dispatched = in;
    agent->longs.taken = MR_LONG_ANSWERED;
    agent->served[in->request.message->preamble.op](agent, in->from, &in->request);
    enum mr_long_taken taken = agent->longs.taken;

    agent->longs.dispatched = before;
    agent->longs.taken = taken_before;
    if (taken == MR_LONG_BUSY) {
        in->state = MR_LONG_IS_HERE;
        mr_list_append(&agent->longs.in, &in->link);
        agent->longs.look = true;
    } else if (taken == MR_LONG_ANSWERED) {
        mr_long_release(in);
    }
}

static void look_whether_it_is_wanted(struct mr_long_in *in)
{
    if (in->agent->closing)
        give_up(in, MR_SHUTTING_DOWN, "");
    else if (atomic_load(&in->from->dead))
        give_up(in, MR_WORKER_DIED, "");
}

static void long_message_end(struct mr_long_in *in)
{
    mr_list_remove(&in->link);
    in->agent->counters.long_messages += in->status == MR_OK && in->state != MR_LONG_IS_HERE;
    in->state = MR_LONG_IS_OVER;
    look_whether_it_is_wanted(in);
    if (in->note == NULL)
        end_reply(in);
    else if (in->status != MR_OK)
        answer_error(in);
    else
        hand_on(in);
}

bool mr_long_is_whole(const struct mr_rpc *agent, const struct mr_request *request)
{
    return agent->longs.dispatched != NULL && request == &agent->longs.dispatched->request;
}

const struct mr_request *mr_long_later(struct mr_rpc *agent, const struct mr_request *request,
                                       struct mr_long_in **in)
{
    *in = NULL;
    if (!mr_long_is_whole(agent, request))
        return mr_reply_later(agent->config.endpoint, request);
    *in = agent->longs.dispatched;
    agent->longs.taken = MR_LONG_CLAIMED;
    return request;
}

void mr_long_busy(struct mr_rpc *agent, const struct mr_request *request)
{
    if (mr_long_is_whole(agent, request))
        agent->longs.taken = MR_LONG_BUSY;
    else
        mr_reply_busy(agent->config.endpoint, request->ref);
}

/* ---- notifying the sender that we are done with it ---- */

/* An error says that the sender is gone. */
static bool notified(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                     const struct mr_message *reply)
{
    long_message_end(MR_CONTAINER(call, struct mr_long_in, done));
    return false;
}

/* Reports the end of a message of which nothing is in flight. */
static void notify(struct mr_long_in *in)
{
    struct mr_rpc *agent = in->agent;
    if (in->status == MR_OK) {
        if (!mr_message_parse_long(in->memory, in->bytes, &in->message))
            give_up(in, MR_BAD_MESSAGE, "a long message is malformed");
        in->preamble.tensor_count = in->message.preamble.tensor_count;
        in->message.preamble = in->preamble;
    }
    if (in->status != MR_OK)
        memory_free(in);
    uint64_t words[MR_PART_WORDS] = {[MR_PART_ID] = in->id, [MR_PART_OFFSET] = in->status != MR_OK};
    struct mr_tensor tensor = mr_body_tensor(MR_BODY_PART, words);

    in->state = MR_LONG_TELLS;
    in->done = (struct mr_agent_call){.to = in->from->rank,
                                      .op = MR_OP_RPC_PART,
                                      .parts = true,
                                      .deadline_us = UINT64_MAX,
                                      .ended = notified};
    enum mr_status status = mr_agent_begin(agent, &in->done, &tensor, 1);

    if (status == MR_NO_MEMORY) {
        in->state = MR_LONG_COMES; /* complete, and this is tried again */
        agent->longs.look = true;
    } else if (status != MR_OK) {
        long_message_end(in); /* the sender is dead, or this agent is being closed */
    } else {
        mr_agent_send(agent, &in->done);
    }
}

/* ---- parts ---- */

static bool part_came(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                      const struct mr_message *reply)
{
    struct mr_long_part *part = MR_CONTAINER(call, struct mr_long_part, call);
    struct mr_long_in *in = part->in;
    part->asked = false;
    if (status != MR_OK) {
        give_up(in, status, "");
    } else if (reply->preamble.tensor_count != 1 || reply->tensors[0].bytes != part->bytes) {
        give_up(in, MR_BAD_MESSAGE, "a part of a long message is malformed");
    } else if (in->status == MR_OK) {
        memcpy(in->memory + part->offset, reply->tensors[0].data, part->bytes);
        in->left -= part->bytes;
    }
    go_on(in);
    return false;
}

/* Requests a part. MR_NO_MEMORY: try again later. */
static enum mr_status long_message_ask(struct mr_long_in *in, struct mr_long_part *part)
{
    uint64_t left = in->bytes - in->asked_up_to;
    part->in = in;
    part->offset = in->asked_up_to;
    part->bytes = left < MR_LONG_PART_BYTES ? (uint32_t)left : MR_LONG_PART_BYTES;
    uint64_t words[MR_PART_WORDS] = {
        [MR_PART_ID] = in->id, [MR_PART_OFFSET] = part->offset, [MR_PART_BYTES] = part->bytes};
    struct mr_tensor tensor = mr_body_tensor(MR_BODY_PART, words);

    part->call = (struct mr_agent_call){.to = in->from->rank,
                                        .op = MR_OP_RPC_PART,
                                        .parts = true,
                                        .deadline_us = UINT64_MAX,
                                        .ended = part_came};
    enum mr_status status = mr_agent_begin(in->agent, &part->call, &tensor, 1);

    if (status != MR_OK)
        return status;
    part->asked = true;
    in->asked_up_to += part->bytes;
    mr_agent_send(in->agent, &part->call);
    return MR_OK;
}

static bool any_asked(const struct mr_long_in *in)
{
    for (uint32_t i = 0; i < MR_LONG_PARTS_AHEAD; i++)
        if (in->parts[i].asked)
            return true;
    return false;
}

static void ask_all(struct mr_long_in *in)
{
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < MR_LONG_PARTS_AHEAD && in->asked_up_to < in->bytes && status == MR_OK; i++)
        if (!in->parts[i].asked)
            status = long_message_ask(in, &in->parts[i]);
    if (status == MR_NO_MEMORY)
        in->agent->longs.look = true;
    else if (status != MR_OK)
        give_up(in, status, "");
}

static void go_on(struct mr_long_in *in)
{
    if (in->state == MR_LONG_IS_HERE) {
        long_message_end(in); /* this may free it */
        return;
    }
    if (in->state != MR_LONG_WAITS && in->state != MR_LONG_COMES)
        return;
    if (in->call != NULL && in->call->over != NULL && *in->call->over)
        give_up(in, MR_CANCELLED, "");
    look_whether_it_is_wanted(in);
    if (in->state == MR_LONG_WAITS) {
        if (in->status == MR_OK && !memory_take(in) && in->status == MR_OK)
            return;
        in->state = MR_LONG_COMES;
        in->agent->longs.serving++; /* until its end, even if it was given up */
    }
    if (in->status == MR_OK)
        ask_all(in);
    if (!any_asked(in) && (in->left == 0 || in->status != MR_OK))
        notify(in);
}

/* ---- begin ---- */

static struct mr_long_in *long_message_begin(struct mr_rpc *agent, struct mr_member *from,
                                             const struct mr_message *note)
{
    struct mr_long_in *in = calloc(1, sizeof(*in));
    uint64_t words[MR_LONG_NOTE_WORDS];
    if (in == NULL)
        return NULL;
    memcpy(words, note->tensors[0].data, sizeof(words));
    in->agent = agent;
    in->from = from;
    in->id = words[MR_LONG_NOTE_ID];
    in->bytes = in->left = words[MR_LONG_NOTE_BYTES];
    in->preamble = note->preamble;
    mr_list_append(&agent->longs.in, &in->link);
    return in;
}

void mr_long_receive_request(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    struct mr_long_in *in = long_message_begin(agent, from, request->message);
    if (in != NULL)
        in->note = mr_reply_later(agent->config.endpoint, request);
    if (in == NULL || in->note == NULL) {
        if (in != NULL)
            mr_list_remove(&in->link);
        free(in);
        mr_reply_busy(agent->config.endpoint, request->ref);
        return;
    }
    go_on(in);
}

bool mr_long_receive_reply(struct mr_rpc *agent, struct mr_agent_call *call, const struct mr_message *reply)
{
    struct mr_long_in *in = long_message_begin(agent, call->member, reply);
    if (in == NULL)
        return false;
    in->call = call;
    call->in = in;
    go_on(in);
    return true;
}

/* ---- all of them ---- */

void mr_longs_init(struct mr_rpc *agent)
{
    struct mr_agent_config *config = &agent->config;
    mr_list_init(&agent->longs.out);
    mr_list_init(&agent->longs.in);
    if (config->long_from_bytes == 0)
        config->long_from_bytes = MR_LONG_FROM_BYTES;
    if (config->long_bytes_max == 0)
        config->long_bytes_max = MR_LONG_MESSAGE_MAX;
    if (config->long_memory_bytes == 0)
        config->long_memory_bytes = MR_LONG_MEMORY_TIMES * config->long_bytes_max;
}

/* Continues all messages. That may end others, before or after them in the list. */
static void go_on_all(struct mr_rpc *agent)
{
    struct mr_link rest;
    mr_list_init(&rest);
    mr_list_splice(&rest, &agent->longs.in);
    while (!mr_list_empty(&rest)) {
        struct mr_long_in *in = MR_CONTAINER(rest.next, struct mr_long_in, link);
        mr_list_remove(&in->link);
        mr_list_append(&agent->longs.in, &in->link);
        if (!any_asked(in))
            go_on(in);
    }
}

/* Requests end with their calls. */
static void end_answers(struct mr_rpc *agent, uint32_t to)
{
    struct mr_link rest;
    mr_list_init(&rest);
    mr_list_splice(&rest, &agent->longs.out);
    while (!mr_list_empty(&rest)) {
        struct mr_long_out *out = MR_CONTAINER(rest.next, struct mr_long_out, link);
        mr_list_remove(&out->link);
        mr_list_append(&agent->longs.out, &out->link);
        if (out->call == NULL && (to == MR_RPC_NO_RANK || out->to == to))
            mr_long_out_end(agent, out, false);
    }
}

void mr_longs_died(struct mr_rpc *agent, uint32_t rank)
{
    go_on_all(agent);
    end_answers(agent, rank);
}

void mr_longs_close(struct mr_rpc *agent)
{
    go_on_all(agent);
    end_answers(agent, MR_RPC_NO_RANK);
}

uint64_t mr_longs_tick(struct mr_rpc *agent, uint64_t now_us)
{
    struct mr_longs *longs = &agent->longs;
    if (mr_list_empty(&longs->in))
        return UINT64_MAX;
    if (!longs->look && now_us < longs->look_us)
        return longs->look_us;
    longs->look = false;
    go_on_all(agent);
    longs->look_us = now_us + (longs->look ? RETRY_US : LOOK_US);
    return longs->look_us;
}

bool mr_longs_unfinished(const struct mr_rpc *agent)
{
    return !mr_list_empty(&agent->longs.in) || !mr_list_empty(&agent->longs.out) || agent->longs.serving > 0;
}
