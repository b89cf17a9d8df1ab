/* Values of this worker to which others may refer: keeps them, waits for them, frees them. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/named_parameters.h"
#include "dataplane/rpc/rref/rref_internal.h"

/* ---- kept ---- */

static void parameter_destroy(void *versions)
{
    mr_versions_release(versions);
}

/* NULL: no memory; the result stays the caller's. */
static struct mr_kept *kept_new(struct mr_rrefs *all, enum mr_status status, const char *error,
                                struct mr_rpc_result *result, void (*destroy)(void *object))
{
    size_t error_bytes = error == NULL ? 0 : strlen(error);
    struct mr_kept *kept = malloc(sizeof(*kept) + error_bytes + 1);
    if (kept == NULL)
        return NULL;
    char *text = (char *)(kept + 1);

    memcpy(text, error == NULL ? "" : error, error_bytes + 1);
    *kept =
        (struct mr_kept){.all = all, .result = result, .status = status, .error = text, .destroy = destroy};
    return kept;
}

static bool holds_object(const struct mr_kept *kept)
{
    return kept->result != NULL && kept->result->count != 0 &&
           kept->result->values[0].kind == MR_VALUE_OBJECT;
}

static bool is_parameter(const struct mr_kept *kept)
{
    return holds_object(kept) && kept->destroy == parameter_destroy;
}

bool mr_kept_is_object(const struct mr_kept *kept)
{
    return holds_object(kept) && !is_parameter(kept);
}

static void kept_end(struct mr_kept *kept)
{
    if (holds_object(kept) && kept->destroy != NULL)
        kept->destroy(kept->result->values[0].object);
    mr_rpc_result_free(kept->result);
    free(kept);
}

static void run_end(struct mr_job *job)
{
    kept_end(MR_CONTAINER(job, struct mr_kept, job));
}

void mr_kept_free(struct mr_kept *kept)
{
    struct mr_rrefs *all = kept == NULL ? NULL : kept->all;
    if (kept == NULL || kept == &all->no_memory)
        return;
    kept->is_free = true;
    if (kept->holds > 0)
        return;
    /* The program's function may take long, and may call others. */
    if (!holds_object(kept) || kept->destroy == NULL || atomic_load(&all->ending)) {
        kept_end(kept);
    } else if (all->agent->closing) { /* the executor's threads are about to end */
        kept->next = all->aborted;
        all->aborted = kept;
    } else {
        kept->job = (struct mr_job){.run = run_end};
        mr_executor_give_one(all->agent->executor, &kept->job);
    }
}

void mr_kept_hold(struct mr_kept *kept)
{
    kept->holds++;
}

void mr_kept_unhold(struct mr_kept *kept)
{
    if (--kept->holds == 0 && kept->is_free)
        mr_kept_free(kept);
}

void mr_kept_end_aborted(struct mr_rrefs *all)
{
    while (all->aborted != NULL) {
        struct mr_kept *kept = all->aborted;
        all->aborted = kept->next;
        kept_end(kept);
    }
}

bool mr_kept_read(const struct mr_kept *kept, bool waits, struct mr_kept_read *out)
{
    *out = (struct mr_kept_read){.values = kept->result->values, .count = kept->result->count};
    if (!is_parameter(kept))
        return true;
    struct mr_versions *versions = kept->result->values[0].object;

    out->version = waits ? mr_versions_hold(versions) : mr_versions_try_hold(versions);
    if (out->version == NULL)
        return false;
    out->tensor = mr_value_tensor(*mr_version_tensor(out->version));
    out->values = &out->tensor;
    return true;
}

void mr_kept_unread(struct mr_kept_read *read)
{
    mr_version_release(read->version);
}

struct mr_rpc_result *mr_kept_copy(struct mr_kept *kept)
{
    struct mr_rpc *agent = kept->all->agent;
    struct mr_kept_read read;
    (void)mr_kept_read(kept, true, &read);
    struct mr_rpc_result *copy = mr_result_copy(agent, read.values, read.count);

