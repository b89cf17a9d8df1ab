#include "ps/restore/saved_writers.h"

#include <stdlib.h>

static struct ps_saved_writers *saved_writers_make(uint32_t part_count, const uint32_t *cores)
{
    struct ps_saved_writers *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return NULL;
    w->part_count = part_count;
    for (uint32_t i = 0; i < part_count; i++)
        w->first[i + 1] = w->first[i] + cores[i];
    w->count = w->first[part_count];
    w->counts = calloc(w->count + 1, sizeof(*w->counts));
    w->partitions = calloc(w->count + 1, sizeof(*w->partitions));
    if (w->counts == NULL || w->partitions == NULL) {
        ps_saved_writers_free(w);
        return NULL;
    }
    return w;
}

/* A node spreads all partitions evenly over its cores, whichever it owns. */
static void saved_writers_give(struct ps_saved_writers *w, uint32_t partition, uint32_t part, bool is_wanted)
{
    const uint32_t cores = w->first[part + 1] - w->first[part];
    const uint32_t writer = w->first[part] + partition * cores / MR_PARTITION_COUNT;
    w->of_partition[partition] = (uint16_t)writer;
    w->counts[writer] |= is_wanted;
    ps_partitions_add(&w->partitions[writer], partition);
}

struct ps_saved_writers *ps_saved_writers_of_node(uint32_t cores, uint32_t cores_here)
{
    struct ps_saved_writers *w = saved_writers_make(1, &cores);
    if (w == NULL)
        return NULL;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        saved_writers_give(w, p, 0, true);
    w->own_part = cores == cores_here ? 0 : PS_SAVED_NO_PART;
    return w;
}

struct ps_saved_writers *ps_saved_writers_of_chain(const struct ps_chain *chain, const bool *owns,
                                                   uint32_t own_part, uint32_t cores_here)
{
    uint32_t cores[PS_CLUSTER_PARTS_MAX] = {0};
    for (uint32_t i = 0; i < chain->part_count; i++)
        cores[i] = ps_chain_part_last(chain, i)->manifest.file_count;
    if (chain->cluster == NULL && owns == NULL)
        return ps_saved_writers_of_node(cores[0], cores_here);
    struct ps_saved_writers *w = saved_writers_make(chain->part_count, cores);
    if (w == NULL)
        return NULL;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        saved_writers_give(w, p, chain->cluster == NULL ? 0 : chain->cluster->owner[p],
                           owns == NULL || owns[p]);
    const bool is_same = own_part < chain->part_count && cores[own_part] == cores_here;
    w->own_part = is_same ? own_part : PS_SAVED_NO_PART;
    return w;
}

void ps_saved_writers_free(struct ps_saved_writers *w)
{
    if (w == NULL)
        return;
    free(w->counts);
    free(w->partitions);
    free(w);
}

uint32_t ps_saved_writer(const struct ps_saved_writers *w, uint32_t part, uint32_t core, uint32_t cores)
{
    const bool is_there =
        part < w->part_count && cores == w->first[part + 1] - w->first[part] && core < cores;
    return is_there ? w->first[part] + core : w->count;
}

uint32_t ps_saved_writer_own(const struct ps_saved_writers *w, uint32_t core)
{
    return w->own_part != PS_SAVED_NO_PART ? w->first[w->own_part] + core : w->count;
}
