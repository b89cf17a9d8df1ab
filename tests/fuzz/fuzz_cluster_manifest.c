/* Any bytes as the file CLUSTER, as they are and, if they are JSON, with the hash that they should have:
 * what is accepted names parts and owners that a restore can rely on, and is printed as it was read. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz_assert.h"
#include "ps/checkpoint/cluster_manifest.h"
#include "ps/checkpoint/manifest_json.h"

static void cluster_manifest_check(const char *json, size_t bytes)
{
    static struct ps_cluster_manifest m;
    char text[PS_TEXT_BYTES] = "";
    if (!ps_cluster_manifest_parse(json, bytes, &m, text)) {
        FUZZ_ASSERT(text[0] != '\0');
        return;
    }
    FUZZ_ASSERT(m.id >= 1 && m.part_count >= 1 && m.part_count <= PS_CLUSTER_PARTS_MAX);
    for (uint32_t i = 0; i < m.part_count; i++) {
        FUZZ_ASSERT(ps_cluster_part_name_is_good(m.parts[i].name) && strchr(m.parts[i].name, '/') == NULL);
        FUZZ_ASSERT(ps_cluster_manifest_find(&m, m.parts[i].name) == i && m.parts[i].core_count >= 1);
    }
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        FUZZ_ASSERT(m.owner[p] < m.part_count);
    const struct ps_hash hash = m.hash;
    char *again = ps_cluster_manifest_seal(&m);
    FUZZ_ASSERT(again != NULL && strlen(again) == bytes && memcmp(again, json, bytes) == 0);
    FUZZ_ASSERT(ps_hash_equal(hash, m.hash));
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ps_hash ignored;
    cluster_manifest_check((const char *)data, bytes);
    json_t *root = json_loadb((const char *)data, bytes, 0, NULL);
    if (json_is_object(root)) {
        (void)json_object_del(root, "hash");
        char *sealed = ps_json_seal(root, &ignored);
        if (sealed != NULL)
            cluster_manifest_check(sealed, strlen(sealed));
        free(sealed);
    }
    json_decref(root);
    return 0;
}
