#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/rpc/rref/rref_count_internal.h"

#define WORLD_MAX 65535u

/* ---- memory ---- */

union block {
    struct mr_spare spare;
    struct mr_owned owned;
    struct mr_fork fork;
    struct mr_reference hold;
};

#define BLOCKS_EACH 2u /* a value that was not heard of, and a fork of it */

bool mr_references_reserve(struct mr_references *refs, uint32_t count)
{
    while (refs->spare_count < count * BLOCKS_EACH) {
        union block *block = calloc(1, sizeof(*block));
        if (block == NULL)
            return false;
        struct mr_spare *spare = &block->spare;
        spare->next = refs->spares;
        refs->spares = spare;
        refs->spare_count++;
    }
    return true;
}

static void *block_new(struct mr_references *refs, size_t bytes)
{
    void *block = calloc(1, bytes);
    struct mr_spare *spare = refs->spares;
    if (block != NULL || spare == NULL)
        return block;
    assert(bytes <= sizeof(union block));
    refs->spares = spare->next;
    refs->spare_count--;
    memset(spare, 0, sizeof(union block));
    return spare;
}

/* ---- what the parts share ---- */

uint64_t mr_references_new_id(struct mr_references *refs)
{
    return (uint64_t)refs->config.rank << MR_REFERENCE_RANK_SHIFT |
           (atomic_fetch_add_explicit(&refs->counter, 1, memory_order_relaxed) + 1);
}

static uint32_t maker_of(uint64_t reference)
{
    return (uint32_t)(reference >> MR_REFERENCE_RANK_SHIFT);
}

static void send_message(struct mr_references *refs, uint32_t to, uint32_t kind, uint32_t rank,
                         uint64_t reference, uint64_t fork)
{
    struct mr_reference_message message = {kind, rank, reference, fork};
    assert(to != refs->config.rank);
    if (!refs->peers[to].dead)
        refs->config.send(refs->config.self, to, &message);
}

static bool bit(const struct mr_references *refs, const uint8_t *bits, uint32_t row, uint32_t column)
{
    size_t at = (size_t)row * refs->config.world_size + column;
    return (bits[at / 8] >> (at % 8) & 1) != 0;
}

static void set_bit(struct mr_references *refs, uint8_t *bits, uint32_t row, uint32_t column, bool value)
{
    size_t at = (size_t)row * refs->config.world_size + column;
    uint8_t mask = (uint8_t)(1u << (at % 8));
    bits[at / 8] = value ? (uint8_t)(bits[at / 8] | mask) : (uint8_t)(bits[at / 8] & ~mask);
}

static void wake_all(struct mr_references *refs, struct mr_link *waiters, enum mr_status status, void *value)
{
    for (struct mr_link *link = waiters->next; link != waiters; link = link->next) {
        struct mr_reference_waiter *waiter = MR_CONTAINER(link, struct mr_reference_waiter, link);
        waiter->status = status;
        waiter->value = value;
    }
    mr_list_splice(&refs->due, waiters);
}

bool mr_references_unwait(struct mr_reference_waiter *waiter)
{
    bool waits = !mr_list_empty(&waiter->link);
    mr_list_remove(&waiter->link);
    return waits;
}

/* Waiters run first, so that a value that they get is not freed before. */
static void run_due(struct mr_references *refs)
{
    if (refs->running)
        return;
    refs->running = true;
    for (;;) {
        if (!mr_list_empty(&refs->due)) {
            struct mr_reference_waiter *waiter =
                MR_CONTAINER(refs->due.next, struct mr_reference_waiter, link);
            mr_list_remove(&waiter->link);
            waiter->run(waiter, waiter->status, waiter->value);
        } else if (refs->freed != NULL) {
            struct mr_owned *owned = refs->freed;
            refs->freed = owned->next_freed;
            if (owned->value != NULL)
                refs->config.free_value(refs->config.self, owned->value);
            free(owned);
        } else {
            break;
        }
    }
    refs->running = false;
}

/* ---- the owner: values, and others' forks of them ---- */

static struct mr_owned *owned_add(struct mr_references *refs, uint64_t reference, enum mr_owned_state state)
{
    struct mr_owned *owned = block_new(refs, sizeof(*owned));
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

static struct mr_owned *find_or_expect(struct mr_references *refs, uint64_t reference)
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
    wake_all(refs, &owned->waiters, MR_CANCELLED, NULL);
    mr_id_map_remove(&refs->owned, &owned->by_id);
    owned->next_freed = refs->freed;
    refs->freed = owned;
}

