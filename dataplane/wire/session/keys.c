/* Both sides: the pre-shared keys in use, their rotation, and packets whose key is not the one expected.
 *
 * A session's key follows from a pre-shared key and the header, so either side can tell at any time whether a
 * packet is under another of its keys. A rotation therefore takes one packet: the calling side continues
 * under its new first key, the serving side follows, and session and calls stay as they are. */
#include <assert.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"

static void install(struct mr_endpoint *ep, const uint8_t psks[][MR_PSK_BYTES], const uint8_t *roles,
                    uint32_t count)
{
    assert(count <= MR_PSK_MAX);
    ep->auth_count = count > 0 ? count : 1;
    for (uint32_t i = 0; i < ep->auth_count; i++) {
        mr_auth_init(&ep->auth[i], count > 0 ? psks[i] : NULL);
        ep->auth[i].role = roles != NULL && count > 0 ? roles[i] : MR_ROLE_OPERATOR;
    }
}

void mr_keys_init(struct mr_endpoint *ep)
{
    install(ep, ep->config.psk, ep->config.psk_roles, ep->config.psk_count);
    explicit_bzero(ep->config.psk, sizeof(ep->config.psk));
}

/* ---- packets under another key ---- */

bool mr_budget_take(struct mr_endpoint *ep, uint32_t *spent, uint32_t cost, uint32_t limit)
{
    uint64_t interval = ep->now_us / MR_BUDGET_INTERVAL_US;
    if (interval != ep->budget_interval) {
        ep->budget_interval = interval;
        ep->resets_in_interval = 0;
        ep->verifies_in_interval = 0;
        ep->rekeys_in_interval = 0;
        ep->versions_in_interval = 0;
        ep->hints_in_interval = 0;
    }
    if (*spent >= limit)
        return false;
    *spent += cost;
    return true;
}

/* Returns the cost of trying a packet under all keys, in units of two keys. */
static uint32_t tries(const struct mr_endpoint *ep)
{
    return (ep->auth_count + 1) / 2;
}

#define ANY_ROLE MR_ROLE_COUNT

/* Finds the key of ours, of that role and other than `except`, that the packet's session is under.
 * MR_PSK_MAX: none, and nothing is written. */
static uint32_t find_key(const struct mr_endpoint *ep, const struct mr_packet *packet, uint32_t role,
                         uint32_t except, struct mr_tag_key *out)
{
    struct mr_tag_key key;
    for (uint32_t i = 0; i < ep->auth_count; i++) {
        if (i == except || (role != ANY_ROLE && ep->auth[i].role != role))
            continue;
        mr_session_key(&ep->auth[i], packet->header.session_id, packet->header.incarnation, &key);
        if (mr_packet_verify(packet, &key)) {
            *out = key;
            return i;
        }
    }
    return MR_PSK_MAX;
}

bool mr_keys_server_follow(struct mr_endpoint *ep, struct mr_server_session *session,
                           const struct mr_packet *packet)
{
    if (ep->auth_count < 2 || !mr_budget_take(ep, &ep->rekeys_in_interval, tries(ep), MR_REKEYS_PER_INTERVAL))
        return false;
    struct mr_tag_key key;
    uint32_t index = find_key(ep, packet, session->role, session->auth_index, &key);
    if (index == MR_PSK_MAX)
        return false;
    if (packet->header.number > session->peer.numbers.newest) { /* its client has changed to that key */
        session->auth_index = (uint8_t)index;
        session->peer.key = key;
    }
    return true;
}