    if (copy != NULL)
        mr_rrefs_retain(copy->values, copy->count);
    mr_kept_unread(&read);
    return copy;
}

/* ---- made by the program ---- */

static enum mr_status refuse_value(struct mr_rpc *agent, const struct mr_value *value)
{
    if (value->kind == MR_VALUE_OBJECT)
        return MR_OK;
    if (mr_values_head_bytes(NULL, value, 1) == 0)
        return mr_rpc_error(MR_INVALID_ARGUMENT,
                            "mr_rref_create: there is no value: the kind is unknown, or its data is NULL");
    if (value->kind != MR_VALUE_RREF)
        return MR_OK;
    const char *why = mr_rref_check(agent, value->rref);

    return why == NULL ? MR_OK : mr_rpc_error(MR_INVALID_ARGUMENT, "mr_rref_create: the value %s", why);
}

static enum mr_status rref_value_create(struct mr_rpc *agent, const struct mr_value *value,
                                        void (*destroy)(void *), struct mr_rref **out)
{
    struct mr_rrefs *all = agent->rrefs;
    struct mr_rpc_result *result = mr_result_copy(agent, value, 1);
    struct mr_kept *kept = NULL;
    struct mr_rref *r = NULL;
    if (result != NULL)
        kept = kept_new(all, MR_OK, NULL, result, destroy);
    if (kept != NULL)
        r = mr_rref_new(all, agent->config.rank, mr_references_new_id(all->refs), 0);
    if (r == NULL) {
        if (result != NULL)
            result->count = 0; /* the value stays the caller's */
        mr_rpc_result_free(result);
        free(kept);
        return mr_rpc_error(MR_NO_MEMORY, "mr_rref_create: no memory for the value");
    }
    mr_rrefs_retain(value, 1);
    atomic_store(&r->kept, kept);
    r->has_kept = true;
    *out = r;
    return MR_OK;
}

enum mr_status mr_rref_create(struct mr_rpc *agent, struct mr_value value, void (*destroy)(void *),
                              struct mr_rref **rref)
{
    enum mr_status status = MR_OK;
    if (agent->rrefs == NULL)
        status = mr_rpc_error(MR_UNSUPPORTED, "mr_rref_create: this process is no worker of a world");
    else
        status = mr_agent_check_process(agent, "mr_rref_create");
    if (status == MR_OK)
        status = refuse_value(agent, &value);

    if (status == MR_OK)
        status = rref_value_create(agent, &value, destroy, rref);
    if (status != MR_OK && value.kind == MR_VALUE_OBJECT && destroy != NULL)
        destroy(value.object);
    return status;
}

enum mr_status mr_rref_create_from(struct mr_rpc *agent, const struct mr_value *value,
                                   void (*destroy)(void *), struct mr_rref **rref)
{
    return mr_rref_create(agent, *value, destroy, rref);
}

/* ---- made by a call ---- */

void mr_remote_ended(struct mr_rpc *agent, uint64_t reference, enum mr_status status, const char *error,
                     struct mr_rpc_result *result, void (*destroy)(void *object))
{
    struct mr_rrefs *all = agent->rrefs;
    struct mr_kept *kept = kept_new(all, status, error, result, destroy);
    if (kept == NULL) { /* at least the reason is kept */
        if (result != NULL && result->count != 0 && result->values[0].kind == MR_VALUE_OBJECT &&
            destroy != NULL)
            destroy(result->values[0].object);
        mr_rpc_result_free(result);
        kept = &all->no_memory;
    }
    if (!mr_references_fulfil(all->refs, reference, kept))
        mr_kept_free(kept);
}

/* ---- waiting ---- */

/* A thread's wait for a value, or for the owner's confirmation; on its stack. */
struct wait {
    struct mr_work work, stopping;
    struct mr_reference_waiter waiter;
    struct mr_rref *rref;
    bool for_value;
    bool waiting; /* inside: the state machine has the waiter, which has not run */
    enum mr_status status;
    char error[MR_RPC_ERROR_BYTES];
    _Atomic uint32_t done; /* the outcome is known */
    _Atomic uint32_t stopped;
};

