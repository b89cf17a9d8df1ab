#include <stdio.h>
#include <string.h>
#include "trainer_client/torchrec/configuration.h"
#include "tests/test.h"

static struct tde_configuration good(const char *text)
{
    struct tde_configuration c;
    char error[512] = "";
    if (!tde_configuration_parse(text, &c, error, sizeof(error)))
        fail_msg("%s: %s", text, error);
    return c;
}

/* The error says `says`, is one line, and the output is as it was. */
static void bad(const char *text, const char *says)
{
    struct tde_configuration c, before;
    char error[512] = "";
    memset(&c, 0x5A, sizeof(c));
    before = c;
    assert_false(tde_configuration_parse(text, &c, error, sizeof(error)));
    if (strstr(error, says) == NULL || strchr(error, '\n') != NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", text, error, says);
    assert_memory_equal(&c, &before, sizeof(c));
}

TEST(test_a_server_alone_is_enough)
{
    static const char *const forms[] = {"10.0.0.1:7700", "10.0.0.1:7700/", "10.0.0.1:7700?",
                                        "10.0.0.1:7700/?"};
    for (size_t i = 0; i < 4; i++) {
        struct tde_configuration c = good(forms[i]);
        assert_string_equal(c.server, "10.0.0.1:7700");
        assert_string_equal(c.key_file, "");
        assert_string_equal(c.prefix, "");
        assert_int_equal(c.deadline_ms, 60000);
        assert_int_equal(c.connect_ms, 10000);
        assert_int_equal(c.dtype, MR_F32);
        assert_true(c.replay && !c.goes_on);
        assert_int_equal(c.replay_mib, 64);
    }
    assert_string_equal(good("[fd00::1]:7700/?replay=off").server, "[fd00::1]:7700");
}

TEST(test_nodes_of_a_cluster)
{
    char text[32 * 64] = "", servers[sizeof(text)];
    for (uint32_t i = 0; i < 32; i++)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text),
                       "%sparameter-server-%u.ads.example.com:7700", i == 0 ? "" : ",", i);
    memcpy(servers, text, sizeof(servers));
    (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "/?replay=off");
    assert_string_equal(good(text).server, servers);
    assert_false(good(text).replay);
}

TEST(test_every_option)
{
    struct tde_configuration c =
        good("ps:7701/?key_file=/etc/a%26b%2525&prefix=ads/v2.&deadline_ms=3600000&&connect_ms=1&"
             "dtype=bf16&replay=off&replay_mib=4095&&on_error=continue");
    assert_string_equal(c.server, "ps:7701");
    assert_string_equal(c.key_file, "/etc/a&b%25");
    assert_string_equal(c.prefix, "ads/v2.");
    assert_int_equal(c.deadline_ms, 3600000);
    assert_int_equal(c.connect_ms, 1);
    assert_int_equal(c.dtype, MR_BF16);
    assert_false(c.replay);
    assert_int_equal(c.replay_mib, 4095);
    assert_true(c.goes_on);
    assert_int_equal(good("a?dtype=f16&replay=on&on_error=abort").dtype, MR_F16);
    assert_string_equal(good("a?prefix=").prefix, "");
}

TEST(test_mistakes_are_named)
{
    bad("", "must begin with the server");
    bad("/?prefix=a", "must begin with the server");
    bad("?prefix=a", "must begin with the server");
    bad("a/b", "after the server");
    bad("a?prefx=b", "\"prefx=b\" is no option; there are key_file, prefix,");
    bad("a?server=b", "is no option");
    bad("a?prefix", "\"prefix\" is no option");
    bad("a?=b", "is no option");
    bad("a?&prefix=b", "\"\" is no option");
    bad("a?prefix=a&&&dtype=f16", "\"\" is no option");
    bad("a?prefix=a&prefix=a", "prefix is given twice");
    bad("a?prefix=a b", "prefix=a b: must be at most 32 of");
    bad("a?prefix=123456789012345678901234567890123", "must be at most 32 of");
    bad("a?deadline_ms=0", "deadline_ms=0: must be a whole number from 1 to 3600000");
    bad("a?deadline_ms=3600001", "from 1 to 3600000");
    bad("a?deadline_ms=99999999999999999999999", "from 1 to 3600000");
    bad("a?deadline_ms=-1", "from 1 to 3600000");
    bad("a?deadline_ms=10s", "from 1 to 3600000");
    bad("a?deadline_ms=", "from 1 to 3600000");
    bad("a?replay_mib=4096", "from 1 to 4095");
    bad("a?dtype=i8", "must be f32, f16 or bf16");
    bad("a?replay=yes", "must be on or off");
    bad("a?on_error=retry", "must be abort or continue");
    bad("a?key_file=%", "key_file: too long, or a % without two hexadecimal digits");
    bad("a?key_file=%4", "hexadecimal");
    bad("a?key_file=%4g", "hexadecimal");
    bad("a?key_file=%00", "hexadecimal");
    bad("a?key_file=%&prefix=a", "hexadecimal");
    bad("a?prefix=%0ab", "hexadecimal");
    bad("a?prefix=\n", "byte 9 of the configuration is a control character");
    bad("\x7f", "byte 0 of");
}

TEST(test_lengths_are_limited)
{
    char text[3000], server[TDE_SERVER_BYTES + 1];
    memset(server, 'a', sizeof(server));
    server[TDE_SERVER_BYTES - 1] = '\0';
    assert_string_equal(good(server).server, server);
    server[TDE_SERVER_BYTES - 1] = 'a';
    server[TDE_SERVER_BYTES] = '\0';
    bad(server, "some nodes of a cluster are enough");
    memset(text, 'k', sizeof(text));
    memcpy(text, "a?key_file=", 11);
    text[11 + TDE_PATH_BYTES - 1] = '\0';
    assert_string_equal(good(text).key_file, text + 11);
    text[11 + TDE_PATH_BYTES - 1] = 'k';
    text[11 + TDE_PATH_BYTES] = '\0';
    bad(text, "key_file: too long");
}
