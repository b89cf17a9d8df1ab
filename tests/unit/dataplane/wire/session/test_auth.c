#include <string.h>
#include "dataplane/wire/session/auth.h"
#include "tests/test.h"

/* Every expected value below was computed by another program (Python's hashlib and xxhash, and a SipHash
 * written from its paper) from docs/protocol.md: a second client would compute the same. */

static uint8_t psk[MR_PSK_BYTES], uuid[MR_UUID_BYTES], ip[16];
static struct mr_auth auth;

static void count_up(uint8_t *out, size_t n, uint8_t first)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(first + i);
}

static int set_up(void **state)
{
    count_up(psk, sizeof(psk), 0);
    count_up(uuid, sizeof(uuid), 0x40);
    count_up(ip, sizeof(ip), 0x80);
    mr_auth_init(&auth, psk);
    return 0;
}

static struct mr_hello hello(void)
{
    struct mr_hello h = {.boot_nonce = 0x1111,
                         .client_nonce = 0x2222,
                         .session_id = 0x5501,
                         .key_id = 0x3333,
                         .receive_buffer_bytes = 0x4444,
                         .udp_bytes_max = 1472,
                         .window = 64,
                         .core = 3};
    memcpy(h.client_uuid, uuid, sizeof(uuid));
    count_up(h.cookie, sizeof(h.cookie), 0x60);
    return h;
}

static struct mr_accept accept_of_hello(void)
{
    return (struct mr_accept){.session_id = 0x5503,
                              .client_nonce = 0x2222,
                              .last_push_step = 99,
                              .start_id = 0x5555666677778888,
                              .lineage = 0x9999,
                              .restores = 3,
                              .incarnation = 5,
                              .grant_bytes = 65536,
                              .map_version = 1,
                              .udp_bytes_max = 1472,
                              .window = 64,
                              .core = 3,
                              .core_count = 4,
                              .arrived_core = 2};
}

TEST(keys_are_derived_as_documented, set_up)
{
    static const uint8_t hello_key[16] = {0x08, 0x06, 0xbd, 0xcb, 0x6c, 0x1f, 0x4a, 0x5c,
                                          0xa8, 0xb0, 0x1a, 0xf1, 0x3a, 0x94, 0xbb, 0x8f};
    static const uint8_t session_key[16] = {0xa3, 0x60, 0x1f, 0x89, 0x4e, 0x31, 0x2f, 0x00,
                                            0x69, 0xca, 0x3b, 0x50, 0xa9, 0xd1, 0x64, 0xef};
    assert_int_equal(auth.key_id, 0x60512fcb);
    assert_memory_equal(auth.hello_key.bytes, hello_key, 16);

    struct mr_tag_key key;
    mr_session_key(&auth, 0x5503, 5, &key);
    assert_memory_equal(key.bytes, session_key, 16);
}

TEST(no_key_is_the_all_zero_key, set_up)
{
    static const uint8_t zeros[MR_PSK_BYTES];
    struct mr_auth none, zero;
    mr_auth_init(&none, NULL);
    mr_auth_init(&zero, zeros);
    assert_memory_equal(&none, &zero, sizeof(none));
    assert_int_equal(none.key_id, 0x6a0deb89);
    assert_memory_not_equal(none.hello_key.bytes, auth.hello_key.bytes, 16);
}

static uint64_t tag_of(uint8_t *datagram, size_t bytes)
{
    uint64_t tag;
    mr_tag_write(&auth.hello_key, datagram, bytes);
    memcpy(&tag, datagram + 48, sizeof(tag));
    assert_true(mr_tag_verify(&auth.hello_key, datagram, bytes));
    return tag;
}

TEST(tags_are_siphash_of_header_and_payload_hash, set_up)
{
    uint8_t datagram[MR_HEADER_BYTES + 1400];
    count_up(datagram, sizeof(datagram), 0);
    assert_true(tag_of(datagram, MR_HEADER_BYTES) == UINT64_C(0x148ef4a011cdd223));
    count_up(datagram + MR_HEADER_BYTES, 16, 0);
    assert_true(tag_of(datagram, MR_HEADER_BYTES + 16) == UINT64_C(0x1506c673b8d6fdc5));
    for (uint32_t i = 0; i < 1400; i++)
        datagram[MR_HEADER_BYTES + i] = (uint8_t)(i * 7 + 3);
    assert_true(tag_of(datagram, sizeof(datagram)) == UINT64_C(0x5fb7a88cbb83219f));
}

