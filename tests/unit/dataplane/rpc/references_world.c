#include "references_world.h"

#include <stdlib.h>
#include "dataplane/rpc/rref/rref_count_internal.h"
#include "tests/test.h"

struct port {
    struct world *world;
    uint32_t rank;
};
static struct port ports[WORKERS];

static void on_send(void *self, uint32_t to, const struct mr_reference_message *message)
{
    struct port *port = self;
    struct world *w = port->world;
    uint64_t words[MR_REFERENCE_MESSAGE_WORDS];
    assert_true(w->queued < QUEUED && to != port->rank);
    struct queued *queued = &w->queue[w->queued++];
    queued->from = port->rank;
    queued->to = to;
    mr_reference_message_pack(message, words);
    assert_true(mr_reference_message_unpack(words, &queued->message));
}

static void on_free(void *self, void *what)
{
    struct value *value = what;
    value->freed++;
    if (value->inner != NULL)
        mr_references_release(value->refs, value->inner);
}

int world_setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        ports[rank] = (struct port){w, rank};
        struct mr_references_config config = {rank, WORKERS, false, &ports[rank], on_send, on_free};
        assert_int_equal(mr_references_create(&config, &w->refs[rank]), MR_OK);
    }
    *state = w;
    return 0;
}

int world_teardown(void **state)
{
    struct world *w = *state;
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        mr_references_destroy(w->refs[rank]);
    free(w);
    return 0;
}

static void deliver_at(struct world *w, uint32_t at)
{
    struct queued queued = w->queue[at];
    for (uint32_t i = at; i + 1 < w->queued; i++)
        w->queue[i] = w->queue[i + 1];
    w->queued--;
    if (w->repeat)
        w->again[w->agains++] = queued;
    if (w->refs[queued.from] != NULL && w->refs[queued.to] != NULL)
        assert_int_equal(mr_references_receive(w->refs[queued.to], queued.from, &queued.message), MR_OK);
}

uint32_t count_of(const struct world *w, uint32_t from, uint32_t to, uint32_t kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < w->queued; i++)
        count += w->queue[i].from == from && w->queue[i].to == to && w->queue[i].message.kind == kind;
    return count;
}

void deliver(struct world *w, uint32_t from, uint32_t to, uint32_t kind)
{
    assert_int_equal(count_of(w, from, to, kind), 1);
    for (uint32_t i = 0; i < w->queued; i++) {
        if (w->queue[i].from == from && w->queue[i].to == to && w->queue[i].message.kind == kind) {
            deliver_at(w, i);
            return;
        }
    }
}

void deliver_all(struct world *w)
{
    while (w->queued > 0)
        deliver_at(w, 0);
    w->repeat = false;
    for (uint32_t i = 0; i < w->agains; i++) {
        const struct queued *again = &w->again[i];
        if (w->refs[again->from] != NULL && w->refs[again->to] != NULL)
            assert_int_equal(mr_references_receive(w->refs[again->to], again->from, &again->message), MR_OK);
    }
    w->agains = 0;
    while (w->queued > 0)
        deliver_at(w, 0);
}

void crash(struct world *w, uint32_t rank)
{
    mr_references_destroy(w->refs[rank]);
    w->refs[rank] = NULL;
}

void die(struct world *w, uint32_t rank)
{
    if (w->refs[rank] != NULL)
        crash(w, rank);
    for (uint32_t other = 0; other < WORKERS; other++)
        if (w->refs[other] != NULL)
            mr_references_died(w->refs[other], rank);
}

struct mr_reference_ticket pass(struct world *w, uint32_t from, struct mr_reference *handle, uint32_t to)
{
    struct mr_reference_ticket ticket;
    assert_int_equal(mr_references_pass(w->refs[from], handle, to, &ticket), MR_OK);
    return ticket;
}

struct mr_reference *take(struct world *w, uint32_t from, uint32_t to,
                          const struct mr_reference_ticket *ticket)
{
    struct mr_reference *handle = NULL;
    assert_int_equal(mr_references_take(w->refs[to], from, ticket, &handle), MR_OK);
    assert_non_null(handle);
    return handle;
}

struct mr_reference *hand(struct world *w, uint32_t from, struct mr_reference *handle, uint32_t to)
{
    struct mr_reference_ticket ticket = pass(w, from, handle, to);
    return take(w, from, to, &ticket);
}

void release(struct world *w, uint32_t rank, struct mr_reference *handle)
{
    mr_references_release(w->refs[rank], handle);
}

enum mr_status make_remote(struct mr_references *refs, uint32_t owner, struct mr_reference **out,
                           struct mr_reference_ticket *ticket)
{
    *ticket = (struct mr_reference_ticket){owner, mr_references_new_id(refs), mr_references_new_id(refs)};
    return mr_references_remote(refs, ticket, out);
}

bool is_dead(const struct mr_references *refs, uint32_t rank)
{
    return refs->peers[rank].dead;
}

struct mr_reference *own(struct world *w, uint32_t rank, struct value *value)
{
    struct mr_reference *handle =
        mr_references_own(w->refs[rank], mr_references_new_id(w->refs[rank]), value);
    assert_non_null(handle);
    return handle;
}

static void on_run(struct mr_reference_waiter *waiter, enum mr_status status, void *value)
{
    struct waiting *waiting = (struct waiting *)(void *)waiter;
    waiting->runs++;
    waiting->status = status;
    waiting->value = value;
}

struct waiting *waiting_init(struct waiting *waiting)
{
    *waiting = (struct waiting){.waiter.run = on_run};
    return waiting;
}

void assert_nothing_left(struct world *w)
{
    assert_int_equal(w->queued, 0);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        struct mr_references_counts counts;
        if (w->refs[rank] == NULL)
            continue;
        mr_references_counts(w->refs[rank], &counts);
        assert_int_equal(counts.values, 0);
        assert_int_equal(counts.forks, 0);
        assert_int_equal(counts.holds, 0);
        assert_int_equal(counts.children, 0);
        assert_int_equal(counts.settling, 0);
        assert_true(mr_references_may_leave(w->refs[rank]));
    }
}
