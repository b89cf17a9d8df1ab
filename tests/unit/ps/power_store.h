/* A store in memory that lists all changes asked of it, and can tell what a machine finds whose power failed
 * after any of them. What was not synced by then may be there or not: each sector of a write kept, lost or
 * garbled, the file as long as if it were there, each name made, moved or removed, or not yet.
 *
 * Calls may come from any thread; the functions here are for the test's, while no writer is at work.
 */
#ifndef TESTS_POWER_STORE_H
#define TESTS_POWER_STORE_H

#include <stdint.h>
#include "ps/io/store.h"

#define POWER_SECTOR_BYTES 512u

/* Fates of what was not synced, by seed. Further seeds draw them: every write's, every sector's and every
 * name's. */
enum power_seed {
    POWER_ALL_LOST,
    POWER_NAMES_KEPT, /* and no content */
    POWER_ALL_KEPT,
    POWER_DRAWN, /* this one, and all above */
};

struct power_store;

/* An empty one. Never NULL: want of memory ends the test. */
struct power_store *power_store_create(void);
/* What is found when the power fails after the first `changes` of p's. It begins a list of its own; p must
 * outlive it. */
struct power_store *power_store_after_failure(const struct power_store *p, uint32_t changes, uint64_t seed);
void power_store_destroy(struct power_store *p);

/* To give to the code under test. */
const struct ps_store *power_store_calls(struct power_store *p);
/* How many changes were made so far: writes, syncs, and names made, moved and removed. */
uint32_t power_store_changes(const struct power_store *p);
/* What the change with this number (from 0) was, for messages: "write of core-000.mrc". In a static
 * buffer. */
const char *power_store_change(const struct power_store *p, uint32_t number);

#endif
