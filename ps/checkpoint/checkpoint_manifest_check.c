/* What a manifest says about the records of its blocks. */
#include <stdio.h>
#include <stdlib.h>

#include "ps/checkpoint/checkpoint_manifest.h"

void ps_manifest_clear(struct ps_manifest *m)
{
    free(m->features);
    free(m->feature_ids);
    *m = (struct ps_manifest){0};
}

uint64_t ps_manifest_bytes(const struct ps_manifest *m)
{
    uint64_t bytes = 0;
    for (uint32_t core = 0; core < m->file_count; core++)
        bytes += m->files[core].payload_bytes;
    return bytes;
}

uint64_t ps_manifest_block_bytes(const struct ps_manifest *m)
{
    uint64_t bytes = 0;
    for (uint32_t core = 0; core < m->file_count; core++)
        bytes += (uint64_t)m->files[core].blocks * PS_BLOCK_BYTES;
    return bytes;
}

static const struct mr_feature *find_feature(const struct ps_manifest *m, uint32_t feature_id)
{
    for (uint32_t i = 0; i < m->feature_count; i++)
        if (m->feature_ids[i] == feature_id)
            return &m->features[i];
    return NULL;
}

uint32_t ps_manifest_feature_kind(const struct ps_manifest *m, uint32_t feature_id)
{
    const struct mr_feature *f = find_feature(m, feature_id);
    return f ? f->kind : 0;
}

bool ps_manifest_follows(const struct ps_manifest *parent, const struct ps_manifest *delta, char *wrong)
{
    for (uint32_t i = 0; i < parent->feature_count; i++) {
        const struct mr_feature *was = &parent->features[i];
        const struct mr_feature *is = find_feature(delta, parent->feature_ids[i]);
        const char *field = is ? mr_feature_diff(was, is) : NULL;
        if (is && !field)
            continue;
        if (field)
            (void)snprintf(wrong, PS_TEXT_BYTES, "where %.40s has another %.40s", was->name, field);
        else
            (void)snprintf(wrong, PS_TEXT_BYTES, "where it lacks %.63s", was->name);
        return false;
    }
    return true;
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
    const uint8_t *at = block + sizeof(*header);
    for (uint32_t i = 0; i < header->record_count; i++) {
        const struct ps_record *record = (const struct ps_record *)(const void *)at;
        const char *wrong = record_check(manifest, record);
        if (wrong)
            return wrong;
        at += ps_record_space(record->bytes);
    }
    return NULL;
}
