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
#define PS_FORGOTTEN_BATCHES 65536u

/* ps_record.row_bytes of a PS_RECORD_STREAM. */
enum ps_stream_record {
    PS_STREAM_APPLIED = 0, /* u64 stream, watermark, bitmap words */
    PS_STREAM_PARTIAL = 1, /* u64 batch id, u64[64] struct ps_partition_set */
    PS_STREAM_PLAN = 2,    /* u64 stream, u64[3] struct mr_plan, u64 use */
    /* u64 first batch id, u64 last one, u64[64]: struct ps_partial. Needs MR_CAN(BATCH_RANGES), so a range of
     * one batch is a PS_STREAM_PARTIAL */
    PS_STREAM_PARTIALS = 3,
};

/* Writes a push stream for some partitions as a PS_RECORD_PUSH_STREAM, whose header is in *record, unless
 * `out` is NULL. partitions NULL: all. Returns how many bytes it has. */
size_t ps_stored_push_stream_write(const struct ps_push_load *stream,
                                   const struct ps_partition_set *partitions, struct ps_record *record,
                                   uint8_t *out);
/* Reads a PS_RECORD_PUSH_STREAM; *partitions NULL: all. False: it is malformed. */
bool ps_stored_push_stream_read(const struct ps_record *record, const uint8_t *bytes,
                                struct ps_push_load *out, const struct ps_partition_set **partitions);

/* Reads a PS_STREAM_PARTIAL or PS_STREAM_PARTIALS of so many bytes, aligned to 8. False: it is malformed. */
bool ps_stored_partial_read(uint32_t kind, const uint64_t *words, uint64_t bytes, struct ps_partial *out);

/* Writes all records of core `core` of `core_count`, for a checkpoint, unless `out` is NULL. Returns how many
 * bytes they are. */
size_t ps_records_write(const struct ps_records *r, uint32_t core, uint32_t core_count, uint8_t *out);
/* Does the same with what is recorded for a set of partitions: streams, clients, and of push streams what
 * is about the set. */
size_t ps_records_export(const struct ps_records *r, const struct ps_partition_set *set, uint8_t *out);
/* The same of one stream of batches, of one client, and of one push stream: as it is now. An empty record of
 * applied batches: the stream is not known (any more). */
size_t ps_records_export_batches(const struct ps_records *r, uint32_t stream, uint8_t *out);
size_t ps_records_export_client(const struct ps_records *r, const uint8_t *uuid, uint8_t *out);
size_t ps_records_export_pushes(const struct ps_records *r, const struct ps_partition_set *set,
                                const uint8_t *uuid, uint32_t stream_id, uint8_t *out);
/* Takes in what another core has recorded for a set of partitions. `others` are the partitions that this core
 * serves besides: for them its own records hold on. A batch that only one of the two has applied is then
 * partly applied (ps/exactly_once/partial.h), however far they are apart. A stream that one of both does not
 * know is as the other has it if that has more than PS_FORGOTTEN_BATCHES of it: the other one has forgotten
 * it. `bytes` is aligned to 8.
 *
 * MR_BAD_MESSAGE: the bytes are malformed, and nothing has changed. MR_OUT_OF_MEMORY, MR_NO_MEMORY, or
 * MR_UNSUPPORTED: the two differ in more ranges of batches than can be partly applied; then the set must not
 * be served, nothing has changed for the others, and the import may be repeated. */
enum mr_status ps_records_import(struct ps_records *r, const struct ps_partition_set *set,
                                 const struct ps_partition_set *others, const uint8_t *bytes, size_t size);
/* The same of what a checkpoint holds, from before this core's own records: of a stream that it does not know
 * it had applied nothing. */
enum mr_status ps_records_import_saved(struct ps_records *r, const struct ps_partition_set *set,
                                       const struct ps_partition_set *others, const uint8_t *bytes,
                                       size_t size);
/* Forgets what is recorded for a set of partitions that the core serves no longer. Batches need nothing:
 * nobody pushes keys of these partitions here. MR_OUT_OF_MEMORY: not all of it; the set may come back by an
 * import nevertheless. */
enum mr_status ps_records_forget(struct ps_records *r, const struct ps_partition_set *set);

#endif
