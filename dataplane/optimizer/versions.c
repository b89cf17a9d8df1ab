#include "dataplane/optimizer/versions.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN       64u
#define SPARES_KEPT 2u /* versions that nobody holds any more, for the next copies */

struct mr_parameter_version {
    struct mr_versions *versions;
    uint32_t holders; /* under versions->lock */
    uint64_t number;
    struct mr_tensor tensor;
    pthread_mutex_t extras_lock; /* of what is below */
    struct mr_version_extra *extras;
    struct mr_parameter_version *next_spare;
};

struct mr_versions {
    struct mr_tensor shape;  /* no data */
    pthread_mutex_t writing; /* by whoever makes the next version */
    pthread_mutex_t lock;    /* of what is below */
    pthread_cond_t changed;  /* `changing` is over */
    bool changing;           /* `newest`, in place: nobody may hold it */
    uint32_t users;
    uint32_t held; /* versions with holders; `newest` is held by us as long as there is a user */
    struct mr_parameter_version *newest;
    struct mr_parameter_version *spares;
    uint32_t spare_count;
};

/* ---- one version ---- */

static struct mr_parameter_version *version_create(struct mr_versions *versions)
{
    struct mr_parameter_version *v = calloc(1, sizeof(*v));
    if (v == NULL)
        return NULL;
    v->versions = versions;
    v->tensor = versions->shape;
    v->tensor.data = aligned_alloc(ALIGN, (versions->shape.bytes + ALIGN) / ALIGN * ALIGN);
    if (v->tensor.data == NULL) {
        free(v);
        return NULL;
    }
    pthread_mutex_init(&v->extras_lock, NULL);
    return v;
}

static void version_destroy(struct mr_parameter_version *v)
{
    for (struct mr_version_extra *e = v->extras, *next; e != NULL; e = next) {
        next = e->next;
        e->kind->destroy(e);
    }
    pthread_mutex_destroy(&v->extras_lock);
    free(v->tensor.data);
    free(v);
}

/* Values have changed, or will. Nobody but the writer knows of the version. */
static void version_begin(struct mr_parameter_version *v, uint64_t number)
{
    v->number = number;
    for (struct mr_version_extra *e = v->extras; e != NULL; e = e->next)
        e->kind->outdate(e);
}

/* Under the lock: the first holder. */
static void version_held(struct mr_parameter_version *v)
{
    assert(v->holders == 0);
    v->holders = 1;
    v->versions->held++;
}

/* ---- holding ---- */

static void versions_free(struct mr_versions *versions)
{
    for (struct mr_parameter_version *v = versions->spares, *next; v != NULL; v = next) {
        next = v->next_spare;
        version_destroy(v);
    }
    pthread_cond_destroy(&versions->changed);
    pthread_mutex_destroy(&versions->lock);
    pthread_mutex_destroy(&versions->writing);
    free(versions);
}

/* Takes the lock, and frees what nobody has a use for any more. */
static void let_go(struct mr_parameter_version *v)
{
    struct mr_versions *versions = v->versions;
    pthread_mutex_lock(&versions->lock);
    assert(v->holders > 0);
    if (--v->holders > 0) {
        pthread_mutex_unlock(&versions->lock);
        return;
    }
    bool is_last = --versions->held == 0;
    bool is_kept = versions->spare_count < SPARES_KEPT;
    if (is_kept) {
        v->next_spare = versions->spares;
        versions->spares = v;
        versions->spare_count++;
    }
    pthread_mutex_unlock(&versions->lock);
    if (!is_kept)
        version_destroy(v);
    if (is_last)
        versions_free(versions);
}

void mr_version_release(struct mr_parameter_version *v)
{
    if (v != NULL)
        let_go(v);
}

void mr_version_retain(struct mr_parameter_version *v)
{
    pthread_mutex_lock(&v->versions->lock);
    v->holders++;
    pthread_mutex_unlock(&v->versions->lock);
}

struct mr_parameter_version *mr_versions_hold(struct mr_versions *versions)
{
    pthread_mutex_lock(&versions->lock);
    while (versions->changing)
        pthread_cond_wait(&versions->changed, &versions->lock);
    struct mr_parameter_version *v = versions->newest;
    v->holders++;
    pthread_mutex_unlock(&versions->lock);
    return v;
}

struct mr_parameter_version *mr_versions_try_hold(struct mr_versions *versions)
{
    struct mr_parameter_version *v = NULL;
    pthread_mutex_lock(&versions->lock);
    if (!versions->changing) {
        v = versions->newest;
        v->holders++;
    }
    pthread_mutex_unlock(&versions->lock);
    return v;
}

uint64_t mr_version_number(const struct mr_parameter_version *v)
{
    return v->number;
}

const struct mr_tensor *mr_version_tensor(const struct mr_parameter_version *v)
{
    return &v->tensor;
}

const float *mr_version_values(const struct mr_parameter_version *v)
{
    return v->tensor.data;
}

size_t mr_version_floats(const struct mr_parameter_version *v)
{
    return v->tensor.bytes / sizeof(float);
}

