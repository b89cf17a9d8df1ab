#include "ps/cluster/zookeeper_calls.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"

/* One request. Whoever comes last frees it: the caller, or the library, which answers all that is in flight
 * at the latest when the handle is closed. */
struct call {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_answered;
    bool is_abandoned;
    int error;
    struct Stat stat;
    char *value; /* of `bytes`; NULL: there is none */
    int bytes;
    struct String_vector names;
    zoo_op_t creates[PS_ZOOKEEPER_CREATES_MAX];
    zoo_op_result_t created[PS_ZOOKEEPER_CREATES_MAX];
};

static void call_free(struct call *c)
{
    (void)pthread_cond_destroy(&c->changed);
    (void)pthread_mutex_destroy(&c->lock);
    (void)deallocate_String_vector(&c->names);
    free(c->value);
    free(c);
}

static struct call *call_new(void)
{
    struct call *c = calloc(1, sizeof(*c));
    pthread_condattr_t monotonic;
    if (c == NULL)
        return NULL;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&c->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    return c;
}

/* ---- on the library's thread ---- */

static void call_answer(struct call *c, int error)
{
    pthread_mutex_lock(&c->lock);
    c->error = error;
    c->is_answered = true;
    const bool is_abandoned = c->is_abandoned;
    (void)pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (is_abandoned)
        call_free(c);
}

static void created(int error, const void *data)
{
    call_answer((struct call *)(uintptr_t)data, error);
}

static void stat_answered(int error, const struct Stat *stat, const void *data)
{
    struct call *c = (struct call *)(uintptr_t)data;
    if (error == ZOK && stat != NULL)
        c->stat = *stat;
    call_answer(c, error);
}

static void data_answered(int error, const char *value, int bytes, const struct Stat *stat, const void *data)
{
    struct call *c = (struct call *)(uintptr_t)data;
    c->bytes = -1;
    if (error == ZOK && value != NULL && bytes >= 0) {
        c->value = malloc((size_t)bytes + 1);
        c->bytes = bytes;
        if (c->value == NULL)
            error = ZSYSTEMERROR;
        else
            memcpy(c->value, value, (size_t)bytes);
    }
    if (error == ZOK && stat != NULL)
        c->stat = *stat;
    call_answer(c, error);
}

static void names_answered(int error, const struct String_vector *names, const void *data)
{
    struct call *c = (struct call *)(uintptr_t)data;
    if (error == ZOK && names != NULL && allocate_String_vector(&c->names, names->count) == 0)
        for (int32_t i = 0; i < names->count; i++)
            c->names.data[i] = strdup(names->data[i]);
    for (int32_t i = 0; i < c->names.count && error == ZOK; i++)
        error = c->names.data[i] != NULL ? ZOK : ZSYSTEMERROR;
    call_answer(c, error);
}

/* ---- on the caller's ---- */

/* A request that is to be sent: NULL, or *error says that none can be. */
static struct call *call_begin(const struct ps_zookeeper_link *l, int *error)
{
    *error = PS_ZOOKEEPER_HANGS;
    if (l->hangs)
        return NULL;
    *error = ZSYSTEMERROR;
    return call_new();
}

/* Waits for the answer. `sent` is the library's: what it has not taken it never answers. False: there is no
 * answer, *error says why, and the call is the library's or freed. */
static bool call_wait(struct ps_zookeeper_link *l, struct call *c, int sent, int *error)
{
    if (sent != ZOK) {
        *error = sent;
        call_free(c);
        return false;
    }
    const struct timespec end = mr_clock_after_us(l->limit_us);
    pthread_mutex_lock(&c->lock);
    while (!c->is_answered)
        if (pthread_cond_timedwait(&c->changed, &c->lock, &end) == ETIMEDOUT)
            break;
    const bool is_answered = c->is_answered;
    c->is_abandoned = !is_answered;
    *error = is_answered ? c->error : PS_ZOOKEEPER_HANGS;
    pthread_mutex_unlock(&c->lock);
    l->hangs |= !is_answered;
    return is_answered;
}

int ps_zookeeper_create(struct ps_zookeeper_link *l, const struct ps_zookeeper_new *znodes, uint32_t count)
{
    int error;
    struct call *c = call_begin(l, &error);
    if (c == NULL)
        return error;
    for (uint32_t i = 0; i < count; i++)
        zoo_create_op_init(&c->creates[i], znodes[i].path, znodes[i].value, (int)strlen(znodes[i].value),
                           znodes[i].acl, znodes[i].mode, NULL, 0);
    if (call_wait(l, c, zoo_amulti(l->handle, (int)count, c->creates, c->created, created, c), &error))
        call_free(c);
    return error;
}

int ps_zookeeper_set(struct ps_zookeeper_link *l, const char *path, const char *value, int version)
{
    int error;
    struct call *c = call_begin(l, &error);
    if (c != NULL &&
        call_wait(l, c, zoo_aset(l->handle, path, value, (int)strlen(value), version, stat_answered, c),
                  &error))
        call_free(c);
    return error;
}

int ps_zookeeper_get(struct ps_zookeeper_link *l, const char *path, watcher_fn watch, void *context,
                     char *buffer, int *bytes, struct Stat *stat)
{
    int error;
    struct call *c = call_begin(l, &error);
    if (c == NULL || !call_wait(l, c, zoo_awget(l->handle, path, watch, context, data_answered, c), &error))
        return error;
    if (error == ZOK) {
        *bytes = c->bytes < *bytes ? c->bytes : *bytes;
        if (*bytes > 0)
            memcpy(buffer, c->value, (size_t)*bytes);
        *stat = c->stat;
    }
    call_free(c);
    return error;
}

int ps_zookeeper_exists(struct ps_zookeeper_link *l, const char *path, watcher_fn watch, void *context,
                        struct Stat *stat)
{
    int error;
    struct call *c = call_begin(l, &error);
    if (c == NULL ||
        !call_wait(l, c, zoo_awexists(l->handle, path, watch, context, stat_answered, c), &error))
        return error;
    *stat = c->stat;
    call_free(c);
    return error;
}

int ps_zookeeper_children(struct ps_zookeeper_link *l, const char *path, watcher_fn watch, void *context,
                          struct String_vector *names)
{
    int error;
    struct call *c = call_begin(l, &error);
    if (c == NULL ||
        !call_wait(l, c, zoo_awget_children(l->handle, path, watch, context, names_answered, c), &error))
        return error;
    if (error == ZOK) {
        *names = c->names;
        c->names = (struct String_vector){0};
    }
    call_free(c);
    return error;
}
