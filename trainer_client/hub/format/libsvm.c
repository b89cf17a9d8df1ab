/* Lines of layout libsvm: "label index:value index:value ... # comment". */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "trainer_client/api/slot_key.h"
#include "trainer_client/hub/format/description.h"

int32_t hub_range_of(double value)
{
    double range = round(8.0 * log2(1.0 + fabs(value)));
    return (int32_t)copysign(range, value);
}

struct entry {
    uint32_t slot;
    float weight;
    uint64_t key;
};

static uint64_t key_of(const struct hub_description *d, uint32_t slot, int64_t index, double value)
{
    int64_t id[2] = {index, 0};
    if (d->values == HUB_VALUES_RANGES)
        id[1] = hub_range_of(value);
    return mrc_slot_key(slot, id, sizeof(id));
}

static const char *parse_feature(const struct hub_description *d, struct hub_field word, struct entry *entry,
                                 bool *zero)
{
    struct hub_field index_text, rest = word;
    int64_t index;
    double value;
    hub_field_next(&rest, ':', &index_text);
    if (rest.text == NULL)
        return "a feature is index:value; a ':' is missing";
    if (!hub_field_integer(index_text, &index) || index < 0)
        return "a feature's index is not a number from 0 on";
    if (!hub_field_number(rest, &value))
        return "a feature's value is not a finite number";
    *zero = fpclassify(value) == FP_ZERO;
    /* All ranges of one index share a slot: they exclude each other, so nothing is lost where a model only
     * lets different slots interact. */
    entry->slot = (uint32_t)(mrc_slot_key(0, &index, sizeof(index)) % d->slot_count);
    entry->key = key_of(d, entry->slot, index, value);
    entry->weight = (float)value;
    return d->values != HUB_VALUES_WEIGHTS || isfinite(entry->weight) ? NULL
                                                                      : "a feature's value is too large";
}

/* Also one that is to be passed over: files to be scored have 0 there, or nothing. */
static const char *parse_label(const struct hub_description *d, struct hub_field *rest, float *label)
{
    struct hub_field word, after = *rest;
    double value;
    if (d->label.kind == HUB_LABEL_NONE) {
        *label = NAN;
        if (hub_field_next_word(&after, &word) && memchr(word.text, ':', word.bytes) == NULL)
            *rest = after;
        return NULL;
    }
    if (!hub_field_next_word(rest, &word) || !hub_field_number(word, &value))
        return "the label is not a number";
    if (d->label.kind == HUB_LABEL_NUMBER) {
        *label = (float)value;
        return isfinite(*label) ? NULL : "the label is too large for a float";
    }
    if (value > 1.0 || value < -1.0 || fpclassify(value - trunc(value)) != FP_ZERO)
        return "the label is not one of +1, -1, 1, 0; a description with label = number takes others";
    *label = value > 0 ? 1.0f : 0.0f;
    return NULL;
}

static void sort_by_slot(const struct hub_description *d, const struct entry *entries, uint32_t count,
                         struct hub_sample *sample)
{
    uint32_t place[HUB_SLOTS_MAX];
    memset(place, 0, d->slot_count * sizeof(*place));
    for (uint32_t i = 0; i < count; i++)
        place[entries[i].slot]++;
    uint32_t begin = 0;
    for (uint32_t slot = 0; slot < d->slot_count; slot++) {
        uint32_t slot_keys = place[slot];
        place[slot] = begin;
        begin += slot_keys;
        sample->bag_end[slot] = begin;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t to = place[entries[i].slot]++;
        sample->keys[to] = entries[i].key;
        sample->weights[to] = entries[i].weight;
    }
    sample->key_count = count;
}

enum hub_parse hub_libsvm_parse(const struct hub_description *d, const char *line, size_t bytes,
                                uint64_t line_number, struct hub_sample *sample, char *reason)
{
    struct entry entries[HUB_SAMPLE_KEYS_MAX];
    uint32_t count = 0;
    const char *comment = memchr(line, '#', bytes);
    struct hub_field word, rest = {line, comment != NULL ? (size_t)(comment - line) : bytes}, probe = rest;
    if (!hub_field_next_word(&probe, &word))
        return HUB_NO_SAMPLE;
    const char *why = parse_label(d, &rest, &sample->label);
    while (why == NULL && hub_field_next_word(&rest, &word)) {
        bool zero = false;
        if (count == HUB_SAMPLE_KEYS_MAX) {
            snprintf(reason, HUB_REASON_BYTES, "more than %u features", HUB_SAMPLE_KEYS_MAX);
            return HUB_BROKEN;
        }
        why = parse_feature(d, word, &entries[count], &zero);
        count += why == NULL && !zero; /* a zero is the same as a feature left out */
    }
    if (why != NULL) {
        snprintf(reason, HUB_REASON_BYTES, "%s", why);
        return HUB_BROKEN;
    }
    sort_by_slot(d, entries, count, sample);
    return HUB_PARSED;
}
