/* The limit that tables are measured against: one flat array of buckets and one of rows, both on huge pages, sized in
 * advance; hash, probe and gather in groups of prefetched keys. It cannot grow, miss, count, limit, cut or check. */
#ifndef BARE_TABLE_H
#define BARE_TABLE_H

#include <stdint.h>

#define BARE_DIM 16u /* fixed, so that the compiler unrolls its loops */

struct bare_table;

/* dim is BARE_DIM. Exits when memory is short. */
struct bare_table *bare_table_create(uint64_t row_count, uint32_t dim, float learning_rate);
void bare_table_destroy(struct bare_table *t);
void bare_table_insert(struct bare_table *t, const uint64_t *keys, uint32_t key_count); /* new keys only */
/* Every key is there. */
void bare_table_lookup(const struct bare_table *t, const uint64_t *keys, uint32_t key_count, float *out);
void bare_table_sum(const struct bare_table *t, const uint64_t *keys, uint32_t bag_count, uint32_t bag_keys,
                    float *out);
/* Adagrad, key by key: repeated keys are updated repeatedly. */
void bare_table_push(struct bare_table *t, const uint64_t *keys, uint32_t key_count, const float *gradients);

#endif
