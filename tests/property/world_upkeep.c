/* Rows that go, and what a table does when there is time. */
#include "ps/table_internal.h"
#include "world.h"

static void remove_key(struct world *w, struct subject *s, uint64_t key)
{
    struct ps_index *ix = &s->table->index;
    uint64_t hash = ps_key_hash(key, ix->seed);
    struct ps_place place = ps_index_find(ix, key, hash);
    bool known = model_find(&s->model, key) != NULL;
    WORLD_CHECK(w, (place.bucket != NULL) == known, "key %#llx: row %d, expected %d", (unsigned long long)key,
                place.bucket != NULL, known);
    if (!known)
        return;
    uint64_t bound = s->emitted + world_cut_bound(s, 1);
    ps_table_row_remove(s->table, place, hash);
    WORLD_CHECK(w, s->emitted <= bound, "it emitted more rows than it may");
    model_remove(&s->model, key);
}

/* One row, or most of those there are: then partitions get smaller. */
void world_remove(struct world *w, struct subject *s)
{
    w->doing = "remove";
    if (!random_one_in(&w->rng, 20)) {
        remove_key(w, s, draw_key(w));
        return;
    }
    uint32_t share = 1 + random_below(&w->rng, 8);
    for (uint32_t i = 0; i < w->key_count; i++)
        if (random_below(&w->rng, 8) < share)
            remove_key(w, s, w->keys[i]);
}

void world_maintain(struct world *w, struct subject *s)
{
    w->doing = "maintain";
    uint64_t budget_bytes = draw_budget(w);
    for (uint32_t turns = 1 + random_below(&w->rng, 100); turns > 0; turns--)
        if (!ps_table_maintain(s->table, budget_bytes))
            break;
}
