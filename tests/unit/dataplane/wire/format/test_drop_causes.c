/* Counters of dropped packets: each has a cause, or is known as harmless, and its texts fit where they are
 * shown. */
#include <stdio.h>
#include <string.h>

#include "dataplane/dataplane.h"
#include "dataplane/wire/format/drop_causes.h"
#include "dataplane/wire/format/wire_counters.h"
#include "tests/test.h"

#define WHAT_BYTES 150u /* of a finding of doctor */
#define CURE_BYTES 240u

static const char *const names[] = {
#define NAME(name, kind, unit, help) "port." #name,
    DP_COUNTER_LIST(NAME)
#undef NAME
#define NAME(name, kind, unit, help) "wire." #name,
        MR_DROP_LIST(NAME)
#undef NAME
};

/* No fault: dropping them is right, counts something else, or has a line of its own. */
static const char *const harmless[] = {
    "port.loops",           "port.loops_busy",       "port.sleeps",
    "port.rx_frames",       "port.tx_frames",        "port.rx_arp",
    "port.rx_too_long",     "port.rx_icmp",          "port.rx_nd",
    "port.steered_out",     "port.steered_in",       "port.steering",
    "port.queues",          "port.carrier",          "port.virtual_link",
    "port.fault_lost",      "port.fault_duplicated", "port.fault_late",
    "port.fault_corrupted", "port.rx_other",         "port.rx_not_mine", /* of others on the same link */
    "wire.drop_version",                                                 /* event other_version */
};

TEST(every_counter_is_known)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        bool is_harmless = false;
        for (size_t h = 0; h < sizeof(harmless) / sizeof(harmless[0]); h++)
            is_harmless |= strcmp(names[i], harmless[h]) == 0;
        if (is_harmless == (mr_drop_cause_find(names[i]) < mr_drop_cause_count))
            fail_msg("%s: in mr_drop_causes, or harmless?", names[i]);
    }
    assert_int_equal(mr_drop_cause_find("port.nothing"), mr_drop_cause_count);
}

TEST(texts_fit)
{
    for (uint32_t i = 0; i < mr_drop_cause_count; i++) {
        const struct mr_drop_cause *c = &mr_drop_causes[i];
        assert_int_equal(mr_drop_cause_find(c->counter), i);
        if (strlen(c->what) >= WHAT_BYTES || strlen(c->cure) >= CURE_BYTES || c->cure[0] == '\0')
            fail_msg("%s: %zu and %zu bytes", c->counter, strlen(c->what), strlen(c->cure));
    }
}

TEST(a_share_is_normal)
{
    const struct mr_drop_cause any = {.normal_percent = 0}, tenth = {.normal_percent = 10};
    assert_false(mr_drop_cause_matters(&any, 0, 100));
    assert_true(mr_drop_cause_matters(&any, 1, 1000000));
    assert_false(mr_drop_cause_matters(&tenth, 10, 100));
    assert_true(mr_drop_cause_matters(&tenth, 11, 100));
}
