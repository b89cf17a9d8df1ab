/* Trainers that the hub has heard from: who takes part in which plan, and since when each is silent. Bounded:
 * the one silent for longest makes room. One thread at a time.
 */
#ifndef HUB_TRAINERS_H
#define HUB_TRAINERS_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/packet.h"

#define HUB_TRAINERS_MAX 256u

struct hub_trainer {
    uint8_t uuid[MR_UUID_BYTES];
    uint64_t plan_number; /* of the plan it started or joined */
    uint64_t seen_us;
    bool told_end; /* of its plan */
};

struct hub_trainers {
    struct hub_trainer entries[HUB_TRAINERS_MAX];
    uint32_t count;
};

void hub_trainers_join(struct hub_trainers *t, const uint8_t *uuid, uint64_t plan_number, uint64_t now_us);
/* Notes that it was heard. The number of its plan, or 0 when it has none. */
uint64_t hub_trainers_seen(struct hub_trainers *t, const uint8_t *uuid, uint64_t now_us);
/* It was told that its plan is at the end. */
void hub_trainers_told_end(struct hub_trainers *t, const uint8_t *uuid);
/* Trainers of the plan heard within `timeout_us`; and those of them that were not told its end. */
uint32_t hub_trainers_alive(const struct hub_trainers *t, uint64_t plan_number, uint64_t now_us,
                            uint64_t timeout_us);
uint32_t hub_trainers_in_plan(const struct hub_trainers *t, uint64_t plan_number, uint64_t now_us,
                              uint64_t timeout_us);

#endif
