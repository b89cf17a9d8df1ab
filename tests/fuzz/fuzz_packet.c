/* Any datagram: is either dropped for a reason, or is what its header says; and what the handshake makes of
 * its payload verifies for what was made and for nothing else. */
#include <string.h>
#include "dataplane/wire/format/packet.h"
#include "dataplane/wire/session/auth.h"
#include "fuzz_assert.h"

static void check_header(const struct mr_packet_header *h, const uint8_t *data, size_t bytes,
                         const uint8_t *payload)
{
    FUZZ_ASSERT(payload == data + MR_HEADER_BYTES);
    FUZZ_ASSERT(bytes == (size_t)MR_HEADER_BYTES + h->payload_bytes);
    FUZZ_ASSERT(bytes <= MR_UDP_BYTES_MAX);
    FUZZ_ASSERT(memcmp(h, data, sizeof(*h)) == 0);
    FUZZ_ASSERT(h->type > 0 && h->type < MR_PACKET_TYPE_END);
    bool bundle_or_reply = (h->flags & (MR_FLAG_BUNDLE | MR_FLAG_REPLY)) != 0;
    FUZZ_ASSERT(!bundle_or_reply || h->type == MR_PACKET_DATA || h->type == MR_PACKET_ACK ||
                h->type == MR_PACKET_RESEND || h->type == MR_PACKET_PATH);
}

/* Each fragment lies within the payload, after the one before. */
static void check_fragments(const struct mr_packet_header *h, const uint8_t *payload)
{
    struct mr_fragment fragments[MR_FRAGMENTS_MAX];
    const uint8_t *end = payload;
    uint32_t at = 0, count;
    for (bool well_formed = true; well_formed && at < h->payload_bytes;) {
        uint32_t before = at;
        well_formed = mr_packet_fragments(h, payload, &at, fragments, &count);
        FUZZ_ASSERT(count <= MR_FRAGMENTS_MAX && at <= h->payload_bytes && (count > 0) == (at > before));
        FUZZ_ASSERT(!well_formed || count > 0);
        for (uint32_t i = 0; i < count; i++) {
            FUZZ_ASSERT(fragments[i].payload >= end && fragments[i].bytes > 0);
            end = fragments[i].payload + fragments[i].bytes;
            FUZZ_ASSERT(end <= payload + at);
        }
    }
}

static void check_tag(const struct mr_auth *auth, const uint8_t *data, size_t bytes)
{
    uint8_t tagged[MR_UDP_BYTES_MAX];
    memcpy(tagged, data, bytes);
    mr_tag_write(&auth->hello_key, tagged, bytes);
    FUZZ_ASSERT(mr_tag_verify(&auth->hello_key, tagged, bytes));
    FUZZ_ASSERT(mr_tag_verify(&auth->hello_key, data, bytes) == (memcmp(tagged, data, bytes) == 0));
}

static void check_hello(const struct mr_auth *auth, const uint8_t *payload)
{
    static const uint8_t secret[MR_COOKIE_SECRET_BYTES] = {1}, ip[16] = {2};
    struct mr_hello hello;
    memcpy(&hello, payload, sizeof(hello));
    uint64_t now_us = hello.boot_nonce;
    FUZZ_ASSERT(!mr_hello_verify(auth, &hello));
    FUZZ_ASSERT(!mr_cookie_verify(secret, ip, 1, &hello, now_us));
    mr_cookie_make(secret, ip, 1, &hello, now_us, hello.cookie);
    mr_hello_prove(auth, &hello);
    FUZZ_ASSERT(mr_cookie_verify(secret, ip, 1, &hello, now_us));
    FUZZ_ASSERT(mr_hello_verify(auth, &hello));
}

static void check_accept(const struct mr_auth *auth, const uint8_t *payload)
{
    static const uint8_t uuid[MR_UUID_BYTES] = {3};
    struct mr_accept accept;
    memcpy(&accept, payload, sizeof(accept));
    FUZZ_ASSERT(!mr_accept_verify(auth, uuid, 4, &accept, NULL));
    mr_accept_prove(auth, uuid, 4, &accept, NULL);
    FUZZ_ASSERT(mr_accept_verify(auth, uuid, 4, &accept, NULL));
}

static void check_version(const uint8_t *data, size_t bytes)
{
    struct mr_version_answer answer, again;
    if (mr_version_answer_make(data, bytes, &answer)) {
        FUZZ_ASSERT(bytes >= sizeof(answer) && data[3] == MR_PACKET_HELLO && answer.asked == data[2]);
        FUZZ_ASSERT(memcmp(answer.echo, data + 8, sizeof(answer.echo)) == 0);
        FUZZ_ASSERT(!mr_version_answer_parse((const uint8_t *)&answer, sizeof(answer), &again));
        FUZZ_ASSERT(!mr_version_answer_make((const uint8_t *)&answer, sizeof(answer), &again));
    }
    if (mr_version_answer_parse(data, bytes, &answer))
        FUZZ_ASSERT(bytes == sizeof(answer) && answer.asked == MR_PROTOCOL_VERSION && data[2] != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const uint8_t psk[MR_PSK_BYTES] = {42};
    struct mr_packet_header header;
    const uint8_t *payload = NULL;
    enum mr_drop drop = mr_packet_parse(data, bytes, &header, &payload);
    FUZZ_ASSERT(drop < MR_DROP_COUNT);
    if (drop != MR_DROP_NONE) {
        FUZZ_ASSERT(payload == NULL);
        if (drop == MR_drop_version)
            check_version(data, bytes);
        return 0;
    }
    struct mr_auth auth;
    mr_auth_init(&auth, psk);
    check_header(&header, data, bytes, payload);
    check_tag(&auth, data, bytes);
    if (header.type == MR_PACKET_HELLO)
        check_hello(&auth, payload);
    else if (header.type == MR_PACKET_ACCEPT)
        check_accept(&auth, payload);
    else if (header.type == MR_PACKET_DATA)
        check_fragments(&header, payload);
    return 0;
}
