/* Chains of small checkpoints for tests: each link's rows and keys that are gone are given key by key, and
 * what a restore of them would hold is compared with that. */
#ifndef TESTS_CHAIN_FIXTURE_H
#define TESTS_CHAIN_FIXTURE_H

#include "checkpoint_fixture.h"

#define CHAIN_KEYS 64u

/* What a link does to key i. */
enum chain_change {
    CHAIN_NOTHING = 0,
    CHAIN_GONE = 255, /* any other number: the row's value from now on */
};

/* Writes checkpoint `id` (a full when parent is 0) with these changes; small records carry the id. Fails the
 * test if it does not succeed. */
void chain_save(const struct ps_store *store, const char *directory, uint64_t id, uint64_t parent,
                const uint8_t changes[CHAIN_KEYS]);
/* With a change of this one key. */
void chain_save_key(const char *directory, uint64_t id, uint64_t parent, uint32_t key, uint8_t change);
/* As chain_save(), whether it succeeds or not. */
enum mr_status chain_try_save(const struct ps_store *store, const char *directory, uint64_t id,
                              uint64_t parent, const uint8_t changes[CHAIN_KEYS]);
/* Reads all that counts: values[i] is 0 where key i has no row. Fails the test unless the small records are
 * those of `id`, once each. */
void chain_read(struct ps_reader *r, uint64_t id, uint8_t values[CHAIN_KEYS]);
/* Opens the checkpoint, which must be the one restored, and compares: the values expected are those of the
 * changes, one link's after the other's. */
void chain_check(const char *directory, uint64_t asked_id, uint64_t id, uint32_t link_count,
                 const uint8_t *const *changes);

#endif
