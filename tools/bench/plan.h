/* What a run is made of. */
#ifndef TOOL_BENCH_PLAN_H
#define TOOL_BENCH_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include "millrace.h"
#include "tools/bench/key_law.h"
#include "tools/bench/mix.h"

#define TOOL_CLIENTS_MAX      256u
#define TOOL_IN_FLIGHT_MAX    65536u
#define TOOL_KEYS_A_CALL_MAX  1000000u
#define TOOL_ECHO_BYTES_MAX   (16u << 20)
#define TOOL_VARIABLE_MAX     (16u << 20) /* values */
#define TOOL_IN_FLIGHT_CLOSED 1u          /* of each client, unless the user says otherwise */
#define TOOL_IN_FLIGHT_OPEN   256u

struct tool_bench_plan {
    uint32_t clients;   /* each with a thread of its own */
    uint32_t in_flight; /* calls of each client */
    double rate;        /* open loop: calls per second of all clients; 0: a closed loop */
    bool is_even;       /* open loop: arrivals are evenly spaced */
    double warm_up_s, seconds, interval_s;
    struct tool_key_law keys;
    struct tool_range keys_per_call;
    uint32_t bag_keys;
    struct tool_mix mix;
    enum mr_dtype wire_dtype;
    uint32_t variable_values, echo_bytes;
    uint64_t preload, seed;
    struct mr_feature feature; /* the table, as it is made or found */
    uint32_t table, variable;  /* their numbers, once they are known */
    bool is_read_only;         /* lookups make no rows */
};

#endif
