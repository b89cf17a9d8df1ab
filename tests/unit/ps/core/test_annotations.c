/* The last annotations of a node. */
#include <stdio.h>
#include <string.h>
#include "ps/core/annotations.h"
#include "tests/test.h"

static struct mr_annotation annotations[PS_ANNOTATIONS_KEPT];

static int set_up(void **state)
{
    *state = ps_annotations_create();
    return *state != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    ps_annotations_destroy(*state);
    return 0;
}

static void read_count(struct ps_annotations *m, uint64_t since, uint32_t count, uint64_t last,
                       uint64_t missed)
{
    uint64_t is_last = 99, is_missed = 99;
    assert_int_equal(ps_annotations_read(m, since, annotations, &is_last, &is_missed), count);
    assert_int_equal(is_last, last);
    assert_int_equal(is_missed, missed);
}

TEST(annotations_are_read_from_a_number_on, set_up, tear_down)
{
    read_count(*state, 0, 0, 0, 0);
    ps_annotations_add(*state, "annotation", "10.0.0.7:9", "one");
    ps_annotations_add(*state, "saved", "", "two");
    read_count(*state, 0, 2, 2, 0);
    assert_int_equal(annotations[0].sequence, 1);
    assert_string_equal(annotations[0].event, "annotation");
    assert_string_equal(annotations[0].text, "one");
    assert_string_equal(annotations[0].client, "10.0.0.7:9");
    assert_string_equal(annotations[1].client, "");
    assert_string_equal(annotations[1].event, "saved");
    assert_true(annotations[0].age_ns >= annotations[1].age_ns);
    read_count(*state, 1, 1, 2, 0);
    assert_string_equal(annotations[0].text, "two");
    read_count(*state, 2, 0, 2, 0);
    read_count(*state, UINT64_MAX, 0, 2, 0);
}

TEST(what_is_forgotten_is_counted, set_up, tear_down)
{
    char text[32];
    for (uint32_t i = 1; i <= PS_ANNOTATIONS_KEPT + 10; i++) {
        snprintf(text, sizeof(text), "number %u", i);
        ps_annotations_add(*state, "annotation", "", text);
    }
    read_count(*state, 0, PS_ANNOTATIONS_KEPT, PS_ANNOTATIONS_KEPT + 10, 10);
    assert_string_equal(annotations[0].text, "number 11");
    assert_int_equal(annotations[PS_ANNOTATIONS_KEPT - 1].sequence, PS_ANNOTATIONS_KEPT + 10);
    read_count(*state, 7, PS_ANNOTATIONS_KEPT, PS_ANNOTATIONS_KEPT + 10, 3);
    read_count(*state, 10, PS_ANNOTATIONS_KEPT, PS_ANNOTATIONS_KEPT + 10, 0);
}

TEST(long_texts_are_cut_between_characters, set_up, tear_down)
{
    char text[2 * MR_ANNOTATION_TEXT_BYTES], event[2 * MR_ANNOTATION_EVENT_BYTES] = "";
    memset(event, 'e', sizeof(event) - 1);
    memset(text, 'a', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    memcpy(text + MR_ANNOTATION_TEXT_BYTES - 2, "\xc3\xa4", 2); /* would be cut in two */
    ps_annotations_add(*state, event, "", text);
    read_count(*state, 0, 1, 1, 0);
    assert_int_equal(strlen(annotations[0].text), MR_ANNOTATION_TEXT_BYTES - 2);
    assert_int_equal(strlen(annotations[0].event), MR_ANNOTATION_EVENT_BYTES - 1);
}

TEST(nothing_is_kept_without_a_place)
{
    ps_annotations_add(NULL, "annotation", "", "one");
    read_count(NULL, 0, 0, 0, 0);
}
