#include "fiber.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#include "tests/property/random.h"

#define STACK_BYTES ((size_t)1 << 20)
#define FIBERS_MAX  64u
#define DELAY_NS    3000u /* before one that may go on does, mostly */
#define STALL_NS    2000000u

struct fiber {
    const char *name;
    void *(*run)(void *arg);
    void *arg, *result;
    ucontext_t context;
    void *stack;
    void *fake_stack; /* the address sanitizer's */
    uint64_t due_ns;  /* FIBER_NEVER: it waits for a wake alone */
    uint64_t order;   /* of equal times */
    const void *waits_on;
    bool woken, ended;
};

struct timer {
    uint64_t at_ns, order;
    void (*run)(void *arg);
    void *arg;
};

static struct {
    uint64_t now_ns, random, trace, order;
    uint32_t look_ns, stall_one_in;
    struct fiber *fibers[FIBERS_MAX];
    uint32_t count;
    struct fiber *self;
    ucontext_t scheduler;
    void *scheduler_fake_stack;
    const void *scheduler_stack;
    size_t scheduler_stack_bytes;
    struct timer *timers; /* a heap */
    uint32_t timer_count, timer_room;
} all;

void fibers_begin(uint64_t seed, uint32_t look_ns, uint32_t stall_one_in)
{
    all.random = seed * UINT64_C(0xD1342543DE82EF95) + 1;
    all.look_ns = look_ns;
    all.stall_one_in = stall_one_in;
    all.now_ns = 1000000000;
}

uint64_t fiber_now_ns(void)
{
    return all.now_ns;
}

uint64_t fiber_look_ns(void)
{
    all.now_ns += 50 + random_below(&all.random, all.look_ns);
    return all.now_ns;
}

uint64_t *fiber_random(void)
{
    return &all.random;
}

uint64_t fibers_trace(void)
{
    return all.trace;
}

void fibers_note(uint64_t what)
{
    all.trace = (all.trace ^ (all.now_ns + what)) * UINT64_C(0x100000001B3);
}

struct fiber *fiber_self(void)
{
    return all.self;
}

/* ---- switching ---- */

static void to_fiber(struct fiber *f)
{
    all.self = f;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&all.scheduler_fake_stack, f->stack, STACK_BYTES);
#endif
    (void)swapcontext(&all.scheduler, &f->context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(all.scheduler_fake_stack, NULL, NULL);
#endif
    all.self = NULL;
}

static void to_scheduler(struct fiber *f)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(f->ended ? NULL : &f->fake_stack, all.scheduler_stack,
                                   all.scheduler_stack_bytes);
#endif
    (void)swapcontext(&f->context, &all.scheduler);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(f->fake_stack, NULL, NULL);
#endif
}

static void fiber_begin(void)
{
    struct fiber *f = all.self;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, &all.scheduler_stack, &all.scheduler_stack_bytes);
#endif
    f->result = f->run(f->arg);
    f->ended = true;
    f->due_ns = FIBER_NEVER;
    fiber_wake(f);
    to_scheduler(f);
}

/* ---- waiting ---- */

static uint64_t some_delay_ns(void)
{
    const bool stalls = random_one_in(&all.random, all.stall_one_in);
    return random_below(&all.random, stalls ? STALL_NS : DELAY_NS);
}

static void go_on_at(struct fiber *f, uint64_t at_ns)
{
    f->due_ns = at_ns;
    f->order = all.order++;
}

struct fiber *fiber_start(const char *name, void *(*run)(void *arg), void *arg)
{
    struct fiber *f = calloc(1, sizeof(*f));
    assert(f != NULL && all.count < FIBERS_MAX);
    f->name = name;
    f->run = run;
    f->arg = arg;
    f->stack =
        mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert(f->stack != MAP_FAILED);
    (void)getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&f->context, fiber_begin, 0);
    go_on_at(f, all.now_ns + some_delay_ns());
    all.fibers[all.count++] = f;
    return f;
}

