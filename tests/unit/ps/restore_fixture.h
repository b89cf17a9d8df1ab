/* A table of a few keys, and batches that teach it: what the tests of restores have in common. */
#ifndef RESTORE_FIXTURE_H
#define RESTORE_FIXTURE_H

#include "node_fixture.h"
#include "ps/move/take_over.h"

#define KEYS            24u
#define BATCH(sequence) ((uint64_t)3 << MR_BATCH_SEQUENCE_BITS | (sequence))

extern uint64_t keys[KEYS];

/* Table "emb", all of whose values begin at 100; also when it is there already. */
uint32_t make_table(struct node_fixture *n);
/* Feeds and pushes a batch of all keys everywhere; on how many cores it was applied. */
uint32_t learn(struct node_fixture *n, uint32_t table, uint64_t batch_id);
/* Fails unless all keys' values are this. */
void check_values(struct node_fixture *n, uint32_t table, float expected);

/* The core of `cores` that owns a key of it. */
uint32_t core_of(uint32_t cores, uint64_t key);
/* Whether a core of now may own keys of core `old` of `cores`. */
bool meets(const struct node_fixture *n, uint32_t cores, uint32_t old, uint32_t to);
/* Push `number` of every core of a map of `cores`, each a gradient of 1 for all of its keys, to the cores of
 * now. */
void push_all(struct node_fixture *n, uint32_t table, uint32_t cores, uint64_t number);
/* The same of core `old` alone, to core `to` of now. */
void push_to(struct node_fixture *n, uint32_t table, uint32_t cores, uint32_t old, uint64_t number,
             uint32_t to);

/* Has the node lose these partitions, and take them over from a checkpoint (0: empty) beside what it serves.
 * If that fails it has nothing of them, serves them again nevertheless, and *text says why. */
enum ps_take_over_state take_over(const char *directory, uint64_t id,
                                  const struct ps_partition_set *partitions, char text[PS_MOVE_TEXT_BYTES]);

#endif
