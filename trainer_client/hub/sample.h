/* One training sample, as a reader makes it from one line of text, and the formats there are.
 *
 * A sample is a label, dense values, and one bag of keys per slot. Keys are 64-bit hashes of (slot, value),
 * so that no dictionary is needed and every hub makes the same keys. Formats are described in
 * docs/data-formats.md. Pure, any thread.
 */
#ifndef HUB_SAMPLE_H
#define HUB_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#define HUB_LINE_BYTES_MAX  65536u
#define HUB_SAMPLE_KEYS_MAX 4096u
#define HUB_SLOTS_MAX       32u
#define HUB_DENSE_MAX       16u
#define HUB_REASON_BYTES    128u

struct hub_sample {
    float label; /* 0 or 1 */
    float dense[HUB_DENSE_MAX];
    uint32_t key_count;
    uint32_t bag_end[HUB_SLOTS_MAX]; /* slot j's keys end here; they begin where slot j - 1's end */
    uint64_t keys[HUB_SAMPLE_KEYS_MAX];
};

enum hub_parse {
    HUB_PARSED,
    HUB_NO_SAMPLE, /* a header or a blank line: no sample, and no fault */
    HUB_BROKEN,
};

struct hub_format {
    const char *name;
    uint32_t slots, dense;
    /* `line` is not NUL-terminated and has no line end. HUB_BROKEN: `reason` (HUB_REASON_BYTES) says why, and
     * `sample` is undefined. line_number counts from 1. */
    enum hub_parse (*parse)(const char *line, size_t bytes, uint64_t line_number, struct hub_sample *sample,
                            char *reason);
};

/* NULL when there is no format of that name. */
const struct hub_format *hub_format_find(const char *name);
/* Format i; NULL: there are no more. */
const struct hub_format *hub_format_at(uint32_t i);
/* "libsvm, criteo, flights": for error messages. */
const char *hub_format_names(void);

extern const struct hub_format hub_format_libsvm;
extern const struct hub_format hub_format_criteo;
extern const struct hub_format hub_format_flights;

#endif
