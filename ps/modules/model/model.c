#include "ps/modules/model/model.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "dataplane/wire/format/mr_tensor.h"
#include "ps/modules/layers/network.h"
#include "ps/modules/model/thread_pool.h"
#include "ps/modules/model/text.h"

#define SPARES_MAX   32u /* rooms kept for the next forward passes */
#define PART_SAMPLES 4u  /* at least; fewer are not worth a thread */
#define SLICES       4u  /* of the gradient's sum, for each part: whoever is done early takes more */
#define ALIGN        64u

/* What one part of a batch is computed in. */
struct room {
    struct room *next;
    struct ps_saved *saved;
    float *gradients; /* of the parameter; NULL until they are wanted */
};

struct ps_model {
    struct ps_model *next; /* of all of the process */
    uint32_t holders;      /* under models_lock */
    struct ps_network *network;
    struct mr_rref *parameter;
    struct ps_thread_pool *pool;
    uint64_t seed;
    uint32_t parts;
    pthread_mutex_t lock; /* of what is below */
    struct room *spares;
    uint32_t spare_count;
};

/* Of a forward or backward: what a thread computes. */
struct part {
    struct ps_model *model;
    struct room *room;
    struct mr_parameter_version *version;
    struct ps_forward how;
    uint32_t first, count; /* samples */
    const float *in;
    float *out; /* backward: the input's gradient, or NULL */
    enum mr_status status;
};

struct ps_forward_pass {
    struct ps_model *model;
    uint32_t batch, part_count;
    struct part parts[];
};

static pthread_mutex_t models_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ps_model *models;

/* ---- rooms ---- */

static void room_destroy(struct room *room)
{
    ps_saved_destroy(room->saved);
    free(room->gradients);
    free(room);
}

static struct room *room_take(struct ps_model *m)
{
    pthread_mutex_lock(&m->lock);
    struct room *room = m->spares;
    if (room != NULL) {
        m->spares = room->next;
        m->spare_count--;
    }
    pthread_mutex_unlock(&m->lock);
    if (room != NULL)
        return room;
    room = calloc(1, sizeof(*room));
    if (room != NULL && ps_saved_create(m->network, &room->saved) != MR_OK) {
        free(room);
        return NULL;
    }
    return room;
}

static void room_give(struct ps_model *m, struct room *room)
{
    if (room == NULL)
        return;
    ps_saved_reset(room->saved); /* lets go of the version */
    pthread_mutex_lock(&m->lock);
    bool keep = m->spare_count < SPARES_MAX;
    if (keep) {
        room->next = m->spares;
        m->spares = room;
        m->spare_count++;
    }
    pthread_mutex_unlock(&m->lock);
    if (!keep)
        room_destroy(room);
}

/* ---- the model ---- */

static enum mr_status make_parameter(struct ps_model *m, struct mr_rpc *rpc, const char *name, char *error,
                                     size_t error_bytes)
{
    float *values =
        aligned_alloc(ALIGN, (ps_network_parameter_floats(m->network) * sizeof(float) / ALIGN + 1) * ALIGN);
    if (values == NULL)
        return MR_NO_MEMORY;
    ps_parameters_first_values(m->network, m->seed, values);
    struct mr_tensor tensor = ps_parameters_tensor(m->network, values);
    enum mr_status status = name == NULL ? mr_parameter_create(rpc, &tensor, &m->parameter)
                                         : mr_parameter_open(rpc, name, &tensor, &m->parameter);
    if (status != MR_OK)
        snprintf(error, error_bytes, "the network's parameter: %s", mr_rpc_last_error());
    free(values);
    return status;
}