static struct mr_fork *fork_get(const struct mr_references *refs, uint64_t id)
{
    struct mr_id_node *node = mr_id_map_get(&refs->forks, id);
    return node == NULL ? NULL : MR_CONTAINER(node, struct mr_fork, by_fork);
}

static struct mr_fork *fork_add(struct mr_references *refs, struct mr_owned *owned, uint64_t id,
                                uint32_t holder)
{
    struct mr_fork *fork = block_new(refs, sizeof(*fork));
    if (fork == NULL)
        return NULL;
    fork->by_fork.id = id;
    fork->owned = owned;
    fork->holder = holder;
    mr_list_append(&owned->forks, &fork->of_owned);
    mr_id_map_put(&refs->forks, &fork->by_fork);
    return fork;
}

static void fork_remove(struct mr_references *refs, struct mr_fork *fork)
{
    struct mr_owned *owned = fork->owned;
    mr_id_map_remove(&refs->forks, &fork->by_fork);
    mr_list_remove(&fork->of_owned);
    free(fork);
    free_if_unheld(refs, owned);
}

/* ---- the owner: workers that died keep their forks until all that they passed on is known ---- */

/* All who were asked have answered, about each: then no living worker has, or will get, a fork from one of
 * them that is not known here. */
static void finish_if_settled(struct mr_references *refs)
{
    uint32_t world_size = refs->config.world_size;
    if (refs->settling == 0)
        return;
    for (uint32_t rank = 0; rank < world_size; rank++)
        if (refs->peers[rank].settle == MR_SETTLE_RUNNING && refs->peers[rank].settle_missing > 0)
            return;
    for (uint32_t rank = 0; rank < world_size; rank++)
        if (refs->peers[rank].settle == MR_SETTLE_RUNNING)
            refs->peers[rank].settle = MR_SETTLE_DONE;
    refs->settling = 0;
    MR_ID_MAP_EACH(node, &refs->forks) {
        struct mr_fork *fork = MR_CONTAINER(node, struct mr_fork, by_fork);
        if (refs->peers[fork->holder].settle == MR_SETTLE_DONE)
            fork_remove(refs, fork);
    }
}

static void ask_about(struct mr_references *refs, uint32_t rank)
{
    struct mr_peer *peer = &refs->peers[rank];
    peer->settle = MR_SETTLE_RUNNING;
    refs->settling++;
    for (uint32_t other = 0; other < refs->config.world_size; other++) {
        bool ask = other != refs->config.rank && !refs->peers[other].dead && !refs->peers[other].absent;
        set_bit(refs, refs->answered, rank, other, !ask);
        peer->settle_missing += ask;
        if (ask)
            send_message(refs, other, MR_REFERENCE_SETTLE, rank, 0, 0);
    }
}

/* About all that are dead, not only whose forks we know: one of them may have passed on what another one,
 * whose fork we know, had passed to it. */
static void settle_begin(struct mr_references *refs)
{
    for (uint32_t rank = 0; rank < refs->config.world_size; rank++)
        if (refs->peers[rank].dead && refs->peers[rank].settle == MR_SETTLE_NONE)
            ask_about(refs, rank);
    finish_if_settled(refs);
}

static void answered(struct mr_references *refs, uint32_t rank, uint32_t by)
{
    struct mr_peer *peer = &refs->peers[rank];
    if (peer->settle != MR_SETTLE_RUNNING || bit(refs, refs->answered, rank, by))
        return;
    set_bit(refs, refs->answered, rank, by, true);
    peer->settle_missing--;
}

/* ---- the owner: forks that are reported ---- */

/* Notes that `holder` has this fork, perhaps of a value that was not known. *fresh: the fork was not
 * known. */
static enum mr_status learn_fork(struct mr_references *refs, uint64_t reference, uint64_t id, uint32_t holder,
                                 bool *fresh)
{
    const struct mr_fork *fork = fork_get(refs, id);
    *fresh = fork == NULL;
    if (fork != NULL)
        return fork->owned->by_id.id == reference && fork->holder == holder ? MR_OK : MR_BAD_MESSAGE;
    if (owned_get(refs, reference) == NULL && maker_of(reference) == refs->config.rank)
        return MR_OK; /* freed: a message that came again */
    struct mr_owned *owned = find_or_expect(refs, reference);
    if (owned == NULL)
        return MR_NO_MEMORY;
    if (fork_add(refs, owned, id, holder) == NULL) {
        free_if_unheld(refs, owned);
        return MR_NO_MEMORY;
    }
    return MR_OK;
}

