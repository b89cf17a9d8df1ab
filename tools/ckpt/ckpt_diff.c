/* millrace ckpt diff: which features belong together, and what is said about them. */
#include "tools/ckpt/ckpt_diff.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/convert.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "tools/ckpt/ckpt.h"
#include "tools/ctl/ctl.h"
#include "dataplane/wire/base/cli.h"

#define COMMAND   "millrace ckpt diff"
#define EXIT_SAME 0
#define EXIT_DIFF 3 /* not 1: that is a failure */

bool ckpt_pair_compare(struct ckpt_pair *pair, const float *a, const float *b, uint32_t count, uint64_t at,
                       uint32_t first_column)
{
    bool differs = false;
    for (uint32_t i = 0; i < count; i++) {
        if (mr_f32_bits(a[i]) == mr_f32_bits(b[i]))
            continue;
        differs = true;
        const double difference = fabs((double)a[i] - (double)b[i]);
        /* NaN stays. */
        if (!isnan(pair->largest) && !(difference <= pair->largest)) {
            pair->largest = difference;
            pair->largest_at = at;
            pair->largest_column = first_column + i;
        }
    }
    return differs;
}

/* ---- pairs ---- */

static uint32_t find(const struct ps_manifest *m, const struct mr_feature *f)
{
    for (uint32_t i = 0; i < m->feature_count; i++)
        if (m->features[i].kind == f->kind && strncmp(m->features[i].name, f->name, MR_NAME_BYTES) == 0)
            return i;
    return UINT32_MAX;
}

static uint64_t element_count(const struct mr_feature *f)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < f->rank; i++)
        count *= f->dims[i];
    return count;
}

static void judge(const struct ckpt_diff *d, struct ckpt_pair *p)
{
    const bool both = p->a && p->b;
    if (p->kind == MR_VARIABLE) {
        p->a_count = p->a ? element_count(p->a) : 0;
        p->b_count = p->b ? element_count(p->b) : 0;
        p->is_comparable = both && p->a_count == p->b_count;
        p->has_same_state = p->is_comparable && p->a->optimizer == p->b->optimizer &&
                            (p->a->optimizer != MR_OPT_MOMENTUM ||
                             (p->a->optimizer_args[1] > 0) == (p->b->optimizer_args[1] > 0));
        return;
    }
    p->is_comparable = both && p->a->dims[0] == p->b->dims[0];
    if (!p->is_comparable)
        return;
    const struct ckpt_row *a = &d->a->rows[p->a_id], *b = &d->b->rows[p->b_id];
    p->has_same_state =
        p->a->optimizer == p->b->optimizer && a->bytes - a->state_offset == b->bytes - b->state_offset;
}

static void add_pair(struct ckpt_diff *d, const struct ps_manifest *a, uint32_t i,
                     const struct ps_manifest *b, uint32_t j)
{
    struct ckpt_pair *p = &d->pairs[d->pair_count++];
    *p = (struct ckpt_pair){0};
    if (a) {
        p->a = &a->features[i];
        p->a_id = a->feature_ids[i];
        p->kind = p->a->kind;
    }
    if (b) {
        p->b = &b->features[j];
        p->b_id = b->feature_ids[j];
        p->kind = p->b->kind;
    }
    judge(d, p);
}

static enum mr_status open_both(struct ckpt_diff *d, const struct ckpt_chain *a, const struct ckpt_chain *b,
                                char *text)
{
    const struct ps_manifest *ma = &ckpt_chain_last(a)->manifest, *mb = &ckpt_chain_last(b)->manifest;
    *d = (struct ckpt_diff){.a = a, .b = b};
    d->pairs = calloc(ma->feature_count + mb->feature_count + 1u, sizeof(*d->pairs));
    if (!d->pairs)
        return ps_checkpoint_fail(text, "compare", ckpt_chain_last(a)->path, -ENOMEM);
    for (uint32_t i = 0; i < ma->feature_count; i++) {
        const uint32_t j = find(mb, &ma->features[i]);
        add_pair(d, ma, i, j != UINT32_MAX ? mb : NULL, j);
    }
    for (uint32_t j = 0; j < mb->feature_count; j++)
        if (find(ma, &mb->features[j]) == UINT32_MAX)
            add_pair(d, NULL, 0, mb, j);
    ckpt_progress_begin(&d->progress, "diff", ckpt_chain_bytes(a) + ckpt_chain_bytes(b));
    return MR_OK;
}

