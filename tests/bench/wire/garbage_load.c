/* Garbage at full speed over memif into a real server, while calls go on. Ends badly when a call fails, when
 * anything is answered that must not be, or when what the server counted is not what was sent.
 *
 *   garbage_load --socket /path/memif.sock --server 10.99.0.1:7700 [--packets 10000000] [--seconds 1]
 *
 * Five kinds in turn, made from the datagrams of the calls in flight:
 *   noise      bytes of no meaning in a good UDP datagram
 *   cut        the second half missing
 *   forged     the session's own id and address, a number yet to come, and a wrong tag
 *   stranger   a good datagram from another address
 *   replayed   a good datagram once more
 *
 * First one call each of some sessions goes on alone for `seconds`, then with `packets` of garbage between,
 * then the garbage comes alone and must stay without an answer. Prints one JSON object:
 *   calls_per_s_alone, calls_per_s, garbage_per_s
 *   share               garbage among all packets that went to the server
 *   dropped_by_reason   what the server counted during the second part, of the reasons that rose
 *   unanswered          packets of the third part, which brought no answer */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/format/packet.h"
#include "tests/bench/wire/dpdk_client.h"

#define SESSIONS       16u
#define KEPT           64u /* datagrams of the calls, the latest */
#define KEPT_BYTES     512u
#define BURST          32u
#define NOISE_BYTES    1400u
#define CALL_US        10000000u
#define COUNTERS_MAX   256u
#define NAME_BYTES     48u
#define UNANSWERED     100000u
#define SPARE_ANSWERS  16u
#define STRANGERS_PORT 40001u

enum kind { NOISE, CUT, FORGED, STRANGER, REPLAYED, KINDS };

struct datagram {
    uint8_t bytes[KEPT_BYTES];
    uint32_t size;
};

struct counter {
    char name[NAME_BYTES];
    uint64_t value;
};

struct counters {
    struct counter list[COUNTERS_MAX];
    uint32_t count;
};

struct load {
    struct dpdk_client *client;
    struct mr_client_session *sessions[SESSIONS];
    uint32_t idle[SESSIONS], in_flight;
    bool calling; /* another call follows on each answer */
    uint64_t calls_done, state;
    struct datagram kept[KEPT];
    uint64_t seen, kept_count;
    uint64_t sent[KINDS];
    uint64_t noise_short; /* too short for a header */
    struct dp_net stranger;
    struct counters *stats; /* filled by the answer to STATS */
};

__attribute__((noreturn)) static void give_up(const char *what)
{
    fprintf(stderr, "garbage_load: %s\n", what);
    exit(1);
}

/* xorshift64* (Vigna, 2016). */
static uint64_t random_next(struct load *load)
{
    load->state ^= load->state >> 12;
    load->state ^= load->state << 25;
    load->state ^= load->state >> 27;
    return load->state * UINT64_C(0x2545f4914f6cdd1d);
}

/* ---- calls ---- */

static bool garbage_load_begin(struct load *load, uint32_t session, enum mr_op op)
{
    struct mr_endpoint *endpoint = dpdk_client_endpoint(load->client);
    uint64_t now_us = dp_now_us();
    struct mr_call_options options = {
        .op = (uint8_t)op, .deadline_us = now_us + CALL_US, .user = (void *)(uintptr_t)session};
    struct mr_call *call;
    if (mr_call_begin(endpoint, load->sessions[session], &options, NULL, 0, &call) != MR_OK)
        return false;
    load->in_flight++;
    mr_call_send(endpoint, call, now_us);
    return true;
}

/* Names, each with a line's end, and as many values. */
static void take_stats(struct counters *out, const struct mr_message *reply)
{
    const char *name = reply->tensors[0].data, *end = name + reply->tensors[0].bytes;
    const uint64_t *values = reply->tensors[1].data;
    out->count = 0;
    while (name < end && out->count < COUNTERS_MAX) {
        const char *stop = memchr(name, '\n', (size_t)(end - name));
        struct counter *c = &out->list[out->count];
        if (stop == NULL)
            break;
        snprintf(c->name, sizeof(c->name), "%.*s", (int)(stop - name), name);
        memcpy(&c->value, &values[out->count++], sizeof(c->value));
        name = stop + 1;
    }
}