static void model_free(struct ps_model *m)
{
    while (m->spares != NULL) {
        struct room *room = m->spares;
        m->spares = room->next;
        room_destroy(room);
    }
    mr_rref_release(m->parameter);
    ps_thread_pool_destroy(m->pool);
    ps_network_destroy(m->network);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static enum mr_status make_network(struct ps_model *m, const char *text, char *error, size_t error_bytes)
{
    struct ps_model_text *read = malloc(sizeof(*read));
    if (read == NULL)
        return MR_NO_MEMORY;
    enum mr_status status = ps_model_read(text, read, error, error_bytes);
    const struct ps_network_options options = {.first_number = read->first_number};
    if (status == MR_OK)
        status = ps_network_create(read->layers, read->layer_count, &read->sample, &options, &m->network,
                                   error, error_bytes);
    free(read);
    return status;
}

enum mr_status ps_model_create(struct mr_rpc *rpc, const char *text, uint64_t seed, uint32_t parts,
                               const char *name, struct ps_model **out, char *error, size_t error_bytes)
{
    struct ps_model *m = calloc(1, sizeof(*m));
    snprintf(error, error_bytes, "no memory for the network");
    if (m == NULL)
        return MR_NO_MEMORY;
    pthread_mutex_init(&m->lock, NULL);
    m->holders = 1;
    m->seed = seed;
    m->parts = parts;
    m->pool = ps_thread_pool_create(parts - 1);
    enum mr_status status = m->pool == NULL ? MR_NO_MEMORY : make_network(m, text, error, error_bytes);
    if (status == MR_OK)
        status = make_parameter(m, rpc, name, error, error_bytes);
    if (status != MR_OK) {
        model_free(m);
        return status;
    }
    pthread_mutex_lock(&models_lock);
    m->next = models;
    models = m;
    pthread_mutex_unlock(&models_lock);
    *out = m;
    return MR_OK;
}

void ps_model_release(void *model)
{
    struct ps_model *m = model, **at = &models;
    pthread_mutex_lock(&models_lock);
    bool last = --m->holders == 0;
    while (last && *at != m)
        at = &(*at)->next;
    if (last)
        *at = m->next;
    pthread_mutex_unlock(&models_lock);
    if (last)
        model_free(m);
}

struct ps_model *ps_model_find(const void *object)
{
    pthread_mutex_lock(&models_lock);
    struct ps_model *m = models;
    while (m != NULL && m != object)
        m = m->next;
    if (m != NULL)
        m->holders++;
    pthread_mutex_unlock(&models_lock);
    return m;
}

const struct ps_network *ps_model_network(const struct ps_model *m)
{
    return m->network;
}

struct mr_rref *ps_model_parameter(const struct ps_model *m)
{
    return m->parameter;
}

/* ---- forward passes ---- */

void ps_forward_pass_destroy(void *forward_pass)
{
    struct ps_forward_pass *p = forward_pass;
    if (p == NULL)
        return;
    for (uint32_t i = 0; i < p->part_count; i++)
        room_give(p->model, p->parts[i].room);
    ps_model_release(p->model);
    free(p);
}

/* Parts of a batch, as even as can be, each with a room. NULL: no memory. */
static struct ps_forward_pass *forward_pass_create(struct ps_model *m, uint32_t batch)
{
    uint32_t count = batch / PART_SAMPLES < m->parts ? batch / PART_SAMPLES : m->parts;
    count = count == 0 ? 1 : count;
    struct ps_forward_pass *p = calloc(1, sizeof(*p) + count * sizeof(p->parts[0]));
    if (p == NULL || ps_model_find(m) == NULL) {
        free(p);
        return NULL;
    }
    p->model = m;
    p->batch = batch;
    p->part_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct part *part = &p->parts[i];
        part->model = m;
        part->first = (uint32_t)((uint64_t)batch * i / count);
        part->count = (uint32_t)((uint64_t)batch * (i + 1) / count) - part->first;
        part->room = room_take(m);
        if (part->room == NULL) {
            ps_forward_pass_destroy(p);
            return NULL;
        }
    }
    return p;
}

static enum mr_status run_parts(struct ps_forward_pass *p, ps_thread_pool_part run)
{
    enum mr_status status = MR_OK;
    ps_thread_pool_run(p->model->pool, run, p, p->part_count);
    for (uint32_t i = 0; i < p->part_count && status == MR_OK; i++)
        status = p->parts[i].status;
    return status;
}

static void run_forward(void *forward_pass, uint32_t index)
{
    struct part *part = &((struct ps_forward_pass *)forward_pass)->parts[index];
    part->status = ps_network_forward(part->model->network, part->version, &part->how, part->in, part->count,
                                      part->room->saved, part->out);
}