static void forget(struct fiber *f)
{
    uint32_t at = 0;
    while (all.fibers[at] != f)
        at++;
    memmove(&all.fibers[at], &all.fibers[at + 1], (--all.count - at) * sizeof(struct fiber *));
    (void)munmap(f->stack, STACK_BYTES);
    free(f);
}

void *fiber_join(struct fiber *f)
{
    while (!f->ended)
        (void)fiber_wait(f, FIBER_NEVER);
    void *result = f->result;

    forget(f);
    return result;
}

void fiber_sleep_ns(uint64_t ns)
{
    assert(all.self != NULL);
    all.self->waits_on = NULL;
    go_on_at(all.self, all.now_ns + ns + some_delay_ns());
    to_scheduler(all.self);
}

bool fiber_wait(const void *on, uint64_t until_ns)
{
    struct fiber *self = all.self;
    assert(self != NULL);
    self->waits_on = on;
    self->woken = false;
    go_on_at(self, until_ns);
    to_scheduler(self);
    self->waits_on = NULL;
    return self->woken;
}

void fiber_wake(const void *on)
{
    for (uint32_t i = 0; i < all.count; i++) {
        struct fiber *f = all.fibers[i];
        if (f->waits_on != on || f->woken || f->ended)
            continue;
        f->woken = true;
        uint64_t at_ns = all.now_ns + some_delay_ns();

        if (at_ns < f->due_ns)
            go_on_at(f, at_ns);
    }
}

/* ---- timers ---- */

static bool is_earlier(const struct timer *a, const struct timer *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void fiber_at(uint64_t at_ns, void (*run)(void *arg), void *arg)
{
    const struct timer timer = {at_ns, all.order++, run, arg};
    if (all.timer_count == all.timer_room) {
        all.timer_room = all.timer_room > 0 ? 2 * all.timer_room : 256;
        all.timers = realloc(all.timers, all.timer_room * sizeof(*all.timers));
        assert(all.timers != NULL);
    }
    uint32_t at = all.timer_count++;

    for (; at > 0 && is_earlier(&timer, &all.timers[(at - 1) / 2]); at = (at - 1) / 2)
        all.timers[at] = all.timers[(at - 1) / 2];
    all.timers[at] = timer;
}

static struct timer take_timer(void)
{
    const struct timer top = all.timers[0], last = all.timers[--all.timer_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < all.timer_count && is_earlier(&all.timers[child + 1], &all.timers[child]))
            child++;
        if (child >= all.timer_count || !is_earlier(&all.timers[child], &last))
            break;
        all.timers[at] = all.timers[child];
        at = child;
    }
    all.timers[at] = last;
    return top;
}

/* ---- the scheduler ---- */

static struct fiber *next_fiber(void)
{
    struct fiber *next = NULL;
    for (uint32_t i = 0; i < all.count; i++) {
        struct fiber *f = all.fibers[i];
        bool earlier =
            next == NULL || f->due_ns < next->due_ns || (f->due_ns == next->due_ns && f->order < next->order);
        if (!f->ended && f->due_ns != FIBER_NEVER && earlier)
            next = f;
    }
    return next;
}

static void fiber_step(void)
{
    struct fiber *f = next_fiber();
    if (all.timer_count > 0 && (f == NULL || all.timers[0].at_ns <= f->due_ns)) {
        struct timer timer = take_timer();
        all.now_ns = timer.at_ns > all.now_ns ? timer.at_ns : all.now_ns;
        timer.run(timer.arg);
        return;
    }
    if (f == NULL) {
        fprintf(stderr, "all wait, and nothing will ever happen\n");
        abort();
    }
    all.now_ns = f->due_ns > all.now_ns ? f->due_ns : all.now_ns;
    fibers_note((uint64_t)(unsigned char)f->name[0]);
    to_fiber(f);
}

void fibers_run(struct fiber *until)
{
    while (!until->ended)
        fiber_step();
    while (all.timer_count > 0) {
        struct timer timer = take_timer();
        timer.run(timer.arg); /* frees what it has */
    }
    while (all.count > 0)
        forget(all.fibers[0]);
    free(all.timers);
    all.timers = NULL;
    all.timer_room = 0;
}
