/* libmillrace: the client of the Millrace parameter server.
 *
 * Conventions
 *   - Every function that can fail returns enum mr_status; outputs come through the last arguments and are
 *     untouched on failure. mr_status_text() explains a code, mr_last_error() says what happened where
 *     ("10.0.0.1:7700 core 0: ...").
 *   - Every call takes a struct mr_options: deadline, step, priority. NULL means the client's defaults.
 *   - Every call can be asynchronous: with options->future set it returns as soon as the request is queued,
 *     its reply argument is not used, and mr_future_wait() returns the outcome. Outputs other than replies
 *     (ids, counts, states) are written by mr_future_wait(), so they must stay valid until then. A call waits
 *     while the calls in flight use all of memory_bytes.
 *   - Calls make progress while some thread is inside the library; a client with a progress_thread needs no
 *     such thread.
 *   - With several cores, the first call that names a table or variable that this client did not create asks
 *     the node for its description and waits for the answer, even if the call is asynchronous.
 *   - When a server comes back with another number of cores, the client makes its lookups again, within their
 *     deadlines.
 *   - The cores of a cluster are counted over all its nodes. A call concerns the nodes that own its keys, so
 *     while one is away, calls for keys of the others go on. The client follows the cluster's map: calls that
 *     a node refuses by a newer one (MR_WRONG_OWNER) are made again within their deadlines, but for pushes
 *     without replay of which a part was applied (MR_UNKNOWN_OUTCOME), and for feeds, calls of variables and
 *     pushes without replay that have a future. Answers that come later than a node's lease reaches are
 *     asked for again. Calls that concern the whole cluster, such as mr_create() and mr_save(), go to the first node
 *     that answers.
 *   - Bags are CSR: keys[offsets[b] .. offsets[b+1]) is bag b, as torch.nn.EmbeddingBag takes them with
 *     include_last_offset=True. Tensors are dense and row-major. Floats are f32.
 *   - Handles are opaque and come in create/destroy pairs. There is no global state.
 *   - A client may be used from any number of threads at the same time; a future or a reply by one thread at
 *     a time.
 *   - Handles belong to the process that made them. After fork(), a call of the child with one ends with
 *     MR_FORKED at once and leaves the parent's alone; destroying one does nothing; replies that came before
 *     can be read. The child makes a client of its own. (Threads of the parent may be inside the library at
 *     the fork, so the child frees only the memory of replies.)
 *   - Inputs are read before a call returns, which is at once with a future; they may be reused then. Until
 *     then they stay as they are: a call that waits sends from where they lie.
 */
#ifndef MILLRACE_H
#define MILLRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "mr_feature.h"
#include "mr_histogram.h"
#include "mr_mark.h"
#include "mr_status.h"
#include "mr_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_API __attribute__((visibility("default")))

struct mr_client; /* connection to one node: a session per core */
struct mr_future; /* outcome of a call in flight */
struct mr_reply;  /* tensors that came back */

/* ---- clients ---- */

struct mr_client_options {
    /* "10.0.0.1:7700", "[fd00::1]:7700", "name:7700"; port 7700 when left out. Required. Of a cluster,
     * some or all of its nodes, with commas in between: whichever answers first names the others, and those
     * that are not found or not reached are passed over. Of a name with several addresses those are tried in
     * turn until one answers */
    const char *server;
    /* file with the pre-shared key: 64 hex digits. NULL: $MILLRACE_KEY_FILE, else no key. It is read again
     * when it has changed and the server does not answer, so keys may be rotated under a running client */
    const char *key_file;
    /* 32 hex digits that name this client across restarts. NULL: random. Only one process may use an id at a
     * time: two with the same id take the server's session from each other, and their calls fail */
    const char *client_id;
    uint32_t deadline_ms; /* default of every call; 0 = 10000 */
    uint32_t connect_ms;  /* mr_client_create waits this long for the server; 0 = 10000 */
    /* socket buffer asked for, per core; 0 = 4 MiB, cut to what the system allows */
    uint32_t receive_buffer_bytes;
    /* for requests and replies, per core; 0 = 256 MiB, enough for any message; only what is used takes
     * memory. A call whose reply finds no room (it needs more than half, or the caller holds other replies)
     * ends with MR_NO_MEMORY */
    uint32_t memory_bytes;
    uint32_t udp_bytes_max; /* largest UDP payload; 0 = from the route's MTU */
    /* a waiting call spins this long before it sleeps; UINT32_MAX = always spin; 0 = 50, and once more about
     * when a long answer is due, but not at all while others are found to want the processor */
    uint32_t busy_poll_us;
    /* Keep a copy of each gradient push until it is in a checkpoint on disk, and first send a server that was
     * restarted from a checkpoint the pushes that it lacks: each push is applied once. See docs/replay.md.
     * $MILLRACE_REPLAY, "on" or "off", overrides this. The copies end with the process: with `replay`, a
     * process that is started again is another client to the server, even under the same client_id */
    bool replay;
    /* for those copies, per core; 0 = 64 MiB. When it is full, the oldest answered pushes are dropped */
    uint32_t replay_bytes;
    bool progress_thread; /* a thread of the library moves calls on while the caller computes */
    /* do not use UDP segmentation offload (UDP_SEGMENT); also $MILLRACE_GSO=0. The client detects by itself
     * that its packets get lost with it, at the price of the first large request */
    bool no_offload;
    /* send each small call in a packet of its own, for measurements; also $MILLRACE_BUNDLE=0. Answers still
     * share packets unless the server's transport.bundle is off as well */
    bool no_bundle;
    /* Of a cluster: connected as soon as one of its nodes answers, for mr_cluster(). Calls for keys of the
     * others wait for them */
    bool any_node;
};

/* Connects to every core of the node, and of all nodes that own a part of the tables if it is in a
 * cluster. MR_UNREACHABLE (also when the server has another key: it does not answer a client that lacks
 * its key, and the text says so), MR_VERSION_MISMATCH (a server of another protocol version answers
 * there), MR_INVALID_ARGUMENT (address, key file, several servers that are in no cluster). On failure
 * `error` (may be NULL) gets one line that says what failed, where, and how to fix it. */
MR_API enum mr_status mr_client_create(const struct mr_client_options *options, struct mr_client **client,
                                       char *error, size_t error_bytes);
/* Ends the calls in flight with MR_CANCELLED and frees the client. Destroy its futures first; replies may
 * outlive it. NULL is fine. */
MR_API void mr_client_destroy(struct mr_client *client);
/* Returns one line about this thread's last failed call with any client, "" if none failed. It is valid until
 * the thread's next call. */
MR_API const char *mr_last_error(void);
/* Makes the process end with exit code 1 where it would have ended with 0: for code that learns of a failure
 * only while the process exits. */
