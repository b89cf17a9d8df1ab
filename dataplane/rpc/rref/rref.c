/* Handles: makes, holds, releases, passes and receives them. */
#include "dataplane/rpc/rref/rref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "dataplane/rpc/rref/rref_internal.h"

#define RETRY_US 1000u

/* ---- handles ---- */

static void set_up(struct mr_rref *r, struct mr_rrefs *all, uint32_t owner, uint64_t id, uint64_t fork)
{
    memset(r, 0, sizeof(*r));
    r->all = all;
    r->owner = owner;
    r->id = id;
    r->fork = fork;
    atomic_store(&r->holders, 1);
    atomic_fetch_add(&all->alive, 1);
    mr_agent_hold(all->agent);
}

struct mr_rref *mr_rref_new(struct mr_rrefs *all, uint32_t owner, uint64_t id, uint64_t fork)
{
    struct mr_rref *r = malloc(sizeof(*r));
    if (r != NULL)
        set_up(r, all, owner, id, fork);
    return r;
}

#define PIN ((uint64_t)1 << 32)

static bool is_released(uint64_t holders)
{
    return (uint32_t)holders == 0;
}

static bool add_holder(struct mr_rref *r, uint64_t one, const char *caller)
{
    if (r == NULL) {
        mr_rpc_error_line("%s: the reference is NULL", caller);
        return false;
    }
    uint64_t holders = atomic_load(&r->holders);

    do {
        if (is_released(holders)) {
            mr_rpc_error_line("%s: this reference was released before; mr_rref_retain() keeps one", caller);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&r->holders, &holders, holders + one));
    return true;
}

bool mr_rref_pin(struct mr_rref *r, const char *caller)
{
    return add_holder(r, PIN, caller);
}

/* Replaces the handle that was released first. */
static void keep_released(struct mr_rrefs *all, struct mr_rref *r)
{
    struct mr_rref **place = &all->released[all->released_at++ % MR_RREF_RELEASED_KEPT];
    free(*place);
    *place = r;
}

static void handle_free(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_rref *r = MR_CONTAINER(work, struct mr_rref, releasing);
    struct mr_kept *kept = atomic_exchange(&r->kept, NULL);
    if (r->handle != NULL && r->all->refs != NULL) /* the state machine frees its handles at its end */
        mr_references_release(r->all->refs, r->handle);
    else if (r->handle == NULL && r->has_kept)
        mr_kept_free(kept);
    r->handle = NULL;
    r->has_kept = false;
    keep_released(r->all, r);
    mr_agent_put(agent);
}

static void last_is_gone(struct mr_rref *r)
{
    struct mr_rrefs *all = r->all;
    atomic_fetch_sub(&all->alive, 1);
    r->releasing.run = handle_free;
    mr_agent_submit(all->agent, &r->releasing);
}

void mr_rref_unpin(struct mr_rref *r)
{
    if (atomic_fetch_sub(&r->holders, PIN) == PIN)
        last_is_gone(r);
}

void mr_rref_retain(struct mr_rref *r)
{
    (void)add_holder(r, 1, "mr_rref_retain");
}

void mr_rref_release(struct mr_rref *r)
{
    if (r == NULL || mr_agent_is_inherited(r->all->agent))
        return;
    uint64_t holders = atomic_load(&r->holders);

    do {
        if (is_released(holders)) {
            mr_rpc_error_line("mr_rref_release: this reference was released before");
            return;
        }
    } while (!atomic_compare_exchange_weak(&r->holders, &holders, holders - 1));
    if (holders == 1)
        last_is_gone(r);
}

uint32_t mr_rref_owner(const struct mr_rref *r)
{
    return r->owner;
}

bool mr_rref_is_owner(const struct mr_rref *r)
{
    return r->owner == r->all->agent->config.rank;
}

bool mr_rref_is_over(const struct mr_rref *r, const char *caller)
{
    if (!atomic_load(&r->all->ending))
        return false;
    mr_rpc_error_line("%s: the reference's worker has been destroyed: it can only be released", caller);
    return true;
}

uint64_t mr_rref_id(const struct mr_rref *r)
{
    return r->id;
}

/* ---- inside ---- */

static enum mr_status make_own(struct mr_rref *r)
{
    struct mr_kept *kept = r->has_kept ? atomic_load(&r->kept) : NULL;
    r->handle = mr_references_own(r->all->refs, r->id, kept);
    if (r->handle == NULL)
        return mr_rpc_error(MR_NO_MEMORY, "no memory for a reference");
    r->has_kept = false;
    return MR_OK;
}

