/* The limit that sockets and memory set: the simplest server for the calls of bench_calls that a good
 * engineer would write. One thread, a bare table, and datagrams in runs; each datagram is served by itself
 * as it comes.
 *
 * bare_server PORT MTU
 *
 * Spins instead of sleeping, and serves one client at a time. Prints "ready" once it serves; ends on
 * SIGTERM. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include "tests/bench/common/bench_print.h"
#include "tests/bench/limits/bare_socket.h"
#include "tests/bench/limits/bare_table.h"

#define LEARNING_RATE 0.1f
#define ROW_BYTES     ((uint32_t)(BARE_DIM * sizeof(float)))
#define ANSWERS_BYTES (1u << 20)

struct server {
    struct bare_socket socket;
    struct bare_table *table;
    float *variable;
    /* Rows of answers that have not gone yet. */
    uint8_t *answers;
    uint32_t answers_bytes;
    uint32_t call, taken; /* items of the push that comes now, and how many have come */
};

static volatile sig_atomic_t stop_requested;

static void on_signal(int signal)
{
    stop_requested = signal;
}

/* Sends `count` rows as the answer to the items from header->first on. */
static void answer_rows(struct server *s, const struct bare_header *header, const uint8_t *rows,
                        uint32_t count)
{
    const uint32_t datagram_rows = s->socket.payload_bytes_max / ROW_BYTES;
    struct bare_header out = *header;
    for (uint32_t first = 0; first < count; first += datagram_rows) {
        const uint32_t left = count - first;
        const struct iovec piece = {(void *)(uintptr_t)(rows + (size_t)first * ROW_BYTES),
                                    (left < datagram_rows ? left : datagram_rows) * ROW_BYTES};
        out.first = header->first + first;
        bare_socket_add(&s->socket, &out, &piece, 1);
    }
}

/* Memory for so many rows, until the answers go. */
static float *answer_place(struct server *s, uint32_t rows)
{
    if (s->answers_bytes + rows * ROW_BYTES > ANSWERS_BYTES) {
        bare_socket_flush(&s->socket);
        s->answers_bytes = 0;
    }
    uint8_t *place = s->answers + s->answers_bytes;
    s->answers_bytes += rows * ROW_BYTES;
    return (float *)(void *)place;
}

static void serve_pull(struct server *s, const struct bare_header *header, const uint64_t *keys,
                       uint32_t count)
{
    float *rows = answer_place(s, count);
    bare_table_lookup(s->table, keys, count, rows);
    answer_rows(s, header, (const uint8_t *)rows, count);
}

static void serve_bags(struct server *s, const struct bare_header *header, const uint64_t *keys,
                       uint32_t count)
{
    float *sums = answer_place(s, count);
    bare_table_sum(s->table, keys, count, BARE_BAG_KEYS, sums);
    answer_rows(s, header, (const uint8_t *)sums, count);
}

static void serve_pull_variable(struct server *s, const struct bare_header *header)
{
    const uint32_t datagram_floats = s->socket.payload_bytes_max / (uint32_t)sizeof(float);
    struct bare_header out = *header;
    for (uint32_t first = 0; first < BARE_VARIABLE_FLOATS; first += datagram_floats) {
        const uint32_t left = BARE_VARIABLE_FLOATS - first;
        const struct iovec piece = {s->variable + first,
                                    (left < datagram_floats ? left : datagram_floats) * sizeof(float)};
        out.first = first;
        bare_socket_add(&s->socket, &out, &piece, 1);
    }
}

/* So many items of a push were taken: it is answered with the last. */
static void answer_push(struct server *s, const struct bare_header *header, uint32_t count)
{
    if (s->call != header->call) {
        s->call = header->call;
        s->taken = 0;
    }
    s->taken += count;
    if (s->taken == header->total)
        bare_socket_add(&s->socket, header, NULL, 0);
}

static void serve_push(struct server *s, const struct bare_header *header, const uint64_t *keys,
                       uint32_t count)
{
    const float *rows = (const float *)(const void *)(keys + count);
    if (header->op == BARE_PUSH)
        bare_table_push(s->table, keys, count, rows);
    else
        bare_table_set(s->table, keys, count, rows);
    answer_push(s, header, count);
}

static void serve_push_variable(struct server *s, const struct bare_header *header, const float *gradient,
                                uint32_t count)
{
    if (header->first > BARE_VARIABLE_FLOATS || count > BARE_VARIABLE_FLOATS - header->first)
        return;
    float *values = s->variable + header->first;
    for (uint32_t i = 0; i < count; i++)
        values[i] -= LEARNING_RATE * gradient[i];
    answer_push(s, header, count);
}

static void serve(void *arg, const struct bare_header *header, const void *payload, uint32_t bytes)
{
    struct server *s = arg;
    const uint32_t key_bytes = sizeof(uint64_t);
    switch ((enum bare_op)header->op) {
    case BARE_EMPTY:
        bare_socket_add(&s->socket, header, NULL, 0);
        break;
    case BARE_PULL:
        serve_pull(s, header, payload, bytes / key_bytes);
        break;
    case BARE_BAGS:
        serve_bags(s, header, payload, bytes / (BARE_BAG_KEYS * key_bytes));
        break;
    case BARE_PUSH:
    case BARE_SET:
        serve_push(s, header, payload, bytes / (key_bytes + ROW_BYTES));
        break;
    case BARE_PULL_VARIABLE:
        serve_pull_variable(s, header);
        break;
    case BARE_PUSH_VARIABLE:
        serve_push_variable(s, header, payload, bytes / (uint32_t)sizeof(float));
        break;
    }
}

static void fill_table(struct bare_table *t)
{
    uint64_t *keys = bench_allocate(BARE_TABLE_KEYS * sizeof(*keys));
    for (uint32_t i = 0; i < BARE_TABLE_KEYS; i++)
        keys[i] = i;
    bare_table_insert(t, keys, BARE_TABLE_KEYS);
    free(keys);
}

int main(int argc, char **argv)
{
    static struct server server;
    if (argc != 3) {
        fprintf(stderr, "usage: bare_server PORT MTU\n");
        return 2;
    }
    const struct sockaddr_in local = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    bare_socket_open(&server.socket, (uint32_t)atoi(argv[2]));
    if (bind(server.socket.fd, (const struct sockaddr *)&local, sizeof(local)) != 0)
        bench_give_up("the port is taken");
    server.table = bare_table_create(BARE_TABLE_KEYS, true, LEARNING_RATE);
    fill_table(server.table);
    server.variable = bench_allocate(BARE_VARIABLE_FLOATS * sizeof(float));
    server.answers = bench_allocate(ANSWERS_BYTES);
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    printf("ready\n");
    fflush(stdout);
    while (!stop_requested) {
        if (bare_socket_receive(&server.socket, serve, &server) == 0)
            (void)sched_yield();
        bare_socket_flush(&server.socket);
        server.answers_bytes = 0;
    }
    return 0;
}
