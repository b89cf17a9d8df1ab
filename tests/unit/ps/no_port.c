/* What a data plane without a port says of it; for the stand-ins of dataplane.h that tests link. */
#include <stdio.h>
#include <string.h>
#include "dataplane/dataplane.h"
#include "dataplane/wire/format/capture.h"

void dp_link_local(const struct dp *dp, char text[DP_ADDRESS_BYTES])
{
    (void)dp;
    (void)snprintf(text, DP_ADDRESS_BYTES, "fe80::1");
}

enum dp_port_state dp_port_state(const struct dp *dp, char why[DP_ERROR_BYTES])
{
    (void)dp;
    why[0] = '\0';
    return DP_PORT_UP;
}

enum dp_driver dp_driver(const struct dp *dp)
{
    (void)dp;
    return DP_DRIVER_SOCKET;
}

const char *dp_driver_name(const struct dp *dp)
{
    (void)dp;
    return "stand-in";
}

const char *dp_driver_why(const struct dp *dp)
{
    (void)dp;
    return "it is a stand-in";
}

const char *dp_carrier_name(const struct dp *dp)
{
    (void)dp;
    return "a stand-in";
}

const char *dp_faster(const struct dp *dp)
{
    (void)dp;
    return NULL;
}

const char *dp_dpdk_version(void)
{
    return "none";
}

const char *dp_memory_name(const struct dp *dp)
{
    (void)dp;
    return "no-huge";
}

const char *dp_steering_name(const struct dp *dp)
{
    (void)dp;
    return "queues";
}

const char *dp_steering_why(const struct dp *dp)
{
    (void)dp;
    return "it is a stand-in";
}

bool dp_can_reach(const struct dp *dp, const struct mr_address *to, char why[DP_ERROR_BYTES])
{
    (void)dp;
    (void)to;
    why[0] = '\0';
    return true;
}

uint32_t dp_link_type(const struct dp *dp)
{
    (void)dp;
    return MR_CAPTURE_LINK_IP;
}

void dp_own_addresses(const struct dp *dp, struct mr_address own[2])
{
    (void)dp;
    memset(own, 0, 2 * sizeof(*own));
}

bool dp_is_own_address(const struct dp *dp, const struct mr_address *address)
{
    (void)dp;
    (void)address;
    return false;
}

void dp_refresh_counters(struct dp *dp)
{
    (void)dp;
}

bool dp_cpu_events_missing(const struct dp *dp, char why[DP_ERROR_BYTES])
{
    (void)dp;
    why[0] = '\0';
    return false;
}

struct dp_phases *dp_core_phases(struct dp_core *core)
{
    (void)core;
    return NULL;
}
