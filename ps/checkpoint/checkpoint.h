/* Checkpoint files: writing and reading them. This code knows bytes and files; the callers know which bytes
 * belong to which table (ps/save/save.c, ps/restore/restore.c).
 *
 *   DIR/ckpt-<id>/core-NNN.mrc   1 MiB blocks: header {magic, version, checkpoint id, core, block number,
 *                                payload bytes, XXH3-128 of header and payload}, then records
 *   DIR/ckpt-<id>/MANIFEST       JSON: version, id, parent, features, per file its blocks and bytes,
 *                                incarnation; written last
 *   DIR/ckpt-<id>/BY_TRAINER     only if a trainer asked for it, and not the node or an operator; written
 *                                before the MANIFEST
 *
 * All of it is written under DIR/.tmp-ckpt-<id>, which is renamed once files, directory and parent are
 * synced: the rename commits. docs/checkpoint-format.md has every field.
 *
 * A checkpoint is full, or a delta on one that is published in the same directory, its parent: it has the
 * rows that were changed or created since, and the keys that were removed. A full one and the deltas up to
 * some delta are the chain that this delta is restored from. All else is whole in each link of a chain: of
 * earlier links only rows and observations count.
 *
 * A checkpoint of some features by name is partial: it says so, is full, and lies in DIR/partial with numbers
 * of its own, so that nothing takes it for a state that a node can start from.
 *
 * Writer: cores fill 1 MiB buffers that are registered with io_uring and hand them over through a ring; one
 * writer thread submits them with O_DIRECT (plain writes where io_uring or O_DIRECT is refused, which it
 * logs).
 */
#ifndef PS_CHECKPOINT_H
#define PS_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"

#define PS_BLOCK_BYTES  (1u << 20)
#define PS_PARTIAL_NAME "partial" /* the folder of a directory that partial checkpoints are in */

struct ps_hash { /* XXH3-128 */
    uint64_t low, high;
};

static inline bool ps_hash_equal(struct ps_hash a, struct ps_hash b)
{
    return a.low == b.low && a.high == b.high;
}

/* Records inside a block's payload, each 8-byte aligned: a header, then its bytes. */
enum ps_record_kind {
    PS_RECORD_ROWS = 1,     /* feature, count, stored row bytes; keys u64[count], rows[count] */
    PS_RECORD_VARIABLE = 2, /* feature, byte offset in the stored bytes, bytes */
    PS_RECORD_STREAM = 3,   /* applied batches of one stream: u64 stream, watermark, bitmap words.. */
    PS_RECORD_CLIENT = 4,   /* client uuid[16], u64 last push step */
    PS_RECORD_PUSHES = 5,   /* numbered pushes of one stream, in versions 2 to 5: struct ps_stored_pushes */
    /* since version 3 */
    PS_RECORD_GONE =
        6, /* in deltas: feature, count; keys u64[count] whose rows in earlier links are removed */
    PS_RECORD_OBSERVATIONS =
        7, /* feature, count = bytes, offset = partition: its share of an admission filter */
    /* since version 5 */
    PS_RECORD_PARAMETER =
        8, /* feature = index of the MANIFEST's parameters, count = bytes, byte offset, bytes */
    /* since version 6 */
    PS_RECORD_PUSH_STREAM = 9, /* numbered pushes of one stream: struct ps_stored_push_stream */
};
/* A key is in at most one PS_RECORD_ROWS or PS_RECORD_GONE of a link: the order of a link's records has no
 * meaning. */
struct ps_record {
    uint32_t kind;
    uint32_t feature;
    uint32_t count;     /* rows, keys, or bytes of the value */
    uint32_t row_bytes; /* PS_RECORD_ROWS */
    uint64_t offset;    /* PS_RECORD_VARIABLE, PS_RECORD_OBSERVATIONS, PS_RECORD_PARAMETER */
    uint64_t bytes;     /* of what follows, before padding to 8 */
};

