/* Captures of a core's packets: started, read, refused to others, ended. */
#include <string.h>
#include "dataplane/wire/format/capture.h"
#include "node_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { ID = 77, OTHER_ID = 78, IDLE_MS = 60000 };

struct words {
    uint64_t at[MR_CAPTURE_ASK_WORDS];
};

static struct words words(enum mr_capture_kind kind, uint64_t id)
{
    struct words w = {{[MR_CAPTURE_ASK_KIND] = kind, [MR_CAPTURE_ASK_ID] = id}};
    if (kind == MR_CAPTURE_START) {
        w.at[MR_CAPTURE_ASK_SNAP_BYTES] = 512;
        w.at[MR_CAPTURE_ASK_KIB] = 256;
        w.at[MR_CAPTURE_ASK_IDLE_MS] = IDLE_MS;
    }
    return w;
}

static const struct node_reply *ops_capture_call(struct node_fixture *n, uint32_t core, const struct words *w,
                                                 const char *who)
{
    const struct mr_tensor tensors[2] = {mr_body_tensor(MR_BODY_CAPTURE_ASK, w->at),
                                         mr_tensor_1d(MR_U8, who == NULL ? 0 : (uint32_t)strlen(who), who)};
    return node_call(n, core, MR_OP_CAPTURE, 0, tensors, who == NULL ? 1 : 2);
}

static void ops_capture_start(struct node_fixture *n, uint32_t core, const struct words *w)
{
    const struct node_reply *reply = ops_capture_call(n, core, w, "anna");
    const uint64_t *answer = reply->tensors[0].data;
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensor_count, 2);
    assert_int_equal(answer[MR_CAPTURE_LINK_TYPE], MR_CAPTURE_LINK_IP);
    assert_int_equal(answer[MR_CAPTURE_SNAP], 512);
    uint32_t lines = 0;
    for (uint64_t i = 0; i < reply->tensors[1].bytes; i++)
        lines += ((const char *)reply->tensors[1].data)[i] == '\n';
    assert_int_equal(lines, 4);
}

/* Reads from there on; the answer's words in `answer`. */
static const struct node_reply *read_from(struct node_fixture *n, uint32_t core, enum mr_capture_kind kind,
                                          uint64_t position, uint64_t answer[MR_CAPTURE_WORDS])
{
    struct words w = words(kind, ID);
    w.at[MR_CAPTURE_ASK_POSITION] = position;
    const struct node_reply *reply = ops_capture_call(n, core, &w, NULL);
    node_check(reply, MR_OK, NULL);
    memcpy(answer, reply->tensors[0].data, MR_CAPTURE_WORDS * sizeof(*answer));
    return reply;
}

static void ops_capture_end(struct node_fixture *n, uint32_t core, uint64_t id)
{
    const struct words w = words(MR_CAPTURE_END, id);
    node_check(ops_capture_call(n, core, &w, NULL), MR_OK, NULL);
}

/* The client of these tests is the reader, whose packets are left out: the core has nothing but them. */
TEST(it_begins_is_read_and_ends, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const struct words begin = words(MR_CAPTURE_START, ID);
    uint64_t answer[MR_CAPTURE_WORDS];
    ops_capture_start(n, 1, &begin);
    ops_capture_start(n, 1, &begin); /* the same again, as after a lost answer */
    const struct node_reply *reply = read_from(n, 1, MR_CAPTURE_READ, 0, answer);
    assert_int_equal(reply->tensors[1].bytes, 0);
    assert_int_equal(answer[MR_CAPTURE_SEEN], 0);
    (void)read_from(n, 1, MR_CAPTURE_HALT, 0, answer);
    ops_capture_end(n, 1, OTHER_ID); /* it is not that one's */
    (void)read_from(n, 1, MR_CAPTURE_READ, 0, answer);
    ops_capture_end(n, 1, ID);
    ops_capture_end(n, 1, ID);
    struct words again = words(MR_CAPTURE_READ, ID);
    node_check(ops_capture_call(n, 1, &again, NULL), MR_INVALID_ARGUMENT, "core 1 has no such capture");
}

TEST(another_one_is_refused_by_name, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const struct words begin = words(MR_CAPTURE_START, ID), second = words(MR_CAPTURE_START, OTHER_ID);
    const struct words read_it = words(MR_CAPTURE_READ, OTHER_ID);
    ops_capture_start(n, 0, &begin);
    node_check(ops_capture_call(n, 0, &second, "bert"), MR_ALREADY_STARTED, "for anna at [");
    node_check(ops_capture_call(n, 0, &read_it, NULL), MR_ALREADY_STARTED, "for anna");
    ops_capture_end(n, 0, ID);
    ops_capture_start(n, 0, &second);
    ops_capture_end(n, 0, OTHER_ID);
}

