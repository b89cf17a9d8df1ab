/* Versions: who sees which values, when they are copied, and when their memory goes; also with many
 * threads. */
#include <pthread.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/versions.h"
#include "tests/test.h"

#define FLOATS 100u

static struct mr_versions *versions_of(float value)
{
    float values[FLOATS];
    struct mr_versions *versions = NULL;
    for (uint32_t i = 0; i < FLOATS; i++)
        values[i] = value;
    const struct mr_tensor initial = mr_tensor_2d(MR_F32, 4, FLOATS / 4, values);
    assert_int_equal(mr_versions_create(&initial, &versions), MR_OK);
    return versions;
}

static void copy_values(void *context, float *values)
{
    memcpy(values, context, FLOATS * sizeof(*values));
}

static void add_one(void *context, float *values)
{
    uint32_t *runs = context;
    for (uint32_t i = 0; i < FLOATS; i++)
        values[i] += 1;
    (*runs)++;
}

static bool all_are(const struct mr_parameter_version *v, float value)
{
    for (uint32_t i = 0; i < FLOATS; i++)
        if (mr_version_values(v)[i] != value)
            return false;
    return true;
}

TEST(test_first_version)
{
    struct mr_versions *versions = versions_of(3);
    struct mr_parameter_version *v = mr_versions_hold(versions);
    const struct mr_tensor *t = mr_version_tensor(v);
    assert_int_equal(mr_version_number(v), 1);
    assert_int_equal(mr_version_floats(v), FLOATS);
    assert_int_equal(t->dtype, MR_F32);
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->dims[1], FLOATS / 4);
    assert_ptr_equal(t->data, mr_version_values(v));
    assert_int_equal((uintptr_t)t->data % 64, 0);
    assert_true(all_are(v, 3));
    mr_version_release(v);
    mr_versions_release(versions);
    mr_versions_release(NULL);
    mr_version_release(NULL);
}

TEST(test_zeros_and_refusals)
{
    struct mr_versions *versions = NULL;
    struct mr_tensor t = mr_tensor_1d(MR_F64, FLOATS, NULL);
    assert_int_equal(mr_versions_create(&t, &versions), MR_INVALID_ARGUMENT);
    assert_null(versions);
    t = mr_tensor_1d(MR_F32, FLOATS, NULL);
    assert_int_equal(mr_versions_create(&t, &versions), MR_OK);
    struct mr_parameter_version *v = mr_versions_hold(versions);
    assert_true(all_are(v, 0));
    mr_version_release(v);
    mr_versions_release(versions);
}

TEST(test_changed_in_place)
{
    struct mr_versions *versions = versions_of(0);
    struct mr_parameter_version *v = mr_versions_hold(versions);
    const float *values = mr_version_values(v);
    uint32_t runs = 0;
    mr_version_release(v);
    assert_int_equal(mr_versions_change(versions, add_one, &runs), MR_OK);
    v = mr_versions_hold(versions);
    assert_ptr_equal(mr_version_values(v), values);
    assert_int_equal(mr_version_number(v), 2);
    assert_true(all_are(v, 1));
    assert_int_equal(runs, 1);
    mr_version_release(v);
    mr_versions_release(versions);
}

TEST(test_held_version_stays)
{
    struct mr_versions *versions = versions_of(0);
    struct mr_parameter_version *held[5];
    uint32_t runs = 0;
    for (uint32_t i = 0; i < 5; i++) {
        held[i] = mr_versions_hold(versions);
        assert_int_equal(mr_versions_change(versions, add_one, &runs), MR_OK);
    }
    mr_version_retain(held[2]);
    mr_version_release(held[2]);
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(all_are(held[i], (float)i));
        assert_int_equal(mr_version_number(held[i]), i + 1);
    }
    float twelve[FLOATS];
    for (uint32_t i = 0; i < FLOATS; i++)
        twelve[i] = 12;
    assert_int_equal(mr_versions_change(versions, copy_values, twelve), MR_OK);
    struct mr_parameter_version *newest = mr_versions_hold(versions);
    assert_int_equal(mr_version_number(newest), 7);
    assert_true(all_are(newest, 12));
    mr_versions_release(versions); /* what is held stays */
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(all_are(held[i], (float)i));
        mr_version_release(held[i]);
    }
    assert_true(all_are(newest, 12));
    mr_version_release(newest);
}

struct look {
    struct mr_versions *versions;
    struct mr_parameter_version *older;
    uint32_t wrong;
};

/* While values are changed in place, nobody gets them; all else goes on. */
static void look_while_changing(void *context, float *values)
{
    struct look *look = context;
    struct mr_parameter_version *v = mr_versions_try_hold(look->versions);
    look->wrong += v != NULL;
    mr_version_release(v);
    mr_version_retain(look->older);
    mr_version_release(look->older);
    mr_versions_retain(look->versions);
    mr_versions_release(look->versions);
    values[0] = 1;
}

TEST(test_try_hold)
{
    struct look look = {.versions = versions_of(0)};
    uint32_t runs = 0;
    look.older = mr_versions_try_hold(look.versions);
    assert_int_equal(mr_version_number(look.older), 1);
    assert_int_equal(mr_versions_change(look.versions, add_one, &runs), MR_OK);
    assert_int_equal(mr_versions_change(look.versions, look_while_changing, &look), MR_OK);
    assert_int_equal(look.wrong, 0);
    struct mr_parameter_version *v = mr_versions_try_hold(look.versions);
    assert_int_equal(mr_version_number(v), 3);
    assert_int_equal(mr_versions_shape(look.versions)->bytes, FLOATS * sizeof(float));
    mr_version_release(v);
    mr_version_release(look.older);
    mr_versions_release(look.versions);
}