MR_API void mr_fail_at_exit(void);
/* Returns how many cores the node has; in a cluster, all nodes that own a part of the tables together. */
MR_API uint32_t mr_client_core_count(const struct mr_client *client);
#define MR_CLIENT_CORES_MAX 16384u /* there are never more, also when nodes join */
#define MR_NODE_NAME_BYTES  64u
struct mr_core_place {
    uint32_t core;                 /* of that node, from 0 */
    char node[MR_NODE_NAME_BYTES]; /* its name in the cluster; "": it is in none */
};
/* Sets *place to where the client's `core`-th core is. False: there is no such core. */
MR_API bool mr_client_core_place(const struct mr_client *client, uint32_t core, struct mr_core_place *place);
/* Returns the number of the server's start, for people to read: it rises with each start on one checkpoint
 * directory, but may repeat on another directory, a wiped one, or none. In a cluster it is that of its first
 * node. */
MR_API uint32_t mr_client_incarnation(const struct mr_client *client);
/* Returns random bits that the server drew at its start: they differ after every restart, whatever happened
 * to its directory. In a cluster they differ after the restart of any node, and when nodes come or go. */
MR_API uint64_t mr_client_start_id(const struct mr_client *client);
/* Returns a file descriptor that is readable when mr_client_progress() has something to do, for the caller's
 * own event loop; -1 if there is none. */
MR_API int mr_client_fd(const struct mr_client *client);
/* Receives, sends and completes what it can without waiting. Returns the number of calls that ended. */
MR_API uint32_t mr_client_progress(struct mr_client *client);
/* Returns the milliseconds after which to call mr_client_progress() even if the descriptor is quiet; -1: no
 * need. */
MR_API int mr_client_timeout_ms(const struct mr_client *client);

struct mr_replay_info {
    bool on;
    bool replaying; /* a server restarted and does not have all pushes again yet */
    uint64_t kept;  /* pushes, counted per core */
    uint64_t kept_bytes;
    uint64_t oldest_step; /* of those kept; 0 when there are none */
    uint64_t replayed;    /* pushes sent again, and taken or known by the server, since the start */
    uint64_t given_up;    /* dropped for lack of room before they were known to be on disk */
    /* refused by the restarted server; they include batches that the hub hands out again */
    uint64_t dropped;
};
MR_API void mr_client_replay_info(const struct mr_client *client, struct mr_replay_info *info);

/* The result of a push. Each key and each range of a variable counts once; if a key is repeated, each of
 * its gradients that holds NaN or Inf counts by itself. `sent` is the sum of the other four, and is the
 * whole push if is_known. */
struct mr_pushed {
    /* false: a part was applied before this answer was made (the push was sent again after a restart, or its
     * batch had been applied already) and is missing from the numbers */
    bool is_known;
    uint64_t sent;
    uint64_t applied; /* rows and variables that the optimizer changed */
    uint64_t refused; /* a row was needed, but memory or the table's capacity was used up */
    /* the key has no row: never looked up, not admitted, refused at its lookup, evicted, or the node is
     * frozen */
    uint64_t without_row;
    uint64_t not_finite; /* NaN or Inf, or values that would have become so: these rows did not change */
};

struct mr_options {
    uint32_t deadline_ms; /* 0 = the client's default */
    uint8_t priority;     /* 0 = bulk .. 7 = first */
    /* the trainer's training step, kept by the server with each push; of a table with a dense optimizer, a
     * lookup sees rows as this step finds them */
    uint64_t step;
    /* of the gradients that this call pushes, 0 or more (at 0 rows stay as they are, but the optimizer's
     * state advances). Set has_learning_rate with it: without, a rate other than 0 is refused, and the
     * features' own rates and schedules apply */
    float learning_rate;
    bool has_learning_rate;
    /* the type of rows and their gradients on the wire: f32 (also for 0), f16, bf16, or i8 with a scale for
     * each row. Callers always see f32; docs/number-types.md says what precision is lost. A bag over several
     * cores loses it once per core. Variables are always f32 */
    enum mr_dtype wire_dtype;
    struct mr_future **future; /* not NULL: the call is asynchronous, and its future is stored here */
    /* the result of a push of gradients, as the cores count it; other calls leave it alone. NULL: not wanted,
     * and not asked for */
    struct mr_pushed *pushed;
    bool more; /* asynchronous: another call follows at once, and this one may wait to share its packet */
    /* lookups of rows by key: make no rows and leave no trace, for evaluation; works on a frozen node, too */
    bool read_only;
    /* [3], for hubs: the plan whose batches the stream has, in mr_feed_sample() and mr_batch_state(). Each
     * core compares it: with another plan the call fails with MR_ALREADY_STARTED, so that its batches do not
     * count as applied. NULL: a stream without a plan */
    const uint64_t *plan;
};

/* ---- futures and replies ---- */

/* Waits for the call to end, which it does by its deadline. On MR_OK, `*reply` receives the tensors, to be
 * freed with mr_reply_free(), or NULL if the whole answer is in the call's other outputs; `reply` may be NULL
 * if the answer is not wanted. May be called once. */
MR_API enum mr_status mr_future_wait(struct mr_future *future, struct mr_reply **reply);
/* Returns true once mr_future_wait() would not block. Makes progress itself. */
MR_API bool mr_future_done(struct mr_future *future);
/* Waits until mr_future_wait() would not block, but at most so long; returns whether that is so: for callers
 * that have something else to do, such as signals. */
MR_API bool mr_future_wait_for(struct mr_future *future, uint32_t timeout_ms);
/* Adds 1 to this eventfd when the call ends, or at once if it has ended: so an event loop notices calls that
 * other threads complete. mr_future_done() may still return false when the call has to be made again, at a
 * server that came back with other cores or at a new owner: then 1 is added again when to ask is of use. Of a
 * call that is larger than a message, 1 is added for each part in flight. -1: none any more. Keep the
 * descriptor open until then, or until the future is destroyed. */
MR_API void mr_future_notify(struct mr_future *future, int event_fd);
/* Frees the future; a call still in flight continues, and its outcome is dropped. */
MR_API void mr_future_destroy(struct mr_future *future);

MR_API uint32_t mr_reply_tensor_count(const struct mr_reply *reply);
/* Returns a view that is valid until the reply is freed; NULL if i is out of range. */
MR_API const struct mr_tensor *mr_reply_tensor(const struct mr_reply *reply, uint32_t i);
MR_API void mr_reply_free(struct mr_reply *reply); /* NULL is fine */

/* ---- features ---- */

/* Makes tables and variables on the node. A feature that exists with the same descriptor is fine; a different
 * descriptor under its name fails with MR_FEATURE_MISMATCH, and the error names feature and field. ids:
 * [count], the numbers by which calls name them. */
MR_API enum mr_status mr_create(struct mr_client *client, const struct mr_options *options,
                                const struct mr_feature *features, uint32_t count, uint32_t *ids);
/* Drops tables and variables, and parameters of remote calls that have names, all or none, with what they
 * have learnt. Parameters are in no later checkpoint. Tables and variables go for good: their numbers are
 * never used again, and a restart does not bring them back (restoring an earlier checkpoint by call does).
 * Calls that name them then end with MR_UNKNOWN_TABLE. MR_UNKNOWN_TABLE: the node lacks one;
 * MR_CHECKPOINT_RUNNING: a save is being written. Batches that were fed and not yet looked up are dropped. */