static void wait_over(struct mr_reference_waiter *waiter, enum mr_status status, void *value)
{
    struct wait *w = MR_CONTAINER(waiter, struct wait, waiter);
    w->waiting = false;
    w->status = status;
    if (status == MR_OK && w->for_value)
        atomic_store(&w->rref->kept, value);
    (void)mr_agent_done(&w->done);
}

static void wait_inside(struct mr_rpc *agent, struct mr_work *work)
{
    struct wait *w = MR_CONTAINER(work, struct wait, work);
    struct mr_rref *r = w->rref;
    if (agent->closing)
        w->status = mr_rpc_error(MR_SHUTTING_DOWN, "this worker is being destroyed");
    else
        w->status = mr_rref_make(r);
    if (w->status != MR_OK) {
        memcpy(w->error, mr_rpc_last_error(), strnlen(mr_rpc_last_error(), sizeof(w->error) - 1) + 1);
        w->error[sizeof(w->error) - 1] = 0;
        (void)mr_agent_done(&w->done);
        return;
    }
    w->waiting = true;
    w->waiter.run = wait_over;
    if (w->for_value)
        mr_references_wait_value(r->all->refs, r->handle, &w->waiter);
    else
        mr_references_wait_confirmed(r->all->refs, r->handle, &w->waiter);
}

static void stop_inside(struct mr_rpc *agent, struct mr_work *work)
{
    struct wait *w = MR_CONTAINER(work, struct wait, stopping);
    if (w->waiting && mr_references_unwait(&w->waiter))
        w->status = MR_DEADLINE_EXCEEDED;
    (void)mr_agent_done(&w->stopped);
}

/* Not inside. The caller holds the rref. */
static enum mr_status wait_for(struct mr_rref *r, bool for_value, uint32_t timeout_ms, struct wait *w)
{
    struct mr_rpc *agent = r->all->agent;
    uint64_t deadline_us = mr_agent_deadline_us(agent, mr_agent_now(agent), timeout_ms);
    *w = (struct wait){.work = {.run = wait_inside}, .rref = r, .for_value = for_value};
    mr_agent_submit(agent, &w->work);
    if (!mr_agent_wait(agent, &w->done, deadline_us)) {
        w->stopping.run = stop_inside; /* it runs after the first work, which may not have run yet */
        mr_agent_submit(agent, &w->stopping);
        (void)mr_agent_wait(agent, &w->stopped, UINT64_MAX);
    }
    return w->status;
}

static enum mr_status rref_value_say(const struct mr_rref *r, const struct wait *w, const char *caller)
{
    char text[MR_MEMBER_TEXT_BYTES];
    mr_member_text(r->all->agent, r->owner, text);
    switch (w->status) {
    case MR_OK:
        return MR_OK;
    case MR_DEADLINE_EXCEEDED:
        return mr_rpc_error(w->status,
                            w->for_value ? "%s: the value did not come within the time-out"
                                         : "%s: the owner, %s, did not answer within the time-out",
                            caller, text);
    case MR_WORKER_DIED:
        return mr_rpc_error(w->status,
                            w->for_value ? "%s: the worker that was to have the value made died"
                                         : "%s: the owner, %s, died",
                            caller, text);
    default:
        return mr_rpc_error(w->status, "%s: %s", caller,
                            w->error[0] == 0 ? mr_status_text(w->status) : w->error);
    }
}

enum mr_status mr_rref_wait_kept(struct mr_rref *r, const char *caller, uint32_t timeout_ms,
                                 struct mr_kept **out)
{
    struct mr_kept *kept = atomic_load(&r->kept);
    enum mr_status status = mr_agent_check_process(r->all->agent, caller);
    struct wait w;
    if (status != MR_OK)
        return status;
    if (mr_rref_is_over(r, caller))
        return MR_SHUTTING_DOWN;
    if (kept == NULL) {
        (void)wait_for(r, true, timeout_ms, &w);
        status = rref_value_say(r, &w, caller);
        if (status != MR_OK)
            return status;
        kept = atomic_load(&r->kept);
    }
    if (kept->status != MR_OK)
        return mr_rpc_error(kept->status, "%s: %s", caller, kept->error);
    *out = kept;
    return MR_OK;
}

