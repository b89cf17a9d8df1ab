/* millrace ckpt diff: what differs between two checkpoints, feature by feature. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/cli.h"
#include "dataplane/optimizer/rule.h"
#include "dataplane/wire/format/convert.h"
#include "dataplane/wire/format/ranges.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "tools/ckpt/ckpt.h"
#include "tools/ckpt/ckpt_parameters.h"
#include "tools/commands.h"

#define COMMAND   "millrace ckpt diff"
#define EXIT_SAME 0
#define EXIT_DIFF 3 /* not 1: that is a failure */

/* Features of one name and kind. What is in one checkpoint only has NULL for the other. */
struct pair {
    const struct mr_feature *a, *b;
    uint32_t kind; /* enum mr_feature_kind */
    uint32_t a_id, b_id;
    bool is_comparable;        /* rows have as many values, variables as many elements; else any two differ */
    bool has_same_state;       /* optimizers keep the same beside them; else state is not compared */
    uint64_t a_count, b_count; /* rows, or elements */
    uint64_t added, removed;   /* rows of b that a has not, and the other way round */
    uint64_t changed;          /* rows whose values differ by a bit, or elements */
    /* rows of the same values, or elements of state, where what the optimizer keeps differs */
    uint64_t state_changed;
    double largest;      /* |a - b| over all values; NaN where one of the two is NaN */
    uint64_t largest_at; /* the row's key, or the element */
    uint32_t largest_column;
};

struct diff {
    const struct ckpt_chain *a, *b;
    struct pair *pairs; /* tables and variables of a in its order, then those of b alone */
    uint32_t pair_count;
    struct ckpt_parameter_pairs parameters;
    struct ckpt_progress progress;
};

/* Notes the differences of two rows of values, of key or element `at`; true when there is one. */
static bool note_values(struct pair *pair, const float *a, const float *b, uint32_t count, uint64_t at)
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
            pair->largest_column = i;
        }
    }
    return differs;
}

/* ---- pairs ---- */

static uint32_t ckpt_diff_find(const struct ps_manifest *m, const struct mr_feature *f)
{
    for (uint32_t i = 0; i < m->feature_count; i++)
        if (m->features[i].kind == f->kind && strncmp(m->features[i].name, f->name, MR_NAME_BYTES) == 0)
            return i;
    return UINT32_MAX;
}

static void judge(const struct diff *d, struct pair *p)
{
    const bool both = p->a && p->b;
    if (p->kind == MR_VARIABLE) {
        p->a_count = p->a ? mr_variable_elements(p->a) : 0;
        p->b_count = p->b ? mr_variable_elements(p->b) : 0;
        p->is_comparable = both && p->a_count == p->b_count;
        p->has_same_state = p->is_comparable && p->a->optimizer == p->b->optimizer &&
                            mr_range_elements(p->a) == mr_range_elements(p->b) &&
                            (p->a->optimizer != MR_OPT_MOMENTUM ||
                             (p->a->optimizer_args[1] > 0) == (p->b->optimizer_args[1] > 0));
        return;
    }
    p->is_comparable = both && p->a->dims[0] == p->b->dims[0];
    if (!p->is_comparable)
        return;
    const struct ckpt_row *a = &d->a->rows[p->a_id], *b = &d->b->rows[p->b_id];
    p->has_same_state = p->a->optimizer == p->b->optimizer &&
                        mr_feature_is_dense(p->a) == mr_feature_is_dense(p->b) &&
                        a->bytes - a->state_offset == b->bytes - b->state_offset;
}

