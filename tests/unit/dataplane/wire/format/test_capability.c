/* Capabilities: their names, and what needs which. */
#include <string.h>

#include "dataplane/wire/format/capability.h"
#include "tests/test.h"

TEST(a_name_leads_to_its_bit)
{
    uint64_t all = 0;
    for (uint32_t bit = 0; bit < 70; bit++) {
        const char *name = mr_capability_name(bit);
        if (name == NULL)
            continue;
        assert_int_equal(mr_capability_named(name), UINT64_C(1) << bit);
        all |= UINT64_C(1) << bit;
    }
    assert_int_equal(all, MR_CAPABILITIES);
    assert_int_equal(mr_capability_named("telepathy"), 0);
}

TEST(a_set_is_listed)
{
    char text[64], small[8];
    mr_capability_text(0, text, sizeof(text));
    assert_string_equal(text, "none");
    mr_capability_text(MR_CAN(DENSE) | MR_CAN(ADAM_STEP) | UINT64_C(1) << 63, text, sizeof(text));
    assert_string_equal(text, "adam_step, dense, bit 63");
    mr_capability_text(MR_CAPABILITIES, small, sizeof(small));
    assert_string_equal(small, "adam_st");
}

TEST(a_feature_says_what_it_needs)
{
    struct mr_feature f = mr_feature_table("t", 4);
    for (uint32_t optimizer = MR_OPT_SGD; optimizer <= MR_OPT_LAST; optimizer++) {
        mr_feature_set_optimizer(&f, optimizer);
        assert_int_equal(mr_feature_needs(&f), 0);
    }
    mr_feature_set_optimizer(&f, MR_OPT_SGD);
    f.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1;
    assert_int_equal(mr_feature_needs(&f), MR_CAN(DENSE));
    mr_feature_set_optimizer(&f, MR_OPT_ADAMW);
    f.optimizer_args[3] = 1;
    assert_int_equal(mr_feature_needs(&f), MR_CAN(ADAM_STEP));
    f.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1;
    assert_int_equal(mr_feature_needs(&f), MR_CAN(ADAM_STEP) | MR_CAN(DENSE));
}

/* What others say reaches terminals. */
TEST(versions_are_plain_text)
{
    struct mr_peer_version peer = mr_version_own();
    char text[MR_VERSION_TEXT_BYTES];
    assert_int_equal(peer.capabilities, MR_CAPABILITIES);
    mr_version_name(&peer, text);
    assert_string_equal(text, mr_version_text());
    memcpy(peer.text, "\x1b[2J\x80 1.2~\"%s3456", 16);
    mr_version_name(&peer, text);
    assert_string_equal(text, "??2J??1.2~??s34");
    memset(&peer, 0, sizeof(peer));
    mr_version_name(&peer, text);
    assert_string_equal(text, "before 0.3.0");
}