static const struct mr_value none = {.kind = MR_VALUE_NONE};

static const struct mr_value *value_of(const struct mr_kept *kept)
{
    return kept->result->count == 0 ? &none : &kept->result->values[0];
}

/* Returns the value, if this handle has seen it; values end with their worker. */
static const struct mr_kept *seen(struct mr_rref *r)
{
    return atomic_load(&r->all->ending) ? NULL : atomic_load(&r->kept);
}

const struct mr_value *mr_rref_value_now(struct mr_rref *r)
{
    const struct mr_kept *kept = seen(r);
    return kept == NULL || kept->status != MR_OK ? NULL : value_of(kept);
}

void *mr_rref_object(struct mr_rref *r, void (*destroy)(void *object))
{
    const struct mr_kept *kept = seen(r);
    if (kept == NULL || !holds_object(kept) || kept->destroy != destroy)
        return NULL;
    return kept->result->values[0].object;
}

enum mr_status mr_rref_local_value(struct mr_rref *r, uint32_t timeout_ms, const struct mr_value **value)
{
    struct mr_kept *kept = NULL;
    if (!mr_rref_pin(r, "mr_rref_local_value"))
        return MR_INVALID_ARGUMENT;
    enum mr_status status = MR_OK;

    if (!mr_rref_is_owner(r)) {
        char text[MR_MEMBER_TEXT_BYTES];
        mr_member_text(r->all->agent, r->owner, text);
        status = mr_rpc_error(MR_INVALID_ARGUMENT,
                              "mr_rref_local_value: the value is %s's; mr_rref_to_here() gets a copy", text);
    }
    if (status == MR_OK)
        status = mr_rref_wait_kept(r, "mr_rref_local_value", timeout_ms, &kept);
    if (status == MR_OK)
        *value = value_of(kept);
    mr_rref_unpin(r);
    return status;
}

enum mr_status mr_rref_confirm(struct mr_rref *r, uint32_t timeout_ms)
{
    enum mr_status status = MR_OK;
    struct wait w;
    if (!mr_rref_pin(r, "mr_rref_confirm"))
        return MR_INVALID_ARGUMENT;
    if (mr_rref_is_over(r, "mr_rref_confirm")) {
        status = MR_SHUTTING_DOWN;
    } else if (!mr_rref_is_owner(r)) {
        (void)wait_for(r, false, timeout_ms, &w);
        status = rref_value_say(r, &w, "mr_rref_confirm");
    }
    mr_rref_unpin(r);
    return status;
}

/* ---- parameters: references whose value is an f32 tensor in versions ---- */

struct mr_versions *mr_parameter_versions(struct mr_rref *parameter)
{
    return mr_rref_object(parameter, parameter_destroy);
}

static enum mr_status check_initial(const struct mr_tensor *initial, const char *caller)
{
    if (initial->dtype == MR_F32 && initial->bytes != 0 && initial->data != NULL)
        return MR_OK;
    return mr_rpc_error(MR_INVALID_ARGUMENT,
                        "%s: a parameter is an f32 tensor with at least one element, not %s of %llu bytes%s",
                        caller, mr_dtype_name(initial->dtype), (unsigned long long)initial->bytes,
                        initial->data == NULL ? " without data" : "");
}

enum mr_status mr_parameter_create(struct mr_rpc *rpc, const struct mr_tensor *initial,
                                   struct mr_rref **parameter)
{
    struct mr_versions *versions;
    enum mr_status status = check_initial(initial, "mr_parameter_create");
    if (status != MR_OK)
        return status;
    status = mr_versions_create(initial, &versions);

    if (status != MR_OK)
        return mr_rpc_error(status, "mr_parameter_create: no memory for %llu bytes",
                            (unsigned long long)initial->bytes);
    return mr_rref_create(rpc, (struct mr_value){.kind = MR_VALUE_OBJECT, .object = versions},
                          parameter_destroy, parameter);
}

