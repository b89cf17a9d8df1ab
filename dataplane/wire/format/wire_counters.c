#include "wire_counters.h"

static const struct mr_counter wire_counters[] = {MR_WIRE_COUNTER_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set mr_wire_counter_set = {
    .name = "wire", .help = "the transport: packets, sessions and calls", MR_COUNTERS(wire_counters)};
