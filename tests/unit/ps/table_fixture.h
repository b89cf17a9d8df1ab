/* What the tests of tables share: features, and a plain model of a table to compare with. */
#ifndef TABLE_FIXTURE_H
#define TABLE_FIXTURE_H

#include "dataplane/wire/format/mr_feature.h"
#include "ps/table/table.h"
#include "tests/unit/dataplane/optimizer/random_fixture.h"

#define FIXTURE_LIMIT_BYTES ((size_t)256 << 20)

/* Set-up and tear-down of a test in which all tables share an arena. At its end everything is free again. */
extern struct ps_arena *fixture_arena;
int fixture_arena_create(void **state);
int fixture_arena_destroy(void **state);

struct mr_feature fixture_adagrad(uint32_t dim);
/* A secret of a node, of the test's seed. */
struct ps_key_secret fixture_key_secret(void);
struct ps_table *fixture_table(const struct mr_feature *feature, struct ps_arena *arena);
/* The n-th key of a partition; no two are the same. */
uint64_t fixture_key_of(const struct ps_table *t, uint32_t partition, uint64_t n);
/* Looks a key up, so that it has a row unless the table does not admit it. */
void fixture_insert(struct ps_table *t, uint64_t key);
/* By a lookup that inserts nothing. */
bool fixture_has_row(struct ps_table *t, uint64_t key);

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

/* ---- a table and its model: random calls go to both, and both give the same results ---- */

#define MODELLED_DIM      3u
#define MODELLED_CALL_MAX 200u

struct modelled {
    struct ps_arena *arena;
    struct ps_table *table;
    struct model model;
    uint64_t rng;
    uint32_t universe; /* how many keys are drawn from */
};

/* `feature` has MODELLED_DIM values in a row. The test sets `rng`. */
void modelled_open(struct modelled *m, const struct mr_feature *feature, uint32_t universe);
void modelled_close(struct modelled *m);
uint64_t modelled_key(struct modelled *m);
/* At most MODELLED_CALL_MAX keys; of the gradients, some are not finite. */
void modelled_lookup(struct modelled *m, uint32_t key_count, bool insert);
void modelled_push(struct modelled *m, uint32_t key_count);
/* Removes the row of a random key, if it has one. */
void modelled_remove(struct modelled *m);

#endif
