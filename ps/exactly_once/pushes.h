/* The record of numbered pushes: per client and lane which were applied, so that each is applied once however
 * often it is sent, and up to where they are safe on disk. See dataplane/wire/format/push_number.h for
 * numbers and lanes.
 *
 * Bounded: lanes are spread over sets of PS_PUSH_SET_WAYS places; where a set is full, a new lane takes the
 * place of the one that was silent for longest. That is rare up to a quarter of PS_PUSH_LANES_MAX. Belongs to
 * one thread.
 */
#ifndef PS_PUSHES_H
#define PS_PUSHES_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"
#include "dataplane/wire/format/packet.h"
#include "ps/exactly_once/push_window.h"
#include "ps/memory/arena.h"

#define PS_PUSH_LANES_MAX   16384u
#define PS_PUSH_SET_WAYS    8u  /* the hash of uuid and lane names a set of this many places */
#define PS_PUSH_RUNNING_MAX 64u /* pushes being applied at a time */

/* How far a lane's pushes have come: all up to a floor were in the record ... */
enum ps_push_floor {
    PS_FLOOR_CUT,     /* at the last cut */
    PS_FLOOR_DISK,    /* at the last cut that is on disk, where a start finds it */
    PS_FLOOR_COPYING, /* at that of the checkpoint whose copy in the store is waited for */
    PS_FLOOR_DURABLE, /* at that after which clients need not keep them */
    PS_FLOOR_COUNT,
};

/* One lane of one client, or of its keys those in some partitions: after the number of cores has changed
 * while pushes were being sent again, a push may have been applied to some partitions only. */
struct ps_push_lane {
    uint8_t uuid[MR_UUID_BYTES];
    uint16_t lane;
    uint16_t partition,
        partition_end; /* this piece: partition .. partition_end - 1; all pieces cover all of them */
    uint64_t used;     /* when it pushed last, in pushes of all */
    struct ps_push_window window;
    uint64_t floors[PS_FLOOR_COUNT];
    struct ps_push_lane *next; /* piece of the same lane */
};

/* A push: whose, and its number there. */
struct ps_push_id {
    const uint8_t *uuid; /* MR_UUID_BYTES */
    uint16_t lane;       /* not 0 */
    uint64_t number;     /* 1..MR_PUSH_NUMBER_MAX */
};

enum ps_push_state {
    PS_PUSH_NEW,       /* to be applied; finishing it cannot fail */
    PS_PUSH_APPLIED,   /* nothing is left to do */
    PS_PUSH_PARTLY,    /* to be applied, but for the partitions that have it */
    PS_PUSH_WAITS,     /* it is being applied right now, or has to wait for others that are */
    PS_PUSH_NO_MEMORY, /* it could not be recorded */
};

struct ps_pushes;

/* Lanes that were known and had to make room for others since the record was made. */
uint64_t ps_pushes_forgotten(const struct ps_pushes *p);

/* NULL when the arena has no room. */
struct ps_pushes *ps_pushes_create(struct ps_arena *arena);
void ps_pushes_destroy(struct ps_pushes *p);
/* Takes the place of an older record, whose count of forgotten lanes continues here. */
void ps_pushes_succeed(struct ps_pushes *p, const struct ps_pushes *older);
/* Forgets everything, also what is being applied. */
void ps_pushes_clear(struct ps_pushes *p);

/* What to do with a push. Makes the room that its mark takes. */
enum ps_push_state ps_pushes_look_up(struct ps_pushes *p, const struct ps_push_id *id);
/* Whether it was applied to the keys of a partition. */
bool ps_pushes_has(const struct ps_pushes *p, const struct ps_push_id *id, uint32_t partition);
/* The same as a bit for each partition. */
void ps_pushes_partitions(const struct ps_pushes *p, const struct ps_push_id *id,
                          uint64_t bits[MR_PARTITION_COUNT / 64]);
/* A push that was looked up, and need not wait, is applied from now on, until it is finished: by then all of
 * its changes are made. No cut may fall in between. */
void ps_pushes_start(struct ps_pushes *p, const struct ps_push_id *id);
/* Returns how many others were given up, see ps/exactly_once/push_window.h. Nothing is marked when the record
 * was cleared meanwhile. */
uint64_t ps_pushes_finish(struct ps_pushes *p, const struct ps_push_id *id);

/* All of the lane's pushes up to this number are in a checkpoint that is safe (PS_FLOOR_DURABLE); 0 when none
 * is, or the lane is not known. */
uint64_t ps_pushes_durable(const struct ps_pushes *p, const uint8_t *uuid, uint16_t lane);
/* A checkpoint holds what is recorded now: sets PS_FLOOR_CUT. */
void ps_pushes_cut(struct ps_pushes *p);
/* What had come as far as `from` has come as far as `to`, a later one, and all between. */
void ps_pushes_advance(struct ps_pushes *p, enum ps_push_floor from, enum ps_push_floor to);

/* Place i of PS_PUSH_LANES_MAX, for checkpoints: NULL when there is nothing to keep, else the first piece. */
const struct ps_push_lane *ps_pushes_at(const struct ps_pushes *p, uint32_t i);
/* Adds a stored piece, as of a cut: uuid, lane, partitions, window and `used` are read. Its pieces come one
 * after the other and cover all partitions. MR_OUT_OF_MEMORY. */
enum mr_status ps_pushes_load(struct ps_pushes *p, const struct ps_push_lane *piece);

#endif
