/* Peers that speak another version of the protocol: who serves answers their HELLOs, who calls notes what it
 * is told. Nothing of this is under a key, so that it changes nothing but what an error says. */
#include <stdio.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"

static_assert(offsetof(struct mr_packet_header, call_id) == offsetof(struct mr_version_answer, echo) + 8,
              "the echo holds the nonce");

static void answer_hello(struct mr_endpoint *ep, const struct mr_address *to,
                         const struct mr_version_answer *answer)
{
    ep->counters.hellos_other_version++;
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

/* It is believed as far as it echoes a HELLO of a handshake that has no answer yet: nobody who has not seen
 * that can make it. */
static void note(struct mr_endpoint *ep, const struct mr_address *from,
                 const struct mr_version_answer *answer)
{
    for (uint32_t i = 0; i < ep->config.sessions_max; i++) {
        struct mr_client_session *s = &ep->client_sessions[i];
        uint64_t echo[MR_VERSION_ECHO / sizeof(uint64_t)] = {0, s->client_nonce};
        if (s->used && s->handshake != MR_HANDSHAKE_NONE && mr_address_equal(&s->peer.address, from) &&
            memcmp(echo, answer->echo, sizeof(echo)) == 0)
            s->other_version = answer->version;
    }
}

bool mr_client_session_version_text(const struct mr_client_session *session, const char *peer, char *text,
                                    size_t text_bytes)
{
    if (session->other_version == 0)
        return false;
    snprintf(text, text_bytes,
             "the %s speaks version %u of the protocol, and this library version %u: upgrade the %s", peer,
             session->other_version, MR_PROTOCOL_VERSION,
             session->other_version > MR_PROTOCOL_VERSION ? "library" : peer);
    return true;
}

void mr_version_packet(struct mr_endpoint *ep, const struct mr_address *from, const uint8_t *datagram,
                       size_t datagram_bytes)
{
    struct mr_version_answer answer;
    if (ep->server_sessions != NULL && mr_version_answer_make(datagram, datagram_bytes, &answer))
        answer_hello(ep, from, &answer);
    else if (ep->client_sessions != NULL && mr_version_answer_parse(datagram, datagram_bytes, &answer))
        note(ep, from, &answer);
}
