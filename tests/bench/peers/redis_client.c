/* Redis, for tests/bench/peers/peers.py: rows are strings of 16 floats under keys of 8 bytes, through
 * hiredis.
 *
 * Commands of 13312 keys go as a pipeline of MGET or MSET; --api names how many keys each has (default 512).
 * Redis can neither sum rows nor apply gradients: the lookup pulls and sums here, and `push` is `set`. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/bench/common/bench_print.h"
#include "tests/bench/peers/peer_bench.h"

#define ROW_BYTES (WORK_DIM * sizeof(float))
#define WORDS_MAX (2 * WORK_ROWS + 1)

struct redis {
    redisContext *context;
    uint32_t command_keys;
    const char *words[WORDS_MAX];
    size_t bytes[WORDS_MAX];
    float rows[WORK_ROWS * WORK_DIM], sums[WORK_BAGS * WORK_DIM];
};

__attribute__((noreturn)) static void give_up(const struct redis *r, const char *what)
{
    peer_give_up("redis_client", "%s: %s", what, r->context->err != 0 ? r->context->errstr : "wrong answer");
}

static redisReply *await(struct redis *r, int type, const char *what)
{
    void *reply;
    if (redisGetReply(r->context, &reply) != REDIS_OK)
        give_up(r, what);
    if (((redisReply *)reply)->type != type)
        peer_give_up("redis_client", "%s: %s", what,
                     ((redisReply *)reply)->str != NULL ? ((redisReply *)reply)->str : "another answer");
    return reply;
}

static void add_empty(struct redis *r)
{
    if (redisAppendCommand(r->context, "PING") != REDIS_OK)
        give_up(r, "PING");
}

static void end_empty(struct redis *r)
{
    freeReplyObject(await(r, REDIS_REPLY_STATUS, "PING"));
}

static void empty(void *state)
{
    add_empty(state);
    end_empty(state);
}

static uint64_t empty_many(void *state, double until_us)
{
    struct redis *r = state;
    uint64_t calls = 0;
    for (uint32_t i = 0; i < WORK_OUTSTANDING; i++)
        add_empty(r);
    for (; calls % WORK_OUTSTANDING != 0 || bench_now_us() < until_us; calls++) {
        end_empty(r);
        add_empty(r);
    }
    for (uint32_t i = 0; i < WORK_OUTSTANDING; i++)
        end_empty(r);
    return calls;
}

static void add_command(struct redis *r, const char *name, const uint64_t *keys, const float *rows,
                        uint32_t count)
{
    uint32_t words = 1;
    r->words[0] = name;
    r->bytes[0] = strlen(name);
    for (uint32_t i = 0; i < count; i++) {
        r->words[words] = (const char *)&keys[i];
        r->bytes[words++] = sizeof(keys[i]);
        if (rows == NULL)
            continue;
        r->words[words] = (const char *)&rows[(size_t)i * WORK_DIM];
        r->bytes[words++] = ROW_BYTES;
    }
    if (redisAppendCommandArgv(r->context, (int)words, r->words, r->bytes) != REDIS_OK)
        give_up(r, name);
}

static uint32_t keys_from(const struct redis *r, uint32_t first)
{
    return WORK_ROWS - first < r->command_keys ? WORK_ROWS - first : r->command_keys;
}

static void take_rows(struct redis *r, uint32_t first, uint32_t count)
{
    redisReply *reply = await(r, REDIS_REPLY_ARRAY, "MGET");
    if (reply->elements != count)
        give_up(r, "MGET");
    for (uint32_t i = 0; i < count; i++) {
        const redisReply *row = reply->element[i];
        if (row->type != REDIS_REPLY_STRING || (size_t)row->len != ROW_BYTES)
            give_up(r, "MGET: no such row");
        memcpy(&r->rows[(size_t)(first + i) * WORK_DIM], row->str, ROW_BYTES);
    }
    freeReplyObject(reply);
}

static const float *redis_client_pull(void *state, const struct workload *w)
{
    struct redis *r = state;
    for (uint32_t first = 0; first < WORK_ROWS; first += r->command_keys)
        add_command(r, "MGET", &w->keys[first], NULL, keys_from(r, first));
    for (uint32_t first = 0; first < WORK_ROWS; first += r->command_keys)
        take_rows(r, first, keys_from(r, first));
    return r->rows;
}

static const float *lookup(void *state, const struct workload *w)
{
    struct redis *r = state;
    const float *row = redis_client_pull(state, w);
    for (uint32_t b = 0; b < WORK_BAGS; b++) {
        float sum[WORK_DIM] = {0};
        for (uint32_t i = w->offsets[b]; i < w->offsets[b + 1]; i++, row += WORK_DIM)
            for (uint32_t d = 0; d < WORK_DIM; d++)
                sum[d] += row[d];
        memcpy(&r->sums[b * WORK_DIM], sum, sizeof(sum));
    }
    return r->sums;
}

static void write_rows(struct redis *r, const uint64_t *keys, const float *rows)
{
    for (uint32_t first = 0; first < WORK_ROWS; first += r->command_keys)
        add_command(r, "MSET", &keys[first], &rows[(size_t)first * WORK_DIM], keys_from(r, first));
    for (uint32_t first = 0; first < WORK_ROWS; first += r->command_keys)
        freeReplyObject(await(r, REDIS_REPLY_STATUS, "MSET"));
}

static void redis_client_set(void *state, const struct workload *w)
{
    write_rows(state, w->keys, w->rows);
}

static void redis_client_fill(struct redis *r)
{
    static uint64_t keys[WORK_ROWS];
    for (uint32_t first = 0; first < WORK_KEYS; first += WORK_ROWS) {
        for (uint32_t i = 0; i < WORK_ROWS; i++) {
            keys[i] = (first + i) % WORK_KEYS;
            work_row(keys[i], &r->rows[(size_t)i * WORK_DIM]);
        }
        write_rows(r, keys, r->rows);
    }
}

int main(int argc, char **argv)
{
    static struct redis r;
    struct peer_options options = peer_options_read("redis_client", argc, argv);
    r.command_keys = options.api != NULL ? (uint32_t)strtoul(options.api, NULL, 10) : 512;
    if (r.command_keys == 0 || r.command_keys > WORK_ROWS)
        peer_give_up("redis_client", "--api is the number of keys in a command, 1 to %u", WORK_ROWS);
    r.context = redisConnect(options.address, options.port); /* sets TCP_NODELAY */
    if (r.context == NULL || r.context->err != 0)
        peer_give_up("redis_client", "%s:%u: %s", options.address, options.port,
                     r.context != NULL ? r.context->errstr : "no memory");
    r.context->reader->maxbuf = 0; /* keeps its buffer, as large answers want */
    redis_client_fill(&r);
    const struct peer peer = {.program = "redis_client",
                              .state = &r,
                              .empty = empty,
                              .empty_many = empty_many,
                              .pull = redis_client_pull,
                              .lookup = lookup,
                              .set = redis_client_set};
    peer_bench(&peer, &options);
    redisFree(r.context);
    return 0;
}