MR_API enum mr_status mr_drop(struct mr_client *client, const struct mr_options *options,
                              const char *const *names, uint32_t count);
/* Alters a table or variable while it serves: the options that differ between `before`, as mr_list() shows
 * it, and `after` change on all cores between two calls; others stay as they are. Learning rate and schedule,
 * the optimizer's arguments, weight decay, clipping, the arguments of admission and eviction, and limits can
 * be altered. MR_UNSUPPORTED: another one cannot, and the error says why; MR_UNKNOWN_TABLE: there is no
 * feature of that name. Altering is kept over a restart; a restore of a checkpoint by call brings back the
 * options in it. mr_create() of the feature as it was made goes on working. */
MR_API enum mr_status mr_alter(struct mr_client *client, const struct mr_options *options,
                               const struct mr_feature *before, const struct mr_feature *after);
/* Freezes the node. level: 0 off, 1 admit (no new rows), 2 all (read only). */
MR_API enum mr_status mr_freeze(struct mr_client *client, const struct mr_options *options, uint32_t level);

struct mr_feature_info {
    struct mr_feature feature;
    uint32_t id;
    uint64_t rows;  /* tables */
    uint64_t bytes; /* memory held for it */
    /* what was asked for and not done since the feature was made or restored: */
    uint64_t rows_refused;          /* rows that were not made: memory or the table's capacity was used up */
    uint64_t gradients_without_row; /* left out: their keys have no row */
    uint64_t gradients_skipped;     /* left out: NaN or Inf, or values that would have become so */
};
/* Lists all tables and variables, with what the nodes have that are there. The caller frees `*infos` with
 * free(). */
MR_API enum mr_status mr_list(struct mr_client *client, const struct mr_options *options,
                              struct mr_feature_info **infos, uint32_t *count);

/* ---- rows by key ----
 *
 * A call for more rows than a message holds (transport.message_mib_max of the server, or a quarter of the
 * client's memory_bytes if that is less) is made as several calls, of which a few are in flight at a time. It
 * is one call to its caller: one deadline, one outcome, one reply, one future, which is handed out once all
 * parts have been sent but the last few. A lookup is divided in its order, bags stay whole. A push is divided
 * by key, so the optimizer runs once for each, with the same bits as in one message. When a part of a push
 * fails no more are sent, and if others were applied, or may have been, the outcome is MR_UNKNOWN_OUTCOME;
 * mr_last_error() says how many were. With `replay`, parts that nobody answers are kept, and so are those
 * after them, so that the push is applied as a whole; what replay_bytes has no room for is not sent, and the
 * error says so. MR_TOO_LARGE, before anything is sent: a bag of a lookup, or what is pushed to a few keys,
 * is longer than a message. With a table that this client did not create, such a call asks the node for its
 * description first. A cluster's map that changes under it has it made again, or not, like calls that have a
 * future. */

/* Looks up rows by key. Reply: f32 [key_count, dim]. */
MR_API enum mr_status mr_lookup(struct mr_client *client, const struct mr_options *options, uint32_t table,
                                const uint64_t *keys, uint32_t key_count, struct mr_reply **reply);
/* Looks up bags. Reply: f32 [bag_count, dim], each bag reduced by the table's pooling: sum(w * x) / divisor,
 * where the divisor is 1 (sum), sum(w) (mean) or sqrt(sum(w^2)) (sqrtn), as in TensorFlow's
 * embedding_lookup_sparse (torch's EmbeddingBag allows weights with sums only). weights: one for each key,
 * finite, zero and negative ones included; NULL: all are 1. A bag whose divisor is 0 is all zeros, and its
 * keys get a gradient of zeros. offsets: [bag_count + 1]. */
MR_API enum mr_status mr_lookup_bags(struct mr_client *client, const struct mr_options *options,
                                     uint32_t table, const uint64_t *keys, const float *weights,
                                     const uint32_t *offsets, uint32_t bag_count, struct mr_reply **reply);
/* Pushes gradients, [key_count, dim]. Gradients of repeated keys are summed, then the optimizer runs once per
 * key. A push is applied at most once. MR_UNKNOWN_OUTCOME: the server was lost before it answered; the error
 * names the step. With `replay`, such a push is still applied once, so do not push it again, unless
 * mr_last_error() says that it was not sent: that error reports, once, that pushes of earlier steps are lost.
 * MR_BUSY: all its cores refused it until its deadline; it was not applied, and may be pushed again. */
MR_API enum mr_status mr_push_gradients(struct mr_client *client, const struct mr_options *options,
                                        uint32_t table, const uint64_t *keys, uint32_t key_count,
                                        uint32_t dim, const float *gradients);
/* Pushes gradients of bags' reduced values, [bag_count, dim]. Each key gets the gradient of its bag, divided
 * by the bag's divisor and multiplied by its weight: the same bits on any number of cores. weights: those that
 * the lookup had; NULL: all are 1. */
MR_API enum mr_status mr_push_gradients_bags(struct mr_client *client, const struct mr_options *options,
                                             uint32_t table, const uint64_t *keys, const float *weights,
                                             const uint32_t *offsets, uint32_t bag_count, uint32_t dim,
                                             const float *gradients);

/* Sets rows, whatever the table's optimizer. rows: [key_count, row_floats]; a row has the table's dim values,
 * and with has_state behind them the optimizer's state, as mr_get_rows() gives it: docs/optimizers.md lists
 * the floats of each optimizer. Without has_state the state becomes that of a new row. Keys without a row get
 * one, also where the table's admission would not, but not on a frozen node or beyond the table's limits. Of
 * a repeated key the last row counts; a row that holds NaN or Inf is left out. Rows of f16 and bf16 are
 * rounded to nearest, and clamped to the type's largest number. The call is a push: it is applied in the
 * order of this client's pushes, at most once, and with `replay` once; options->pushed has what became of it.
 * wire_dtype and learning_rate are refused. MR_WRONG_DIM: row_floats does not fit the table. */
#define MR_STORED_ROW_FLOATS_MAX (3 * MR_DIM_MAX + 2)
MR_API enum mr_status mr_set_rows(struct mr_client *client, const struct mr_options *options, uint32_t table,
                                  const uint64_t *keys, uint32_t key_count, uint32_t row_floats,
                                  bool has_state, const float *rows);
/* Reads rows as they are stored: makes none and leaves no trace, also on a frozen node. Reply: f32
 * [key_count, n], of each key the dim values, with with_state the optimizer's state, and at last 1, or 0 if
 * the key has no row; then the rest is what a new row would have. A float of the state may hold the bits of
 * a u32 (the number of updates of adam and adamw). A row and its state are of the same moment. wire_dtype is
 * refused. */
MR_API enum mr_status mr_get_rows(struct mr_client *client, const struct mr_options *options, uint32_t table,
                                  const uint64_t *keys, uint32_t key_count, bool with_state,
                                  struct mr_reply **reply);

