#include "trainer_client/hub/check_format.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "trainer_client/api/slot_key.h"
#include "trainer_client/hub/samples/distinct.h"
#include "trainer_client/hub/format/proposal.h"
#include "trainer_client/hub/samples/sample_file.h"

#define SAMPLES_SHOWN    3u
#define KEYS_SHOWN       4u /* of a bag */
#define SAMPLES_MAX      100000u
#define DISTINCT_ENTRIES (1u << 14) /* of a slot: exact up to 8192 keys */

/* Of the label, or a dense value. */
struct spread {
    double sum, low, high;
};

struct table {
    const struct hub_format *format;
    uint64_t samples;
    struct spread label;
    struct spread *dense;           /* [format->dense] */
    struct hub_distinct **distinct; /* [format->slots] */
    uint64_t *keys, *empty;         /* [format->slots]: keys, and samples without one */
};

static void add_value(struct spread *s, double value, bool is_first)
{
    s->sum += value;
    s->low = is_first ? value : fmin(s->low, value);
    s->high = is_first ? value : fmax(s->high, value);
}

static void add_sample(struct table *t, const struct hub_sample *sample)
{
    const bool is_first = t->samples++ == 0;
    if (!t->format->has_no_labels)
        add_value(&t->label, sample->label, is_first);
    for (uint32_t i = 0; i < t->format->dense; i++)
        add_value(&t->dense[i], sample->dense[i], is_first);
    for (uint32_t slot = 0, key = 0; slot < t->format->slots; slot++) {
        t->keys[slot] += sample->bag_end[slot] - key;
        t->empty[slot] += sample->bag_end[slot] == key;
        for (; key < sample->bag_end[slot]; key++)
            hub_distinct_add(t->distinct[slot], sample->keys[key]);
    }
}

static bool make_table(struct table *t, const struct hub_format *format)
{
    *t = (struct table){.format = format,
                        .dense = calloc(format->dense + 1U, sizeof(*t->dense)),
                        .distinct = calloc(format->slots, sizeof(struct hub_distinct *)),
                        .keys = calloc(format->slots, sizeof(*t->keys)),
                        .empty = calloc(format->slots, sizeof(*t->empty))};
    bool ok = t->dense != NULL && t->distinct != NULL && t->keys != NULL && t->empty != NULL;
    for (uint32_t i = 0; ok && i < format->slots; i++)
        ok = (t->distinct[i] = hub_distinct_create(DISTINCT_ENTRIES)) != NULL;
    return ok;
}

static void free_table(struct table *t)
{
    for (uint32_t i = 0; t->distinct != NULL && i < t->format->slots; i++)
        hub_distinct_destroy(t->distinct[i]);
    free(t->distinct);
    free(t->dense);
    free(t->keys);
    free(t->empty);
}

static void print_keys(const struct hub_sample *sample, uint32_t begin, uint32_t end, bool has_weights,
                       FILE *out)
{
    for (uint32_t i = begin; i < end && i < begin + KEYS_SHOWN; i++) {
        (void)fprintf(out, " %016" PRIx64, sample->keys[i]);
        if (has_weights)
            (void)fprintf(out, " x %g", (double)sample->weights[i]);
    }
    (void)fprintf(out, end == begin ? " none\n" : end - begin > KEYS_SHOWN ? " ...\n" : "\n");
}

static void print_sample(const struct hub_format *format, uint64_t number, const struct hub_sample *sample,
                         FILE *out)
{
    (void)fprintf(out, "\nsample %" PRIu64 ": label %g\n", number, (double)sample->label);
    for (uint32_t i = 0; i < format->dense; i++)
        (void)fprintf(out, "  %-24s %g\n", hub_format_dense_name(format, i), (double)sample->dense[i]);
    for (uint32_t slot = 0; slot < format->slots; slot++) {
        (void)fprintf(out, "  %-24s", hub_format_slot_name(format, slot));
        print_keys(sample, slot > 0 ? sample->bag_end[slot - 1] : 0, sample->bag_end[slot],
                   format->has_weights, out);
    }
}

static void print_spread(const char *name, const struct spread *s, uint64_t samples, FILE *out)
{
    (void)fprintf(out, "  %-24s %12.5g %12.5g %12.5g\n", name, s->sum / (double)samples, s->low, s->high);
}

static void print_table(const struct table *t, FILE *out)
{
    const struct hub_format *format = t->format;
    (void)fprintf(out, "\n  %-24s %12s %12s %12s\n", "value", "average", "lowest", "highest");
    if (!format->has_no_labels)
        print_spread("label", &t->label, t->samples, out);
    for (uint32_t i = 0; i < format->dense; i++)
        print_spread(hub_format_dense_name(format, i), &t->dense[i], t->samples, out);
    (void)fprintf(out, "\n  %-24s %12s %12s %12s\n", "slot", "keys/sample", "distinct", "empty bags");
    for (uint32_t i = 0; i < format->slots; i++)
        (void)fprintf(out, "  %-24s %12.5g %12" PRIu64 " %12" PRIu64 "\n", hub_format_slot_name(format, i),
                      (double)t->keys[i] / (double)t->samples, hub_distinct_count(t->distinct[i]),
                      t->empty[i]);
}