static void on_reply(void *app, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply)
{
    struct load *load = app;
    if (status != MR_OK)
        give_up(mr_status_text(status));
    if (reply->preamble.op == MR_OP_STATS && load->stats != NULL)
        take_stats(load->stats, reply);
    mr_call_free(dpdk_client_endpoint(load->client), call);
    load->in_flight--;
    load->calls_done++;
    if (load->calling)
        load->idle[(uint32_t)(uintptr_t)user]++;
}

static void call_on(struct load *load)
{
    for (uint32_t s = 0; s < SESSIONS && load->calling; s++)
        while (load->idle[s] > 0 && garbage_load_begin(load, s, MR_OP_ECHO))
            load->idle[s]--;
    dpdk_client_turn(load->client);
}

static void start_calls(struct load *load)
{
    load->calling = true;
    for (uint32_t s = 0; s < SESSIONS; s++)
        load->idle[s] = 1;
}

static void drain(struct load *load)
{
    load->calling = false;
    memset(load->idle, 0, sizeof(load->idle));
    while (load->in_flight > 0)
        dpdk_client_turn(load->client);
}

static void read_counters(struct load *load, struct counters *out)
{
    load->stats = out;
    if (!garbage_load_begin(load, 0, MR_OP_STATS))
        give_up("no room for a call");
    drain(load);
    load->stats = NULL;
}

static uint64_t counter(const struct counters *counters, const char *name)
{
    for (uint32_t i = 0; i < counters->count; i++)
        if (strcmp(counters->list[i].name, name) == 0)
            return counters->list[i].value;
    give_up("the server counts no such thing");
}

/* ---- garbage ---- */

/* Keeps the calls' own datagrams, to be damaged and repeated: one of the latest each. */
static void see(void *arg, const uint8_t *datagram, uint32_t bytes)
{
    struct load *load = arg;
    if (bytes < MR_HEADER_BYTES || bytes > KEPT_BYTES || datagram[3] != MR_PACKET_DATA)
        return;
    struct datagram *kept = &load->kept[load->seen++ % KEPT];
    memcpy(kept->bytes, datagram, bytes);
    kept->size = bytes;
    load->kept_count = load->seen < KEPT ? load->seen : KEPT;
}

static bool send_noise(struct load *load)
{
    static uint8_t noise[2 * NOISE_BYTES];
    uint64_t random = random_next(load);
    if (noise[0] == 0)
        for (size_t i = 0; i < sizeof(noise); i++)
            noise[i] = (uint8_t)(random_next(load) >> 56 | 0x80); /* no byte of the magic number */
    uint32_t bytes = (uint32_t)(random >> 32) % NOISE_BYTES;
    bool sent = dpdk_client_inject(load->client, 0, NULL, 0, noise + random % NOISE_BYTES, bytes);
    load->noise_short += sent && bytes < MR_HEADER_BYTES;
    return sent;
}

static bool send_made(struct load *load, enum kind kind)
{
    struct datagram d = load->kept[random_next(load) % load->kept_count];
    switch (kind) {
    case CUT:
        d.size /= 2;
        break;
    case FORGED:
        d.bytes[offsetof(struct mr_packet_header, number) + 5] ^= 0x40;
        d.bytes[MR_HEADER_BYTES - 1 - random_next(load) % 8] ^= 0x5a;
        break;
    case STRANGER:
        return dpdk_client_inject(load->client, 0, &load->stranger, STRANGERS_PORT, d.bytes, d.size);
    default:
        break;
    }
    return dpdk_client_inject(load->client, 0, NULL, 0, d.bytes, d.size);
}