/* A confirmation that comes to somebody who has the fork no longer is answered by deleting it. So this does
 * no harm when it comes again, whenever that is. */
static enum mr_status on_fork(struct mr_references *refs, uint32_t from,
                              const struct mr_reference_message *message)
{
    const struct mr_peer *holder = &refs->peers[message->rank];
    bool fresh;
    if (!holder->dead || holder->settle != MR_SETTLE_DONE) {
        enum mr_status status = learn_fork(refs, message->reference, message->fork, message->rank, &fresh);
        if (status != MR_OK)
            return status;
    }
    send_message(refs, from, MR_REFERENCE_CONFIRMED, 0, message->reference, message->fork);
    if (holder->dead && holder->settle == MR_SETTLE_NONE)
        settle_begin(refs);
    return MR_OK;
}

static void on_deleted(struct mr_references *refs, uint32_t from, uint64_t id)
{
    struct mr_fork *fork = fork_get(refs, id);
    /* A dead worker's forks are removed when it is settled; its parent, who reported one, deletes none. */
    if (fork != NULL && fork->holder == from)
        fork_remove(refs, fork);
}

/* ---- the owner: making and reading values ---- */

struct mr_reference *mr_references_own(struct mr_references *refs, uint64_t reference, void *value)
{
    struct mr_owned *owned = owned_add(refs, reference, value == NULL ? MR_OWNED_RUNNING : MR_OWNED_READY);
    if (owned == NULL)
        return NULL;
    owned->value = value;
    owned->handle.count = 1;
    return &owned->handle;
}

/* Notes the fork of a ticket with which a call of `from` came. */
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
    send_message(refs, from, MR_REFERENCE_CONFIRMED, 0, ticket->reference, ticket->fork);
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
    wake_all(refs, &owned->waiters, MR_OK, value);
    run_due(refs);
    return true;
}

void *mr_references_value(const struct mr_reference *handle)
{
    return handle->owned == NULL ? NULL : handle->owned->value;
}

static void wait_value(struct mr_references *refs, struct mr_owned *owned, struct mr_reference_waiter *waiter)
{
    mr_list_append(&owned->waiters, &waiter->link);
    if (owned->state == MR_OWNED_READY)
        wake_all(refs, &owned->waiters, MR_OK, owned->value);
    else if (owned->state == MR_OWNED_LOST)
        wake_all(refs, &owned->waiters,
                 maker_of(owned->by_id.id) == refs->config.rank ? MR_CANCELLED : MR_WORKER_DIED, NULL);
    run_due(refs);
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
        mr_list_append(&alone, &waiter->link);
        wake_all(refs, &alone, MR_CANCELLED, NULL);
        run_due(refs);
        return MR_OK;
    }
    if (fresh)
        send_message(refs, from, MR_REFERENCE_CONFIRMED, 0, ticket->reference, ticket->fork);
    wait_value(refs, owned, waiter);
    return MR_OK;
}

/* ---- the user: holds of others' values ---- */

static struct mr_reference *hold_add(struct mr_references *refs, const struct mr_reference_ticket *ticket,
                                     uint32_t parent)
{
    struct mr_reference *hold = block_new(refs, sizeof(*hold));
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
        send_message(refs, hold->owner, MR_REFERENCE_DELETED, 0, hold->id, hold->by_fork.id);
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

static void hold_fail(struct mr_references *refs, struct mr_reference *hold, enum mr_status status)
{
    mr_id_map_remove(&refs->holds, &hold->by_fork);
    mr_id_map_put(&refs->lost, &hold->by_fork);
    hold->status = status;
    hold->confirmed = true;
    wake_all(refs, &hold->waiters, status, NULL);
}

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

void mr_references_remote_failed(struct mr_references *refs, struct mr_reference *handle,
                                 enum mr_status status)
{
    assert(status != MR_OK);
    if (handle->status != MR_OK || handle->confirmed) /* its owner died meanwhile, or it did leave */
        return;
    hold_fail(refs, handle, status);
    delete_if_done(refs, handle);
    run_due(refs);
}

void mr_references_release(struct mr_references *refs, struct mr_reference *handle)
{
    assert(handle->count > 0);
    handle->count--;
    if (refs->destroying)
        return;
    if (handle->owned != NULL)
        free_if_unheld(refs, handle->owned);
    else
        delete_if_done(refs, handle);
    run_due(refs);
}

/* ---- passing and taking ---- */

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
        if (fork_add(refs, handle->owned, made.fork, to) == NULL)
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
    struct mr_fork *fork = fork_get(refs, ticket->fork);
    struct mr_child *child = child_get(refs, ticket->fork);
    if (fork != NULL)
        fork_remove(refs, fork);
    else if (child != NULL)
        child_remove(refs, child);
    run_due(refs);
}