static void close_both(struct ckpt_diff *d)
{
    ckpt_progress_end(&d->progress);
    free(d->pairs);
    d->pairs = NULL;
}

/* The first field of the descriptors that differs, or NULL. */
static const char *descriptor_diff(const struct ckpt_pair *p)
{
    return p->a && p->b ? mr_feature_diff(p->a, p->b) : NULL;
}

static bool pair_differs(const struct ckpt_pair *p)
{
    return !p->a || !p->b || descriptor_diff(p) || p->added > 0 || p->removed > 0 || p->changed > 0 ||
           p->state_changed > 0;
}

static bool differs_anywhere(const struct ckpt_diff *d)
{
    for (uint32_t i = 0; i < d->pair_count; i++)
        if (pair_differs(&d->pairs[i]))
            return true;
    return false;
}

/* ---- output ---- */

static const char *only_in(const struct ckpt_pair *p)
{
    return !p->b ? "a" : !p->a ? "b" : NULL;
}

static json_t *pair_json(const struct ckpt_pair *p)
{
    const struct mr_feature *f = p->a ? p->a : p->b;
    const bool is_table = p->kind == MR_TABLE;
    const char *descriptor = descriptor_diff(p);
    json_t *o = json_pack("{s:s%, s:s, s:b, s:I, s:I, s:I, s:I}", "name", f->name,
                          strnlen(f->name, sizeof(f->name)), "kind", is_table ? "table" : "variable",
                          "differs", pair_differs(p), is_table ? "a_rows" : "a_elements",
                          (json_int_t)p->a_count, is_table ? "b_rows" : "b_elements", (json_int_t)p->b_count,
                          "changed", (json_int_t)p->changed, "state_changed", (json_int_t)p->state_changed);
    if (is_table) {
        json_object_set_new(o, "added", json_integer((json_int_t)p->added));
        json_object_set_new(o, "removed", json_integer((json_int_t)p->removed));
    }
    json_object_set_new(o, "only_in", only_in(p) ? json_string(only_in(p)) : json_null());
    json_object_set_new(o, "descriptor_differs", descriptor ? json_string(descriptor) : json_null());
    /* JSON has no NaN and no Inf. */
    json_object_set_new(o, "largest_difference", isfinite(p->largest) ? json_real(p->largest) : json_null());
    return o;
}

static void print_note(const struct ckpt_pair *p)
{
    const char *descriptor = descriptor_diff(p);
    if (only_in(p))
        (void)printf("  only in %s", only_in(p));
    if (descriptor)
        (void)printf("  %s differs", descriptor);
    if (p->a && p->b && !p->has_same_state)
        (void)printf("  states of other optimizers are not compared");
    if (p->changed > 0 && p->is_comparable && p->kind == MR_TABLE)
        (void)printf("  largest at key %" PRIu64 ", column %" PRIu32, p->largest_at, p->largest_column);
    else if (p->changed > 0 && p->is_comparable)
        (void)printf("  largest at element %" PRIu64, p->largest_at + p->largest_column);
}

