/* Log lines about peers that speak another version of the protocol. They get an answer that says so, but no
 * session: without a line nobody on this side would hear of them. */
#include <stdatomic.h>

#include "dataplane/udp/address.h"
#include "dataplane/udp/other_version.h"
#include "dataplane/wire/base/log.h"
#include "ps/control/control_internal.h"

#define LINE_INTERVAL_US UINT64_C(60000000)

/* Cores that have heard one since the last line: anybody can send them, so one of them is named. */
void ps_control_versions_poll(struct ps_control *c)
{
    const uint64_t now_us = dp_now_us();
    struct mr_other_version last = {0};
    uint64_t count = 0;
    for (uint32_t i = 0; i < c->node->core_count && now_us >= c->versions.next_us; i++) {
        struct ps_heard_version *heard = &c->node->heard_versions[i];
        if (!atomic_load_explicit(&heard->is_new, memory_order_acquire))
            continue;
        last = heard->last;
        count += last.count - c->versions.logged[i];
        c->versions.logged[i] = last.count;
        atomic_store_explicit(&heard->is_new, false, memory_order_release);
    }
    if (count == 0)
        return;
    char from[MR_ADDRESS_TEXT_BYTES], text[MR_OTHER_VERSION_TEXT_BYTES];
    mr_address_text(&last.from, from);
    mr_other_version_text(&last, "node", text);
    c->versions.next_us = now_us + LINE_INTERVAL_US;
    mr_log_with(MR_LOG_WARNING,
                MR_LOG_FIELDS({"peer", .text = from}, {"version", .number = last.version},
                              {"count", .number = count}),
                "other_version", "%s (HELLOs of other versions since the last line: %llu)", text,
                (unsigned long long)count);
}

uint64_t ps_control_versions_next_us(const struct ps_control *c)
{
    for (uint32_t i = 0; i < c->node->core_count; i++)
        if (atomic_load_explicit(&c->node->heard_versions[i].is_new, memory_order_relaxed))
            return c->versions.next_us;
    return UINT64_MAX;
}