struct mr_version_extra *mr_version_extra(struct mr_parameter_version *v,
                                          const struct mr_version_extra_kind *kind)
{
    pthread_mutex_lock(&v->extras_lock);
    struct mr_version_extra *e = v->extras;
    while (e != NULL && e->kind != kind)
        e = e->next;
    if (e == NULL && (e = kind->create()) != NULL) {
        e->kind = kind;
        e->next = v->extras;
        v->extras = e;
    }
    pthread_mutex_unlock(&v->extras_lock);
    return e;
}

/* ---- all of them ---- */

enum mr_status mr_versions_create(const struct mr_tensor *initial, struct mr_versions **out)
{
    if (initial->dtype != MR_F32 || initial->bytes > SIZE_MAX / 2)
        return MR_INVALID_ARGUMENT;
    struct mr_versions *versions = calloc(1, sizeof(*versions));
    if (versions == NULL)
        return MR_NO_MEMORY;
    versions->shape = *initial;
    versions->shape.data = NULL;
    struct mr_parameter_version *v = versions->newest = version_create(versions);
    if (v == NULL) {
        free(versions);
        return MR_NO_MEMORY;
    }
    pthread_mutex_init(&versions->lock, NULL);
    pthread_mutex_init(&versions->writing, NULL);
    pthread_cond_init(&versions->changed, NULL);
    versions->users = 1;
    v->number = 1;
    version_held(v);
    if (initial->data != NULL)
        memcpy(v->tensor.data, initial->data, initial->bytes);
    else
        memset(v->tensor.data, 0, initial->bytes);
    *out = versions;
    return MR_OK;
}

enum mr_status mr_versions_create_from(const struct mr_tensor *shape, uint64_t number,
                                       struct mr_versions **out, float **values)
{
    struct mr_tensor zeros = *shape;
    zeros.data = NULL;
    enum mr_status status = mr_versions_create(&zeros, out);
    if (status != MR_OK)
        return status;
    (*out)->newest->number = number;
    *values = (*out)->newest->tensor.data;
    return MR_OK;
}

void mr_versions_replace(struct mr_versions *versions, struct mr_versions *from)
{
    struct mr_parameter_version *v = from->newest;
    assert(from->users == 1 && from->held == 1 && v->holders == 1);
    versions_free(from); /* without the version */
    v->versions = versions;
    v->holders = 0;
    pthread_mutex_lock(&versions->writing);
    struct mr_parameter_version *old = versions->newest;
    pthread_mutex_lock(&versions->lock);
    version_held(v);
    versions->newest = v;
    pthread_mutex_unlock(&versions->lock);
    pthread_mutex_unlock(&versions->writing);
    let_go(old);
}

void mr_versions_retain(struct mr_versions *versions)
{
    pthread_mutex_lock(&versions->lock);
    versions->users++;
    pthread_mutex_unlock(&versions->lock);
}

void mr_versions_release(struct mr_versions *versions)
{
    if (versions == NULL)
        return;
    pthread_mutex_lock(&versions->lock);
    bool is_last = --versions->users == 0;
    pthread_mutex_unlock(&versions->lock);
    if (is_last)
        let_go(versions->newest);
}

const struct mr_tensor *mr_versions_shape(const struct mr_versions *versions)
{
    return &versions->shape;
}

/* ---- the next version ---- */

static struct mr_parameter_version *take_spare(struct mr_versions *versions)
{
    pthread_mutex_lock(&versions->lock);
    struct mr_parameter_version *v = versions->spares;
    if (v != NULL) {
        versions->spares = v->next_spare;
        versions->spare_count--;
    }
    pthread_mutex_unlock(&versions->lock);
    return v != NULL ? v : version_create(versions);
}

/* Values of a version of its own, made the newest when they are done. */
static enum mr_status change_copy(struct mr_versions *versions, mr_change_values *change, void *context)
{
    struct mr_parameter_version *v = take_spare(versions);
    struct mr_parameter_version *old = versions->newest; /* only a writer changes `newest` */
    if (v == NULL)
        return MR_NO_MEMORY;
    memcpy(v->tensor.data, old->tensor.data, old->tensor.bytes);
    version_begin(v, old->number + 1);
    change(context, v->tensor.data);
    pthread_mutex_lock(&versions->lock);
    version_held(v);
    versions->newest = v;
    pthread_mutex_unlock(&versions->lock);
    let_go(old);
    return MR_OK;
}

/* `changing` is set: nobody else knows of the newest version until it is over. */
static void change_in_place(struct mr_versions *versions, mr_change_values *change, void *context)
{
    struct mr_parameter_version *v = versions->newest;
    version_begin(v, v->number + 1);
    change(context, v->tensor.data);
    pthread_mutex_lock(&versions->lock);
    versions->changing = false;
    pthread_cond_broadcast(&versions->changed);
    pthread_mutex_unlock(&versions->lock);
}

enum mr_status mr_versions_change(struct mr_versions *versions, mr_change_values *change, void *context)
{
    enum mr_status status = MR_OK;
    pthread_mutex_lock(&versions->writing);
    pthread_mutex_lock(&versions->lock);
    versions->changing = versions->newest->holders == 1;
    pthread_mutex_unlock(&versions->lock);
    if (versions->changing)
        change_in_place(versions, change, context);
    else
        status = change_copy(versions, change, context);
    pthread_mutex_unlock(&versions->writing);
    return status;
}
