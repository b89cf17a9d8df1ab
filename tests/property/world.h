/* A world of tables, drawn from one seed: a few tables in one arena, each beside its model, and random calls
 * on them. After every call the table's answers, counters and rows are the model's, bit for bit.
 *
 * Where a table may choose (whether there is memory for a new row), the model follows what the table did, and
 * checks that it was allowed. One thread.
 */
#ifndef PROPERTY_WORLD_H
#define PROPERTY_WORLD_H

#include "model.h"
#include "ps/memory/arena.h"
#include "dataplane/optimizer/kernels.h"
#include "ps/table/occurrence_filter.h"
#include "ps/table/table.h"
#include "random.h"

#define WORLD_TABLES_MAX   3u
#define WORLD_CALL_KEYS    600u /* in one call, at most */
#define WORLD_CALL_FLOATS  65536u
#define WORLD_KEYS_MAX     4000u
#define WORLD_STORED_BYTES (4 * sizeof(float) * MR_DIM_MAX + 64) /* at most */

/* A call's input and output, and what is expected of it. */
struct call {
    uint32_t key_count, bag_count;
    bool bags, insert;
    bool sees;                        /* a push whose lookup was lost */
    bool sets;                        /* a push of rows to be set */
    bool weighted, divided, excludes; /* it has such */
    enum mr_dtype dtype;              /* of the answer or the gradients, as they travel */
    float learning_rate;              /* below 0: the table's, at: */
    uint64_t step;
    uint64_t keys[WORLD_CALL_KEYS];
    uint32_t offsets[WORLD_CALL_KEYS + 1];
    float weights[WORLD_CALL_KEYS], divisors[WORLD_CALL_KEYS], scales[WORLD_CALL_KEYS];
    uint64_t excluded[MR_PARTITION_COUNT / 64];
    float sum[MR_DIM_MAX];
    float *in, *out, *expected, *sums, *travels; /* [WORLD_CALL_FLOATS]; the last as `dtype` */
    uint32_t gradient_count;
    struct model_gradient gradients[WORLD_CALL_KEYS];
};

/* Cuts, one on the other. */
struct chain {
    bool keeps_marks;
    bool holds;   /* the last cut was whole: one of changes may follow */
    bool cutting; /* one is begun and not over */
    /* a row was loaded: what the image should be is not known, before the next cut of every row */
    bool spoilt;
    struct model image; /* the rows it has given out, as they were last */
    struct ps_occurrence_filter filter;
    uint8_t counts[WORLD_KEYS_MAX]; /* observations of w->keys when the last cut began */
    uint32_t cuts_of_changes;
};

struct subject {
    struct ps_table *table; /* NULL: none */
    struct model model;
    struct ps_table_counters expected;
    uint64_t refused;      /* rows_refused before the call */
    uint64_t rows_allowed; /* held before the call, and the one it loads: these may be beyond the capacity */
    uint64_t ambiguous;    /* keys of the call that either of two counters may take */
    /* eviction */
    uint32_t now_s;
    uint64_t step;
    uint64_t clock;               /* keys used before the running call */
    uint64_t evicted;             /* by the table itself */
    uint64_t not_made;            /* keys that were not admitted, or refused a row */
    uint64_t not_admitted_pushed; /* of these at most, by pushes of the call: not counted */
    bool loading;
    bool setting;  /* rows are set, whatever the admission says */
    bool loaded;   /* rows were, whatever the limits say */
    bool removing; /* the test takes a row out */
    /* the running cut */
    struct model snapshot;
    uint64_t cut_left; /* rows that it has still to give out */
    uint64_t emitted;  /* in the running call */
    struct chain chain;
    /* a lookup in steps */
    bool looking;
    struct ps_table_lookup lookup;
    struct call *lookup_call;
    struct world *world;
};

struct world {
    uint64_t seed, rng;
    uint64_t operations_max, operation;
    bool verbose;
    const char *doing; /* the running call */
    struct ps_arena *arena;
    uint32_t key_count;
    uint64_t *keys;
    uint32_t subject_count;
    struct subject subjects[WORLD_TABLES_MAX];
    struct call *call; /* of calls at once */
    /* the one push in steps */
    struct subject *pushing;
    struct ps_table_push push;
    struct ps_early_keys early; /* its keys, as far as they had come before it was whole */
    struct call *push_call;
    uint32_t pushed; /* of its distinct keys */
};

