/* A core's records of what was applied, as bytes: for a checkpoint, and for partitions that go to another
 * core or node while both serve.
 *
 * The bytes are records as in a checkpoint (docs/checkpoint-format.md): the header struct ps_record, its
 * content, zeros up to 8 bytes.
 *
 * How a set of partitions moves: its source stops to apply anything to it, exports, and forgets it (or goes
 * on, if the move is cancelled); its target imports the bytes before it serves the set. All of it happens on
 * the threads of the cores concerned, between two calls. A push to other partitions may be in slices
 * meanwhile: it counts as not applied in what is exported, as it has no keys there.
 */
#ifndef PS_RECORDS_H
#define PS_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/base/partition_set.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/exactly_once/applied_batches.h"
#include "ps/exactly_once/clients.h"
#include "ps/exactly_once/partial.h"
#include "ps/exactly_once/pushes.h"

/* One core's. */
struct ps_records {
    struct ps_applied_batches *applied;
    struct ps_partials *partials;
    struct ps_clients *clients;
    struct ps_pushes *pushes;
};

#define PS_STREAM_PLAN_WORDS (2u + MR_PLAN_WORDS)

/* ps_record.row_bytes of a PS_RECORD_STREAM. */
enum ps_stream_record {
    PS_STREAM_APPLIED = 0, /* u64 stream, watermark, bitmap words */
    PS_STREAM_PARTIAL = 1, /* struct ps_partial */
    PS_STREAM_PLAN = 2,    /* u64 stream, u64[3] struct mr_plan, u64 use */
};

/* Reads a PS_RECORD_PUSH_STREAM; *partitions NULL: all. False: it is malformed. */
bool ps_stored_push_stream_read(const struct ps_record *record, const uint8_t *bytes,
                                struct ps_push_load *out, const struct ps_partition_set **partitions);

/* Writes all records of core `core` of `core_count`, for a checkpoint, unless `out` is NULL. Returns how many
 * bytes they are. */
size_t ps_records_write(const struct ps_records *r, uint32_t core, uint32_t core_count, uint8_t *out);
/* Does the same with what is recorded for a set of partitions: streams, clients, and of push streams what
 * is about the set. */
size_t ps_records_export(const struct ps_records *r, const struct ps_partition_set *set, uint8_t *out);
/* Takes in what another core has recorded for a set of partitions. `others` are the partitions that this core
 * serves besides: for them its own records hold on. A batch that only one of the two has applied is then
 * partly applied (ps/exactly_once/partial.h). `bytes` is aligned to 8.
 *
 * MR_BAD_MESSAGE: the bytes are malformed, and nothing has changed. MR_OUT_OF_MEMORY, MR_NO_MEMORY, or
 * MR_UNSUPPORTED: the two differ in more batches than can be partly applied; then the set must not be served,
 * nothing has changed for the others, and the import may be repeated. */
enum mr_status ps_records_import(struct ps_records *r, const struct ps_partition_set *set,
                                 const struct ps_partition_set *others, const uint8_t *bytes, size_t size);
/* Forgets what is recorded for a set of partitions that the core serves no longer. Batches need nothing:
 * nobody pushes keys of these partitions here. MR_OUT_OF_MEMORY: not all of it; the set may come back by an
 * import nevertheless. */
enum mr_status ps_records_forget(struct ps_records *r, const struct ps_partition_set *set);

#endif
