/* How counters are described, once, where they are declared: telemetry, the STATS call, metrics and
 * docs/counters.md all follow. A list of them is a macro LIST(X) of lines X(name, kind, unit, help):
 *
 *   kind   COUNTER: only grows, and begins at 0 with its process. GAUGE: goes up and down, or stands for
 *          something, as `help` says
 *   unit   NONE, BYTES, SECONDS, MICROSECONDS; TIMESTAMP: seconds since 1970; PPM: millionths of a whole. A
 *          name ends with its unit, "_s", "_us" or "_ppm", or has the word "bytes" in it
 *   help   its meaning, a phrase that begins in lower case
 *
 * Its fields are `LIST(MR_COUNTER_FIELD)` in a struct, and its descriptions `LIST(MR_COUNTER_DESCRIPTION)` in
 * an array, so that both have the same order. */
#ifndef MR_COUNTER_SET_H
#define MR_COUNTER_SET_H

#include <stdbool.h>
#include <stdint.h>

enum mr_counter_kind { MR_COUNTER, MR_GAUGE };
enum mr_unit {
    MR_UNIT_NONE,
    MR_UNIT_BYTES,
    MR_UNIT_SECONDS,
    MR_UNIT_MICROSECONDS,
    MR_UNIT_TIMESTAMP,
    MR_UNIT_PPM
};

struct mr_counter {
    const char *name;
    enum mr_counter_kind kind;
    enum mr_unit unit;
    const char *help;
};

struct mr_counter_set {
    const char *name; /* before a counter's own name: "wire" of "wire.rx_packets" */
    const char *help; /* what it counts, a phrase as a counter's */
    const struct mr_counter *counters;
    uint32_t count;
    bool of_process; /* there is one; else each core has its own */
};

/* A counter, from a thread that does not write it. Its one writer adds to it as to any variable: it is 8
 * bytes in one place, which no processor that this is built for writes in parts, and its value publishes
 * nothing else. C does not promise that much, and so the thread sanitizer is not shown it. */
__attribute__((no_sanitize("thread"))) static inline uint64_t mr_counter_read(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

#define MR_COUNTER_FIELD(name, kind, unit, help)       uint64_t name;
#define MR_COUNTER_DESCRIPTION(name, kind, unit, help) {#name, MR_##kind, MR_UNIT_##unit, help},
/* Of a set: an array of descriptions, with its length. */
#define MR_COUNTERS(descriptions)                                                                            \
    .counters = (descriptions), .count = (uint32_t)(sizeof(descriptions) / sizeof((descriptions)[0]))

#endif
