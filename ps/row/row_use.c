#include "ps/row/row_use.h"

#define TICKS_PER_TABLE 1024u /* rows that the table may have, per row that a tick stands for */

void ps_row_use_alter(struct ps_row_use *u, const struct mr_feature *feature, uint64_t rows_max)
{
    u->eviction = feature->eviction;
    u->limit = 0;
    if (feature->eviction == MR_EVICT_NORM)
        u->limit = PS_NORM_IDLE_S;
    else if (feature->eviction == MR_EVICT_AGE || feature->eviction == MR_EVICT_STEPS)
        u->limit = feature->eviction_arg < (float)INT32_MAX ? (uint32_t)feature->eviction_arg : INT32_MAX;
    if (!ps_row_use_is_by_limit(u))
        return;
    u->tick_shift = 0;
    while (u->tick_shift < 31 && rows_max >> u->tick_shift >= 2 * TICKS_PER_TABLE)
        u->tick_shift++;
    u->clock = (uint64_t)u->now << u->tick_shift; /* stamps are not after `now`, and keep their order */
}

void ps_row_use_init(struct ps_row_use *u, const struct mr_feature *feature,
                     const struct ps_row_layout *layout, uint64_t rows_max)
{
    *u = (struct ps_row_use){.seen_offset = layout->seen_offset, .uses_offset = layout->uses_offset};
    ps_row_use_alter(u, feature, rows_max);
}

uint32_t ps_row_use_set_now(struct ps_row_use *u, uint32_t now_s, uint64_t step)
{
    uint32_t before = u->now;
    if (u->eviction == MR_EVICT_STEPS) {
        u->clock = step > u->clock ? step : u->clock;
        u->now = (uint32_t)u->clock;
    } else if (!ps_row_use_is_by_limit(u) && now_s > u->now) {
        u->now = now_s;
    }
    return ps_row_use_is_by_limit(u) ? 0 : u->now - before;
}

static bool is_by_clock(const struct ps_row_use *u)
{
    return u->eviction == MR_EVICT_AGE || u->eviction == MR_EVICT_NORM;
}

void ps_row_use_load_from(struct ps_row_use *u, uint32_t clock_s, uint32_t now_s)
{
    if (!is_by_clock(u))
        return;
    u->now = now_s;
    u->load_clock = clock_s;
    u->load_shift = now_s - clock_s;
}

/* Before version 4 of checkpoints stamps were of the wall clock, which is far ahead of all clocks of
 * nodes. */
static void move_stamp(const struct ps_row_use *u, uint8_t *row)
{
    uint32_t seen = ps_row_seen(u, row);
    bool is_other = (int32_t)(seen - u->load_clock) > (int32_t)PS_CLOCK_AHEAD_S;
    seen = (is_other ? 0 : seen) + u->load_shift;
    memcpy(row + u->seen_offset, &seen, sizeof(seen));
}

void ps_row_use_loaded(struct ps_row_use *u, uint8_t *row)
{
    if (u->seen_offset == PS_ROW_NO_FIELD)
        return;
    if (is_by_clock(u)) {
        move_stamp(u, row);
        return;
    }
    int32_t ahead = (int32_t)(ps_row_seen(u, row) - u->now);
    if (ahead <= 0)
        return;
    u->clock += (uint64_t)(uint32_t)ahead << u->tick_shift;
    u->now += (uint32_t)ahead;
}

void ps_row_use_start(const struct ps_row_use *u, uint8_t *row)
{
    uint32_t once = PS_LFU_USE;
    if (u->uses_offset != PS_ROW_NO_FIELD)
        memcpy(row + u->uses_offset, &once, sizeof(once));
    if (u->seen_offset != PS_ROW_NO_FIELD)
        memcpy(row + u->seen_offset, &u->now, sizeof(u->now));
}
