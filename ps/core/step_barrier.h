/* A checkpoint at a step: holds back, on one core, the calls of clients that have finished that step, and
 * records which clients these are.
 *
 * A client that waits for its pushes' answers before it continues has all of step S applied when it first
 * sends a call of a later one. So once every trainer is held somewhere, the node has all pushes up to S and
 * none after it. A client counts for as long as it tries: nobody waits for one that died or gave up. Calls
 * far beyond S (of a wild step) pass.
 *
 * Belongs to the core's thread; the control thread looks at it in tasks (ps/control/control_step.c).
 */
#ifndef PS_STEP_BARRIER_H
#define PS_STEP_BARRIER_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/packet.h"

#define PS_STEP_CLIENTS_MAX 1024u
/* A client that is held sends again each 15 ms at the latest, while its process is in the library. */
#define PS_STEP_HELD_US 500000u

struct ps_step_client {
    uint8_t uuid[MR_UUID_BYTES];
    uint64_t held_us; /* when it was held last */
};

struct ps_step_barrier {
    uint64_t step;       /* calls beyond it wait */
    uint64_t stray_step; /* from here on they do not */
    uint32_t count;
    struct ps_step_client clients[PS_STEP_CLIENTS_MAX];
};

/* Nobody is held yet. */
void ps_step_barrier_init(struct ps_step_barrier *gate, uint64_t step, uint64_t stray_step);

/* Whether a call of that step has to wait. */
static inline bool ps_step_barrier_holds(const struct ps_step_barrier *gate, uint64_t step)
{
    return step > gate->step && step < gate->stray_step;
}

/* Notes a client that is held now; true when it was not known. Beyond PS_STEP_CLIENTS_MAX clients are not
 * known. */
bool ps_step_barrier_note(struct ps_step_barrier *gate, const uint8_t uuid[MR_UUID_BYTES], uint64_t now_us);
/* Adds the clients of another core's gate that are held at that time. */
void ps_step_barrier_merge(struct ps_step_barrier *into, const struct ps_step_barrier *from, uint64_t now_us);

#endif
