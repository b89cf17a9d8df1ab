/* When and how often a row was used, and what follows from it for eviction. Rows carry `seen` and, for LFU,
 * `uses` (ps/row/row_layout.h); a use is a lookup that may insert, or a push.
 *
 * What `seen` counts depends on the table's eviction:
 *   AGE, NORM  seconds of the node's clock, which are those that it has served. A checkpoint has that clock,
 *              which continues from there after a restore, so that time in which nobody could use a row does
 *              not age it
 *   STEPS      the low 32 bits of the highest step that the table has seen
 *   LRU, LFU   ticks of the table's own clock, which counts keys used. So these depend on the order of calls
 *              alone. A tick is about 1/1024 of the rows the table may have, and at least one key.
 * 32 bits wrap: ages are distinguished up to 2^31, older rows look younger than they are; what lies in the
 * future is of age 0.
 *
 * LFU counts with decay: a row's uses are halved each PS_LFU_HALF_LIFE_TICKS, that is with every 16 uses per
 * row that the table may have (as LFU with dynamic aging). Belongs to one thread.
 */
#ifndef PS_ROW_USE_H
#define PS_ROW_USE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "dataplane/wire/format/mr_feature.h"
#include "ps/row/row_layout.h"

#define PS_LFU_HALF_LIFE_SHIFT 14u
#define PS_LFU_HALF_LIFE_TICKS (1u << PS_LFU_HALF_LIFE_SHIFT)
#define PS_LFU_USE             256u /* what one use counts, so that halving keeps fractions */
/* LRU and LFU do not evict rows used by the last so many keys, and AGE and STEPS none that were used now: a
 * call in progress may hold them. */
#define PS_USES_HELD 48u
#define PS_CLOCK_AHEAD_S                                                                                     \
    3600u /* stamps further ahead of a checkpoint's clock are not of it: rows may be used while it is cut */
#define PS_NORM_IDLE_S 60u /* a row of small norm stays that long after its last use */

struct ps_row_use {
    uint32_t eviction; /* enum mr_eviction */
    uint32_t seen_offset, uses_offset;
    uint32_t limit;      /* AGE, STEPS, NORM: rows unseen for more than this are evicted */
    uint32_t now;        /* what a row used now is stamped with */
    uint32_t load_clock; /* AGE, NORM: what it was when the rows that are loaded were saved, */
    uint32_t load_shift; /* and from there to `now` */
    uint32_t tick_shift; /* LRU, LFU: keys used per tick, as a power of two */
    uint32_t held_from;  /* if is_held: rows stamped with this or later do not make room */
    bool is_held;
    uint64_t clock; /* STEPS: the highest step; LRU, LFU: keys used */
};

/* `feature` has passed mr_feature_check(). rows_max: how many rows the table may have, about. */
void ps_row_use_init(struct ps_row_use *u, const struct mr_feature *feature,
                     const struct ps_row_layout *layout, uint64_t rows_max);
/* The options of eviction are `feature`'s from now on; what rows are stamped with goes on. */
void ps_row_use_alter(struct ps_row_use *u, const struct mr_feature *feature, uint64_t rows_max);
/* The time and the caller's step. Neither goes back. Returns by how much `now` advanced; 0 for LRU and
 * LFU. */
uint32_t ps_row_use_set_now(struct ps_row_use *u, uint32_t now_s, uint64_t step);
/* The rows that are loaded from now on were saved when the node's clock was at clock_s, and it is at now_s
 * here. Only for AGE and NORM. */
void ps_row_use_load_from(struct ps_row_use *u, uint32_t clock_s, uint32_t now_s);
/* A row that was stored before. AGE, NORM: it is as old as it was when it was saved, or as that clock if no
 * such clock stamped it. Else `now` is not before its stamp from now on. */
void ps_row_use_loaded(struct ps_row_use *u, uint8_t *row);

static inline bool ps_row_use_is_by_limit(const struct ps_row_use *u)
{
    return u->eviction == MR_EVICT_LRU || u->eviction == MR_EVICT_LFU;
}

