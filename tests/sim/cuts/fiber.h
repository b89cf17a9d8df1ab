/* Threads that take turns under a virtual clock, all drawn from one seed: code with threads, semaphores,
 * locks and sleeps runs as it is, and the same seed runs the same way again. One runs at a time, on a stack
 * of its own; it gives way where it waits or sleeps, and each is delayed a little, as a busy machine would.
 *
 * fiber_wraps.c puts fibers behind the calls of pthread.h, semaphore.h and time.h, by the linker's --wrap.
 */
#ifndef SIM_FIBER_H
#define SIM_FIBER_H

#include <stdbool.h>
#include <stdint.h>

#define FIBER_NEVER UINT64_MAX

struct fiber;

/* Everything from here on hangs on the seed. look_ns: what a look at the clock takes at most; one in
 * `stall_one_in` that could go on is held up for longer, as if the machine had no processor for it. */
void fibers_begin(uint64_t seed, uint32_t look_ns, uint32_t stall_one_in);
/* Runs all until this one has ended, and no further. The others' stacks are given back, what else they hold
 * is not. */
void fibers_run(struct fiber *until);
/* In ns since the beginning; the look itself takes a moment. */
uint64_t fiber_look_ns(void);
static inline uint64_t fiber_look_us(void)
{
    return fiber_look_ns() / 1000;
}
/* The same for a test's own notes: takes no time. */
uint64_t fiber_now_ns(void);
/* Random numbers for whatever happens in the run. */
uint64_t *fiber_random(void);

struct fiber *fiber_start(const char *name, void *(*run)(void *arg), void *arg);
/* Waits for its end and frees it. */
void *fiber_join(struct fiber *f);
struct fiber *fiber_self(void);
void fiber_sleep_ns(uint64_t ns);
/* Until fiber_wake(on), which may come without a reason, or until_ns. False: the time has come. */
bool fiber_wait(const void *on, uint64_t until_ns);
void fiber_wake(const void *on);
/* Has run(arg) called at a time, outside of all fibers. */
void fiber_at(uint64_t at_ns, void (*run)(void *arg), void *arg);

/* Sets the wall clock to some time of the days before it was started. Nothing may go by it. */
void fiber_set_wall_clock(uint32_t random);

/* A hash over all that has happened: the same seed gives the same. */
uint64_t fibers_trace(void);
void fibers_note(uint64_t what);

#endif