/* The record of a push stream's pushes (ps/exactly_once/pushes.h), for the keys in a range of partitions. */
struct ps_stored_pushes {
    uint8_t uuid[16];
    uint16_t stream_id;
    uint16_t partition, partition_end; /* partition .. partition_end - 1 */
    uint16_t reserved;                 /* zero */
    uint64_t floor;                    /* all pushes up to it were applied, or will never be */
    uint64_t words[]; /* bit i: floor + 1 + i was applied; at most 16, up to the last bit set */
};

/* The same for the keys in any partitions. */
struct ps_stored_push_stream {
    uint8_t uuid[16];
    uint32_t stream_id;
    uint16_t word_count;     /* at most 16, up to the last bit set */
    uint16_t has_partitions; /* 0: it is about all partitions; 1 */
    uint64_t floor;          /* all pushes up to it were applied, or will never be */
    uint64_t durable;        /* up to this one they are in a checkpoint that is safe; 0 in a checkpoint */
    /* word_count words, bit i: floor + 1 + i was applied; then, of some partitions, a bit for each */
    uint64_t words[];
};

/* A parameter of remote calls that has a name, or the state that an optimizer keeps beside it, as the
 * MANIFEST lists them: by name, and after each parameter its states by the names of their optimizers. All are
 * f32. */
struct ps_saved_parameter {
    char name[MR_NAME_BYTES];
    char optimizer[MR_NAME_BYTES]; /* "": the parameter's values */
    uint32_t rule;                 /* of that optimizer: enum mr_optimizer; 0: the values */
    uint32_t rank, dims[MR_RANK_MAX];
    uint64_t step; /* the values' version, or the optimizer's steps */
};
#define PS_PARAMETERS_MAX       65536u
#define PS_PARAMETER_FLOATS_MAX (UINT64_C(1) << 38)

/* ---- writing ---- */
struct ps_writer; /* one checkpoint being written */
struct ps_ancestry;
struct ps_uring_counters;
struct ps_store; /* where the files live, see ps/io/store.h */

#define PS_WRITER_BUFFERS_MAX 64u /* per core */

struct ps_writer_status {
    bool done;             /* published or failed */
    enum mr_status status; /* MR_OK when published */
    int error_number;      /* errno of the failure */
    char text[256];        /* what failed, where, and how to fix it */
    uint64_t bytes_written, duration_us;
    struct ps_hash manifest_hash; /* of what was published */
};

/* What to write. Copied by ps_writer_start(). */
struct ps_writer_options {
    const char *directory;             /* created when only its last part is missing */
    const struct mr_feature *features; /* all features, also for a delta */
    const uint32_t *feature_ids;       /* below 65536 */
    uint64_t id;
    uint64_t parent_id; /* published in the same directory, below `id`; 0: the checkpoint is full */
    const struct ps_hash *parent_hash;  /* of its MANIFEST; NULL: any */
    const struct ps_ancestry *ancestry; /* of the state that is saved; NULL: unknown */
    uint64_t step;                      /* of the cut; 0: unknown */
    uint32_t clock_s;                   /* of the node */
    uint64_t bytes_per_s_max;           /* limit of the writing rate; 0: none */
    uint32_t feature_count;
    uint32_t core_count, incarnation;
    uint32_t buffers_per_core; /* 2..PS_WRITER_BUFFERS_MAX */
    bool is_at_step;           /* all pushes up to `step` are in it, and none after it */
    bool is_partial;           /* `features` are not all that the node has; full */
    bool is_by_trainer;        /* retention counts it apart, see struct ps_retention */
    /* Of a store on another machine, else NULL: its calls end with -ECANCELED once this is set. Then the
     * writer's threads open everything, and ps_writer_start() asks the store for nothing. */
    _Atomic bool *stop;
    uint64_t stall_us_max;              /* see ps_writer_watch(); 0: no limit */
    struct ps_uring_counters *counters; /* of writes to the disk; NULL: not counted */
    /* of the data cores: the thread avoids them as far as there are others */
    const int *avoid_cpus;
    uint32_t avoid_cpu_count;
};

