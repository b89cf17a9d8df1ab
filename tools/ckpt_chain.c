#include "tools/ckpt_chain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/block_stream.h"
#include "ps/checkpoint_error.h"
#include "ps/manifest_file.h"

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
    *id = ps_name_published(slash ? slash + 1 : directory);
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

static enum mr_status add_link(struct ckpt_chain *chain, const char *directory, uint64_t id, char *text)
{
    struct ckpt_link *links = realloc(chain->links, (chain->link_count + 1) * sizeof *links);
    if (!links)
        return ps_checkpoint_fail(text, "open", directory, -ENOMEM);
    chain->links = links;
    struct ckpt_link *link = &links[chain->link_count];
    memset(link, 0, sizeof *link);
    if (!ps_path_published(directory, id, link->path))
        return ps_checkpoint_fail(text, "open", directory, -ENAMETOOLONG);
    enum mr_status status = ps_manifest_read(ps_store_local(), directory, id, &link->manifest, text);
    if (status == MR_OK)
        chain->link_count++;
    return status;
}

/* What is wrong between a link and the one it builds upon, which has just been read. */
static const char *parent_fault(const struct ps_manifest *link, const struct ps_manifest *parent)
{
    if (parent->hash.low != link->parent_hash.low || parent->hash.high != link->parent_hash.high)
        return "it is not the checkpoint that the next link was built upon: the directory has files of two "
               "runs";
    return NULL;
}

static enum mr_status add_links(struct ckpt_chain *chain, const char *directory, uint64_t id, char *text)
{
    enum mr_status status = add_link(chain, directory, id, text);
    while (status == MR_OK && ckpt_chain_last(chain)->manifest.parent != 0) {
        const uint64_t parent = ckpt_chain_last(chain)->manifest.parent;
        const uint64_t child = ckpt_chain_last(chain)->manifest.id;
        char why[PS_TEXT_BYTES];
        if (parent >= child)
            return ps_checkpoint_corrupt(text, ckpt_chain_last(chain)->path,
                                         "its parent is no older checkpoint");
        status = add_link(chain, directory, parent, why);
        if (status == MR_CHECKPOINT_NOT_FOUND || status == MR_CHECKPOINT_CORRUPT) {
            (void)snprintf(text, PS_TEXT_BYTES, "ckpt-%" PRIu64 " needs ckpt-%" PRIu64 ": %.180s", child,
                           parent, why);
            return MR_CHECKPOINT_CORRUPT;
        }
        if (status != MR_OK) {
            memcpy(text, why, sizeof why);
            return status;
        }
        const struct ckpt_link *last = ckpt_chain_last(chain);
        const char *wrong = parent_fault(&last[-1].manifest, &last->manifest);
        if (wrong)
            return ps_checkpoint_corrupt(text, last->path, wrong);
    }
    return status;
}

/* They were found the other way round. */
static void reverse(struct ckpt_chain *chain)
{
    for (uint32_t i = 0, j = chain->link_count - 1; i < j; i++, j--) {
        struct ckpt_link link = chain->links[i];
        chain->links[i] = chain->links[j];
        chain->links[j] = link;
    }
}

static enum mr_status describe_rows(struct ckpt_chain *chain, char *text)
{
    const struct ckpt_link *last = ckpt_chain_last(chain);
    chain->rows = calloc(PS_FEATURE_ID_MAX + 1u, sizeof *chain->rows);
    if (!chain->rows)
        return ps_checkpoint_fail(text, "open", last->path, -ENOMEM);
    for (uint32_t i = 0; i < last->manifest.feature_count; i++) {
        const struct mr_feature *f = &last->manifest.features[i];
        const char *unknown =
            f->kind == MR_TABLE ? ckpt_row_of(f, &chain->rows[last->manifest.feature_ids[i]]) : NULL;
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
    if (id == 0 && ps_checkpoint_list(directory, &id, 1) == 0) {
        ps_text_path(text, directory,
                     "there is no checkpoint here; name one as DIR/ckpt-N, or its directory");
        return MR_CHECKPOINT_NOT_FOUND;
    }
    enum mr_status status = add_links(&chain, directory, id, text);
    if (status == MR_CHECKPOINT_NOT_FOUND)
        (void)snprintf(text, PS_TEXT_BYTES,
                       "%.150s: there is no ckpt-%" PRIu64 " here; see millrace ckpt list", directory, id);
    if (status == MR_OK) {
        reverse(&chain);
        status = describe_rows(&chain, text);
    }
    if (status == MR_OK)
        *out = chain;
    else
        ckpt_chain_close(&chain);
    return status;
}

void ckpt_chain_close(struct ckpt_chain *chain)
{
    for (uint32_t i = 0; i < chain->link_count; i++)
        ps_manifest_clear(&chain->links[i].manifest);
    free(chain->links);
    free(chain->rows);
    *chain = (struct ckpt_chain){0};
}

uint64_t ckpt_link_bytes(const struct ckpt_link *link)
{
    uint64_t bytes = 0;
    for (uint32_t core = 0; core < link->manifest.file_count; core++)
        bytes += link->manifest.files[core].payload_bytes;
    return bytes;
}

uint64_t ckpt_chain_bytes(const struct ckpt_chain *chain)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < chain->link_count; i++)
        bytes += ckpt_link_bytes(&chain->links[i]);
    return bytes;
}

uint32_t ckpt_chain_table(const struct ckpt_chain *chain, const char *name)
{
    const struct ps_manifest *m = &ckpt_chain_last(chain)->manifest;
    for (uint32_t i = 0; i < m->feature_count; i++)
        if (m->features[i].kind == MR_TABLE && strncmp(m->features[i].name, name, MR_NAME_BYTES) == 0)
            return i;
    return UINT32_MAX;
}

/* ---- records ---- */

static uint64_t payload_bytes(const uint8_t *block)
{
    return ((const struct ps_block_header *)(const void *)block)->payload_bytes;
}

enum mr_status ckpt_link_each(const struct ckpt_link *link, ckpt_visit_record visit, void *arg,
                              struct ckpt_progress *progress, char *text)
{
    const uint8_t *blocks[PS_STREAM_BATCH_MAX];
    struct ps_stream *stream;
    uint32_t count;
    enum mr_status status =
        ps_stream_open(ps_store_local(), link->path, &link->manifest, STREAM_BATCH, &stream, text);
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
    memcpy(text, why, sizeof why);
    return read;
}
