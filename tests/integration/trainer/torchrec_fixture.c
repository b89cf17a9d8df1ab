#include "tests/integration/trainer/torchrec_fixture.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tests/test.h"

#define LIMIT_S 300

/* The layout that TorchRec's C++ gives to these. */
_Static_assert(offsetof(struct tde_fetch, columns) == 16 && offsetof(struct tde_fetch, ids) == 24 &&
                   offsetof(struct tde_fetch, state_count) == 32 &&
                   offsetof(struct tde_fetch, context) == 40 &&
                   offsetof(struct tde_fetch, on_fetched) == 48 &&
                   offsetof(struct tde_fetch, on_all_fetched) == 56 && sizeof(struct tde_fetch) == 64,
               "fetch");
_Static_assert(offsetof(struct tde_push, state_count) == 32 && offsetof(struct tde_push, states) == 40 &&
                   offsetof(struct tde_push, offset_count) == 48 &&
                   offsetof(struct tde_push, offsets) == 56 && offsetof(struct tde_push, data) == 64 &&
                   offsetof(struct tde_push, context) == 72 && offsetof(struct tde_push, on_pushed) == 80 &&
                   sizeof(struct tde_push) == 88,
               "push");

struct plugin plugin;
struct node_fixture node;
uint32_t cores;
static const char *plugin_path;

static void *symbol(const struct plugin *p, const char *name)
{
    void *found = dlsym(p->handle, name);
    if (found == NULL)
        fail_msg("no symbol %s", name);
    return found;
}

void plugin_load(struct plugin *p, const char *path)
{
    p->handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (p->handle == NULL)
        fail_msg("%s", dlerror());
    p->type = *(const char **)symbol(p, "IO_type");
    *(void **)&p->initialize = symbol(p, "IO_Initialize");
    *(void **)&p->finalize = symbol(p, "IO_Finalize");
    *(void **)&p->fetch = symbol(p, "IO_Fetch");
    *(void **)&p->pull = symbol(p, "IO_Pull");
    *(void **)&p->push = symbol(p, "IO_Push");
}

bool torchrec_arguments(int argc, char **argv)
{
    if (argc != 4 || (cores = (uint32_t)strtoul(argv[3], NULL, 10)) == 0) {
        fprintf(stderr, "usage: %s MILLRACED PLUGIN CORES\n", program_invocation_short_name);
        return false;
    }
    node_fixture_server = argv[1];
    plugin_path = argv[2];
    netns_require_root();
    return true;
}

int torchrec_setup_with(const char *const *settings)
{
    plugin_load(&plugin, plugin_path);
    node_fixture_start(&node, cores, settings);
    return 0;
}

int torchrec_setup(void **state)
{
    return torchrec_setup_with(NULL);
}

int torchrec_teardown(void **state)
{
    node_fixture_stop(&node);
    assert_int_equal(dlclose(plugin.handle), 0);
    return 0;
}

void *plugin_instance(const struct plugin *p, const struct node_fixture *of, const char *options)
{
    char configuration[512];
    (void)snprintf(configuration, sizeof(configuration), "%s/?connect_ms=%d&%s", of->address, NODE_READY_MS,
                   options[0] == '\0' ? "replay=on" : options);
    void *instance = p->initialize(configuration);

    assert_non_null(instance);
    return instance;
}

uint32_t rows_places(const struct rows *r)
{
    return r->id_count * (r->column_count == 0 ? 1 : r->column_count);
}

/* ---- outcomes ---- */

void outcome_begin(struct outcome *o, const struct rows *r)
{
    size_t blocks = (size_t)rows_places(r) * r->states;
    memset(o, 0, sizeof(*o));
    o->rows = *r;
    o->values = calloc(blocks * r->floats + 1, sizeof(*o->values));
    o->is_there = calloc(blocks + 1, sizeof(*o->is_there));
    o->offsets = calloc(blocks + 1, sizeof(*o->offsets));
    o->order = calloc(r->states + 1, sizeof(*o->order));
    assert_true(o->values != NULL && o->is_there != NULL && o->offsets != NULL && o->order != NULL);
    assert_int_equal(pthread_mutex_init(&o->lock, NULL), 0);
    assert_int_equal(pthread_cond_init(&o->changed, NULL), 0);
}