/* Opens the temporary directory and files, starts the writer thread. `store` (NULL: the local files) must
 * outlive the writer. On failure `text` (256 bytes) says what and where, and no files are left.
 * MR_CHECKPOINT_NOT_FOUND and MR_CHECKPOINT_CORRUPT: a link that a delta builds on is missing, has no
 * MANIFEST that verifies or files of other lengths than that says, or the parent does not have parent_hash;
 * MR_IO_ERROR: this cannot be determined; MR_INVALID_ARGUMENT: the parent has a feature that is missing or
 * different now, so only a full checkpoint can be written. Control thread. */
enum mr_status ps_writer_start(const struct ps_store *store, const struct ps_writer_options *options,
                               struct ps_writer **out, char *text);

/* Sets the parameters that the MANIFEST lists, in its order; copied. Before any core begins to write. Control
 * thread. MR_NO_MEMORY. */
enum mr_status ps_writer_set_parameters(struct ps_writer *w, const struct ps_saved_parameter *parameters,
                                        uint32_t count);

/* Core `core`'s side: called on that core's thread only, never blocks, never allocates. */

/* Announces about how many bytes of records, without their headers, the core will write: room on the disk is
 * reserved for them, which makes writing faster. Optional; before the first append. */
void ps_writer_expect(struct ps_writer *w, uint32_t core, uint64_t bytes);
/* Readers need these capabilities for what the core writes. Before ps_writer_core_done(). */
void ps_writer_need(struct ps_writer *w, uint32_t core, uint64_t needs);
/* Returns how many bytes of blocks can be written right now; 0 once the checkpoint failed. A record takes
 * sizeof(struct ps_record) plus its bytes rounded up to 8, and the rest of a block that is too short for it
 * is lost. */
uint32_t ps_writer_free_bytes(struct ps_writer *w, uint32_t core);
/* Appends a record: returns room for record->bytes bytes, or NULL when no buffer is free (or the checkpoint
 * failed). Fill it before this core's next call. A record never spans blocks: bytes <=
 * PS_RECORD_BYTES_MAX (ps/checkpoint/checkpoint_format.h). */
uint8_t *ps_writer_append(struct ps_writer *w, uint32_t core, const struct ps_record *record);
/* A push was refused for want of room. */
void ps_writer_push_waits(struct ps_writer *w, uint32_t core, uint64_t now_us);
void ps_writer_core_done(struct ps_writer *w, uint32_t core); /* the core has written everything */
bool ps_writer_failed(const struct ps_writer *w);             /* any thread: cores may stop early */
/* Any thread. While it runs only bytes_written and duration_us are filled in. */
void ps_writer_status(const struct ps_writer *w, struct ps_writer_status *out);
/* Returns how blocks are written, for logs: "io_uring, O_DIRECT", "plain writes, page cache", ... */
const char *ps_writer_method(const struct ps_writer *w);
/* Makes it fail (a shutdown, a cancelled save). Any thread; no effect once done. */
void ps_writer_abort(struct ps_writer *w);
/* Lets it fail once pushes have waited for room for longer than stall_us_max, in which the store took
 * nothing. Called every few milliseconds, by one thread, with the time that pushes are noted with. */
void ps_writer_watch(struct ps_writer *w, uint64_t now_us);
/* Joins the thread and frees the writer with its buffers. The files of a failed checkpoint are removed by
 * then. Control thread, after done or abort, once no core uses `w` any more. */
void ps_writer_finish(struct ps_writer *w);

/* ---- reading ---- */
struct ps_reader; /* of a chain, see ps/checkpoint/checkpoint_chain.h */
struct ps_chain;  /* of ps/checkpoint/checkpoint_chain.h */
struct ps_manifest;

#define PS_CHAIN_LINKS_MAX 1024u

