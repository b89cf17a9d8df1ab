/* Lookups and pushes in steps, with other calls in between. */
#include <inttypes.h>
#include <string.h>
#include "ps/table/table_internal.h"
#include "world.h"

static void lookup_begin(struct world *w, struct subject *s)
{
    struct call *c = s->lookup_call;
    draw_call(w, s, c);
    memset(c->expected, 0, (size_t)(c->bags ? c->bag_count : c->key_count) * s->model.dim * sizeof(float));
    s->lookup = lookup_of(c);
    s->looking = true;
}

void world_lookup_step(struct world *w, struct subject *s)
{
    w->doing = "lookup in steps";
    if (!s->looking)
        lookup_begin(w, s);
    struct call *c = s->lookup_call;
    struct ps_table_lookup *l = &s->lookup;
    uint32_t keys_before = l->keys_done, rows_before = l->rows_done;
    uint64_t budget_bytes = draw_budget(w);
    bool done = ps_table_lookup_step(s->table, l, &budget_bytes);
    WORLD_CHECK(w, l->keys_done >= keys_before && l->rows_done >= rows_before, "it went back");
    model_answer(s, c, keys_before, l->keys_done);
    uint32_t rows = c->bags ? c->bag_count : c->key_count;
    WORLD_CHECK(w, l->rows_done <= rows && (!done || l->rows_done == rows), "%u of %u rows, done %d",
                l->rows_done, rows, done);
    world_check_answer(w, s, c, l->rows_done);
    s->looking = !done;
}

/* Some of its keys were numbered before it was whole, now and then for another table than it is of now.
 * Drawn beside the other draws, so that these stay as they are. */
static void draw_early(struct world *w, const struct subject *s)
{
    const struct call *c = w->push_call;
    uint64_t rng = w->seed * 0x9E3779B97F4A7C15u + w->operation;
    if (random_one_in(&rng, 3))
        return;
    const struct subject *of =
        random_one_in(&rng, 4) ? &w->subjects[random_below(&rng, w->subject_count)] : s;
    if (!ps_early_keys_begin(&w->early, of->table, c->keys, c->key_count, c->in))
        return;
    for (uint32_t i = 0; i < 3; i++)
        (void)ps_early_keys_step(&w->early, of->table, random_below(&rng, c->key_count + 1),
                                 random_below(&rng, 2 * c->key_count + 32));
    w->push.early = &w->early;
}

static void push_begin(struct world *w, struct subject *s)
{
    struct call *c = w->push_call;
    draw_call(w, s, c);
    c->sees = false;
    draw_gradients(w, s, c, false);
    draw_sets(w, c);
    struct model_keys k = keys_of(c);
    c->gradient_count = model_gather(&s->model, &k, c->in, c->gradients, c->sums);
    w->push = push_of(c);
    draw_early(w, s);
    w->pushing = s;
    w->pushed = 0;
}

/* Gradients are finite here, so each distinct key that the step has done raises one of these. */
static uint64_t keys_applied(const struct subject *s)
{
    const struct ps_table_counters *n = ps_table_counters(s->table);
    return n->updates + n->gradients_skipped + n->gradients_without_row;
}

void world_push_step(struct world *w, struct subject *s)
{
    w->doing = "push in steps";
    if (w->pushing == NULL)
        push_begin(w, s);
    s = w->pushing;
    s->clock = s->table->use.clock;
    struct call *c = w->push_call;
    s->emitted = 0;
    uint64_t budget_bytes = draw_budget(w), before = keys_applied(s),
             bound = world_cut_bound(s, c->key_count);
    bool done = ps_table_push_step(s->table, &w->push, &budget_bytes);
    WORLD_CHECK(w, s->emitted <= bound, "it emitted more rows than it may");
    uint64_t applied = w->pushed + keys_applied(s) - before;
    WORLD_CHECK(w, applied <= c->gradient_count && (!done || applied == c->gradient_count),
                "%" PRIu64 " of %u keys, done %d", applied, c->gradient_count, done);
    for (; w->pushed < applied; w->pushed++)
        model_apply(s, &c->gradients[w->pushed], c);
    if (done) {
        s->expected.keys_pushed += c->key_count;
        w->pushing = NULL;
    }
    world_check_call(w, s);
}
