#include "dataplane/wire/endpoint.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "dataplane/wire/endpoint_internal.h"
#include "dataplane/wire/session/key_memory.h"
#include "dataplane/wire/format/capability.h"

#define SESSIONS_DEFAULT       1024u
#define CALLS_DEFAULT          4096u
#define HELLOS_DEFAULT         512u
#define HELLOS_MAX             1000000u
#define RECEIVE_WINDOW_DEFAULT (256u << 10)
#define MEMORY_BYTES_DEFAULT   ((size_t)64 << 20)
#define SESSION_IDLE_DEFAULT   UINT64_C(60000000)
#define BUSY_RETRY_DEFAULT     200u
#define FLUSH_SEGMENTS         8u

void mr_endpoint_config_default(struct mr_endpoint_config *config)
{
    *config = (struct mr_endpoint_config){
        .version = mr_version_own(),
        .incarnation = 1,
        .core_count = 1,
        .sessions_max = SESSIONS_DEFAULT,
        .hellos_per_address = HELLOS_DEFAULT,
        .calls_max = CALLS_DEFAULT,
        .window = MR_WINDOW_MAX,
        .udp_bytes_max = MR_UDP_BYTES_MIN,
        .bundle_bytes_max = UINT32_MAX,
        .receive_window_bytes = RECEIVE_WINDOW_DEFAULT,
        .message_bytes_max = MR_MESSAGE_BYTES_MAX,
        .memory_bytes = MEMORY_BYTES_DEFAULT,
        .session_idle_us = SESSION_IDLE_DEFAULT,
        .busy_retry_us = BUSY_RETRY_DEFAULT,
    };
}

static bool config_valid(const struct mr_endpoint_config *c)
{
    return c->io.tx_begin != NULL && c->io.tx_end != NULL && c->io.random != NULL &&
           c->psk_count <= MR_PSK_MAX && c->incarnation > 0 && c->core < MR_CORE_MAX &&
           c->core_count <= MR_CORE_MAX && c->sessions_max >= 1 && c->sessions_max <= MR_SESSIONS_LIMIT &&
           c->hellos_per_address >= 1 && c->hellos_per_address <= HELLOS_MAX && c->calls_max >= 1 &&
           c->window >= 1 && c->window <= MR_WINDOW_MAX && c->udp_bytes_max >= MR_UDP_BYTES_MIN &&
           c->udp_bytes_max <= MR_UDP_BYTES_MAX && c->receive_window_bytes >= 1 &&
           c->message_bytes_max >= sizeof(struct mr_preamble) &&
           c->message_bytes_max <= MR_MESSAGE_BYTES_MAX && c->session_idle_us >= 1 && c->busy_retry_us >= 1 &&
           (!c->hold_on_restart || c->on_session != NULL) && (uintptr_t)c->memory % MR_BUDDY_ALIGN == 0;
}

uint64_t mr_endpoint_random(struct mr_endpoint *ep)
{
    uint64_t value;
    ep->config.io.random(ep->config.io.self, &value, sizeof(value));
    return value;
}

static uint32_t table_size(uint32_t entries)
{
    uint32_t size = 64;
    while (size < entries)
        size *= 2;
    return size;
}

static bool create_serving(struct mr_endpoint *ep)
{
    uint32_t n = ep->config.sessions_max;
    ep->server_sessions = mr_key_pages_alloc(n * sizeof(*ep->server_sessions));
    ep->server_buckets = calloc(ep->bucket_mask + 1, sizeof(*ep->server_buckets));
    ep->limits = mr_address_limits_create(n, ep->config.sessions_per_address, ep->config.hellos_per_address,
                                          mr_endpoint_random(ep));
    if (ep->server_sessions == NULL || ep->server_buckets == NULL || ep->limits == NULL)
        return false;
    /* Free sessions form a chain in the order of the array, so that pages stay untouched until they are
     * used. */
    for (uint32_t i = n; i-- > 0;) {
        ep->server_sessions[i].next = ep->server_sessions_free;
        ep->server_sessions_free = i + 1;
    }
    return true;
}

static bool create_calling(struct mr_endpoint *ep)
{
    uint32_t n = ep->config.sessions_max;
    ep->client_sessions = mr_key_pages_alloc(n * sizeof(*ep->client_sessions));
    ep->client_buckets = calloc(ep->bucket_mask + 1, sizeof(*ep->client_buckets));
    ep->calls = calloc(ep->config.calls_max, sizeof(*ep->calls));
    if (ep->client_sessions == NULL || ep->client_buckets == NULL || ep->calls == NULL)
        return false;
    for (uint32_t i = n; i-- > 0;) {
        ep->client_sessions[i].next = ep->client_sessions_free;
        ep->client_sessions_free = i + 1;
    }
    for (uint32_t i = 0; i < ep->config.calls_max; i++)
        mr_list_append(&ep->calls_free, &ep->calls[i].link);
    return true;
}