/* What a call is about in one of its tables: keys, or bags of keys. */
struct mr_table_keys {
    uint32_t table;
    uint32_t key_count; /* without offsets; with them there are offsets[bag_count] keys */
    const uint64_t *keys;
    const uint32_t *offsets; /* [bag_count + 1]; NULL: no bags, a row for each key */
    const float *weights;    /* of keys in bags, as in mr_lookup_bags(); NULL: all are 1 */
    uint32_t bag_count;
};
/* Looks up rows and bags of several tables with one call, so that a step waits once. Reply: for each table,
 * in this order, f32 [key_count or bag_count, dim], as the calls for one table have it. Each core gets one
 * message with what it owns of all tables, or more when one would have more than 32 tables or be longer than
 * some MB. A table may be there several times. When it fails for one table it fails for all. */
MR_API enum mr_status mr_lookup_tables(struct mr_client *client, const struct mr_options *options,
                                       const struct mr_table_keys *tables, uint32_t table_count,
                                       struct mr_reply **reply);

/* The gradients of one table in a push: [key_count, dim], or of bags' reduced values [bag_count, dim]. */
struct mr_table_gradients {
    struct mr_table_keys of;
    uint32_t dim;
    const float *gradients;
};
/* Pushes gradients of several tables with one call; each table is there once. Each core applies what a
 * message has for it, or nothing; messages are as in mr_lookup_tables(), but a client with `replay` sends one
 * for each table. Each table's gradients are applied at most once, as by mr_push_gradients(). */
MR_API enum mr_status mr_push_gradients_tables(struct mr_client *client, const struct mr_options *options,
                                               const struct mr_table_gradients *tables, uint32_t table_count);

/* ---- batches ---- */

/* One table's keys of a batch: bag (sample s, slot j) is keys[offsets[s * slots + j] .. offsets[s * slots + j
 * + 1]). */
struct mr_batch_keys {
    uint32_t table;
    uint32_t samples, slots;
    const uint64_t *keys;
    const uint32_t *offsets; /* [samples * slots + 1] */
    const float *weights;    /* of the keys, as in mr_lookup_bags(); NULL: all are 1 */
};
/* Feeds a batch, as hubs do: the server looks the rows up now and keeps the result for mr_lookup_batch().
 * read_only: no rows are made, and the batch is dropped after its lookup (evaluation). MR_BATCH_CACHE_FULL:
 * feed it again later. Feeding an id twice is fine. */
MR_API enum mr_status mr_feed_sample(struct mr_client *client, const struct mr_options *options,
                                     uint64_t batch_id, const struct mr_batch_keys *tables,
                                     uint32_t table_count, bool read_only);
/* Looks up a batch that was fed. Reply: f32 [samples, slots, dim], each bag pooled. MR_UNKNOWN_BATCH,
 * MR_BATCH_EXPIRED. */
MR_API enum mr_status mr_lookup_batch(struct mr_client *client, const struct mr_options *options,
                                      uint64_t batch_id, uint32_t table, struct mr_reply **reply);

/* The gradient of one feature in a batch: of a table's lookup result [samples, slots, dim], or of a variable
 * (its shape). */
struct mr_batch_gradient {
    uint32_t feature;
    struct mr_tensor gradient; /* f32 */
};
/* Pushes the gradients of a batch. They are applied exactly once per batch id, whoever pushes it and however
 * often. `*applied` (may be NULL): false if the node had applied this batch before, which is no error. Each
 * core applies all features or none. */
MR_API enum mr_status mr_push_gradients_batch(struct mr_client *client, const struct mr_options *options,
                                              uint64_t batch_id, const struct mr_batch_gradient *gradients,
                                              uint32_t count, bool *applied);
/* Drops what the server has cached for these batches. */
MR_API enum mr_status mr_forget_batches(struct mr_client *client, const struct mr_options *options,
                                        const uint64_t *batch_ids, uint32_t count);
/* Returns which batches of a stream every core has applied: all sequence numbers below *watermark, and
 * *watermark + i where bit i % 64 of (*bitmap)[i / 64] is set. The caller frees `*bitmap` with free(). */
MR_API enum mr_status mr_batch_state(struct mr_client *client, const struct mr_options *options,
                                     uint32_t stream, uint64_t *watermark, uint64_t **bitmap,
                                     uint32_t *bitmap_words);

/* What the node knows of a stream. */
struct mr_stream {
    uint32_t stream;
    bool differs;     /* the cores have different plans for it */
    uint64_t plan[3]; /* all 0: no plan; all UINT64_MAX: from a checkpoint that does not record plans */
    uint64_t learnt;  /* batches, on the core that has the fewest */
    uint64_t twice;   /* how often a core applied a batch a second time: 0, unless something is wrong */
    uint64_t used;    /* rises with use: of two streams, the one with the higher value was used later */
};
/* Lists the streams of batches that any core has a record of, by number. The caller frees `*streams` with
 * free(). */
MR_API enum mr_status mr_streams(struct mr_client *client, const struct mr_options *options,
                                 struct mr_stream **streams, uint32_t *count);
/* Drops all that the node knows of these streams: a plan whose stream is forgotten is trained on from its
 * start again. MR_ALREADY_STARTED: one of them is in use, and that core drops nothing. Unknown streams are
 * fine. */
MR_API enum mr_status mr_forget_streams(struct mr_client *client, const struct mr_options *options,
                                        const uint32_t *streams, uint32_t count);

/* ---- variables ---- A large one is split into ranges, spread over cores and nodes (range_values in
 * struct mr_feature). A call reaches all owners at once, and returns when all have answered. */

/* Sets a variable, or a range of its elements in row-major order; count 0: all. */
MR_API enum mr_status mr_variable_push(struct mr_client *client, const struct mr_options *options,
                                       uint32_t variable, uint64_t first, uint64_t count,
                                       const float *values);
/* Reads a variable, or a range of its elements, as above. Reply: f32 [count]. */
MR_API enum mr_status mr_variable_pull(struct mr_client *client, const struct mr_options *options,
                                       uint32_t variable, uint64_t first, uint64_t count,
                                       struct mr_reply **reply);
/* Runs the optimizer with this gradient (the variable's shape, `count` elements). */
MR_API enum mr_status mr_variable_push_gradient(struct mr_client *client, const struct mr_options *options,
                                                uint32_t variable, uint64_t count, const float *gradient);

/* ---- the node ---- */

/* Starts a checkpoint and returns its id; training continues. directory NULL: the server's configured one. If
 * the server was restarted, a client with `replay` first waits until every core has its pushes again, even if
 * the call is asynchronous. If it is restarted during the call, a client with `replay` asks for the save
 * again; an asynchronous call ends with MR_UNKNOWN_OUTCOME instead, as that of a client without `replay`
 * does. */
MR_API enum mr_status mr_save(struct mr_client *client, const struct mr_options *options,
                              const char *directory, uint64_t *checkpoint_id);
/* Replaces all features and rows by those of a checkpoint (id 0: the newest that verifies). Returns when that
 * is done. On failure the node keeps serving what it served before. */
MR_API enum mr_status mr_restore(struct mr_client *client, const struct mr_options *options,
                                 const char *directory, uint64_t id, uint64_t *checkpoint_id);