bool outcome_is_over(struct outcome *o)
{
    pthread_mutex_lock(&o->lock);
    bool is_over = o->is_over;
    pthread_mutex_unlock(&o->lock);
    return is_over;
}

void outcome_wait(struct outcome *o)
{
    struct timespec end;
    int failed = 0;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += LIMIT_S;
    pthread_mutex_lock(&o->lock);
    while (!o->is_over && failed == 0)
        failed = pthread_cond_timedwait(&o->changed, &o->lock, &end);
    pthread_mutex_unlock(&o->lock);
    if (failed != 0)
        fail_msg("%s of %u ids is not over", o->rows.table, o->rows.id_count);
    assert_false(o->mixed_threads);
    assert_false(pthread_equal(o->thread, pthread_self()));
}

void outcome_end(struct outcome *o)
{
    free(o->values);
    free(o->is_there);
    free(o->offsets);
    free(o->order);
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->lock);
}

static void on_fetched(void *context, uint32_t place, uint32_t state, void *data, uint32_t bytes)
{
    struct outcome *o = context;
    const struct rows *r = &o->rows;
    assert_true(place < rows_places(r) && state < r->states);
    assert_true(bytes == 0 || bytes == r->floats * sizeof(float));
    assert_true((bytes == 0) == (data == NULL));
    size_t block = (size_t)place * r->states + state;

    assert_false(o->is_there[block]);
    o->mixed_threads |= o->places_told > 0 && !pthread_equal(o->thread, pthread_self());
    o->thread = pthread_self();
    o->places_told++;
    if (data == NULL) {
        o->absent++;
        return;
    }
    o->is_there[block] = true;
    memcpy(o->values + block * r->floats, data, bytes);
}

static void on_end(void *context)
{
    struct outcome *o = context;
    pthread_mutex_lock(&o->lock);
    assert_false(o->is_over);
    o->thread = pthread_self();
    o->is_over = true;
    pthread_cond_signal(&o->changed);
    pthread_mutex_unlock(&o->lock);
}

/* ---- calls ---- */

float value_of(int64_t id, int64_t column, uint32_t state, uint32_t i, uint32_t version)
{
    uint64_t mixed =
        ((uint64_t)id * 31 + (uint64_t)column * 7 + state * 5 + i) * UINT64_C(0x9e3779b97f4a7c15);
    return (float)(mixed >> 44) / 1024.0f - (float)version * 3.5f;
}

static void *copy_of(const void *from, size_t bytes)
{
    void *to = calloc(1, bytes + 1);
    if (to == NULL)
        abort();
    if (bytes > 0)
        memcpy(to, from, bytes);
    return to;
}

/* What TorchRec passes goes away: the arrays are copies that are freed as soon as the call returns. */
void begin_fetch(const struct plugin *p, void *instance, const struct rows *r, struct outcome *o)
{
    char *table = copy_of(r->table, strlen(r->table) + 1);
    int64_t *ids = copy_of(r->ids, r->id_count * sizeof(*ids)),
            *columns = copy_of(r->columns, r->column_count * sizeof *columns);
    outcome_begin(o, r);
    const struct tde_fetch fetch = {.table = table,
                                    .column_count = r->column_count,
                                    .id_count = r->id_count,
                                    .columns = columns,
                                    .ids = ids,
                                    .state_count = r->states,
                                    .context = o,
                                    .on_fetched = on_fetched,
                                    .on_all_fetched = on_end};

    (r->id_count % 2 == 0 ? p->fetch : p->pull)(instance, fetch);
    memset(ids, 0x5A, r->id_count * sizeof(*ids));
    free(table);
    free(ids);
    free(columns);
}

