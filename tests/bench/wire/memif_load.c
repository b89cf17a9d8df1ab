/* Drives a server over memif, where the server and not a virtual network is the limit. One JSON object per
 * line:
 *   memif_echo           empty calls a second
 *   memif_lookup_1       lookups of one key a second
 *   memif_lookup_large   keys a second, in calls of 8192 keys
 * or, with --only noise, which is for a server of several cores:
 *   memif_noise          packets that the server has taken, by turns for each core, and answered none of
 *
 *   memif_load --socket /path/memif.sock --server 10.99.0.1:7700 [--mtu 9000] [--keys 1000000] [--seconds 3]
 *              [--only echo|noise] [--cores 1]
 *
 * The table is made here and filled through PushGrad so that each row tells its key; answers are checked by
 * it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/format/mr_feature.h"
#include "tests/bench/wire/dpdk_client.h"

#define DIM             16u
#define TABLE_NAME      "bench_memif"
#define SESSIONS        4u
#define LARGE_KEYS      8192u
#define LARGE_IN_FLIGHT 8u
#define CALL_US         10000000u
#define NOISE_PACKETS   30000u
#define KEY_STEP        0x9e3779b97f4a7c15u /* keys are spread over the whole 64-bit space */

struct load;
typedef bool (*next_call)(struct load *load, struct mr_client_session *session);

struct load {
    struct dpdk_client *client;
    struct mr_client_session *sessions[SESSIONS];
    uint64_t key_count, state;
    uint16_t table;
    uint32_t keys_per_call, in_flight;
    next_call next;          /* what follows on an answer; NULL = nothing */
    uint32_t idle[SESSIONS]; /* calls that found no room, to be begun later */
    uint64_t calls_done;
    uint64_t filled;
    bool pushing;      /* the second pass of filling */
    uint32_t reply_id; /* of CREATE */
};

__attribute__((noreturn)) static void give_up(const char *what)
{
    fprintf(stderr, "memif_load: %s\n", what);
    exit(1);
}

static uint64_t random_next(struct load *load)
{
    load->state ^= load->state << 13;
    load->state ^= load->state >> 7;
    load->state ^= load->state << 17;
    return load->state;
}

static uint64_t key_at(uint64_t index)
{
    return (index + 1) * KEY_STEP;
}

/* What every element of the key's row is: exact in a float. */
static float value_at(uint64_t index)
{
    return (float)(index & 0xffff) + 1.0f;
}

/* ---- calls ---- */

static struct mr_call *memif_load_begin(struct load *load, struct mr_client_session *session, enum mr_op op,
                                        uint16_t table, uint64_t user, struct mr_tensor *tensors,
                                        uint32_t count)
{
    struct mr_call_options options = {.op = (uint8_t)op,
                                      .table = table,
                                      .deadline_us = dp_now_us() + CALL_US,
                                      .user = (void *)(uintptr_t)user};
    struct mr_call *call;
    if (mr_call_begin(dpdk_client_endpoint(load->client), session, &options, tensors, count, &call) != MR_OK)
        return NULL;
    load->in_flight++;
    return call;
}

static void load_send(struct load *load, struct mr_call *call)
{
    mr_call_send(dpdk_client_endpoint(load->client), call, dp_now_us());
}

static bool next_echo(struct load *load, struct mr_client_session *session)
{
    struct mr_call *call = memif_load_begin(load, session, MR_OP_ECHO, 0, 0, NULL, 0);
    if (call != NULL)
        load_send(load, call);
    return call != NULL;
}

static bool next_lookup(struct load *load, struct mr_client_session *session)
{
    struct mr_tensor keys = mr_tensor_1d(MR_U64, load->keys_per_call, NULL);
    uint64_t first = random_next(load) % load->key_count;
    struct mr_call *call = memif_load_begin(load, session, MR_OP_LOOKUP, load->table, first + 1, &keys, 1);
    if (call == NULL)
        return false;
    uint64_t *key = keys.data;
    key[0] = key_at(first);
    for (uint32_t i = 1; i < load->keys_per_call; i++)
        key[i] = key_at(random_next(load) % load->key_count);
    load_send(load, call);
    return true;
}

/* The next keys in order; a lookup is what makes a key's row. */
static struct mr_call *begin_fill(struct load *load, struct mr_client_session *session, uint32_t count,
                                  struct mr_tensor **keys, struct mr_tensor tensors[4])
{
    tensors[0] = mr_tensor_1d(MR_U32, 4, NULL);
    tensors[1] = mr_tensor_1d(MR_U64, count, NULL);
    tensors[2] = mr_tensor_1d(MR_U32, 0, NULL);
    tensors[3] = mr_tensor_2d(MR_F32, count, DIM, NULL);
    *keys = &tensors[1];
    if (load->pushing)
        return memif_load_begin(load, session, MR_OP_PUSH_GRAD, 0, 0, tensors, 4);
    return memif_load_begin(load, session, MR_OP_LOOKUP, load->table, 0, *keys, 1);
}

