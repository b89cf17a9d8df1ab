#include "cluster_fixture.h"

#include <stdio.h>
#include "ps/checkpoint/checkpoint_manifest.h"
#include "tests/test.h"

struct ps_cluster_manifest cluster_describe(const char *directory, uint64_t id, const char *const *nodes,
                                            uint32_t count)
{
    struct ps_cluster_manifest cluster = {
        .version = PS_CLUSTER_FORMAT_VERSION, .id = id, .time_s = 1790000000, .part_count = count};
    char path[PS_PATH_BYTES], text[PS_TEXT_BYTES];
    for (uint32_t i = 0; i < count; i++) {
        struct ps_manifest m;
        assert_true(ps_path_join(directory, nodes[i], path));
        if (ps_manifest_read(ps_store_local(), path, id, &m, text) != MR_OK)
            fail_msg("%s", text);
        (void)snprintf(cluster.parts[i].name, sizeof(cluster.parts[i].name), "%s", nodes[i]);
        cluster.parts[i].core_count = m.file_count;
        cluster.parts[i].manifest_hash = m.hash;
        cluster.step = m.step;
        cluster.is_at_step = m.is_at_step;
        ps_manifest_clear(&m);
    }
    for (uint32_t p = 0; p < MR_PARTITION_COUNT && count > 0; p++)
        cluster.owner[p] = (uint8_t)(p % count);
    return cluster;
}

void cluster_commit(const char *directory, uint64_t id, const char *const *nodes, uint32_t count)
{
    struct ps_cluster_manifest cluster = cluster_describe(directory, id, nodes, count);
    char text[PS_TEXT_BYTES];
    if (ps_cluster_manifest_write(ps_store_local(), directory, &cluster, text) != MR_OK)
        fail_msg("%s", text);
}