static bool create_memory(struct mr_endpoint *ep)
{
    if (ep->config.memory == NULL) {
        size_t bytes = (ep->config.memory_bytes + MR_BUDDY_ALIGN - 1) & ~(size_t)(MR_BUDDY_ALIGN - 1);
        /* This reserves address space: only pages that are used take memory, whatever the allocator does with
         * its blocks. */
        void *memory =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        ep->own_memory = memory == MAP_FAILED ? NULL : memory;
        ep->own_memory_bytes = bytes;
        ep->config.memory = ep->own_memory;
    }
    if (ep->config.memory == NULL)
        return false;
    ep->memory = mr_buddy_create(ep->config.memory, ep->config.memory_bytes);
    ep->scratch =
        aligned_alloc(MR_TENSOR_ALIGN, (MR_UDP_BYTES_MAX + MR_TENSOR_ALIGN) & ~(MR_TENSOR_ALIGN - 1));
    return ep->memory != NULL && ep->scratch != NULL;
}

enum mr_status mr_endpoint_create(const struct mr_endpoint_config *config, struct mr_endpoint **out)
{
    if (!config_valid(config))
        return MR_INVALID_ARGUMENT;
    struct mr_endpoint *ep = calloc(1, sizeof(*ep));
    if (ep == NULL)
        return MR_NO_MEMORY;
    ep->config = *config;
    ep->config.udp_bytes_max &= ~7u;
    ep->arrived_core = config->core;
    ep->latencies.clock_ns = config->clock_ns;
    ep->bucket_mask = table_size(config->sessions_max) - 1;
    mr_list_init(&ep->dirty);
    for (uint32_t i = 0; i < MR_PRIORITIES; i++) {
        mr_list_init(&ep->turns[i]);
        mr_list_init(&ep->low_turns[i]);
    }
    mr_list_init(&ep->orphans);
    mr_list_init(&ep->calls_free);
    mr_timer_wheel_init(&ep->wheel);
    ep->auth = mr_key_memory_alloc(MR_PSK_MAX * sizeof(*ep->auth));
    if (ep->auth == NULL || !create_memory(ep) ||
        (config->clock_ns != NULL && !mr_call_records_init(&ep->records)) ||
        (config->on_request != NULL && !create_serving(ep)) ||
        (config->on_reply != NULL && !create_calling(ep))) {
        mr_endpoint_destroy(ep);
        return MR_NO_MEMORY;
    }
    if (ep->config.session_memory_bytes == 0)
        ep->config.session_memory_bytes = mr_buddy_capacity_bytes(ep->memory) / 2;
    mr_keys_init(ep);
    config->io.random(config->io.self, ep->cookie_secret, sizeof(ep->cookie_secret));
    config->io.random(config->io.self, &ep->boot_nonce, sizeof(ep->boot_nonce));
    *out = ep;
    return MR_OK;
}

void mr_endpoint_set_hellos(struct mr_endpoint *ep, uint32_t hellos_per_address)
{
    ep->config.hellos_per_address = hellos_per_address;
    mr_address_limits_set_hellos(ep->limits, hellos_per_address);
}

void mr_endpoint_destroy(struct mr_endpoint *ep)
{
    if (ep == NULL)
        return;
    mr_buddy_destroy(ep->memory);
    free(ep->calls);
    free(ep->client_buckets);
    mr_key_pages_free(ep->client_sessions, ep->config.sessions_max * sizeof(*ep->client_sessions));
    mr_address_limits_destroy(ep->limits);
    free(ep->server_buckets);
    mr_key_pages_free(ep->server_sessions, ep->config.sessions_max * sizeof(*ep->server_sessions));
    mr_key_memory_free(ep->auth);
    free(ep->scratch);
    mr_latencies_destroy(&ep->latencies);
    mr_call_records_destroy(&ep->records);
    if (ep->own_memory != NULL)
        munmap(ep->own_memory, ep->own_memory_bytes);
    explicit_bzero(ep->config.psk, sizeof(ep->config.psk)); /* of one that was not created */
    explicit_bzero(ep->cookie_secret, sizeof(ep->cookie_secret));
    free(ep);
}

const struct mr_wire_counters *mr_endpoint_counters(const struct mr_endpoint *ep)
{
    return &ep->counters;
}

const struct mr_other_version *mr_endpoint_other_version(const struct mr_endpoint *ep)
{
    return &ep->other_version;
}

const struct mr_histogram *mr_endpoint_latency(const struct mr_endpoint *ep, uint32_t op,
                                               enum mr_latency_phase phase)
{
    return mr_latencies_of(&ep->latencies, op, phase);
}

struct mr_call_records *mr_endpoint_call_records(struct mr_endpoint *ep)
{
    return &ep->records;
}

size_t mr_endpoint_memory_used(const struct mr_endpoint *ep)
{
    return mr_buddy_used_bytes(ep->memory);
}

void mr_endpoint_set_restores(struct mr_endpoint *ep, uint32_t restores)
{
    ep->config.restores = restores;
}

void mr_endpoint_set_checkpoint(struct mr_endpoint *ep, uint64_t checkpoint)
{
    ep->config.checkpoint = checkpoint;
}

