/* Up to four workers' references joined by a list of messages, which the test delivers in the order it likes,
 * loses when somebody died, and repeats. Values are counted when they are freed. */
#ifndef REFERENCES_WORLD_H
#define REFERENCES_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/rpc/rref/rref_count.h"

#define WORKERS 4u
#define QUEUED  256u

struct queued {
    uint32_t from, to;
    struct mr_reference_message message;
};

struct value {
    uint32_t freed;
    struct mr_references *refs;
    struct mr_reference *inner; /* released with it */
};

struct world {
    struct mr_references *refs[WORKERS];
    struct queued queue[QUEUED];
    uint32_t queued;
    bool repeat; /* everything that is delivered comes again, at the very end */
    struct queued again[QUEUED];
    uint32_t agains;
};

struct waiting {
    struct mr_reference_waiter waiter;
    uint32_t runs;
    enum mr_status status;
    void *value;
};

int world_setup(void **state);
int world_teardown(void **state);

/* Delivers the only message of that kind from one to another; fails when there is none, or several. */
void deliver(struct world *w, uint32_t from, uint32_t to, uint32_t kind);
uint32_t count_of(const struct world *w, uint32_t from, uint32_t to, uint32_t kind);
/* All there are, and those that follow from them. */
void deliver_all(struct world *w);
/* The worker stops: nothing from or to it is delivered any more, and nobody learns of it. */
void crash(struct world *w, uint32_t rank);
/* And tells everybody. */
void die(struct world *w, uint32_t rank);

/* Worker `from` passes to `to`, and it arrives. */
struct mr_reference *hand(struct world *w, uint32_t from, struct mr_reference *handle, uint32_t to);
struct mr_reference_ticket pass(struct world *w, uint32_t from, struct mr_reference *handle, uint32_t to);
struct mr_reference *take(struct world *w, uint32_t from, uint32_t to,
                          const struct mr_reference_ticket *ticket);
void release(struct world *w, uint32_t rank, struct mr_reference *handle);
/* Makes the numbers of a value that `owner` is to make. */
enum mr_status make_remote(struct mr_references *refs, uint32_t owner, struct mr_reference **out,
                           struct mr_reference_ticket *ticket);
bool is_dead(const struct mr_references *refs, uint32_t rank);
struct mr_reference *own(struct world *w, uint32_t rank, struct value *value);
struct waiting *waiting_init(struct waiting *waiting);
/* No value, fork, hold or child is anywhere but at the dead, and nothing is on its way. */
void assert_nothing_left(struct world *w);

#endif
