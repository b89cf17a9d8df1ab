#include "dataplane/wire/session/auth.h"

#include <sodium.h>
#include <string.h>

#include "dataplane/wire/base/xxh3.h"

#define TAG_OFFSET offsetof(struct mr_packet_header, tag)
static_assert(TAG_OFFSET + sizeof(uint64_t) == MR_HEADER_BYTES, "the tag ends the header");
static_assert(MR_TAG_KEY_BYTES == crypto_shorthash_KEYBYTES, "SipHash key");
static_assert(sizeof(((struct mr_packet_header *)0)->tag) == crypto_shorthash_BYTES, "SipHash tag");
static_assert(MR_PSK_BYTES <= crypto_generichash_blake2b_KEYBYTES_MAX, "BLAKE2b key");

/* BLAKE2b personalizations: 16 bytes each, one per purpose. */
#define DOMAIN_BYTES crypto_generichash_blake2b_PERSONALBYTES
static const char domain_hello_key[DOMAIN_BYTES + 1] = "mr2 hello key   ";
static const char domain_hello_proof[DOMAIN_BYTES + 1] = "mr2 hello proof ";
static const char domain_accept_proof[DOMAIN_BYTES + 1] = "mr2 accept proof";
static const char domain_session_key[DOMAIN_BYTES + 1] = "mr2 session key ";
static const char domain_cookie[DOMAIN_BYTES + 1] = "mr2 cookie      ";

static void keyed_hash(const char *domain, const uint8_t key[MR_PSK_BYTES], const void *input,
                       size_t input_bytes, uint8_t *out, size_t out_bytes)
{
    static const uint8_t no_salt[crypto_generichash_blake2b_SALTBYTES];
    int failed = crypto_generichash_blake2b_salt_personal(out, out_bytes, input, input_bytes, key,
                                                          MR_PSK_BYTES, no_salt, (const uint8_t *)domain);
    assert(failed == 0);
    (void)failed;
}

void mr_auth_init(struct mr_auth *auth, const uint8_t *psk)
{
    uint8_t digest[32];
    memset(auth, 0, sizeof(*auth));
    if (psk != NULL)
        memcpy(auth->psk, psk, MR_PSK_BYTES);
    crypto_generichash_blake2b(digest, sizeof(digest), auth->psk, MR_PSK_BYTES, NULL, 0);
    memcpy(&auth->key_id, digest, sizeof(auth->key_id));
    keyed_hash(domain_hello_key, auth->psk, NULL, 0, auth->hello_key.bytes, MR_TAG_KEY_BYTES);
}

/* ---- tags ---- */

static uint64_t hash_of_payload(const uint8_t *datagram, size_t datagram_bytes)
{
    assert(datagram_bytes >= MR_HEADER_BYTES);
    return mr_xxh3_64(datagram + MR_HEADER_BYTES, datagram_bytes - MR_HEADER_BYTES);
}

static uint64_t tag_of(const struct mr_tag_key *key, const uint8_t *datagram, uint64_t payload_hash)
{
    uint8_t covered[TAG_OFFSET + sizeof(payload_hash)];
    uint64_t tag;
    memcpy(covered, datagram, TAG_OFFSET);
    memcpy(covered + TAG_OFFSET, &payload_hash, sizeof(payload_hash));
    crypto_shorthash((uint8_t *)&tag, covered, sizeof(covered), key->bytes);
    return tag;
}

void mr_tag_write(const struct mr_tag_key *key, uint8_t *datagram, size_t datagram_bytes)
{
    mr_tag_write_hashed(key, datagram, hash_of_payload(datagram, datagram_bytes));
}

void mr_tag_write_hashed(const struct mr_tag_key *key, uint8_t *datagram, uint64_t payload_hash)
{
    const uint64_t tag = tag_of(key, datagram, payload_hash);
    memcpy(datagram + TAG_OFFSET, &tag, sizeof(tag));
}

bool mr_tag_verify(const struct mr_tag_key *key, const uint8_t *datagram, size_t datagram_bytes)
{
    const uint64_t expected = tag_of(key, datagram, hash_of_payload(datagram, datagram_bytes));
    uint64_t tag;
    memcpy(&tag, datagram + TAG_OFFSET, sizeof(tag));
    return (tag ^ expected) == 0; /* one comparison of one word: constant-time */
}

/* ---- cookies ---- */

static_assert(MR_COOKIE_SECRET_BYTES == MR_PSK_BYTES, "keyed_hash takes either");