/* kernels: the vector width, NULL to draw one. */
void world_begin(struct world *w, uint64_t seed, const struct mr_kernels *kernels);
/* Makes its calls; returns how many. */
uint64_t world_run(struct world *w);
void world_end(struct world *w);

/* Says what is wrong and ends the process with this status. */
#define WORLD_FAILED 3
#define WORLD_CHECK(w, condition, ...)                                                                       \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            world_fail(w, __VA_ARGS__);                                                                      \
    } while (0)
_Noreturn void world_fail(const struct world *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- world_draw.c ---- */
struct mr_feature draw_feature(struct world *w);
void draw_keys(struct world *w); /* w->keys */
uint64_t draw_key(struct world *w);
void draw_call(struct world *w, const struct subject *s, struct call *c);
bool draw_has_repeated(const struct call *c);
/* Gradients of the call; broken: now and then NaN, Inf, or large enough for a sum to overflow. */
void draw_gradients(struct world *w, const struct subject *s, struct call *c, bool broken);
/* Whether they are rows to be set. Drawn beside the other draws, so that these stay as they are. */
void draw_sets(const struct world *w, struct call *c);
uint64_t draw_budget(struct world *w);

/* ---- world_check.c ---- */
bool world_has_row(const struct subject *s, uint64_t key);
/* After each call: counters, rows, memory. */
void world_check_call(struct world *w, struct subject *s);
void world_check_floats(struct world *w, const float *got, const float *expected, size_t count,
                        const char *what);
/* Of a cut: when and how often a row was used may be of later. */
void world_check_stored(struct world *w, const struct model *m, const struct model_row *row,
                        const uint8_t *got, bool of_cut);
/* Each row of the model lies in the table, and the table has no others. */
void world_check_rows(struct world *w, struct subject *s);

/* ---- world_calls.c ---- */
void world_lookup(struct world *w, struct subject *s);
void world_push(struct world *w, struct subject *s);
void world_load(struct world *w, struct subject *s);
void world_prefetch(struct world *w);
/* Keys [first, last) of a lookup, as the model does it. */
void model_answer(struct subject *s, struct call *c, uint32_t first, uint32_t last);
/* One distinct key of a push. */
void model_apply(struct subject *s, const struct model_gradient *g, const struct call *c);
struct ps_table_lookup lookup_of(struct call *c);
struct ps_table_push push_of(const struct call *c);
struct model_keys keys_of(const struct call *c);
/* The rows of the answer up to `rows`. */
void world_check_answer(struct world *w, const struct subject *s, struct call *c, uint32_t rows);

/* ---- world_steps.c ---- */
void world_lookup_step(struct world *w, struct subject *s); /* begins one if there is none */
void world_push_step(struct world *w, struct subject *s);

/* ---- world_upkeep.c ---- */
void world_remove(struct world *w, struct subject *s);
void world_maintain(struct world *w, struct subject *s);
void world_evict(struct world *w, struct subject *s);
/* The running call uses the row. */
void world_use(const struct subject *s, struct model_row *row);
/* Tables of this world tell of rows that go; NULL: no world is there. */
void world_watch_rows(struct world *w);

/* ---- world_cut.c ---- */
void world_cut(struct world *w, struct subject *s); /* begins, steps or aborts one */
void world_cut_end(struct subject *s);
void world_cut_abort(struct subject *s); /* fine when none is running */
/* What the next call may emit at most. */
uint64_t world_cut_bound(const struct subject *s, uint32_t key_count);

/* ---- world_chain.c ---- */
void world_chain_make(struct world *w, struct subject *s); /* the table is new */
void world_chain_free(struct subject *s);
void world_chain_lost(struct subject *s); /* the next cut is of every row */
void world_chain_load(struct subject *s, uint64_t key);
/* The kind of the cut that begins now; the filter's has begun. */
enum ps_save_kind world_chain_begin(struct world *w, struct subject *s);
/* `row`, of the snapshot, was given out. */
void world_chain_emit(struct subject *s, const struct model_row *row);
/* Takes some of what is not rows; true when there is more. */
bool world_chain_step(struct world *w, struct subject *s);
void world_chain_end(struct world *w, struct subject *s);

#endif
