/* What the transport alone costs: a client's and a server's endpoint in one thread, packets handed over by
 * memcpy.
 *
 *   bench_endpoint [seconds per row]
 *
 * Prints empty calls per second at 1, 8 and 64 outstanding, and MB/s of large replies and requests; both
 * sides' work is in each number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dataplane/wire/endpoint.h"

#define QUEUE_PACKETS  1024u
#define SEGMENT_BUDGET 64u
#define LARGE_BYTES    (8u << 20)

struct end {
    struct mr_endpoint *ep;
    struct mr_address address;
    struct end *other;
    uint32_t head, tail; /* of the packets towards this end */
    uint32_t sizes[QUEUE_PACKETS];
    uint8_t (*packets)[MR_UDP_BYTES_MAX];
    uint64_t random;
};

static struct end ends[2];
static struct mr_client_session *session;
static uint64_t ended;
static uint32_t reply_bytes;
static uint64_t now; /* of this turn */

static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Rates are per second of CPU time, so that a shared machine does not spoil them. */
static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint8_t *tx_begin(void *self, const struct mr_address *to, uint32_t bytes_max)
{
    struct end *other = ((struct end *)self)->other;
    return other->tail - other->head == QUEUE_PACKETS ? NULL : other->packets[other->tail % QUEUE_PACKETS];
}

static void tx_end(void *self, uint32_t bytes)
{
    struct end *other = ((struct end *)self)->other;
    other->sizes[other->tail % QUEUE_PACKETS] = bytes;
    other->tail += bytes > 0;
}

static void fill_random(void *self, void *out, size_t n)
{
    struct end *end = self;
    for (size_t i = 0; i < n; i++) {
        end->random = end->random * 6364136223846793005u + 1442695040888963407u;
        ((uint8_t *)out)[i] = (uint8_t)(end->random >> 56);
    }
}

static void on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, reply_bytes, NULL);
    if (reply_bytes == 0)
        mr_reply_status(ep, request->ref, MR_OK);
    else if (mr_reply_begin(ep, request->ref, MR_OK, &tensor, 1))
        mr_reply_end(ep, request->ref);
    else
        mr_reply_busy(ep, request->ref);
}

static void begin_call(uint32_t request_bytes)
{
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, request_bytes, NULL);
    struct mr_call_options options = {.op = MR_OP_ECHO, .deadline_us = UINT64_MAX};
    struct mr_call *call;
    options.deadline_us = now + 10000000;
    if (mr_call_begin(ends[0].ep, session, &options, &tensor, request_bytes > 0, &call) != MR_OK)
        abort();
    mr_call_send(ends[0].ep, call, now);
}

static uint32_t request_bytes_now;

static void on_reply(void *app, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply)
{
    if (status != MR_OK)
        abort();
    mr_call_free(ends[0].ep, call);
    ended++;
    begin_call(request_bytes_now);
}

static void turn(struct end *end)
{
    now = now_us();
    for (uint32_t burst = 0; burst < 64 && end->head != end->tail; burst++, end->head++)
        mr_endpoint_receive(end->ep, now, &end->other->address, end->packets[end->head % QUEUE_PACKETS],
                            end->sizes[end->head % QUEUE_PACKETS]);
    mr_endpoint_flush(end->ep, now);
    mr_endpoint_poll(end->ep, now, SEGMENT_BUDGET);
}

static void endpoint_start(uint32_t udp_bytes)
{
    for (int i = 0; i < 2; i++) {
        struct mr_endpoint_config config;
        struct end *end = &ends[i];
        memset(&end->address, 0, sizeof(end->address));
        end->address.port = (uint16_t)(i + 1);
        end->head = end->tail = 0;
        end->random = (uint64_t)i;
        end->other = &ends[1 - i];
        mr_endpoint_config_default(&config);
        config.io = (struct mr_endpoint_io){end, tx_begin, tx_end, fill_random};
        config.on_request = i == 1 ? on_request : NULL;
        config.on_reply = i == 0 ? on_reply : NULL;
        config.udp_bytes_max = udp_bytes;
        config.memory_bytes = (size_t)256 << 20;
        config.psk_count = 1;
        if (mr_endpoint_create(&config, &end->ep) != MR_OK)
            abort();
    }
    if (mr_client_session_open(ends[0].ep, &ends[1].address, 0, NULL, &session) != MR_OK)
        abort();
}

static void endpoints_stop(void)
{
    mr_endpoint_destroy(ends[0].ep);
    mr_endpoint_destroy(ends[1].ep);
}

static double endpoint_run(uint32_t udp_bytes, uint32_t outstanding, uint32_t request_bytes, double seconds)
{
    now = now_us();
    endpoint_start(udp_bytes);
    ended = 0;
    request_bytes_now = request_bytes;
    for (uint32_t i = 0; i < outstanding; i++)
        begin_call(request_bytes);
    while (ended < outstanding) {
        turn(&ends[0]);
        turn(&ends[1]);
    }
    uint64_t until = now_us() + (uint64_t)(seconds * 1e6), first = ended;
    double from = cpu_seconds();
    while (now_us() < until) {
        turn(&ends[0]);
        turn(&ends[1]);
    }
    double rate = (double)(ended - first) / (cpu_seconds() - from);
    endpoints_stop();
    return rate;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 1.0;
    for (int i = 0; i < 2; i++)
        ends[i].packets = malloc(QUEUE_PACKETS * sizeof(*ends[i].packets));
    for (uint32_t outstanding = 1; outstanding <= 64; outstanding *= 8) {
        reply_bytes = 0;
        printf("empty calls, %2u outstanding:        %8.0f k/s\n", outstanding,
               endpoint_run(1472, outstanding, 0, seconds) / 1e3);
    }
    reply_bytes = 256;
    printf("replies of 256 B, 64 outstanding:    %8.0f k/s\n", endpoint_run(1472, 64, 64, seconds) / 1e3);
    static const uint32_t udp_bytes[] = {1472, MR_UDP_BYTES_MAX};
    for (int i = 0; i < 2; i++) {
        reply_bytes = LARGE_BYTES;
        printf("replies of 8 MB, datagrams %4u B:   %8.0f MB/s\n", udp_bytes[i],
               endpoint_run(udp_bytes[i], 2, 0, seconds) * LARGE_BYTES / 1e6);
        reply_bytes = 0;
        printf("requests of 8 MB, datagrams %4u B:  %8.0f MB/s\n", udp_bytes[i],
               endpoint_run(udp_bytes[i], 2, LARGE_BYTES, seconds) * LARGE_BYTES / 1e6);
    }
    free(ends[0].packets);
    free(ends[1].packets);
    return 0;
}
