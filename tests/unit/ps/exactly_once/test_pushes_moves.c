/* Many clients whose push streams outlive many moves of partitions between nodes: whether a push is
 * applied twice when it is sent again to the partition's owner of now, and whether the nodes say so. Each
 * move ends a client's push streams at both nodes, and the records of the push streams go with the
 * partitions, as in ps/move/ and trainer_client/replay/remap.h; a client sends again what no checkpoint
 * holds.
 *
 * usage: test_pushes_moves [CLIENTS MOVES]     the default finds room for all push streams; many more do
 * not */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/mr_feature.h"
#include "ps/exactly_once/pushes.h"
#include "tests/test.h"

#define NODES             3u
#define PUSHES            4u /* of a client to each node between two moves, each to a key of one partition */
#define MOVED_PARTITIONS  64u
#define CHECKPOINT_EVERY  4u  /* moves: what was pushed before is not sent again */
#define BETWEEN_MOVES_S   20u /* so that no push stream is old enough to be forgotten without a word */
#define CLIENTS_MAX       2000u
#define CLIENTS_WITH_ROOM 60u /* with 16 moves */
#define ARENA_BYTES       (UINT64_C(512) << 20)

struct sent {
    uint32_t client, stream_id, partition;
    uint32_t number;
    uint32_t applied; /* how often */
};

static struct {
    struct ps_arena *arenas[NODES];
    struct ps_pushes *nodes[NODES];
    uint8_t owner[MR_PARTITION_COUNT];
    uint32_t streams[CLIENTS_MAX][NODES], next_stream[CLIENTS_MAX];
    uint32_t numbers[CLIENTS_MAX][NODES];
    struct sent *sent;
    uint64_t sent_count, durable; /* all before `durable` are in a checkpoint */
    uint64_t refused;             /* for which there was no room */
    uint64_t random;
    uint32_t now_s;
} w;

static uint32_t clients = CLIENTS_WITH_ROOM, moves = 16;

static uint32_t draw(uint32_t below)
{
    w.random += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t x = w.random;
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)((x ^ x >> 31) % below);
}

static bool has_session(void *arg, const uint8_t *uuid)
{
    return true;
}

static uint32_t clock_s(void *arg)
{
    return w.now_s;
}

static void uuid_of(uint32_t client, uint8_t uuid[MR_UUID_BYTES])
{
    const uint64_t halves[2] = {client + 1, ~(uint64_t)client};
    memcpy(uuid, halves, MR_UUID_BYTES);
}

static uint32_t partition_of(uint32_t node)
{
    uint32_t partition = draw(MR_PARTITION_COUNT);
    while (w.owner[partition] != node)
        partition = (partition + 1) % MR_PARTITION_COUNT;
    return partition;
}

/* As ps/ops/ops_push.c does it. False: there is no room for the push stream. */
static bool deliver(struct sent *s)
{
    struct ps_pushes *p = w.nodes[w.owner[s->partition]];
    struct ps_partition_set touched = ps_partitions_range(s->partition, s->partition + 1);
    uint8_t uuid[MR_UUID_BYTES];
    uuid_of(s->client, uuid);
    const struct ps_push_id id = {uuid, s->stream_id, s->number, 0};
    const enum ps_push_state state = ps_pushes_look_up(p, &id);
    assert_int_not_equal(state, PS_PUSH_NO_MEMORY);
    if (state == PS_PUSH_APPLIED || state == PS_PUSH_WAITS)
        return state == PS_PUSH_APPLIED;
    if (ps_pushes_has_unknown(p, &id))
        assert_int_equal(ps_pushes_cover(p, &id, &touched), MR_OK);
    ps_pushes_start(p, &id);
    s->applied += !ps_pushes_has(p, &id, s->partition);
    (void)ps_pushes_finish(p, &id);
    return true;
}

static void push_new(uint32_t client, uint32_t node)
{
    struct sent *s = &w.sent[w.sent_count++];
    *s = (struct sent){.client = client,
                       .stream_id = w.streams[client][node],
                       .partition = partition_of(node),
                       .number = ++w.numbers[client][node]};
    w.refused += !deliver(s);
}

static void start_stream(uint32_t client, uint32_t node)
{
    w.streams[client][node] = mr_push_stream_chosen(w.next_stream[client]++);
    w.numbers[client][node] = 0;
}

static void carry(struct ps_pushes *to, const struct ps_push_stream *stream, const struct ps_push_mark *mark,
                  const struct ps_partition_set *partitions)
{
    const struct ps_push_load load = {.uuid = stream->uuid,
                                      .stream_id = stream->stream_id,
                                      .used = stream->used,
                                      .window = mark->window,
                                      .durable = mark->floors[PS_FLOOR_DURABLE]};
    if (!mark->is_unknown && !ps_partitions_empty(partitions))
        assert_int_equal(ps_pushes_load(to, &load, partitions), MR_OK);
}

static void pushes_moves_move(uint32_t from, uint32_t to, const struct ps_partition_set *moved)
{
    for (uint32_t i = 0; i < PS_PUSH_STREAMS_MAX; i++) {
        const struct ps_push_stream *stream = ps_pushes_at(w.nodes[from], i);
        if (stream == NULL)
            continue;
        const struct ps_partition_set rest = ps_push_stream_rest(stream),
                                      part = ps_partitions_and(&rest, moved);
        carry(w.nodes[to], stream, &stream->rest, &part);
        for (const struct ps_push_piece *piece = stream->rest.next; piece != NULL; piece = piece->mark.next) {
            const struct ps_partition_set own = ps_partitions_and(&piece->partitions, moved);
            carry(w.nodes[to], stream, &piece->mark, &own);
        }
    }
    assert_int_equal(ps_pushes_forget(w.nodes[from], moved), MR_OK);
}

