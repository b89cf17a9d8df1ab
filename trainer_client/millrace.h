/* libmillrace: the client of the Millrace parameter server.
 *
 * Conventions
 *   - Every function that can fail returns enum mr_status; outputs come through the last arguments and are
 *     untouched on failure. mr_status_text() says what a code means, mr_last_error() what happened where
 *     ("10.0.0.1:7700 core 0: ...").
 *   - Every call takes a struct mr_options: deadline, step, priority. NULL means the client's defaults.
 *   - Every call can be asynchronous: with options->future set it returns as soon as the request is handed
 *     over, its reply argument is not used, and the outcome comes from mr_future_wait(). Outputs other than
 *     replies (ids, counts, states) are written by mr_future_wait(), so they must stay valid until then. A
 *     call waits for room (memory_bytes) while others are under way.
 *   - Calls make progress while some thread is inside the library; a client made with progress_thread needs
 *     none.
 *   - With several cores the first call that names a table or variable by a number that this client did not
 *     create itself asks the node what it is, and waits for that, also when it is asynchronous.
 *   - A server that comes back with another number of cores costs a lookup nothing, with a future or without:
 *     it is made again within its deadline.
 *   - Bags are CSR: keys[offsets[b] .. offsets[b+1]) is bag b, as torch.nn.EmbeddingBag takes them with
 *     include_last_offset=True. Tensors are dense and row-major. Floats are f32.
 *   - Handles are opaque and come in create/destroy pairs. There is no global state.
 *   - A client may be used from any number of threads at the same time; a future or a reply by one thread at
 *     a time.
 *   - Handles belong to the process that made them. After fork() every call of the child with one of them
 *     ends with MR_FORKED, at once and without touching the parent's; destroying one there does nothing;
 *     replies that came before can be read. The child makes a client of its own. (Threads of the parent may
 *     be inside the library at the fork; in the child, only memory of replies is given back.)
 *   - Inputs are copied before a call returns; they may be reused at once, also with futures.
 */
#ifndef MILLRACE_H
#define MILLRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "mr_feature.h"
#include "mr_status.h"
#include "mr_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_API __attribute__((visibility("default")))

struct mr_client; /* connection to one node: a session per core */
struct mr_future; /* outcome of a call that is under way */
struct mr_reply;  /* tensors that came back */

/* ---- clients ---- */

struct mr_client_options {
    /* "10.0.0.1:7700", "[fd00::1]:7700", "name:7700"; port 7700 when left out. Required */
    const char *server;
    /* pre-shared key: 64 hex digits. NULL: $MILLRACE_KEY_FILE, else no key. Read again when it has changed
     * and the server does not answer: keys may be rotated under a running client */
    const char *key_file;
    /* 32 hex digits that name this client across restarts. NULL: random. One process at a time: of two with
     * the same, each takes the server's session from the other, and their calls fail and say so */
    const char *client_id;
    uint32_t deadline_ms; /* default of every call; 0 = 10000 */
    uint32_t connect_ms;  /* mr_client_create waits this long for the server; 0 = 10000 */
    /* socket buffer asked for, per core; 0 = 4 MiB, cut to what the system allows */
    uint32_t receive_buffer_bytes;
    /* For requests and replies, per core; 0 = 256 MiB, of which only what is used takes memory: enough for
     * any message. A reply that finds no room, as it needs more than half or the caller holds others, ends
     * its call with MR_NO_MEMORY. */
    uint32_t memory_bytes;
    uint32_t udp_bytes_max; /* largest UDP payload; 0 = from the route's MTU */
    /* a waiting call spins this long before it sleeps; UINT32_MAX = always spin; 0 = 50 */
    uint32_t busy_poll_us;
    /* Keep a copy of each gradient push until it is in a checkpoint on disk, and give a server that was
     * restarted from a checkpoint what it lacks, before anything else: each push is applied once.
     * docs/replay.md. Also $MILLRACE_REPLAY: "on", or "off" whatever this says. The pushes of a process end
     * with it: with `replay` a process that begins again is another client to the server, also under the same
     * client_id */
    bool replay;
    /* for those copies, per core; 0 = 64 MiB. When it is full the oldest that were answered go */
    uint32_t replay_bytes;
    bool progress_thread; /* a thread of the library's own keeps calls going while the caller computes */
    /* never hand the kernel runs of datagrams to cut up (UDP_SEGMENT); also $MILLRACE_GSO=0. The client finds
     * out by itself when a peer loses them, at the price of the first large request */
    bool no_offload;
    /* each small call in a packet of its own, for measuring; also $MILLRACE_BUNDLE=0. Answers still share
     * packets unless the server's transport.bundle is off as well */
    bool no_bundle;
};