/* Up to a burst, until the port is full. */
static void send_garbage(struct load *load, uint64_t *left)
{
    for (uint32_t i = 0; i<BURST && * left> 0; i++) {
        enum kind kind = (enum kind)(*left % KINDS);
        if (!(kind == NOISE ? send_noise(load) : send_made(load, kind)))
            return;
        load->sent[kind]++;
        --*left;
    }
}

/* ---- the three parts ---- */

static double run_alone(struct load *load, double seconds)
{
    uint64_t start_us = dp_now_us(), before = load->calls_done, now_us;
    start_calls(load);
    do {
        call_on(load);
        now_us = dp_now_us();
    } while ((double)(now_us - start_us) < seconds * 1e6);
    double rate = (double)(load->calls_done - before) / (double)(now_us - start_us) * 1e6;
    drain(load);
    return rate;
}

struct outcome {
    double calls_per_s, garbage_per_s, share;
};

static struct outcome run_among_garbage(struct load *load, uint64_t packets)
{
    const struct mr_wire_counters *wire = mr_endpoint_counters(dpdk_client_endpoint(load->client));
    uint64_t start_us = dp_now_us(), before = load->calls_done, sent_before = wire->tx_packets;
    uint64_t left = packets;
    start_calls(load);
    while (left > 0) {
        call_on(load);
        send_garbage(load, &left);
    }
    double took_s = (double)(dp_now_us() - start_us) / 1e6;
    struct outcome o = {.calls_per_s = (double)(load->calls_done - before) / took_s,
                        .garbage_per_s = (double)packets / took_s,
                        .share = (double)packets / (double)(packets + wire->tx_packets - sent_before)};
    drain(load);
    return o;
}

/* Nothing is in flight. What comes back beyond the answer to a STATS call is an answer to garbage; a few more
 * for an acknowledgement that had to be repeated. */
static void run_unanswered(struct load *load)
{
    struct counters ignored;
    uint64_t left = UNANSWERED, start = dpdk_client_received(load->client);
    read_counters(load, &ignored);
    uint64_t due = dpdk_client_received(load->client) - start;
    start += due;
    while (left > 0) {
        send_garbage(load, &left);
        dpdk_client_turn(load->client);
    }
    read_counters(load, &ignored); /* comes behind the garbage, and so does its answer */
    if (dpdk_client_received(load->client) - start > due + SPARE_ANSWERS)
        give_up("garbage was answered");
}

/* What was sent must have been counted, each under its reason. */
static void check_counted(const struct load *load, const struct counters *before,
                          const struct counters *after)
{
    const struct {
        const char *name;
        uint64_t sent;
    } expected[] = {
        {"wire.drop_short", load->sent[CUT] + load->noise_short},
        {"wire.drop_magic", load->sent[NOISE] - load->noise_short},
        {"wire.drop_tag", load->sent[FORGED]},
        {"wire.drop_repeated", load->sent[REPLAYED]},
        {"wire.drop_session", load->sent[STRANGER]},
    };

    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        uint64_t counted = counter(after, expected[i].name) - counter(before, expected[i].name);
        if (counted != expected[i].sent) {
            fprintf(stderr, "garbage_load: %s rose by %" PRIu64 " instead of %" PRIu64 "\n", expected[i].name,
                    counted, expected[i].sent);
            exit(1);
        }
    }
}

static void print_dropped(const struct counters *before, const struct counters *after)
{
    const char *separator = "";
    printf("\"dropped_by_reason\": {");
    for (uint32_t i = 0; i < after->count; i++) {
        const struct counter *c = &after->list[i];
        uint64_t rose = c->value - (i < before->count ? before->list[i].value : 0);
        if (rose == 0 ||
            (strncmp(c->name, "wire.drop_", 10) != 0 && strcmp(c->name, "wire.calls_replayed") != 0))
            continue;
        printf("%s\"%s\": %" PRIu64, separator, c->name, rose);
        separator = ", ";
    }
    printf("}");
}

