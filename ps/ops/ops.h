/* The calls this node serves: a handler per operation (see dataplane/wire/format/ops.def), and what handlers
 * share.
 *
 * Every handler checks everything before it changes anything: a call either has its whole effect on this core
 * or none. An answer that needs memory is begun before the change, so that a call that cannot be answered is
 * not executed.
 */
#ifndef PS_OPS_H
#define PS_OPS_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/ranges.h"
#include "ps/core/core.h"

/* Indexed by enum mr_op. */
extern const dp_handler ps_dispatch[MR_OP_COUNT];

/* dp_app's hook: brings rows of small lookups and pushes into the caches. */
void ps_prefetch(void *core_app, const struct mr_prefetch *requests, uint32_t count);

/* dp_app's hook: notes a push that is arriving. */
void ps_arriving(void *core_app, struct mr_call_ref ref, const uint8_t *message, uint32_t received_bytes,
                 uint32_t message_bytes);
/* Does some of what can be done before it is whole; true when it did some. */
bool ps_early_push_step(struct ps_core *core);
/* What has been done for this call; NULL: nothing. It stays until ps_early_push_end(). */
struct ps_early_keys *ps_early_push_take(struct ps_core *core, struct mr_call_ref ref);
/* The push that took it needs it no more. Nothing if none did. */
void ps_early_push_end(struct ps_core *core);

/* ps_op_<name>() of each operation that a core serves itself. */
typedef void ps_op_handler(void *core_app, struct mr_endpoint *ep, const struct mr_request *request);
#define PS_OP_CORE(name)   ps_op_handler ps_op_##name;
#define PS_OP_CORE_0(name) ps_op_handler ps_op_##name;
#define PS_OP_CONTROL(name)
#define PS_OP_HUB(name)
#define PS_OP_WORKER(name)
#define MR_OP(NAME, name, value, repeatable, role, served, request, reply) PS_OP_##served(name)
#include "dataplane/wire/format/ops.def"
#undef PS_OP_CORE
#undef PS_OP_CORE_0
#undef PS_OP_CONTROL
#undef PS_OP_HUB
#undef PS_OP_WORKER
ps_op_handler ps_op_control; /* to the control thread, which executes it */
ps_op_handler ps_op_rpc;     /* between workers; core 0 (ps/server/rpc_node.c) */
ps_op_handler ps_op_for_hub; /* refuses it */

/* A lookup of rows as they are stored, whose first checks have passed. (ps/ops/ops_stored_rows.c) */
void ps_op_lookup_stored(const struct ps_op *op);
/* Ends a capture that nobody reads any more; with core->capture. */
void ps_capture_poll(struct ps_core *core, uint64_t now_us);
void ps_capture_end(struct ps_core *core);

/* Long slices copy less into an answer than they may, so that packets keep pace and it leaves from the
 * cache. */
#define PS_COPY_BYTES_MAX ((uint64_t)64 << 10)

/* Bytes that are copied in steps: what is left of them. */
struct ps_copy {
    const uint8_t *from;
    uint8_t *to;
    uint64_t bytes;
};
/* Copies what the budget has room for, or a part of it, and subtracts that; true when nothing is left. */
bool ps_copy_step(struct ps_copy *copy, uint64_t *budget_bytes);

/* Begins an answer of these tensors, as mr_reply_begin(). False: there is no memory for it, and the client is
 * asked to try again. */
