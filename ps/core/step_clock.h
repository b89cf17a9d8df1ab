/* The step that training has reached, by the steps that calls carry, but for calls that only read. Evictions
 * by steps and automatic checkpoints go by it, so a call with a wild step must not move it.
 *
 * A step within PS_STEP_NEAR of the present one moves it on at once; it never moves back so. Steps further
 * off count once PS_STEPS_AHEAD different calls in a row lie ahead, and none near: then the clock moves to
 * the lowest of theirs. Likewise it moves to the highest of PS_STEPS_BEHIND calls in a row that lie below (a
 * training that was started again). It begins at 0, or at a checkpoint's step. Step 0 says nothing. Belongs
 * to one thread.
 */
#ifndef PS_STEP_CLOCK_H
#define PS_STEP_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define PS_STEP_NEAR    1024u
#define PS_STEPS_AHEAD  16u
#define PS_STEPS_BEHIND 1024u

struct ps_step_clock {
    uint64_t step;
    uint64_t far_step; /* of the calls counted: the lowest ahead, or the highest below */
    uint32_t far_count;
    bool is_far_ahead;
    uint64_t session_id, call_id; /* of the last one counted: a call that is sent again counts once */
    uint64_t ignored;             /* calls that were counted, and then overruled by others */
};

/* A call of that step came. */
void ps_step_clock_see(struct ps_step_clock *clock, uint64_t step, uint64_t session_id, uint64_t call_id);
/* Somebody waits at that step for a checkpoint: where it is near, the calls far off that were counted count
 * no more. */
void ps_step_clock_hold(struct ps_step_clock *clock, uint64_t step);
/* It is known to be this one. */
void ps_step_clock_set(struct ps_step_clock *clock, uint64_t step);

#endif