static enum mr_status take_own(struct mr_references *refs, uint32_t from,
                               const struct mr_reference_ticket *ticket, struct mr_reference **out)
{
    struct mr_owned *owned = find_or_expect(refs, ticket->reference);
    if (owned == NULL)
        return MR_NO_MEMORY;
    owned->handle.count++;
    struct mr_fork *fork = fork_get(refs, ticket->fork);
    if (from != refs->config.rank)
        send_message(refs, from, MR_REFERENCE_ACCEPTED, 0, ticket->reference, ticket->fork);
    else if (fork != NULL)
        fork_remove(refs, fork);
    *out = &owned->handle;
    return MR_OK;
}

enum mr_status mr_references_take(struct mr_references *refs, uint32_t from,
                                  const struct mr_reference_ticket *ticket, struct mr_reference **out)
{
    uint32_t world_size = refs->config.world_size;
    if (from >= world_size || ticket->owner >= world_size || ticket->fork == 0 ||
        maker_of(ticket->reference) >= world_size)
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
        send_message(refs, ticket->owner, MR_REFERENCE_FORK, refs->config.rank, ticket->reference,
                     ticket->fork);
    }
    return MR_OK;
}

void mr_references_wait_confirmed(struct mr_references *refs, struct mr_reference *handle,
                                  struct mr_reference_waiter *waiter)
{
    mr_list_append(&handle->waiters, &waiter->link);
    if (handle->confirmed)
        wake_all(refs, &handle->waiters, handle->status, NULL);
    run_due(refs);
}

/* ---- the user: being asked about workers that died ---- */

static bool waits_for(const struct mr_references *refs, uint32_t owner, uint32_t parent)
{
    MR_ID_MAP_EACH(node, &refs->holds) {
        const struct mr_reference *hold = MR_CONTAINER(node, struct mr_reference, by_fork);
        if (hold->owner == owner && hold->parent == parent && !hold->confirmed)
            return true;
    }
    return false;
}

static void answer_if_settled(struct mr_references *refs, uint32_t owner, uint32_t parent)
{
    if (!bit(refs, refs->asked, parent, owner) || waits_for(refs, owner, parent))
        return;
    set_bit(refs, refs->asked, parent, owner, false);
    send_message(refs, owner, MR_REFERENCE_SETTLED, parent, 0, 0);
}

/* ---- the user: confirmations ---- */

static void on_accepted(struct mr_references *refs, uint64_t fork)
{
    struct mr_child *child = child_get(refs, fork);
    if (child != NULL)
        child_remove(refs, child);
}

static void confirm(struct mr_references *refs, struct mr_reference *hold)
{
    uint32_t parent = hold->parent, owner = hold->owner;
    if (hold->confirmed)
        return;
    hold->confirmed = true;
    wake_all(refs, &hold->waiters, MR_OK, NULL);
    if (parent == refs->config.rank) /* passed by us to ourselves, or made by us */
        on_accepted(refs, hold->by_fork.id);
    else
        send_message(refs, parent, MR_REFERENCE_ACCEPTED, 0, hold->id, hold->by_fork.id);
    answer_if_settled(refs, owner, parent);
    delete_if_done(refs, hold);
}

static void on_confirmed(struct mr_references *refs, uint32_t from, uint64_t reference, uint64_t fork)
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
        send_message(refs, from, MR_REFERENCE_DELETED, 0, reference, fork);
    }
}

/* ---- deaths ---- */

static void owner_died(struct mr_references *refs, uint32_t rank)
{
    MR_ID_MAP_EACH(node, &refs->children) {
        struct mr_child *child = MR_CONTAINER(node, struct mr_child, by_fork);
        if (child->parent->owner != rank)
            continue;
        mr_id_map_remove(&refs->children, node);
        child->parent->children--;
        free(child);
    }
    MR_ID_MAP_EACH(node, &refs->holds) {
        struct mr_reference *hold = MR_CONTAINER(node, struct mr_reference, by_fork);
        if (hold->owner != rank)
            continue;
        hold_fail(refs, hold, MR_WORKER_DIED);
        delete_if_done(refs, hold);
    }
}

