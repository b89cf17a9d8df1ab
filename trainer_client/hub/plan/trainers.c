#include "trainer_client/hub/plan/trainers.h"

#include <stddef.h>
#include <string.h>

static struct hub_trainer *trainers_find(struct hub_trainers *t, const uint8_t *uuid)
{
    for (uint32_t i = 0; i < t->count; i++)
        if (memcmp(t->entries[i].uuid, uuid, MR_UUID_BYTES) == 0)
            return &t->entries[i];
    return NULL;
}

static struct hub_trainer *longest_silent(struct hub_trainers *t)
{
    struct hub_trainer *oldest = &t->entries[0];
    for (uint32_t i = 1; i < t->count; i++)
        if (t->entries[i].seen_us < oldest->seen_us)
            oldest = &t->entries[i];
    return oldest;
}

void hub_trainers_join(struct hub_trainers *t, const uint8_t *uuid, uint64_t plan_number, uint64_t now_us)
{
    struct hub_trainer *trainer = trainers_find(t, uuid);
    if (trainer == NULL) {
        trainer = t->count < HUB_TRAINERS_MAX ? &t->entries[t->count++] : longest_silent(t);
        memcpy(trainer->uuid, uuid, MR_UUID_BYTES);
    }
    trainer->plan_number = plan_number;
    trainer->seen_us = now_us;
    trainer->told_end = false;
}

uint64_t hub_trainers_seen(struct hub_trainers *t, const uint8_t *uuid, uint64_t now_us)
{
    struct hub_trainer *trainer = trainers_find(t, uuid);
    if (trainer == NULL)
        return 0;
    trainer->seen_us = now_us;
    return trainer->plan_number;
}

void hub_trainers_told_end(struct hub_trainers *t, const uint8_t *uuid)
{
    struct hub_trainer *trainer = trainers_find(t, uuid);
    if (trainer != NULL)
        trainer->told_end = true;
}

static bool is_alive(const struct hub_trainer *t, uint64_t plan_number, uint64_t now_us, uint64_t timeout_us)
{
    return t->plan_number == plan_number && now_us - t->seen_us < timeout_us;
}

uint32_t hub_trainers_alive(const struct hub_trainers *t, uint64_t plan_number, uint64_t now_us,
                            uint64_t timeout_us)
{
    uint32_t alive = 0;
    for (uint32_t i = 0; i < t->count; i++)
        alive += is_alive(&t->entries[i], plan_number, now_us, timeout_us);
    return alive;
}

uint32_t hub_trainers_in_plan(const struct hub_trainers *t, uint64_t plan_number, uint64_t now_us,
                              uint64_t timeout_us)
{
    uint32_t alive = 0;
    for (uint32_t i = 0; i < t->count; i++)
        alive += !t->entries[i].told_end && is_alive(&t->entries[i], plan_number, now_us, timeout_us);
    return alive;
}
