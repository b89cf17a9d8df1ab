#include <string.h>
#include "dataplane/wire/session/address_limit.h"
#include "tests/test.h"

#define SECOND_US UINT64_C(1000000)

static struct mr_address_limits *limits;

static int teardown(void **state)
{
    mr_address_limits_destroy(limits);
    limits = NULL;
    return 0;
}

static void address_limit_create(uint32_t sessions_max, uint32_t per_address, uint32_t hellos)
{
    limits = mr_address_limits_create(sessions_max, per_address, hellos, 42);
    assert_non_null(limits);
}

static const uint8_t *ip(uint32_t n)
{
    static uint8_t bytes[16];
    memset(bytes, 0, sizeof(bytes));
    bytes[10] = bytes[11] = 0xff; /* of IPv4 */
    memcpy(bytes + 12, &n, sizeof(n));
    return bytes;
}

static bool session_begin(const uint8_t *address)
{
    return mr_address_session_begin(limits, address, mr_address_sessions_max(limits));
}

TEST(sessions_are_counted_per_address, NULL, teardown)
{
    address_limit_create(100, 3, 1);
    for (uint32_t n = 0; n < 10; n++) {
        for (int i = 0; i < 3; i++)
            assert_true(session_begin(ip(n)));
        assert_false(session_begin(ip(n)));
    }
    mr_address_session_end(limits, ip(4));
    assert_false(session_begin(ip(5)));
    assert_true(session_begin(ip(4)));
    assert_false(session_begin(ip(4)));
}

TEST(memory_is_counted_per_address, NULL, teardown)
{
    address_limit_create(100, 3, 1);
    assert_true(mr_address_is_alone(limits, ip(1)));
    for (uint32_t n = 1; n <= 40; n++) {
        assert_true(session_begin(ip(n)));
        assert_int_equal(mr_address_is_alone(limits, ip(1)), n == 1);
        mr_address_memory_add(limits, ip(n), 4096 * n);
    }
    assert_false(mr_address_is_alone(limits, ip(77)));
    assert_true(session_begin(ip(20)));
    mr_address_memory_add(limits, ip(20), 1 << 20);
    mr_address_memory_add(limits, ip(20), -4096 * 20);
    for (uint32_t n = 1; n < 40; n += n == 19 ? 2 : 1) { /* entries move */
        mr_address_memory_add(limits, ip(n), -4096 * (int)n);
        mr_address_session_end(limits, ip(n));
    }
    assert_int_equal(mr_address_memory(limits, ip(20)), 1 << 20);
    assert_int_equal(mr_address_memory(limits, ip(40)), 4096 * 40);
    assert_int_equal(mr_address_memory(limits, ip(1)), 0);
    assert_true(session_begin(ip(1)));
    assert_int_equal(mr_address_memory(limits, ip(1)), 0);
}

/* A machine has all addresses of a /64 at its disposal. */
TEST(addresses_of_a_64_count_as_one, NULL, teardown)
{
    address_limit_create(100, 3, 1);
    uint8_t ipv6[16] = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 1};
    for (uint8_t n = 0; n < 3; n++) {
        ipv6[8] = ipv6[15] = n;
        assert_true(session_begin(ipv6));
    }
    ipv6[12] = 77;
    assert_false(session_begin(ipv6));
    assert_true(mr_address_hello(limits, ipv6, SECOND_US));
    ipv6[12]++;
    assert_false(mr_address_hello(limits, ipv6, SECOND_US));
    ipv6[7]++;
    assert_true(session_begin(ipv6));
    ipv6[7]--;
    mr_address_session_end(limits, ipv6);
    assert_true(session_begin(ipv6));
}

TEST(by_itself_the_limit_is_a_quarter_and_not_too_few, NULL, teardown)
{
    static const struct {
        uint32_t sessions_max, limit;
    } cases[] = {{1024, 256}, {65536, 16384}, {256, 64}, {100, 64}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        address_limit_create(cases[i].sessions_max, 0, 1);
        for (uint32_t n = 0; n < cases[i].limit; n++)
            assert_true(session_begin(ip(7)));
        assert_false(session_begin(ip(7)));
        (void)teardown(state);
    }
}

/* Against plain counters, with as many addresses at a time as there may be sessions. */
TEST(counts_stay_right_as_addresses_come_and_go, NULL, teardown)
{
    enum { ADDRESSES = 50, SESSIONS = 64, PER_ADDRESS = 2 };
    static uint32_t count[ADDRESSES];
    uint64_t r = 88172645463325252u;
    uint32_t total = 0, refused = 0;
    address_limit_create(SESSIONS, PER_ADDRESS, 1);
    for (uint32_t turn = 0; turn < 200000; turn++) {
        r ^= r << 13, r ^= r >> 7, r ^= r << 17;
        uint32_t n = (uint32_t)(r >> 32) % ADDRESSES;
        bool begin = (r >> 20 & 7) < 5;
        if (begin && total < SESSIONS) {
            bool may = session_begin(ip(n));
            assert_int_equal(may, count[n] < PER_ADDRESS);
            count[n] += may;
            total += may;
            refused += !may;
        } else if (!begin && count[n] > 0) {
            mr_address_session_end(limits, ip(n));
            count[n]--;
            total--;
        }
    }
    assert_true(refused > 100);
}

TEST(hellos_are_limited_by_rate, NULL, teardown)
{
    address_limit_create(1, 1, 10);
    uint64_t now_us = 5 * SECOND_US;
    for (int i = 0; i < 10; i++)
        assert_true(mr_address_hello(limits, ip(1), now_us)); /* a second's worth at once */
    assert_false(mr_address_hello(limits, ip(1), now_us));
    assert_true(mr_address_hello(limits, ip(2), now_us));
    assert_false(mr_address_hello(limits, ip(1), now_us + 99999));
    assert_true(mr_address_hello(limits, ip(1), now_us + 100000)); /* one more each tenth of a second */
    assert_false(mr_address_hello(limits, ip(1), now_us + 100000));
    uint32_t let_in = 0;
    for (uint64_t t = 1; t <= 10 * SECOND_US; t += 1000)
        let_in += mr_address_hello(limits, ip(1), now_us + 100000 + t);
    assert_int_in_range(let_in, 99, 100);
    now_us += 60 * SECOND_US; /* what was not used does not add up */
    for (int i = 0; i < 10; i++)
        assert_true(mr_address_hello(limits, ip(1), now_us));
    assert_false(mr_address_hello(limits, ip(1), now_us));
}

TEST(the_rate_of_hellos_can_change, NULL, teardown)
{
    address_limit_create(1, 1, 10);
    const uint64_t now_us = 5 * SECOND_US;
    uint32_t let_in = 0;
    mr_address_limits_set_hellos(limits, 1000);
    for (int i = 0; i < 2000; i++)
        let_in += mr_address_hello(limits, ip(1), now_us);
    assert_int_equal(let_in, 1000);
}