static struct ps_partition_set choose_moved(uint32_t from, uint32_t to)
{
    struct ps_partition_set moved = {{0}};
    for (uint32_t i = 0; i < MOVED_PARTITIONS; i++) {
        const uint32_t partition = partition_of(from);
        ps_partitions_add(&moved, partition);
        w.owner[partition] = (uint8_t)to;
    }
    return moved;
}

/* To the owners of now, whoever they were: what is in no checkpoint. */
static void send_again(void)
{
    for (uint64_t i = 0; i < w.sent_count; i++)
        if (i >= w.durable || w.sent[i].applied == 0)
            w.refused += !deliver(&w.sent[i]);
}

/* Push streams of which a push was applied more than once. */
static uint64_t streams_twice(void)
{
    const size_t streams = NODES + 2 * (size_t)moves;
    bool *is_twice = calloc(clients * streams, sizeof(*is_twice));
    uint64_t count = 0;
    assert_non_null(is_twice);
    for (uint64_t i = 0; i < w.sent_count; i++) {
        const struct sent *s = &w.sent[i];
        const size_t at = s->client * streams + (s->stream_id & MR_PUSH_CHOSEN_MAX);
        count += s->applied > 1 && !is_twice[at];
        is_twice[at] |= s->applied > 1;
    }
    free(is_twice);
    return count;
}

static void make_world(void)
{
    static const struct ps_push_guard guard = {.secret = 7, .has_session = has_session, .now_s = clock_s};
    memset(&w, 0, sizeof(w));
    w.sent = calloc((size_t)clients * NODES * PUSHES * (moves + 1), sizeof(*w.sent));
    assert_non_null(w.sent);
    for (uint32_t n = 0; n < NODES; n++) {
        w.arenas[n] = ps_arena_create(ARENA_BYTES);
        assert_non_null(w.arenas[n]);
        w.nodes[n] = ps_pushes_create(w.arenas[n], &guard);
        assert_non_null(w.nodes[n]);
    }
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++)
        w.owner[i] = (uint8_t)(i % NODES);
    for (uint32_t c = 0; c < clients; c++)
        for (uint32_t n = 0; n < NODES; n++)
            start_stream(c, n);
}

static void free_world(void)
{
    for (uint32_t n = 0; n < NODES; n++) {
        ps_pushes_destroy(w.nodes[n]);
        ps_arena_destroy(w.arenas[n]);
    }
    free(w.sent);
}

TEST(a_push_is_applied_once_or_the_node_says_so)
{
    uint64_t forgotten = 0, lost = 0, twice = 0, missing = 0, places = 0;
    make_world();
    for (uint32_t m = 0; m <= moves; m++) {
        for (uint32_t c = 0; c < clients; c++)
            for (uint32_t n = 0; n < NODES * PUSHES; n++)
                push_new(c, n % NODES);
        w.now_s += BETWEEN_MOVES_S;
        if (m == moves)
            break;
        const uint32_t from = draw(NODES), to = (from + 1 + draw(NODES - 1)) % NODES;
        const struct ps_partition_set moved = choose_moved(from, to);
        pushes_moves_move(from, to, &moved);
        for (uint32_t c = 0; c < clients; c++) {
            start_stream(c, from);
            start_stream(c, to);
        }
        if (m % CHECKPOINT_EVERY == 0)
            w.durable = w.sent_count;
        send_again();
    }
    send_again();
    for (uint64_t i = 0; i < w.sent_count; i++) {
        twice += w.sent[i].applied > 1;
        missing += w.sent[i].applied == 0;
    }
    for (uint32_t n = 0; n < NODES; n++) {
        forgotten += ps_pushes_forgotten(w.nodes[n]);
        lost += ps_pushes_lost(w.nodes[n]);
        for (uint32_t i = 0; i < PS_PUSH_STREAMS_MAX; i++)
            places += ps_pushes_at(w.nodes[n], i) != NULL;
    }
    printf("%u clients, %u moves: %" PRIu64 " pushes in %" PRIu64 " push streams; %" PRIu64
           " of %u records in use; %" PRIu64 " push streams forgotten, %" PRIu64 " reported as lost; %" PRIu64
           " pushes applied twice, of %" PRIu64 " push streams; %" PRIu64 " tries without room, %" PRIu64
           " pushes still wait\n",
           clients, moves, w.sent_count, (uint64_t)clients * (NODES + 2 * (uint64_t)moves), places,
           NODES * PS_PUSH_STREAMS_MAX, forgotten, lost, twice, streams_twice(), w.refused, missing);
    assert_int_equal(forgotten, lost); /* all of them may come back */
    assert_true(streams_twice() <= lost);
    assert_true(missing <= w.refused); /* ps.pushes_waiting counts these */
    if (clients <= CLIENTS_WITH_ROOM) {
        assert_int_equal(lost, 0);
        assert_int_equal(missing, 0);
    } else {
        assert_true(lost > 0);
    }
    free_world();
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        clients = (uint32_t)strtoul(argv[1], NULL, 10);
        moves = (uint32_t)strtoul(argv[2], NULL, 10);
    }
    return clients > CLIENTS_MAX ? 2 : tests_run(NULL, NULL);
}
