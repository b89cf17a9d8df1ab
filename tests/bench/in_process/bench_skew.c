/* How evenly Zipf-distributed keys fall on the cores of a node: exactly, from every key's probability and the
 * map of partitions that a node makes. A table's seed decides where its keys lie, so many seeds are looked
 * at. JSON, as bench_table:
 *   {"name": "zipf_core_share", "value": 0.31, "unit": "of keys", "limit": 0.25, ...}
 *   value: the fullest core, median of seeds
 *
 * bench_skew [THOUSANDS_OF_KEYS [CORES]]   default: 1000 4
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "tests/bench/common/bench_keys.h"
#include "dataplane/wire/format/mr_feature.h"
#include "ps/core/node.h"

#define ZIPF_SHAPE 1.05
#define SEEDS      101u
#define TARGET     1.5 /* times the mean share */

/* Share of the keys that the fullest core gets. */
static double fullest_share(const struct ps_node *node, const double *probability, uint64_t key_count,
                            uint64_t seed)
{
    double share[DP_CORES_MAX] = {0}, fullest = 0;
    for (uint64_t i = 0; i < key_count; i++)
        share[node->partition_core[mr_partition_of(mr_key_hash(bench_key_at(i), seed))]] += probability[i];
    for (uint32_t core = 0; core < node->core_count; core++)
        fullest = fmax(fullest, share[core]);
    return fullest;
}

static double *zipf_probabilities(uint64_t key_count)
{
    double *p = malloc(key_count * sizeof(*p)), sum = 0;
    if (p == NULL)
        exit(1);
    for (uint64_t i = 0; i < key_count; i++)
        sum += p[i] = pow((double)(i + 1), -ZIPF_SHAPE);
    for (uint64_t i = 0; i < key_count; i++)
        p[i] /= sum;
    return p;
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static struct ps_node node;
    uint64_t key_count = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000 : 1000000;
    unsigned long cores = argc > 2 ? strtoul(argv[2], NULL, 10) : 4;
    if (key_count == 0 || cores < 1 || cores > DP_CORES_MAX) {
        fprintf(stderr, "usage: bench_skew [THOUSANDS_OF_KEYS [CORES]]\n");
        return 2;
    }
    ps_node_map_partitions(&node, (uint32_t)cores);
    double *probability = zipf_probabilities(key_count), shares[SEEDS];
    uint32_t within = 0;
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        shares[seed] = fullest_share(&node, probability, key_count, seed);
        within += shares[seed] * (double)cores <= TARGET;
    }
    qsort(shares, SEEDS, sizeof(shares[0]), compare_double);
    printf(
        "{\"name\": \"zipf_core_share\", \"value\": %.3f, \"unit\": \"of keys\", \"limit\": %.3f, \"ratio\": "
        "%.3f, \"better\": \"lower\", \"target\": %.1f, \"worst\": %.3f, \"seeds\": %u, \"within\": %u, "
        "\"most_frequent_key\": %.3f}\n",
        shares[SEEDS / 2], 1 / (double)cores, shares[SEEDS / 2] * (double)cores, TARGET, shares[SEEDS - 1],
        SEEDS, within, probability[0]);
    free(probability);
    return 0;
}
