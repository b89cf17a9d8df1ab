/* Annotations that clients set, and read. */
#include <string.h>
#include "dataplane/wire/base/log.h"
#include "node_fixture.h"
#include "ps/core/annotations.h"
#include "tests/test.h"

static const struct node_reply *annotation(struct node_fixture *n, uint32_t core, uint64_t since,
                                           const char *text)
{
    const struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 1, &since),
                                         mr_tensor_1d(MR_U8, (uint32_t)strlen(text), text)};
    return node_call(n, core, MR_OP_ANNOTATE, 0, tensors, 2);
}

/* The number of the newest: the node has said something by itself when it started. */
static uint64_t newest(struct node_fixture *n)
{
    const struct node_reply *reply = annotation(n, 0, UINT64_MAX, "");
    node_check(reply, MR_OK, NULL);
    return ((const uint64_t *)reply->tensors[0].data)[MR_ANNOTATIONS_LAST];
}

TEST(a_mark_is_read_on_any_core, node_setup_3_cores, node_teardown)
{
    const uint64_t before = newest(*state);
    node_check(annotation(*state, 0, UINT64_MAX, "epoch 3"), MR_OK, NULL);
    const struct node_reply *reply = annotation(*state, 1, before, "");
    node_check(reply, MR_OK, NULL);
    const uint64_t *words = reply->tensors[0].data;
    const struct mr_annotation *annotations = reply->tensors[1].data;
    assert_int_equal(words[MR_ANNOTATIONS_LAST], before + 1);
    assert_int_equal(words[MR_ANNOTATIONS_MISSED], 0);
    assert_int_equal(reply->tensors[1].dims[0], 1);
    assert_string_equal(annotations[0].event, MR_ANNOTATION_CLIENT);
    assert_string_equal(annotations[0].text, "epoch 3");
    assert_non_null(strchr(annotations[0].client, ':'));
    reply = annotation(*state, 1, before + 1, "");
    assert_int_equal(reply->tensors[1].dims[0], 0);
}

TEST(what_the_log_says_is_a_annotation, node_setup_3_cores, node_teardown)
{
    const uint64_t before = newest(*state);
    mr_log_info("tested", "something happened");
    const struct node_reply *reply = annotation(*state, 2, before, "");
    const struct mr_annotation *annotations = reply->tensors[1].data;
    assert_int_equal(reply->tensors[1].dims[0], 1);
    assert_string_equal(annotations[0].event, "tested");
    assert_string_equal(annotations[0].text, "something happened");
}

TEST(what_is_no_line_is_refused, node_setup_3_cores, node_teardown)
{
    char text[MR_ANNOTATION_TEXT_BYTES + 1] = "";
    memset(text, 'x', MR_ANNOTATION_TEXT_BYTES);
    node_check(annotation(*state, 0, 0, text), MR_INVALID_ARGUMENT, "one line of UTF-8, at most 143 bytes");
    static const char *const wrong_texts[] = {
        "a\nb", "\x7f",      "\xc3",         "\xc3z",        "\xc0\xaf",
        "\xff", "x\xe2\x82", "\xed\xa0\x80", "\xe0\x9f\xbf", "\xf4\x90\x80\x80"};
    for (size_t i = 0; i < sizeof(wrong_texts) / sizeof(*wrong_texts); i++)
        node_check(annotation(*state, 0, 0, wrong_texts[i]), MR_INVALID_ARGUMENT, "one line");
    node_check(annotation(*state, 0, 0, "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"), MR_OK, NULL);
    text[MR_ANNOTATION_TEXT_BYTES - 1] = '\0';
    node_check(annotation(*state, 0, 0, text), MR_OK, NULL);
    const struct mr_tensor wrong = mr_tensor_1d(MR_U8, 1, "x");
    node_check(node_call(*state, 0, MR_OP_ANNOTATE, 0, &wrong, 1), MR_WRONG_DTYPE, "number");
}
