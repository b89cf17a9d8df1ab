/* Serving side: from HELLO to ACCEPT, and sessions until they are dropped. */
#include <assert.h>
#include <string.h>

#include "dataplane/wire/base/number.h"
#include "dataplane/wire/endpoint_internal.h"

/* A silent session is kept this long after the first poll that finds it expired: a process that stood still
 * has yet to read what arrived meanwhile. */
#define LAST_LOOK_US       500000u
#define SESSION_INDEX_BITS 16u

/* ---- the table of sessions ---- */

static uint32_t *uuid_bucket(const struct mr_endpoint *ep, const uint8_t *client_uuid)
{
    uint64_t low, high;
    memcpy(&low, client_uuid, sizeof(low));
    memcpy(&high, client_uuid + sizeof(low), sizeof(high));
    uint64_t mixed = (low ^ (high << 1)) * UINT64_C(0x9E3779B97F4A7C15);
    return &ep->server_buckets[(uint32_t)(mixed >> 40) & ep->bucket_mask];
}

static uint32_t session_index(const struct mr_endpoint *ep, const struct mr_server_session *session)
{
    return (uint32_t)(session - ep->server_sessions);
}

/* The sessions that a HELLO refers to. */
struct claim {
    struct mr_server_session *held;  /* the session that the client has */
    struct mr_server_session *asked; /* the session that an earlier HELLO of this handshake got */
    /* the highest number of a HELLO of its process that its sessions have seen */
    uint64_t newest;
};

/* A HELLO under a key of another role refers to another session, so that no HELLO changes a session's
 * rights, or makes another role's HELLO look like an old one. */
static struct claim claim_of(const struct mr_endpoint *ep, const struct mr_hello *hello, uint8_t role)
{
    struct claim claim = {0};
    for (uint32_t i = *uuid_bucket(ep, hello->client_uuid); i != 0; i = ep->server_sessions[i - 1].next) {
        struct mr_server_session *s = &ep->server_sessions[i - 1];
        if (memcmp(s->client_uuid, hello->client_uuid, MR_UUID_BYTES) != 0 ||
            s->boot_nonce != hello->boot_nonce)
            continue;
        if (s->role != role)
            continue;
        if (s->hello_number > claim.newest)
            claim.newest = s->hello_number;
        if (s->peer.session_id == hello->session_id)
            claim.held = s;
        else if (s->client_nonce == hello->client_nonce)
            claim.asked = s;
    }
    return claim;
}

static void slots_drop(struct mr_endpoint *ep, struct mr_server_session *session)
{
    for (uint32_t i = 0; i < session->peer.window; i++) {
        struct mr_slot *slot = &session->slots[i];
        if (slot->deferred != NULL) {
            /* Its handler may still read the request; the memory is freed when it answers. */
            mr_list_append(&ep->orphans, &slot->deferred->link);
            slot->deferred = NULL;
        }
        mr_slot_clear(ep, session, slot);
    }
}

void mr_server_session_drop(struct mr_endpoint *ep, struct mr_server_session *session)
{
    assert(session->used);
    slots_drop(ep, session);
    /* of requests that outlive it: */
    ep->role_memory_bytes[session->role] -= session->memory_bytes;
    mr_address_memory_add(ep->limits, session->peer.address.ip, -(int64_t)session->memory_bytes);
    mr_list_remove(&session->peer.dirty);
    assert(mr_list_empty(&session->peer.turn) && mr_list_empty(&session->peer.parked) &&
           session->peer.flight_bytes == 0);
    mr_timer_disarm(&ep->wheel, &session->timer);
    uint32_t *link = uuid_bucket(ep, session->client_uuid);
    uint32_t number = session_index(ep, session) + 1;
    while (*link != number)
        link = &ep->server_sessions[*link - 1].next;
    *link = session->next;
    mr_address_session_end(ep->limits, session->peer.address.ip);
    session->used = false;
    session->next = ep->server_sessions_free;
    ep->server_sessions_free = number;
    ep->session_count--;
}

