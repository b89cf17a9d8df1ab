/* Create, Freeze and List over all cores: all of a call, or nothing of it. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "node_fixture.h"
#include "tests/test.h"

static const struct node_reply *control_create(struct node_fixture *n, const struct mr_feature *features,
                                               uint32_t count)
{
    struct mr_tensor t = mr_tensor_2d(MR_U8, count, sizeof(*features), features);
    return node_call(n, 0, MR_OP_CREATE, 0, &t, 1);
}

static uint64_t feature_count(struct node_fixture *n)
{
    uint64_t count = node_counter(n, 0, "ps.features");
    for (uint32_t core = 1; core < n->core_count; core++)
        assert_int_equal(node_counter(n, core, "ps.features"), count);
    return count;
}

TEST(the_same_again_is_fine, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature features[3] = {node_table("a", 1), node_variable("v", 3), node_table("b", 2)};
    const struct node_reply *reply = control_create(n, features, 3);
    node_check(reply, MR_OK, NULL);
    uint32_t ids[3];
    memcpy(ids, reply->tensors[0].data, sizeof(ids));
    assert_int_equal(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], 1);
    reply = control_create(n, features, 3);
    node_check(reply, MR_OK, NULL);
    assert_memory_equal(reply->tensors[0].data, ids, sizeof(ids));
    struct mr_feature twice[2] = {features[2], features[2]};
    reply = control_create(n, twice, 2);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(((const uint32_t *)reply->tensors[0].data)[1], ids[2]);
    assert_int_equal(feature_count(n), 3);
    node_check(control_create(n, features, 0), MR_OK, NULL);
}

TEST(another_descriptor_is_refused_by_its_field, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature a = node_table("a", 1), other;
    node_check(control_create(n, &a, 1), MR_OK, NULL);
    other = a;
    other.dims[0] = 5;
    node_check(control_create(n, &other, 1), MR_FEATURE_MISMATCH, "a exists with dim 4, not 5");
    other = a;
    other.learning_rate = 2;
    node_check(control_create(n, &other, 1), MR_FEATURE_MISMATCH, "a exists with learning_rate 1, not 2");
    struct mr_feature pair[2] = {node_table("b", 1), node_table("b", 2)};
    node_check(control_create(n, pair, 2), MR_FEATURE_MISMATCH, "b exists with init_a 1, not 2");
    assert_int_equal(feature_count(n), 1);
}

TEST(one_wrong_feature_takes_the_others_back, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature features[3] = {node_table("a", 1), node_table("b", 1), node_table("c", 1)};
    features[2] = node_variable("c", 3);
    features[2].dtype = MR_F16;
    node_check(control_create(n, features, 3), MR_UNSUPPORTED, "c: ");
    assert_int_equal(feature_count(n), 0);
    features[2] = node_table("c", 1);
    features[1].learning_rate = -1;
    node_check(control_create(n, features, 3), MR_INVALID_ARGUMENT, "learning_rate");
    assert_int_equal(feature_count(n), 0);
    features[1].learning_rate = 1;
    node_check(control_create(n, features, 3), MR_OK, NULL);
    assert_int_equal(feature_count(n), 3);
}

TEST(lists_sums_over_the_cores, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature features[2] = {node_table("a", 1), node_variable("v", 3)};
    uint64_t keys[50];
    for (uint32_t i = 0; i < 50; i++)
        keys[i] = i * 7;
    node_check(control_create(n, features, 2), MR_OK, NULL);
    node_feed(n, 1, 1, keys, 50);
    const struct node_reply *reply = node_call(n, 0, MR_OP_LIST, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensors[0].dims[0], 2);
    assert_memory_equal(reply->tensors[0].data, features, sizeof(features));
    const uint32_t *ids = reply->tensors[1].data;
    const uint64_t(*words)[MR_LIST_WORDS] = reply->tensors[2].data;
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 2);
    assert_int_equal(words[0][MR_LIST_ROWS], 50);
    assert_true(words[0][MR_LIST_BYTES] >= 50 * NODE_DIM * sizeof(float));
    assert_int_equal(words[1][MR_LIST_ROWS], 0);
    assert_int_equal(words[1][MR_LIST_BYTES], 3 * sizeof(float));
}

/* How often the log, a file, says something; `text` becomes all of it. */
static uint32_t said(int log, const char *what, char text[8192])
{
    ssize_t bytes = pread(log, text, 8191, 0);
    uint32_t count = 0;
    assert_true(bytes >= 0);
    text[bytes] = '\0';
    for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what))
        count++;
    return count;
}

/* What all cores refused is one line, and what they refuse right after it is none, for a minute. */
TEST(the_log_says_what_was_refused, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature full = node_table("full", 0), other = node_table("other", 0);
    char text[8192];
    full.capacity_rows = other.capacity_rows = 3;
    uint64_t keys[60];
    for (uint32_t i = 0; i < 60; i++)
        keys[i] = i;
    uint32_t table = node_create(n, &full), second = node_create(n, &other);
    int before = dup(STDERR_FILENO), log = memfd_create("log", 0);
    assert_true(before >= 0 && log >= 0 && dup2(log, STDERR_FILENO) >= 0);
    node_feed(n, 1, table, keys, 60);
    while (said(log, "table full: ", text) == 0)
        (void)node_call(n, 0, MR_OP_ECHO, 0, NULL, 0); /* the test's time limit ends it otherwise */
    assert_non_null(strstr(text, "refused at capacity_rows 3: "));
    node_feed(n, 2, table, keys, 60);
    node_feed(n, 3, second, keys, 60);
    while (said(log, "table other: ", text) == 0) /* the control thread has looked again */
        (void)node_call(n, 0, MR_OP_ECHO, 0, NULL, 0);
    assert_int_equal(said(log, "table full: ", text), 1);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    close(log);
}

TEST(refuses_what_is_wrong, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t level = 3;
    uint8_t bytes[600] = {0};
    struct mr_tensor t = mr_tensor_1d(MR_U32, 1, &level);
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, &t, 1), MR_INVALID_ARGUMENT, "freeze level 3");
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, NULL, 0), MR_WRONG_SHAPE, "level is missing");
    node_check(node_call(n, 1, MR_OP_LIST, 0, NULL, 0), MR_INVALID_ARGUMENT, "list is served by core 0 only");
    node_check(node_call(n, 2, MR_OP_CHECKPOINT_STATUS, 0, NULL, 0), MR_INVALID_ARGUMENT, "core 0 only");
    t = mr_tensor_2d(MR_U8, 1, 100, bytes);
    node_check(node_call(n, 0, MR_OP_CREATE, 0, &t, 1), MR_WRONG_SHAPE, "u8[1, 100]");
    t = mr_tensor_1d(MR_U8, 300, memset(bytes, 'x', sizeof(bytes)));
    node_check(node_call(n, 0, MR_OP_SAVE, 0, &t, 1), MR_INVALID_ARGUMENT, "directory");
    bytes[3] = 0;
    t = mr_tensor_1d(MR_U8, 10, bytes);
    node_check(node_call(n, 0, MR_OP_SAVE, 0, &t, 1), MR_INVALID_ARGUMENT, "NUL");
}