TEST(every_bit_of_datagram_and_key_counts, set_up)
{
    uint8_t datagram[MR_HEADER_BYTES + 300];
    count_up(datagram, sizeof(datagram), 7);
    (void)tag_of(datagram, sizeof(datagram));
    for (uint32_t bit = 0; bit < sizeof(datagram) * 8; bit++) {
        datagram[bit / 8] = (uint8_t)(datagram[bit / 8] ^ (1u << (bit % 8)));
        assert_false(mr_tag_verify(&auth.hello_key, datagram, sizeof(datagram)));
        datagram[bit / 8] = (uint8_t)(datagram[bit / 8] ^ (1u << (bit % 8)));
    }
    for (uint32_t bit = 0; bit < MR_TAG_KEY_BYTES * 8; bit++) {
        struct mr_tag_key other = auth.hello_key;
        other.bytes[bit / 8] = (uint8_t)(other.bytes[bit / 8] ^ (1u << (bit % 8)));
        assert_false(mr_tag_verify(&other, datagram, sizeof(datagram)));
    }
    for (size_t bytes = MR_HEADER_BYTES; bytes < sizeof(datagram); bytes++)
        assert_false(mr_tag_verify(&auth.hello_key, datagram, bytes));
    assert_true(mr_tag_verify(&auth.hello_key, datagram, sizeof(datagram)));
}

TEST(tags_work_at_any_alignment, set_up)
{
    uint8_t room[MR_HEADER_BYTES + 100 + 8];
    count_up(room, sizeof(room), 0);
    uint64_t first = tag_of(room, MR_HEADER_BYTES + 100);
    for (uint32_t shift = 1; shift < 8; shift++) {
        count_up(room + shift, MR_HEADER_BYTES + 100, 0);
        assert_true(tag_of(room + shift, MR_HEADER_BYTES + 100) == first);
    }
}

TEST(a_hello_is_proved_as_documented, set_up)
{
    static const uint8_t proof[MR_PROOF_BYTES] = {
        0xea, 0xc0, 0x95, 0x86, 0x11, 0x83, 0x13, 0xe0, 0x2e, 0xd9, 0xf7, 0x07, 0x74, 0x46, 0xb7, 0x2d,
        0xd7, 0x3f, 0x24, 0x87, 0xf9, 0x47, 0x43, 0xcf, 0x99, 0x04, 0xb6, 0xe0, 0x2b, 0x72, 0x25, 0xbb};
    struct mr_hello h = hello();
    memset(h.proof, 0xff, sizeof(h.proof)); /* what stood there before does not matter */
    mr_hello_prove(&auth, &h);
    assert_memory_equal(h.proof, proof, sizeof(proof));
    assert_true(mr_hello_verify(&auth, &h));
}

