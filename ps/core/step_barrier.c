#include "ps/core/step_barrier.h"

#include <string.h>

void ps_step_barrier_init(struct ps_step_barrier *gate, uint64_t step, uint64_t stray_step)
{
    gate->step = step;
    gate->stray_step = stray_step;
    gate->count = 0;
}

bool ps_step_barrier_note(struct ps_step_barrier *gate, const uint8_t uuid[MR_UUID_BYTES], uint64_t now_us)
{
    for (uint32_t i = 0; i < gate->count; i++) {
        struct ps_step_client *client = &gate->clients[i];
        if (memcmp(client->uuid, uuid, MR_UUID_BYTES) == 0) {
            client->held_us = now_us > client->held_us ? now_us : client->held_us;
            return false;
        }
    }
    if (gate->count == PS_STEP_CLIENTS_MAX)
        return false;
    struct ps_step_client *client = &gate->clients[gate->count++];
    memcpy(client->uuid, uuid, MR_UUID_BYTES);
    client->held_us = now_us;
    return true;
}

void ps_step_barrier_merge(struct ps_step_barrier *into, const struct ps_step_barrier *from, uint64_t now_us)
{
    for (uint32_t i = 0; i < from->count; i++) {
        const struct ps_step_client *client = &from->clients[i];
        if (client->held_us + PS_STEP_HELD_US >= now_us)
            (void)ps_step_barrier_note(into, client->uuid, client->held_us);
    }
}
