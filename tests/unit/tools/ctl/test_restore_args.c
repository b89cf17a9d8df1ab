#include <string.h>

#include "millrace_admin.h"
#include "tools/ctl/restore_args.h"
#include "tests/test.h"

#define LONGEST "abcdefghijklmnopqrstuvwxyz0123456789_abcdefghijklmnopqrstuvwxyz" /* 63 bytes */

static struct mr_restore_name name;
static char buffer[2 * MR_NAME_BYTES], error_text[256];

static bool restore_args_parse(const char *text)
{
    error_text[0] = '\0';
    return tool_restore_name_parse(text, buffer, sizeof(buffer), &name, error_text, sizeof(error_text));
}

static void expect(const char *text, const char *old, const char *new)
{
    if (!restore_args_parse(text))
        fail_msg("%s: %s", text, error_text);
    assert_string_equal(name.name, old);
    if (new == NULL)
        assert_null(name.new_name);
    else
        assert_string_equal(name.new_name, new);
}

static void expect_refused(const char *text, const char *says)
{
    assert_false(restore_args_parse(text));
    assert_says(error_text, says);
}

TEST(test_names)
{
    expect("user", "user", NULL);
    expect("user:old", "user", "old");
    expect("user=old", "user", "old");
    expect("a/b.c-d_1:x", "a/b.c-d_1", "x");
    expect(LONGEST ":" LONGEST, LONGEST, LONGEST);
}

TEST(test_colons_in_names)
{
    expect("ad:user=ad:old", "ad:user", "ad:old");
    expect("user=ad:old", "user", "ad:old");
    expect("user:ad:old", "user", "ad:old");
}

TEST(test_mistakes)
{
    expect_refused("", "NAME:NEW");
    expect_refused(":new", ":new: expected NAME");
    expect_refused("user:", "user:: expected NAME");
    expect_refused("user=", "1 to 63 bytes");
    expect_refused(LONGEST "x", "1 to 63 bytes");
    expect_refused("user:" LONGEST "x", "1 to 63 bytes");
    expect_refused(LONGEST LONGEST LONGEST, "at most 63 bytes");
}
