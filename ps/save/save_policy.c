#include "ps/save/save_policy.h"

#include <stdio.h>
#include <string.h>
#include "ps/checkpoint/checkpoint.h"

uint64_t ps_trainer_saves_next_us(const struct ps_trainer_saves *saves, uint64_t limit)
{
    if (limit == 0)
        return UINT64_MAX;
    if (saves->count < limit)
        return 0;
    return saves->at_us[(saves->count - limit) % PS_TRAINER_SAVES_MAX] + PS_TRAINER_SAVES_SPAN_US;
}

void ps_trainer_saves_note(struct ps_trainer_saves *saves, uint64_t now_us)
{
    saves->at_us[saves->count++ % PS_TRAINER_SAVES_MAX] = now_us;
}

const char *ps_save_chain_no_delta(const struct ps_save_chain *chain,
                                   const struct ps_save_chain_limits *limits, const char *directory,
                                   bool parent_is_there, const char *marks_lost)
{
    if (limits->deltas_max == 0)
        return "checkpoint.deltas is 0: this node does not keep track of what has changed";
    if (!chain->is_open) {
        return chain->why_closed != NULL
                   ? chain->why_closed
                   : "there is no checkpoint yet that it could follow: save a full one first";
    }
    if (strcmp(chain->directory, directory) != 0)
        return "the last checkpoint is in another directory";
    if (!parent_is_there)
        return "the last checkpoint is no longer in the directory";
    if (chain->deltas + 1 >= PS_CHAIN_LINKS_MAX)
        return "the chain is as long as one can be";
    return marks_lost;
}

bool ps_save_chain_is_long(const struct ps_save_chain *chain, const struct ps_save_chain_limits *limits)
{
    return chain->deltas >= limits->deltas_max ||
           (double)chain->delta_bytes * 100 > (double)chain->full_bytes * limits->delta_share_percent;
}

void ps_save_chain_published(struct ps_save_chain *chain, const char *directory, uint64_t id, bool is_delta,
                             uint64_t bytes)
{
    if (!is_delta) {
        ps_save_chain_restored(chain, directory, id, 0, bytes, 0);
        return;
    }
    chain->last_id = id;
    chain->deltas++;
    chain->delta_bytes += bytes;
}

void ps_save_chain_restored(struct ps_save_chain *chain, const char *directory, uint64_t id, uint32_t deltas,
                            uint64_t full_bytes, uint64_t delta_bytes)
{
    chain->is_open = true;
    chain->why_closed = NULL;
    snprintf(chain->directory, sizeof(chain->directory), "%s", directory);
    chain->last_id = id;
    chain->deltas = deltas;
    chain->full_bytes = full_bytes;
    chain->delta_bytes = delta_bytes;
}

void ps_save_chain_set_hash(struct ps_save_chain *chain, struct ps_hash hash)
{
    chain->last_hash = hash;
}

void ps_save_chain_break(struct ps_save_chain *chain, const char *why)
{
    chain->is_open = false;
    chain->why_closed = why;
}

static uint64_t multiple_above(const struct ps_save_schedule *s, uint64_t step)
{
    uint64_t next;
    if (s->every_steps == 0 || __builtin_mul_overflow(step / s->every_steps + 1, s->every_steps, &next))
        return UINT64_MAX;
    return next;
}

void ps_save_schedule_start(struct ps_save_schedule *s, uint64_t every_steps, uint64_t every_us,
                            uint64_t step, uint64_t now_us)
{
    *s = (struct ps_save_schedule){.every_steps = every_steps, .every_us = every_us};
    ps_save_schedule_began(s, step, now_us);
}

void ps_save_schedule_began(struct ps_save_schedule *s, uint64_t step, uint64_t now_us)
{
    s->next_step = multiple_above(s, step);
    s->next_us = now_us + s->every_us;
}

void ps_save_schedule_change(struct ps_save_schedule *s, uint64_t every_steps, uint64_t every_us,
                             uint64_t step, uint64_t now_us)
{
    if (s->every_us != every_us)
        s->next_us = (s->every_us != 0 ? s->next_us - s->every_us : now_us) + every_us;
    s->every_us = every_us;
    if (s->every_steps == every_steps)
        return;
    s->every_steps = every_steps;
    s->next_step = multiple_above(s, step);
}

bool ps_save_schedule_step_is_due(struct ps_save_schedule *s, uint64_t step)
{
    if (s->every_steps == 0)
        return false;
    uint64_t above = multiple_above(s, step);
    s->next_step = above < s->next_step ? above : s->next_step;
    return step >= s->next_step;
}

bool ps_save_schedule_time_is_due(const struct ps_save_schedule *s, uint64_t now_us)
{
    return s->every_us != 0 && now_us >= s->next_us;
}