/* Opens checkpoint `id` (0 = the newest that verifies) in `directory` with all that it is based on: reads the
 * MANIFESTs and verifies every block of every file before it returns. MR_CHECKPOINT_NOT_FOUND,
 * MR_CHECKPOINT_CORRUPT (also for a parent that is missing or another one), MR_CHECKPOINT_NEWER (of a later
 * format version: no older one is taken in its place), MR_IO_ERROR, MR_NO_MEMORY; `text` (256 bytes) names
 * checkpoint, file and block. On MR_OK it is empty, or says which newer checkpoint was passed over and why.
 * Where the store has claims, retention does not remove the chain until the reader is closed. */
enum mr_status ps_reader_open(const struct ps_store *store /* NULL: local */, const char *directory,
                              uint64_t id, struct ps_reader **out, char *text);
/* Opens one checkpoint (id is not 0) by its chain's MANIFESTs alone: for callers that can drop all that they
 * have read if a block turns out to be bad. */
enum mr_status ps_reader_open_unread(const struct ps_store *store /* NULL: local */, const char *directory,
                                     uint64_t id, struct ps_reader **out, char *text);
/* Returns the MANIFESTs of the chain, and what the checkpoint that was asked for is (ps_chain_manifest()). */
const struct ps_chain *ps_reader_chain(const struct ps_reader *r);
const struct ps_manifest *ps_reader_manifest(const struct ps_reader *r);
/* Of a cluster's checkpoint: the blocks of this part are not visited. */
void ps_reader_leave_out(struct ps_reader *r, uint32_t part);
/* Visits all blocks, `batch` (1..16) at a time, each verified as it is read, while other threads read ahead.
 * The blocks of a link come after all of the link before, and a batch has blocks of one link only. Within a
 * link the first blocks of all files come before their second ones. A batch stays valid until the `held`-th
 * next visit (1 or 2); with 2, each link ends, also after a failure, with a visit of no blocks, after which
 * none is valid. Stops at the first status that is not MR_OK and returns it; then the visitor fills `text`.
 * ps_record_counts() says which records count. */
typedef enum mr_status (*ps_visit_blocks)(void *arg, uint32_t link, const uint8_t *const *blocks,
                                          uint32_t count);
enum mr_status ps_reader_blocks(struct ps_reader *r, uint32_t batch, uint32_t held, ps_visit_blocks visit,
                                void *arg, char *text);
/* Whether reading its blocks failed, and not the visitor. */
bool ps_reader_is_damaged(const struct ps_reader *r);
/* Visits the records of such a block; any thread. */
enum mr_status ps_block_each(const uint8_t *block,
                             enum mr_status (*visit)(void *arg, const struct ps_record *record,
                                                     const uint8_t *bytes),
                             void *arg);
/* Whether a restore needs a record: all of the last link, and of earlier links those that later ones
 * change. */
static inline bool ps_record_counts(uint32_t kind, bool is_last_link)
{
    return is_last_link || kind == PS_RECORD_ROWS || kind == PS_RECORD_GONE || kind == PS_RECORD_OBSERVATIONS;
}
void ps_reader_close(struct ps_reader *r);

/* Finds the checkpoints of a directory, newest first: *ids are to be freed. MR_CHECKPOINT_NOT_FOUND: there is
 * none; MR_IO_ERROR, MR_NO_MEMORY; `text` (PS_TEXT_BYTES) says what. */
enum mr_status ps_checkpoint_find(const struct ps_store *store /* NULL: local */, const char *directory,
                                  uint64_t **ids, uint32_t *count, char *text);
/* Tries these checkpoints, in their order, until one succeeds. After a failure it tries the next one only if
 * *is_damaged is set: an older checkpoint lacks training that a newer one holds. On MR_OK `text` (256 bytes)
 * is empty, or has the text of the first that was passed over; on failure that of the failure, or of the
 * first that was passed over. */
typedef enum mr_status (*ps_try_checkpoint)(void *arg, uint64_t id, bool *is_damaged, char *text);
enum mr_status ps_checkpoint_try(const uint64_t *ids, uint32_t count, ps_try_checkpoint attempt, void *arg,
                                 char *text);

