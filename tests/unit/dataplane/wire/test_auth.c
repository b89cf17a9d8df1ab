#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "dataplane/wire/auth.h"

/* Every expected value below was computed by another program (Python's hashlib and a SipHash written from its paper)
 * from docs/protocol.md: a second client would compute the same. */

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
                              .server_nonce = 0x7777,
                              .last_push_step = 99,
                              .incarnation = 5,
                              .grant_bytes = 65536,
                              .map_version = 1,
                              .udp_bytes_max = 1472,
                              .window = 64,
                              .core = 3,
                              .core_count = 4};
}

static void keys_are_derived_as_documented(void **state)
{
    static const uint8_t hello_key[16] = {0x0d, 0xb8, 0xe6, 0x35, 0xf1, 0x5d, 0x77, 0x66,
                                          0x55, 0xd1, 0x44, 0x1b, 0x8a, 0x69, 0x2c, 0xcd};
    static const uint8_t session_key[16] = {0xf5, 0xfa, 0x55, 0x36, 0xf4, 0xbc, 0x64, 0x00,
                                            0xa2, 0x59, 0xd6, 0xe0, 0x42, 0xdd, 0xd4, 0x87};
    assert_int_equal(auth.key_id, 0x60512fcb);
    assert_memory_equal(auth.hello_key.bytes, hello_key, 16);

    struct mr_accept a = accept_of_hello();
    struct mr_tag_key key;
    mr_session_key(&auth, &a, uuid, &key);
    assert_memory_equal(key.bytes, session_key, 16);
}

static void no_key_is_the_all_zero_key(void **state)
{
    static const uint8_t zeros[MR_PSK_BYTES];
    struct mr_auth none, zero;
    mr_auth_init(&none, NULL);
    mr_auth_init(&zero, zeros);
    assert_memory_equal(&none, &zero, sizeof(none));
    assert_int_equal(none.key_id, 0x6a0deb89);
    assert_memory_not_equal(none.hello_key.bytes, auth.hello_key.bytes, 16);
}

static void tags_are_siphash_of_the_header(void **state)
{
    uint8_t header[MR_HEADER_BYTES];
    count_up(header, sizeof(header), 0);
    mr_tag_write(&auth.hello_key, header);
    uint64_t tag;
    memcpy(&tag, header + 40, sizeof(tag));
    assert_true(tag == UINT64_C(0xf76e1c6592eba783));
    assert_true(mr_tag_verify(&auth.hello_key, header));
}

static void every_bit_of_header_tag_and_key_counts(void **state)
{
    uint8_t header[MR_HEADER_BYTES];
    count_up(header, sizeof(header), 7);
    mr_tag_write(&auth.hello_key, header);
    for (uint32_t bit = 0; bit < sizeof(header) * 8; bit++) {
        header[bit / 8] = (uint8_t)(header[bit / 8] ^ (1u << (bit % 8)));
        assert_false(mr_tag_verify(&auth.hello_key, header));
        header[bit / 8] = (uint8_t)(header[bit / 8] ^ (1u << (bit % 8)));
    }
    for (uint32_t bit = 0; bit < MR_TAG_KEY_BYTES * 8; bit++) {
        struct mr_tag_key other = auth.hello_key;
        other.bytes[bit / 8] = (uint8_t)(other.bytes[bit / 8] ^ (1u << (bit % 8)));
        assert_false(mr_tag_verify(&other, header));
    }
    assert_true(mr_tag_verify(&auth.hello_key, header));
}

static void tags_work_at_any_alignment(void **state)
{
    uint8_t room[MR_HEADER_BYTES + 8], first[8];
    for (uint32_t shift = 0; shift < 8; shift++) {
        count_up(room + shift, MR_HEADER_BYTES, 0);
        mr_tag_write(&auth.hello_key, room + shift);
        assert_true(mr_tag_verify(&auth.hello_key, room + shift));
        if (shift == 0)
            memcpy(first, room + 40, 8);
        assert_memory_equal(room + shift + 40, first, 8);
    }
}