static void print_pair(const struct ckpt_pair *p)
{
    const struct mr_feature *f = p->a ? p->a : p->b;
    char largest[24] = "-", added[24] = "-", removed[24] = "-";
    if (p->changed > 0 && p->is_comparable)
        (void)snprintf(largest, sizeof(largest), "%.6g", p->largest);
    if (p->kind == MR_TABLE) {
        (void)snprintf(added, sizeof(added), "%" PRIu64, p->added);
        (void)snprintf(removed, sizeof(removed), "%" PRIu64, p->removed);
    }
    (void)printf("%-8s %-24.63s %12" PRIu64 " %12" PRIu64 " %10s %10s %10" PRIu64 " %10" PRIu64 " %13s",
                 p->kind == MR_TABLE ? "table" : "variable", f->name, p->a_count, p->b_count, added, removed,
                 p->changed, p->state_changed, largest);
    print_note(p);
    (void)printf("\n");
}

static int print_all(const struct ckpt_diff *d, bool json)
{
    json_t *list = json ? json_array() : NULL;
    const bool differs = differs_anywhere(d);
    if (!json)
        (void)printf("a  %s\nb  %s\n\n%-8s %-24s %12s %12s %10s %10s %10s %10s %13s\n",
                     ckpt_chain_last(d->a)->path, ckpt_chain_last(d->b)->path, "kind", "name", "in a", "in b",
                     "added", "removed", "changed", "state", "largest diff");
    for (uint32_t i = 0; i < d->pair_count; i++) {
        if (json)
            json_array_append_new(list, pair_json(&d->pairs[i]));
        else
            print_pair(&d->pairs[i]);
    }
    int exit_code = 0;
    if (json)
        exit_code = tool_print_json(COMMAND, json_pack("{s:b, s:o}", "differs", differs, "features", list));
    return exit_code != 0 ? exit_code : differs ? EXIT_DIFF : EXIT_SAME;
}

static int compare(const struct ckpt_chain *a, const struct ckpt_chain *b, uint32_t memory_mib, bool json)
{
    char text[PS_TEXT_BYTES];
    struct ckpt_diff d;
    enum mr_status status = open_both(&d, a, b, text);
    if (status == MR_OK)
        status = ckpt_diff_tables(&d, (uint64_t)memory_mib << 20, text);
    if (status == MR_OK)
        status = ckpt_diff_variables(&d, (uint64_t)memory_mib << 20, text);
    ckpt_progress_end(&d.progress);
    int exit_code = status == MR_OK ? print_all(&d, json) : cli_fail(COMMAND, "%s", text);
    close_both(&d);
    return exit_code;
}

int ckpt_diff(int argc, char **argv)
{
    bool json = false;
    uint32_t memory_mib = CKPT_MEMORY_MIB_DEFAULT;
    const struct cli_option options[] = {
        CKPT_MEMORY_OPTION(&memory_mib, "for rows and keys"),
        {"json", CLI_FLAG, &json, NULL, "one JSON value instead of text"},
    };
    const struct cli_usage usage = {
        .program = COMMAND,
        .synopsis = "DIR/ckpt-N DIR/ckpt-M [options]",
        .summary = "Shows what differs between two checkpoints, each together with those that it builds\n"
                   "on. For tables it counts rows that were added, removed, changed (any bit of a value\n"
                   "differs) or have a different optimizer state, and shows the largest absolute\n"
                   "difference of a value. The times at which rows were last used are not compared.\n"
                   "Tables are matched by name.\n"
                   "The exit code is 0 if nothing differs, 3 if something does, and 1 if the checkpoints\n"
                   "cannot be read.",
        .options = options,
        .option_count = sizeof(options) / sizeof(*options),
        .words_min = 2,
        .words_max = 2,
    };
    const char *paths[2];
    struct ckpt_chain a = {0}, b = {0};
    (void)cli_parse(&usage, argc, argv, paths);
    int exit_code = ckpt_open(COMMAND, paths[0], &a);
    if (exit_code == 0)
        exit_code = ckpt_open(COMMAND, paths[1], &b);
    if (exit_code == 0)
        exit_code = compare(&a, &b, memory_mib, json);
    ckpt_chain_close(&a);
    ckpt_chain_close(&b);
    return exit_code;
}
