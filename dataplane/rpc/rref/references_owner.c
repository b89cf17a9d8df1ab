/* The owner's side: values, and others' forks of them. */
#include <assert.h>
#include <stdlib.h>

#include "dataplane/rpc/rref/references_internal.h"

static struct mr_owned *owned_add(struct mr_references *refs, uint64_t reference, enum mr_owned_state state)
{
    struct mr_owned *owned = mr_references_alloc(refs, sizeof(*owned));
    if (owned == NULL)
        return NULL;
    owned->by_id.id = reference;
    owned->state = state;
    owned->handle.id = reference;
    owned->handle.owner = owned->handle.parent = refs->config.rank;
    owned->handle.confirmed = true;
    owned->handle.owned = owned;
    mr_list_init(&owned->handle.waiters);
    mr_list_init(&owned->forks);
    mr_list_init(&owned->waiters);
    mr_id_map_put(&refs->owned, &owned->by_id);
    return owned;
}

static struct mr_owned *owned_get(const struct mr_references *refs, uint64_t reference)
{
    struct mr_id_node *node = mr_id_map_get(&refs->owned, reference);
    return node == NULL ? NULL : MR_CONTAINER(node, struct mr_owned, by_id);
}

static uint32_t maker_of(uint64_t reference)
{
    return (uint32_t)(reference >> MR_REFERENCE_RANK_SHIFT);
}

struct mr_owned *mr_owned_find_or_expect(struct mr_references *refs, uint64_t reference)
{
    struct mr_owned *owned = owned_get(refs, reference);
    uint32_t maker = maker_of(reference);
    if (owned != NULL)
        return owned;
    /* What we made ourselves and is not there has been freed. */
    bool lost = maker == refs->config.rank || refs->peers[maker].dead;
    return owned_add(refs, reference, lost ? MR_OWNED_LOST : MR_OWNED_EXPECTED);
}

static void free_if_unheld(struct mr_references *refs, struct mr_owned *owned)
{
    if (owned->handle.count > 0 || !mr_list_empty(&owned->forks))
        return;
    mr_references_wake(refs, &owned->waiters, MR_CANCELLED, NULL);
    mr_id_map_remove(&refs->owned, &owned->by_id);
    owned->next_freed = refs->freed;
    refs->freed = owned;
}

void mr_owned_handle_released(struct mr_references *refs, struct mr_owned *owned)
{
    free_if_unheld(refs, owned);
}

struct mr_fork *mr_fork_add(struct mr_references *refs, struct mr_owned *owned, uint64_t id, uint32_t holder)
{
    struct mr_fork *fork = mr_references_alloc(refs, sizeof(*fork));
    if (fork == NULL)
        return NULL;
    fork->by_fork.id = id;
    fork->owned = owned;
    fork->holder = holder;
    mr_list_append(&owned->forks, &fork->of_owned);
    mr_id_map_put(&refs->forks, &fork->by_fork);
    return fork;
}

void mr_fork_remove(struct mr_references *refs, struct mr_fork *fork)
{
    struct mr_owned *owned = fork->owned;
    mr_id_map_remove(&refs->forks, &fork->by_fork);
    mr_list_remove(&fork->of_owned);
    free(fork);
    free_if_unheld(refs, owned);
}

/* `holder` has this fork. *fresh: it was not known. What it is a fork of may not have been heard of. */
static enum mr_status learn_fork(struct mr_references *refs, uint64_t reference, uint64_t id, uint32_t holder,
                                 bool *fresh)
{
    struct mr_id_node *node = mr_id_map_get(&refs->forks, id);
    *fresh = node == NULL;
    if (node != NULL) {
        const struct mr_fork *fork = MR_CONTAINER(node, struct mr_fork, by_fork);
        return fork->owned->by_id.id == reference && fork->holder == holder ? MR_OK : MR_BAD_MESSAGE;
    }
    if (owned_get(refs, reference) == NULL && maker_of(reference) == refs->config.rank)
        return MR_OK; /* freed: a message that came again */
    struct mr_owned *owned = mr_owned_find_or_expect(refs, reference);
    if (owned == NULL)
        return MR_NO_MEMORY;
    if (mr_fork_add(refs, owned, id, holder) == NULL) {
        free_if_unheld(refs, owned);
        return MR_NO_MEMORY;
    }
    return MR_OK;
}

/* A confirmation that comes to somebody who has the fork no longer is answered by deleting it. So this does
 * no harm when it comes again, whenever that is. */
enum mr_status mr_owned_on_fork(struct mr_references *refs, uint32_t from,
                                const struct mr_reference_message *message)
{
    const struct mr_peer *holder = &refs->peers[message->rank];
    bool fresh;
    if (!holder->dead || holder->settle != MR_SETTLE_DONE) {
        enum mr_status status = learn_fork(refs, message->reference, message->fork, message->rank, &fresh);
        if (status != MR_OK)
            return status;
    }
    mr_references_send(refs, from, MR_REFERENCE_CONFIRMED, 0, message->reference, message->fork);
    if (holder->dead && holder->settle == MR_SETTLE_NONE)
        mr_settle_begin(refs);
    return MR_OK;
}

void mr_owned_on_deleted(struct mr_references *refs, uint32_t from, uint64_t id)
{
    struct mr_id_node *node = mr_id_map_get(&refs->forks, id);
    struct mr_fork *fork = node == NULL ? NULL : MR_CONTAINER(node, struct mr_fork, by_fork);
    /* A dead worker's forks are removed when it is settled; its parent, who reported one, deletes none. */
    if (fork != NULL && fork->holder == from)
        mr_fork_remove(refs, fork);
}