/* Connects to every core of the node. MR_UNREACHABLE, MR_VERSION_MISMATCH (a server of another protocol
 * version answers there), MR_UNAUTHORIZED is not told apart from it (a server does not answer whoever lacks
 * its key; the text says so), MR_INVALID_ARGUMENT (address, key file). On failure `error` (may be NULL) gets
 * one line that says what, where and how to mend it. */
MR_API enum mr_status mr_client_create(const struct mr_client_options *options, struct mr_client **client,
                                       char *error, size_t error_bytes);
/* Ends calls under way with MR_CANCELLED. Futures must have been destroyed, replies may outlive it. NULL is
 * fine. */
MR_API void mr_client_destroy(struct mr_client *client);
/* One line about this thread's last failed call with any client, "" if none. Valid until the thread's next
 * call. */
MR_API const char *mr_last_error(void);
/* The process ends with exit code 1 where it would have ended with 0: for what learns of a failure when it
 * ends anyway. */
MR_API void mr_fail_at_exit(void);
MR_API uint32_t mr_client_core_count(const struct mr_client *client);
/* The number of the server's start, for people: it rises with each start on one checkpoint directory, and may
 * come again on another, a wiped, or none. */
MR_API uint32_t mr_client_incarnation(const struct mr_client *client);
/* Random bits that the server drew at its start: another value each time the server was found restarted,
 * whatever became of its directory. */
MR_API uint64_t mr_client_start_id(const struct mr_client *client);
/* A readable file descriptor when mr_client_progress() has something to do, for the caller's own event loop;
 * -1 if none. */
MR_API int mr_client_fd(const struct mr_client *client);
/* Receive, send and complete what can be without waiting. Returns the number of calls that ended. */
MR_API uint32_t mr_client_progress(struct mr_client *client);
/* Milliseconds after which mr_client_progress() should be called even if the descriptor is quiet; -1 = no
 * need. */
MR_API int mr_client_timeout_ms(const struct mr_client *client);

struct mr_replay_info {
    bool on;
    bool replaying; /* a server restarted, and has not got all of it again */
    uint64_t kept;  /* pushes, counted per core */
    uint64_t kept_bytes;
    uint64_t oldest_step; /* of those kept; 0 when there are none */
    uint64_t replayed;    /* pushes sent again, and taken or known by the server, since the start */
    uint64_t given_up;    /* for want of room, before they were known to be on disk */
    /* refused by the restarted server; batches that the hub hands out again are among them */
    uint64_t dropped;
};
MR_API void mr_client_replay_info(const struct mr_client *client, struct mr_replay_info *info);

/* What became of a push. Keys count once each, and variables; of a key that comes several times, each
 * gradient that holds NaN or Inf counts by itself. sent is the sum of the other four, which is all of the
 * push if is_known. */
struct mr_pushed {
    /* False: some of it was applied earlier than the answer was made, as when it was sent again after a
     * restart or its batch had been learnt, and is not in the numbers. */
    bool is_known;
    uint64_t sent;
    uint64_t applied; /* rows and variables that the optimizer changed */
    uint64_t refused; /* a row was to be made, but memory or the table's capacity was used up */
    /* no row: never looked up, not admitted, refused when it was, evicted, or the node is frozen */
    uint64_t without_row;
    uint64_t not_finite; /* NaN or Inf, or values that would have become so: these rows are as they were */
};

