#include "tools/ckpt/ckpt_chain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/rule.h"
#include "ps/checkpoint/block_stream.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "tools/ckpt/ckpt_store.h"

#define STREAM_BATCH 8u /* blocks */

bool ckpt_path_split(const char *path, char directory[PS_PATH_BYTES], uint64_t *id)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    if (end == 0 || end >= PS_PATH_BYTES)
        return false;
    memcpy(directory, path, end);
    directory[end] = '\0';
    char *slash = strrchr(directory, '/');
    const char *name = slash ? slash + 1 : directory;
    *id = ps_name_published(name);
    *id = *id != 0 ? *id : ps_name_cluster(name);
    if (*id == 0)
        return true;
    if (!slash)
        (void)snprintf(directory, PS_PATH_BYTES, ".");
    else if (slash == directory)
        directory[1] = '\0';
    else
        *slash = '\0';
    return true;
}

/* ---- opening ---- */

static enum mr_status describe_rows(struct ckpt_chain *chain, char *text)
{
    const struct ps_manifest *m = ps_chain_manifest(&chain->files);
    chain->rows = calloc(PS_FEATURE_ID_MAX + 1u, sizeof(*chain->rows));
    if (!chain->rows)
        return ps_checkpoint_fail(text, "open", ps_chain_path(&chain->files), -ENOMEM);
    for (uint32_t i = 0; i < m->feature_count; i++) {
        const struct mr_feature *f = &m->features[i];
        const char *unknown = f->kind == MR_TABLE ? ckpt_row_of(f, &chain->rows[m->feature_ids[i]]) : NULL;
        if (unknown) {
            (void)snprintf(text, PS_TEXT_BYTES,
                           "table %.63s: %s; use the millrace of the server that wrote it", f->name, unknown);
            return MR_UNSUPPORTED;
        }
    }
    return MR_OK;
}

enum mr_status ckpt_chain_open(const char *directory, uint64_t id, struct ckpt_chain *out, char *text)
{
    struct ckpt_chain chain = {0};
    uint32_t count = 1;
    int error = id == 0 ? ps_checkpoint_list_all(ckpt_store_of(directory), directory, &id, 1, &count) : 0;
    if (error != 0) {
        ps_text_io(text, "open", directory, -error);
        return MR_IO_ERROR;
    }
    if (count == 0) {
        ps_text_path(text, directory,
                     "there is no checkpoint here; name one as DIR/ckpt-N, or its directory");
        return MR_CHECKPOINT_NOT_FOUND;
    }
    enum mr_status status = ps_chain_open(ckpt_store_of(directory), directory, id, &chain.files, text);
    if (status == MR_CHECKPOINT_NOT_FOUND)
        (void)snprintf(text, PS_TEXT_BYTES,
                       "%.150s: there is no ckpt-%" PRIu64 " here; see millrace ckpt list", directory, id);
    if (status == MR_OK)
        status = describe_rows(&chain, text);
    if (status == MR_OK)
        *out = chain;
    else
        ckpt_chain_close(&chain);
    return status;
}

void ckpt_chain_close(struct ckpt_chain *chain)
{
    ps_chain_close(&chain->files);
    free(chain->rows);
    *chain = (struct ckpt_chain){0};
}

uint32_t ckpt_chain_table(const struct ckpt_chain *chain, const char *name)
{
    const struct ps_manifest *m = ps_chain_manifest(&chain->files);
    for (uint32_t i = 0; i < m->feature_count; i++)
        if (m->features[i].kind == MR_TABLE && strncmp(m->features[i].name, name, MR_NAME_BYTES) == 0)
            return i;
    return UINT32_MAX;
}

/* ---- records ---- */

bool ckpt_part_has(const struct ps_chain *files, uint32_t part, const struct ps_record *record)
{
    if (!files->cluster)
        return true;
    if (record->kind == PS_RECORD_OBSERVATIONS)
        return record->offset < MR_PARTITION_COUNT &&
               ps_chain_part_owns(files, part, (uint32_t)record->offset);
    const struct mr_feature *f = record->kind == PS_RECORD_VARIABLE
                                     ? ps_manifest_feature(ps_chain_manifest(files), record->feature)
                                     : NULL;
    return !f ||
           ps_chain_part_owns(
               files, part, mr_range_partition(f->name, (uint32_t)(record->offset / mr_rule_range_bytes(f))));
}

static uint64_t payload_bytes(const uint8_t *block)
{
    return ((const struct ps_block_header *)(const void *)block)->payload_bytes;
}

enum mr_status ckpt_link_each(const struct ps_chain_link *link, ckpt_visit_record visit, void *arg,
                              struct ckpt_progress *progress, char *text)
{
    const uint8_t *blocks[PS_STREAM_BATCH_MAX];
    struct ps_stream *stream;
    uint32_t count;
    enum mr_status status = ps_stream_open(ckpt_store_of(link->path), link->path, &link->manifest,
                                           STREAM_BATCH, 1, &stream, text);
    if (status != MR_OK)
        return status;
    while (status == MR_OK && (count = ps_stream_take(stream, blocks)) > 0) {
        for (uint32_t i = 0; i < count && status == MR_OK; i++) {
            if (visit)
                status = ps_block_each(blocks[i], visit, arg);
            ckpt_progress_add(progress, payload_bytes(blocks[i]));
        }
    }
    char why[PS_TEXT_BYTES];
    enum mr_status read = ps_stream_close(stream, why);
    if (read == MR_OK)
        return status;
    memcpy(text, why, sizeof(why));
    return read;
}

struct last {
    const struct ps_chain *files;
    uint32_t part;
    ckpt_visit_record visit;
    void *arg;
};

static enum mr_status visit_last(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    const struct last *l = arg;
    return ckpt_part_has(l->files, l->part, record) ? l->visit(l->arg, record, bytes) : MR_OK;
}

enum mr_status ckpt_last_each(const struct ckpt_chain *chain, ckpt_visit_record visit, void *arg,
                              struct ckpt_progress *progress, char *text)
{
    enum mr_status status = MR_OK;
    for (uint32_t part = 0; part < chain->files.part_count && status == MR_OK; part++) {
        struct last last = {&chain->files, part, visit, arg};
        status = ckpt_link_each(ps_chain_part_last(&chain->files, part), visit_last, &last, progress, text);
    }
    return status;
}