static void garbage_load_run(struct load *load, double seconds, uint64_t packets)
{
    static struct counters before, after;
    double alone = run_alone(load, seconds);
    read_counters(load, &before);
    struct outcome o = run_among_garbage(load, packets);
    read_counters(load, &after);
    check_counted(load, &before, &after);
    run_unanswered(load);
    printf("{\"name\": \"garbage\", \"garbage_per_s\": %.0f, \"calls_per_s\": %.0f, \"calls_per_s_alone\": "
           "%.0f, "
           "\"share\": %.4f, ",
           o.garbage_per_s, o.calls_per_s, alone, o.share);
    print_dropped(&before, &after);
    printf(", \"unanswered\": %u}\n", UNANSWERED);
}

/* ---- set-up ---- */

struct options {
    const char *socket;
    char ip[64];
    unsigned port;
    uint64_t packets;
    double seconds;
};

static struct options garbage_load_parse(int argc, char **argv)
{
    struct options o = {.socket = "", .packets = 10000000, .seconds = 1.0};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--json") == 0)
            continue; /* the only way there is */
        if (strcmp(argv[i], "--socket") == 0)
            o.socket = value;
        else if (strcmp(argv[i], "--server") == 0 && sscanf(value, "%63[^:]:%u", o.ip, &o.port) != 2)
            o.port = 0;
        else if (strcmp(argv[i], "--packets") == 0)
            o.packets = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--seconds") == 0)
            o.seconds = strtod(value, NULL);
        i++;
    }
    if (o.socket[0] == '\0' || o.port == 0 || o.port > UINT16_MAX || o.packets < KINDS || !(o.seconds > 0)) {
        fprintf(stderr,
                "usage: garbage_load --socket PATH --server IP:PORT [--packets N] [--seconds S] [--json]\n");
        exit(2);
    }
    return o;
}

static void connect_client(const struct options *o, struct load *load)
{
    struct mr_endpoint_config endpoint;
    struct dp_config config;
    char error[DP_ERROR_BYTES];
    dp_config_default(&config);
    snprintf(config.file_prefix, sizeof(config.file_prefix), "millrace-garbage-%d", (int)getpid());
    snprintf(config.device, sizeof(config.device), "%s", o->socket);
    snprintf(config.ipv4, sizeof(config.ipv4), "10.99.0.251/24");
    snprintf(config.mac, sizeof(config.mac), "02:00:00:00:00:fb");
    config.driver = DP_DRIVER_MEMIF;
    config.memif_client = true;
    config.udp_port = 40000;
    mr_endpoint_config_default(&endpoint);
    endpoint.app = load;
    endpoint.on_reply = on_reply;
    load->client = dpdk_client_create(&config, &endpoint, o->ip, (uint16_t)o->port);
    dpdk_client_watch(load->client, see, load);
    snprintf(config.ipv4, sizeof(config.ipv4), "10.99.0.77/24");
    if (!dp_net_from_config(&load->stranger, &config, error))
        give_up(error);
}

int main(int argc, char **argv)
{
    struct options o = garbage_load_parse(argc, argv);
    struct load *load = calloc(1, sizeof(*load));
    if (load == NULL)
        give_up("no memory");
    load->state = 88172645463325252u;
    connect_client(&o, load);
    for (uint32_t s = 0; s < SESSIONS; s++)
        if (mr_client_session_open(dpdk_client_endpoint(load->client), dpdk_client_server(load->client), 0,
                                   NULL, &load->sessions[s]) != MR_OK)
            give_up("no session");
    garbage_load_run(load, o.seconds, o.packets);
    for (uint32_t s = 0; s < SESSIONS; s++)
        mr_client_session_close(dpdk_client_endpoint(load->client), load->sessions[s], dp_now_us());
    dpdk_client_turn(load->client);
    dpdk_client_destroy(load->client);
    free(load);
    return 0;
}
