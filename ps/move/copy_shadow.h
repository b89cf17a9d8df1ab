/* What one core of a primary has recorded of pushes, batches and clients, as its backup knows it: the records
 * of the stream (ps/move/copy_source.h), each in the place of the one before about the same push stream,
 * stream of batches or client. At a promotion the backup's cores import them, as at the end of a move
 * (ps/exactly_once/records.h): the primary's core notes numbers for all that it has, so they cannot be noted
 * with those of the backup's own cores before. One thread. */
#ifndef PS_COPY_SHADOW_H
#define PS_COPY_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/checkpoint/checkpoint.h"
#include "ps/move/load.h"

struct ps_copy_shadow;

/* NULL: no memory. */
struct ps_copy_shadow *ps_copy_shadow_create(void);
void ps_copy_shadow_destroy(struct ps_copy_shadow *s); /* NULL is fine */
/* Takes a record in. `number` is that of the stream's record that it is in, from 1: one record may have
 * several about the same thing, which then hold together. False: no memory, or it is malformed. */
bool ps_copy_shadow_take(struct ps_copy_shadow *s, uint64_t number, const struct ps_record *record,
                         const uint8_t *bytes);
/* All of it, for ps_move_load_records(); the caller frees out->bytes. False: no memory. */
bool ps_copy_shadow_collect(const struct ps_copy_shadow *s, struct ps_move_collected *out);
/* How many push streams, streams of batches and clients it knows. */
uint32_t ps_copy_shadow_count(const struct ps_copy_shadow *s);

#endif