/* A table, variable or parameter of a checkpoint, and the name that it gets. */
struct mr_restore_name {
    const char *name;
    const char *new_name; /* NULL: the same */
};
struct mr_restore_options {
    size_t bytes;          /* sizeof(struct mr_restore_options) */
    const char *directory; /* on the server's machine; NULL: the configured one */
    uint64_t id;           /* 0: the newest that verifies */
    /* [name_count] features to take out of the checkpoint and add to those of the node: all of them, or none.
     * A name that the node has already is refused, unless `replace` is set: then the feature is replaced. A
     * name that no feature of the checkpoint has may be that of a parameter of remote calls. It comes with
     * the states of optimizers beside it, unless it gets another name.
     * Other features, and what the node knows of batches, clients and pushes, stay as they are, and calls for
     * them are answered meanwhile. New features get numbers of their own, which mr_list() and mr_create()
     * return; one that replaces another keeps its number. NULL and 0: the whole checkpoint replaces all that
     * the node holds */
    const struct mr_restore_name *names;
    uint32_t name_count;
    bool replace;
};
/* The result of a restore. */
struct mr_restored {
    size_t bytes;    /* sizeof(struct mr_restored), set by the caller */
    uint64_t id;     /* of the checkpoint */
    uint64_t step;   /* of training at its cut; 0: calls carried no step */
    bool is_at_step; /* it holds all pushes up to `step` and none after: trainers continue with step + 1 */
    uint32_t tables, variables; /* taken out of it */
    uint32_t parameters;        /* of remote calls */
};
/* Restores all or some features of a checkpoint. `what` NULL: all of the newest that verifies; restored: may
 * be NULL. */
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

/* ---- saves with options ---- */

enum mr_save_kind {
    MR_SAVE_CONFIGURED = 0, /* full or delta, as checkpoint.deltas and the keys beside it say */
    MR_SAVE_FULL = 1,
    MR_SAVE_DELTA = 2,   /* MR_INVALID_ARGUMENT if no delta is possible; the text says why */
    MR_SAVE_PARTIAL = 3, /* of single tables and variables; only reported, `names` asks for it */
};
struct mr_save_options {
    size_t bytes;          /* sizeof(struct mr_save_options) */
    const char *directory; /* on the server's machine; NULL: the configured one */
    enum mr_save_kind kind;
    /* not 0: the checkpoint holds all pushes up to this step, and none after. Trainers have to train in step,
     * each waiting for its pushes of a step before it makes calls of the next, and to set the step of each
     * call. See docs/checkpoints.md */
    uint64_t step;
    /* how many trainers (clients) a step has. 0: checkpoint.trainers if there is a step; else the cut is made
     * at once. Not 0 and no step: the cut is made at the step that training has reached */
    uint32_t trainers;
    bool queue; /* while another save runs: wait for its end instead of failing with MR_CHECKPOINT_RUNNING */
    /* Tables, variables and parameters of remote calls to save; without names, everything. Such a checkpoint
     * is partial: it goes to the folder `partial` of the directory, where it has a number of its own, and
     * mr_checkpoint_restore() takes from it by name. A start does not restore it, deltas do not build on it,
     * and it does not hold pushes for `replay`. */
    const char *const *names;
    uint32_t name_count;
};
/* Starts or queues a save and returns its number at once; training continues. The numbers count the saves of
 * the server since its start; mr_checkpoint_info() reports how a save ended. save NULL: everything as
 * configured. With `replay`: as mr_save(). */
MR_API enum mr_status mr_checkpoint_save(struct mr_client *client, const struct mr_options *options,
                                         const struct mr_save_options *save, uint64_t *number);

/* Cancels the save with this number: one that waits for its step or for another save, or one that is being
 * written. On MR_OK nothing is left of it, and its status is MR_CANCELLED. MR_INVALID_ARGUMENT: it has ended
 * already, and mr_last_error() says how; MR_CHECKPOINT_NOT_FOUND: no save among the last 32 has that number.
 */
MR_API enum mr_status mr_checkpoint_cancel(struct mr_client *client, const struct mr_options *options,
                                           uint64_t number);

enum mr_save_state {
    MR_SAVE_ENDED = 0, /* its status says how */
    MR_SAVE_WRITING = 1,
    MR_SAVE_WAITS_FOR_STEP = 3,
    MR_SAVE_QUEUED = 4, /* waits for another save */
};
/* The copy of a checkpoint in checkpoint.remote. */
enum mr_save_remote {
    MR_REMOTE_NONE = 0, /* it is not copied: there is no store, it is in another directory, or it failed */
    MR_REMOTE_PENDING = 1,
    MR_REMOTE_THERE = 2,
    MR_REMOTE_SUPERSEDED = 3, /* it was removed from the disk before it was copied; a newer one is there */
};
struct mr_save_info {
    uint64_t number;
    enum mr_save_state state;
    bool is_automatic, is_at_step;
    uint64_t id;            /* of the checkpoint; 0 until its cut is made */
    enum mr_save_kind kind; /* of it; MR_SAVE_CONFIGURED until then */
    uint64_t parent_id;     /* of a delta */
    uint64_t step;          /* of training at its cut; until then, the step that it waits for */
    uint64_t bytes, duration_us;
    enum mr_status status; /* once it has ended */
    char error[256];
    /* when it was published in its directory, and when its copy was published in checkpoint.remote, by the
     * server's clock in milliseconds since 1970; 0: not yet, or never */
    uint64_t committed_ms, remote_ms;
    enum mr_save_remote remote;
};
struct mr_checkpoint_info {
    size_t bytes;  /* sizeof(struct mr_checkpoint_info), set by the caller */
    uint64_t step; /* that training has reached, by the steps of calls that train; outliers do not count */
    uint64_t restored_id; /* the checkpoint that the server was restored from; 0: none */
    uint64_t restored_step;
    /* trainers may continue with step restored_step + 1, and training repeats to the last bit */
    bool restored_is_at_step;
    uint64_t last_good_id, last_good_step; /* of the last save that was published; 0: none yet */
    uint64_t saves_queued;
    uint64_t waiting_step; /* a save waits for this step; 0: none does */
    uint64_t trainers_held, trainers_awaited;
};
/* Fills `info` (may be NULL), and calls `visit` (may be NULL) on this thread for the save with this number,
 * or with number 0 for all saves that the server still knows, the oldest first. MR_CHECKPOINT_NOT_FOUND: no
 * save among the last 32 has that number. */
MR_API enum mr_status mr_checkpoint_info(struct mr_client *client, const struct mr_options *options,
                                         uint64_t number, struct mr_checkpoint_info *info,
                                         void (*visit)(void *arg, const struct mr_save_info *save),
                                         void *arg);

