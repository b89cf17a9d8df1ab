/* The users' side: holds of others' values, and what is passed on. */
#include <assert.h>
#include <stdlib.h>

#include "dataplane/rpc/rref/references_internal.h"

static struct mr_reference *hold_add(struct mr_references *refs, const struct mr_reference_ticket *ticket,
                                     uint32_t parent)
{
    struct mr_reference *hold = mr_references_alloc(refs, sizeof(*hold));
    if (hold == NULL)
        return NULL;
    hold->by_fork.id = ticket->fork;
    hold->id = ticket->reference;
    hold->owner = ticket->owner;
    hold->parent = parent;
    hold->count = 1;
    mr_list_init(&hold->waiters);
    mr_id_map_put(&refs->holds, &hold->by_fork);
    return hold;
}

static struct mr_reference *hold_get(const struct mr_references *refs, uint64_t fork)
{
    struct mr_id_node *node = mr_id_map_get(&refs->holds, fork);
    return node == NULL ? NULL : MR_CONTAINER(node, struct mr_reference, by_fork);
}

/* The first rule: not before it is confirmed, and all that was passed on is accepted. */
static void delete_if_done(struct mr_references *refs, struct mr_reference *hold)
{
    if (hold->count > 0 || !hold->confirmed || hold->children > 0)
        return;
    if (hold->status == MR_OK)
        mr_references_send(refs, hold->owner, MR_REFERENCE_DELETED, 0, hold->id, hold->by_fork.id);
    mr_id_map_remove(hold->status == MR_OK ? &refs->holds : &refs->lost, &hold->by_fork);
    free(hold);
}

static struct mr_child *child_get(const struct mr_references *refs, uint64_t fork)
{
    struct mr_id_node *node = mr_id_map_get(&refs->children, fork);
    return node == NULL ? NULL : MR_CONTAINER(node, struct mr_child, by_fork);
}

static void child_remove(struct mr_references *refs, struct mr_child *child)
{
    struct mr_reference *parent = child->parent;
    mr_id_map_remove(&refs->children, &child->by_fork);
    free(child);
    parent->children--;
    delete_if_done(refs, parent);
}

/* ---- making, passing ---- */

enum mr_status mr_references_remote(struct mr_references *refs, const struct mr_reference_ticket *ticket,
                                    struct mr_reference **out)
{
    assert(ticket->owner < refs->config.world_size && ticket->owner != refs->config.rank);
    if (refs->peers[ticket->owner].dead)
        return MR_WORKER_DIED;
    struct mr_reference *hold = hold_add(refs, ticket, refs->config.rank);
    if (hold == NULL)
        return MR_NO_MEMORY;
    *out = hold;
    return MR_OK;
}

static void hold_fail(struct mr_references *refs, struct mr_reference *hold, enum mr_status status)
{
    mr_id_map_remove(&refs->holds, &hold->by_fork);
    mr_id_map_put(&refs->lost, &hold->by_fork);
    hold->status = status;
    hold->confirmed = true;
    mr_references_wake(refs, &hold->waiters, status, NULL);
}

void mr_references_remote_failed(struct mr_references *refs, struct mr_reference *handle,
                                 enum mr_status status)
{
    assert(status != MR_OK);
    if (handle->status != MR_OK || handle->confirmed) /* its owner died meanwhile, or it did leave */
        return;
    hold_fail(refs, handle, status);
    delete_if_done(refs, handle);
    mr_references_run_due(refs);
}

void mr_references_release(struct mr_references *refs, struct mr_reference *handle)
{
    assert(handle->count > 0);
    handle->count--;
    if (refs->destroying)
        return;
    if (handle->owned != NULL)
        mr_owned_handle_released(refs, handle->owned);
    else
        delete_if_done(refs, handle);
    mr_references_run_due(refs);
}

enum mr_status mr_references_pass(struct mr_references *refs, struct mr_reference *handle, uint32_t to,
                                  struct mr_reference_ticket *ticket)
{
    assert(to < refs->config.world_size && handle->count > 0);
    if (refs->peers[to].dead)
        return MR_WORKER_DIED;
    if (handle->status != MR_OK)
        return handle->status;
    struct mr_reference_ticket made = {handle->owner, handle->id, mr_references_new_id(refs)};
    if (handle->owned != NULL) {
        if (mr_fork_add(refs, handle->owned, made.fork, to) == NULL)
            return MR_NO_MEMORY;
    } else {
        struct mr_child *child = calloc(1, sizeof(*child));
        if (child == NULL)
            return MR_NO_MEMORY;
        child->by_fork.id = made.fork;
        child->parent = handle;
        child->to = to;
        mr_id_map_put(&refs->children, &child->by_fork);
        handle->children++;
    }
    *ticket = made;
    return MR_OK;
}

void mr_references_unpass(struct mr_references *refs, const struct mr_reference_ticket *ticket)
{
    struct mr_id_node *node = mr_id_map_get(&refs->forks, ticket->fork);
    struct mr_child *child = child_get(refs, ticket->fork);
    if (node != NULL)
        mr_fork_remove(refs, MR_CONTAINER(node, struct mr_fork, by_fork));
    else if (child != NULL)
        child_remove(refs, child);
    mr_references_run_due(refs);
}

/* ---- taking ---- */

