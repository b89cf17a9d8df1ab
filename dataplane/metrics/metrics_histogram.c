/* Histograms of spans of time, as metrics. */
#include <inttypes.h>
#include <stdio.h>
#include "dataplane/metrics/metrics_text.h"
#include "dataplane/metrics/metrics_text_internal.h"

#define LOW_BITS  10u /* 2^10 ns: 1 us */
#define HIGH_BITS 34u /* 2^34 ns: 17 s */

void mr_metrics_histogram_family(struct mr_metrics_text *text, const char *name, const char *help)
{
    snprintf(text->family, sizeof(text->family), "%s", name);
    mr_metrics_begin(text, name, "histogram", MR_UNIT_SECONDS, help);
}

/* A sample of the family, name and labels, as far as its value. */
static void begin_sample(struct mr_metrics_text *text, const struct mr_labels *labels, const char *ending)
{
    mr_metrics_add(text, "%s%s{%s} ", text->family, ending, labels->text);
}

static void add_bucket(struct mr_metrics_text *text, const struct mr_labels *labels, const char *le,
                       uint64_t count)
{
    struct mr_labels own = *labels;
    mr_labels_add(&own, "le", le);
    begin_sample(text, &own, "_bucket");
    mr_metrics_add(text, "%" PRIu64 "\n", count);
}

void mr_metrics_histogram(struct mr_metrics_text *text, const struct mr_labels *labels,
                          const struct mr_histogram *histogram)
{
    uint64_t below = 0;
    uint32_t at = 0;
    for (uint32_t bits = LOW_BITS; bits <= HIGH_BITS; bits++) {
        char le[32];
        for (const uint32_t end = mr_histogram_bucket(UINT64_C(1) << bits); at < end; at++)
            below += histogram->buckets[at];
        snprintf(le, sizeof(le), "%.12g", (double)(UINT64_C(1) << bits) * 1e-9);
        add_bucket(text, labels, le, below);
    }
    add_bucket(text, labels, "+Inf", histogram->count);
    begin_sample(text, labels, "_sum");
    mr_metrics_add(text, "%" PRIu64 ".%09" PRIu64 "\n", histogram->sum_ns / 1000000000,
                   histogram->sum_ns % 1000000000);
    begin_sample(text, labels, "_count");
    mr_metrics_add(text, "%" PRIu64 "\n", histogram->count);
}
