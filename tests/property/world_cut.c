/* Cuts: every row there was at their begin comes out once, as it was then, whatever happens meanwhile. */
#include <inttypes.h>
#include <string.h>
#include "world.h"
#include "ps/table/table_internal.h"

static void emit(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                 uint32_t count)
{
    struct subject *s = self;
    struct world *w = s->world;
    WORLD_CHECK(w, t == s->table && count >= 1 && count <= PS_CUT_EMIT_ROWS_MAX, "emit of %u rows", count);
    for (uint32_t i = 0; i < count; i++) {
        struct model_row *row = model_find(&s->snapshot, keys[i]);
        WORLD_CHECK(w, row != NULL, "key %#" PRIx64 " was not there when the cut began", keys[i]);
        /* cppcheck-suppress nullPointerRedundantCheck ; a check that fails does not return */
        WORLD_CHECK(w, !row->emitted, "key %#" PRIx64 " comes twice", keys[i]);
        row->emitted = true;
        world_check_stored(w, &s->snapshot, row, rows[i], true);
        world_chain_emit(s, row);
    }
    s->emitted += count;
    s->cut_left -= count;
}

static bool has_room(void *self, const struct ps_table *t, uint32_t rows)
{
    struct subject *s = self;
    WORLD_CHECK(s->world, t == s->table && rows >= 1, "room for %u rows", rows);
    return random_one_in(&s->world->rng, 2);
}

static void cut_begin(struct world *w, struct subject *s)
{
    struct ps_cut cut = {.self = s, .emit = emit, .has_room = has_room};
    model_copy(&s->snapshot, &s->model);
    enum ps_save_kind kind = world_chain_begin(w, s);
    s->cut_left = ps_table_cut_begin(s->table, &cut, kind);
    WORLD_CHECK(w, kind == PS_SAVE_DELTA || s->cut_left == s->model.row_count, "a cut of %" PRIu64 " rows",
                s->cut_left);
}

void world_cut_end(struct subject *s)
{
    model_clear(&s->snapshot);
    s->cut_left = 0;
}

uint64_t world_cut_bound(const struct subject *s, uint32_t key_count)
{
    return ps_table_cut_rows_max(s->table, key_count);
}

void world_cut_abort(struct subject *s)
{
    bool whole = s->cut_left == 0;
    ps_table_cut_abort(s->table);
    WORLD_CHECK(s->world, !s->table->cut_running, "a cut goes on that was ended");
    WORLD_CHECK(s->world, whole || !ps_table_delta_possible(s->table), "it was not whole");
    world_cut_end(s);
    world_chain_lost(s);
}

static void step_rows(struct world *w, struct subject *s)
{
    static const uint32_t most[] = {1, 40, 4000, 100000};
    uint32_t budget = 1 + random_below(&w->rng, most[random_below(&w->rng, 4)]);
    bool done = ps_table_cut_step(s->table, budget);
    WORLD_CHECK(w, s->emitted <= (uint64_t)budget * PS_CUT_BUCKET_ROWS_MAX, "%" PRIu64 " rows of %u buckets",
                s->emitted, budget);
    WORLD_CHECK(w, done == (s->cut_left == 0), "the cut is over: %d, with %" PRIu64 " rows to go", done,
                s->cut_left);
    WORLD_CHECK(w, done != s->table->cut_running, "it is over: %d", done);
}

void world_cut(struct world *w, struct subject *s)
{
    w->doing = "cut";
    if (!s->chain.cutting) {
        cut_begin(w, s);
        return;
    }
    if (random_one_in(&w->rng, 20)) {
        world_cut_abort(s);
        return;
    }
    bool more = !random_one_in(&w->rng, 3) || world_chain_step(w, s);
    if (s->table->cut_running) {
        step_rows(w, s);
    } else if (!more) {
        world_chain_end(w, s);
        world_cut_end(s);
    }
}
