/* Measures bare_server, one JSON object per line, by the names that bench_calls and bench_transport give the
 * same calls:
 *   empty_call_1                 median us
 *   empty_call_64                calls a second, 64 in flight
 *   pull_, push_, set_13312x16   median us
 *   bags_512x26                  median us
 *   pull_8mb, push_8mb           MB/s
 *
 * usage: bare_client --server 10.99.0.1:7700 [--mtu 1500] [--runs 500]
 *
 * Spins instead of sleeping. A call without an answer is made again, and counted. */
#include <arpa/inet.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/bench/common/bench_keys.h"
#include "tests/bench/common/bench_print.h"
#include "tests/bench/limits/bare_socket.h"
#include "tests/bench/limits/bare_table.h"

#define ROWS          13312u /* 512 samples x 26 slots */
#define BAGS          (ROWS / BARE_BAG_KEYS)
#define OUTSTANDING   64u
#define WARM_UP_RUNS  20u
#define LOST_AFTER_US 200000.0
#define LOST_MAX      1000u
#define ROW_BYTES     ((uint32_t)(BARE_DIM * sizeof(float)))

/* A call, and its answer as it comes. */
struct call {
    struct bare_header header;
    uint32_t answers; /* items wanted, and not there yet */
    uint32_t item_bytes;
    uint8_t *out; /* where the items go; NULL: they are only counted */
};

struct client {
    struct bare_socket socket;
    struct call call;
    uint32_t calls, lost, runs;
    uint64_t keys[ROWS];
    float rows[ROWS * BARE_DIM], answer[ROWS * BARE_DIM];
    float *variable, *pulled; /* [BARE_VARIABLE_FLOATS] */
};

static void take_answer(void *arg, const struct bare_header *header, const void *payload, uint32_t bytes)
{
    struct call *call = &((struct client *)arg)->call;
    if (header->call != call->header.call)
        return;
    uint32_t items = call->item_bytes == 0 ? 1 : bytes / call->item_bytes;
    if (call->out != NULL)
        memcpy(call->out + (size_t)header->first * call->item_bytes, payload, bytes);
    call->answers -= items < call->answers ? items : call->answers;
}

/* Spins until the answer is there; false when something of it must be lost. */
static bool wait_for_answer(struct client *c)
{
    double heard = bench_now_us();
    while (c->call.answers > 0)
        if (bare_socket_receive(&c->socket, take_answer, c) > 0)
            heard = bench_now_us();
        else if (sched_yield() == 0 && bench_now_us() - heard > LOST_AFTER_US)
            return false;
    return true;
}

/* ---- requests ---- */

static void begin_call(struct client *c, enum bare_op op, uint32_t total, uint32_t answers,
                       uint32_t item_bytes, void *out)
{
    c->call = (struct call){{++c->calls, op, 0, total}, answers, item_bytes, out};
}

/* Sends `total` items of so many bytes in one or two arrays, the answer to whose datagrams fills
 * datagrams. */
static void send_items(struct client *c, const void *first_array, uint32_t first_bytes,
                       const void *second_array, uint32_t second_bytes, uint32_t answer_items)
{
    const uint32_t total = c->call.header.total;
    uint32_t step = c->socket.payload_bytes_max / (first_bytes + second_bytes);
    if (step > answer_items)
        step -= step % answer_items;
    for (uint32_t first = 0; first < total; first += step) {
        const uint32_t count = total - first < step ? total - first : step;
        const struct iovec pieces[BARE_PIECES_MAX] = {
            {(uint8_t *)(uintptr_t)first_array + (size_t)first * first_bytes, (size_t)count * first_bytes},
            {(uint8_t *)(uintptr_t)second_array + (size_t)first * second_bytes,
             (size_t)count * second_bytes}};
        c->call.header.first = first;
        bare_socket_add(&c->socket, &c->call.header, pieces, second_bytes > 0 ? 2 : 1);
    }
}

static void send_empty(struct client *c)
{
    begin_call(c, BARE_EMPTY, 0, 1, 0, NULL);
    bare_socket_add(&c->socket, &c->call.header, NULL, 0);
}

static void send_pull(struct client *c)
{
    begin_call(c, BARE_PULL, ROWS, ROWS, ROW_BYTES, c->answer);
    send_items(c, c->keys, sizeof(c->keys[0]), NULL, 0, c->socket.payload_bytes_max / ROW_BYTES);
}

static void send_bags(struct client *c)
{
    begin_call(c, BARE_BAGS, BAGS, BAGS, ROW_BYTES, c->answer);
    send_items(c, c->keys, BARE_BAG_KEYS * sizeof(c->keys[0]), NULL, 0,
               c->socket.payload_bytes_max / ROW_BYTES);
}

static void send_rows(struct client *c, enum bare_op op)
{
    begin_call(c, op, ROWS, 1, 0, NULL);
    send_items(c, c->keys, sizeof(c->keys[0]), c->rows, ROW_BYTES, 1);
}

static void send_push(struct client *c)
{
    send_rows(c, BARE_PUSH);
}

static void send_set(struct client *c)
{
    send_rows(c, BARE_SET);
}

