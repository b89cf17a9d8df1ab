/* Chains of cuts: a cut of every row and those of changes on it. What they give out together, keys that went
 * and the filter of observations included, is the table as it was when the last of them began. */
#include <inttypes.h>
#include <string.h>
#include "ps/table/table_internal.h"
#include "world.h"

#define FILTERS_LIMIT_BYTES ((size_t)160 << 20)
#define GONE_MAX            64u /* taken at a time */

static struct ps_arena *filters; /* those of images: not the world's memory */

static bool has_filter(const struct subject *s)
{
    return s->model.feature.admission == MR_ADMIT_OBSERVATIONS;
}

void world_chain_make(struct world *w, struct subject *s)
{
    struct chain *c = &s->chain;
    c->keeps_marks = !random_one_in(&w->rng, 4);
    if (c->keeps_marks)
        ps_table_keep_marks(s->table, w->arena);
    c->holds = ps_table_delta_possible(s->table); /* of no rows: all there will be are changes */
    if (!has_filter(s))
        return;
    if (filters == NULL)
        filters = ps_arena_create(FILTERS_LIMIT_BYTES);
    const struct ps_occurrence_filter *f = &s->table->filter;
    uint64_t bytes = (uint64_t)f->line_count * PS_OCCURRENCE_LINE_BYTES * MR_PARTITION_COUNT;
    WORLD_CHECK(w, filters != NULL && ps_occurrence_init(&c->filter, filters, bytes, f->wanted),
                "no memory for the test");
}

void world_chain_free(struct subject *s)
{
    struct chain *c = &s->chain;
    model_clear(&c->image);
    ps_occurrence_fini(&c->filter);
    c->cutting = c->holds = false;
}

void world_chain_lost(struct subject *s)
{
    s->chain.holds = s->chain.cutting = false;
}

/* A row that was loaded counts as given out; under a cut nobody loads. */
void world_chain_load(struct subject *s, uint64_t key)
{
    const struct model_row *row = model_find(&s->model, key);
    if (s->chain.cutting || row == NULL)
        s->chain.spoilt = true;
    else if (s->chain.holds)
        model_put(&s->chain.image, row);
}

enum ps_save_kind world_chain_begin(struct world *w, struct subject *s)
{
    struct chain *c = &s->chain;
    bool possible = ps_table_delta_possible(s->table);
    bool is_delta = possible && c->holds && !c->spoilt && !random_one_in(&w->rng, 6);
    enum ps_save_kind kind = is_delta ? PS_SAVE_DELTA : PS_SAVE_FULL;
    WORLD_CHECK(w, c->keeps_marks || !possible, "changes are known without marks");
    WORLD_CHECK(w, ps_table_filter_cut_begin(s->table, kind) == MR_OK, "no memory for the test");
    if (kind == PS_SAVE_FULL) {
        model_clear(&c->image);
        model_init(&c->image, &s->model.feature);
        if (has_filter(s))
            ps_occurrence_clear(&c->filter);
    }
    for (uint32_t i = 0; has_filter(s) && i < w->key_count; i++)
        c->counts[i] =
            (uint8_t)ps_occurrence_count(&s->table->filter, ps_key_hash(w->keys[i], s->model.feature.seed));
    c->cutting = true;
    c->spoilt = false;
    c->cuts_of_changes += is_delta;
    return kind;
}

void world_chain_emit(struct subject *s, const struct model_row *row)
{
    model_put(&s->chain.image, row);
    /* It was given out with the uses it has had by now: one that was used since the cut began needs no mark
     * for that. */
    const struct model_row *now = model_find(&s->model, row->key);
    struct model_row *in_chain = model_find(&s->chain.image, row->key);
    if (now != NULL) {
        in_chain->seen = now->seen;
        in_chain->clock = now->clock;
    }
}

/* Some of the keys that went. */
static bool take_gone(struct world *w, struct subject *s)
{
    uint64_t keys[GONE_MAX], left = ps_table_cut_tombstones_left(s->table);
    uint32_t most = 1 + random_below(&w->rng, GONE_MAX),
             count = ps_table_cut_take_tombstones(s->table, keys, most);
    WORLD_CHECK(w, count <= most && count <= left && (count > 0 || left == 0), "%u keys of %" PRIu64, count,
                left);
    for (uint32_t i = 0; i < count; i++) {
        WORLD_CHECK(w, model_find(&s->snapshot, keys[i]) == NULL,
                    "key %#" PRIx64 " had a row when the cut began", keys[i]);
        if (model_find(&s->chain.image, keys[i]) != NULL)
            model_remove(&s->chain.image, keys[i]);
    }
    return count < left;
}

/* Some of the filter. */
static bool take_filter(struct world *w, struct subject *s)
{
    static uint8_t stored[PS_FILTER_PIECE_BYTES_MAX];
    struct ps_occurrence_part piece;
    uint32_t bytes;
    for (uint32_t left = random_below(&w->rng, 3000); left > 0; left--) {
        if (!ps_table_filter_cut_next(s->table, &piece, &bytes))
            return false;
        if (bytes > sizeof(stored)) {
            WORLD_CHECK(w, false, "a piece of %u bytes", bytes);
            return false;
        }
        ps_table_filter_cut_take(s->table, &piece, stored);
        const uint8_t *counters = stored + bytes - piece.line_count * PS_OCCURRENCE_LINE_BYTES;
        WORLD_CHECK(w, ps_occurrence_load(&s->chain.filter, &piece, counters), "no memory for the test");
    }
    return true;
}

bool world_chain_step(struct world *w, struct subject *s)
{
    bool more_gone = take_gone(w, s), more_filter = take_filter(w, s);
    return more_gone || more_filter;
}

/* What the chain has of a row, which may have been used after the cut began, before it was given out. */
static bool is_same(const struct subject *s, const struct model_row *got, const struct model_row *row)
{
    size_t bytes = (s->model.dim + s->model.state_floats) * sizeof(float);
    bool by_limit = model_evicts_by_limit(&s->model), stamps = ps_table_stamps(s->table);
    return got != NULL && memcmp(got->floats, row->floats, bytes) == 0 && got->updates == row->updates &&
           (!stamps || by_limit || got->seen - row->seen <= INT32_MAX) &&
           (!by_limit || got->clock >= row->clock);
}

void world_chain_end(struct world *w, struct subject *s)
{
    struct chain *c = &s->chain;
    c->cutting = false;
    c->holds = c->keeps_marks;
    if (c->spoilt)
        return;
    WORLD_CHECK(w, c->image.row_count == s->snapshot.row_count,
                "the chain has %" PRIu64 " rows, expected %" PRIu64, c->image.row_count,
                s->snapshot.row_count);
    for (uint32_t i = 0; i < MODEL_CHAINS; i++)
        for (const struct model_row *row = s->snapshot.chains[i]; row != NULL; row = row->next) {
            const struct model_row *got = model_find(&c->image, row->key);
            WORLD_CHECK(w, got != NULL, "key %#" PRIx64 " is not in the chain", row->key);
            WORLD_CHECK(w, is_same(s, got, row), "key %#" PRIx64 " is in the chain as it was before",
                        row->key);
        }
    for (uint32_t i = 0; has_filter(s) && i < w->key_count; i++) {
        uint32_t got = ps_occurrence_count(&c->filter, ps_key_hash(w->keys[i], s->model.feature.seed));
        WORLD_CHECK(w, got == c->counts[i], "key %#" PRIx64 ": %u observations, expected %u", w->keys[i], got,
                    c->counts[i]);
    }
}
