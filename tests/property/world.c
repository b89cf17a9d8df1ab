#include "ps/table/table_internal.h"
#include "world.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_BYTES     ((size_t)64 << 20)
#define OPERATIONS_MIN  200u
#define OPERATIONS_MAX  5000u
#define CHECK_ROWS_EACH 400u /* calls */

static struct call *call_new(void)
{
    struct call *c = calloc(1, sizeof(*c));
    assert(c != NULL);
    float **arrays[] = {&c->in, &c->out, &c->expected, &c->sums, &c->travels};
    for (uint32_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
        *arrays[i] = malloc(WORLD_CALL_FLOATS * sizeof(float));
        assert(*arrays[i] != NULL);
    }
    return c;
}

static void call_free(struct call *c)
{
    free(c->in);
    free(c->out);
    free(c->expected);
    free(c->sums);
    free(c->travels);
    free(c);
}

static void table_make(struct world *w, struct subject *s)
{
    const char *what = NULL;
    struct ps_key_secret secret; /* of another node each time: nothing else may depend on it */
    secret.bits[0] = random_next(&w->rng);
    secret.bits[1] = random_next(&w->rng);
    assert(mr_feature_check(&s->model.feature) == NULL);
    enum mr_status status = ps_table_create(&s->model.feature, w->arena, &secret, &s->table, &what);
    WORLD_CHECK(w, status == MR_OK || status == MR_OUT_OF_MEMORY, "no table: status %d, %s", (int)status,
                what);
    if (status != MR_OK)
        s->table = NULL;
    memset(&s->expected, 0, sizeof(s->expected));
    s->loaded = false;
    s->refused = s->evicted = s->not_made = 0;
    s->now_s = 1000000;
    s->step = 1000000;
    if (s->table == NULL)
        return;
    ps_table_set_now(s->table, s->now_s, s->step);
    world_chain_make(w, s);
}

static void subject_begin(struct world *w, struct subject *s, bool memory_is_short)
{
    struct mr_feature f = draw_feature(w);
    if (memory_is_short) { /* some MiB of rows */
        f.dims[0] = 500 + random_below(&w->rng, 525);
        f.capacity_rows = 0;
    }
    s->world = w;
    s->lookup_call = call_new();
    model_init(&s->model, &f);
    model_init(&s->chain.image, &f);
    table_make(w, s);
}

void world_begin(struct world *w, uint64_t seed, const struct mr_kernels *kernels)
{
    bool verbose = w->verbose;
    memset(w, 0, sizeof(*w));
    w->verbose = verbose;
    w->seed = w->rng = seed;
    w->doing = "begin";
    world_watch_rows(w);
    w->operations_max = OPERATIONS_MIN + random_below(&w->rng, OPERATIONS_MAX - OPERATIONS_MIN);
    uint32_t width = random_below(&w->rng, 3);
    if (kernels == NULL)
        kernels = mr_kernels_at(width);
    mr_kernels_force(kernels); /* NULL, where the processor has fewer: the widest */
    bool memory_is_short = random_one_in(&w->rng, 12);
    w->arena = ps_arena_create(memory_is_short ? PS_ARENA_LIMIT_BYTES_MIN : LIMIT_BYTES);
    assert(w->arena != NULL);
    w->subject_count = 1 + random_below(&w->rng, WORLD_TABLES_MAX);
    for (uint32_t i = 0; i < w->subject_count; i++)
        subject_begin(w, &w->subjects[i], memory_is_short);
    draw_keys(w);
    w->call = call_new();
    w->push_call = call_new();
    if (w->verbose)
        for (uint32_t i = 0; i < w->subject_count; i++) {
            const struct mr_feature *f = &w->subjects[i].model.feature;
            printf("table %u: dim %u, dtype %u, %s, pooling %u, capacity %" PRIu64 ", %u keys, %s\n", i,
                   f->dims[0], f->dtype, mr_optimizer_name(f->optimizer), f->pooling, f->capacity_rows,
                   w->key_count, mr_kernels_best()->name);
        }
}

static void table_clear(struct world *w, struct subject *s)
{
    w->doing = "clear";
    world_cut_abort(s);
    ps_table_clear(s->table);
    model_clear(&s->model);
}

/* During anything but a call in steps. */
static void table_remake(struct world *w, struct subject *s)
{
    w->doing = "destroy and create";
    if (s->looking || w->pushing == s)
        return;
    ps_table_destroy(s->table);
    world_cut_end(s);
    world_chain_free(s);
    model_clear(&s->model);
    table_make(w, s);
}

static void operation(struct world *w, struct subject *s)
{
    uint32_t n = random_below(&w->rng, 1000);
    if (n < 350)
        world_lookup(w, s);
    else if (n < 600)
        world_push(w, s);
    else if (n < 720)
        world_lookup_step(w, s);
    else if (n < 840)
        world_push_step(w, s);
    else if (n < 900)
        world_cut(w, s);
    else if (n < 930)
        world_load(w, s);
    else if (n < 955)
        world_remove(w, s);
    else if (n < 970)
        world_maintain(w, s);
    else if (n < 990)
        world_evict(w, s);
    else if (n < 997)
        world_prefetch(w);
    else if (n < 999)
        table_clear(w, s);
    else
        table_remake(w, s);
}

uint64_t world_run(struct world *w)
{
    for (w->operation = 0; w->operation < w->operations_max; w->operation++) {
        struct subject *s = &w->subjects[random_below(&w->rng, w->subject_count)];
        if (s->table == NULL) /* there was no memory for it */
            table_make(w, s);
        if (s->table == NULL)
            continue;
        s->emitted = 0;
        s->clock = s->table->use.clock;
        operation(w, s);
        if (w->verbose)
            printf("%" PRIu64 ": %s, table %d\n", w->operation, w->doing, (int)(s - w->subjects));
        if (s->table != NULL)
            world_check_call(w, s);
        if (s->table != NULL && random_one_in(&w->rng, CHECK_ROWS_EACH))
            world_check_rows(w, s);
    }
    return w->operations_max;
}

static void world_finish(struct world *w, struct subject *s)
{
    while (s->looking)
        world_lookup_step(w, s);
    while (s->chain.cutting) {
        s->emitted = 0;
        world_cut(w, s);
    }
    world_check_call(w, s);
    world_check_rows(w, s);
}

void world_end(struct world *w)
{
    while (w->pushing != NULL)
        world_push_step(w, w->pushing);
    for (uint32_t i = 0; i < w->subject_count; i++) {
        struct subject *s = &w->subjects[i];
        if (s->table != NULL)
            world_finish(w, s);
        ps_table_destroy(s->table);
        world_cut_end(s);
        world_chain_free(s);
        model_clear(&s->model);
        call_free(s->lookup_call);
    }
    w->doing = "end";
    WORLD_CHECK(w, ps_arena_allocated_bytes(w->arena) == 0, "%zu bytes are still taken",
                ps_arena_allocated_bytes(w->arena));
    ps_arena_destroy(w->arena);
    call_free(w->call);
    call_free(w->push_call);
    free(w->keys);
}