static void send_pull_variable(struct client *c)
{
    begin_call(c, BARE_PULL_VARIABLE, 0, BARE_VARIABLE_FLOATS, sizeof(float), c->pulled);
    bare_socket_add(&c->socket, &c->call.header, NULL, 0);
}

static void send_push_variable(struct client *c)
{
    begin_call(c, BARE_PUSH_VARIABLE, BARE_VARIABLE_FLOATS, 1, 0, NULL);
    send_items(c, c->variable, sizeof(float), NULL, 0, 2);
}

/* ---- what is measured ---- */

static double timed_call(struct client *c, void (*send)(struct client *c))
{
    for (;;) {
        double start = bench_now_us();
        send(c);
        bare_socket_flush(&c->socket);
        if (wait_for_answer(c))
            return bench_now_us() - start;
        if (++c->lost > LOST_MAX)
            bench_give_up("the server does not answer");
    }
}

static void measure(struct client *c, const char *name, void (*send)(struct client *c), uint32_t runs,
                    double bytes)
{
    double *us = bench_allocate(runs * sizeof(*us)), total = 0;
    for (uint32_t i = 0; i < WARM_UP_RUNS; i++)
        (void)timed_call(c, send);
    for (uint32_t i = 0; i < runs; i++)
        total += us[i] = timed_call(c, send);
    if (bytes > 0)
        bench_print_rate(name, bytes * runs / total, "MB/s", runs);
    else
        bench_print_latency(name, us, runs);
    free(us);
}

static void count_answer(void *arg, const struct bare_header *header, const void *payload, uint32_t bytes)
{
    (void)arg, (void)header, (void)payload, (void)bytes;
}

static void measure_empty_many(struct client *c, uint32_t runs)
{
    uint64_t done = 0;
    uint32_t in_flight = 0;
    double start = bench_now_us(), heard = start;
    while (done < (uint64_t)runs * OUTSTANDING) {
        for (; in_flight < OUTSTANDING; in_flight++)
            send_empty(c);
        bare_socket_flush(&c->socket);
        uint32_t answers = bare_socket_receive(&c->socket, count_answer, c);
        if (answers > 0)
            heard = bench_now_us();
        else if (sched_yield() == 0 && bench_now_us() - heard > LOST_AFTER_US)
            bench_give_up("the server does not answer");
        in_flight -= answers < in_flight ? answers : in_flight;
        done += answers;
    }
    bench_print_rate("empty_call_64", (double)done / (bench_now_us() - start) * 1e6, "calls/s", done);
}

static void bare_client_fill(struct client *c)
{
    bench_keys_dense(c->keys, ROWS, BARE_TABLE_KEYS);
    for (uint32_t i = 0; i < ROWS * BARE_DIM; i++)
        c->rows[i] = 1e-3f * (float)((int)(i % 7) - 3);
    c->variable = bench_allocate(BARE_VARIABLE_FLOATS * sizeof(float));
    c->pulled = bench_allocate(BARE_VARIABLE_FLOATS * sizeof(float));
}

static bool parse_server(const char *text, struct sockaddr_in *out)
{
    char ip[64];
    unsigned port;
    out->sin_family = AF_INET;
    if (sscanf(text, "%63[^:]:%u", ip, &port) != 2 || port > UINT16_MAX)
        return false;
    out->sin_port = htons((uint16_t)port);
    return inet_pton(AF_INET, ip, &out->sin_addr) == 1;
}

int main(int argc, char **argv)
{
    static struct client c;
    struct sockaddr_in server = {0};
    uint32_t mtu = 1500;
    c.runs = 500;
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--server") == 0 && !parse_server(argv[i + 1], &server))
            server.sin_port = 0;
        else if (strcmp(argv[i], "--mtu") == 0)
            mtu = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--runs") == 0)
            c.runs = (uint32_t)strtoul(argv[i + 1], NULL, 10);
    if (server.sin_port == 0 || mtu < 1280 || mtu > 9000 || c.runs == 0) {
        fprintf(stderr, "usage: bare_client --server IP:PORT [--mtu N] [--runs N]\n");
        return 2;
    }
    bare_socket_open(&c.socket, mtu);
    c.socket.peer = server;
    bare_client_fill(&c);
    const double variable_bytes = BARE_VARIABLE_FLOATS * sizeof(float);
    measure(&c, "empty_call_1", send_empty, c.runs * 40, 0);
    measure_empty_many(&c, c.runs * 200);
    measure(&c, "pull_13312x16", send_pull, c.runs, 0);
    measure(&c, "push_13312x16", send_push, c.runs, 0);
    measure(&c, "set_13312x16", send_set, c.runs, 0);
    measure(&c, "bags_512x26", send_bags, c.runs, 0);
    measure(&c, "pull_8mb", send_pull_variable, c.runs / 10 + 1, variable_bytes);
    measure(&c, "push_8mb", send_push_variable, c.runs / 10 + 1, variable_bytes);
    if (c.lost > 0)
        fprintf(stderr, "bare_client: %u calls were lost and made again\n", c.lost);
    return 0;
}