static bool next_fill(struct load *load, struct mr_client_session *session)
{
    uint64_t left = load->key_count - load->filled;
    uint32_t count = left < LARGE_KEYS ? (uint32_t)left : LARGE_KEYS;
    struct mr_tensor tensors[4], *keys;
    if (count == 0)
        return true;
    struct mr_call *call = begin_fill(load, session, count, &keys, tensors);
    if (call == NULL)
        return false;
    uint64_t *key = keys->data;
    for (uint32_t i = 0; i < count; i++)
        key[i] = key_at(load->filled + i);
    if (load->pushing) {
        float *gradient = tensors[3].data;
        memcpy(tensors[0].data, ((const uint32_t[4]){load->table}), 4 * sizeof(uint32_t));
        for (uint32_t i = 0; i < count * DIM; i++)
            gradient[i] = -value_at(load->filled + i / DIM);
    }
    load->filled += count;
    load_send(load, call);
    return true;
}

static void check_rows(const struct load *load, const struct mr_message *reply, uint64_t first)
{
    if (reply->preamble.tensor_count != 1 ||
        reply->tensors[0].bytes != (uint64_t)load->keys_per_call * DIM * sizeof(float))
        give_up("a lookup's answer has the wrong shape");
    const float *row = reply->tensors[0].data;
    if (row[0] != value_at(first) || row[DIM - 1] != value_at(first))
        give_up("a lookup's answer is not the row that was pushed");
}

static void on_reply(void *app, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply)
{
    struct load *load = app;
    uint64_t first = (uint64_t)(uintptr_t)user;
    if (status != MR_OK)
        give_up(mr_status_text(status));
    if (reply->preamble.status != MR_OK)
        give_up(mr_status_text((enum mr_status)reply->preamble.status));
    if (first != 0)
        check_rows(load, reply, first - 1);
    if (reply->preamble.op == MR_OP_CREATE)
        load->reply_id = *(const uint32_t *)reply->tensors[0].data;
    mr_call_free(dpdk_client_endpoint(load->client), call);
    load->in_flight--;
    load->calls_done++;
    if (load->next != NULL)
        load->idle[load->calls_done % SESSIONS]++;
}

/* Begins what the answers since the last turn have made room for. */
static void refill(struct load *load)
{
    for (uint32_t s = 0; s < SESSIONS && load->next != NULL; s++)
        while (load->idle[s] > 0 && load->next(load, load->sessions[s]))
            load->idle[s]--;
}

static void drain(struct load *load)
{
    load->next = NULL;
    memset(load->idle, 0, sizeof(load->idle));
    while (load->in_flight > 0)
        dpdk_client_turn(load->client);
}

/* Keeps `per_session` calls of a kind in flight for `seconds`; returns calls a second. */
static double measure(struct load *load, next_call next, uint32_t per_session, double seconds)
{
    uint64_t start_us = dp_now_us(), end_us = start_us + (uint64_t)(seconds * 1e6),
             warm_us = start_us + 200000;
    uint64_t counted_from_us = 0, counted_from = 0;
    load->next = next;
    for (uint32_t s = 0; s < SESSIONS; s++)
        load->idle[s] = per_session;
    for (uint64_t now_us = start_us; now_us < end_us; now_us = dp_now_us()) {
        if (counted_from_us == 0 && now_us >= warm_us) {
            counted_from_us = now_us;
            counted_from = load->calls_done;
        }
        refill(load);
        dpdk_client_turn(load->client);
    }
    double rate = (double)(load->calls_done - counted_from) / (double)(dp_now_us() - counted_from_us) * 1e6;
    drain(load);
    return rate;
}

/* ---- set-up ---- */

static void make_table(struct load *load)
{
    struct mr_feature feature = mr_feature_table(TABLE_NAME, DIM);
    struct mr_tensor tensor = mr_tensor_2d(MR_U8, 1, sizeof(feature), &feature);
    feature.optimizer = MR_OPT_SGD;
    feature.learning_rate = 1.0f;
    struct mr_call *call = memif_load_begin(load, load->sessions[0], MR_OP_CREATE, 0, 0, &tensor, 1);
    if (call == NULL)
        give_up("no room for a call");
    load_send(load, call);
    drain(load);
    load->table = (uint16_t)load->reply_id;
}

static void fill_pass(struct load *load, bool pushing)
{
    load->filled = 0;
    load->pushing = pushing;
    load->next = next_fill;
    for (uint32_t s = 0; s < SESSIONS; s++)
        load->idle[s] = 2;
    while (load->filled < load->key_count) {
        refill(load);
        dpdk_client_turn(load->client);
    }
    drain(load);
}

static void open_sessions(struct load *load, uint32_t cores)
{
    struct mr_client_session_info info;
    for (uint32_t s = 0; s < SESSIONS; s++) {
        if (mr_client_session_open(dpdk_client_endpoint(load->client), dpdk_client_server(load->client), 0,
                                   NULL, &load->sessions[s]) != MR_OK)
            give_up("no session");
        if (!next_echo(load, load->sessions[s]))
            give_up("no room for a call");
    }
    drain(load);
    mr_client_session_info(load->sessions[0], &info);
    if (info.core_count != cores)
        give_up("the server has not as many cores as --cores says");
}

