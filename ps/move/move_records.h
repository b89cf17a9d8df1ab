/* The records of batches, clients and pushes that belong to partitions which move: what has been applied
 * there, so that the taker applies nothing twice (ps/exactly_once/records.h). On a core's thread. */
#ifndef PS_MOVE_RECORDS_H
#define PS_MOVE_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/base/partition_set.h"

struct ps_core;

/* In the blocks of a move, beside the kinds of checkpoints: a piece of them, `count` bytes from `offset`
 * on. */
#define PS_MOVE_RECORD 64u

/* Copies what the core has of these partitions, which the caller frees. False: no memory. */
bool ps_move_records_make(struct ps_core *core, const struct ps_partition_set *partitions, uint8_t **out,
                          size_t *bytes);
/* Takes in what one core of the giver had of these partitions, as far as they are to be this core's.
 * `before`: those of the move that were taken in already. Errors as ps_records_import(). */
enum mr_status ps_move_records_take(struct ps_core *core, const struct ps_partition_set *partitions,
                                    const struct ps_partition_set *before, const uint8_t *records,
                                    size_t bytes);

#endif