/* ---- what is kept beside a version ---- */

static _Atomic uint32_t created, outdated, destroyed;

struct sum {
    struct mr_version_extra extra;
    bool is_current;
};

static struct mr_version_extra *sum_create(void)
{
    struct sum *sum = calloc(1, sizeof(*sum));
    created++;
    return &sum->extra;
}

static void sum_outdate(struct mr_version_extra *extra)
{
    ((struct sum *)extra)->is_current = false;
    outdated++;
}

static void sum_destroy(struct mr_version_extra *extra)
{
    destroyed++;
    free(extra);
}

static const struct mr_version_extra_kind sum_kind = {sum_create, sum_outdate, sum_destroy};
static const struct mr_version_extra_kind other_kind = {sum_create, sum_outdate, sum_destroy};

static struct mr_version_extra *no_memory(void)
{
    return NULL;
}
static const struct mr_version_extra_kind empty_kind = {no_memory, sum_outdate, sum_destroy};

TEST(test_extras)
{
    struct mr_versions *versions = versions_of(0);
    uint32_t runs = 0;
    created = outdated = destroyed = 0;
    struct mr_parameter_version *v = mr_versions_hold(versions);
    struct sum *sum = (struct sum *)mr_version_extra(v, &sum_kind);
    sum->is_current = true;
    assert_ptr_equal(mr_version_extra(v, &sum_kind), sum);
    assert_ptr_not_equal(mr_version_extra(v, &other_kind), sum);
    assert_null(mr_version_extra(v, &empty_kind));
    assert_int_equal(created, 2);
    assert_int_equal(mr_versions_change(versions, add_one, &runs), MR_OK); /* on a copy */
    assert_true(sum->is_current);
    assert_int_equal(outdated, 0);
    struct mr_parameter_version *next = mr_versions_hold(versions);
    assert_ptr_not_equal(mr_version_extra(next, &sum_kind), sum);
    assert_int_equal(created, 3);
    mr_version_release(next);
    assert_int_equal(mr_versions_change(versions, add_one, &runs), MR_OK); /* in place */
    assert_int_equal(outdated, 1);
    assert_true(sum->is_current);
    mr_version_release(v); /* its memory is there for the next copy, which keeps the extras */
    assert_int_equal(destroyed, 0);
    next = mr_versions_hold(versions);
    assert_int_equal(mr_versions_change(versions, add_one, &runs), MR_OK);
    mr_version_release(next);
    v = mr_versions_hold(versions);
    assert_ptr_equal(mr_version_extra(v, &sum_kind), sum);
    assert_false(sum->is_current);
    assert_true(all_are(v, 3));
    mr_version_release(v);
    mr_versions_release(versions);
    assert_int_equal(destroyed, created);
}

/* ---- threads ---- */

#define WRITERS 3u
#define READERS 3u
#define CHANGES 3000u

struct shared {
    struct mr_versions *versions;
    _Atomic uint32_t writing;
};

static void *write_on(void *arg)
{
    struct shared *s = arg;
    uint32_t runs = 0;
    for (uint32_t i = 0; i < CHANGES; i++)
        if (mr_versions_change(s->versions, add_one, &runs) != MR_OK)
            runs = UINT32_MAX / 2;
    atomic_fetch_sub(&s->writing, 1);
    return (void *)(uintptr_t)runs;
}

/* A version is whole, is that of its number, and stays so. Returns how many were not. */
static void *read_on(void *arg)
{
    struct shared *s = arg;
    uintptr_t wrong = 0;
    uint64_t last = 0;
    struct mr_parameter_version *before = mr_versions_hold(s->versions);
    while (atomic_load(&s->writing) > 0) {
        struct mr_parameter_version *v = mr_versions_hold(s->versions);
        wrong += mr_version_number(v) < last;
        last = mr_version_number(v);
        wrong += !all_are(v, (float)(last - 1));
        wrong += mr_version_extra(v, &sum_kind) == NULL;
        wrong += !all_are(before, (float)(mr_version_number(before) - 1));
        mr_version_release(before);
        before = v;
    }
    mr_version_release(before);
    return (void *)wrong;
}

TEST(test_threads)
{
    struct shared s = {.versions = versions_of(0), .writing = WRITERS};
    pthread_t writers[WRITERS], readers[READERS];
    created = outdated = destroyed = 0;
    for (uint32_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_on, &s), 0);
    for (uint32_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, write_on, &s), 0);
    void *result;
    for (uint32_t i = 0; i < WRITERS; i++) {
        pthread_join(writers[i], &result);
        assert_int_equal((uintptr_t)result, CHANGES);
    }
    for (uint32_t i = 0; i < READERS; i++) {
        pthread_join(readers[i], &result);
        assert_int_equal((uintptr_t)result, 0);
    }
    struct mr_parameter_version *v = mr_versions_hold(s.versions);
    assert_int_equal(mr_version_number(v), 1 + WRITERS * CHANGES);
    assert_true(all_are(v, WRITERS * CHANGES));
    mr_versions_release(s.versions);
    mr_version_release(v);
    assert_int_equal(destroyed, created);
}