struct mr_options {
    uint32_t deadline_ms; /* 0 = the client's default */
    uint8_t priority;     /* 0 = bulk .. 7 = first */
    uint64_t step;        /* the trainer's training step, kept by the server with each push */
    /* Of the gradients that this call pushes, from 0 on (at 0 rows stay, and the optimizer's state moves on);
     * counts if the next is set, and is refused without it unless it is 0. Else the features' own, by their
     * schedules. */
    float learning_rate;
    bool has_learning_rate;
    /* What rows and their gradients are on the wire: f32 (also for 0), f16, bf16, or i8 with a scale for each
     * row. Callers see f32 all the same; dataplane/wire/format/convert.h says what is lost. A bag over
     * several cores is lost so once per core. Variables are always f32. */
    enum mr_dtype wire_dtype;
    struct mr_future **future; /* not NULL: asynchronous; receives the future */
    /* Pushes of gradients: what became of them, as each core counts it; other calls leave it alone. NULL, and
     * then nothing is asked: not wanted */
    struct mr_pushed *pushed;
    bool more; /* asynchronous: another call follows at once; this one may wait for it, to share its packet */
    /* lookups of rows by key: make no rows and leave no trace, for evaluation. Also on a frozen node */
    bool read_only;
    /* [3], hubs: the plan whose batches the stream has, in mr_feed_sample() and mr_batch_state(). Each core
     * compares it: another plan's is MR_ALREADY_STARTED, so that its batches do not count as learnt. NULL,
     * and feeds: streams of no plan */
    const uint64_t *plan;
};

/* ---- futures and replies ---- */

/* Waits for the call to end (it does by its deadline). On MR_OK, `*reply` (may be NULL when the answer is of
 * no interest) receives the tensors, to be freed by mr_reply_free(); NULL when the answer is all in the
 * call's other outputs. May be called once. */
MR_API enum mr_status mr_future_wait(struct mr_future *future, struct mr_reply **reply);
/* True once mr_future_wait() would not block. Makes progress itself. */
MR_API bool mr_future_done(struct mr_future *future);
/* The same, and waits for it, but not longer than this: for callers that look after something else meanwhile,
 * as signals. */
MR_API bool mr_future_wait_for(struct mr_future *future, uint32_t timeout_ms);
/* When the call ends, 1 is added to this eventfd, at once if it has: so that a loop that waits for
 * descriptors of its own hears of calls that other threads complete. mr_future_done() says false all the same
 * while pushes settle on a server that came back with other cores: ask again then. The descriptor stays open
 * until the future is destroyed. */
MR_API void mr_future_notify(struct mr_future *future, int event_fd);
/* Frees it; a call still under way goes on, its outcome is dropped. */
MR_API void mr_future_destroy(struct mr_future *future);

MR_API uint32_t mr_reply_tensor_count(const struct mr_reply *reply);
/* A view, valid until the reply is freed. NULL when i is out of range. */
MR_API const struct mr_tensor *mr_reply_tensor(const struct mr_reply *reply, uint32_t i);
MR_API void mr_reply_free(struct mr_reply *reply); /* NULL is fine */

/* ---- features ---- */

/* Makes tables and variables on the node. The same again is fine; a different descriptor under a known name
 * is MR_FEATURE_MISMATCH and the error names feature and field. ids: [count], the numbers by which calls name
 * them. */
MR_API enum mr_status mr_create(struct mr_client *client, const struct mr_options *options,
                                const struct mr_feature *features, uint32_t count, uint32_t *ids);
/* level: 0 off, 1 admit (no new rows), 2 all (read only). */
MR_API enum mr_status mr_freeze(struct mr_client *client, const struct mr_options *options, uint32_t level);

struct mr_feature_info {
    struct mr_feature feature;
    uint32_t id;
    uint64_t rows;  /* tables */
    uint64_t bytes; /* memory held for it */
    /* What was asked of it and not done, since it was made or restored: */
    uint64_t rows_refused;          /* rows that were not made: memory or the table's capacity was used up */
    uint64_t gradients_without_row; /* left out: their keys have no row */
    uint64_t gradients_skipped;     /* left out: NaN or Inf, or values that would have become so */
};
/* `*infos` is freed by the caller with free(). */
MR_API enum mr_status mr_list(struct mr_client *client, const struct mr_options *options,
                              struct mr_feature_info **infos, uint32_t *count);

/* ---- rows by key ---- */

/* Reply: f32 [key_count, dim]. */
MR_API enum mr_status mr_lookup(struct mr_client *client, const struct mr_options *options, uint32_t table,
                                const uint64_t *keys, uint32_t key_count, struct mr_reply **reply);
/* Reply: f32 [bag_count, dim], each bag reduced as the table's pooling says. offsets: [bag_count + 1]. */
MR_API enum mr_status mr_lookup_bags(struct mr_client *client, const struct mr_options *options,
                                     uint32_t table, const uint64_t *keys, const uint32_t *offsets,
                                     uint32_t bag_count, struct mr_reply **reply);