#define MR_NODE_WHY_BYTES 256u
struct mr_core_state {
    uint32_t core;
    /* 1 serving, 2 saving, 3 restoring, 4 stopping, 5 serving a checkpoint read only, 6 failed: it serves
     * nothing, as `why` says */
    uint32_t state;
    uint32_t incarnation;
    uint64_t uptime_us;
    double busy_share; /* 0..1, of the last second */
    uint64_t last_step;
    uint64_t cached_batches, rows, memory_bytes;
    uint64_t rtt_us; /* as the client sees it */
    /* what was asked for and not done since the server's start; the first three over all features, as in
     * struct mr_feature_info: */
    uint64_t rows_refused, gradients_without_row, gradients_skipped;
    uint64_t steps_ignored;      /* calls whose step was too far from that of other calls to count */
    char why[MR_NODE_WHY_BYTES]; /* of one that failed; else "" */
};
/* Reports the state of each core. states: [mr_client_core_count()], or [MR_CLIENT_CORES_MAX] where nodes
 * may join meanwhile. If cores do not answer, that is the outcome, and their `state` is 0; those of the
 * others are set. */
MR_API enum mr_status mr_heartbeat(struct mr_client *client, const struct mr_options *options,
                                   struct mr_core_state *states);
/* Calls `visit`, on this thread, with every counter of one core, in a fixed order. */
MR_API enum mr_status mr_stats(struct mr_client *client, const struct mr_options *options, uint32_t core,
                               void (*visit)(void *arg, const char *name, uint64_t value), void *arg);
/* Calls `visit`, on this thread, with every histogram of how long calls to one core have taken since its
 * start: by operation ("lookup", "push_grad", ...; protocol.md lists them) and phase: "wait", from the
 * arrival of the last of a request until its work begins; "work", until its answer is there; "send", until
 * the last of that has gone to the port. In bursts one call in eight is timed, and counts for eight. The
 * histogram of a window: mr_histogram_subtract() what was there before; of several cores:
 * mr_histogram_merge(). A histogram is valid until `visit` returns. */
MR_API enum mr_status mr_latencies(struct mr_client *client, const struct mr_options *options, uint32_t core,
                                   void (*visit)(void *arg, const char *op, const char *phase,
                                                 const struct mr_histogram *histogram),
                                   void *arg);
/* Does the same with how long this client's own calls took, each from the call to its last answer, to all
 * cores that it went to, and for a thread that waits for that until it goes on. Calls that got no answer are
 * not in it. */
MR_API enum mr_status mr_client_latencies(struct mr_client *client,
                                          void (*visit)(void *arg, const char *op,
                                                        const struct mr_histogram *histogram),
                                          void *arg);
/* Calls `visit`, on this thread, with what the node of this core is: its configuration ("config.port.mtu")
 * and what it runs on ("machine.kernel", "dpdk"). The strings are valid until `visit` returns. Needs the role
 * operator. */
MR_API enum mr_status mr_facts(struct mr_client *client, const struct mr_options *options, uint32_t core,
                               void (*visit)(void *arg, const char *name, const char *value), void *arg);
/* Marks this time for recordings (millrace perf record): a line of UTF-8, at most 143 bytes, such as
 * "epoch 3". The node keeps its last 256 marks. Core 0. MR_INVALID_ARGUMENT. */
MR_API enum mr_status mr_mark(struct mr_client *client, const struct mr_options *options, const char *text);
/* Calls `visit`, on this thread, with the marks after number `since` of the node that has the core, the
 * oldest first: those that clients set, and, for operators, what the node's log says at level info and above.
 * A mark is valid until `visit` returns. Writes the number of the newest, and how many after `since` were
 * forgotten before they were read. `visit`, `last` and `missed` may be NULL. */
MR_API enum mr_status mr_marks(struct mr_client *client, const struct mr_options *options, uint32_t core,
                               uint64_t since, uint64_t *last, uint64_t *missed,
                               void (*visit)(void *arg, const struct mr_mark *mark), void *arg);
/* A call that a core has served. Its time goes from the arrival of the last of its request until the last of
 * its answer has gone to the port, or until the client wants it no more. The phases are those of
 * mr_latencies(), but for a long call that waits for its turn behind others: that is wait here, and work
 * there. */
struct mr_recent_call {
    uint64_t number;     /* from 1, in the order in which the core's calls were over */
    uint64_t arrived_ns; /* by the core's clock: mr_recent_calls_state.now_ns */
    uint64_t total_ns;
    bool is_timed; /* phases are known; in bursts they are of one call in eight */
    uint64_t wait_ns, work_ns, send_ns;
    const char *op;  /* "lookup", ... */
    uint32_t status; /* enum mr_status of the answer */
    uint32_t table;  /* id; 0: none, or several */
    uint32_t keys;   /* of lookups and pushes by key, and of feeds; else 0 */
    uint32_t request_bytes, reply_bytes;
    char client[64]; /* its address, "10.0.0.7:41000" */
};
struct mr_recent_calls_state {
    uint64_t next;   /* position of what follows */
    uint64_t lost;   /* calls before those visited that the core no longer had */
    uint64_t left;   /* calls that follow those visited, and can be read */
    uint64_t now_ns; /* the core's clock */
    uint64_t calls;  /* of this core, since its start */
    uint64_t slow;   /* of these: that were slow when they were over */
};
#define MR_RECENT_CALLS_FROM_NOW UINT64_MAX
/* Calls `visit`, on this thread, with the last calls of a core, the oldest first: up to 256 from `position`
 * on, of the last 512. slow_ns > 0: instead with those that took so long or longer, with up to 8 calls before
 * and 4 after each. The core selects them, and keeps the last 512, from the first such question on until none
 * has come for 10 s; of several readers the smallest span counts. position: 0, or MR_RECENT_CALLS_FROM_NOW to
 * see only what comes, then `next` of the answer before. `state` may be NULL. Needs the role operator. */
MR_API enum mr_status mr_recent_calls(struct mr_client *client, const struct mr_options *options,
                                      uint32_t core, uint64_t slow_ns, uint64_t position,
                                      struct mr_recent_calls_state *state,
                                      void (*visit)(void *arg, const struct mr_recent_call *call), void *arg);
/* How far a server's or hub's clock (CLOCK_MONOTONIC of its machine) is ahead of this process's. */
struct mr_clock_offset {
    /* names of the two clocks: equal exactly when they are one, as within one machine; then offset_ns and
     * error_ns are 0 */
    uint64_t own_clock, peer_clock;
    uint64_t at_ns;    /* own time of the exchange */
    int64_t offset_ns; /* the peer's clock minus the own one */
    uint64_t error_ns; /* offset_ns is wrong by at most that: half the round trip */
};
#define MR_CLOCK_EXCHANGES 8
/* Measures that for a core's node, as NTP does (RFC 5905, section 8): of MR_CLOCK_EXCHANGES requests the one
 * with the shortest round trip counts. With options->future it is one request, and the round trip ends when
 * the future is waited for. Clocks drift: a program that runs for long asks now and then. MR_UNKNOWN_OP of a
 * server or hub that is too old. */
MR_API enum mr_status mr_clock_offset(struct mr_client *client, const struct mr_options *options,
                                      uint32_t core, struct mr_clock_offset *out);
/* Writes what this client counts as a file of Prometheus's text format, for node_exporter's textfile
 * collector (its directory, a name that ends with ".prom"): counters of its links, replay, and how long
 * its calls took. Whoever reads the file sees this text or the one before. `name` tells clients apart, by the
 * label `client`; NULL: the program and its process number. MR_IO_ERROR. */
