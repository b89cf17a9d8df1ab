/* Messages that are too long for the transport: the sender keeps the message and sends a note in its place,
 * and the receiver fetches the message in parts.
 *
 * The note has the op of the message and travels as the message would, as a request or as an answer. So the
 * guarantees of calls hold, and the parts need none: RPC_PART only reads, in any order and repeatedly. The
 * receiver reports when it is done with a message, and whether it received all of it. If it did not, it has
 * not looked at any of it, as if the message had never left: references in it are taken back.
 *
 * Giving up a call gives up its long messages. Then the sender does not hand out any more parts, and the
 * receiver answers with an error, or forgets the answer. Functions are called inside, unless their section
 * says otherwise.
 */
#ifndef MR_RPC_LONG_MESSAGE_H
#define MR_RPC_LONG_MESSAGE_H

#include "dataplane/rpc/world/member.h"
#include "dataplane/wire/base/list.h"
#include "dataplane/wire/format/bodies.h"

#define MR_LONG_FROM_BYTES   (7u << 20) /* longer ones go in parts, unless the configuration says otherwise */
#define MR_LONG_MESSAGE_MAX  ((size_t)1 << 30)    /* default limit of a message */
#define MR_LONG_MEMORY_TIMES 2u                   /* default memory, in messages of that size */
#define MR_LONG_PART_BYTES   ((256u << 10) - 64u) /* with its head a block of message memory */
#define MR_LONG_PARTS_AHEAD  8u                   /* parts of a message that are requested at a time */
/* The names of message_bytes and long_memory_bytes in a node's configuration. */
#define MR_LONG_KEY        "rpc.message_mib_max"
#define MR_LONG_MEMORY_KEY "rpc.long_memory_mib"

enum mr_long_taken {
    MR_LONG_ANSWERED, /* it is freed next */
    MR_LONG_CLAIMED,  /* the handler keeps it, or has freed it */
    MR_LONG_BUSY,
};

/* All long messages of an agent. */
struct mr_longs {
    struct mr_link out, in;
    uint64_t last_id;
    /* Messages of `in` that are being fetched, or are requests not yet answered: they will free memory. */
    uint32_t serving;
    bool look;                     /* some message may continue */
    uint64_t look_us;              /* when to look even so */
    struct mr_long_in *dispatched; /* handed to its handler */
    enum mr_long_taken taken;      /* what the handler did with it */
    _Atomic uint64_t bytes;        /* any thread: memory of long messages on this worker */
};

/* A message that is sent. */
struct mr_long_out {
    struct mr_link link;
    uint64_t id, bytes;
    uint32_t to;
    struct mr_preamble preamble;
    uint8_t *room;                    /* memory for the tensors that had no data */
    const struct mr_agent_call *call; /* whose request it is; NULL: it is an answer */
    /* Called when the receiver did not look at it, and when it is not needed any more; may be NULL. */
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
    MR_LONG_COMES,   /* its parts arrive */
    MR_LONG_TELLS,   /* reports to the sender that it is done */
    MR_LONG_IS_HERE, /* complete, but its handler had no memory */
    MR_LONG_IS_OVER, /* it belongs to somebody else */
};

/* A message that is received. */
struct mr_long_in {
    struct mr_link link; /* in mr_longs.in, until it is over */
    struct mr_rpc *agent;
    struct mr_member *from;
    enum mr_long_state state;
    uint64_t id, bytes;
    uint64_t asked_up_to, left; /* bytes */
    uint8_t *memory;            /* mapped, or NULL */
    enum mr_status status;      /* why it was given up, or MR_OK */
    char why[256];
    struct mr_preamble preamble; /* the note's */
    /* A request: `request` is what the handler gets, and `note` is what is answered. An answer: the call that
     * it answers. */
    struct mr_request request;
    const struct mr_request *note;
    struct mr_agent_call *call;
    struct mr_agent_call done;
    struct mr_long_part parts[MR_LONG_PARTS_AHEAD];
    struct mr_message message;
};

void mr_longs_init(struct mr_rpc *agent);
/* The agent and its sessions are being closed: ends all messages. */
void mr_longs_close(struct mr_rpc *agent);
/* A member has died, and calls to it have ended: ends messages from and to it. */
void mr_longs_died(struct mr_rpc *agent, uint32_t rank);
/* Continues waiting messages that can continue. Returns when to call it again. */
uint64_t mr_longs_tick(struct mr_rpc *agent, uint64_t now_us);
/* Returns whether any message is in flight, or not answered yet. */
bool mr_longs_unfinished(const struct mr_rpc *agent);

/* ---- memory; any thread ---- */

/* Reserves memory. False: config.long_memory_bytes does not allow it. */
bool mr_long_reserve(struct mr_rpc *agent, uint64_t bytes);
void mr_long_unreserve(struct mr_rpc *agent, uint64_t bytes);

/* ---- out ---- */

/* Any thread: returns whether a message of that many bytes goes in parts. */
bool mr_long_is(const struct mr_rpc *agent, uint64_t bytes);
/* Makes a message to worker `to`. Tensors with data stay where they are until gone(); for the others, sets
 * `data` to where the caller writes. `words` gets the contents of the note's tensor. NULL: no memory. */
struct mr_long_out *mr_long_out_new(struct mr_rpc *agent, uint32_t to, uint8_t op, struct mr_tensor *tensors,
                                    uint32_t tensor_count, uint64_t words[MR_LONG_NOTE_WORDS]);
/* Ends a message that is not needed any more. `unread`: the receiver has not looked at it. NULL is
 * allowed. */
void mr_long_out_end(struct mr_rpc *agent, struct mr_long_out *out, bool unread);
/* Serves the op RPC_PART. */
void mr_long_serve_part(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);

/* ---- in ---- */

/* Returns whether it is a note. The first tensor of a message of values or gradients is never a u64. */
bool mr_long_is_note(const struct mr_message *message);
/* A note came as a request: fetches the message, and then hands it to its handler. The rules of mr_on_request
 * hold. */
void mr_long_receive_request(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
/* A note came as an answer: the call ends once the message has arrived. False: there is no memory to
 * begin. */
bool mr_long_receive_reply(struct mr_rpc *agent, struct mr_agent_call *call, const struct mr_message *reply);
/* Does what mr_reply_later() does, also for a request that was fetched: then *in is set, and the caller
 * releases it once the request is answered. */
const struct mr_request *mr_long_later(struct mr_rpc *agent, const struct mr_request *request,
                                       struct mr_long_in **in);
/* Returns whether the request was fetched. */
bool mr_long_is_whole(const struct mr_rpc *agent, const struct mr_request *request);
/* Does what mr_reply_busy() does, also for a request that was fetched: its handler gets it again a little
 * later. */
void mr_long_busy(struct mr_rpc *agent, const struct mr_request *request);
/* Frees the message and its memory. NULL is allowed. */
void mr_long_release(struct mr_long_in *in);

#endif