/* What the server does not know, and drops: only the buffers that its cores give back make room for more. */
static void send_noise(struct load *load, uint16_t cores)
{
    static const uint8_t noise[64];
    uint64_t progress_us = dp_now_us();
    for (uint32_t sent = 0; sent < NOISE_PACKETS;) {
        if (dpdk_client_inject(load->client, (uint16_t)(sent % cores), NULL, 0, noise, sizeof(noise))) {
            progress_us = dp_now_us();
            sent++;
        } else if (dp_now_us() - progress_us > CALL_US) {
            give_up("the server takes no more packets");
        }
        if (sent % 32 == 0)
            dpdk_client_turn(load->client);
    }
}

static void print_rate(const char *name, double value, const char *unit)
{
    printf("{\"name\": \"%s\", \"value\": %.0f, \"unit\": \"%s\"}\n", name, value, unit);
    fflush(stdout);
}

struct options {
    const char *socket, *only;
    char ip[64];
    unsigned port;
    uint16_t cores;
    uint32_t mtu;
    uint64_t keys;
    double seconds;
};

static struct options memif_load_parse(int argc, char **argv)
{
    struct options o = {
        .socket = "", .only = "", .cores = 1, .mtu = DP_MTU_MAX, .keys = 1000000, .seconds = 3.0};
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--socket") == 0)
            o.socket = argv[i + 1];
        else if (strcmp(argv[i], "--server") == 0 && sscanf(argv[i + 1], "%63[^:]:%u", o.ip, &o.port) != 2)
            o.port = 0;
        else if (strcmp(argv[i], "--keys") == 0)
            o.keys = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--mtu") == 0)
            o.mtu = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seconds") == 0)
            o.seconds = strtod(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--only") == 0)
            o.only = argv[i + 1];
        else if (strcmp(argv[i], "--cores") == 0)
            o.cores = (uint16_t)strtoul(argv[i + 1], NULL, 10);
    if (o.socket[0] == '\0' || o.cores == 0 || o.port == 0 || o.port > UINT16_MAX || o.keys < LARGE_KEYS ||
        !(o.seconds > 0.3)) {
        fprintf(stderr, "usage: memif_load --socket PATH --server IP:PORT [--mtu N] [--keys N] [--seconds S] "
                        "[--only echo|noise] [--cores N]\n");
        exit(2);
    }
    return o;
}

static struct dpdk_client *connect_client(const struct options *o, struct load *load)
{
    struct mr_endpoint_config endpoint;
    struct dp_config config;
    dp_config_default(&config);
    snprintf(config.file_prefix, sizeof(config.file_prefix), "millrace-load-%d", (int)getpid());
    snprintf(config.device, sizeof(config.device), "%s", o->socket);
    snprintf(config.ipv4, sizeof(config.ipv4), "10.99.0.250/24");
    snprintf(config.mac, sizeof(config.mac), "02:00:00:00:00:fa");
    config.driver = DP_DRIVER_MEMIF;
    config.mtu = (uint16_t)o->mtu; /* as the server's */
    config.memif_client = true;
    config.udp_port = 40000;
    mr_endpoint_config_default(&endpoint);
    endpoint.app = load;
    endpoint.on_reply = on_reply;
    endpoint.memory_bytes = (size_t)256 << 20;
    endpoint.bundle_bytes_max = DP_BUNDLE_BYTES_MAX;
    endpoint.receive_window_bytes = 1u << 20;
    return dpdk_client_create(&config, &endpoint, o->ip, (uint16_t)o->port);
}

int main(int argc, char **argv)
{
    struct options o = memif_load_parse(argc, argv);
    struct load load = {.state = 88172645463325252u, .key_count = o.keys};
    load.client = connect_client(&o, &load);
    open_sessions(&load, o.cores);
    if (strcmp(o.only, "noise") == 0) {
        send_noise(&load, o.cores);
        print_rate("memif_noise", NOISE_PACKETS, "packets");
    }
    print_rate("memif_echo", measure(&load, next_echo, MR_WINDOW_MAX, o.seconds), "calls/s");
    if (o.only[0] == '\0') {
        make_table(&load);
        fill_pass(&load, false);
        fill_pass(&load, true);
        load.keys_per_call = 1;
        print_rate("memif_lookup_1", measure(&load, next_lookup, MR_WINDOW_MAX, o.seconds), "calls/s");
        load.keys_per_call = LARGE_KEYS;
        print_rate("memif_lookup_large",
                   measure(&load, next_lookup, LARGE_IN_FLIGHT / SESSIONS, o.seconds) * LARGE_KEYS, "keys/s");
    }
    for (uint32_t s = 0; s < SESSIONS; s++)
        mr_client_session_close(dpdk_client_endpoint(load.client), load.sessions[s], dp_now_us());
    dpdk_client_turn(load.client);
    dpdk_client_destroy(load.client);
    return 0;
}
