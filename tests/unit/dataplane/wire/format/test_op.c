#include <string.h>
#include "dataplane/wire/format/cluster.h"
#include "dataplane/wire/format/op.h"
#include "tests/test.h"

static const uint8_t all[] = {
#define MR_OP(NAME, name, value, repeatable, role, served, request, reply) (value),
#include "dataplane/wire/format/ops.def"
};

TEST(every_op_has_a_name_of_its_own)
{
    for (size_t i = 0; i < sizeof(all); i++) {
        assert_string_not_equal(mr_op_name(all[i]), "?");
        for (size_t other = 0; other < i; other++)
            assert_string_not_equal(mr_op_name(all[i]), mr_op_name(all[other]));
    }
    assert_string_equal(mr_op_name(MR_OP_FEED_SAMPLE), "feed_sample");
    assert_string_equal(mr_op_name(MR_OP_HUB_STATUS), "hub_status");
}

TEST(unknown_ops_are_said_to_be_and_never_repeated)
{
    static const uint32_t unknown[] = {0, MR_OP_COUNT, 255, UINT32_MAX};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        assert_string_equal(mr_op_name(unknown[i]), "?");
        assert_false(mr_op_repeatable(unknown[i]));
    }
}

/* Sending these twice would learn twice, start two checkpoints, or drop what was made again meanwhile. A push
 * by batch id is recognised by the server. */
TEST(only_calls_that_do_no_harm_twice_are_repeatable)
{
    for (size_t i = 0; i < sizeof(all); i++) {
        const uint32_t op = all[i];
        bool once = op == MR_OP_PUSH_GRAD || op == MR_OP_SAVE || op == MR_OP_RESTORE || op == MR_OP_DROP ||
                    op == MR_OP_RPC_CALL || op == MR_OP_RPC_BACKWARD;
        assert_int_equal(mr_op_repeatable(op), !once);
    }
}

TEST(values_are_part_of_the_protocol)
{
    assert_int_equal(MR_OP_NODE_INFO, 1);
    assert_int_equal(MR_OP_PUSH_GRAD, 10);
    assert_int_equal(MR_OP_HUB_STATUS, 22);
    assert_int_equal(MR_OP_RPC_CALL, 25);
    assert_true(MR_OP_COUNT <= 256); /* the preamble has one byte for it */
}

/* What changes the model by training is the trainers'; what takes it back or holds it up is the
 * operators'. */
TEST(who_may_call_what)
{
    static const uint8_t look[] = {
        MR_OP_NODE_INFO,    MR_OP_ECHO,          MR_OP_LIST,       MR_OP_LOOKUP,
        MR_OP_STATS,        MR_OP_VARIABLE_PULL, MR_OP_HEARTBEAT,  MR_OP_CHECKPOINT_STATUS,
        MR_OP_MEMORY,       MR_OP_BATCH_STATE,   MR_OP_HUB_STATUS, MR_OP_RPC_STATUS,
        MR_OP_STREAMS,      MR_OP_MOVES,         MR_OP_LATENCY,    MR_OP_CLOCK,
        MR_OP_LOOKUP_TABLES};
    for (size_t i = 0; i < sizeof(all); i++) {
        const uint32_t op = all[i];
        bool looks = memchr(look, (int)op, sizeof(look)) != NULL;
        bool operates = op == MR_OP_ALTER || op == MR_OP_RESTORE || op == MR_OP_FREEZE ||
                        op == MR_OP_FORGET_STREAM || op == MR_OP_DROP || op == MR_OP_MOVE ||
                        op == MR_OP_MOVE_READ || op == MR_OP_CAPTURE || op == MR_OP_RECENT_CALLS ||
                        op == MR_OP_FACTS;
        assert_int_equal(mr_op_role(op), looks      ? MR_ROLE_READ_ONLY
                                         : operates ? MR_ROLE_OPERATOR
                                                    : MR_ROLE_TRAINER);
    }
    assert_int_equal(mr_op_role(0), MR_ROLE_READ_ONLY); /* it is refused as unknown */
    assert_int_equal(mr_op_role(UINT32_MAX), MR_ROLE_READ_ONLY);
}

TEST(roles_have_names)
{
    enum mr_role role = MR_ROLE_OPERATOR;
    assert_true(mr_role_parse("trainer", &role));
    assert_int_equal(role, MR_ROLE_TRAINER);
    assert_true(mr_role_parse("read_only", &role));
    assert_int_equal(role, MR_ROLE_READ_ONLY);
    assert_true(mr_role_parse(mr_role_name(MR_ROLE_OPERATOR), &role));
    assert_int_equal(role, MR_ROLE_OPERATOR);
    assert_false(mr_role_parse("", &role));
    assert_false(mr_role_parse("Trainer", &role));
    assert_string_equal(mr_role_name(MR_ROLE_COUNT), "?");
}

TEST(batch_ids_split_into_stream_and_sequence)
{
    assert_int_equal(mr_batch_stream(UINT64_C(0xffff000000000000)), 0xffff);
    assert_true(mr_batch_sequence(UINT64_C(0xffff000000000000)) == 0);
    assert_int_equal(mr_batch_stream(UINT64_C(0x0007ffffffffffff)), 7);
    assert_true(mr_batch_sequence(UINT64_C(0x0007ffffffffffff)) == UINT64_C(0xffffffffffff));
}

TEST(an_epoch_is_the_nearest_of_its_low_bits)
{
    assert_true(mr_epoch_near(5, 5) == 5);
    assert_true(mr_epoch_near(0, 0x8000) == 0);
    assert_true(mr_epoch_near(0xffff, 0x10001) == 0xffff);
    assert_true(mr_epoch_near(0x0002, 0xffff) == 0x10002);
    assert_true(mr_epoch_near(0x0007, 0x2fff8) == 0x30007);
    assert_true(mr_epoch_near(0xfff8, 0x30007) == 0x2fff8);
    assert_true(mr_epoch_near(0xfff8, 7) == 0xfff8); /* there is none before 0 */
    assert_true(mr_epoch_near(9, UINT64_C(0x1234567890008)) == UINT64_C(0x1234567890009));
}