MR_API enum mr_status mr_client_write_metrics(struct mr_client *client, const char *path, const char *name);
/* How a core uses its memory. */
struct mr_core_memory {
    uint64_t limit_bytes;     /* for tables and variables; never exceeded */
    uint64_t mapped_bytes;    /* of limit_bytes: taken from the kernel, in units of 2 MiB */
    uint64_t allocated_bytes; /* of mapped_bytes: used by tables and variables with their indexes */
    uint64_t ahead_bytes;     /* of mapped_bytes: prepared before it is needed */
    uint64_t units_failed;    /* units that the machine had no memory for */
    /* the same for fed batches and records; not part of the above */
    uint64_t batch_limit_bytes, batch_mapped_bytes;
    uint64_t batch_bytes; /* batches kept now */
    uint64_t variable_bytes;
    uint64_t scratch_bytes;    /* working memory of pushes, outside the limits; grows with the largest push */
    uint64_t checkpoint_bytes; /* buffers of a running checkpoint, outside the limits */
};
/* How a table uses memory: index + values + state + slack + filter is all that it takes. */
struct mr_table_memory {
    uint32_t id;
    uint64_t rows;
    uint64_t index_bytes, values_bytes, state_bytes;
    uint64_t slack_bytes; /* free places, padding, and whatever else is kept per row */
    uint64_t filter_bytes;
    uint64_t limit_bytes; /* of the table on the whole node; 0: only the node's limit */
};
/* Reports the memory of one core. `visit` is called on this thread for each table, in the order of ids; NULL:
 * not wanted. */
MR_API enum mr_status mr_memory(struct mr_client *client, const struct mr_options *options, uint32_t core,
                                struct mr_core_memory *memory,
                                void (*visit)(void *arg, const struct mr_table_memory *table), void *arg);
/* The cluster that a node is a member of, as that node knows it. */
struct mr_cluster_state {
    uint64_t epoch;         /* of its map; 0: the node has none yet */
    uint32_t node_count;    /* 0 with epoch 0; both are 0 also for a node that is in no cluster */
    uint32_t self;          /* which of them answered; UINT32_MAX: the map lacks it */
    uint32_t without_owner; /* partitions, of 4096, that have not been given out */
    uint32_t outside;       /* nodes that have a session with ZooKeeper and are not in the map */
    uint64_t lease_us;      /* for so long a node serves after ZooKeeper has confirmed it */
    uint64_t lease_left_us; /* of the node that answered; 0: it serves nothing now */
    bool is_member;
};
struct mr_cluster_member {
    const char *name, *address; /* valid during the visit */
    uint32_t core_count;
    uint32_t partitions; /* of 4096, that it owns */
    bool is_present;     /* it has a session with ZooKeeper */
    uint64_t start_id;
    const char *version; /* "0.3.0+1a2b3c4d", "before 0.3.0"; valid during the visit */
};
/* Reports the cluster. `visit` is called on this thread for each node, in the order of the map; NULL: not
 * wanted. */
MR_API enum mr_status mr_cluster(struct mr_client *client, const struct mr_options *options,
                                 struct mr_cluster_state *state,
                                 void (*visit)(void *arg, const struct mr_cluster_member *node), void *arg);

/* Changes which node of a cluster owns what, while training goes on. */
enum mr_move_request_kind {
    MR_REQUEST_MOVE = 1,     /* `count` partitions from one node to another */
    MR_REQUEST_DRAIN,        /* all of `from` to the other nodes; it gets none before a rebalance */
    MR_REQUEST_REBALANCE,    /* until each node has as many as its cores are, drained ones included */
    MR_REQUEST_CANCEL_MOVES, /* moves in progress, and what would follow from a drain or a rebalance */
    MR_REQUEST_FORGET_NODE   /* `from`, which is away and owns nothing, leaves the map */
};
struct mr_move_request {
    enum mr_move_request_kind kind;
    const char *from, *to; /* names of nodes; NULL where none is wanted */
    bool has_first;        /* partitions `first` .. first + count - 1 of the map; else any */
    uint32_t first, count; /* count 0: all */
    uint32_t mib_s;        /* at most; 0: as the nodes are configured */
    uint64_t id;           /* of the move to cancel; 0: all */
};
/* Returns once the cluster's map says so; the moves themselves go on. mr_moves() and mr_cluster() of this
 * client show no older map from then on, whichever node answers. MR_INVALID_ARGUMENT: there is no such node,
 * it is away, or it has nothing to move; mr_last_error() says which. Idempotent, except without has_first: a
 * repeat starts additional moves. */
MR_API enum mr_status mr_move(struct mr_client *client, const struct mr_options *options,
                              const struct mr_move_request *request);
struct mr_moves_state {
    uint64_t epoch;   /* of the cluster's map */
    uint32_t count;   /* moves in progress */
    uint32_t drained; /* nodes that are to have no partitions */
    bool balances;    /* the leader begins more moves */
};
enum mr_moving_state { MR_MOVING_WAITS, MR_MOVING_COPIES, MR_MOVING_ENDS };
struct mr_moving {
    uint64_t id;
    const char *from, *to; /* valid during the visit */
    uint32_t first, count; /* places of the map, and partitions */
    uint32_t mib_s;        /* at most; 0: as the taker is configured */
    enum mr_moving_state state;
    uint64_t rows, bytes; /* so far, as of a second ago; rows that changed meanwhile count again */
    uint64_t left_bytes;  /* about */
    uint64_t us;          /* since it began */
};
/* Reports the moves in progress. `visit` is called on this thread for each; NULL: not wanted. */
MR_API enum mr_status mr_moves(struct mr_client *client, const struct mr_options *options,
                               struct mr_moves_state *state,
                               void (*visit)(void *arg, const struct mr_moving *move), void *arg);

/* Packets that a core receives and sends, copied as they pass: `millrace capture`. */
enum mr_capture_request_kind {
    MR_REQUEST_CAPTURE_START = 1,
    MR_REQUEST_CAPTURE_READ,
    MR_REQUEST_CAPTURE_HALT, /* a read after which the core records no more; what it has can be read */
    MR_REQUEST_CAPTURE_END
};
struct mr_capture_request {
    enum mr_capture_request_kind kind;
    uint64_t id;       /* random bits, not 0: the capture's */
    uint64_t position; /* to read: 0 at first, then `next` of the answer before */
    /* the rest to start: */
    const char *who;        /* named to others who are refused meanwhile, below 96 bytes; NULL: nobody */
    const char *peer;       /* only packets from and to "10.0.0.7" or "10.0.0.7:41000"; NULL: all */
    const char *const *ops; /* [op_count] only packets of calls of these operations, "lookup", ... */
    uint32_t op_count;      /* 0: all packets */
    uint32_t snap_bytes;    /* recorded of each packet, 64..16384; 0: 512 */
    uint32_t ring_kib;      /* of the core's memory for packets that have not been read; 0: 8192 */
    uint32_t idle_ms;       /* the capture ends when nobody reads it for so long, up to 60000; 0: 10000 */
};
struct mr_captured {
    uint64_t time_ns;     /* since 1970, by the server's clock */
    const uint8_t *bytes; /* valid during the visit */
    uint32_t captured_bytes, packet_bytes;
    uint32_t lost; /* packets for which there was no room, between the one before and this one */
    bool is_sent;  /* by the core; otherwise it was received */
};
struct mr_capture_state {
    uint64_t next;         /* position of what follows */
    uint64_t left_bytes;   /* recorded and not read; 0 after a halt: that was all */
    uint64_t seen, wanted; /* packets that passed but for the caller's own, and that the filter let through */
    uint64_t lost;         /* of `wanted`: for which there was no room */
    uint32_t link_type;    /* as pcap numbers them: 1 Ethernet, 101 IP */
    uint32_t snap_bytes;
    /* of the server, to start only */
    char machine[128], system[256], program[64], port[128];
};
/* Starts, reads or ends a capture on one core, which records for one caller at a time: MR_ALREADY_STARTED,
 * and mr_last_error() says for whom. MR_INVALID_ARGUMENT: the core has no such capture (any more), or an
 * option is wrong. The client's own packets to that core are left out. `state` may be NULL; `visit` is called
 * on this thread for each packet that was read; NULL: not wanted. To be repeated safely. */
