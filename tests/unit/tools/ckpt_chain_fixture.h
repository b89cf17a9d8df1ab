/* A chain of checkpoints with random rows, and the model of what is live in it. */
#ifndef TESTS_CKPT_CHAIN_FIXTURE_H
#define TESTS_CKPT_CHAIN_FIXTURE_H

#include <stdint.h>
#include "tests/unit/tools/ckpt_fixture.h"

/* Checkpoints CHAIN_FIRST .. CHAIN_FIRST + links - 1: a full and deltas on it, by two cores, checkpoint n cut
 * at step 10 n. Table 1, "a": f32[2]. Table 2, "b": f32[5] with one f32 of state. Variable 3, "v": a scalar,
 * the link's number from 1. Of table 1's filter partition 7 has two pieces, from line 0 (in every link) and
 * from line 64 (in the first two): 8 bytes, the link's number. */
enum { CHAIN_KEYS = 6000, CHAIN_TABLES = 2, CHAIN_FIRST = 11, CHAIN_LINKS_MAX = 8 };

/* Of each key, after each link: the link its row is of, from 1; 0: it has none. */
extern uint32_t chain_model[CHAIN_LINKS_MAX + 1][CHAIN_TABLES + 1][CHAIN_KEYS];

void chain_write(const char *directory, uint32_t links);
/* The same without the filter, which the table's options do not ask for: a server restores it. */
void chain_write_for_node(const char *directory, uint32_t links);
/* Scattered over 64 bits, zero among them. */
uint64_t chain_key(uint32_t i);
/* Every value (and state) of key i's row of that link. */
float chain_value(uint32_t i, uint32_t link);
uint32_t chain_row_floats(uint32_t table);
uint64_t chain_rows(uint32_t link, uint32_t table);
/* A link's records that are no rows. */
void chain_write_small(struct ckpt_fixture_writer *w, uint32_t link);
void chain_features(struct mr_feature features[3]);

#endif