void mr_server_session_timer(struct mr_endpoint *ep, struct mr_server_session *session)
{
    uint64_t idle_us = session->confirmed ? ep->config.session_idle_us : MR_UNCONFIRMED_US;
    uint64_t until_us = session->peer.heard_us + idle_us;
    const uint64_t receiving_until_us = mr_requests_end_stalled(ep, session);
    if (receiving_until_us > ep->now_us && receiving_until_us < until_us) {
        mr_timer_arm(&ep->wheel, &session->timer, ep->now_us, receiving_until_us);
        return;
    }
    if (until_us > ep->now_us || ep->polled_us < until_us) {
        uint64_t look_us = ep->now_us + LAST_LOOK_US;
        mr_timer_arm(&ep->wheel, &session->timer, ep->now_us, until_us > ep->now_us ? until_us : look_us);
        return;
    }
    ep->counters.sessions_expired++;
    mr_server_session_drop(ep, session);
}

/* Of sessions, those that a role may have while there are others: a share is kept for each higher role that
 * there is a key of. */
static bool has_place(const struct mr_endpoint *ep, uint8_t role)
{
    return ep->session_count < mr_role_share(ep, role, ep->config.sessions_max);
}

/* Counts a session of the role at this address, of whose sessions the same shares are kept. */
static bool session_enter_address(struct mr_endpoint *ep, uint8_t role, const uint8_t ip[16])
{
    const uint64_t count = mr_role_share(ep, role, mr_address_sessions_max(ep->limits));
    if (mr_address_session_begin(ep->limits, ip, (uint32_t)count))
        return true;
    ep->counters.sessions_refused_address++;
    return false;
}

static struct mr_server_session *session_create(struct mr_endpoint *ep, const struct mr_hello *hello,
                                                const struct mr_address *from, uint32_t auth_index)
{
    if (ep->server_sessions_free == 0 || !has_place(ep, ep->auth[auth_index].role)) {
        ep->counters.sessions_refused++;
        return NULL;
    }
    if (!session_enter_address(ep, ep->auth[auth_index].role, from->ip))
        return NULL;
    uint32_t index = ep->server_sessions_free - 1;
    struct mr_server_session *s = &ep->server_sessions[index];
    ep->server_sessions_free = s->next;
    memset(s, 0, sizeof(*s));
    mr_peer_init(&s->peer, true);
    s->used = true;
    s->timer.kind = MR_TIMER_SERVED;
    s->boot_nonce = hello->boot_nonce;
    s->auth_index = (uint8_t)auth_index;
    s->role = ep->auth[auth_index].role;
    memcpy(s->client_uuid, hello->client_uuid, MR_UUID_BYTES);
    s->udp_bytes_max = (uint16_t)(mr_min_u32(hello->udp_bytes_max, ep->config.udp_bytes_max) & ~7u);
    s->peer.address = *from;
    s->peer.incarnation = ep->config.incarnation;
    s->peer.segment_bytes = MR_SEGMENT_BYTES_MIN; /* until the client says what gets through */
    s->peer.window = mr_min_u32(hello->window, ep->config.window);
    s->grant_bytes = hello->receive_buffer_bytes;
    uint32_t grant_bytes = mr_window_clamp(s->grant_bytes, s->udp_bytes_max - MR_HEADER_BYTES);
    s->flight_max_bytes = s->grant_bytes > grant_bytes ? s->grant_bytes : grant_bytes;
    s->peer.flight_limit_bytes = s->flight_max_bytes;
    s->peer.session_id = mr_endpoint_random(ep) << (SESSION_INDEX_BITS + MR_CORE_BITS) |
                         (uint64_t)index << MR_CORE_BITS | ep->config.core;
    mr_session_key(&ep->auth[auth_index], s->peer.session_id, s->peer.incarnation, &s->peer.key);
    uint32_t *bucket = uuid_bucket(ep, s->client_uuid);
    s->next = *bucket;
    *bucket = index + 1;
    ep->session_count++;
    ep->counters.sessions_accepted++;
    return s;
}

/* Updates the address of a client that may have moved; the cookie has proven the new one. */
static bool session_move(struct mr_endpoint *ep, struct mr_server_session *s, const struct mr_address *to)
{
    if (memcmp(s->peer.address.ip, to->ip, sizeof(to->ip)) != 0) {
        if (!session_enter_address(ep, s->role, to->ip))
            return false;
        mr_address_memory_add(ep->limits, s->peer.address.ip, -(int64_t)s->memory_bytes);
        mr_address_memory_add(ep->limits, to->ip, (int64_t)s->memory_bytes);
        mr_address_session_end(ep->limits, s->peer.address.ip);
    }
    s->peer.address = *to;
    return true;
}

/* ---- HELLO ---- */

