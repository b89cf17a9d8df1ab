/* The record of numbered pushes: per client and push stream which were applied, so that each is applied once
 * however often it is sent, and up to where they are safe on disk. See dataplane/wire/format/push_number.h
 * for numbers and push streams.
 *
 * Bounded: a push stream has its place in one of two sets of PS_PUSH_SET_WAYS places, which a secret chooses:
 * in the emptier one, so that sets are rarely full up to three quarters of PS_PUSH_STREAMS_MAX (Azar et al.,
 * Balanced allocations, 1994). Where both are full, a new push stream takes the place of the one that was
 * silent for longest, of those that may be forgotten: their client has no session, and they were silent for
 * PS_PUSH_STREAM_KEPT_S; else that of an older one of its own client. Where there is none, its pushes wait:
 * so no client can make another's repeated push be applied twice. Push streams that come with partitions or
 * from a checkpoint take the place of others if nothing else is left (ps_pushes_lost()).
 *
 * Shares: a client has no more than PS_PUSH_STREAMS_PER_CLIENT, about, and a network no more than
 * ps_push_guard.network_share. A network that has its share forgets push streams of its own that may be
 * forgotten, wherever they are, a few places at each push that waits. Belongs to one thread.
 */
#ifndef PS_PUSHES_H
#define PS_PUSHES_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"
#include "dataplane/wire/format/packet.h"
#include "ps/base/partition_set.h"
#include "ps/exactly_once/push_window.h"
#include "ps/exactly_once/shares.h"
#include "ps/memory/arena.h"

#define PS_PUSH_STREAMS_MAX        16384u
#define PS_PUSH_SET_WAYS           16u  /* places of each of the two sets that a stream's hash names */
#define PS_PUSH_STREAM_KEPT_S      900u /* a client that lost its server comes back before */
#define PS_PUSH_STREAMS_PER_CLIENT 1024u
#define PS_PUSH_RUNNING_MAX        64u /* pushes being applied at a time */

/* How far a push stream's pushes have come: all up to a floor were in the record ... */
enum ps_push_floor {
    PS_FLOOR_CUT,     /* at the last cut */
    PS_FLOOR_DISK,    /* at the last cut that is on disk, where a start finds it */
    PS_FLOOR_COPYING, /* at that of the checkpoint whose copy in the store is waited for */
    PS_FLOOR_DURABLE, /* at that after which clients need not keep them */
    PS_FLOOR_COUNT,
};

/* What is recorded of a push stream for the keys of some partitions. */
struct ps_push_mark {
    /* nothing is: the partitions came to this core after the push stream was begun, or went to another
     * one. Nobody waits for a push to be marked here, until one comes with keys of them. */
    bool is_unknown;
    struct ps_push_window window;
    uint64_t floors[PS_FLOOR_COUNT];
    struct ps_push_piece *next; /* of the push stream */
};

struct ps_push_piece {
    struct ps_push_mark mark;
    struct ps_partition_set partitions; /* disjoint from those of other pieces, and not empty */
};

/* One push stream of one client. Partitions come from other cores and nodes with what was recorded there,
 * and then a push may have been applied to the keys of some partitions only. */
struct ps_push_stream {
    uint8_t uuid[MR_UUID_BYTES];
    uint32_t stream_id;
    uint64_t used;    /* when it pushed last, in pushes of all */
    uint32_t used_s;  /* when it pushed last, or was loaded, by the guard's clock */
    uint64_t network; /* from which it pushed last; 0: not known */
    struct ps_share share;
    struct ps_push_mark rest; /* of all partitions that are in no piece; the pieces follow it */
};

/* A push: whose, and its number there. */
struct ps_push_id {
    const uint8_t *uuid; /* MR_UUID_BYTES */
    uint32_t stream_id;  /* not 0 */
    uint64_t number;     /* 1..mr_push_number_max() */
    uint64_t network;    /* from which it came, mr_address_network(); 0: not known */
};

enum ps_push_state {
    PS_PUSH_NEW,       /* to be applied; finishing it cannot fail */
    PS_PUSH_APPLIED,   /* nothing is left to do */
    PS_PUSH_PARTLY,    /* to be applied, but for the partitions that have it */
    PS_PUSH_WAITS,     /* it is being applied right now, or has to wait for others that are */
    PS_PUSH_NO_MEMORY, /* it could not be recorded */
};

/* What decides which push streams may make room for others, and how many anybody may have. */
struct ps_push_guard {
    uint64_t secret; /* by which push streams are spread */
    bool (*has_session)(void *arg, const uint8_t *uuid);
    uint32_t (*network_share)(void *arg, uint32_t places); /* of so many places, those of one network */
    uint32_t (*now_s)(void *arg);                          /* a clock that does not go back */
    void *arg;
};

/* Of so many places of a record, how many one network may hold: all of them where the guard does not say. */
static inline uint32_t ps_push_guard_share(const struct ps_push_guard *guard, uint32_t places)
{
    return guard->network_share != NULL ? guard->network_share(guard->arg, places) : places;
}