/* ---- values ---- */

struct mr_reference *mr_references_own(struct mr_references *refs, uint64_t reference, void *value)
{
    struct mr_owned *owned = owned_add(refs, reference, value == NULL ? MR_OWNED_RUNNING : MR_OWNED_READY);
    if (owned == NULL)
        return NULL;
    owned->value = value;
    owned->handle.count = 1;
    return &owned->handle;
}

/* A call of `from` came with this ticket, so that it has the fork. */
static enum mr_status learn_ticket(struct mr_references *refs, uint32_t from,
                                   const struct mr_reference_ticket *ticket, bool *fresh)
{
    if (from >= refs->config.world_size || from == refs->config.rank || ticket->owner != refs->config.rank ||
        ticket->fork == 0 || maker_of(ticket->reference) >= refs->config.world_size)
        return MR_BAD_MESSAGE;
    if (refs->peers[from].dead)
        return MR_WORKER_DIED;
    return learn_fork(refs, ticket->reference, ticket->fork, from, fresh);
}

enum mr_status mr_references_remote_arrived(struct mr_references *refs, uint32_t from,
                                            const struct mr_reference_ticket *ticket, bool *run)
{
    bool fresh;
    if (maker_of(ticket->reference) != from)
        return MR_BAD_MESSAGE;
    enum mr_status status = learn_ticket(refs, from, ticket, &fresh);
    if (status != MR_OK)
        return status;
    struct mr_owned *owned = owned_get(refs, ticket->reference);
    *run = owned->state == MR_OWNED_EXPECTED;
    if (*run)
        owned->state = MR_OWNED_RUNNING;
    mr_references_send(refs, from, MR_REFERENCE_CONFIRMED, 0, ticket->reference, ticket->fork);
    return MR_OK;
}

bool mr_references_fulfil(struct mr_references *refs, uint64_t reference, void *value)
{
    struct mr_owned *owned = owned_get(refs, reference);
    assert(value != NULL);
    if (owned == NULL || owned->state != MR_OWNED_RUNNING)
        return false;
    owned->state = MR_OWNED_READY;
    owned->value = value;
    mr_references_wake(refs, &owned->waiters, MR_OK, value);
    mr_references_run_due(refs);
    return true;
}

void *mr_references_value(const struct mr_reference *handle)
{
    return handle->owned == NULL ? NULL : handle->owned->value;
}

static void wait_value(struct mr_references *refs, struct mr_owned *owned, struct mr_reference_waiter *waiter)
{
    mr_references_wait(&owned->waiters, waiter);
    if (owned->state == MR_OWNED_READY)
        mr_references_wake(refs, &owned->waiters, MR_OK, owned->value);
    else if (owned->state == MR_OWNED_LOST)
        mr_references_wake(refs, &owned->waiters,
                           maker_of(owned->by_id.id) == refs->config.rank ? MR_CANCELLED : MR_WORKER_DIED,
                           NULL);
    mr_references_run_due(refs);
}

void mr_references_wait_value(struct mr_references *refs, struct mr_reference *handle,
                              struct mr_reference_waiter *waiter)
{
    wait_value(refs, handle->owned, waiter);
}

enum mr_status mr_references_fetch(struct mr_references *refs, uint32_t from,
                                   const struct mr_reference_ticket *ticket,
                                   struct mr_reference_waiter *waiter)
{
    bool fresh;
    enum mr_status status = learn_ticket(refs, from, ticket, &fresh);
    if (status != MR_OK)
        return status;
    struct mr_owned *owned = owned_get(refs, ticket->reference);
    if (owned == NULL) { /* freed: the request came again */
        struct mr_link alone;
        mr_list_init(&alone);
        mr_references_wait(&alone, waiter);
        mr_references_wake(refs, &alone, MR_CANCELLED, NULL);
        mr_references_run_due(refs);
        return MR_OK;
    }
    if (fresh)
        mr_references_send(refs, from, MR_REFERENCE_CONFIRMED, 0, ticket->reference, ticket->fork);
    wait_value(refs, owned, waiter);
    return MR_OK;
}

void mr_owned_creator_died(struct mr_references *refs, uint32_t rank)
{
    for (struct mr_id_node *node = mr_id_map_next(&refs->owned, NULL); node != NULL;
         node = mr_id_map_next(&refs->owned, node)) {
        struct mr_owned *owned = MR_CONTAINER(node, struct mr_owned, by_id);
        if (owned->state != MR_OWNED_EXPECTED || maker_of(node->id) != rank)
            continue;
        owned->state = MR_OWNED_LOST;
        mr_references_wake(refs, &owned->waiters, MR_WORKER_DIED, NULL);
    }
}

void mr_owned_stop_all(struct mr_references *refs)
{
    for (struct mr_id_node *node = mr_id_map_next(&refs->owned, NULL); node != NULL;
         node = mr_id_map_next(&refs->owned, node))
        mr_references_wake(refs, &MR_CONTAINER(node, struct mr_owned, by_id)->waiters, MR_SHUTTING_DOWN,
                           NULL);
}

void mr_owned_free_values(struct mr_references *refs)
{
    for (struct mr_id_node *node = mr_id_map_next(&refs->owned, NULL); node != NULL;
         node = mr_id_map_next(&refs->owned, node)) {
        struct mr_owned *owned = MR_CONTAINER(node, struct mr_owned, by_id);
        if (owned->value != NULL)
            refs->config.free_value(refs->config.self, owned->value);
    }
}