static enum mr_status forward(struct ps_model *m, const struct ps_forward *how, const float *input,
                              uint32_t batch, float *output, struct ps_forward_pass **out)
{
    const size_t in_floats = ps_shape_floats(ps_network_input(m->network));
    const size_t out_floats = ps_shape_floats(ps_network_output(m->network));
    struct mr_parameter_version *version;
    struct ps_forward_pass *p = forward_pass_create(m, batch);
    if (p == NULL)
        return MR_NO_MEMORY;
    enum mr_status status = mr_parameter_read(m->parameter, &version);
    if (status == MR_OK) {
        for (uint32_t i = 0; i < p->part_count; i++) {
            struct part *part = &p->parts[i];
            part->version = version;
            part->how = *how;
            part->how.step = how->step * PS_MODEL_PARTS_MAX + i; /* each part drops elements of its own */
            part->in = input + part->first * in_floats;
            part->out = output + part->first * out_floats;
        }
        status = run_parts(p, run_forward);
        mr_parameter_done(version); /* the rooms hold it */
    }
    if (status != MR_OK) {
        ps_forward_pass_destroy(p);
        return status;
    }
    *out = p;
    return MR_OK;
}

enum mr_status ps_model_evaluate(struct ps_model *m, const float *input, uint32_t batch, float *output)
{
    struct ps_forward_pass *p;
    enum mr_status status = forward(m, &(struct ps_forward){.training = false}, input, batch, output, &p);
    if (status == MR_OK)
        ps_forward_pass_destroy(p);
    return status;
}

enum mr_status ps_model_forward(struct ps_model *m, uint64_t step, const float *input, uint32_t batch,
                                float *output, struct ps_forward_pass **out)
{
    const struct ps_forward how = {.training = true, .seed = m->seed, .step = step};
    return forward(m, &how, input, batch, output, out);
}

static void run_backward(void *forward_pass, uint32_t index)
{
    struct part *part = &((struct ps_forward_pass *)forward_pass)->parts[index];
    part->status = ps_network_backward(part->model->network, part->room->saved, part->in, part->out,
                                       part->room->gradients);
}

static enum mr_status gradient_rooms(struct ps_forward_pass *p)
{
    const size_t floats = ps_network_parameter_floats(p->model->network);
    for (uint32_t i = 0; i < p->part_count; i++) {
        struct room *room = p->parts[i].room;
        if (room->gradients == NULL)
            room->gradients = aligned_alloc(ALIGN, (floats * sizeof(float) / ALIGN + 1) * ALIGN);
        if (room->gradients == NULL)
            return MR_NO_MEMORY;
    }
    return MR_OK;
}

/* One slice of the parameter: the gradients of the other parts are added to the first's, in order. */
static void add_up(void *forward_pass, uint32_t index)
{
    struct ps_forward_pass *p = forward_pass;
    const uint64_t floats = ps_network_parameter_floats(p->model->network), count = p->part_count * SLICES;
    const uint64_t first = floats * index / count, end = floats * (index + 1) / count;
    float *sum = p->parts[0].room->gradients;
    for (uint32_t i = 1; i < p->part_count; i++) {
        const float *more = p->parts[i].room->gradients;
        for (uint64_t f = first; f < end; f++)
            sum[f] += more[f];
    }
}

enum mr_status ps_model_backward(struct ps_forward_pass *p, const float *output_gradient,
                                 float *input_gradient, ps_model_add add, void *user)
{
    const struct ps_network *network = p->model->network;
    enum mr_status status = gradient_rooms(p);
    if (status != MR_OK)
        return status;
    for (uint32_t i = 0; i < p->part_count; i++) {
        struct part *part = &p->parts[i];
        part->in = output_gradient + part->first * ps_shape_floats(ps_network_output(network));
        part->out = input_gradient == NULL
                        ? NULL
                        : input_gradient + part->first * ps_shape_floats(ps_network_input(network));
    }
    status = run_parts(p, run_backward);
    if (status != MR_OK)
        return status;
    if (p->part_count > 1)
        ps_thread_pool_run(p->model->pool, add_up, p, p->part_count * SLICES);
    struct mr_tensor gradient = ps_parameters_tensor(network, p->parts[0].room->gradients);
    return add(user, p->model->parameter, &gradient);
}