static enum mr_status take_own(struct mr_references *refs, uint32_t from,
                               const struct mr_reference_ticket *ticket, struct mr_reference **out)
{
    struct mr_owned *owned = mr_owned_find_or_expect(refs, ticket->reference);
    if (owned == NULL)
        return MR_NO_MEMORY;
    owned->handle.count++;
    struct mr_id_node *node = mr_id_map_get(&refs->forks, ticket->fork);
    if (from != refs->config.rank)
        mr_references_send(refs, from, MR_REFERENCE_ACCEPTED, 0, ticket->reference, ticket->fork);
    else if (node != NULL)
        mr_fork_remove(refs, MR_CONTAINER(node, struct mr_fork, by_fork));
    *out = &owned->handle;
    return MR_OK;
}

enum mr_status mr_references_take(struct mr_references *refs, uint32_t from,
                                  const struct mr_reference_ticket *ticket, struct mr_reference **out)
{
    uint32_t world_size = refs->config.world_size;
    if (from >= world_size || ticket->owner >= world_size || ticket->fork == 0 ||
        ticket->reference >> MR_REFERENCE_RANK_SHIFT >= world_size)
        return MR_BAD_MESSAGE;
    if (refs->peers[from].dead)
        return MR_WORKER_DIED;
    if (ticket->owner == refs->config.rank)
        return take_own(refs, from, ticket, out);
    struct mr_reference *hold = hold_get(refs, ticket->fork);
    if (hold != NULL) { /* it came again */
        hold->count++;
        *out = hold;
        return MR_OK;
    }
    hold = hold_add(refs, ticket, from);
    if (hold == NULL)
        return MR_NO_MEMORY;
    *out = hold;
    if (refs->peers[ticket->owner].dead) {
        hold_fail(refs, hold, MR_WORKER_DIED);
    } else if (from == ticket->owner) {
        hold->confirmed = true;
    } else {
        mr_references_send(refs, ticket->owner, MR_REFERENCE_FORK, refs->config.rank, ticket->reference,
                           ticket->fork);
    }
    return MR_OK;
}

void mr_references_wait_confirmed(struct mr_references *refs, struct mr_reference *handle,
                                  struct mr_reference_waiter *waiter)
{
    mr_references_wait(&handle->waiters, waiter);
    if (handle->confirmed)
        mr_references_wake(refs, &handle->waiters, handle->status, NULL);
    mr_references_run_due(refs);
}

/* ---- messages ---- */

static void confirm(struct mr_references *refs, struct mr_reference *hold)
{
    uint32_t parent = hold->parent, owner = hold->owner;
    if (hold->confirmed)
        return;
    hold->confirmed = true;
    mr_references_wake(refs, &hold->waiters, MR_OK, NULL);
    if (parent == refs->config.rank) /* passed by us to ourselves, or made by us */
        mr_hold_on_accepted(refs, hold->by_fork.id);
    else
        mr_references_send(refs, parent, MR_REFERENCE_ACCEPTED, 0, hold->id, hold->by_fork.id);
    mr_settle_confirmed(refs, owner, parent);
    delete_if_done(refs, hold);
}

void mr_hold_on_confirmed(struct mr_references *refs, uint32_t from, uint64_t reference, uint64_t fork)
{
    struct mr_reference *hold = hold_get(refs, fork);
    struct mr_child *child = child_get(refs, fork);
    if (hold != NULL) {
        if (hold->owner == from)
            confirm(refs, hold);
    } else if (child != NULL) { /* one that died */
        if (child->parent->owner == from)
            child_remove(refs, child);
    } else { /* we have it no longer, and the owner took it for new */
        mr_references_send(refs, from, MR_REFERENCE_DELETED, 0, reference, fork);
    }
}

void mr_hold_on_accepted(struct mr_references *refs, uint64_t fork)
{
    struct mr_child *child = child_get(refs, fork);
    if (child != NULL)
        child_remove(refs, child);
}

/* ---- deaths ---- */

void mr_hold_owner_died(struct mr_references *refs, uint32_t rank)
{
    struct mr_id_node *next;
    for (struct mr_id_node *node = mr_id_map_next(&refs->children, NULL); node != NULL; node = next) {
        struct mr_child *child = MR_CONTAINER(node, struct mr_child, by_fork);
        next = mr_id_map_next(&refs->children, node);
        if (child->parent->owner != rank)
            continue;
        mr_id_map_remove(&refs->children, node);
        child->parent->children--;
        free(child);
    }
    for (struct mr_id_node *node = mr_id_map_next(&refs->holds, NULL); node != NULL; node = next) {
        struct mr_reference *hold = MR_CONTAINER(node, struct mr_reference, by_fork);
        next = mr_id_map_next(&refs->holds, node);
        if (hold->owner != rank)
            continue;
        hold_fail(refs, hold, MR_WORKER_DIED);
        delete_if_done(refs, hold);
    }
}

/* Removing children may delete their parents, but no other child. */
void mr_hold_child_died(struct mr_references *refs, uint32_t rank)
{
    for (struct mr_id_node *node = mr_id_map_next(&refs->children, NULL); node != NULL;
         node = mr_id_map_next(&refs->children, node)) {
        const struct mr_child *child = MR_CONTAINER(node, struct mr_child, by_fork);
        if (child->to == rank)
            mr_references_send(refs, child->parent->owner, MR_REFERENCE_FORK, rank, child->parent->id,
                               node->id);
    }
}

void mr_hold_stop_all(struct mr_references *refs)
{
    for (struct mr_id_node *node = mr_id_map_next(&refs->holds, NULL); node != NULL;
         node = mr_id_map_next(&refs->holds, node))
        mr_references_wake(refs, &MR_CONTAINER(node, struct mr_reference, by_fork)->waiters, MR_SHUTTING_DOWN,
                           NULL);
}
