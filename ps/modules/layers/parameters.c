#include "ps/modules/layers/parameters.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "ps/initializer.h"
#include "ps/modules/layers/network_internal.h"
#include "ps/modules/layers/parameters_internal.h"

#define SPARES_KEPT 2u /* versions that nobody holds any more, for the next copies */

/* A parameter in a format of a primitive's. */
struct form {
    struct form *next;
    uint32_t parameter;
    ps_format format;
    bool is_current; /* else it holds values of an earlier version */
    float *values;
};

struct ps_version {
    struct ps_parameters *parameters;
    uint32_t holders; /* under parameters->lock */
    uint64_t number;
    float *values;
    pthread_mutex_t forms_lock; /* of what is below */
    struct form *forms;
    struct ps_version *next_spare;
};

struct ps_parameters {
    struct ps_network *network;
    size_t floats;
    pthread_mutex_t writing; /* by whoever makes the next version */
    pthread_mutex_t lock;    /* of what is below; held while `newest` is changed in place */
    struct ps_version *newest;
    struct ps_version *spares;
    uint32_t spare_count;
};

/* ---- versions ---- */

static void *take_floats(size_t count)
{
    return aligned_alloc(PS_LAYERS_ALIGN, ps_layers_round(count * sizeof(float) + 1));
}

static struct ps_version *version_create(struct ps_parameters *p)
{
    struct ps_version *v = calloc(1, sizeof(*v));
    if (v == NULL)
        return NULL;
    v->parameters = p;
    v->values = take_floats(p->floats);
    if (v->values == NULL) {
        free(v);
        return NULL;
    }
    pthread_mutex_init(&v->forms_lock, NULL);
    return v;
}

static void version_destroy(struct ps_version *v)
{
    for (struct form *f = v->forms, *next; f != NULL; f = next) {
        next = f->next;
        free(f->values);
        free(f);
    }
    pthread_mutex_destroy(&v->forms_lock);
    free(v->values);
    free(v);
}

/* Under the lock. Returns what is to be destroyed after it: NULL, or the version. */
static struct ps_version *let_go(struct ps_version *v)
{
    struct ps_parameters *p = v->parameters;
    assert(v->holders > 0);
    if (--v->holders > 0)
        return NULL;
    if (p->spare_count == SPARES_KEPT)
        return v;
    v->next_spare = p->spares;
    p->spares = v;
    p->spare_count++;
    return NULL;
}

void ps_version_release(struct ps_version *v)
{
    if (v == NULL)
        return;
    pthread_mutex_t *lock = &v->parameters->lock;
    pthread_mutex_lock(lock);
    struct ps_version *gone = let_go(v);
    pthread_mutex_unlock(lock);
    if (gone != NULL)
        version_destroy(gone);
}

void ps_version_retain(struct ps_version *v)
{
    pthread_mutex_lock(&v->parameters->lock);
    v->holders++;
    pthread_mutex_unlock(&v->parameters->lock);
}

struct ps_version *ps_parameters_hold(struct ps_parameters *p)
{
    pthread_mutex_lock(&p->lock);
    struct ps_version *v = p->newest;
    v->holders++;
    pthread_mutex_unlock(&p->lock);
    return v;
}

uint64_t ps_version_number(const struct ps_version *v)
{
    return v->number;
}

const float *ps_version_values(const struct ps_version *v)
{
    return v->values;
}

const struct ps_network *ps_version_network(const struct ps_version *v)
{
    return v->parameters->network;
}

const float *ps_version_parameter(const struct ps_version *v, uint32_t index)
{
    return v->values + ps_network_parameter(v->parameters->network, index)->first;
}

/* ---- parameters in other formats ---- */

static struct form *find_form(struct ps_version *v, uint32_t index, const ps_format *format)
{
    for (struct form *f = v->forms; f != NULL; f = f->next)
        if (f->parameter == index && ps_format_is(&f->format, format))
            return f;
    struct form *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return NULL;
    made->values = take_floats(ps_format_bytes(format) / sizeof(float));
    if (made->values == NULL) {
        free(made);
        return NULL;
    }
    made->parameter = index;
    made->format = *format;
    made->next = v->forms;
    v->forms = made;
    return made;
}

static enum mr_status reorder(const ps_format *from, const float *values, const ps_format *to, float *out,
                              dnnl_stream_t stream)
{
    struct ps_primitive p;
    enum mr_status status = ps_primitive_reorder(from, to, &p);
    if (status != MR_OK)
        return status;
    void *scratch = take_floats(ps_format_bytes(&p.scratch) / sizeof(float) + 1);
    const struct ps_argument arguments[2] = {{DNNL_ARG_FROM, from, values, NULL},
                                             {DNNL_ARG_TO, to, NULL, out}};
    status = scratch == NULL ? MR_NO_MEMORY : ps_primitive_run(&p, stream, scratch, arguments, 2);
    free(scratch);
    ps_primitive_destroy(&p);
    return status;
}