/* Lists the ids of the checkpoints in `directory` (published ones, verified or not; also those of a cluster,
 * by their files CLUSTER-<id>), newest first, at most
 * ids_max of them. Returns how many there are; 0 when the directory cannot be read. */
uint32_t ps_checkpoint_list(const struct ps_store *store /* NULL: local */, const char *directory,
                            uint64_t *ids, uint32_t ids_max);
/* The same, but *count is how many there are, and a negative errno is returned when the directory could not
 * be read to its end, so that there may be more. A directory that does not exist has none. */
int ps_checkpoint_list_all(const struct ps_store *store /* NULL: local */, const char *directory,
                           uint64_t *ids, uint32_t ids_max, uint32_t *count);
/* The same of the checkpoints of a cluster alone. */
int ps_checkpoint_list_clusters(const struct ps_store *store, const char *directory, uint64_t *ids,
                                uint32_t ids_max, uint32_t *count);
/* Whether the directory has checkpoint `id`, verified or not. */
bool ps_checkpoint_is_there(const struct ps_store *store /* NULL: local */, const char *directory,
                            uint64_t id);
/* Returns the number of the next checkpoint in a directory, which need not exist. MR_IO_ERROR: the directory
 * cannot be read; MR_INVALID_ARGUMENT: there are no higher numbers. */
enum mr_status ps_checkpoint_next_id(const struct ps_store *store /* NULL: local */, const char *directory,
                                     uint64_t *id, char *text);
/* How many chains of a directory stay. A chain is a full checkpoint with all deltas on it. Those that have
 * only links that trainers asked for (file BY_TRAINER) are counted apart, so that they never displace the
 * others (ADR 137). 0 counts as 1. */
struct ps_retention {
    uint32_t keep;          /* that the node took by itself, or an operator asked for */
    uint32_t keep_trainers; /* that trainers asked for */
    /* If the oldest of a kind is younger than this, the second newest is removed in its place; 0: the oldest
     * always is. */
    uint32_t least_age_s;
    bool trainers_only; /* everything that no trainer asked for stays */
};

/* Removes chains beyond the newest that stay, each with its newest link first, and temporary directories of
 * dead writers. A chain is as new as its newest link. A broken one does not count, and is removed when it is
 * older than all that stay. A checkpoint that a later version wrote stays, and so do all older ones: it may
 * be based on any of them. What cannot be removed, or is being read, stays until the next time, and so does
 * everything if something of the directory cannot be read. */
void ps_checkpoint_retain(const struct ps_store *store /* NULL: local */, const char *directory,
                          const struct ps_retention *retention);
/* Whether a trainer asked for a published checkpoint. Returns 0 or -errno. */
int ps_checkpoint_is_by_trainer(const struct ps_store *store, const char *directory, uint64_t id, bool *is);
/* The same for the folder of a cluster's node: of ids[count] are the checkpoints that stay, with their
 * chains; chains that go on after `newest` stay, too. */
void ps_checkpoint_retain_parts(const struct ps_store *store, const char *directory, const uint64_t *ids,
                                uint32_t count, uint64_t newest);

/* Who writes to a directory of checkpoints: one process at a time. Two would take each other's numbers,
 * remove each other's checkpoints, and load each other's tables. The lock is on the file `lock` in the
 * directory, which names its holder, and ends with the process, however that ends. Between machines it holds
 * where the file system has locks between machines: NFS version 4, or 3 with its lock daemon. Any thread, one
 * at a time per lock. */
#define PS_NO_LOCK (-1)

/* Locks a directory, which is created when only its last part is missing. `who` describes this process to
 * others, beside host and pid. MR_IO_ERROR: another process has the lock, or it cannot be had; `text` (256
 * bytes) says who or why, and *lock is PS_NO_LOCK. */
enum mr_status ps_checkpoint_lock(const char *directory, const char *who, int *lock, char *text);
/* Whether that lock is on this directory, however it is spelled: the directory may have been replaced. */
bool ps_checkpoint_lock_is_on(int lock, const char *directory);
void ps_checkpoint_unlock(int lock);

#endif
