/* What a datagram costs between the port and the transport, in time: the checks of a frame that comes in,
 * with and without the sum over its payload, beside the tag and the copy that follow; the headers of one that
 * goes out, likewise.
 *
 *   bench_frame
 *
 * "cold" frames come from memory, as a card leaves them; "hot" ones from the cache, as another core leaves
 * them. The smallest of many runs counts, so that a shared machine does not spoil it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/net/frame.h"
#include "dataplane/wire/session/auth.h"

#define FRAME_ROOM  2048u
#define COLD_FRAMES 16384u /* 32 MiB */
#define HOT_FRAMES  8u
#define ROUNDS      400u

static struct dp_net net = {
    .has_ipv4 = true, .ipv4 = {10, 0, 0, 1}, .mtu = 1500, .udp_port = 7700, .core_count = 1};
static uint8_t *frames;
static uint32_t payload_bytes, frame_count;
static volatile uint64_t sink;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct mr_address to_client(void)
{
    struct mr_address to = {.port = 40000};
    struct dp_path path = {.peer_mac = {2, 0, 0, 0, 0, 2}, .local_port = 7700, .local = DP_LOCAL_IPV4};
    to.ip[10] = to.ip[11] = 0xff;
    memcpy(to.ip + 12, (const uint8_t[]){10, 0, 0, 2}, 4);
    dp_path_set(&to, &path);
    return to;
}

/* A frame from the client: what the server would send, seen from the other side. */
static void make_frame(uint8_t *frame, const struct mr_tag_key *key)
{
    struct dp_net client = {.has_ipv4 = true, .ipv4 = {10, 0, 0, 2}, .mtu = 1500};
    struct dp_path path = {.local_port = 40000, .local = DP_LOCAL_IPV4};
    struct mr_address to = {.port = 7700};
    memcpy(path.peer_mac, net.mac, 6);
    dp_net_set_mac(&client, (const uint8_t[]){2, 0, 0, 0, 0, 2});
    to.ip[10] = to.ip[11] = 0xff;
    memcpy(to.ip + 12, net.ipv4, 4);
    dp_path_set(&to, &path);
    uint8_t *payload = frame + dp_frame_header_bytes(&to);
    for (uint32_t i = 0; i < payload_bytes; i++)
        payload[i] = (uint8_t)rand();
    mr_tag_write(key, payload, payload_bytes);
    dp_frame_build(&client, &to, frame, payload_bytes, DP_CHECKSUMS_HERE);
}

struct job {
    const struct mr_tag_key *key;
    struct dp_checked checked;
    enum dp_checksums checksums;
};

static void receive(const struct job *job, uint8_t *frame)
{
    static uint8_t copy[FRAME_ROOM];
    struct dp_frame out;
    if (dp_frame_parse(&net, frame, payload_bytes + 42u, job->checked, &out) != DP_FRAME_UDP)
        abort();
    if (!mr_tag_verify(job->key, out.payload, out.payload_bytes))
        abort();
    memcpy(copy, out.payload, out.payload_bytes);
    sink = sink + copy[out.payload_bytes - 1];
}

static void transmit(const struct job *job, uint8_t *frame)
{
    struct mr_address to = to_client();
    static uint8_t message[FRAME_ROOM];
    memcpy(frame + 42, message, payload_bytes);
    mr_tag_write(job->key, frame + 42, payload_bytes);
    dp_frame_build(&net, &to, frame, payload_bytes, job->checksums);
}

/* Nanoseconds per frame, of the best round. */
static double best(void (*work)(const struct job *, uint8_t *), const struct job *job)
{
    uint32_t per_round = frame_count > HOT_FRAMES ? frame_count : HOT_FRAMES * 64;
    uint32_t rounds = frame_count > HOT_FRAMES ? 12 : ROUNDS;
    double least = 1e9;
    for (uint32_t round = 0; round < rounds; round++) {
        uint64_t start = now_ns();
        for (uint32_t i = 0; i < per_round; i++)
            work(job, frames + (size_t)(i % frame_count) * FRAME_ROOM);
        double each = (double)(now_ns() - start) / per_round;
        least = each < least ? each : least;
    }
    return least;
}

static void make_frames(uint32_t count, const struct mr_tag_key *key)
{
    frame_count = count;
    for (uint32_t i = 0; i < count; i++)
        make_frame(frames + (size_t)i * FRAME_ROOM, key);
}

static void measure(const char *name, uint32_t count, const struct mr_tag_key *key)
{
    struct job checks = {.key = key}, trusts = {.key = key, .checked = {.udp = true}};
    struct job sums = {.key = key}, leaves = {.key = key, .checksums = DP_CHECKSUMS_NO_UDP};
    make_frames(count, key);
    double with = best(receive, &checks), without = best(receive, &trusts);
    printf("{\"name\": \"receive_%u_%s\", \"ns\": %.1f, \"without_sum_ns\": %.1f, \"ratio\": %.2f}\n",
           payload_bytes, name, with, without, with / without);
    with = best(transmit, &sums);
    without = best(transmit, &leaves);
    printf("{\"name\": \"transmit_%u_%s\", \"ns\": %.1f, \"without_sum_ns\": %.1f, \"ratio\": %.2f}\n",
           payload_bytes, name, with, without, with / without);
}

int main(void)
{
    static const uint32_t sizes[] = {64, 256, 1400};
    struct mr_tag_key key = {{1, 2, 3}};
    dp_net_set_mac(&net, (const uint8_t[]){2, 0, 0, 0, 0, 1});
    frames = aligned_alloc(64, (size_t)COLD_FRAMES * FRAME_ROOM);
    if (frames == NULL)
        return 1;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        payload_bytes = sizes[i];
        measure("hot", HOT_FRAMES, &key);
        measure("cold", COLD_FRAMES, &key);
    }
    free(frames);
    return 0;
}