/* Reports what was passed to `rank` to its owner. */
static void child_died(struct mr_references *refs, uint32_t rank)
{
    MR_ID_MAP_EACH(node, &refs->children) {
        const struct mr_child *child = MR_CONTAINER(node, struct mr_child, by_fork);
        if (child->to == rank)
            send_message(refs, child->parent->owner, MR_REFERENCE_FORK, rank, child->parent->id, node->id);
    }
}

static void creator_died(struct mr_references *refs, uint32_t rank)
{
    MR_ID_MAP_EACH(node, &refs->owned) {
        struct mr_owned *owned = MR_CONTAINER(node, struct mr_owned, by_id);
        if (owned->state != MR_OWNED_EXPECTED || maker_of(node->id) != rank)
            continue;
        owned->state = MR_OWNED_LOST;
        wake_all(refs, &owned->waiters, MR_WORKER_DIED, NULL);
    }
}

void mr_references_joined(struct mr_references *refs, uint32_t joining)
{
    assert(joining < refs->config.world_size);
    if (!refs->peers[joining].absent)
        return;
    refs->peers[joining].absent = false;
    /* It may still take from the dead what they pass to it: it is asked about them, too. */
    for (uint32_t rank = 0; rank < refs->config.world_size; rank++) {
        struct mr_peer *peer = &refs->peers[rank];
        if (!peer->dead)
            continue;
        if (peer->settle == MR_SETTLE_RUNNING) {
            set_bit(refs, refs->answered, rank, joining, false);
            peer->settle_missing++;
        }
        send_message(refs, joining, MR_REFERENCE_SETTLE, rank, 0, 0);
    }
}

void mr_references_died(struct mr_references *refs, uint32_t rank)
{
    uint32_t world_size = refs->config.world_size;
    assert(rank < world_size && rank != refs->config.rank);
    if (refs->peers[rank].dead)
        return;
    refs->peers[rank].dead = true;
    owner_died(refs, rank);
    child_died(refs, rank);
    creator_died(refs, rank);
    if (refs->settling > 0 || mr_references_held_by(refs, rank) > 0)
        settle_begin(refs);
    for (uint32_t other = 0; other < world_size; other++)
        answered(refs, other, rank);
    finish_if_settled(refs);
    run_due(refs);
}

/* ---- messages ---- */

void mr_reference_message_pack(const struct mr_reference_message *message, uint64_t *words)
{
    words[0] = message->kind | (uint64_t)message->rank << 32;
    words[1] = message->reference;
    words[2] = message->fork;
}

bool mr_reference_message_unpack(const uint64_t *words, struct mr_reference_message *message)
{
    uint32_t kind = (uint32_t)words[0];
    if (kind == 0 || kind >= MR_REFERENCE_KIND_COUNT)
        return false;
    *message = (struct mr_reference_message){kind, (uint32_t)(words[0] >> 32), words[1], words[2]};
    return true;
}

static bool is_sane(const struct mr_references *refs, uint32_t from,
                    const struct mr_reference_message *message)
{
    uint32_t world_size = refs->config.world_size, rank = message->rank;
    if (message->kind == 0 || message->kind >= MR_REFERENCE_KIND_COUNT || from == refs->config.rank)
        return false;
    if (message->kind == MR_REFERENCE_SETTLE || message->kind == MR_REFERENCE_SETTLED)
        return rank < world_size && !refs->peers[rank].absent && rank != refs->config.rank && rank != from;
    uint32_t made_by = maker_of(message->reference);
    return rank < world_size && !refs->peers[rank].absent && made_by < world_size && message->fork != 0 &&
           (message->kind != MR_REFERENCE_FORK || rank != refs->config.rank);
}

