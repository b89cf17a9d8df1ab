/* Which keys get a row. */
#include <stdio.h>
#include <string.h>
#include "ps/table/table_internal.h"

/* The same keys on all nodes: by the hash that they have in common. Its bits choose the partition: mixed
 * again, they say nothing of that. */
static bool is_chosen(const struct ps_table *t, uint64_t placed)
{
    const uint64_t hash = ps_hash_of_placed(&t->index.hasher, placed);
    uint64_t mixed = (hash ^ hash >> 31) * UINT64_C(0x9fb21c651e98df25);
    mixed = (mixed ^ mixed >> 28) * UINT64_C(0x9fb21c651e98df25);
    return (mixed ^ mixed >> 32) <= t->admit_below;
}

/* Counters go into checkpoints, and to other nodes. */
static bool is_seen_enough(struct ps_table *t, uint64_t placed)
{
    const uint64_t hash = ps_hash_of_placed(&t->index.hasher, placed);
    bool full = t->memory_max != 0 && ps_occurrence_takes_memory(&t->filter, hash) &&
                ps_table_memory_bytes(t) + ps_occurrence_partition_bytes(&t->filter) > t->memory_max;
    enum ps_occurrence observation =
        full ? ps_occurrence_not_counted(&t->filter) : ps_occurrence_add(&t->filter, hash);
    t->counters.keys_not_admitted_observations += observation != PS_OCCURRENCE_WANTED;
    t->counters.observations_not_counted += observation == PS_OCCURRENCE_LOST;
    return observation == PS_OCCURRENCE_WANTED;
}

bool ps_table_admits_lookup(struct ps_table *t, uint64_t hash)
{
    if (t->feature.admission == MR_ADMIT_OBSERVATIONS)
        return is_seen_enough(t, hash);
    bool admitted = t->feature.admission == MR_ADMIT_ALWAYS || is_chosen(t, hash);
    t->counters.keys_not_admitted_probability += !admitted;
    return admitted;
}

bool ps_table_admits_push(const struct ps_table *t, uint64_t hash)
{
    return t->feature.admission == MR_ADMIT_ALWAYS ||
           (t->feature.admission == MR_ADMIT_PROBABILITY && is_chosen(t, hash));
}

/* ---- in checkpoints ---- */

/* What a piece begins with: it fits the filter, or not. */
struct stored_piece {
    uint32_t line_count; /* of a partition */
    uint32_t wanted;
    uint8_t counters[];
};
static_assert(PS_FILTER_PIECE_BYTES_MAX ==
                  sizeof(struct stored_piece) + PS_OCCURRENCE_PART_LINES * PS_OCCURRENCE_LINE_BYTES,
              "the largest piece");

static bool has_filter(const struct ps_table *t)
{
    return t->feature.admission == MR_ADMIT_OBSERVATIONS;
}

enum mr_status ps_table_filter_cut_begin(struct ps_table *t, enum ps_save_kind kind)
{
    if (!has_filter(t))
        return MR_OK;
    return ps_occurrence_cut_begin(&t->filter, kind == PS_SAVE_DELTA) ? MR_OK : MR_OUT_OF_MEMORY;
}

bool ps_table_filter_cut_next(struct ps_table *t, struct ps_occurrence_part *piece, uint32_t *bytes)
{
    if (!has_filter(t) || !ps_occurrence_cut_next(&t->filter, piece))
        return false;
    *bytes = (uint32_t)sizeof(struct stored_piece) + piece->line_count * PS_OCCURRENCE_LINE_BYTES;
    return true;
}

void ps_table_filter_cut_take(struct ps_table *t, const struct ps_occurrence_part *piece, uint8_t *out)
{
    struct stored_piece stored = {t->filter.line_count, t->filter.wanted};
    memcpy(out, &stored, sizeof(stored));
    ps_occurrence_cut_take(&t->filter, piece, out + sizeof(stored));
}

bool ps_table_filter_take_marked(struct ps_table *t, const struct ps_partition_set *partitions, uint8_t *out,
                                 struct ps_occurrence_part *piece, uint32_t *bytes)
{
    const struct stored_piece stored = {t->filter.line_count, t->filter.wanted};
    const uint32_t line = PS_OCCURRENCE_LINE_BYTES;
    if (!ps_occurrence_take_marked(&t->filter, partitions, piece))
        return false;
    memcpy(out, &stored, sizeof(stored));
    memcpy(out + sizeof(stored), t->filter.counters[piece->partition] + (size_t)piece->first_line * line,
           (size_t)piece->line_count * line);
    *bytes = (uint32_t)sizeof(stored) + piece->line_count * line;
    return true;
}

uint64_t ps_table_filter_cut_bytes(const struct ps_table *t)
{
    return has_filter(t) ? ps_occurrence_cut_lines(&t->filter) * PS_OCCURRENCE_LINE_BYTES : 0;
}

enum mr_status ps_table_filter_load(struct ps_table *t, uint32_t partition, uint32_t first_line,
                                    const uint8_t *stored, uint64_t bytes, char *text, size_t text_bytes)
{
    struct stored_piece head;
    if (!has_filter(t) || bytes <= sizeof(head) || (bytes - sizeof(head)) % PS_OCCURRENCE_LINE_BYTES != 0) {
        snprintf(text, text_bytes, "table %s: a piece of an admission filter that is none", t->feature.name);
        return MR_CHECKPOINT_CORRUPT;
    }
    memcpy(&head, stored, sizeof(head));
    const struct ps_occurrence_filter *s = &t->filter;
    if (head.line_count != s->line_count) { /* how far it counted may have been altered since */
        snprintf(text, text_bytes,
                 "table %s: its admission filter has %u lines per partition, that of the checkpoint %u",
                 t->feature.name, s->line_count, head.line_count);
        return MR_CHECKPOINT_CORRUPT;
    }
    uint64_t lines = (bytes - sizeof(head)) / PS_OCCURRENCE_LINE_BYTES;
    if (partition >= MR_PARTITION_COUNT || lines > s->line_count || first_line > s->line_count - lines) {
        snprintf(text, text_bytes, "table %s: a piece reaches beyond its admission filter", t->feature.name);
        return MR_CHECKPOINT_CORRUPT;
    }
    struct ps_occurrence_part piece = {partition, first_line, (uint32_t)lines};
    return ps_occurrence_load(&t->filter, &piece, stored + sizeof(head)) ? MR_OK : MR_OUT_OF_MEMORY;
}