void mr_endpoint_set_last_step_hook(struct mr_endpoint *ep,
                                    uint64_t (*hook)(void *app, const uint8_t *client_uuid))
{
    ep->last_step_hook = hook;
}

/* ---- the way in ---- */

static void count_drop(struct mr_endpoint *ep, enum mr_drop why)
{
    switch (why) {
#define COUNT_DROP(name, kind, unit, help)                                                                   \
    case MR_##name:                                                                                          \
        ep->counters.name++;                                                                                 \
        break;
        MR_DROP_LIST(COUNT_DROP)
#undef COUNT_DROP
    case MR_DROP_NONE:
    case MR_DROP_COUNT:
        break;
    }
}

/* The packet's type, and whose message it is about, decide which side handles it. */
static void dispatch(struct mr_endpoint *ep, const struct mr_packet *packet)
{
    bool about_reply = (packet->header.flags & MR_FLAG_REPLY) != 0;
    switch ((enum mr_packet_type)packet->header.type) {
    case MR_PACKET_HELLO:
        if (ep->server_sessions != NULL)
            mr_accept_hello(ep, packet);
        else
            ep->counters.drop_session++;
        break;
    case MR_PACKET_RETRY:
    case MR_PACKET_ACCEPT:
    case MR_PACKET_RESET:
        if (ep->client_sessions != NULL)
            mr_client_session_handshake(ep, packet);
        else
            ep->counters.drop_session++;
        break;
    case MR_PACKET_DATA:
        about_reply ? mr_call_packet(ep, packet) : mr_serve_packet(ep, packet);
        break;
    case MR_PACKET_ACK:
    case MR_PACKET_RESEND:
        about_reply ? mr_serve_packet(ep, packet) : mr_call_packet(ep, packet);
        break;
    case MR_PACKET_PATH:
        about_reply ? mr_call_packet(ep, packet) : mr_serve_packet(ep, packet);
        break;
    case MR_PACKET_BUSY:
        mr_call_packet(ep, packet);
        break;
    case MR_PACKET_BYE:
    case MR_PACKET_PING:
        mr_serve_packet(ep, packet);
        break;
    case MR_PACKET_TYPE_END:
        break;
    }
}

static void on_other_version(struct mr_endpoint *ep, const struct mr_address *from, const uint8_t *datagram,
                             size_t datagram_bytes)
{
    struct mr_version_answer answer;
    if (ep->server_sessions != NULL && mr_version_answer_make(datagram, datagram_bytes, &answer))
        mr_server_session_other_version(ep, from, &answer);
    else if (ep->client_sessions != NULL && mr_version_answer_parse(datagram, datagram_bytes, &answer))
        mr_client_session_other_version(ep, from, &answer);
}

void mr_endpoint_receive(struct mr_endpoint *ep, uint64_t now_us, const struct mr_address *from,
                         const uint8_t *datagram, size_t datagram_bytes)
{
    struct mr_packet packet = {.datagram = datagram, .from = from};
    mr_endpoint_set_now(ep, now_us);
    mr_latency_arrived(&ep->latencies, now_us);
    enum mr_drop why = mr_packet_parse(datagram, datagram_bytes, &packet.header, &packet.payload);
    if (why != MR_DROP_NONE)
        count_drop(ep, why);
    else
        dispatch(ep, &packet);
    if (why == MR_drop_version)
        on_other_version(ep, from, datagram, datagram_bytes);
    ep->arrived_core = ep->config.core;
}

void mr_endpoint_arrived_at(struct mr_endpoint *ep, uint16_t core)
{
    ep->arrived_core = core;
}

/* ---- the clock ---- */

void mr_endpoint_flush(struct mr_endpoint *ep, uint64_t now_us)
{
    mr_endpoint_set_now(ep, now_us);
    if (mr_transmit_flush(ep))
        mr_transmit_senders(ep, FLUSH_SEGMENTS);
}

static void run_timers(struct mr_endpoint *ep)
{
    struct mr_timer *timer;
    while ((timer = mr_timer_take(&ep->wheel, ep->now_us)) != NULL) {
        switch ((enum mr_timer_kind)timer->kind) {
        case MR_TIMER_SERVED:
            mr_server_session_timer(ep, MR_CONTAINER(timer, struct mr_server_session, timer));
            break;
        case MR_TIMER_SESSION:
            mr_client_session_timer(ep, MR_CONTAINER(timer, struct mr_client_session, timer));
            break;
        case MR_TIMER_CALL:
            mr_call_timer(ep, MR_CONTAINER(timer, struct mr_call, timer));
            break;
        }
    }
}

uint64_t mr_endpoint_poll(struct mr_endpoint *ep, uint64_t now_us, uint32_t segment_budget)
{
    mr_endpoint_set_now(ep, now_us);
    run_timers(ep);
    ep->polled_us = ep->now_us;
    if (mr_transmit_flush(ep))
        mr_transmit_senders(ep, segment_budget);
    if (!mr_transmit_idle(ep))
        return ep->now_us;
    return mr_timer_next_us(&ep->wheel);
}