MR_API enum mr_status mr_capture(struct mr_client *client, const struct mr_options *options, uint32_t core,
                                 const struct mr_capture_request *request, struct mr_capture_state *state,
                                 void (*visit)(void *arg, const struct mr_captured *packet), void *arg);

/* The world of workers that a node takes part in, as the node knows it (see millrace_rpc.h). */
struct mr_world {
    bool is_worker;     /* the node is a worker itself, of this rank; else the others only meet there */
    bool is_rendezvous; /* the workers meet there */
    bool is_complete;   /* all have joined */
    uint32_t rank, world_size, joined;
    uint32_t threads_max;       /* that run functions, while none of them waits for other workers */
    uint32_t threads;           /* made so far */
    uint32_t functions_running; /* calls of functions that run now */
    uint32_t functions_blocked; /* of functions_running: those that wait for other workers */
    uint32_t functions_waiting; /* calls that wait for a thread */
    uint64_t calls_served;      /* by the node */
    uint64_t calls_failed;      /* of calls_served: ended with an error */
    uint64_t calls_refused;     /* of calls_failed: not run at all (no such function, wrong arguments) */
    uint64_t calls_made, calls_made_failed, calls_under_way; /* by the node's functions */
    uint64_t values_owned; /* values of the node that somebody holds references to */
    uint64_t values_held;  /* references of the node to values of others */
    uint32_t dead_after_ms;
    uint64_t contexts_begun;   /* autograd contexts that the node has begun and that have not ended */
    uint64_t contexts_known;   /* all autograd contexts that the node knows and that have not ended */
    uint64_t context_oldest_s; /* age of the oldest that the node has begun */
};
struct mr_world_member {
    char name[64]; /* "" until it has joined */
    uint32_t rank;
    bool has_joined, is_node, is_rendezvous, is_dead, has_left;
    char address[64]; /* "10.0.0.2:45321"; "" for the rendezvous itself */
};
struct mr_world_visitor {
    /* in the order of ranks; NULL: not wanted */
    void (*member)(void *arg, const struct mr_world_member *member);
    /* line: "name(arguments) -> results"; NULL: not wanted */
    void (*function)(void *arg, const char *line);
    void *arg;
};
/* Reports the world of workers. `visitor` (NULL: not wanted) is called on this thread. MR_UNKNOWN_OP: the
 * node takes no part in remote calls. */
MR_API enum mr_status mr_world(struct mr_client *client, const struct mr_options *options,
                               struct mr_world *world, const struct mr_world_visitor *visitor);
/* Sends tensors, or none, to a core and back, for measurements. Reply: the same tensors. */
MR_API enum mr_status mr_echo(struct mr_client *client, const struct mr_options *options, uint32_t core,
                              const struct mr_tensor *tensors, uint32_t count, struct mr_reply **reply);

/* ---- the hub (a client created with the hub's address) ---- */

enum mr_sample_part { MR_PART_TRAIN = 0, MR_PART_HELD_OUT = 1 };
struct mr_sample_plan {
    const char *path; /* on the hub's machine; "-": its standard input; "kafka:TOPIC": of its brokers */
    /* "libsvm", "criteo", "flights", or another that the hub was given; "batches" of standard input */
    const char *format;
    uint32_t batch_samples; /* samples per batch; of a topic, messages */
    uint32_t epochs;
    uint64_t shuffle_seed; /* 0 = in file order */
    double held_out_share; /* 0..0.9; chosen at random by sample, by the seed */
    /* enum mr_sample_part. Of samples without labels, which are scored, the held-out part has all */
    uint32_t part;
    bool strict; /* stop at the first broken line instead of counting it */
    /* The same plan and run continues after what the server has applied, also after a restart of hub or
     * server; another number starts from the beginning. Use another number if the samples have changed */
    uint32_t run;
    const char *table; /* table (by name) that the keys belong to, on the server the hub feeds */
};
struct mr_sample_info {
    uint64_t samples; /* of this part; 0 for standard input, topics, and files that are followed */
    uint32_t slots, dense;
    uint32_t stream;
    uint64_t batches; /* all epochs; 0 as well while the end of the input has not come */
    uint64_t keys;    /* distinct; 0 for standard input, topics, and files that are followed */
    uint64_t broken_lines;
};
/* Starts or joins a plan: the first trainer's plan is read, trainers with the same plan join it, and another
 * plan fails with MR_ALREADY_STARTED until the first is at its end. MR_BAD_MESSAGE: a broken line in strict
 * mode; mr_last_error() has file and line. */
MR_API enum mr_status mr_start_sample(struct mr_client *hub, const struct mr_options *options,
                                      const struct mr_sample_plan *plan, struct mr_sample_info *info);

struct mr_batch {
    uint64_t id;
    uint32_t samples;
    uint32_t epoch;
    const float *dense;     /* [samples, dense] */
    const float *labels;    /* [samples]; NaN: it has none */
    struct mr_reply *reply; /* owns the views: mr_reply_free() */
};
/* Reads the next batch, for this trainer alone. `done` (may be NULL) names batches that this trainer has
 * pushed, or will not push (read-only ones). MR_END_OF_DATA: all batches are handed out and applied.
 * MR_NOT_READY: there may be more later (other trainers' batches are not applied yet, the server is away, or
 * the hub waits for samples).
 * The batches of a trainer that falls silent are handed to others. */
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

/* Keys of a slot's values, as hubs make them of the fields of a line: value i is the bytes text[offsets[i]]
 * up to, but not including, text[offsets[i + 1]], for i < count. Writes keys[count]. A key is XXH3-64 with
 * the slot as its seed, so that equal values of two slots have two keys. Any thread. */
MR_API void mr_slot_keys(uint32_t slot, const void *text, const uint32_t *offsets, uint32_t count,
                         uint64_t *keys);

#ifdef __cplusplus
}
#endif
#endif
