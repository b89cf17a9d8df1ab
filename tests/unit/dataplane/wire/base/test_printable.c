/* What others say, for terminals. */
#include <string.h>
#include "dataplane/wire/base/printable.h"
#include "tests/test.h"

static char out[64];

static const char *shown(const char *text)
{
    const size_t bytes = mr_printable(out, sizeof(out), text, strlen(text));
    assert_int_equal(bytes, strlen(out));
    return out;
}

TEST(people_read_what_is_text)
{
    assert_string_equal(shown(""), "");
    assert_string_equal(shown("worker-1:cpu \\ \"x\" ~"), "worker-1:cpu \\ \"x\" ~");
    assert_string_equal(shown("Zürich 東京 \U0001f600 a\u0301"), "Zürich 東京 \U0001f600 a\u0301");
}

TEST(a_terminal_gets_no_commands)
{
    assert_string_equal(shown("\033]0;title\a\033[2J"), "\\x1b]0;title\\x07\\x1b[2J");
    assert_string_equal(shown("one\r\ntwo\tthree\b\x7f"), "one\\x0d\\x0atwo\\x09three\\x08\\x7f");
    assert_string_equal(shown("\xc2\x9b"
                              "31m"),
                        "\\xc2\\x9b31m"); /* CSI as one character */
    assert_string_equal(shown("a\u202eb\u2066c\u200bd\ufeff\u061c"),
                        "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6c\\xe2\\x80\\x8bd\\xef\\xbb\\xbf\\xd8\\x9c");
    assert_int_equal(mr_printable(out, sizeof(out), "a\0b", 3), 6);
    assert_string_equal(out, "a\\x00b");
}

TEST(what_is_no_utf_8_is_seen)
{
    assert_string_equal(shown("\xff\xc0\xafz\xe2\x82"), "\\xff\\xc0\\xafz\\xe2\\x82");
    assert_string_equal(shown("\x9b\xed\xa0\x80"), "\\x9b\\xed\\xa0\\x80");
    assert_int_equal(mr_printable(out, sizeof(out), "\xe2\x82\xac", 2), 8); /* half of a character */
}

TEST(the_length_is_bounded)
{
    char small[8];
    assert_int_equal(mr_printable(small, sizeof(small), "1234567", 7), 7);
    assert_string_equal(small, "1234567");
    assert_int_equal(mr_printable(small, sizeof(small), "12345678", 8), 7);
    assert_string_equal(small, "1234...");
    assert_int_equal(mr_printable(small, sizeof(small), "12\033\033", 4), 5);
    assert_string_equal(small, "12...");
    assert_int_equal(mr_printable(small, sizeof(small), "123東京", 9), 6);
    assert_string_equal(small, "123...");
    assert_int_equal(mr_printable(small, 4, "\033", 1), 3);
    assert_string_equal(small, "...");
}

TEST(in_its_place)
{
    static char large[8192];
    char text[16] = "fine", bad[16] = "\033[1m", full[4] = "\033\033\033";
    assert_string_equal(mr_make_printable(text, sizeof(text)), "fine");
    assert_string_equal(mr_make_printable(bad, sizeof(bad)), "\\x1b[1m");
    assert_string_equal(mr_make_printable(full, sizeof(full)), "...");
    memset(large, 'x', sizeof(large) - 1);
    large[0] = '\n';
    assert_int_equal(strlen(mr_make_printable(large, sizeof(large))), MR_PRINTABLE_BYTES_MAX - 1 + 3);
}
