/* Messages that are longer than one of the transport's should be: they stay with their sender, which sends a
 * note in their place, and the receiver fetches them in parts.
 *
 * The note has the op of the message, and takes its way: as a request, or as an answer. So what is promised
 * of calls holds, and the parts need promise nothing: RPC_PART reads, in any order and again. The receiver
 * says when it is done with a message, and whether it has had it whole; if not it has not looked at any of
 * it, which is as if it had never left: references in it are taken back.
 *
 * Who gives up a call gives up its long messages. The sender does not hand out any more parts then, and the
 * receiver answers with an error, or forgets the answer. Inside, but for what is said.
 */
#ifndef MR_RPC_LONG_MESSAGE_H
#define MR_RPC_LONG_MESSAGE_H

#include "dataplane/rpc/world/member.h"
#include "dataplane/wire/base/list.h"

#define MR_LONG_FROM_BYTES   (7u << 20) /* longer ones go in parts, unless the configuration says otherwise */
#define MR_LONG_MESSAGE_MAX  ((size_t)1 << 30)    /* default of the longest message, */
#define MR_LONG_MEMORY_TIMES 2u                   /* and of the memory, in such messages */
#define MR_LONG_PART_BYTES   ((256u << 10) - 64u) /* with its head a block of message memory */
#define MR_LONG_PARTS_AHEAD  8u                   /* asked for at a time, of one message */
#define MR_LONG_NOTE_WORDS   2u                   /* u64 {id, bytes} */
/* what message_bytes is called in a node's configuration, */
#define MR_LONG_KEY        "rpc.message_mib_max"
#define MR_LONG_MEMORY_KEY "rpc.long_memory_mib" /* and long_memory_bytes */

enum mr_long_taken {
    MR_LONG_ANSWERED, /* and is freed then */
    MR_LONG_CLAIMED,  /* and perhaps freed already */
    MR_LONG_BUSY,
};

/* Of an agent. */
struct mr_longs {
    struct mr_link out, in;
    uint64_t last_id;
    /* of `in`: being fetched, or requests that are not answered yet: they will leave room */
    uint32_t serving;
    bool look; /* something may go on; else at */
    uint64_t look_us;
    struct mr_long_in *dispatched; /* to its handler, which may have: */
    enum mr_long_taken taken;
    _Atomic uint64_t bytes; /* any thread: memory of long messages on this worker */
};

/* One that is sent. */
struct mr_long_out {
    struct mr_link link;
    uint64_t id, bytes;
    uint32_t to;
    struct mr_preamble preamble;
    uint8_t *room;                    /* of the tensors that had no data */
    const struct mr_agent_call *call; /* whose request it is; NULL: an answer */
    /* The receiver did not look at it; it is not needed any more (may be NULL). */
    void (*unread)(struct mr_rpc *agent, void *of);
    void (*gone)(struct mr_rpc *agent, void *of);
    void *of;
    uint32_t tensor_count;
    struct mr_tensor tensors[1 + MR_RPC_ARGUMENTS_MAX];
};

struct mr_long_part {
    struct mr_agent_call call;
    struct mr_long_in *in;
    uint64_t offset;
    uint32_t bytes;
    bool asked;
};

enum mr_long_state {
    MR_LONG_WAITS,   /* for memory */
    MR_LONG_COMES,   /* parts do */
    MR_LONG_TELLS,   /* the sender that we are done with it */
    MR_LONG_IS_HERE, /* whole, and its handler had no memory */
    MR_LONG_IS_OVER, /* somebody's */
};

/* One that is received. */
struct mr_long_in {
    struct mr_link link; /* until it is over */
    struct mr_rpc *agent;
    struct mr_member *from;
    enum mr_long_state state;
    uint64_t id, bytes;
    uint64_t asked_up_to, left; /* bytes */
    uint8_t *memory;            /* mapped, or NULL */
    enum mr_status status;      /* why it was given up; MR_OK */
    char why[256];
    struct mr_preamble preamble; /* the note's */
    /* Of a request: it was handed to its handler as this one; `note` is answered. Else the answer to this
     * call. */
    struct mr_request request;
    const struct mr_request *note;
    struct mr_agent_call *call;
    struct mr_agent_call done;
    struct mr_long_part parts[MR_LONG_PARTS_AHEAD];
    struct mr_message message;
};

void mr_longs_init(struct mr_rpc *agent);
/* The agent is being closed, and its sessions are: all that is on its way ends. */
void mr_longs_close(struct mr_rpc *agent);
/* That member has died, and calls to it have ended. */
void mr_longs_died(struct mr_rpc *agent, uint32_t rank);
/* Continues what waits, where it can. Returns when it wants to be called again. */
uint64_t mr_longs_tick(struct mr_rpc *agent, uint64_t now_us);
/* Whether there are messages that are not where they are to be, or not answered. */
bool mr_longs_unfinished(const struct mr_rpc *agent);

/* ---- memory; any thread ---- */

/* False: so much more than config.long_memory_bytes allows. */
bool mr_long_reserve(struct mr_rpc *agent, uint64_t bytes);
void mr_long_unreserve(struct mr_rpc *agent, uint64_t bytes);

/* ---- out ---- */

/* Any thread: whether a message of so many bytes goes in parts. */
bool mr_long_is(const struct mr_rpc *agent, uint64_t bytes);
/* A message to worker `to`. Tensors with data stay where they are until gone(); for the others `data` is set
 * to where the caller writes. The note's tensor gets `words`. NULL: no memory. */
struct mr_long_out *mr_long_out_new(struct mr_rpc *agent, uint32_t to, uint8_t op, struct mr_tensor *tensors,
                                    uint32_t tensor_count, uint64_t words[MR_LONG_NOTE_WORDS]);
/* Not needed any more; it was not looked at, if `unread`. NULL is fine. */
void mr_long_out_end(struct mr_rpc *agent, struct mr_long_out *out, bool unread);
/* MR_OP_RPC_PART */
void mr_long_serve_part(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);

/* ---- in ---- */

/* Whether it is a note in place of a message of values or of gradients, whose first tensor is no u64. */
bool mr_long_is_note(const struct mr_message *message);
/* Such a request came: it is fetched, and handed on then. The rules of mr_on_request hold. */
void mr_long_receive_request(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
/* Such an answer came: the call ends once it is there. False: no memory to begin with. */
bool mr_long_receive_reply(struct mr_rpc *agent, struct mr_agent_call *call, const struct mr_message *reply);
/* mr_reply_later(), also for requests that were fetched: *in is set then, and is the caller's to release once
 * the request is answered. */
const struct mr_request *mr_long_later(struct mr_rpc *agent, const struct mr_request *request,
                                       struct mr_long_in **in);
/* Whether it is one. */
bool mr_long_is_whole(const struct mr_rpc *agent, const struct mr_request *request);
/* mr_reply_busy(), also for those that were fetched: they are handed on again a little later. */
void mr_long_busy(struct mr_rpc *agent, const struct mr_request *request);
/* Frees its memory. NULL is fine. */
void mr_long_release(struct mr_long_in *in);

#endif