static inline bool ps_reply_begin(struct mr_endpoint *ep, const struct mr_request *request,
                                  struct mr_tensor *tensors, uint32_t tensor_count)
{
    bool begun = mr_reply_begin(ep, request->ref, MR_OK, tensors, tensor_count);
    if (!begun)
        mr_reply_busy(ep, request->ref);
    return begun;
}
/* Answers with these tensors, whose data is set. */
static inline void ps_reply(struct mr_endpoint *ep, const struct mr_request *request,
                            struct mr_tensor *tensors, uint32_t tensor_count)
{
    if (ps_reply_begin(ep, request, tensors, tensor_count))
        mr_reply_end(ep, request->ref);
}
/* Answers with an error and a line of text; false, so that a check can return it. */
bool ps_refuse(const struct ps_op *op, enum mr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Checks: each answers the request itself when it returns false or NULL. */

/* Checks that data calls are served now. */
bool ps_check_open(const struct ps_op *op);
/* Checks that the call has tensor `index`, of that dtype and rank. `name` is its name in the error. */
bool ps_check_tensor(const struct ps_op *op, uint32_t index, enum mr_dtype dtype, uint32_t rank,
                     const char *name);
/* Likewise, and of `elements` elements. */
bool ps_check_vector(const struct ps_op *op, uint32_t index, enum mr_dtype dtype, uint32_t elements,
                     const char *name);
/* Likewise, and copies its words (mr_body_read): as many as some version sends. */
bool ps_check_body(const struct ps_op *op, uint32_t index, enum mr_body body, uint64_t *words);
/* Checks that there are no more tensors than these: one that no flag announces has no meaning. */
bool ps_check_tensor_count(const struct ps_op *op, uint32_t count);
/* Checks that tensor 0 is u64[1], or u64[4] that ends with a plan. *plan is all zero without one. */
bool ps_check_plan(const struct ps_op *op, const char *what, struct mr_plan *plan);
/* Claims the stream for this plan, unless it belongs to another one. */
bool ps_claim_stream(const struct ps_op *op, uint32_t stream, const struct mr_plan *plan);
/* A stream that the core does not know is about to begin: batches of another that had its number, and has
 * made room, are not partly applied any more. */
void ps_begin_stream(struct ps_core *core, uint32_t stream);
struct ps_feature *ps_check_table(const struct ps_op *op, uint32_t id);
/* Finds a variable, of which this core may have some ranges or none. */
struct ps_feature *ps_check_variable(const struct ps_op *op, uint32_t id);
/* Finds a table or a variable. */
struct ps_feature *ps_check_feature(const struct ps_op *op, uint32_t id);
/* Pieces of a variable that a call is about (dataplane/wire/format/ranges.h). */
struct ps_pieces {
    struct ps_feature *variable;
    const uint64_t *words; /* NULL: one piece, `elements` from `first` on */
    uint32_t count;
    uint64_t first, elements; /* of all pieces */
};
/* Checks that pieces are inside the variable, rise, and lie in ranges that this core owns. words NULL: one
 * piece of `elements` from `first` on. */
bool ps_check_pieces(const struct ps_op *op, struct ps_feature *variable, const uint64_t *words,
                     uint32_t count, uint64_t first, uint64_t elements, struct ps_pieces *out);
/* Takes the pieces, of at least one element each, from tensor `index`, u64[2n]. */
bool ps_check_piece_tensor(const struct ps_op *op, uint32_t index, struct ps_feature *variable,
                           struct ps_pieces *out);
/* Goes through the runs of all pieces; starts as {0}. */
struct ps_piece_walk {
    uint32_t piece;
    uint64_t in_piece; /* elements of it that were given */
    uint64_t before;   /* the run that was given last: elements of the pieces before it */
    uint64_t given;
};
bool ps_pieces_next(const struct ps_pieces *pieces, struct ps_piece_walk *walk, struct mr_run *run);
/* Stored bytes of the ranges concerned. */
uint64_t ps_pieces_cost_bytes(const struct ps_pieces *pieces);
/* The keys of a table in a call, and how many of them have been checked. */
struct ps_key_list {
    struct ps_feature *table;
    struct ps_bags in;
    uint32_t keys_checked, bags_checked;
    bool has_others; /* bags that are not of one key each */
};
/* Takes keys and, unless `offsets_at` is 0, offsets from those tensors. */
bool ps_check_key_tensors(const struct ps_op *op, uint32_t keys_at, uint32_t offsets_at,
                          struct ps_key_list *out);
/* Takes the tensors that the flags (enum mr_bag_flag) announce for the bags, from tensor *at on, and moves
 * *at past them. Only tables with pooling have bags. */
bool ps_check_bag_tensors(const struct ps_op *op, uint32_t flags, uint32_t *at, struct ps_key_list *list);
/* Rows of f32, f16, bf16 or i8 in tensor *at, and then the scales of i8; *at is moved past these. */
struct ps_rows {
    enum mr_dtype dtype;
    uint32_t at; /* which tensor they are */
    const void *values;
    const float *scales; /* of i8 */
};
bool ps_check_rows(const struct ps_op *op, uint32_t *at, uint32_t rank, const char *name,
                   struct ps_rows *out);
/* Reads the type of the rows in a lookup's answer out of the request's flags. */
bool ps_check_reply_dtype(const struct ps_op *op, enum mr_dtype *out);
/* Checks that all flags have a meaning. */
bool ps_check_flags(const struct ps_op *op, uint32_t flags, uint32_t known);
/* What an offset costs of a budget: it is looked at twice. */
#define PS_OFFSET_COST_BYTES 8u
enum ps_check { PS_CHECK_MORE, PS_CHECK_GOOD, PS_CHECK_REFUSED };
/* Checks that all keys belong to this core, and that offsets never fall, from 0 to the number of keys. Looks
 * at a few more, and subtracts what that costs from the budget. Answers the call when it is refused. */
enum ps_check ps_check_key_list(const struct ps_op *op, struct ps_key_list *list, uint64_t *budget_bytes);
/* Checks that an answer of these tensors is not larger than a message may be. */
bool ps_check_reply_bytes(const struct ps_op *op, const struct mr_tensor *tensors, uint32_t tensor_count);
/* Checks that the core has served all of its partitions since the map that the call goes by, and that none
 * are about to go or to come: for calls of which something is recorded for all of them. A partition that came
 * later may have keys of the same push, which are on their way by a newer map. False: the call was
 * answered. */
bool ps_check_all_partitions(const struct ps_op *op, const char *what, uint64_t number);
/* Checks that the core has the records of all partitions that it owns by the map that the call goes by: else
 * what it says of them is wrong, and what is noted for them is replaced once they are loaded. False: the call
 * was answered. */
bool ps_check_loaded(const struct ps_op *op);
/* The epoch of the map that the call goes by. */
uint32_t ps_epoch_of(const struct ps_op *op);
/* Finds a batch that was fed and is still kept. The caller must know the map by which it was fed, or a newer
 * one: by an older one it would miss the shares of nodes that came to own something since. */
struct ps_batch *ps_check_batch(const struct ps_op *op, uint64_t id);
/* Checks that a checkpoint that is being written has room for what this call makes it write. */
bool ps_check_save_room(const struct ps_op *op, uint64_t need_bytes);
/* Checks that no checkpoint waits for the client at a step before the call's. Shows the call's step to the
 * core's step clock. `changes`: it may change what a checkpoint holds; others do not wait, and training goes
 * on without them: the steps that they name are not shown. */
bool ps_check_step(const struct ps_op *op, bool changes);
/* Checks that the ranges may change now: a checkpoint that is being written may still need them. */
bool ps_check_pieces_ready(const struct ps_op *op, const struct ps_pieces *pieces);
/* Checks that the node does not serve a checkpoint read only. */
bool ps_check_writable(const struct ps_op *op);
/* Returns the freeze level that holds for this call (enum mr_freeze). A push that is sent again after a
 * restart precedes a level that was set before it, and is applied as if nothing were frozen. */
uint32_t ps_freeze_of(const struct ps_op *op);
/* Checks that the node is not frozen against updates. */
bool ps_check_not_frozen(const struct ps_op *op);

/* Sets the time, and the step that training has reached, before rows of the table are looked up or
 * changed. */
void ps_set_now(const struct ps_op *op, struct ps_table *table);
/* Records an applied push: counters, the client's last step. */
void ps_note_push(const struct ps_op *op);

/* Numbered pushes (ps/ops/ops_push.c). A push without a number passes these, and they change nothing. */

/* Checks that the push is still to be applied. Otherwise it is answered: OK when it was applied before, BUSY
 * while it is being applied. Comes right after ps_check_open(): what was applied is answered so, whatever has
 * changed since. Makes the room that the mark takes, and has the answer report what is durable. *partly: for
 * some partitions it was applied before. */
bool ps_check_push(const struct ps_op *op, bool *partly);
/* Notes that the push is about the partitions of these pieces, before it begins. False: the call was
 * answered. */
bool ps_push_touch(const struct ps_op *op, const struct ps_pieces *pieces);
/* Around the change, when nothing can refuse it any more: what comes in between finds the push in flight, and
 * no cut may come in between. The end marks it as applied. The op may be built again from the request that
 * mr_reply_later() keeps. */
void ps_push_begin(const struct ps_op *op);
void ps_push_end(const struct ps_op *op);
/* While core->copies is not NULL: the push is applied, and backups are told (ps/move/copy_source.h); before
 * that, that it has changed these pieces of a variable. */
void ps_push_copy(const struct ps_op *op);
void ps_push_copy_pieces(const struct ps_op *op, const struct ps_pieces *pieces);
/* While core->copies is not NULL, in each poll: answers what backups have asked for and was not there
 * (ps/ops/ops_move.c). Returns when it is to be called again at the latest; UINT64_MAX: there is no time. */
uint64_t ps_move_reads_poll(struct ps_core *core, uint64_t now_us);
/* Whether a push that was applied in part was applied in this partition. */
bool ps_push_has(const struct ps_op *op, uint32_t partition);
/* Whether the push in flight is of a batch of this stream. */
bool ps_push_applies_stream(const struct ps_core *core, uint32_t stream);

/* The u64 or u32 at the start of a checked tensor. */
uint64_t ps_tensor_u64(const struct mr_tensor *t, uint32_t index);
uint32_t ps_tensor_u32(const struct mr_tensor *t, uint32_t index);

#endif