void begin_push(const struct plugin *p, void *instance, const struct rows *r, const float *values,
                bool reversed, struct outcome *o)
{
    size_t blocks = (size_t)rows_places(r) * r->states;
    outcome_begin(o, r);
    for (size_t i = 0; i <= blocks; i++)
        o->offsets[i] = i * r->floats * sizeof(float);
    for (uint32_t i = 0; i < r->states; i++)
        o->order[i] = reversed ? r->states - 1 - i : i;
    size_t bytes = blocks * r->floats * sizeof(float);
    void *data = copy_of(values, bytes), *ids = copy_of(r->ids, r->id_count * sizeof(*r->ids));
    const struct tde_push push = {.table = r->table,
                                  .column_count = r->column_count,
                                  .id_count = r->id_count,
                                  .columns = r->columns,
                                  .ids = ids,
                                  .state_count = r->states,
                                  .states = o->order,
                                  .offset_count = (uint32_t)blocks + 1,
                                  .offsets = o->offsets,
                                  .data = data,
                                  .context = o,
                                  .on_pushed = on_end};

    p->push(instance, push);
    memset(o->offsets, 0xFF, (blocks + 1) * sizeof(*o->offsets));
    memset(o->order, 0xFF, r->states * sizeof(*o->order));
    memset(data, 0xFF, bytes);
    free(data);
    free(ids);
}

static float *values_of(const struct rows *r, uint32_t version, bool reversed)
{
    size_t at = 0;
    float *values = malloc(((size_t)rows_places(r) * r->states * r->floats + 1) * sizeof(*values));
    assert_non_null(values);
    for (uint32_t place = 0; place < rows_places(r); place++) {
        uint32_t columns = r->column_count == 0 ? 1 : r->column_count;
        int64_t column = r->column_count == 0 ? -1 : r->columns[place % columns];
        for (uint32_t k = 0; k < r->states; k++)
            for (uint32_t i = 0; i < r->floats; i++)
                values[at++] =
                    value_of(r->ids[place / columns], column, reversed ? r->states - 1 - k : k, i, version);
    }
    return values;
}

void push_version(const struct plugin *p, void *instance, const struct rows *r, uint32_t version)
{
    bool reversed = version % 2 == 1;
    float *values = values_of(r, version, reversed);
    struct outcome o;
    begin_push(p, instance, r, values, reversed, &o);
    outcome_wait(&o);
    outcome_end(&o);
    free(values);
}

void expect_version(const struct plugin *p, void *instance, const struct rows *r, uint32_t version)
{
    float *values = values_of(r, version, false);
    size_t blocks = (size_t)rows_places(r) * r->states;
    struct outcome o;
    begin_fetch(p, instance, r, &o);
    outcome_wait(&o);
    assert_int_equal(o.places_told, blocks);
    assert_int_equal(o.absent, 0);
    assert_memory_equal(o.values, values, blocks * r->floats * sizeof(*values));
    outcome_end(&o);
    free(values);
}

void expect_absent(const struct plugin *p, void *instance, const struct rows *r)
{
    struct outcome o;
    begin_fetch(p, instance, r, &o);
    outcome_wait(&o);
    assert_int_equal(o.places_told, rows_places(r) * r->states);
    assert_int_equal(o.absent, o.places_told);
    outcome_end(&o);
}

/* ---- stderr ---- */

static int stderr_before, stderr_file;

void stderr_begin(void)
{
    char path[] = "/tmp/millrace-test-XXXXXX";
    stderr_file = mkstemp(path);
    assert_true(stderr_file >= 0);
    assert_int_equal(unlink(path), 0);
    (void)fflush(stderr);
    stderr_before = dup(STDERR_FILENO);
    assert_true(stderr_before >= 0 && dup2(stderr_file, STDERR_FILENO) >= 0);
}

const char *stderr_end(void)
{
    static char text[65536];
    (void)fflush(stderr);
    assert_true(dup2(stderr_before, STDERR_FILENO) >= 0);
    ssize_t bytes = pread(stderr_file, text, sizeof(text) - 1, 0);

    assert_true(bytes >= 0);
    text[bytes] = '\0';
    (void)fputs(text, stderr);
    close(stderr_before);
    close(stderr_file);
    return text;
}