TEST(every_bit_of_a_hello_is_covered, set_up)
{
    struct mr_hello h = hello();
    mr_hello_prove(&auth, &h);
    for (uint32_t bit = 0; bit < sizeof(h) * 8; bit++) {
        struct mr_hello changed = h;
        ((uint8_t *)&changed)[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_false(mr_hello_verify(&auth, &changed));
    }
    struct mr_auth other;
    psk[31] ^= 1;
    mr_auth_init(&other, psk);
    assert_false(mr_hello_verify(&other, &h));
}

TEST(an_accept_is_proved_as_documented, set_up)
{
    static const uint8_t proof[MR_PROOF_BYTES] = {
        0x5b, 0x9d, 0xe5, 0x1b, 0x4d, 0xc5, 0x92, 0x62, 0x04, 0x81, 0xb6, 0xcb, 0x9a, 0xbd, 0x06, 0xdf,
        0x82, 0x16, 0x8b, 0xef, 0x76, 0x29, 0xaa, 0xba, 0xfa, 0x47, 0x9f, 0xf7, 0x24, 0x58, 0xdb, 0xb0};
    struct mr_accept a = accept_of_hello();
    mr_accept_prove(&auth, uuid, 0x1111, &a, NULL);
    assert_memory_equal(a.proof, proof, sizeof(proof));
    assert_true(mr_accept_verify(&auth, uuid, 0x1111, &a, NULL));
}

TEST(every_bit_of_an_accept_and_its_client_is_covered, set_up)
{
    struct mr_accept a = accept_of_hello();
    mr_accept_prove(&auth, uuid, 0x1111, &a, NULL);
    for (uint32_t bit = 0; bit < sizeof(a) * 8; bit++) {
        struct mr_accept changed = a;
        ((uint8_t *)&changed)[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_false(mr_accept_verify(&auth, uuid, 0x1111, &changed, NULL));
    }
    assert_false(mr_accept_verify(&auth, uuid, 0x1112, &a, NULL));
    uuid[0] ^= 1;
    assert_false(mr_accept_verify(&auth, uuid, 0x1111, &a, NULL));
    uuid[0] ^= 1;
    struct mr_auth other;
    mr_auth_init(&other, NULL);
    assert_false(mr_accept_verify(&other, uuid, 0x1111, &a, NULL));
}

TEST(every_bit_of_a_version_is_covered, set_up)
{
    struct mr_accept a = accept_of_hello();
    struct mr_peer_version version = {.capabilities = 5, .text = "0.9.1"};
    mr_accept_prove(&auth, uuid, 0x1111, &a, &version);
    assert_true(mr_accept_verify(&auth, uuid, 0x1111, &a, &version));
    assert_false(mr_accept_verify(&auth, uuid, 0x1111, &a, NULL)); /* it cannot be cut off */
    for (uint32_t bit = 0; bit < sizeof(version) * 8; bit++) {
        struct mr_peer_version changed = version;
        ((uint8_t *)&changed)[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_false(mr_accept_verify(&auth, uuid, 0x1111, &a, &changed));
    }
}

TEST(session_keys_differ_by_each_of_their_inputs, set_up)
{
    struct mr_tag_key base, key;
    struct mr_auth other;
    mr_session_key(&auth, 0x5503, 5, &base);
    for (uint32_t bit = 0; bit < 64; bit++) {
        mr_session_key(&auth, 0x5503 ^ UINT64_C(1) << bit, 5, &key);
        assert_memory_not_equal(key.bytes, base.bytes, 16);
    }
    for (uint32_t bit = 0; bit < 32; bit++) {
        mr_session_key(&auth, 0x5503, 5 ^ 1u << bit, &key);
        assert_memory_not_equal(key.bytes, base.bytes, 16);
    }
    psk[0] ^= 1;
    mr_auth_init(&other, psk);
    mr_session_key(&other, 0x5503, 5, &key);
    assert_memory_not_equal(key.bytes, base.bytes, 16);
}

static const uint8_t secret[MR_COOKIE_SECRET_BYTES] = {1, 2, 3};

TEST(a_cookie_lasts_one_to_two_epochs, set_up)
{
    struct mr_hello h = hello();
    uint64_t start = 100 * MR_COOKIE_EPOCH_US;
    mr_cookie_make(secret, ip, 7700, &h, start, h.cookie);
    assert_true(mr_cookie_verify(secret, ip, 7700, &h, start));
    assert_true(mr_cookie_verify(secret, ip, 7700, &h, start + 2 * MR_COOKIE_EPOCH_US - 1));
    assert_false(mr_cookie_verify(secret, ip, 7700, &h, start + 2 * MR_COOKIE_EPOCH_US));
    assert_false(mr_cookie_verify(secret, ip, 7700, &h, start - 1)); /* from the future */
    mr_cookie_make(secret, ip, 7700, &h, 0, h.cookie);
    assert_true(mr_cookie_verify(secret, ip, 7700, &h, 0));
}

TEST(a_cookie_is_bound_to_address_client_and_server, set_up)
{
    struct mr_hello h = hello();
    uint64_t now = 5 * MR_COOKIE_EPOCH_US;
    uint8_t other_secret[MR_COOKIE_SECRET_BYTES] = {1, 2, 4};
    mr_cookie_make(secret, ip, 7700, &h, now, h.cookie);
    assert_false(mr_cookie_verify(other_secret, ip, 7700, &h, now));
    assert_false(mr_cookie_verify(secret, ip, 7701, &h, now));
    for (uint32_t i = 0; i < sizeof(ip); i++) {
        ip[i] ^= 1;
        assert_false(mr_cookie_verify(secret, ip, 7700, &h, now));
        ip[i] ^= 1;
    }
    struct mr_hello changed = h;
    changed.client_uuid[3] ^= 1;
    assert_false(mr_cookie_verify(secret, ip, 7700, &changed, now));
    changed = h;
    changed.client_nonce ^= 1;
    assert_false(mr_cookie_verify(secret, ip, 7700, &changed, now));
    changed = h;
    changed.cookie[15] ^= 0x80;
    assert_false(mr_cookie_verify(secret, ip, 7700, &changed, now));
    assert_true(mr_cookie_verify(secret, ip, 7700, &h, now));
}
