/* Who wrote a checkpoint's records: cores of one node, or of the nodes of a cluster, whose partitions are
 * scattered. */
#include <stdlib.h>
#include "ps/restore/saved_writers.h"
#include "tests/test.h"

enum { PARTS = 3 };

static const uint32_t cores[PARTS] = {2, 1, 4};

struct cluster {
    struct ps_chain chain;
    struct ps_chain_link links[PARTS];
    struct ps_chain_link *of_part[PARTS];
    struct ps_chain_part parts[PARTS];
    struct ps_cluster_manifest manifest;
};

/* Partition p is the (p % 3)-th node's, but the last one has none from 4000 on. */
static uint32_t owner_of(uint32_t partition)
{
    return partition >= 4000 ? partition % 2 : partition % PARTS;
}

static int saved_writers_make(void **state)
{
    struct cluster *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    c->chain = (struct ps_chain){
        .count = PARTS, .links = c->of_part, .part_count = PARTS, .parts = c->parts, .cluster = &c->manifest};
    for (uint32_t i = 0; i < PARTS; i++) {
        c->of_part[i] = &c->links[i];
        c->links[i].part = i;
        c->links[i].manifest.file_count = cores[i];
        c->parts[i] = (struct ps_chain_part){.first = i, .count = 1};
    }
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        c->manifest.owner[p] = (uint8_t)owner_of(p);
    *state = c;
    return 0;
}

static int saved_writers_destroy(void **state)
{
    free(*state);
    return 0;
}

TEST(each_partition_has_the_core_that_had_it, saved_writers_make, saved_writers_destroy)
{
    const struct cluster *c = *state;
    struct ps_saved_writers *w = ps_saved_writers_of_chain(&c->chain, NULL, PS_SAVED_NO_PART, 1);
    const uint32_t first[PARTS] = {0, 2, 3};
    assert_non_null(w);
    assert_int_equal(w->count, 7);
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        const uint32_t owner = owner_of(p), writer = first[owner] + p * cores[owner] / MR_PARTITION_COUNT;
        assert_int_equal(w->of_partition[p], writer);
        for (uint32_t i = 0; i < w->count; i++)
            assert_int_equal(ps_partitions_has(&w->partitions[i], p), i == writer);
    }
    assert_int_equal(ps_saved_writer(w, 2, 3, 4), 6);
    assert_int_equal(ps_saved_writer(w, 2, 4, 4), w->count); /* there are no such writers */
    assert_int_equal(ps_saved_writer(w, 2, 0, 3), w->count);
    assert_int_equal(ps_saved_writer(w, PARTS, 0, 1), w->count);
    assert_int_equal(ps_saved_writer_own(w, 0), w->count);
    ps_saved_writers_free(w);
}

TEST(those_without_a_wanted_partition_do_not_count, saved_writers_make, saved_writers_destroy)
{
    const struct cluster *c = *state;
    bool owns[MR_PARTITION_COUNT] = {false};
    owns[1] = owns[4095] = true; /* both of the second node */
    owns[5] = true;              /* of the first core of the third */
    struct ps_saved_writers *w = ps_saved_writers_of_chain(&c->chain, owns, PS_SAVED_NO_PART, 1);
    assert_non_null(w);
    for (uint32_t i = 0; i < w->count; i++)
        assert_int_equal(w->counts[i], i == 2 || i == 3);
    ps_saved_writers_free(w);
}

TEST(a_node_as_before_takes_its_own, saved_writers_make, saved_writers_destroy)
{
    const struct cluster *c = *state;
    for (uint32_t cores_here = 3; cores_here <= 4; cores_here++) {
        struct ps_saved_writers *w = ps_saved_writers_of_chain(&c->chain, NULL, 2, cores_here);
        assert_non_null(w);
        for (uint32_t core = 0; core < cores_here; core++)
            assert_int_equal(ps_saved_writer_own(w, core), cores_here == 4 ? 3 + core : w->count);
        ps_saved_writers_free(w);
    }
    for (uint32_t cores_here = 1; cores_here <= 2; cores_here++) {
        struct ps_saved_writers *w = ps_saved_writers_of_node(2, cores_here);
        assert_non_null(w);
        assert_int_equal(ps_saved_writer_own(w, 0), cores_here == 2 ? 0 : w->count);
        ps_saved_writers_free(w);
    }
}
