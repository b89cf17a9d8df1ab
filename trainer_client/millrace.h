/* libmillrace: the client of the Millrace parameter server, to train with. millrace_admin.h has the calls of
 * operators (checkpoints, moves), millrace_observe.h those that show what a server does.
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
 *     asked for again. Calls that concern the whole cluster, such as mr_create() and mr_save(), go to the
 *     first node that answers.
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
#include "mr_api.h"
#include "mr_feature.h"
#include "mr_status.h"
#include "mr_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

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
 * by the bag's divisor and multiplied by its weight: the same bits on any number of cores. weights: those
 * that the lookup had; NULL: all are 1. */
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

/* Keys of a slot's values, as hubs make them of the fields of a line: value i is the bytes text[offsets[i]]
 * up to, but not including, text[offsets[i + 1]], for i < count. Writes keys[count]. A key is XXH3-64 with
 * the slot as its seed, so that equal values of two slots have two keys. Any thread. */
MR_API void mr_slot_keys(uint32_t slot, const void *text, const uint32_t *offsets, uint32_t count,
                         uint64_t *keys);

#ifdef __cplusplus
}
#endif
#endif
