/* Metrics as text: Prometheus's text format 0.0.4, or OpenMetrics 1.0.0.
 *
 * A family is declared as a counter is (dataplane/wire/base/counter_set.h), and its name follows: set, name,
 * and the base unit at the end, "millrace_wire_rx_bytes_total" of wire.rx_bytes, "..._write_seconds_total" of
 * a name with "_us". Values are given in the declared unit. Families must not come twice; all samples of one
 * follow its beginning. When memory ends the text is void: mr_metrics_end() says so.
 *
 *     struct mr_metrics_text text = {.open_metrics = true};
 *     mr_metrics_family(&text, &set, &set.counters[0]);
 *     mr_metrics_sample(&text, &labels, 7);
 *     if (mr_metrics_end(&text)) ... text.data, text.bytes ...
 *     free(text.data);
 */
#ifndef MR_METRICS_TEXT_H
#define MR_METRICS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/base/counter_set.h"
#include "dataplane/wire/format/mr_histogram.h"

#define MR_METRIC_NAME_BYTES 96u
#define MR_LABELS_BYTES      512u

struct mr_metrics_text {
    bool open_metrics; /* set by the caller */
    bool no_memory;
    char *data; /* malloc(): the caller's to free */
    size_t bytes, capacity;
    char family[MR_METRIC_NAME_BYTES]; /* the last one that began */
    enum mr_counter_kind kind;
    enum mr_unit unit;
};

/* name="value",... in the order in which they are added. One that has no room is left out. */
struct mr_labels {
    char text[MR_LABELS_BYTES];
    size_t bytes;
};

void mr_labels_add(struct mr_labels *labels, const char *name, const char *value);
void mr_labels_add_number(struct mr_labels *labels, const char *name, uint64_t value);

/* A family's name, without the "_total" that samples of a counter end with. */
void mr_metric_name(const struct mr_counter_set *set, const struct mr_counter *counter,
                    char name[MR_METRIC_NAME_BYTES]);
void mr_metrics_family(struct mr_metrics_text *text, const struct mr_counter_set *set,
                       const struct mr_counter *counter);
/* The same under a name that others have given, as "process_cpu_seconds"; `unit` is that of the values. */
void mr_metrics_family_named(struct mr_metrics_text *text, const char *name, enum mr_counter_kind kind,
                             enum mr_unit unit, const char *help);
/* labels: NULL: none. */
void mr_metrics_sample(struct mr_metrics_text *text, const struct mr_labels *labels, uint64_t value);
/* The counters of a set from number `first` on, each as a family of one sample. values: [set->count - first];
 * another thread may write them meanwhile. */
void mr_metrics_set(struct mr_metrics_text *text, const struct mr_labels *labels,
                    const struct mr_counter_set *set, uint32_t first, const uint64_t *values);

/* Begins a family of histograms of spans of time; `name` ends with "_seconds". */
void mr_metrics_histogram_family(struct mr_metrics_text *text, const char *name, const char *help);
/* One of it, from a copy (mr_histogram_read()), in coarse buckets: each power of two from about a microsecond
 * to some seconds. A span of exactly such a power is counted above it. */
void mr_metrics_histogram(struct mr_metrics_text *text, const struct mr_labels *labels,
                          const struct mr_histogram *histogram);

/* The end of the text. False: there was no memory for it. */
bool mr_metrics_end(struct mr_metrics_text *text);

#endif
