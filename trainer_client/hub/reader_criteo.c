/* Criteo TSV: label, 13 integers, 26 hashed categories; any but the label may be empty. */
#include <math.h>
#include <stdio.h>
#include "trainer_client/hub/field.h"
#include "trainer_client/hub/sample.h"

#define CRITEO_INTEGERS   13u
#define CRITEO_CATEGORIES 26u

static bool parse_label(struct hub_field field, float *label)
{
    if (field.bytes != 1 || (field.text[0] != '0' && field.text[0] != '1'))
        return false;
    *label = field.text[0] == '1' ? 1.0f : 0.0f;
    return true;
}

/* Counts span many orders of magnitude: their logarithm, with the sign kept, and 0 for a missing one. */
static bool parse_integer(struct hub_field field, float *dense)
{
    int64_t value = 0;
    if (field.bytes > 0 && !hub_field_integer(field, &value))
        return false;
    *dense = (float)copysign(log1p(fabs((double)value)), (double)value);
    return true;
}

static void add_category(struct hub_field field, uint32_t slot, struct hub_sample *sample)
{
    if (field.bytes > 0)
        sample->keys[sample->key_count++] = hub_key(slot, field.text, field.bytes);
    sample->bag_end[slot] = sample->key_count;
}

static enum hub_parse parse(const char *line, size_t bytes, uint64_t line_number, struct hub_sample *sample,
                            char *reason)
{
    const uint32_t field_count = 1 + CRITEO_INTEGERS + CRITEO_CATEGORIES;
    struct hub_field field, rest = {line, bytes};
    uint32_t i = 0;
    if (bytes == 0)
        return HUB_NO_SAMPLE;
    sample->key_count = 0;
    for (; i < field_count && hub_field_next(&rest, '\t', &field); i++) {
        if (i == 0 && !parse_label(field, &sample->label)) {
            snprintf(reason, HUB_REASON_BYTES, "the label is not 0 or 1");
            return HUB_BROKEN;
        }
        if (i >= 1 && i <= CRITEO_INTEGERS && !parse_integer(field, &sample->dense[i - 1])) {
            snprintf(reason, HUB_REASON_BYTES, "field %u is not an integer", i + 1);
            return HUB_BROKEN;
        }
        if (i > CRITEO_INTEGERS)
            add_category(field, i - 1 - CRITEO_INTEGERS, sample);
    }
    if (i < field_count || rest.text != NULL) {
        snprintf(reason, HUB_REASON_BYTES, "%s than %u fields separated by tabs",
                 i < field_count ? "fewer" : "more", field_count);
        return HUB_BROKEN;
    }
    return HUB_PARSED;
}

const struct hub_format hub_format_criteo = {
    .name = "criteo", .slots = CRITEO_CATEGORIES, .dense = CRITEO_INTEGERS, .parse = parse};
