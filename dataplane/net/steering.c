#include "dataplane/net/steering.h"
#include "dataplane/wire/base/plural.h"
#include <stdio.h>

const char *dp_steering_text(enum dp_steering steering)
{
    static const char *const text[] = {
        [DP_STEERING_ONE_CORE] = "one core", [DP_STEERING_FLOW_RULES] = "flow rules",
        [DP_STEERING_RSS] = "rss",           [DP_STEERING_RINGS] = "rings",
        [DP_STEERING_SOCKETS] = "sockets",
    };
    return text[steering];
}

static void choose_rings(const struct dp_steering_facts *facts, struct dp_steering_choice *out)
{
    out->steering = DP_STEERING_RINGS;
    if (facts->queue_count < facts->core_count)
        snprintf(out->why, sizeof(out->why), "%u queue%s for %u cores", facts->queue_count,
                 mr_plural(facts->queue_count), facts->core_count);
    else
        snprintf(out->why, sizeof(out->why), "no RSS over UDP ports, no flow rules: %s",
                 facts->flow_error != NULL ? facts->flow_error : "none");
}

void dp_steering_choose(const struct dp_steering_facts *facts, struct dp_steering_choice *out)
{
    if (facts->core_count == 1) {
        out->steering = DP_STEERING_ONE_CORE;
        snprintf(out->why, sizeof(out->why), "nothing to choose");
    } else if (facts->sockets) {
        out->steering = DP_STEERING_SOCKETS;
        snprintf(out->why, sizeof(out->why), "the kernel finds each core's socket by its UDP port");
    } else if (facts->flow_rules) {
        out->steering = DP_STEERING_FLOW_RULES;
        snprintf(out->why, sizeof(out->why), "the port took a rule for each core");
    } else if (facts->rss && facts->queue_count >= facts->core_count) {
        out->steering = DP_STEERING_RSS;
        snprintf(out->why, sizeof(out->why), "%u queue%s, no flow rules: %s", facts->queue_count,
                 mr_plural(facts->queue_count), facts->flow_error != NULL ? facts->flow_error : "none");
    } else {
        choose_rings(facts, out);
    }
}

uint64_t dp_steering_rss_types(const struct dp_rss_types *types, uint64_t offered)
{
    /* One version hashed by its ports and the other not would leave the other's clients without a way to
     * learn. */
    if ((offered & types->udp_ipv4) == 0)
        return 0;
    return offered & (types->udp_ipv4 | types->udp_ipv6);
}