/* The same with a weight for each key: sum(w * x) / divisor, which is 1 (sum), sum(w) (mean) or
 * sqrt(sum(w^2)) (sqrtn), as in TensorFlow's embedding_lookup_sparse (torch's EmbeddingBag allows weights
 * with sums only). Weights are finite; zero and less are fine. A bag whose divisor comes out as 0 is all
 * zeros, and its keys get a gradient of zeros. NULL: all are 1. */
MR_API enum mr_status mr_lookup_weighted_bags(struct mr_client *client, const struct mr_options *options,
                                              uint32_t table, const uint64_t *keys, const float *weights,
                                              const uint32_t *offsets, uint32_t bag_count,
                                              struct mr_reply **reply);
/* gradients: [key_count, dim]. Repeated keys are summed, then the optimizer runs once per key. Applied at
 * most once; MR_UNKNOWN_OUTCOME, with the step, when the server was lost before it answered. With `replay` it
 * is applied once all the same, and must not be pushed again, unless mr_last_error() says that it was not
 * sent: this tells, once, that pushes of earlier steps are lost. MR_BUSY when all its cores refused it until
 * its deadline: it is not applied, and may be pushed again. */
MR_API enum mr_status mr_push_gradients(struct mr_client *client, const struct mr_options *options,
                                        uint32_t table, const uint64_t *keys, uint32_t key_count,
                                        uint32_t dim, const float *gradients);
/* gradients: [bag_count, dim], of the bags' reduced values. A key gets its bag's, over the bag's divisor,
 * times its weight: the same bits on any number of cores. */
MR_API enum mr_status mr_push_gradients_bags(struct mr_client *client, const struct mr_options *options,
                                             uint32_t table, const uint64_t *keys, const uint32_t *offsets,
                                             uint32_t bag_count, uint32_t dim, const float *gradients);
/* The same with the weights that the lookup had. */
MR_API enum mr_status mr_push_gradients_weighted_bags(struct mr_client *client,
                                                      const struct mr_options *options, uint32_t table,
                                                      const uint64_t *keys, const float *weights,
                                                      const uint32_t *offsets, uint32_t bag_count,
                                                      uint32_t dim, const float *gradients);

/* ---- batches ---- */

/* One table's keys of a batch: bag (sample s, slot j) is keys[offsets[s * slots + j] .. offsets[s * slots + j
 * + 1]). */
struct mr_batch_keys {
    uint32_t table;
    uint32_t samples, slots;
    const uint64_t *keys;
    const uint32_t *offsets; /* [samples * slots + 1] */
    const float *weights;    /* of the keys, as in mr_lookup_weighted_bags(); NULL: all are 1 */
};
/* Hub's side: the server looks the rows up now and keeps the result for mr_lookup_batch(). read_only: makes
 * no rows, and the batch is dropped after its lookup (evaluation). MR_BATCH_CACHE_FULL: feed again later. The
 * same id again is fine. */
MR_API enum mr_status mr_feed_sample(struct mr_client *client, const struct mr_options *options,
                                     uint64_t batch_id, const struct mr_batch_keys *tables,
                                     uint32_t table_count, bool read_only);
/* Reply: f32 [samples, slots, dim], each bag pooled. MR_UNKNOWN_BATCH, MR_BATCH_EXPIRED. */
MR_API enum mr_status mr_lookup_batch(struct mr_client *client, const struct mr_options *options,
                                      uint64_t batch_id, uint32_t table, struct mr_reply **reply);

/* The gradient of one feature in a batch: of a table's lookup result [samples, slots, dim], or of a variable
 * (its shape). */
struct mr_batch_gradient {
    uint32_t feature;
    struct mr_tensor gradient; /* f32 */
};
/* Applied exactly once per batch id, whoever pushes it and however often. `*applied` (may be NULL): false
 * when the node had learnt this batch before; that is no error. With several features, all are applied or
 * none per core. */
MR_API enum mr_status mr_push_gradients_batch(struct mr_client *client, const struct mr_options *options,
                                              uint64_t batch_id, const struct mr_batch_gradient *gradients,
                                              uint32_t count, bool *applied);
/* Drop what the server cached for these batches. */
MR_API enum mr_status mr_forget_batches(struct mr_client *client, const struct mr_options *options,
                                        const uint64_t *batch_ids, uint32_t count);