enum mr_status mr_references_receive(struct mr_references *refs, uint32_t from,
                                     const struct mr_reference_message *message)
{
    enum mr_status status = MR_OK;
    if (from >= refs->config.world_size || !is_sane(refs, from, message))
        return MR_BAD_MESSAGE;
    if (refs->peers[from].dead)
        return MR_OK;
    switch (message->kind) {
    case MR_REFERENCE_FORK:
        status = on_fork(refs, from, message);
        break;
    case MR_REFERENCE_CONFIRMED:
        on_confirmed(refs, from, message->reference, message->fork);
        break;
    case MR_REFERENCE_ACCEPTED:
        on_accepted(refs, message->fork);
        break;
    case MR_REFERENCE_DELETED:
        on_deleted(refs, from, message->fork);
        break;
    case MR_REFERENCE_SETTLE:
        mr_references_died(refs, message->rank);
        set_bit(refs, refs->asked, message->rank, from, true);
        answer_if_settled(refs, from, message->rank);
        break;
    default:
        answered(refs, message->rank, from);
        finish_if_settled(refs);
    }
    run_due(refs);
    return status;
}

/* ---- made and destroyed ---- */

enum mr_status mr_references_create(const struct mr_references_config *config, struct mr_references **out)
{
    uint32_t world_size = config->world_size;
    if (world_size == 0 || world_size > WORLD_MAX || config->rank >= world_size)
        return MR_INVALID_ARGUMENT;
    size_t bit_bytes = ((size_t)world_size * world_size + 7) / 8;
    struct mr_references *refs = calloc(1, sizeof(*refs));
    struct mr_peer *peers = calloc(world_size, sizeof(*peers));
    uint8_t *bits = calloc(2, bit_bytes);
    if (refs == NULL || peers == NULL || bits == NULL) {
        free(refs);
        free(peers);
        free(bits);
        return MR_NO_MEMORY;
    }
    refs->config = *config;
    refs->peers = peers;
    for (uint32_t i = 0; i < world_size; i++)
        peers[i].absent = config->is_open && i != config->rank;
    refs->answered = bits;
    refs->asked = bits + bit_bytes;
    mr_id_map_init(&refs->owned);
    mr_id_map_init(&refs->forks);
    mr_id_map_init(&refs->holds);
    mr_id_map_init(&refs->lost);
    mr_id_map_init(&refs->children);
    mr_list_init(&refs->due);
    *out = refs;
    return MR_OK;
}

void mr_references_stop(struct mr_references *refs)
{
    MR_ID_MAP_EACH(node, &refs->holds)
        wake_all(refs, &MR_CONTAINER(node, struct mr_reference, by_fork)->waiters, MR_SHUTTING_DOWN, NULL);
    MR_ID_MAP_EACH(node, &refs->owned)
        wake_all(refs, &MR_CONTAINER(node, struct mr_owned, by_id)->waiters, MR_SHUTTING_DOWN, NULL);
    run_due(refs);
}

void mr_references_destroy(struct mr_references *refs)
{
    if (refs == NULL)
        return;
    mr_references_stop(refs);
    refs->destroying = true; /* values may hold handles, and release them */
    MR_ID_MAP_EACH(node, &refs->owned) {
        const struct mr_owned *owned = MR_CONTAINER(node, struct mr_owned, by_id);
        if (owned->value != NULL)
            refs->config.free_value(refs->config.self, owned->value);
    }
    mr_id_map_free(&refs->owned);
    mr_id_map_free(&refs->forks);
    mr_id_map_free(&refs->holds);
    mr_id_map_free(&refs->lost);
    mr_id_map_free(&refs->children);
    while (refs->spares != NULL) {
        struct mr_spare *spare = refs->spares;
        refs->spares = spare->next;
        free(spare);
    }
    free(refs->peers);
    free(refs->answered);
    free(refs);
}

/* ---- what is there ---- */

void mr_references_counts(const struct mr_references *refs, struct mr_references_counts *counts)
{
    *counts = (struct mr_references_counts){
        .values = refs->owned.count,
        .forks = refs->forks.count,
        .holds = refs->holds.count,
        .children = refs->children.count,
        .settling = refs->settling,
    };
}

uint32_t mr_references_held_by(const struct mr_references *refs, uint32_t rank)
{
    uint32_t count = 0;
    MR_ID_MAP_EACH(node, &refs->forks)
        count += MR_CONTAINER(node, struct mr_fork, by_fork)->holder == rank;
    return count;
}

uint32_t mr_references_holds_of(const struct mr_references *refs, uint32_t rank)
{
    uint32_t count = 0;
    MR_ID_MAP_EACH(node, &refs->holds)
        count += MR_CONTAINER(node, struct mr_reference, by_fork)->owner == rank;
    return count;
}

bool mr_references_may_leave(const struct mr_references *refs)
{
    return refs->forks.count == 0 && refs->holds.count == 0;
}
