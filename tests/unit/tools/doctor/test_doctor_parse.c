#include <string.h>

#include "tools/doctor/doctor_parse.h"
#include "tests/test.h"

static const char meminfo[] =
    "MemTotal:       49328924 kB\nHugePages_Total:    1024\nHugePages_Free:      1000\n"
    "Hugepagesize:       2048 kB\n";

TEST(test_fields)
{
    uint64_t n = 7;
    assert_true(tool_field_u64(meminfo, "HugePages_Free:", &n));
    assert_int_equal(n, 1000);
    assert_true(tool_field_u64(meminfo, "MemTotal:", &n));
    assert_int_equal(n, 49328924);
    assert_false(tool_field_u64(meminfo, "Total:", &n)); /* not at a line's beginning */
    assert_false(tool_field_u64(meminfo, "Absent:", &n));
    assert_false(tool_field_u64("", "MemTotal:", &n));
    assert_false(tool_field_u64("Count: many\n", "Count:", &n));
    assert_int_equal(n, 49328924);
    assert_true(tool_field_u64("212992\n", "", &n)); /* a file with nothing but a number */
    assert_int_equal(n, 212992);
    assert_false(tool_field_u64("99999999999999999999\n", "", &n));
    assert_true(tool_field_hex("Name:\tx\nCapEff:\t000001ffffffffff\n", "CapEff:", &n));
    assert_int_equal(n, UINT64_C(0x1ffffffffff));
    assert_false(tool_field_hex("CapEff:\t\n", "CapEff:", &n));
}

TEST(test_limits)
{
    static const char limits[] =
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max file size             unlimited            unlimited            bytes     \n"
        "Max locked memory         8388608              8388608              bytes     \n";
    uint64_t n = 0;
    assert_true(tool_limit(limits, "Max locked memory", &n));
    assert_int_equal(n, 8388608);
    assert_true(tool_limit(limits, "Max file size", &n));
    assert_true(n == UINT64_MAX);
    assert_false(tool_limit(limits, "Max nothing", &n));
}

TEST(test_lists)
{
    uint32_t n = 0;
    static const struct {
        const char *text;
        uint32_t count;
    } good[] = {{"", 0}, {"\n", 0}, {"0\n", 1}, {"0-3", 4}, {"0-3,8,10-11\n", 7}, {"5-5", 1}};
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        assert_true(tool_list_count(good[i].text, &n));
        assert_int_equal(n, good[i].count);
    }
    static const char *const bad[] = {"x", "3-", "-3", "3-1", "1;2", "1 2", "0-99999999999", ",1"};
    n = 77;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_false(tool_list_count(bad[i], &n));
    assert_int_equal(n, 77);
}

TEST(test_selected)
{
    char word[8] = "";
    assert_true(tool_selected("always [madvise] never\n", word, sizeof(word)));
    assert_string_equal(word, "madvise");
    assert_false(tool_selected("always madvise never", word, sizeof(word)));
    assert_false(tool_selected("always [madvise", word, sizeof(word)));
    assert_false(tool_selected("[too long a word]", word, sizeof(word)));
    assert_string_equal(word, "madvise");
}

TEST(test_words)
{
    static const char cpuinfo[] = "processor\t: 0\nflags\t\t: fpu avx avx2 sse4_2\nbugs\t\t: avx512f\n";
    assert_true(tool_line_has_word(cpuinfo, "flags", "avx2"));
    assert_true(tool_line_has_word(cpuinfo, "flags", "fpu"));
    assert_true(tool_line_has_word(cpuinfo, "flags", "sse4_2"));
    assert_false(tool_line_has_word(cpuinfo, "flags", "sse4"));
    assert_false(tool_line_has_word(cpuinfo, "flags", "avx512f")); /* of another line */
    assert_false(tool_line_has_word(cpuinfo, "Features", "asimd"));
    assert_false(tool_line_has_word("flags", "flags", "fpu"));
}

TEST(test_releases_and_protocols)
{
    uint32_t major = 0, minor = 0;
    assert_true(tool_release("6.1.0-18-amd64", &major, &minor));
    assert_int_equal(major, 6);
    assert_int_equal(minor, 1);
    assert_true(tool_release("5.10", &major, &minor));
    assert_int_equal(minor, 10);
    assert_false(tool_release("", &major, &minor));
    assert_false(tool_release("6", &major, &minor));
    assert_false(tool_release("v6.1", &major, &minor));
    static const char protocols[] = "protocol  size sockets\nXDP       1024      0\nPACKET    1536      2\n";
    assert_true(tool_has_protocol(protocols, "XDP"));
    assert_true(tool_has_protocol(protocols, "PACKET"));
    assert_false(tool_has_protocol(protocols, "PACK"));
    assert_false(tool_has_protocol(protocols, "UNIX"));
}