/* Which batches of a stream every core has learnt: all sequence numbers below *watermark, and *watermark + i
 * where bit i of (*bitmap)[i / 64] is set. `*bitmap` is freed by the caller with free(). */
MR_API enum mr_status mr_batch_state(struct mr_client *client, const struct mr_options *options,
                                     uint32_t stream, uint64_t *watermark, uint64_t **bitmap,
                                     uint32_t *bitmap_words);

/* What the node knows of a stream. */
struct mr_stream {
    uint32_t stream;
    bool differs;     /* cores have it for different plans */
    uint64_t plan[3]; /* all 0: of none; all UINT64_MAX: from a checkpoint that does not tell */
    uint64_t learnt;  /* batches, of the core that has fewest */
    uint64_t twice;   /* times that a core learnt a batch that it had learnt: 0, unless something is wrong */
    uint64_t used;    /* of two streams the higher was used later */
};
/* Streams of batches that some core has a record of, by number. `*streams` is freed by the caller with
 * free(). */
MR_API enum mr_status mr_streams(struct mr_client *client, const struct mr_options *options,
                                 struct mr_stream **streams, uint32_t *count);
/* Drops all that the node knows of these streams: a plan whose stream is forgotten would be learnt from its
 * start. MR_ALREADY_STARTED: one is in use, and nothing is dropped on that core. Streams that are not there
 * are fine. */
MR_API enum mr_status mr_forget_streams(struct mr_client *client, const struct mr_options *options,
                                        const uint32_t *streams, uint32_t count);

/* ---- variables ---- */

/* Whole (count 0 = all) or a range of elements, row-major. Pull's reply: f32 [count]. */
MR_API enum mr_status mr_variable_push(struct mr_client *client, const struct mr_options *options,
                                       uint32_t variable, uint64_t first, uint64_t count,
                                       const float *values);
MR_API enum mr_status mr_variable_pull(struct mr_client *client, const struct mr_options *options,
                                       uint32_t variable, uint64_t first, uint64_t count,
                                       struct mr_reply **reply);
/* Runs the optimizer with this gradient (the variable's shape, `count` elements). */
MR_API enum mr_status mr_variable_push_gradient(struct mr_client *client, const struct mr_options *options,
                                                uint32_t variable, uint64_t count, const float *gradient);

/* ---- the node ---- */

/* Starts a checkpoint and returns its id; training goes on. directory NULL: the server's configured one. A
 * client with `replay` first waits until every core has its pushes again, should the server have been
 * restarted; also when this is asynchronous. */
MR_API enum mr_status mr_save(struct mr_client *client, const struct mr_options *options,
                              const char *directory, uint64_t *checkpoint_id);
/* Replaces all features and rows by those of a checkpoint (id 0 = newest that verifies). Returns when done.
 * On failure the node serves what it did. */
MR_API enum mr_status mr_restore(struct mr_client *client, const struct mr_options *options,
                                 const char *directory, uint64_t id, uint64_t *checkpoint_id);

/* A table or variable of a checkpoint, and the name that it gets. */
struct mr_restore_name {
    const char *name;
    const char *new_name; /* NULL: the same */
};
struct mr_restore_options {
    size_t bytes;          /* sizeof(struct mr_restore_options) */
    const char *directory; /* on the server's machine; NULL: the configured one */
    uint64_t id;           /* 0: the newest that verifies */
    /* [name_count] features to be taken out of the checkpoint and put beside what the node holds, or with
     * `replace` in the place of those that have such names already, which is refused otherwise. All of them,
     * or none. Other features, and what the node knows of batches, clients and pushes, stay as they are, and
     * calls for them are answered meanwhile. New features get numbers of their own: mr_list() and mr_create()
     * tell them; one that replaces has the old one's. NULL and 0: all of the checkpoint, in place of all that
     * the node holds. */
    const struct mr_restore_name *names;
    uint32_t name_count;
    bool replace;
};
/* What it came to. */
struct mr_restored {
    size_t bytes;    /* sizeof(struct mr_restored), set by the caller */
    uint64_t id;     /* of the checkpoint */
    uint64_t step;   /* that training had come to at its cut; 0: calls said none */
    bool is_at_step; /* all pushes up to `step` are in it and none behind: trainers go on with step + 1 */
    uint32_t tables, variables; /* taken out of it */
};
/* mr_restore() with a say in what. `what` NULL: all of the newest that verifies; restored: may be NULL. */
MR_API enum mr_status mr_checkpoint_restore(struct mr_client *client, const struct mr_options *options,
                                            const struct mr_restore_options *what,
                                            struct mr_restored *restored);

