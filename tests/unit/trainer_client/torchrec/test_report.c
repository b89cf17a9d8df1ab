/* The lines about rows that a node did not take. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "trainer_client/torchrec/report.h"
#include "tests/test.h"

#define MINUTE_US UINT64_C(60000000)

static const struct mr_pushed taken = {.is_known = true, .sent = 10, .applied = 10};
static const struct mr_pushed refused = {.is_known = true, .sent = 10, .applied = 7, .refused = 3};
static const struct mr_pushed frozen = {.is_known = true, .sent = 10, .applied = 8, .without_row = 2};
static const struct mr_pushed not_finite = {.is_known = true, .sent = 10, .applied = 6, .not_finite = 4};
static const struct mr_pushed unknown = {.is_known = false};

static int standard_error, lines;

static void report_begin(void)
{
    standard_error = dup(STDERR_FILENO);
    lines = memfd_create("lines", MFD_CLOEXEC);
    assert_true(standard_error >= 0 && dup2(lines, STDERR_FILENO) >= 0);
}

/* What was written since, valid until the next. */
static const char *written(void)
{
    static char text[4096];
    (void)dup2(standard_error, STDERR_FILENO);
    const ssize_t bytes = pread(lines, text, sizeof(text) - 1, 0);

    assert_true(bytes >= 0);
    text[bytes] = '\0';
    (void)close(lines);
    (void)close(standard_error);
    return text;
}

static const char *after(struct tde_losses *l, const struct mr_pushed *pushed, uint64_t now_us)
{
    report_begin();
    tde_losses_add(l, "t", pushed, now_us);
    return written();
}

TEST(what_was_taken_has_no_line)
{
    struct tde_losses l = {.no_room = 0};
    assert_string_equal(after(&l, &taken, MINUTE_US), "");
    assert_string_equal(after(&l, &unknown, MINUTE_US), "");
    report_begin();
    tde_losses_end(&l);
    assert_string_equal(written(), "");
}

TEST(rows_without_room_are_reported_once_a_minute)
{
    struct tde_losses l = {.no_room = 0};
    assert_non_null(strstr(after(&l, &refused, MINUTE_US), "did not take 3 of the rows pushed"));
    assert_string_equal(after(&l, &refused, MINUTE_US + 1), "");
    assert_string_equal(after(&l, &frozen, 2 * MINUTE_US - 1), "");
    assert_non_null(strstr(after(&l, &taken, 2 * MINUTE_US), "did not take 5 of the rows pushed"));
    assert_string_equal(after(&l, &taken, 4 * MINUTE_US), "");
}

TEST(the_rest_is_reported_at_the_end)
{
    struct tde_losses l = {.no_room = 0};
    (void)after(&l, &refused, MINUTE_US);
    assert_string_equal(after(&l, &frozen, MINUTE_US), "");
    report_begin();
    tde_losses_end(&l);
    assert_non_null(strstr(written(), "did not take 2 of the rows pushed"));
}

TEST(values_are_reported_once)
{
    struct tde_losses l = {.no_room = 0};
    const char *text = after(&l, &not_finite, MINUTE_US);
    assert_non_null(strstr(text, "left out 4 of the rows pushed to table t"));
    assert_null(strstr(text, "did not take"));
    assert_string_equal(after(&l, &not_finite, 9 * MINUTE_US), "");
    assert_non_null(strstr(after(&l, &refused, 9 * MINUTE_US), "did not take 3 of"));
}
