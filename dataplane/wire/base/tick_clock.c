#include "dataplane/wire/base/tick_clock.h"

#include <pthread.h>

uint64_t mr_tick_scale;

#ifdef __x86_64__
#include <cpuid.h>

#define MEASURED_NS       200000u
#define INVARIANT_TSC     (1u << 8)
#define POWER_LEAF        0x80000007u
#define READINGS          8u
#define READING_NS_SHOULD 200u /* longer, and something came between the two clocks */

static bool ticks_evenly(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(POWER_LEAF, &eax, &ebx, &ecx, &edx) != 0 && (edx & INVARIANT_TSC) != 0;
}

struct reading {
    uint64_t ns, ticks;
};

/* Reads both clocks at one time, as nearly as some tries allow. */
static struct reading read_both(void)
{
    struct reading best = {0, 0};
    uint64_t best_ns = UINT64_MAX;
    for (uint32_t i = 0; i < READINGS && best_ns > READING_NS_SHOULD; i++) {
        const uint64_t before_ns = mr_clock_ns();
        const uint64_t ticks = __rdtsc();
        const uint64_t after_ns = mr_clock_ns();
        if (after_ns - before_ns < best_ns) {
            best_ns = after_ns - before_ns;
            best = (struct reading){before_ns + best_ns / 2, ticks};
        }
    }
    return best;
}

static void measure(void)
{
    if (!ticks_evenly())
        return;
    const struct reading from = read_both();
    while (mr_clock_ns() - from.ns < MEASURED_NS)
        _mm_pause();
    const struct reading to = read_both();
    if (to.ticks > from.ticks)
        mr_tick_scale = (uint64_t)(((unsigned __int128)(to.ns - from.ns) << 32) / (to.ticks - from.ticks));
}
#else
static void measure(void)
{
}
#endif

void mr_tick_clock_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, measure);
}