enum mr_checkpoint_state { MR_CHECKPOINT_IDLE = 0, MR_CHECKPOINT_SAVING = 1, MR_CHECKPOINT_LOADING = 2 };
struct mr_checkpoint_status {
    enum mr_checkpoint_state state;
    uint64_t id; /* of the one running, or of the last */
    uint64_t bytes_done, bytes_total;
    uint64_t duration_us;
    uint64_t last_good_id;      /* 0 = none yet */
    enum mr_status last_status; /* outcome of the last one */
    char last_error[256];
};
MR_API enum mr_status mr_checkpoint_status(struct mr_client *client, const struct mr_options *options,
                                           struct mr_checkpoint_status *status);

/* ---- saves with a say in when and what ---- */

enum mr_save_kind {
    MR_SAVE_CONFIGURED = 0, /* as checkpoint.deltas and its neighbours say */
    MR_SAVE_FULL = 1,
    MR_SAVE_DELTA = 2, /* refused (MR_INVALID_ARGUMENT) when none is possible: the text says why */
};
struct mr_save_options {
    size_t bytes;          /* sizeof(struct mr_save_options) */
    const char *directory; /* on the server's machine; NULL: the configured one */
    enum mr_save_kind kind;
    /* Not 0: all pushes up to this step are in it, and none behind. Trainers have to train in step, each
     * waiting for its pushes of a step before it makes calls of the next, and to say their step with each
     * call. docs/checkpoints.md */
    uint64_t step;
    /* How many trainers (clients) a step has. 0: checkpoint.trainers if there is a step; else the cut is made
     * at once. Not 0 and no step: at the step that training has come to. */
    uint32_t trainers;
    bool queue; /* while another save is under way: wait for its end, in place of MR_CHECKPOINT_RUNNING */
};
/* Starts a save, or has it wait, and returns its number at once; training goes on. The numbers count the
 * saves of the server since its start; mr_checkpoint_info() tells what became of it. save: NULL for
 * everything as configured. With `replay`: as mr_save(). */
MR_API enum mr_status mr_checkpoint_save(struct mr_client *client, const struct mr_options *options,
                                         const struct mr_save_options *save, uint64_t *number);

/* Withdraws the save with this number: one that waits for its step or for another, or one that is being
 * written. On MR_OK nothing is left of it, and its status is MR_CANCELLED. MR_INVALID_ARGUMENT: it has ended
 * already, and mr_last_error() says how; MR_CHECKPOINT_NOT_FOUND: there is none of that number among the last
 * 32. */
MR_API enum mr_status mr_checkpoint_cancel(struct mr_client *client, const struct mr_options *options,
                                           uint64_t number);

enum mr_save_state {
    MR_SAVE_ENDED = 0, /* well, or not: its status says which */
    MR_SAVE_WRITING = 1,
    MR_SAVE_WAITS_FOR_STEP = 3,
    MR_SAVE_QUEUED = 4, /* behind another */
};
struct mr_save_info {
    uint64_t number;
    enum mr_save_state state;
    bool is_automatic, is_at_step;
    uint64_t id;            /* of the checkpoint; 0 until its cut is made */
    enum mr_save_kind kind; /* of it; MR_SAVE_CONFIGURED until then */
    uint64_t parent_id;     /* of a delta */
    uint64_t step;          /* that training had come to at its cut; until then, what it waits for */
    uint64_t bytes, duration_us;
    enum mr_status status; /* once it has ended */
    char error[256];
};
struct mr_checkpoint_info {
    size_t bytes;         /* sizeof(struct mr_checkpoint_info), set by the caller */
    uint64_t step;        /* that training has come to, by the steps that calls carry; wild ones left out */
    uint64_t restored_id; /* the checkpoint that the server was restored from; 0: none */
    uint64_t restored_step;
    /* trainers may go on with step restored_step + 1, and repeat everything to the last bit */
    bool restored_is_at_step;
    uint64_t last_good_id, last_good_step; /* of the last save that was published; 0: none yet */
    uint64_t saves_queued;
    uint64_t waiting_step; /* a cut at this step is being waited for; 0: none */
    uint64_t trainers_held, trainers_awaited;
};
/* info (may be NULL); and `visit` (may be NULL), on this thread, for the save with this number, or with
 * number 0 for all that the server still knows, the oldest first. MR_CHECKPOINT_NOT_FOUND: that one is not
 * among the last 32. */