struct mr_packet_header mr_answer_header(const struct mr_endpoint *ep, const struct mr_packet *packet,
                                         enum mr_packet_type type, uint16_t payload_bytes)
{
    return (struct mr_packet_header){
        .magic = MR_MAGIC,
        .version = MR_PROTOCOL_VERSION,
        .type = (uint8_t)type,
        .payload_bytes = payload_bytes,
        .call_id = packet->header.call_id,
        .incarnation = ep->config.incarnation,
        .clock_us = packet->header.clock_us,
        .number = packet->header.number,
    };
}

static void send_retry(struct mr_endpoint *ep, const struct mr_packet *packet, const struct mr_hello *hello,
                       const struct mr_auth *auth)
{
    struct mr_retry retry;
    mr_cookie_make(ep->cookie_secret, packet->from->ip, packet->from->port, hello, ep->now_us, retry.cookie);
    struct mr_packet_header header = mr_answer_header(ep, packet, MR_PACKET_RETRY, sizeof(retry));
    (void)mr_transmit(ep, packet->from, &auth->hello_key, &header, &retry);
}

/* 0 for those who may not push. */
static uint64_t last_push_step(const struct mr_endpoint *ep, const struct mr_server_session *s)
{
    return ep->last_step_hook != NULL && s->role <= MR_ROLE_TRAINER
               ? ep->last_step_hook(ep->config.app, s->client_uuid)
               : 0;
}

/* The ACCEPT is under the HELLO's key, which may differ from the session's. */
static void send_accept(struct mr_endpoint *ep, const struct mr_packet *packet, const struct mr_auth *auth,
                        const struct mr_server_session *s)
{
    struct mr_accept_long answer = {.version = ep->config.version};
    answer.accept = (struct mr_accept){
        .session_id = s->peer.session_id,
        .client_nonce = s->client_nonce,
        .last_push_step = last_push_step(ep, s),
        .start_id = ep->config.start_id != 0 ? ep->config.start_id : ep->config.incarnation,
        .lineage = ep->config.lineage,
        .restores = ep->config.restores,
        .incarnation = ep->config.incarnation,
        .grant_bytes = ep->config.receive_window_bytes,
        .map_version = ep->config.map_version,
        .udp_bytes_max = s->udp_bytes_max,
        .window = (uint16_t)s->peer.window,
        .core = ep->config.core,
        .core_count = ep->config.core_count,
        .arrived_core = ep->arrived_core,
    };
    /* Versions before 0.3.0 take the short answer alone. */
    const bool is_long = s->capabilities != 0 && ep->config.version.capabilities != 0;
    mr_accept_prove(auth, s->client_uuid, s->boot_nonce, &answer.accept, is_long ? &answer.version : NULL);
    struct mr_packet_header header = mr_answer_header(
        ep, packet, MR_PACKET_ACCEPT, (uint16_t)(is_long ? sizeof(answer) : sizeof(answer.accept)));
    (void)mr_transmit(ep, packet->from, &auth->hello_key, &header, &answer);
}

static const struct mr_auth *auth_find(const struct mr_endpoint *ep, uint32_t key_id)
{
    for (uint32_t i = 0; i < ep->auth_count; i++)
        if (ep->auth[i].key_id == key_id)
            return &ep->auth[i];
    return NULL;
}

static bool all_zero(const uint8_t *bytes, size_t n)
{
    uint8_t any = 0;
    for (size_t i = 0; i < n; i++)
        any |= bytes[i];
    return any == 0;
}

static bool hello_in_range(const struct mr_endpoint *ep, const struct mr_hello *hello)
{
    return hello->udp_bytes_max >= MR_UDP_BYTES_MIN && hello->window >= 1 && hello->window <= MR_WINDOW_MAX &&
           hello->core == ep->config.core && hello->reserved == 0;
}

