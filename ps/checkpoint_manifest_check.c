/* What a manifest says about the records of its blocks. */
#include <stdlib.h>

#include "ps/checkpoint_manifest.h"

void ps_manifest_clear(struct ps_manifest *m)
{
    free(m->features);
    free(m->feature_ids);
    *m = (struct ps_manifest){0};
}

uint32_t ps_manifest_feature_kind(const struct ps_manifest *m, uint32_t feature_id)
{
    for (uint32_t i = 0; i < m->feature_count; i++)
        if (m->feature_ids[i] == feature_id)
            return m->features[i].kind;
    return 0;
}

static const char *record_check(const struct ps_manifest *manifest, const struct ps_record *record)
{
    const uint32_t wanted = ps_record_feature_kind(record->kind);
    if (record->kind == PS_RECORD_GONE && manifest->parent == 0)
        return "it holds keys that are gone, but the manifest names no parent";
    if (wanted == 0 || ps_manifest_feature_kind(manifest, record->feature) == wanted)
        return NULL;
    return wanted == MR_TABLE ? "it holds a part of a table that the manifest does not name"
                              : "it holds a variable that the manifest does not name";
}

const char *ps_manifest_block_check(const struct ps_manifest *manifest, const uint8_t *block)
{
    const struct ps_block_header *header = (const struct ps_block_header *)(const void *)block;
    const uint8_t *at = block + sizeof *header;
    for (uint32_t i = 0; i < header->record_count; i++) {
        const struct ps_record *record = (const struct ps_record *)(const void *)at;
        const char *wrong = record_check(manifest, record);
        if (wrong)
            return wrong;
        at += ps_record_space(record->bytes);
    }
    return NULL;
}