static void add_pair(struct diff *d, const struct ps_manifest *a, uint32_t i, const struct ps_manifest *b,
                     uint32_t j)
{
    struct pair *p = &d->pairs[d->pair_count++];
    *p = (struct pair){0};
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

static enum mr_status open_both(struct diff *d, const struct ckpt_chain *a, const struct ckpt_chain *b,
                                char *text)
{
    const struct ps_manifest *ma = ps_chain_manifest(&a->files), *mb = ps_chain_manifest(&b->files);
    *d = (struct diff){.a = a, .b = b};
    d->pairs = calloc(ma->feature_count + mb->feature_count + 1u, sizeof(*d->pairs));
    if (!d->pairs)
        return ps_checkpoint_fail(text, "compare", ps_chain_path(&a->files), -ENOMEM);
    for (uint32_t i = 0; i < ma->feature_count; i++) {
        const uint32_t j = ckpt_diff_find(mb, &ma->features[i]);
        add_pair(d, ma, i, j != UINT32_MAX ? mb : NULL, j);
    }
    for (uint32_t j = 0; j < mb->feature_count; j++)
        if (ckpt_diff_find(ma, &mb->features[j]) == UINT32_MAX)
            add_pair(d, NULL, 0, mb, j);
    ckpt_progress_begin(&d->progress, "diff", ps_chain_bytes(&a->files) + ps_chain_bytes(&b->files));
    return MR_OK;
}

/* ---- tables: a part of the key space at a time ---- */

/* Rows of a are held in memory, as many at a time as memory_bytes take with their keys and those of deltas,
 * and rows of b are compared with them. */
struct pass {
    struct diff *d;
    struct ckpt_live a, b;
    struct ckpt_map *map; /* a's rows, by pair */
    struct ckpt_range range;
    /* by feature id, the pair's number + 1 */
    uint16_t *a_pairs, *b_pairs;
    char *text;
};

static enum mr_status hold_rows(void *arg, const struct ckpt_rows *rows)
{
    struct pass *p = arg;
    const uint32_t pair = p->a_pairs[rows->feature] - 1u;
    for (uint32_t i = 0; i < rows->count; i++) {
        struct ckpt_entry *entry;
        switch (ckpt_map_put(p->map, &p->range, pair, rows->keys[i], rows->row_bytes, &entry)) {
        case CKPT_NO_ROOM:
            (void)snprintf(p->text, PS_TEXT_BYTES, "there is no room for the rows; raise --memory-mib");
            return MR_NO_MEMORY;
        case CKPT_OUTSIDE: /* it belongs to a later pass */
            break;
        default:
            memcpy(entry->payload, rows->rows + (size_t)i * rows->row_bytes, rows->row_bytes);
        }
    }
    return MR_OK;
}

static bool compare_values(struct pair *pair, const uint8_t *a, const uint8_t *b, uint64_t key)
{
    float x[MR_DIM_MAX], y[MR_DIM_MAX];
    const uint32_t dim = pair->a->dims[0];
    mr_convert_to_f32((enum mr_dtype)pair->a->dtype, x, a, NULL, 1, dim);
    mr_convert_to_f32((enum mr_dtype)pair->b->dtype, y, b, NULL, 1, dim);
    return note_values(pair, x, y, dim, key);
}

static void compare_row(const struct pass *p, struct pair *pair, const uint8_t *a, const uint8_t *b,
                        uint64_t key)
{
    const struct ckpt_row *ra = &p->d->a->rows[pair->a_id], *rb = &p->d->b->rows[pair->b_id];
    if (!pair->is_comparable || compare_values(pair, a, b, key))
        pair->changed++;
    else if (pair->has_same_state &&
             memcmp(a + ra->state_offset, b + rb->state_offset, ra->bytes - ra->state_offset) != 0)
        pair->state_changed++;
}

static enum mr_status compare_rows(void *arg, const struct ckpt_rows *rows)
{
    struct pass *p = arg;
    const uint32_t number = p->b_pairs[rows->feature] - 1u;
    struct pair *pair = &p->d->pairs[number];
    for (uint32_t i = 0; i < rows->count; i++) {
        struct ckpt_entry *entry = ckpt_map_find(p->map, number, rows->keys[i]);
        pair->b_count++;
        if (!entry) {
            pair->added++;
            continue;
        }
        entry->mark = 1;
        compare_row(p, pair, entry->payload, rows->rows + (size_t)i * rows->row_bytes, rows->keys[i]);
    }
    return MR_OK;
}

static void count_entry(void *arg, struct ckpt_entry *entry)
{
    struct pair *pair = &((struct pass *)arg)->d->pairs[entry->table];
    pair->a_count++;
    pair->removed += entry->mark == 0;
}

static enum mr_status run_pass(struct pass *p)
{
    ckpt_map_clear(p->map);
    enum mr_status status = ckpt_live_index(&p->a, &p->range, p->text);
    if (status == MR_OK)
        status = ckpt_live_index(&p->b, &p->range, p->text);
    if (status == MR_OK)
        status = ckpt_live_each(&p->a, &p->range, hold_rows, NULL, p, p->text);
    if (status == MR_OK)
        status = ckpt_live_each(&p->b, &p->range, compare_rows, NULL, p, p->text);
    if (status == MR_OK)
        ckpt_map_each(p->map, count_entry, p);
    return status;
}

static enum mr_status open_pass(struct pass *p, uint64_t memory_bytes)
{
    struct diff *d = p->d;
    enum mr_status status = ckpt_live_open(&p->a, d->a, 0, memory_bytes / 4, &d->progress, p->text);
    if (status == MR_OK)
        status = ckpt_live_open(&p->b, d->b, 0, memory_bytes / 4, &d->progress, p->text);
    if (status != MR_OK)
        return status;
    p->map = ckpt_map_create(memory_bytes / 2);
    p->a_pairs = calloc(2 * (PS_FEATURE_ID_MAX + 1u), sizeof(*p->a_pairs));
    if (!p->map || !p->a_pairs)
        return ps_checkpoint_fail(p->text, "compare", ps_chain_path(&d->a->files), -ENOMEM);
    p->b_pairs = p->a_pairs + PS_FEATURE_ID_MAX + 1;
    for (uint32_t i = 0; i < d->pair_count; i++) {
        if (d->pairs[i].a)
            p->a_pairs[d->pairs[i].a_id] = (uint16_t)(i + 1);
        if (d->pairs[i].b)
            p->b_pairs[d->pairs[i].b_id] = (uint16_t)(i + 1);
    }
    return MR_OK;
}

static enum mr_status diff_tables(struct diff *d, uint64_t memory_bytes, char *text)
{
    struct pass p = {.d = d, .range = {0, CKPT_PLACES}};
    p.text = text;
    enum mr_status status = open_pass(&p, memory_bytes);
    while (status == MR_OK && p.range.begin < CKPT_PLACES) {
        status = run_pass(&p);
        /* The next range may be twice as wide: within a pass it is only halved. */
        const uint64_t width = 2 * (p.range.end - p.range.begin), left = CKPT_PLACES - p.range.end;
        p.range = (struct ckpt_range){p.range.end, p.range.end + (width < left ? width : left)};
    }
    ckpt_map_destroy(p.map);
    ckpt_live_close(&p.a);
    ckpt_live_close(&p.b);
    free(p.a_pairs);
    return status;
}

/* ---- variables, one after the other, through a window: the values of all of a variable's ranges, then their
 * states ---- */

struct window {
    struct diff *d;
    const uint64_t *offsets; /* of each pair, and the end of the last */
    uint8_t *bytes;          /* a's, [begin, end) */
    uint64_t begin, end;
    uint16_t *pairs; /* by feature id of the side that is read, the pair's number + 1 */
    bool is_b;       /* that side */
};

/* Room for the values and the largest state that there is; what a variable does not have stays equal. */
#define STATE_FLOATS_MAX(elements) (2 * (elements) + 1)

/* A part of a record: values or state of one range. */
struct part {
    uint64_t from, count; /* bytes of the record */
    uint64_t at;          /* of the variable */
};

/* The part that begins `from` bytes into the record. False: there is no more, or it lies beyond the
 * variable. */
static bool part_of(const struct mr_feature *f, const struct ps_record *record, uint64_t from,
                    struct part *out)
{
    const uint64_t each = mr_range_elements(f), bytes = mr_rule_range_bytes(f);
    const uint64_t range = (record->offset + from) / bytes, in_range = (record->offset + from) % bytes;
    if (from >= record->bytes || range >= mr_variable_ranges(f))
        return false;
    const uint64_t all = mr_variable_elements(f);
    const uint64_t values = mr_run_of(f, range * each, all - range * each).count * sizeof(float);
    const bool is_state = in_range >= values;
    const uint64_t left = (is_state ? bytes : values) - in_range;
    *out = (struct part){.from = from,
                         .count = record->bytes - from < left ? record->bytes - from : left,
                         .at = is_state ? (all + range * STATE_FLOATS_MAX(each)) * sizeof(float) + in_range -
                                              values
                                        : range * each * sizeof(float) + in_range};
    return true;
}

/* What of the part lies in the window: its bytes from *from, *count of them, belong to offset *at. False:
 * nothing. */
static bool clip(const struct window *w, uint32_t pair, const struct part *part, uint64_t *from,
                 uint64_t *count, uint64_t *at)
{
    const uint64_t size = w->offsets[pair + 1] - w->offsets[pair];
    if (part->at >= size || part->count > size - part->at)
        return false;
    const uint64_t first = w->offsets[pair] + part->at, last = first + part->count;
    *at = first > w->begin ? first : w->begin;
    const uint64_t stop = last < w->end ? last : w->end;
    *from = part->from + *at - first;
    *count = stop > *at ? stop - *at : 0;
    return *count > 0;
}

/* Values and state, element by element: all are 4 bytes. */
static void compare_element(struct pair *pair, uint64_t element, const uint8_t *a, const uint8_t *b)
{
    float x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    if (element < pair->a_count)
        pair->changed += note_values(pair, &x, &y, 1, element);
    else if (pair->has_same_state)
        pair->state_changed += mr_f32_bits(x) != mr_f32_bits(y);
}

/* Keeps a's bytes, or compares b's with them. */
static enum mr_status visit_variable(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    const struct window *w = arg;
    const uint32_t number = record->kind == PS_RECORD_VARIABLE ? w->pairs[record->feature] : 0;
    if (number == 0)
        return MR_OK;
    struct pair *pair = &w->d->pairs[number - 1];
    const uint64_t start = w->offsets[number - 1];
    uint64_t from, count, at;
    for (struct part p = {0}; part_of(w->is_b ? pair->b : pair->a, record, p.from + p.count, &p);) {
        if (!clip(w, number - 1, &p, &from, &count, &at))
            continue;
        if (!w->is_b)
            memcpy(w->bytes + (at - w->begin), bytes + from, count);
        for (uint64_t i = 0; w->is_b && i + sizeof(float) <= count; i += sizeof(float))
            compare_element(pair, (at + i - start) / sizeof(float), w->bytes + (at + i - w->begin),
                            bytes + from + i);
    }
    return MR_OK;
}

static void name_pairs(struct window *w, bool b)
{
    w->is_b = b;
    memset(w->pairs, 0, (PS_FEATURE_ID_MAX + 1u) * sizeof(*w->pairs));
    for (uint32_t i = 0; i < w->d->pair_count; i++)
        if (w->offsets[i + 1] > w->offsets[i])
            w->pairs[b ? w->d->pairs[i].b_id : w->d->pairs[i].a_id] = (uint16_t)(i + 1);
}

static uint64_t window_bytes(const struct pair *p)
{
    if (p->kind != MR_VARIABLE || !p->is_comparable)
        return 0;
    uint64_t floats = 0; /* of the state */
    for (uint32_t i = 0; i < 2; i++) {
        const struct mr_feature *f = i == 0 ? p->a : p->b;
        const uint64_t mine = mr_variable_ranges(f) * STATE_FLOATS_MAX(mr_range_elements(f));
        floats = mine > floats ? mine : floats;
    }
    return (p->a_count + floats) * sizeof(float);
}

static enum mr_status run_windows(struct window *w, uint64_t step, uint64_t total, char *text)
{
    enum mr_status status = MR_OK;
    for (w->begin = 0; w->begin < total && status == MR_OK; w->begin = w->end) {
        w->end = total - w->begin < step ? total : w->begin + step;
        memset(w->bytes, 0, w->end - w->begin);
        name_pairs(w, false);
        status = ckpt_last_each(w->d->a, visit_variable, w, &w->d->progress, text);
        name_pairs(w, true);
        if (status == MR_OK)
            status = ckpt_last_each(w->d->b, visit_variable, w, &w->d->progress, text);
    }
    return status;
}

/* Where each pair's bytes begin, and where the last one's end; to be freed. */
static uint64_t *place_pairs(const struct diff *d)
{
    uint64_t *offsets = calloc(d->pair_count + 1u, sizeof(*offsets));
    for (uint32_t i = 0; offsets && i < d->pair_count; i++)
        offsets[i + 1] = offsets[i] + window_bytes(&d->pairs[i]);
    return offsets;
}

static enum mr_status diff_variables(struct diff *d, uint64_t memory_bytes, char *text)
{
    uint64_t *offsets = place_pairs(d);
    const uint64_t total = offsets ? offsets[d->pair_count] : 0;
    const uint64_t limit =
        memory_bytes < CKPT_MAP_BYTES_MIN ? CKPT_MAP_BYTES_MIN : memory_bytes & ~UINT64_C(7);
    const uint64_t step = total < limit ? total : limit;
    struct window w = {.d = d,
                       .offsets = offsets,
                       .bytes = malloc(step + 1),
                       .pairs = calloc(PS_FEATURE_ID_MAX + 1u, sizeof(*w.pairs))};
    enum mr_status status;
    if (offsets && w.bytes && w.pairs)
        status = run_windows(&w, step, total, text);
    else
        status = ps_checkpoint_fail(text, "compare", ps_chain_path(&d->a->files), -ENOMEM);
    free(w.bytes);
    free(w.pairs);
    free(offsets);
    return status;
}

/* ---- output ---- */

/* The first field of the descriptors that differs, or NULL. */
static const char *descriptor_diff(const struct pair *p)
{
    return p->a && p->b ? mr_feature_diff(p->a, p->b) : NULL;
}

static bool pair_differs(const struct pair *p)
{
    return !p->a || !p->b || descriptor_diff(p) || p->added > 0 || p->removed > 0 || p->changed > 0 ||
           p->state_changed > 0;
}

static bool differs_anywhere(const struct diff *d)
{
    for (uint32_t i = 0; i < d->pair_count; i++)
        if (pair_differs(&d->pairs[i]))
            return true;
    for (uint32_t i = 0; i < d->parameters.count; i++)
        if (d->parameters.pairs[i].differs)
            return true;
    return false;
}

static const char *only_in(const struct pair *p)
{
    return !p->b ? "a" : !p->a ? "b" : NULL;
}

static json_t *pair_json(const struct pair *p)
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

static void print_note(const struct pair *p)
{
    const char *descriptor = descriptor_diff(p);
    if (only_in(p))
        (void)printf("  only in %s", only_in(p));
    if (descriptor)
        (void)printf("  %s differs", descriptor);
    if (p->a && p->b && !p->has_same_state)
        (void)printf("  states of other optimizers or ranges are not compared");
    if (p->changed > 0 && p->is_comparable && p->kind == MR_TABLE)
        (void)printf("  largest at key %" PRIu64 ", column %" PRIu32, p->largest_at, p->largest_column);
    else if (p->changed > 0 && p->is_comparable)
        (void)printf("  largest at element %" PRIu64, p->largest_at + p->largest_column);
}

static void print_pair(const struct pair *p)
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

static json_t *parameter_json(const struct ckpt_parameter_pair *p)
{
    const struct ps_saved_parameter *any = p->a ? p->a : p->b;
    return json_pack("{s:s, s:s?, s:b, s:s?}", "name", any->name, "optimizer",
                     any->optimizer[0] != '\0' ? any->optimizer : NULL, "differs", p->differs, "only_in",
                     !p->b   ? "a"
                     : !p->a ? "b"
                             : NULL);
}

static void print_parameter(const struct ckpt_parameter_pair *p)
{
    const struct ps_saved_parameter *any = p->a ? p->a : p->b;
    (void)printf("%-40s %-24s %s\n", any->name, any->optimizer[0] != '\0' ? any->optimizer : "-",
                 !p->b        ? "only in a"
                 : !p->a      ? "only in b"
                 : p->differs ? "differs"
                              : "same");
}

static void print_parameters(const struct diff *d)
{
    if (d->parameters.count > 0)
        (void)printf("\n%-40s %s\n", "parameter", "state of optimizer");
    for (uint32_t i = 0; i < d->parameters.count; i++)
        print_parameter(&d->parameters.pairs[i]);
}

static json_t *parameters_json(const struct diff *d)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < d->parameters.count; i++)
        json_array_append_new(list, parameter_json(&d->parameters.pairs[i]));
    return list;
}

