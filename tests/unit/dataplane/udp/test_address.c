#include <netinet/in.h>
#include <string.h>
#include "dataplane/udp/address.h"
#include "tests/test.h"

TEST(test_forms)
{
    const struct {
        const char *text, *means;
        bool listening;
    } cases[] = {
        {"127.0.0.1:7701", "127.0.0.1:7701", false},
        {"127.0.0.1", "127.0.0.1:7700", false},
        {"[::1]:9", "[::1]:9", false},
        {"[::1]", "[::1]:7700", false},
        {"::1", "[::1]:7700", false},
        {"0.0.0.0:0", "0.0.0.0:0", true},
        {"[::]:7800", "[::]:7800", true},
        {"localhost:65535", "127.0.0.1:65535", true},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct mr_address a;
        char error[256] = "", text[MR_ADDRESS_TEXT_BYTES];
        assert_int_equal(mr_address_resolve(cases[i].text, cases[i].listening, &a, error, sizeof(error)),
                         MR_OK);
        mr_address_text(&a, text);
        if (strcmp(cases[i].text, "localhost:65535") == 0 && strcmp(text, "[::1]:65535") == 0)
            continue; /* which family a name has is the machine's business */
        assert_string_equal(text, cases[i].means);
    }
}

TEST(test_refused)
{
    const char *const cases[] = {
        "",     ":7700",  "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:1x",
        "[::1", "[::1]x", "[::1]:",     "no such host:1"};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct mr_address a = {.port = 12345};
        char error[256] = "";
        assert_int_equal(mr_address_resolve(cases[i], false, &a, error, sizeof(error)), MR_INVALID_ARGUMENT);
        assert_int_equal(a.port, 12345);
        assert_true(error[0] != '\0');
    }
}

TEST(test_sockaddr_and_back)
{
    struct mr_address ipv4, ipv6, back;
    struct sockaddr_storage sa;
    char error[256];
    assert_int_equal(mr_address_resolve("127.0.0.1:80", false, &ipv4, error, sizeof(error)), MR_OK);
    assert_int_equal(mr_address_resolve("[fe80::1]:81", true, &ipv6, error, sizeof(error)), MR_OK);
    assert_true(mr_address_is_ipv4(&ipv4));
    assert_false(mr_address_is_ipv4(&ipv6));
    assert_int_equal(mr_address_to_sockaddr(&ipv4, AF_INET, &sa), sizeof(struct sockaddr_in));
    mr_address_from_sockaddr((const struct sockaddr *)&sa, &back);
    assert_memory_equal(&back, &ipv4, sizeof(back));
    /* Through a socket for both families it is a mapped address, and still IPv4. */
    assert_int_equal(mr_address_to_sockaddr(&ipv4, AF_INET6, &sa), sizeof(struct sockaddr_in6));
    mr_address_from_sockaddr((const struct sockaddr *)&sa, &back);
    assert_memory_equal(&back, &ipv4, sizeof(back));
    /* The interface of a link-local address is kept. */
    ipv6.path[4] = 3;
    mr_address_to_sockaddr(&ipv6, AF_INET6, &sa);
    mr_address_from_sockaddr((const struct sockaddr *)&sa, &back);
    assert_memory_equal(&back, &ipv6, sizeof(back));
}

TEST(test_any)
{
    struct mr_address a;
    char error[256];
    assert_int_equal(mr_address_resolve("0.0.0.0:1", true, &a, error, sizeof(error)), MR_OK);
    assert_true(mr_address_is_any(&a));
    assert_int_equal(mr_address_resolve("[::]:1", true, &a, error, sizeof(error)), MR_OK);
    assert_true(mr_address_is_any(&a));
    assert_int_equal(mr_address_resolve("127.0.0.1:1", true, &a, error, sizeof(error)), MR_OK);
    assert_false(mr_address_is_any(&a));
}

TEST(all_addresses_of_a_name_are_found)
{
    struct mr_address all[4];
    uint32_t count;
    char error[256];
    assert_int_equal(mr_address_resolve_all("127.0.0.1:9", all, 4, &count, error, sizeof(error)), MR_OK);
    assert_int_equal(count, 1);
    assert_true(mr_address_is_ipv4(&all[0]));
    assert_int_equal(all[0].port, 9);
    assert_true(mr_address_has_route(&all[0]));
    assert_int_equal(mr_address_resolve_all("localhost:9", all, 4, &count, error, sizeof(error)), MR_OK);
    assert_int_in_range(count, 1, 4);
    assert_int_equal(mr_address_resolve_all("localhost:9", all, 1, &count, error, sizeof(error)), MR_OK);
    assert_int_equal(count, 1);
    assert_int_equal(mr_address_resolve_all("", all, 4, &count, error, sizeof(error)), MR_INVALID_ARGUMENT);
    assert_int_equal(count, 0);
}

TEST(loopback_is_known)
{
    static const char *const here[] = {"127.0.0.1:1", "127.255.0.9:1", "[::1]:1"};
    static const char *const elsewhere[] = {"0.0.0.0:1", "10.0.0.1:1", "[::]:1", "[fd00::1]:1",
                                            "128.0.0.1:1"};
    struct mr_address a;
    char error[256];
    for (size_t i = 0; i < sizeof(here) / sizeof(*here); i++) {
        assert_int_equal(mr_address_resolve(here[i], true, &a, error, sizeof(error)), MR_OK);
        assert_true(mr_address_is_loopback(&a));
    }
    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(*elsewhere); i++) {
        assert_int_equal(mr_address_resolve(elsewhere[i], true, &a, error, sizeof(error)), MR_OK);
        assert_false(mr_address_is_loopback(&a));
    }
}