static void a_hello_is_proved_as_documented(void **state)
{
    static const uint8_t proof[MR_PROOF_BYTES] = {
        0xe2, 0xb0, 0xf5, 0x10, 0x2a, 0xf8, 0x03, 0x1c, 0xd7, 0x85, 0x87, 0x0e, 0x4e, 0x9c, 0x81, 0xf1,
        0xfa, 0xe2, 0x6a, 0x8c, 0xb1, 0xc6, 0x5e, 0x3e, 0x92, 0xc8, 0xe4, 0x1c, 0xd8, 0xeb, 0xfe, 0x63};
    struct mr_hello h = hello();
    memset(h.proof, 0xff, sizeof(h.proof)); /* what stood there before does not matter */
    mr_hello_prove(&auth, &h);
    assert_memory_equal(h.proof, proof, sizeof(proof));
    assert_true(mr_hello_verify(&auth, &h));
}

static void every_bit_of_a_hello_is_covered(void **state)
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

static void an_accept_is_proved_as_documented(void **state)
{
    static const uint8_t proof[MR_PROOF_BYTES] = {
        0x4c, 0x32, 0x12, 0xa1, 0xc6, 0x19, 0xd7, 0x19, 0xde, 0x33, 0x53, 0x9f, 0x9f, 0xca, 0x75, 0x70,
        0xbf, 0x6d, 0xdf, 0x8b, 0xe7, 0xe5, 0x80, 0xb8, 0xc5, 0x28, 0x30, 0x5b, 0x16, 0x2e, 0xfa, 0xa7};
    struct mr_accept a = accept_of_hello();
    mr_accept_prove(&auth, uuid, 0x1111, &a);
    assert_memory_equal(a.proof, proof, sizeof(proof));
    assert_true(mr_accept_verify(&auth, uuid, 0x1111, &a));
}

static void every_bit_of_an_accept_and_its_client_is_covered(void **state)
{
    struct mr_accept a = accept_of_hello();
    mr_accept_prove(&auth, uuid, 0x1111, &a);
    for (uint32_t bit = 0; bit < sizeof(a) * 8; bit++) {
        struct mr_accept changed = a;
        ((uint8_t *)&changed)[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_false(mr_accept_verify(&auth, uuid, 0x1111, &changed));
    }
    assert_false(mr_accept_verify(&auth, uuid, 0x1112, &a));
    uuid[0] ^= 1;
    assert_false(mr_accept_verify(&auth, uuid, 0x1111, &a));
    uuid[0] ^= 1;
    struct mr_auth other;
    mr_auth_init(&other, NULL);
    assert_false(mr_accept_verify(&other, uuid, 0x1111, &a));
}

static void session_keys_differ_by_each_of_their_inputs(void **state)
{
    struct mr_accept a = accept_of_hello(), b = a;
    struct mr_tag_key base, key;
    mr_session_key(&auth, &a, uuid, &base);
    b.client_nonce++;
    mr_session_key(&auth, &b, uuid, &key);
    assert_memory_not_equal(key.bytes, base.bytes, 16);
    b = a;
    b.server_nonce++;
    mr_session_key(&auth, &b, uuid, &key);
    assert_memory_not_equal(key.bytes, base.bytes, 16);
    b = a;
    b.session_id++;
    mr_session_key(&auth, &b, uuid, &key);
    assert_memory_not_equal(key.bytes, base.bytes, 16);
    uuid[15] ^= 1;
    mr_session_key(&auth, &a, uuid, &key);
    assert_memory_not_equal(key.bytes, base.bytes, 16);
}

static const uint8_t secret[MR_COOKIE_SECRET_BYTES] = {1, 2, 3};

static void a_cookie_lasts_one_to_two_epochs(void **state)
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

static void a_cookie_is_bound_to_address_client_and_server(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(keys_are_derived_as_documented, set_up),
        cmocka_unit_test_setup(no_key_is_the_all_zero_key, set_up),
        cmocka_unit_test_setup(tags_are_siphash_of_the_header, set_up),
        cmocka_unit_test_setup(every_bit_of_header_tag_and_key_counts, set_up),
        cmocka_unit_test_setup(tags_work_at_any_alignment, set_up),
        cmocka_unit_test_setup(a_hello_is_proved_as_documented, set_up),
        cmocka_unit_test_setup(every_bit_of_a_hello_is_covered, set_up),
        cmocka_unit_test_setup(an_accept_is_proved_as_documented, set_up),
        cmocka_unit_test_setup(every_bit_of_an_accept_and_its_client_is_covered, set_up),
        cmocka_unit_test_setup(session_keys_differ_by_each_of_their_inputs, set_up),
        cmocka_unit_test_setup(a_cookie_lasts_one_to_two_epochs, set_up),
        cmocka_unit_test_setup(a_cookie_is_bound_to_address_client_and_server, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
