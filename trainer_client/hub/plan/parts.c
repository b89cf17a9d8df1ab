#include "trainer_client/hub/plan/parts.h"

#include <stdlib.h>
#include <string.h>

bool hub_parts_make(struct hub_parts *parts, uint32_t count)
{
    struct hub_part *all = calloc(count, sizeof(*all));
    if (all == NULL)
        return false;
    free(parts->all);
    *parts = (struct hub_parts){.all = all, .count = count};
    return true;
}

bool hub_parts_grow(struct hub_parts *parts, uint32_t count)
{
    struct hub_part *all = realloc(parts->all, count * sizeof(*all));
    if (all == NULL)
        return false;
    memset(all + parts->count, 0, (count - parts->count) * sizeof(*all));
    parts->all = all;
    parts->count = count;
    return true;
}

void hub_parts_free(struct hub_parts *parts)
{
    free(parts->all);
    *parts = (struct hub_parts){0};
}

struct hub_part *hub_parts_find(const struct hub_parts *parts, uint32_t stream)
{
    for (uint32_t i = 0; i < parts->count; i++)
        if (parts->all[i].has_stream && parts->all[i].stream == stream)
            return &parts->all[i];
    return NULL;
}

bool hub_parts_at_end(const struct hub_parts *parts)
{
    for (uint32_t i = 0; i < parts->count; i++)
        if (!hub_plan_at_end(&parts->all[i].plan))
            return false;
    return true;
}

struct hub_parts_counts hub_parts_count(const struct hub_parts *parts)
{
    struct hub_parts_counts sum = {0};
    for (uint32_t i = 0; i < parts->count; i++) {
        const struct hub_plan *p = &parts->all[i].plan;
        sum.fed += p->fed;
        sum.handed_out += p->handed_out;
        sum.handed_again += p->handed_again;
        sum.expired += p->expired;
        sum.applied += p->applied;
        sum.ahead += p->ahead;
    }
    return sum;
}

uint64_t hub_parts_batches(const struct hub_parts *parts)
{
    uint64_t batches = 0;
    for (uint32_t i = 0; i < parts->count; i++) {
        if (parts->all[i].plan.batches == HUB_BATCHES_UNKNOWN)
            return 0;
        batches += parts->all[i].plan.batches;
    }
    return batches;
}

struct hub_part *hub_parts_hand_out(struct hub_parts *parts, uint64_t now_us, uint64_t *sequence)
{
    for (uint32_t tries = 0; tries < parts->count; tries++) {
        struct hub_part *part = &parts->all[parts->turn];
        parts->turn = (parts->turn + 1) % parts->count;
        if (hub_plan_hand_out(&part->plan, now_us, sequence))
            return part;
    }
    return NULL;
}

void hub_parts_expire(struct hub_parts *parts, uint64_t now_us)
{
    for (uint32_t i = 0; i < parts->count; i++)
        hub_plan_expire(&parts->all[i].plan, now_us);
}

void hub_parts_server_restarted(struct hub_parts *parts)
{
    for (uint32_t i = 0; i < parts->count; i++)
        hub_plan_server_restarted(&parts->all[i].plan);
}
