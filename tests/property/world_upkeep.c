/* Rows that go, and what a table does when there is time. */
#include "ps/table/table_internal.h"
#include "world.h"

static void remove_key(struct world *w, struct subject *s, uint64_t key)
{
    struct ps_index *ix = &s->table->index;
    uint64_t hash = ps_index_hash(ix, key);
    struct ps_place place = ps_index_find(ix, hash);
    bool known = model_find(&s->model, key) != NULL;
    WORLD_CHECK(w, (place.bucket != NULL) == known, "key %#llx: row %d, expected %d", (unsigned long long)key,
                place.bucket != NULL, known);
    if (!known)
        return;
    uint64_t bound = s->emitted + world_cut_bound(s, 1);
    s->removing = true;
    ps_table_row_remove(s->table, place, hash);
    s->removing = false;
    WORLD_CHECK(w, s->emitted <= bound, "it emitted more rows than it may");
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

/* Time goes on, and what is due goes. */
void world_evict(struct world *w, struct subject *s)
{
    w->doing = "evict";
    s->now_s += random_below(&w->rng, 40);
    s->step += random_below(&w->rng, 40);
    ps_table_set_now(s->table, s->now_s, s->step);
    for (uint32_t turns = random_below(&w->rng, 100); turns > 0; turns--)
        if (!ps_table_evict(s->table, draw_budget(w)))
            break;
}

void world_use(const struct subject *s, struct model_row *row)
{
    if (!model_evicts_by_limit(&s->model))
        row->seen = s->model.feature.eviction == MR_EVICT_STEPS ? (uint32_t)s->step : s->now_s;
    row->clock = s->clock;
}

/* ---- rows that go: the linker puts this function around the tables' own (--wrap) ---- */

static struct world *watching;

void world_watch_rows(struct world *w)
{
    watching = w;
}

static bool norm_is_small(const struct model *m, const struct model_row *row)
{
    double sum = 0, limit = (double)m->feature.eviction_arg;
    for (uint32_t i = 0; i < m->dim; i++)
        sum += (double)row->floats[i] * (double)row->floats[i];
    return sum < limit * limit;
}

static bool is_at_limit(const struct subject *s)
{
    const struct mr_feature *f = &s->model.feature;
    const struct ps_arena *arena = s->world->arena;
    return (f->capacity_rows != 0 && ps_table_rows(s->table) >= f->capacity_rows) || f->memory_bytes != 0 ||
           ps_arena_mapped_bytes(arena) + PS_ARENA_HUGE_PAGE_BYTES > ps_arena_limit_bytes(arena);
}

static bool may_go(const struct subject *s, const struct model_row *row)
{
    const struct model *m = &s->model;
    switch (m->feature.eviction) {
    case MR_EVICT_AGE:
        return s->now_s - row->seen > (is_at_limit(s) ? 0 : (uint32_t)m->feature.eviction_arg);
    case MR_EVICT_STEPS:
        return (uint32_t)s->step - row->seen > (is_at_limit(s) ? 0 : (uint32_t)m->feature.eviction_arg);
    case MR_EVICT_NORM:
        return s->now_s - row->seen > PS_NORM_IDLE_S && norm_is_small(m, row);
    case MR_EVICT_LRU:
    case MR_EVICT_LFU:
        return s->table->use.clock - row->clock > PS_USES_HELD && is_at_limit(s);
    default:
        return false;
    }
}

void __real_ps_table_row_remove(struct ps_table *t, struct ps_place place, uint64_t hash);
void __wrap_ps_table_row_remove(struct ps_table *t, struct ps_place place, uint64_t hash);

/* Within a call a row goes before the call uses it, or not at all. So the model has it go before the call. */
void __wrap_ps_table_row_remove(struct ps_table *t, struct ps_place place, uint64_t hash)
{
    struct world *w = watching;
    struct subject *s = &w->subjects[0];
    while (s->table != t)
        s++;
    uint64_t key = ps_index_key(&t->index, hash);
    const struct model_row *row = model_find(&s->model, key);
    WORLD_CHECK(w, row != NULL, "key %#llx goes, and has no row", (unsigned long long)key);
    WORLD_CHECK(w, s->removing || may_go(s, row), "key %#llx goes too early: seen %u, clock %llu",
                (unsigned long long)key, row->seen, (unsigned long long)row->clock);
    s->evicted += !s->removing;
    __real_ps_table_row_remove(t, place, hash);
    model_remove(&s->model, key);
}
