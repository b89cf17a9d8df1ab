/* The last marks of a node. */
#include <stdio.h>
#include <string.h>
#include "ps/core/marks.h"
#include "tests/test.h"

static struct mr_mark marks[PS_MARKS_KEPT];

static int set_up(void **state)
{
    *state = ps_marks_create();
    return *state != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    ps_marks_destroy(*state);
    return 0;
}

static void read_count(struct ps_marks *m, uint64_t since, uint32_t count, uint64_t last, uint64_t missed)
{
    uint64_t is_last = 99, is_missed = 99;
    assert_int_equal(ps_marks_read(m, since, marks, &is_last, &is_missed), count);
    assert_int_equal(is_last, last);
    assert_int_equal(is_missed, missed);
}

TEST(marks_are_read_from_a_number_on, set_up, tear_down)
{
    read_count(*state, 0, 0, 0, 0);
    ps_marks_add(*state, "mark", "10.0.0.7:9", "one");
    ps_marks_add(*state, "saved", "", "two");
    read_count(*state, 0, 2, 2, 0);
    assert_int_equal(marks[0].sequence, 1);
    assert_string_equal(marks[0].event, "mark");
    assert_string_equal(marks[0].text, "one");
    assert_string_equal(marks[0].client, "10.0.0.7:9");
    assert_string_equal(marks[1].client, "");
    assert_string_equal(marks[1].event, "saved");
    assert_true(marks[0].age_ns >= marks[1].age_ns);
    read_count(*state, 1, 1, 2, 0);
    assert_string_equal(marks[0].text, "two");
    read_count(*state, 2, 0, 2, 0);
    read_count(*state, UINT64_MAX, 0, 2, 0);
}

TEST(what_is_forgotten_is_counted, set_up, tear_down)
{
    char text[32];
    for (uint32_t i = 1; i <= PS_MARKS_KEPT + 10; i++) {
        snprintf(text, sizeof(text), "number %u", i);
        ps_marks_add(*state, "mark", "", text);
    }
    read_count(*state, 0, PS_MARKS_KEPT, PS_MARKS_KEPT + 10, 10);
    assert_string_equal(marks[0].text, "number 11");
    assert_int_equal(marks[PS_MARKS_KEPT - 1].sequence, PS_MARKS_KEPT + 10);
    read_count(*state, 7, PS_MARKS_KEPT, PS_MARKS_KEPT + 10, 3);
    read_count(*state, 10, PS_MARKS_KEPT, PS_MARKS_KEPT + 10, 0);
}

TEST(long_texts_are_cut_between_characters, set_up, tear_down)
{
    char text[2 * MR_MARK_TEXT_BYTES], event[2 * MR_MARK_EVENT_BYTES] = "";
    memset(event, 'e', sizeof(event) - 1);
    memset(text, 'a', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    memcpy(text + MR_MARK_TEXT_BYTES - 2, "\xc3\xa4", 2); /* would be cut in two */
    ps_marks_add(*state, event, "", text);
    read_count(*state, 0, 1, 1, 0);
    assert_int_equal(strlen(marks[0].text), MR_MARK_TEXT_BYTES - 2);
    assert_int_equal(strlen(marks[0].event), MR_MARK_EVENT_BYTES - 1);
}

TEST(nothing_is_kept_without_a_place)
{
    ps_marks_add(NULL, "mark", "", "one");
    read_count(NULL, 0, 0, 0, 0);
}