void mr_keys_unknown_session(struct mr_endpoint *ep, const struct mr_packet *packet)
{
    struct mr_tag_key key;
    if ((packet->header.session_id & ((1u << MR_CORE_BITS) - 1)) != ep->config.core)
        return;
    if (!mr_budget_take(ep, &ep->verifies_in_interval, tries(ep), MR_VERIFIES_PER_INTERVAL)) {
        ep->counters.resets_skipped++;
        return;
    }
    if (find_key(ep, packet, ANY_ROLE, MR_PSK_MAX, &key) == MR_PSK_MAX) {
        ep->counters.resets_unproven++;
        return;
    }
    if (!mr_budget_take(ep, &ep->resets_in_interval, 1, MR_RESETS_PER_INTERVAL)) {
        ep->counters.resets_skipped++;
        return;
    }
    struct mr_packet_header header = mr_answer_header(ep, packet, MR_PACKET_RESET, 0);
    header.session_id = packet->header.session_id;
    if (mr_transmit(ep, packet->from, &key, &header, NULL))
        ep->counters.resets_sent++;
}

/* ---- rotation ---- */

static uint32_t index_of(const struct mr_endpoint *ep, const struct mr_auth *auth)
{
    for (uint32_t i = 0; i < ep->auth_count; i++)
        if (memcmp(ep->auth[i].psk, auth->psk, MR_PSK_BYTES) == 0)
            return i;
    return MR_PSK_MAX;
}

static uint32_t first_of_role(const struct mr_endpoint *ep, uint32_t role)
{
    for (uint32_t i = 0; i < ep->auth_count; i++)
        if (ep->auth[i].role == role)
            return i;
    return MR_PSK_MAX;
}

/* A session whose key is gone waits under the first key of its role: if its client changes to that key,
 * nothing is lost; otherwise its packets are dropped. A session never gets a key of another role: what began
 * with fewer rights must not end with more. */
static void rekey_server(struct mr_endpoint *ep, struct mr_server_session *session, const struct mr_auth *old)
{
    uint32_t index = index_of(ep, old);
    if (index == MR_PSK_MAX || ep->auth[index].role != session->role)
        index = first_of_role(ep, session->role);
    if (index == MR_PSK_MAX) {
        mr_server_session_drop(ep, session);
        return;
    }
    session->auth_index = (uint8_t)index;
    mr_session_key(&ep->auth[index], session->peer.session_id, session->peer.incarnation, &session->peer.key);
}

static void rekey_client(struct mr_endpoint *ep, struct mr_client_session *s, const struct mr_auth *old)
{
    s->has_previous_key = index_of(ep, old) < MR_PSK_MAX;
    s->previous_key = s->peer.key;
    s->confirmed = false;
    mr_session_key(&ep->auth[0], s->peer.session_id, s->peer.incarnation, &s->peer.key);
    mr_client_session_connect(ep, s);
}

void mr_endpoint_set_keys(struct mr_endpoint *ep, const uint8_t psks[][MR_PSK_BYTES], uint32_t count,
                          uint64_t now_us)
{
    mr_endpoint_set_role_keys(ep, psks, NULL, count, now_us);
}

void mr_endpoint_set_role_keys(struct mr_endpoint *ep, const uint8_t psks[][MR_PSK_BYTES],
                               const uint8_t roles[], uint32_t count, uint64_t now_us)
{
    struct mr_auth old[MR_PSK_MAX];
    memcpy(old, ep->auth, sizeof(old));
    mr_endpoint_set_now(ep, now_us);
    install(ep, psks, roles, count);
    for (uint32_t i = 0; ep->server_sessions != NULL && i < ep->config.sessions_max; i++)
        if (ep->server_sessions[i].used)
            rekey_server(ep, &ep->server_sessions[i], &old[ep->server_sessions[i].auth_index]);
    bool other_first = memcmp(old[0].psk, ep->auth[0].psk, MR_PSK_BYTES) != 0;
    for (uint32_t i = 0; other_first && ep->client_sessions != NULL && i < ep->config.sessions_max; i++)
        if (ep->client_sessions[i].used && ep->client_sessions[i].established)
            rekey_client(ep, &ep->client_sessions[i], &old[0]);
    explicit_bzero(old, sizeof(old));
}
