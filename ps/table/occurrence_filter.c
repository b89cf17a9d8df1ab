#include "ps/table/occurrence_filter.h"

#include <assert.h>
#include <string.h>

#define LINE           PS_OCCURRENCE_LINE_BYTES
#define QUARTER        (LINE / PS_OCCURRENCE_HASHES)
#define QUARTER_BITS   4u
#define TAKEN_MAX      (LINE / 2) /* counters of a line above zero, before it fades */
#define COUNTERS_BYTES (MR_PARTITION_COUNT * sizeof(uint8_t *))

static_assert(QUARTER == 1u << QUARTER_BITS, "a counter within its quarter");

/* A key's counters in its line. */
struct place {
    uint32_t line;
    uint8_t at[PS_OCCURRENCE_HASHES];
};

/* The hash's upper bits name partition and bucket, so all of them are mixed first. */
static struct place place_of(const struct ps_occurrence_filter *s, uint64_t hash)
{
    struct place p;
    uint64_t mixed = (hash ^ hash >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 32) * UINT64_C(0x94d049bb133111eb);
    p.line = (uint32_t)((mixed >> 32) * s->line_count >> 32);
    uint32_t bits = (uint32_t)mixed ^ (uint32_t)(mixed >> 17);
    for (uint32_t i = 0; i < PS_OCCURRENCE_HASHES; i++)
        p.at[i] = (uint8_t)(i * QUARTER + (bits >> (i * QUARTER_BITS) & (QUARTER - 1)));
    return p;
}

static uint8_t count_of(const uint8_t *line, const struct place *p)
{
    uint8_t count = UINT8_MAX;
    for (uint32_t i = 0; i < PS_OCCURRENCE_HASHES; i++)
        count = line[p->at[i]] < count ? line[p->at[i]] : count;
    return count;
}

bool ps_occurrence_init(struct ps_occurrence_filter *s, struct ps_arena *arena, uint64_t filter_bytes,
                        uint32_t wanted)
{
    assert(wanted >= 1 && wanted <= MR_OBSERVATIONS_MAX && filter_bytes <= MR_FILTER_BYTES_MAX);
    uint64_t lines_of_one = (uint64_t)MR_PARTITION_COUNT * LINE; /* bytes of a line per partition */
    uint64_t lines = (filter_bytes + lines_of_one - 1) / lines_of_one;
    *s = (struct ps_occurrence_filter){
        .arena = arena, .line_count = lines > 0 ? (uint32_t)lines : 1, .wanted = wanted};
    s->counters = ps_arena_alloc(arena, COUNTERS_BYTES, LINE);
    s->bytes = s->counters != NULL ? COUNTERS_BYTES : 0;
    return s->counters != NULL;
}

static void partition_free(struct ps_occurrence_filter *s, uint32_t partition)
{
    ps_arena_free(s->arena, s->counters[partition], ps_occurrence_partition_bytes(s), LINE);
    s->bytes -= ps_occurrence_partition_bytes(s);
    s->counters[partition] = NULL;
}

void ps_occurrence_clear(struct ps_occurrence_filter *s)
{
    ps_occurrence_cut_end(s);
    for (uint32_t i = 0; s->counters != NULL && i < MR_PARTITION_COUNT; i++)
        if (s->counters[i] != NULL)
            partition_free(s, i);
}

bool ps_occurrence_clear_some(struct ps_occurrence_filter *s, struct ps_arena_slice *slice)
{
    ps_occurrence_cut_end(s);
    for (uint32_t i = 0; s->counters != NULL && i < MR_PARTITION_COUNT; i++) {
        if (s->counters[i] == NULL)
            continue;
        if (!ps_arena_slice_take(slice))
            return true;
        partition_free(s, i);
    }
    return false;
}

void ps_occurrence_fini(struct ps_occurrence_filter *s)
{
    ps_occurrence_clear(s);
    ps_arena_free(s->arena, s->counters, COUNTERS_BYTES, LINE);
    ps_occurrence_forget_marks(s);
    *s = (struct ps_occurrence_filter){0};
}

static __attribute__((cold, noinline)) bool partition_add(struct ps_occurrence_filter *s, uint32_t partition)
{
    s->counters[partition] = ps_arena_alloc(s->arena, ps_occurrence_partition_bytes(s), LINE);
    if (s->counters[partition] == NULL)
        return false;
    s->bytes += ps_occurrence_partition_bytes(s);
    return true;
}

static uint32_t taken_of(const uint8_t *line)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < LINE; i++)
        taken += line[i] != 0;
    return taken;
}

static void fade(struct ps_occurrence_filter *s, uint8_t *line)
{
    while (taken_of(line) > TAKEN_MAX) {
        for (uint32_t i = 0; i < LINE; i++)
            line[i] = (uint8_t)(line[i] - (line[i] != 0));
        s->fadings++;
    }
}

enum ps_occurrence ps_occurrence_add(struct ps_occurrence_filter *s, uint64_t hash)
{
    uint32_t partition = mr_partition_of(hash);
    if (s->counters[partition] == NULL && !partition_add(s, partition))
        return ps_occurrence_not_counted(s);
    struct place p = place_of(s, hash);
    uint8_t *line = s->counters[partition] + (size_t)p.line * LINE;
    uint8_t before = count_of(line, &p);
    bool is_crowded = taken_of(line) > TAKEN_MAX;
    if (before >= s->wanted && !is_crowded)
        return PS_OCCURRENCE_WANTED;
    if (!ps_occurrence_before_change(s, partition, p.line))
        return ps_occurrence_not_counted(s);
    if (is_crowded) {
        fade(s, line);
        before = count_of(line, &p);
        if (before >= s->wanted)
            return PS_OCCURRENCE_WANTED;
    }
    for (uint32_t i = 0; i < PS_OCCURRENCE_HASHES; i++)
        line[p.at[i]] = (uint8_t)(line[p.at[i]] + (line[p.at[i]] == before));
    return before + 1u >= s->wanted ? PS_OCCURRENCE_WANTED : PS_OCCURRENCE_COUNTED;
}

uint32_t ps_occurrence_count(const struct ps_occurrence_filter *s, uint64_t hash)
{
    const uint8_t *counters = s->counters[mr_partition_of(hash)];
    if (counters == NULL)
        return 0;
    struct place p = place_of(s, hash);
    return count_of(counters + (size_t)p.line * LINE, &p);
}

size_t ps_occurrence_partition_bytes(const struct ps_occurrence_filter *s)
{
    return (size_t)s->line_count * LINE;
}

bool ps_occurrence_load(struct ps_occurrence_filter *s, const struct ps_occurrence_part *piece,
                        const uint8_t *counters)
{
    assert(piece->partition < MR_PARTITION_COUNT && piece->line_count <= s->line_count &&
           piece->first_line <= s->line_count - piece->line_count);
    if (s->counters[piece->partition] == NULL && !partition_add(s, piece->partition))
        return false;
    memcpy(s->counters[piece->partition] + (size_t)piece->first_line * LINE, counters,
           (size_t)piece->line_count * LINE);
    return true;
}

void ps_occurrence_drop(struct ps_occurrence_filter *s, uint32_t partition)
{
    if (s->counters != NULL && s->counters[partition] != NULL)
        partition_free(s, partition);
}