/* Under agent->stepping: the reference to that parameter, of which there is one in a world. Takes the
 * versions' user. */
static enum mr_status named_rref(struct mr_rpc *rpc, struct mr_versions *versions, struct mr_rref **out)
{
    struct mr_rrefs *all = rpc->rrefs;
    for (uint32_t i = 0; all != NULL && i < all->named_count; i++) {
        if (all->named[i].versions == versions) {
            mr_versions_release(versions);
            *out = all->named[i].rref;
            mr_rref_retain(*out);
            return MR_OK;
        }
    }
    enum mr_status status = mr_rref_create(
        rpc, (struct mr_value){.kind = MR_VALUE_OBJECT, .object = versions}, parameter_destroy, out);
    if (status != MR_OK)
        return status;
    struct mr_named_rref *more = realloc(all->named, (all->named_count + 1) * sizeof(*more));
    if (more == NULL) {
        mr_rref_release(*out);
        return mr_rpc_error(MR_NO_MEMORY, "no memory for a reference");
    }
    all->named = more;
    all->named[all->named_count++] = (struct mr_named_rref){versions, *out};
    mr_rref_retain(*out);
    return MR_OK;
}

enum mr_status mr_parameter_open(struct mr_rpc *rpc, const char *name, const struct mr_tensor *initial,
                                 struct mr_rref **parameter)
{
    struct mr_versions *versions;
    char text[MR_NAMED_TEXT_BYTES];
    enum mr_status status = check_initial(initial, "mr_parameter_open");
    if (status != MR_OK)
        return status;
    if (!mr_named_is_name(name))
        return mr_rpc_error(
            MR_INVALID_ARGUMENT,
            "mr_parameter_open: \"%.80s\" is no name: names have 1 to %d of the characters A-Z "
            "a-z 0-9 _ . / : -",
            name, MR_NAME_BYTES - 1);
    pthread_mutex_lock(rpc->stepping);
    status = mr_named_open(rpc->parameters, name, initial, &versions, text);
    if (status != MR_OK)
        (void)mr_rpc_error(status, "mr_parameter_open: %s", text);
    else
        status = named_rref(rpc, versions, parameter);
    pthread_mutex_unlock(rpc->stepping);
    return status;
}

void mr_rrefs_release_named(struct mr_rrefs *all)
{
    if (all == NULL)
        return;
    pthread_mutex_lock(all->agent->stepping);
    struct mr_named_rref *named = all->named;
    uint32_t count = all->named_count;
    all->named = NULL;
    all->named_count = 0;
    pthread_mutex_unlock(all->agent->stepping);
    for (uint32_t i = 0; i < count; i++)
        mr_rref_release(named[i].rref);
    free(named);
}

enum mr_status mr_parameter_read(struct mr_rref *parameter, struct mr_parameter_version **version)
{
    enum mr_status status = MR_OK;
    if (!mr_rref_pin(parameter, "mr_parameter_read"))
        return MR_INVALID_ARGUMENT;
    struct mr_versions *versions = mr_parameter_versions(parameter);

    if (versions != NULL)
        *version = mr_versions_hold(versions);
    else if (mr_rref_is_over(parameter, "mr_parameter_read"))
        status = MR_SHUTTING_DOWN;
    else
        status =
            mr_rpc_error(MR_INVALID_ARGUMENT,
                         mr_rref_is_owner(parameter)
                             ? "mr_parameter_read: the value is no parameter; mr_parameter_create() makes one"
                             : "mr_parameter_read: the parameter is another worker's; mr_rref_to_here() "
                               "gets a copy");
    mr_rref_unpin(parameter);
    return status;
}

const struct mr_tensor *mr_parameter_tensor(const struct mr_parameter_version *version)
{
    return mr_version_tensor(version);
}

uint64_t mr_parameter_number(const struct mr_parameter_version *version)
{
    return mr_version_number(version);
}

void mr_parameter_done(struct mr_parameter_version *version)
{
    mr_version_release(version);
}