static void cookie_of_epoch(const uint8_t *secret, const uint8_t ip[16], uint16_t port,
                            const struct mr_hello *hello, uint64_t epoch, uint8_t cookie[MR_COOKIE_BYTES])
{
    struct {
        uint64_t epoch, client_nonce;
        uint8_t ip[16], client_uuid[MR_UUID_BYTES];
        uint64_t port;
    } input = {.epoch = epoch, .client_nonce = hello->client_nonce, .port = port};
    memcpy(input.ip, ip, sizeof(input.ip));
    memcpy(input.client_uuid, hello->client_uuid, sizeof(input.client_uuid));
    keyed_hash(domain_cookie, secret, &input, sizeof(input), cookie, MR_COOKIE_BYTES);
}

void mr_cookie_make(const uint8_t secret[MR_COOKIE_SECRET_BYTES], const uint8_t ip[16], uint16_t port,
                    const struct mr_hello *hello, uint64_t now_us, uint8_t cookie[MR_COOKIE_BYTES])
{
    cookie_of_epoch(secret, ip, port, hello, now_us / MR_COOKIE_EPOCH_US, cookie);
}

bool mr_cookie_verify(const uint8_t secret[MR_COOKIE_SECRET_BYTES], const uint8_t ip[16], uint16_t port,
                      const struct mr_hello *hello, uint64_t now_us)
{
    uint8_t cookie[MR_COOKIE_BYTES];
    uint64_t epoch = now_us / MR_COOKIE_EPOCH_US;
    for (uint64_t age = 0; age <= 1 && age <= epoch; age++) {
        cookie_of_epoch(secret, ip, port, hello, epoch - age, cookie);
        if (sodium_memcmp(cookie, hello->cookie, MR_COOKIE_BYTES) == 0)
            return true;
    }
    return false;
}

/* ---- proofs ---- */

static void hello_proof(const struct mr_auth *auth, const struct mr_hello *hello, uint8_t *proof)
{
    struct mr_hello covered = *hello;
    memset(covered.proof, 0, MR_PROOF_BYTES);
    keyed_hash(domain_hello_proof, auth->psk, &covered, sizeof(covered), proof, MR_PROOF_BYTES);
}

void mr_hello_prove(const struct mr_auth *auth, struct mr_hello *hello)
{
    hello_proof(auth, hello, hello->proof);
}

bool mr_hello_verify(const struct mr_auth *auth, const struct mr_hello *hello)
{
    uint8_t proof[MR_PROOF_BYTES];
    hello_proof(auth, hello, proof);
    return sodium_memcmp(proof, hello->proof, MR_PROOF_BYTES) == 0;
}

static void accept_proof(const struct mr_auth *auth, const uint8_t client_uuid[MR_UUID_BYTES],
                         uint64_t boot_nonce, const struct mr_accept *accept,
                         const struct mr_peer_version *version, uint8_t proof[MR_PROOF_BYTES])
{
    struct {
        struct mr_accept accept;
        uint8_t client_uuid[MR_UUID_BYTES];
        uint64_t boot_nonce;
        struct mr_peer_version version;
    } covered = {.accept = *accept, .boot_nonce = boot_nonce};
    static_assert(sizeof(covered) ==
                      sizeof(struct mr_accept) + MR_UUID_BYTES + 8 + sizeof(struct mr_peer_version),
                  "no padding is hashed");
    memset(covered.accept.proof, 0, MR_PROOF_BYTES);
    memcpy(covered.client_uuid, client_uuid, MR_UUID_BYTES);
    if (version != NULL)
        covered.version = *version;
    const size_t bytes = sizeof(covered) - (version != NULL ? 0 : sizeof(covered.version));
    keyed_hash(domain_accept_proof, auth->psk, &covered, bytes, proof, MR_PROOF_BYTES);
}

void mr_accept_prove(const struct mr_auth *auth, const uint8_t client_uuid[MR_UUID_BYTES],
                     uint64_t boot_nonce, struct mr_accept *accept, const struct mr_peer_version *version)
{
    accept_proof(auth, client_uuid, boot_nonce, accept, version, accept->proof);
}

bool mr_accept_verify(const struct mr_auth *auth, const uint8_t client_uuid[MR_UUID_BYTES],
                      uint64_t boot_nonce, const struct mr_accept *accept,
                      const struct mr_peer_version *version)
{
    uint8_t proof[MR_PROOF_BYTES];
    accept_proof(auth, client_uuid, boot_nonce, accept, version, proof);
    return sodium_memcmp(proof, accept->proof, MR_PROOF_BYTES) == 0;
}

void mr_session_key(const struct mr_auth *auth, uint64_t session_id, uint32_t incarnation,
                    struct mr_tag_key *out)
{
    uint8_t input[sizeof(session_id) + sizeof(incarnation)];
    memcpy(input, &session_id, sizeof(session_id));
    memcpy(input + sizeof(session_id), &incarnation, sizeof(incarnation));
    keyed_hash(domain_session_key, auth->psk, input, sizeof(input), out->bytes, MR_TAG_KEY_BYTES);
}
