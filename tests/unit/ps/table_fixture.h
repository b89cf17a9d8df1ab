/* What the tests of tables share: features, and a plain model of a table to compare with. */
#ifndef TABLE_FIXTURE_H
#define TABLE_FIXTURE_H

#include "dataplane/wire/format/mr_feature.h"
#include "ps/table/table.h"
#include "tests/unit/dataplane/optimizer/random_fixture.h"

#define FIXTURE_LIMIT_BYTES ((size_t)256 << 20)

struct mr_feature fixture_adagrad(uint32_t dim);
struct ps_table *fixture_table(const struct mr_feature *feature, struct ps_arena *arena);
/* The n-th key of a partition, each another one. */
uint64_t fixture_key_of(const struct ps_table *t, uint32_t partition, uint64_t n);

/* ---- the model: an array of rows searched from front to back ---- */

struct model_row {
    uint64_t key;
    float *stored; /* values, then state */
};
struct model {
    struct mr_feature feature;
    uint32_t dim, stored_floats;
    uint32_t row_count, row_capacity;
    struct model_row *rows;
};

void model_init(struct model *m, const struct mr_feature *feature);
void model_free(struct model *m);
void model_copy(struct model *m, const struct model *from);
float *model_find(const struct model *m, uint64_t key); /* NULL: no row */
void model_remove(struct model *m, uint64_t key);       /* it is there */
/* The row's first values where there is none; `insert` keeps it. */
void model_lookup(struct model *m, uint64_t key, bool insert, float *out);
/* Sum in the order of appearance, then one step per key, in single precision, operation by operation. Returns
 * how many rows were changed. */
uint32_t model_push(struct model *m, const uint64_t *keys, uint32_t key_count, const float *gradients);
/* Every row of the table is the model's, bit for bit, and there are no others. */
void model_check(const struct model *m, struct ps_table *t);

#endif