static int print_all(const struct diff *d, bool json)
{
    json_t *list = json ? json_array() : NULL;
    const bool differs = differs_anywhere(d);
    if (!json)
        (void)printf("a  %s\nb  %s\n\n%-8s %-24s %12s %12s %10s %10s %10s %10s %13s\n",
                     ps_chain_path(&d->a->files), ps_chain_path(&d->b->files), "kind", "name", "in a", "in b",
                     "added", "removed", "changed", "state", "largest diff");
    for (uint32_t i = 0; i < d->pair_count; i++)
        if (json)
            json_array_append_new(list, pair_json(&d->pairs[i]));
        else
            print_pair(&d->pairs[i]);
    int exit_code = 0;
    if (json)
        exit_code = tool_print_json(COMMAND, json_pack("{s:b, s:o, s:o}", "differs", differs, "features",
                                                       list, "parameters", parameters_json(d)));
    else
        print_parameters(d);
    return exit_code != 0 ? exit_code : differs ? EXIT_DIFF : EXIT_SAME;
}

static int compare(const struct ckpt_chain *a, const struct ckpt_chain *b, uint32_t memory_mib, bool json)
{
    char text[PS_TEXT_BYTES];
    struct diff d;
    enum mr_status status = open_both(&d, a, b, text);
    if (status == MR_OK)
        status = diff_tables(&d, (uint64_t)memory_mib << 20, text);
    if (status == MR_OK)
        status = diff_variables(&d, (uint64_t)memory_mib << 20, text);
    if (status == MR_OK)
        status = ckpt_parameters_compare(a, b, &d.progress, &d.parameters, text);
    ckpt_progress_end(&d.progress);
    int exit_code = status == MR_OK ? print_all(&d, json) : cli_fail(COMMAND, "%s", text);
    ckpt_parameters_free(&d.parameters);
    free(d.pairs);
    return exit_code;
}

int ckpt_diff(int argc, char **argv)
{
    bool json = false;
    uint32_t memory_mib = CKPT_MEMORY_MIB_DEFAULT;
    const struct cli_option options[] = {
        CKPT_MEMORY_OPTION(&memory_mib, "for rows and keys"),
        {"json", CLI_FLAG, &json, NULL, "print one JSON value instead of text"},
    };
    const struct cli_usage usage = {
        .program = COMMAND,
        .synopsis = "DIR/ckpt-N DIR/ckpt-M [options]",
        .summary = "Shows what differs between two checkpoints, each together with those that it builds\n"
                   "on. For each table it counts the rows that were added, removed or changed (any bit of\n"
                   "a value differs), or have a different optimizer state, and shows the largest absolute\n"
                   "difference of a value. The times at which rows were last used are not compared.\n"
                   "Tables are matched by name. Parameters and optimizers' states are the same or differ.\n"
                   "The exit code is 0 if nothing differs, 3 if something does, and 1 if the checkpoints\n"
                   "cannot be read.\n"
                   "\n"
                   "  millrace ckpt diff /var/lib/millrace/ckpt-7 /var/lib/millrace/ckpt-9",
        CLI_OPTIONS(options),
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
