/* The limit that tables are measured against: one flat array of buckets and one of rows, both on huge pages,
 * sized in advance; hash, probe and gather in groups of prefetched keys. It cannot grow, miss, count, limit,
 * cut or check. Groups of 8 to 32 keys, a ring instead of groups, and prefetching into other caches were
 * tried: none was faster by more than noise. */
#ifndef BARE_TABLE_H
#define BARE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#ifndef BARE_DIM
#define BARE_DIM 16u /* fixed, so that the compiler unrolls its loops */
#endif

struct bare_table;

/* Rows of BARE_DIM floats; with_state: Adagrad's state, as much again, lies beside them, and they can be
 * pushed to. Exits when memory is short. */
struct bare_table *bare_table_create(uint64_t row_count, bool with_state, float learning_rate);
void bare_table_destroy(struct bare_table *t);
void bare_table_insert(struct bare_table *t, const uint64_t *keys, uint32_t key_count); /* new keys only */
/* Every key is there. */
void bare_table_lookup(const struct bare_table *t, const uint64_t *keys, uint32_t key_count, float *out);
void bare_table_sum(const struct bare_table *t, const uint64_t *keys, uint32_t bag_count, uint32_t bag_keys,
                    float *out);
/* Adagrad, key by key: repeated keys are updated repeatedly. */
void bare_table_push(struct bare_table *t, const uint64_t *keys, uint32_t key_count, const float *gradients);
/* Replaces the values of rows, and leaves the state. */
void bare_table_set(struct bare_table *t, const uint64_t *keys, uint32_t key_count, const float *rows);

#endif
