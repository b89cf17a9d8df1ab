/* The simulator of references: workers that make, pass, fetch and release them, die, or are taken for dead,
 * over a network that is as the endpoint makes it: each call arrives once, in any order and however late, or
 * one of the two is dead to the other. Messages of the references themselves, and fetches, may arrive again
 * at any later time.
 *
 *   sim_references.c  the program
 *   refsim_world.c    one run: the clock, what happens when, deaths, the end
 *   refsim_program.c  what workers do
 *   refsim_check.c    the model that all this is checked against
 */
#ifndef REFSIM_H
#define REFSIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "dataplane/rpc/rref/rref_count_internal.h"
#include "tests/sim/sim_random.h"

#define REFSIM_WORKERS_MAX 7u
#define REFSIM_VALUES_MAX  512u
#define REFSIM_HOLDS_MAX   1024u
#define REFSIM_TICKETS_MAX 4u
#define REFSIM_NO_VALUE    UINT32_MAX

/* A value, as an all-knowing observer sees it. Numbers rise in the order of making; one holds references to
 * older ones only. */
struct refsim_value {
    uint32_t number, owner, maker;
    uint64_t reference;
    bool fulfilled, freed;
    struct mr_reference *inner; /* held by the value, by its owner */
    uint32_t inner_number;
};

/* A hold of a worker's program. */
struct refsim_hold {
    bool used;
    uint32_t worker, number;
    bool asking;     /* until the answer comes, and not the program's */
    uint64_t serial; /* no two have the same */
    struct mr_reference *handle;
};

enum refsim_event_kind {
    REFSIM_STEP,    /* a worker does something */
    REFSIM_MESSAGE, /* of the references */
    REFSIM_CALL,    /* arrives */
    REFSIM_REPLY,   /* to a call: may hold references, too */
    REFSIM_FETCH,   /* arrives */
    REFSIM_FETCHED, /* the answer */
    REFSIM_MADE,    /* a function's result is there */
    REFSIM_RELEASE, /* a worker lets go of what a function was given */
    REFSIM_CRASH,
    REFSIM_FENCE,  /* a worker is taken for dead, and goes on */
    REFSIM_NOTICE, /* a worker hears of a death */
    REFSIM_KIND_COUNT
};

struct refsim_event {
    uint64_t at_us, order;
    enum refsim_event_kind kind;
    uint32_t from, to;
    bool again;      /* it came before, or will */
    uint32_t number; /* of a value */
    uint32_t hold;
    uint64_t serial;
    enum mr_status status;
    struct mr_reference_message message;
    bool remote; /* the first ticket is of what the call is to make */
    uint32_t ticket_count;
    struct mr_reference_ticket tickets[REFSIM_TICKETS_MAX];
    uint32_t numbers[REFSIM_TICKETS_MAX];
};

/* A value asked for, by a program or for a fetch. */
struct refsim_waiter {
    struct mr_reference_waiter waiter;
    struct refsim *sim;
    struct refsim_waiter *next;
    uint32_t worker, from; /* where it waits; who fetches, or the worker itself */
    uint32_t number, hold;
    uint64_t serial;
    bool again, confirmation, done;
};

struct refsim_worker {
    struct refsim *sim;
    uint32_t rank;
    struct mr_references *refs; /* NULL: crashed */
    bool dead;                  /* crashed, or taken for dead */
    bool stopping;              /* its references are being destroyed */
};

struct refsim {
    uint64_t seed;
    struct sim_rng rng;
    uint64_t now_us, order, trace, events;
    bool verbose, failed, calm;
    char why[256];
    uint32_t workers, steps_left, deaths_left;
    /* worker 0 owns all and lives; what others get they pass on at once, faster than they tell of it */
    bool relay;
    uint32_t repeat_ppm, late_ppm, fail_ppm, inner_ppm, keep_ppm;
    uint64_t delay_us, late_us, gap_us;
    uint64_t serial;
    struct refsim_worker worker[REFSIM_WORKERS_MAX];
    struct refsim_value values[REFSIM_VALUES_MAX];
    uint32_t value_count;
    struct refsim_hold holds[REFSIM_HOLDS_MAX];
    uint32_t hold_count; /* the highest used, and one */
    struct refsim_waiter *waiters;
    struct refsim_event **heap;
    uint32_t heap_count, heap_room;
};

void refsim_fail(struct refsim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void refsim_log_line(const struct refsim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define refsim_log(sim, ...)                                                                                 \
    do {                                                                                                     \
        if ((sim)->verbose)                                                                                  \
            refsim_log_line(sim, __VA_ARGS__);                                                               \
    } while (0)

/* ---- refsim_world.c ---- */
struct refsim *refsim_create(void);
void refsim_destroy(struct refsim *sim);
bool refsim_run(struct refsim *sim, uint64_t seed, bool verbose);
/* A copy of it will happen. */
void refsim_at(struct refsim *sim, uint64_t at_us, const struct refsim_event *event);
/* The same over the network: late, and again where it may. */
void refsim_carry(struct refsim *sim, const struct refsim_event *event);
/* What is sent and arrives is dropped between these. */
bool refsim_deaf(const struct refsim *sim, uint32_t from, uint32_t to);

/* ---- refsim_program.c ---- */
void refsim_step(struct refsim *sim, uint32_t worker);
void refsim_happen(struct refsim *sim, const struct refsim_event *event);
/* Lets go of everything. */
void refsim_release_all(struct refsim *sim, uint32_t worker);
void refsim_on_free(void *self, void *what);

/* ---- refsim_check.c ---- */
struct refsim_value *refsim_check_new(struct refsim *sim, uint32_t owner, uint32_t maker);
/* REFSIM_HOLDS_MAX: no room. */
uint32_t refsim_check_held(struct refsim *sim, uint32_t worker, struct mr_reference *handle, uint32_t number);
/* A ticket of this value was taken in. */
void refsim_check_taken(struct refsim *sim, uint32_t worker, const struct mr_reference *handle,
                        uint32_t number);
void refsim_check_freed(struct refsim *sim, uint32_t worker, struct refsim_value *value);
void refsim_check_waited(struct refsim *sim, const struct refsim_waiter *waiter, enum mr_status status,
                         const struct refsim_value *value);
void refsim_check_end(struct refsim *sim);

#endif