enum mr_status mr_rref_make(struct mr_rref *r)
{
    struct mr_reference_ticket ticket = {.owner = r->owner, .reference = r->id, .fork = r->fork};
    if (r->handle != NULL)
        return MR_OK;
    if (mr_rref_is_owner(r))
        return make_own(r);
    if (r->status == MR_OK)
        r->status = mr_references_remote(r->all->refs, &ticket, &r->handle);
    if (r->status == MR_OK)
        return MR_OK;
    return mr_rpc_error(r->status, "the call that was to make the value never left: %s",
                        mr_status_text(r->status));
}

static enum mr_status pass_out(void *self, struct mr_rref *r, uint32_t to, uint64_t words[MR_RREF_WORDS])
{
    struct mr_rrefs *all = self;
    struct mr_reference_ticket ticket;
    enum mr_status status = mr_rref_make(r);
    if (status != MR_OK)
        return status;
    status = mr_references_pass(all->refs, r->handle, to, &ticket);
    if (status == MR_WORKER_DIED) {
        char text[MR_MEMBER_TEXT_BYTES];
        mr_member_text(all->agent, r->handle->status == MR_OK ? to : r->owner, text);
        return mr_rpc_error(status, "a reference cannot be passed on: %s died", text);
    }
    if (status != MR_OK)
        return mr_rpc_error(status, "a reference cannot be passed on: %s", mr_status_text(status));
    words[0] = ticket.owner;
    words[1] = ticket.reference;
    words[2] = ticket.fork;
    return MR_OK;
}

static void unpass(void *self, const uint64_t words[MR_RREF_WORDS])
{
    struct mr_rrefs *all = self;
    struct mr_reference_ticket ticket = {
        .owner = (uint32_t)words[0], .reference = words[1], .fork = words[2]};
    mr_references_unpass(all->refs, &ticket);
}

static struct mr_rref *new_inside(struct mr_rrefs *all, const struct mr_reference *handle)
{
    struct mr_rref *r = malloc(sizeof(*r));
    if (r == NULL) {
        r = all->spares;
        if (r == NULL)
            return NULL;
        all->spares = r->next_spare;
        all->spare_count--;
    }
    set_up(r, all, handle->owner, handle->id, 0);
    return r;
}

static enum mr_status take_in(void *self, uint32_t from, const uint64_t words[MR_RREF_WORDS],
                              struct mr_rref **out)
{
    struct mr_rrefs *all = self;
    struct mr_reference_ticket ticket = {.owner = words[0] > UINT32_MAX ? UINT32_MAX : (uint32_t)words[0],
                                         .reference = words[1],
                                         .fork = words[2]};
    struct mr_reference *handle;
    enum mr_status status = mr_references_take(all->refs, from, &ticket, &handle);
    if (status != MR_OK)
        return status;
    struct mr_rref *r = new_inside(all, handle);

    if (r == NULL) {
        mr_references_release(all->refs, handle);
        return MR_NO_MEMORY;
    }
    r->handle = handle;
    atomic_store(&r->kept, mr_references_value(handle));
    *out = r;
    return MR_OK;
}

bool mr_rrefs_reserve(struct mr_rrefs *all)
{
    while (all->spare_count < MR_RPC_ARGUMENTS_MAX) {
        struct mr_rref *r = malloc(sizeof(*r));
        if (r == NULL)
            return false;
        r->next_spare = all->spares;
        all->spares = r;
        all->spare_count++;
    }
    return mr_references_reserve(all->refs, MR_RPC_ARGUMENTS_MAX + 1);
}

const char *mr_rref_check(const struct mr_rpc *agent, const struct mr_rref *r)
{
    if (r == NULL)
        return "is a reference that is NULL";
    if (is_released(atomic_load(&r->holders)))
        return "is a reference that was released before";
    return r->all == agent->rrefs ? NULL : "is a reference of another worker's";
}

void mr_rrefs_retain(const struct mr_value *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (values[i].kind == MR_VALUE_RREF)
            mr_rref_retain(values[i].rref);
}

void mr_rrefs_release(const struct mr_value *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (values[i].kind == MR_VALUE_RREF)
            mr_rref_release(values[i].rref);
}

void mr_rrefs_died(struct mr_rpc *agent, uint32_t rank)
{
    if (agent->rrefs == NULL)
        return;
    mr_outbox_drop(agent->rrefs, rank);
    mr_references_died(agent->rrefs->refs, rank);
}

/* ---- values that calls make ---- */

void mr_remote_never(struct mr_rref *r, enum mr_status status)
{
    if (r->handle != NULL && !mr_rref_is_owner(r))
        mr_references_remote_failed(r->all->refs, r->handle, status);
    else if (r->status == MR_OK)
        r->status = status;
}

