/* Places by client and network: each is counted where it is known, and given back. */
#include "dataplane/wire/format/packet.h"
#include "ps/exactly_once/shares.h"
#include "tests/test.h"

static const uint8_t a[MR_UUID_BYTES] = {1}, b[MR_UUID_BYTES] = {2};

TEST(clients_of_a_network_share_its_count)
{
    static struct ps_shares s = {.secret = 7};
    const struct ps_share first = ps_shares_find(&s, a, 1), second = ps_shares_find(&s, b, 1);
    const struct ps_share elsewhere = ps_shares_find(&s, a, 2);
    ps_shares_add(&s, first);
    ps_shares_add(&s, second);
    ps_shares_add(&s, elsewhere);
    assert_int_equal(ps_shares_of_client(&s, first), 2);
    assert_int_equal(ps_shares_of_client(&s, second), 1);
    assert_int_equal(ps_shares_of_network(&s, first), 2);
    assert_int_equal(ps_shares_of_network(&s, elsewhere), 1);
    ps_shares_remove(&s, first);
    ps_shares_remove(&s, second);
    assert_int_equal(ps_shares_of_client(&s, second), 0);
    assert_int_equal(ps_shares_of_network(&s, first), 0);
    assert_int_equal(ps_shares_of_client(&s, elsewhere), 1);
}

TEST(who_is_not_known_is_not_counted)
{
    static struct ps_shares s = {.secret = 7};
    const struct ps_share client = ps_shares_find(&s, a, 0), nobody = ps_shares_find(&s, NULL, 0);
    ps_shares_add(&s, client);
    ps_shares_add(&s, nobody);
    assert_int_equal(ps_shares_of_client(&s, client), 1);
    assert_int_equal(ps_shares_of_network(&s, client), 0);
    assert_int_equal(ps_shares_of_client(&s, nobody), 0);
    ps_shares_remove(&s, nobody);
    ps_shares_remove(&s, client);
    assert_int_equal(ps_shares_of_client(&s, client), 0);
}

/* Who knows no secret cannot tell which others share a count with him. */
TEST(the_secret_decides_where_a_client_is_counted)
{
    static struct ps_shares one = {.secret = 7}, other = {.secret = 8};
    uint32_t alike = 0;
    for (uint8_t i = 0; i < 100; i++) {
        const uint8_t uuid[MR_UUID_BYTES] = {i};
        alike += ps_shares_find(&one, uuid, 0).client == ps_shares_find(&other, uuid, 0).client;
    }
    assert_true(alike < 10);
}
