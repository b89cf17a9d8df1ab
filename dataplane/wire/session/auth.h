/* Tags, cookies, proofs and keys. Every keyed hash of the protocol is computed here, by libsodium.
 *
 * All secrets come from the pre-shared key (PSK). These are derived from it, each in its own domain
 * (BLAKE2b's personalization), so that no value can serve another purpose:
 *   hello key     SipHash key of the tags of packets before a session has its key: HELLO, RETRY, ACCEPT
 *   hello proof   of the client, over the whole HELLO and with it the cookie
 *   accept proof  of the server, over the whole ACCEPT and the client's uuid and boot nonce
 *   session key   SipHash key of the tags of all packets of a session. It follows from the session's id and
 *                 the server's incarnation, which every header contains: a server that has forgotten a
 *                 session can still tell whether a packet of it was genuine
 * Only the cookie depends on a secret of the server, not on the PSK.
 *
 * A tag is SipHash-2-4 (Aumasson, Bernstein, INDOCRYPT 2012) of the 48 header bytes before it and of the
 * XXH3-64 of the payload: damage to any byte is detected, and nobody who does not see the traffic can forge a
 * tag. XXH3 is no keyed hash: docs/security.md explains what that leaves open. Without a PSK the protocol is
 * the same, under the all-zero key.
 *
 * Pure: no state beyond the structs, no randomness, any thread. Comparisons take constant time.
 */
#ifndef MR_AUTH_H
#define MR_AUTH_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/packet.h"

#define MR_TAG_KEY_BYTES       16u
#define MR_COOKIE_SECRET_BYTES 32u
#define MR_COOKIE_EPOCH_US     UINT64_C(10000000) /* a cookie is valid for one to two epochs */

/* Key of SipHash-2-4. */
struct mr_tag_key {
    uint8_t bytes[MR_TAG_KEY_BYTES];
};

/* A pre-shared key with what is derived from it alone. */
struct mr_auth {
    uint8_t psk[MR_PSK_BYTES];
    uint32_t key_id; /* goes into the HELLO */
    uint8_t role;    /* enum mr_role: what its holder may do, according to the serving side's configuration */
    struct mr_tag_key hello_key;
};

/* Derives the rest from the key. NULL: no key is configured; the all-zero key is used. */
void mr_auth_init(struct mr_auth *auth, const uint8_t *psk);

/* ---- tags: `datagram` is a header and its payload as they travel, at least MR_HEADER_BYTES, at any
 * alignment ---- */

/* Computes and stores the tag. The rest of the datagram must be complete. */
void mr_tag_write(const struct mr_tag_key *key, uint8_t *datagram, size_t datagram_bytes);
/* The same if the XXH3-64 of the payload is known, as from mr_xxh3_64_copy(): only the header is read. */
void mr_tag_write_hashed(const struct mr_tag_key *key, uint8_t *datagram, uint64_t payload_hash);
bool mr_tag_verify(const struct mr_tag_key *key, const uint8_t *datagram, size_t datagram_bytes);

/* ---- cookies: stateless proof that a client receives at its address ---- */

/* Makes a cookie of the current epoch, bound to the address and to the HELLO's uuid and client nonce. ip is
 * as in struct mr_address. */
void mr_cookie_make(const uint8_t secret[MR_COOKIE_SECRET_BYTES], const uint8_t ip[16], uint16_t port,
                    const struct mr_hello *hello, uint64_t now_us, uint8_t cookie[MR_COOKIE_BYTES]);
/* Returns whether hello->cookie was made for this address and HELLO in the current epoch or the one
 * before. */
bool mr_cookie_verify(const uint8_t secret[MR_COOKIE_SECRET_BYTES], const uint8_t ip[16], uint16_t port,
                      const struct mr_hello *hello, uint64_t now_us);

/* ---- proofs: to be written last, they cover every other field ---- */

void mr_hello_prove(const struct mr_auth *auth, struct mr_hello *hello);
bool mr_hello_verify(const struct mr_auth *auth, const struct mr_hello *hello);
/* The same for the answer to a HELLO with this uuid and boot nonce (its client nonce is in the ACCEPT
 * itself). `version`: what follows a long ACCEPT; NULL: it is a short one. */
void mr_accept_prove(const struct mr_auth *auth, const uint8_t client_uuid[MR_UUID_BYTES],
                     uint64_t boot_nonce, struct mr_accept *accept, const struct mr_peer_version *version);
bool mr_accept_verify(const struct mr_auth *auth, const uint8_t client_uuid[MR_UUID_BYTES],
                      uint64_t boot_nonce, const struct mr_accept *accept,
                      const struct mr_peer_version *version);

/* Derives a session's key from what the header of each of its packets contains. */
void mr_session_key(const struct mr_auth *auth, uint64_t session_id, uint32_t incarnation,
                    struct mr_tag_key *out);

#endif