enum mr_status mr_remote_came(struct mr_rpc *agent, uint32_t from, uint64_t reference, uint64_t fork)
{
    struct mr_reference_ticket ticket = {.owner = agent->config.rank, .reference = reference, .fork = fork};
    bool run = false;
    enum mr_status status = mr_references_remote_arrived(agent->rrefs->refs, from, &ticket, &run);
    if (status == MR_OK && !run) /* such a call comes only once */
        status = MR_BAD_MESSAGE;
    return status;
}

/* ---- leaving ---- */

struct line {
    char *text;
    size_t bytes, used;
};

static void add_line(struct line *line, const char *verb, uint32_t count, const char *of, const char *who)
{
    if (count == 0 || line->used + 1 >= line->bytes)
        return;
    int n = snprintf(line->text + line->used, line->bytes - line->used, "%s%s %u value%s %s %s",
                     line->used == 0 ? "" : ", ", verb, count, mr_plural(count), of, who);

    line->used += n < 0 ? 0 : (size_t)n;
}

bool mr_rrefs_held(const struct mr_rrefs *all, char *what, size_t bytes) // NOLINT: written to by add_line()
{
    struct line line = {.text = what, .bytes = bytes};
    if (mr_references_may_leave(all->refs))
        return false;
    if (what == NULL)
        return true;
    for (uint32_t rank = 0; rank < all->agent->config.world_size; rank++) {
        char who[MR_MEMBER_TEXT_BYTES];
        mr_member_text(all->agent, rank, who);
        add_line(&line, "owns", mr_references_held_by(all->refs, rank), "held by", who);
        add_line(&line, "holds", mr_references_holds_of(all->refs, rank), "of", who);
    }
    return true;
}

void mr_rrefs_joined(struct mr_rrefs *all, uint32_t rank)
{
    if (all != NULL)
        mr_references_joined(all->refs, rank);
}

void mr_rrefs_count(const struct mr_rrefs *all, uint64_t *owned, uint64_t *holds)
{
    struct mr_references_counts counts = {.values = 0};
    if (all != NULL)
        mr_references_counts(all->refs, &counts);
    *owned = counts.values;
    *holds = counts.holds;
}

uint64_t mr_rrefs_tick(struct mr_rrefs *all, uint64_t now_us)
{
    if (all == NULL || !all->retries)
        return UINT64_MAX;
    if (now_us < all->retry_us)
        return all->retry_us;
    all->retries = false;
    mr_outbox_flush(all);
    all->retry_us = now_us + RETRY_US;
    return all->retries ? all->retry_us : UINT64_MAX;
}

/* ---- made and destroyed ---- */

static void free_value(void *self, void *value)
{
    mr_kept_free(value);
}

enum mr_status mr_rrefs_create(struct mr_rpc *agent, struct mr_rrefs **out)
{
    uint32_t world_size = agent->config.world_size;
    struct mr_rrefs *all = calloc(1, sizeof(*all));
    if (all == NULL)
        return MR_NO_MEMORY;
    *out = all;
    all->agent = agent;
    all->no_memory = (struct mr_kept){
        .all = all, .status = MR_NO_MEMORY, .error = "its owner had no memory for the value"};
    all->outboxes = calloc(world_size, sizeof(*all->outboxes));
    if (all->outboxes == NULL)
        return MR_NO_MEMORY;
    for (uint32_t i = 0; i < world_size; i++)
        all->outboxes[i] = (struct mr_outbox){.rank = i, .all = all};

    struct mr_references_config config = {.rank = agent->config.rank,
                                          .world_size = world_size,
                                          .is_open = agent->config.is_open,
                                          .self = all,
                                          .send = mr_outbox_send,
                                          .free_value = free_value};
    enum mr_status status = mr_references_create(&config, &all->refs);

    if (status != MR_OK)
        return status;
    agent->hooks =
        (struct mr_value_hooks){.self = all, .pass_out = pass_out, .unpass = unpass, .take_in = take_in};
    return mr_rrefs_reserve(all) ? MR_OK : MR_NO_MEMORY;
}

void mr_rrefs_close(struct mr_rrefs *all)
{
    if (all != NULL && all->refs != NULL)
        mr_references_stop(all->refs);
}

void mr_rrefs_end(struct mr_rrefs *all)
{
    if (all == NULL)
        return;
    atomic_store(&all->ending, true);
    mr_kept_end_aborted(all);
    mr_references_destroy(all->refs);
    all->refs = NULL;
}

void mr_rrefs_free(struct mr_rrefs *all)
{
    if (all == NULL)
        return;
    for (uint32_t i = 0; i < MR_RREF_RELEASED_KEPT; i++)
        free(all->released[i]);
    while (all->spares != NULL) {
        struct mr_rref *r = all->spares;
        all->spares = r->next_spare;
        free(r);
    }
    for (uint32_t i = 0; all->outboxes != NULL && i < all->agent->config.world_size; i++)
        free(all->outboxes[i].words);
    free(all->outboxes);
    free(all);
}
