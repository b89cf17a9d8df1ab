#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/rpc/rref/references_internal.h"

#define WORLD_MAX 65535u

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
    mr_hold_stop_all(refs);
    mr_owned_stop_all(refs);
    mr_references_run_due(refs);
}

void mr_references_destroy(struct mr_references *refs)
{
    if (refs == NULL)
        return;
    mr_references_stop(refs);
    refs->destroying = true; /* values may hold handles, and release them */
    mr_owned_free_values(refs);
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

uint64_t mr_references_new_id(struct mr_references *refs)
{
    return (uint64_t)refs->config.rank << MR_REFERENCE_RANK_SHIFT |
           (atomic_fetch_add_explicit(&refs->counter, 1, memory_order_relaxed) + 1);
}

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

void *mr_references_alloc(struct mr_references *refs, size_t bytes)
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

void mr_references_send(struct mr_references *refs, uint32_t to, uint32_t kind, uint32_t rank,
                        uint64_t reference, uint64_t fork)
{
    struct mr_reference_message message = {kind, rank, reference, fork};
    assert(to != refs->config.rank);
    if (!refs->peers[to].dead)
        refs->config.send(refs->config.self, to, &message);
}

void mr_references_wait(struct mr_link *waiters, struct mr_reference_waiter *waiter)
{
    mr_list_append(waiters, &waiter->link);
}

void mr_references_wake(struct mr_references *refs, struct mr_link *waiters, enum mr_status status,
                        void *value)
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

/* Waiters first: a value that they get is not freed before. */
void mr_references_run_due(struct mr_references *refs)
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
        return rank < world_size && rank != refs->config.rank && rank != from;
    uint64_t made_by = message->reference >> MR_REFERENCE_RANK_SHIFT;
    return rank < world_size && made_by < world_size && message->fork != 0 &&
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
        status = mr_owned_on_fork(refs, from, message);
        break;
    case MR_REFERENCE_CONFIRMED:
        mr_hold_on_confirmed(refs, from, message->reference, message->fork);
        break;
    case MR_REFERENCE_ACCEPTED:
        mr_hold_on_accepted(refs, message->fork);
        break;
    case MR_REFERENCE_DELETED:
        mr_owned_on_deleted(refs, from, message->fork);
        break;
    case MR_REFERENCE_SETTLE:
        mr_settle_on_ask(refs, from, message->rank);
        break;
    default:
        mr_settle_on_answer(refs, from, message->rank);
    }
    mr_references_run_due(refs);
    return status;
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
    for (struct mr_id_node *node = mr_id_map_next(&refs->forks, NULL); node != NULL;
         node = mr_id_map_next(&refs->forks, node))
        count += MR_CONTAINER(node, struct mr_fork, by_fork)->holder == rank;
    return count;
}

uint32_t mr_references_holds_of(const struct mr_references *refs, uint32_t rank)
{
    uint32_t count = 0;
    for (struct mr_id_node *node = mr_id_map_next(&refs->holds, NULL); node != NULL;
         node = mr_id_map_next(&refs->holds, node))
        count += MR_CONTAINER(node, struct mr_reference, by_fork)->owner == rank;
    return count;
}

bool mr_references_may_leave(const struct mr_references *refs)
{
    return refs->forks.count == 0 && refs->holds.count == 0;
}