/* At a limit the row that is idle for longest, or used least, goes for a new one. */
static inline bool ps_row_use_makes_room(const struct ps_row_use *u)
{
    return ps_row_use_is_by_limit(u) || u->eviction == MR_EVICT_AGE || u->eviction == MR_EVICT_STEPS;
}

static inline uint32_t ps_row_seen(const struct ps_row_use *u, const uint8_t *row)
{
    uint32_t seen;
    memcpy(&seen, row + u->seen_offset, sizeof(seen));
    return seen;
}

/* 0 unless it is kept. */
static inline uint32_t ps_row_uses(const struct ps_row_use *u, const uint8_t *row)
{
    uint32_t uses = 0;
    if (u->uses_offset != PS_ROW_NO_FIELD)
        memcpy(&uses, row + u->uses_offset, sizeof(uses));
    return uses;
}

/* Before the rows of so many keys are used. */
static inline void ps_row_use_advance(struct ps_row_use *u, uint32_t key_count)
{
    if (ps_row_use_is_by_limit(u)) {
        u->clock += key_count;
        u->now = (uint32_t)(u->clock >> u->tick_shift);
    }
}

/* uses as of now, that were `uses` at `seen`. */
static inline uint32_t ps_uses_now(const struct ps_row_use *u, uint32_t seen, uint32_t uses)
{
    uint32_t halvings = ((u->now >> PS_LFU_HALF_LIFE_SHIFT) - (seen >> PS_LFU_HALF_LIFE_SHIFT)) &
                        (UINT32_MAX >> PS_LFU_HALF_LIFE_SHIFT);
    return halvings < 32 ? uses >> halvings : 0;
}

/* The row is used now. */
static inline void ps_row_used(const struct ps_row_use *u, uint8_t *row)
{
    if (u->uses_offset != PS_ROW_NO_FIELD) {
        uint32_t uses = ps_uses_now(u, ps_row_seen(u, row), ps_row_uses(u, row));
        uses = uses > UINT32_MAX - PS_LFU_USE ? UINT32_MAX : uses + PS_LFU_USE;
        memcpy(row + u->uses_offset, &uses, sizeof(uses));
    }
    memcpy(row + u->seen_offset, &u->now, sizeof(u->now));
}

/* A new row, used once: now. Its fields hold anything. */
void ps_row_use_start(const struct ps_row_use *u, uint8_t *row);

static inline uint32_t ps_age(const struct ps_row_use *u, uint32_t seen)
{
    int32_t age = (int32_t)(u->now - seen);
    return age > 0 ? (uint32_t)age : 0;
}

/* AGE, STEPS: unseen for longer than the limit. NORM: unseen for PS_NORM_IDLE_S; the norm is the caller's to
 * look at. */
static inline bool ps_row_is_over_age(const struct ps_row_use *u, const uint8_t *row)
{
    return ps_age(u, ps_row_seen(u, row)) > u->limit;
}

/* Of two rows the one with the higher figure is evicted first at a limit. */
static inline uint64_t ps_row_idleness(const struct ps_row_use *u, uint32_t seen, uint32_t uses)
{
    uint64_t rarity = UINT32_MAX - (u->eviction == MR_EVICT_LFU ? ps_uses_now(u, seen, uses) : 0);
    return rarity << 32 | ps_age(u, seen);
}

/* Rows that are used from now on stay until they are released again. */
static inline void ps_row_use_hold(struct ps_row_use *u)
{
    u->held_from = u->now;
    u->is_held = true;
}

static inline void ps_row_use_release(struct ps_row_use *u)
{
    u->is_held = false;
}

/* No call in progress can hold the row: `now` of AGE and STEPS stands still in one. */
static inline bool ps_row_is_released(const struct ps_row_use *u, uint32_t seen)
{
    if (u->is_held && (int32_t)(seen - u->held_from) >= 0)
        return false;
    return ps_age(u, seen) > (ps_row_use_is_by_limit(u) ? (PS_USES_HELD >> u->tick_shift) + 1 : 0);
}

#endif