struct ps_pushes;

/* Push streams that were known and had to make room for others since the record was made. */
uint64_t ps_pushes_forgotten(const struct ps_pushes *p);
/* Of these, those that a client may still send again: it was heard within PS_PUSH_STREAM_KEPT_S, or a move
 * or a restore brought the push stream and there was no room for it. Such pushes may be applied twice. */
uint64_t ps_pushes_lost(const struct ps_pushes *p);

/* NULL when the arena has no room. guard: copied; NULL: any push stream may make room. */
struct ps_pushes *ps_pushes_create(struct ps_arena *arena, const struct ps_push_guard *guard);
void ps_pushes_destroy(struct ps_pushes *p);
/* Takes the place of an older record, whose counts of forgotten and lost push streams continue here. */
void ps_pushes_succeed(struct ps_pushes *p, const struct ps_pushes *older);
/* Forgets everything, also what is being applied. */
void ps_pushes_clear(struct ps_pushes *p);

/* What to do with a push. Makes the room that its mark takes. */
enum ps_push_state ps_pushes_look_up(struct ps_pushes *p, const struct ps_push_id *id);
/* Whether it was applied to the keys of a partition. */
bool ps_pushes_has(const struct ps_pushes *p, const struct ps_push_id *id, uint32_t partition);
/* The same for all partitions. */
struct ps_partition_set ps_pushes_partitions(const struct ps_pushes *p, const struct ps_push_id *id);
/* Whether the push stream is unknown for some partitions. Then ps_pushes_cover() must say, before the push
 * starts, which partitions it has keys of: they are known from then on. MR_OUT_OF_MEMORY. */
bool ps_pushes_has_unknown(const struct ps_pushes *p, const struct ps_push_id *id);
enum mr_status ps_pushes_cover(struct ps_pushes *p, const struct ps_push_id *id,
                               const struct ps_partition_set *touched);
/* A push that was looked up, and need not wait, is applied from now on, until it is finished: by then all of
 * its changes are made. No cut may fall in between. */
void ps_pushes_start(struct ps_pushes *p, const struct ps_push_id *id);
/* Returns how many others were given up, see ps/exactly_once/push_window.h. Nothing is marked when the record
 * was cleared meanwhile. */
uint64_t ps_pushes_finish(struct ps_pushes *p, const struct ps_push_id *id);

/* The client has no pushes for this core under the numbers from..id->number: marks them. False, and nothing
 * is marked: a push that is being applied is in the way. The push stream was looked up. */
bool ps_pushes_skip(struct ps_pushes *p, const struct ps_push_id *id, uint64_t from);

/* All of the push stream's pushes up to this number are in a checkpoint that is safe (PS_FLOOR_DURABLE); 0
 * when none is, or the push stream is not known. */
uint64_t ps_pushes_durable(const struct ps_pushes *p, const uint8_t *uuid, uint32_t stream_id);
/* The same of what was applied, or given up, so far. */
uint64_t ps_pushes_floor(const struct ps_pushes *p, const uint8_t *uuid, uint32_t stream_id);
/* A checkpoint holds what is recorded now: sets PS_FLOOR_CUT. */
void ps_pushes_cut(struct ps_pushes *p);
/* What had come as far as `from` has come as far as `to`, a later one, and all between. */
void ps_pushes_advance(struct ps_pushes *p, enum ps_push_floor from, enum ps_push_floor to);

/* NULL: it is not known. */
const struct ps_push_stream *ps_pushes_stream(const struct ps_pushes *p, const uint8_t *uuid,
                                              uint32_t stream_id);
/* Place i of PS_PUSH_STREAMS_MAX, for checkpoints: NULL when there is nothing to keep. */
const struct ps_push_stream *ps_pushes_at(const struct ps_pushes *p, uint32_t i);
/* The partitions that are in no piece. */
struct ps_partition_set ps_push_stream_rest(const struct ps_push_stream *stream);

/* A stored piece of a push stream. */
struct ps_push_load {
    const uint8_t *uuid;
    uint32_t stream_id;
    uint64_t used;
    struct ps_push_window window;
    uint64_t
        durable; /* all its floors, unless it is the record of a cut, whose PS_FLOOR_CUT is its window's */
    bool is_cut;
};
/* Sets what is recorded for some partitions (NULL: all). Where nothing was set, a new push stream is unknown.
 * MR_OUT_OF_MEMORY. */
enum mr_status ps_pushes_load(struct ps_pushes *p, const struct ps_push_load *piece,
                              const struct ps_partition_set *partitions);
/* Forgets what is recorded for some partitions: all push streams are unknown there. MR_OUT_OF_MEMORY: some
 * push streams are not yet; it may be repeated. */
enum mr_status ps_pushes_forget(struct ps_pushes *p, const struct ps_partition_set *partitions);

#endif