MR_API enum mr_status mr_checkpoint_info(struct mr_client *client, const struct mr_options *options,
                                         uint64_t number, struct mr_checkpoint_info *info,
                                         void (*visit)(void *arg, const struct mr_save_info *save),
                                         void *arg);

struct mr_core_state {
    uint32_t core;
    uint32_t state; /* 1 serving, 2 saving, 3 restoring, 4 stopping, 5 serving a checkpoint read only */
    uint32_t incarnation;
    uint64_t uptime_us;
    double busy_share; /* 0..1, of the last second */
    uint64_t last_step;
    uint64_t cached_batches, rows, memory_bytes;
    uint64_t rtt_us; /* as the client sees it */
    /* What was asked for and not done, since the server's start; the first three of all features, as in
     * struct mr_feature_info: */
    uint64_t rows_refused, gradients_without_row, gradients_skipped;
    uint64_t steps_ignored; /* calls whose step was too far from that of others to count */
};
/* states: [mr_client_core_count()]. */
MR_API enum mr_status mr_heartbeat(struct mr_client *client, const struct mr_options *options,
                                   struct mr_core_state *states);
/* Every counter of one core, in a fixed order. `visit` is called on this thread. */
MR_API enum mr_status mr_stats(struct mr_client *client, const struct mr_options *options, uint32_t core,
                               void (*visit)(void *arg, const char *name, uint64_t value), void *arg);
/* Where every byte of a core is. */
struct mr_core_memory {
    uint64_t limit_bytes;     /* of tables and variables; never exceeded */
    uint64_t mapped_bytes;    /* of it, taken from the kernel, in units of 2 MiB */
    uint64_t allocated_bytes; /* of these, in use: tables and variables, with what finds them */
    uint64_t ahead_bytes;     /* of mapped_bytes: made ready before it is needed */
    uint64_t units_failed;    /* units that the machine had no memory for */
    uint64_t batch_limit_bytes,
        batch_mapped_bytes; /* the same of fed batches and records, beside the above */
    uint64_t batch_bytes;   /* batches kept now */
    uint64_t variable_bytes;
    uint64_t scratch_bytes;    /* working memory of pushes, beside the limits; grows with the largest push */
    uint64_t checkpoint_bytes; /* buffers of a checkpoint under way, beside the limits */
};
/* One table's part of it. index + values + state + slack + filter is what the table takes. */
struct mr_table_memory {
    uint32_t id;
    uint64_t rows;
    uint64_t index_bytes, values_bytes, state_bytes;
    uint64_t slack_bytes; /* free places, padding, and what else is kept per row */
    uint64_t filter_bytes;
    uint64_t limit_bytes; /* of the table on the whole node; 0: only the node's */
};
/* `visit` is called on this thread for each table, in the order of ids; NULL: not wanted. */
MR_API enum mr_status mr_memory(struct mr_client *client, const struct mr_options *options, uint32_t core,
                                struct mr_core_memory *memory,
                                void (*visit)(void *arg, const struct mr_table_memory *table), void *arg);