/* ---- what the description may lack ---- */

#define WORDS_MAX 32u

/* What broken lines propose, and the texts of slots. */
struct lacks {
    FILE *out;
    bool trim;
    bool is_word[WORDS_MAX]; /* of hub_missing_words */
};

static void print_broken(void *arg, const char *path, uint64_t line_number, const char *reason)
{
    struct lacks *lacks = arg;
    const char *word = hub_proposed_missing(reason);
    lacks->trim |= hub_proposed_trim(reason);
    for (uint32_t i = 0; word != NULL && i < WORDS_MAX && hub_missing_words[i] != NULL; i++)
        lacks->is_word[i] |= hub_missing_words[i] == word;
    (void)fprintf(lacks->out, "%s:%" PRIu64 ": broken line: %s\n", path, line_number, reason);
}

/* A text that stands for a missing value is a key like any other, where nobody says what it is. */
static void look_for_words(struct lacks *lacks, const struct hub_format *format,
                           const struct hub_sample *sample)
{
    for (uint32_t slot = 0, key = 0; slot < format->slots; slot++)
        for (; key < sample->bag_end[slot]; key++)
            for (uint32_t i = 0; i < WORDS_MAX && hub_missing_words[i] != NULL; i++)
                lacks->is_word[i] |= sample->keys[key] ==
                                     mrc_slot_key(slot, hub_missing_words[i], strlen(hub_missing_words[i]));
}

static void print_lacks(const struct lacks *lacks)
{
    bool has_word = false;
    for (uint32_t i = 0; i < WORDS_MAX; i++) {
        if (!lacks->is_word[i])
            continue;
        (void)fprintf(lacks->out, has_word ? ", %s" : "\nproposed for [format]:\n  missing = %s",
                      hub_missing_words[i]);
        has_word = true;
    }
    if (has_word)
        (void)fprintf(lacks->out,
                      "\n  # and \" or empty\" behind the types of columns in which these are no values\n");
    if (lacks->trim)
        (void)fprintf(lacks->out, "%s  trim = blanks\n", has_word ? "" : "\nproposed for [format]:\n");
}

static enum mr_status read_samples(struct hub_sample_file *f, struct table *t, struct lacks *lacks, FILE *out,
                                   char *error)
{
    const struct hub_sample_file_info *info = hub_sample_file_info(f);
    struct hub_sample *sample = malloc(sizeof(*sample));
    enum mr_status status = MR_OK;
    if (sample == NULL) {
        (void)snprintf(error, HUB_ERROR_BYTES, "no memory");
        return MR_NO_MEMORY;
    }
    for (uint64_t i = 0; status == MR_OK && i < info->samples && i < SAMPLES_MAX; i++) {
        status = hub_sample_file_read(f, i, sample, error);
        if (status != MR_OK)
            break;
        add_sample(t, sample);
        look_for_words(lacks, t->format, sample);
        if (i < SAMPLES_SHOWN)
            print_sample(t->format, i + 1, sample, out);
    }
    free(sample);
    return status;
}

static enum mr_status check_data(const struct hub_formats *formats, const struct hub_format *format,
                                 const char *path, FILE *out, char *error)
{
    struct lacks lacks = {.out = out};
    const struct hub_sample_file_options options = {.path = path,
                                                    .formats = formats,
                                                    .format = format->name,
                                                    .held_out = format->has_no_labels,
                                                    .on_broken_line = print_broken,
                                                    .arg = &lacks};
    struct hub_sample_file *f = NULL;
    struct table table;
    enum mr_status status = hub_sample_file_open(&options, &f, error);
    if (status != MR_OK) {
        lacks.trim |= hub_proposed_trim(error); /* the first line's */
        print_lacks(&lacks);
        return status;
    }
    const struct hub_sample_file_info *info = hub_sample_file_info(f);
    (void)fprintf(out,
                  "%s: %" PRIu32 " file%s, %" PRIu64 " sample%s, %" PRIu64 " broken line%s, %s%" PRIu64
                  " distinct key%s\n",
                  path, info->files, mr_plural(info->files), info->samples, mr_plural(info->samples),
                  info->broken_lines, mr_plural(info->broken_lines), info->keys_exact ? "" : "about ",
                  info->keys, mr_plural(info->keys));
    if (make_table(&table, format)) {
        status = read_samples(f, &table, &lacks, out, error);
    } else {
        (void)snprintf(error, HUB_ERROR_BYTES, "no memory");
        status = MR_NO_MEMORY;
    }
    if (status == MR_OK && table.samples > 0)
        print_table(&table, out);
    if (status == MR_OK && table.samples < info->samples)
        (void)fprintf(out, "\nof the first %" PRIu64 " samples\n", table.samples);
    print_lacks(&lacks);
    free_table(&table);
    hub_sample_file_close(f);
    return status;
}

enum mr_status hub_check_format(const struct hub_formats *formats, const struct hub_format *format,
                                const char *path, FILE *out, char *error)
{
    (void)fprintf(out, "format %s: %" PRIu32 " slot%s, %" PRIu32 " dense value%s\n", format->name,
                  format->slots, mr_plural(format->slots), format->dense, mr_plural(format->dense));
    return path == NULL ? MR_OK : check_data(formats, format, path, out, error);
}