void mr_accept_hello(struct mr_endpoint *ep, const struct mr_packet *packet)
{
    struct mr_hello hello;
    if (packet->header.payload_bytes != sizeof(hello)) {
        ep->counters.drop_range++;
        return;
    }
    memcpy(&hello, packet->payload, sizeof(hello));
    const struct mr_auth *auth = auth_find(ep, hello.key_id);
    if (auth == NULL) {
        ep->counters.drop_proof++;
        return;
    }
    if (!mr_packet_verify(packet, &auth->hello_key)) {
        ep->counters.drop_tag++;
        return;
    }
    if (!hello_in_range(ep, &hello)) {
        ep->counters.drop_range++;
        return;
    }
    if (all_zero(hello.cookie, sizeof(hello.cookie))) {
        send_retry(ep, packet, &hello, auth);
        return;
    }
    if (!mr_cookie_verify(ep->cookie_secret, packet->from->ip, packet->from->port, &hello, ep->now_us)) {
        ep->counters.drop_cookie++;
        return;
    }
    struct claim claim = claim_of(ep, &hello, auth->role);
    if (packet->header.number <= claim.newest) { /* delayed or replayed */
        ep->counters.drop_stale++;
        return;
    }
    if (!mr_address_hello(ep->limits, packet->from->ip, ep->now_us)) {
        ep->counters.drop_rate++;
        return;
    }
    if (!mr_hello_verify(auth, &hello)) {
        ep->counters.drop_proof++;
        return;
    }
    struct mr_server_session *s = claim.held != NULL ? claim.held : claim.asked;
    if (s == NULL) {
        s = session_create(ep, &hello, packet->from, (uint32_t)(auth - ep->auth));
        if (s == NULL)
            return;
        s->peer.heard_us = ep->now_us;
        mr_timer_arm(&ep->wheel, &s->timer, ep->now_us, ep->now_us + MR_UNCONFIRMED_US);
    } else if (!session_move(ep, s, packet->from)) {
        return;
    }
    s->hello_number = packet->header.number;
    s->client_nonce = hello.client_nonce;
    s->capabilities = hello.version.capabilities;
    send_accept(ep, packet, auth, s);
}

/* Handles the first packet under the session's key: the sender of the HELLO is really there. Sessions of the
 * same client from before its restart are dropped, but for those of higher roles: no key ends what it could
 * not have begun. */
void mr_server_session_confirm(struct mr_endpoint *ep, struct mr_server_session *session)
{
    session->confirmed = true;
    uint32_t i = *uuid_bucket(ep, session->client_uuid);
    while (i != 0) {
        struct mr_server_session *other = &ep->server_sessions[i - 1];
        i = other->next;
        if (other->boot_nonce != session->boot_nonce && other->role >= session->role &&
            memcmp(other->client_uuid, session->client_uuid, MR_UUID_BYTES) == 0)
            mr_server_session_drop(ep, other);
    }
    mr_timer_arm(&ep->wheel, &session->timer, ep->now_us, ep->now_us + ep->config.session_idle_us);
}

bool mr_endpoint_has_client(const struct mr_endpoint *ep, const uint8_t client_uuid[MR_UUID_BYTES])
{
    if (ep->server_sessions == NULL)
        return false;
    for (uint32_t i = *uuid_bucket(ep, client_uuid); i != 0; i = ep->server_sessions[i - 1].next) {
        const struct mr_server_session *s = &ep->server_sessions[i - 1];
        if (s->confirmed && s->role <= MR_ROLE_TRAINER &&
            memcmp(s->client_uuid, client_uuid, MR_UUID_BYTES) == 0)
            return true;
    }
    return false;
}

uint32_t mr_endpoint_network_share(const struct mr_endpoint *ep, uint32_t places)
{
    if (ep->limits == NULL)
        return places;
    const uint64_t share = (uint64_t)places * mr_address_sessions_max(ep->limits) / ep->config.sessions_max;
    return share >= places ? places : share == 0 ? 1 : (uint32_t)share;
}

/* ---- peers of another protocol version ---- */

static_assert(offsetof(struct mr_packet_header, call_id) == offsetof(struct mr_version_answer, echo) + 8,
              "the echo holds the nonce");

/* The answer is under no key, and only changes the text of an error. */
void mr_server_session_other_version(struct mr_endpoint *ep, const struct mr_address *to,
                                     const struct mr_version_answer *answer)
{
    ep->counters.hellos_other_version++;
    ep->other_version.count++;
    ep->other_version.from = *to;
    ep->other_version.version = answer->asked;
    if (!mr_budget_take(ep, &ep->versions_in_interval, 1, MR_VERSIONS_PER_INTERVAL))
        return;
    uint8_t *datagram = ep->config.io.tx_begin(ep->config.io.self, to, sizeof(*answer));
    if (datagram == NULL) {
        ep->counters.tx_no_room++;
        return;
    }
    memcpy(datagram, answer, sizeof(*answer));
    ep->config.io.tx_end(ep->config.io.self, sizeof(*answer));
    ep->counters.tx_packets++;
    ep->counters.tx_bytes += sizeof(*answer);
}