enum mr_status ps_version_parameter_as(struct ps_version *v, uint32_t index, const ps_format *format,
                                       dnnl_stream_t stream, const float **out)
{
    const float *plain_values = ps_version_parameter(v, index);
    ps_format plain = ps_format_of_parameter(&ps_network_parameter(v->parameters->network, index)->shape);
    if (ps_format_is(&plain, format)) {
        *out = plain_values;
        return MR_OK;
    }
    enum mr_status status = MR_OK;
    pthread_mutex_lock(&v->forms_lock);
    struct form *f = find_form(v, index, format);
    if (f == NULL)
        status = MR_NO_MEMORY;
    else if (!f->is_current)
        status = reorder(&plain, plain_values, format, f->values, stream);
    if (status == MR_OK) {
        f->is_current = true;
        *out = f->values;
    }
    pthread_mutex_unlock(&v->forms_lock);
    return status;
}

/* ---- all of them ---- */

static void first_values(const struct ps_parameters *p, uint64_t seed, float *values)
{
    memset(values, 0, p->floats * sizeof(float));
    for (uint32_t i = 0; i < ps_network_parameter_count(p->network); i++) {
        const struct ps_parameter_info *info = ps_network_parameter(p->network, i);
        const float bound = (float)(1 / sqrt((double)info->shape.fan_in));
        const struct ps_initializer uniform = {
            .kind = MR_INIT_UNIFORM, .a = -bound, .b = bound, .seed = seed};
        ps_initializer_fill(&uniform, ((uint64_t)ps_network_first_number(p->network) << 32) + i,
                            values + info->first, info->shape.count);
    }
}

enum mr_status ps_parameters_create(struct ps_network *network, uint64_t seed, struct ps_parameters **out)
{
    struct ps_parameters *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return MR_NO_MEMORY;
    p->network = network;
    p->floats = ps_network_parameter_floats(network);
    p->newest = version_create(p);
    if (p->newest == NULL) {
        free(p);
        return MR_NO_MEMORY;
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->writing, NULL);
    p->newest->holders = 1;
    p->newest->number = 1;
    first_values(p, seed, p->newest->values);
    *out = p;
    return MR_OK;
}

void ps_parameters_destroy(struct ps_parameters *p)
{
    if (p == NULL)
        return;
    assert(p->newest->holders == 1);
    version_destroy(p->newest);
    for (struct ps_version *v = p->spares, *next; v != NULL; v = next) {
        next = v->next_spare;
        version_destroy(v);
    }
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->writing);
    free(p);
}

struct ps_network *ps_parameters_network(const struct ps_parameters *p)
{
    return p->network;
}

/* ---- the next version ---- */

/* Values have changed, or will: what was made of them is of no use. Nobody but the writer knows of the version. */
static void begin_version(struct ps_version *v, uint64_t number)
{
    v->number = number;
    for (struct form *f = v->forms; f != NULL; f = f->next)
        f->is_current = false;
}

static struct ps_version *take_spare(struct ps_parameters *p)
{
    pthread_mutex_lock(&p->lock);
    struct ps_version *v = p->spares;
    if (v != NULL) {
        p->spares = v->next_spare;
        p->spare_count--;
    }
    pthread_mutex_unlock(&p->lock);
    return v != NULL ? v : version_create(p);
}

/* Values of a version of its own, made the newest when they are done. */
static enum mr_status change_copy(struct ps_parameters *p, ps_change_values *change, void *context)
{
    struct ps_version *v = take_spare(p), *old = p->newest; /* only a writer changes `newest` */
    if (v == NULL)
        return MR_NO_MEMORY;
    memcpy(v->values, old->values, p->floats * sizeof(float));
    begin_version(v, old->number + 1);
    change(context, v->values);
    v->holders = 1;
    pthread_mutex_lock(&p->lock);
    p->newest = v;
    struct ps_version *gone = let_go(old);
    pthread_mutex_unlock(&p->lock);
    if (gone != NULL)
        version_destroy(gone);
    return MR_OK;
}

enum mr_status ps_parameters_change(struct ps_parameters *p, ps_change_values *change, void *context)
{
    enum mr_status status = MR_OK;
    pthread_mutex_lock(&p->writing);
    pthread_mutex_lock(&p->lock);
    bool is_ours = p->newest->holders == 1;
    if (is_ours) {
        begin_version(p->newest, p->newest->number + 1);
        change(context, p->newest->values);
    }
    pthread_mutex_unlock(&p->lock);
    if (!is_ours)
        status = change_copy(p, change, context);
    pthread_mutex_unlock(&p->writing);
    return status;
}

struct replacement {
    const float *values;
    size_t floats;
};

static void replace(void *context, float *values)
{
    const struct replacement *r = context;
    memcpy(values, r->values, r->floats * sizeof(float));
}

enum mr_status ps_parameters_set(struct ps_parameters *p, const float *values)
{
    struct replacement r = {values, p->floats};
    return ps_parameters_change(p, replace, &r);
}