TEST(a_name_is_one_line, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const struct words begin = words(MR_CAPTURE_START, ID), second = words(MR_CAPTURE_START, OTHER_ID);
    node_check(ops_capture_call(n, 0, &begin, "an\nna\x1b"), MR_OK, NULL);
    node_check(ops_capture_call(n, 0, &second, ""), MR_ALREADY_STARTED, "an\\x0ana\\x1b");
    ops_capture_end(n, 0, ID);
    node_check(ops_capture_call(n, 0, &begin, ""), MR_OK, NULL);
    node_check(ops_capture_call(n, 0, &second, ""), MR_ALREADY_STARTED, "for somebody at");
    ops_capture_end(n, 0, ID);
}

TEST(wrong_numbers_are_refused, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    static const struct {
        uint32_t word;
        uint64_t value;
    } wrong[] = {
        {MR_CAPTURE_ASK_ID, 0},
        {MR_CAPTURE_ASK_PORT, 65536},
        {MR_CAPTURE_ASK_SNAP_BYTES, MR_CAPTURE_SNAP_MIN - 1},
        {MR_CAPTURE_ASK_SNAP_BYTES, MR_CAPTURE_SNAP_MAX + 1},
        {MR_CAPTURE_ASK_KIB, MR_CAPTURE_KIB_MIN - 1},
        {MR_CAPTURE_ASK_KIB, MR_CAPTURE_KIB_MAX + 1},
        {MR_CAPTURE_ASK_IDLE_MS, MR_CAPTURE_IDLE_MS_MIN - 1},
        {MR_CAPTURE_ASK_IDLE_MS, MR_CAPTURE_IDLE_MS_MAX + 1},
        {MR_CAPTURE_ASK_KIND, 0},
        {MR_CAPTURE_ASK_KIND, 5},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct words w = words(MR_CAPTURE_START, ID);
        w.at[wrong[i].word] = wrong[i].value;
        node_check(ops_capture_call(n, 0, &w, "anna"), MR_INVALID_ARGUMENT, "capture");
    }
    const struct words begin = words(MR_CAPTURE_START, ID);
    char long_name[MR_CAPTURE_WHO_BYTES + 1];
    memset(long_name, 'x', MR_CAPTURE_WHO_BYTES);
    long_name[MR_CAPTURE_WHO_BYTES] = '\0';
    node_check(ops_capture_call(n, 0, &begin, long_name), MR_INVALID_ARGUMENT, "holder's name");
    node_check(ops_capture_call(n, 0, &begin, NULL), MR_WRONG_SHAPE, "who");
    struct words nothing = words(MR_CAPTURE_READ, ID);
    node_check(ops_capture_call(n, 0, &nothing, NULL), MR_INVALID_ARGUMENT, "no such capture");
    ops_capture_start(n, 0, &begin);
    nothing.at[MR_CAPTURE_ASK_POSITION] = 8;
    node_check(ops_capture_call(n, 0, &nothing, NULL), MR_INVALID_ARGUMENT, "8 is not a position");
    ops_capture_end(n, 0, ID);
}

/* It ends by itself: another one may begin. */
TEST(a_capture_without_a_reader_ends, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct words begin = words(MR_CAPTURE_START, ID);
    const struct words second = words(MR_CAPTURE_START, OTHER_ID);
    begin.at[MR_CAPTURE_ASK_IDLE_MS] = MR_CAPTURE_IDLE_MS_MIN;
    ops_capture_start(n, 2, &begin);
    const struct node_reply *reply;
    WAIT_UNTIL((reply = ops_capture_call(n, 2, &second, "bert"))->status != MR_ALREADY_STARTED);
    node_check(reply, MR_OK, NULL);
}

/* Also while a capture is on. */
TEST(a_node_ends_with_its_captures, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const struct words begin = words(MR_CAPTURE_START, ID);
    ops_capture_start(n, 0, &begin);
    node_restart(n, 3);
    struct words again = words(MR_CAPTURE_READ, ID);
    node_check(ops_capture_call(n, 0, &again, NULL), MR_INVALID_ARGUMENT, "no such capture");
}