/* The world of workers that a node takes part in, as the node knows it (see millrace_rpc.h). */
struct mr_world {
    bool is_worker;     /* the node is one itself, of this rank; else it is only where the others meet */
    bool is_rendezvous; /* they meet there */
    bool is_complete;   /* all have joined */
    uint32_t rank, world_size, joined;
    uint32_t threads_max,
        threads;                /* that run functions: while none waits for other workers, and made so far */
    uint32_t functions_running; /* calls of functions that run now, */
    uint32_t functions_blocked; /* of these: waiting for other workers */
    uint32_t functions_waiting; /* for a thread */
    uint64_t calls_served;      /* by the node, */
    uint64_t calls_failed;      /* of these: with an error, */
    uint64_t calls_refused;     /* of these: not run at all (no such function, wrong arguments) */
    uint64_t calls_made, calls_made_failed, calls_under_way; /* by the node's functions */
    uint64_t values_owned; /* of the node, that somebody has references to */
    uint64_t values_held;  /* references of the node to others' values */
    uint32_t dead_after_ms;
    uint64_t contexts_begun;   /* autograd contexts: by the node, and not ended, */
    uint64_t contexts_known;   /* all that the node knows and that have not ended, */
    uint64_t context_oldest_s; /* and the age of the oldest that the node has begun */
};
struct mr_world_member {
    char name[64]; /* "" until it has joined */
    uint32_t rank;
    bool has_joined, is_node, is_rendezvous, is_dead, has_left;
    char address[64]; /* "10.0.0.2:45321"; "" for the rendezvous itself */
};
struct mr_world_visitor {
    void (*member)(void *arg,
                   const struct mr_world_member *member); /* in the order of ranks; NULL: not wanted */
    void (*function)(void *arg, const char *line);        /* "name(arguments) -> results"; NULL: not wanted */
    void *arg;
};
/* `visitor` (NULL: not wanted) is called on this thread. MR_UNKNOWN_OP: the node takes no part in remote
 * calls. */
MR_API enum mr_status mr_world(struct mr_client *client, const struct mr_options *options,
                               struct mr_world *world, const struct mr_world_visitor *visitor);
/* The empty call, or tensors there and back: to measure. Reply: the same tensors. */
MR_API enum mr_status mr_echo(struct mr_client *client, const struct mr_options *options, uint32_t core,
                              const struct mr_tensor *tensors, uint32_t count, struct mr_reply **reply);

/* ---- the hub (a client created with the hub's address) ---- */

enum mr_sample_part { MR_PART_TRAIN = 0, MR_PART_HELD_OUT = 1 };
struct mr_sample_plan {
    const char *path;       /* on the hub's machine */
    const char *format;     /* "libsvm", "criteo", "flights" */
    uint32_t batch_samples; /* samples per batch */
    uint32_t epochs;
    uint64_t shuffle_seed; /* 0 = in file order */
    double held_out_share; /* 0..0.9; chosen at random by sample, by the seed */
    uint32_t part;         /* enum mr_sample_part */
    bool strict;           /* stop at the first broken line instead of counting it */
    /* another number starts afresh; the same plan and run goes on after what the server has learnt, also
     * after a restart of hub or server. Samples that changed since need another */
    uint32_t run;
    const char *table; /* table (by name) that the keys belong to, on the server the hub feeds */
};
struct mr_sample_info {
    uint64_t samples; /* of this part */
    uint32_t slots, dense;
    uint32_t stream;
    uint64_t batches; /* all epochs */
    uint64_t keys;    /* distinct */
    uint64_t broken_lines;
};
/* Starts reading; the first trainer's plan counts, the same again joins it, another is MR_ALREADY_STARTED
 * while the first is not at its end. A broken line in strict mode is MR_BAD_MESSAGE with file and line in
 * mr_last_error(). */
MR_API enum mr_status mr_start_sample(struct mr_client *hub, const struct mr_options *options,
                                      const struct mr_sample_plan *plan, struct mr_sample_info *info);

struct mr_batch {
    uint64_t id;
    uint32_t samples;
    uint32_t epoch;
    const float *dense;     /* [samples, dense] */
    const float *labels;    /* [samples] */
    struct mr_reply *reply; /* owns the views: mr_reply_free() */
};
/* The next batch, for this trainer alone. `done` (may be NULL) names batches that this trainer has pushed, or
 * will not push (read-only ones). MR_END_OF_DATA once everything is handed out and learnt, MR_NOT_READY when
 * there may be more later (other trainers' batches are not learnt yet, or the server is away). A trainer that
 * falls silent loses its batches to the others. */
MR_API enum mr_status mr_read_sample(struct mr_client *hub, const struct mr_options *options,
                                     const uint64_t *done, uint32_t done_count, struct mr_batch *batch);

struct mr_hub_status {
    uint64_t samples_read, batches_handed_out, batches_learnt, batches_handed_again, batches_expired,
        broken_lines;
    uint64_t trainers, batches_fed, batches_waiting, epoch;
    bool at_end;
};
MR_API enum mr_status mr_hub_status(struct mr_client *hub, const struct mr_options *options,
                                    struct mr_hub_status *status);

#ifdef __cplusplus
}
#endif
#endif
