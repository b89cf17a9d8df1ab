/* The bytes of a copy between its maker and the backup. */
#include <string.h>
#include "ps/move/copy_ring.h"
#include "tests/test.h"

#define ROOM 64u

static void copy_ring_put(struct ps_copy_ring *r, const char *text)
{
    ps_copy_ring_put(r, text, strlen(text));
}

/* Everything that is kept, as it is read piece by piece, each of `max` bytes at most. */
static uint64_t copy_ring_take(struct ps_copy_ring *r, size_t max, char *out)
{
    size_t count;
    while (ps_copy_ring_kept(r) > 0) {
        const uint8_t *bytes = ps_copy_ring_read(r, max, &count);
        assert_in_range(count, 1, max);
        memcpy(out, bytes, count);
        out += count;
        assert_true(ps_copy_ring_trim(r, r->begin + count));
    }
    *out = '\0';
    return r->begin;
}

TEST(only_complete_records_are_read)
{
    struct ps_copy_ring r;
    char text[ROOM + 1];
    size_t count;
    assert_true(ps_copy_ring_init(&r, ROOM));
    copy_ring_put(&r, "abc");
    (void)ps_copy_ring_read(&r, ROOM, &count);
    assert_int_equal(count, 0);
    ps_copy_ring_cancel(&r);
    copy_ring_put(&r, "de");
    copy_ring_put(&r, "f");
    ps_copy_ring_commit(&r);
    assert_int_equal(copy_ring_take(&r, 2, text), 4);
    assert_string_equal(text, "def");
    ps_copy_ring_free(&r);
}

/* What is read again is the same; positions before what was applied, and after the end, are none. */
TEST(what_was_applied_is_gone)
{
    struct ps_copy_ring r;
    size_t count;
    assert_true(ps_copy_ring_init(&r, ROOM));
    copy_ring_put(&r, "abcdefgh");
    ps_copy_ring_commit(&r);
    assert_true(ps_copy_ring_trim(&r, 4));
    assert_memory_equal(ps_copy_ring_read(&r, ROOM, &count), "defgh", 5);
    assert_int_equal(count, 5);
    assert_true(ps_copy_ring_trim(&r, 4));
    assert_memory_equal(ps_copy_ring_read(&r, 3, &count), "def", 3);
    assert_false(ps_copy_ring_trim(&r, 3));
    assert_false(ps_copy_ring_trim(&r, 10));
    assert_true(ps_copy_ring_trim(&r, 9));
    ps_copy_ring_free(&r);
}

/* The stream goes round and round; a record that does not fit is not there, and neither is one after it. */
TEST(a_full_ring_takes_nothing_more)
{
    struct ps_copy_ring r;
    assert_true(ps_copy_ring_init(&r, ROOM));
    copy_ring_put(&r, "0123456789012345678901234567890123456789"); /* never empty from now on */
    ps_copy_ring_commit(&r);
    for (uint32_t i = 0; i < 20; i++) {
        copy_ring_put(&r, "abcdefghijklm");
        ps_copy_ring_pad(&r);
        ps_copy_ring_commit(&r);
        assert_false(r.is_full);
        assert_true(ps_copy_ring_trim(&r, r.end - 40));
    }
    copy_ring_put(&r, "0123456789");
    copy_ring_put(&r, "012345678901234");
    assert_true(r.is_full);
    ps_copy_ring_commit(&r);
    assert_int_equal(ps_copy_ring_kept(&r), 40);
    copy_ring_put(&r, "x");
    ps_copy_ring_commit(&r);
    assert_int_equal(ps_copy_ring_kept(&r), 40);
    ps_copy_ring_free(&r);
}
