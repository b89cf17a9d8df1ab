/* Reading checkpoints. ps_reader_open() verifies all of a checkpoint before it returns; blocks are verified
 * once more when they are visited. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/checkpoint/block_stream.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_chain.h"
#include "ps/checkpoint/checkpoint_format.h"

#define VERIFY_BATCH 4u /* blocks */

struct ps_reader {
    struct ps_chain chain;
    bool is_left_out[PS_CLUSTER_PARTS_MAX];
    bool damaged; /* found while its blocks were read */
};

typedef enum mr_status (*visit_fn)(void *arg, const struct ps_record *record, const uint8_t *bytes);

enum mr_status ps_block_each(const uint8_t *block, visit_fn visit, void *arg)
{
    const struct ps_block_header *header = (const struct ps_block_header *)(const void *)block;
    const uint8_t *at = block + sizeof(*header);
    for (uint32_t i = 0; i < header->record_count; i++) {
        const struct ps_record *record = (const struct ps_record *)(const void *)at;
        enum mr_status status = visit(arg, record, at + sizeof(*record));
        if (status != MR_OK)
            return status;
        at += ps_record_space(record->bytes);
    }
    return MR_OK;
}

/* Reads and checks all blocks of a link. The visitor fills `text` when it fails. */
static enum mr_status read_link(struct ps_reader *r, uint32_t number, uint32_t batch, uint32_t held,
                                ps_visit_blocks visit, void *arg, char *text)
{
    const struct ps_chain_link *link = r->chain.links[number];
    const uint8_t *blocks[PS_STREAM_BATCH_MAX];
    struct ps_stream *stream;
    char why[PS_TEXT_BYTES];
    enum mr_status read =
        ps_stream_open(r->chain.store, link->path, &link->manifest, batch, held, &stream, why);
    if (read == MR_OK) {
        enum mr_status status = MR_OK;
        uint32_t count;
        while (status == MR_OK && (count = ps_stream_take(stream, blocks)) > 0)
            if (visit)
                status = visit(arg, number, blocks, count);
        if (held > 1) {
            enum mr_status last = visit(arg, number, NULL, 0);
            status = status == MR_OK ? last : status;
        }
        read = ps_stream_close(stream, why);
        if (read == MR_OK)
            return status;
    }
    r->damaged = read == MR_CHECKPOINT_CORRUPT;
    if (link->is_last)
        memcpy(text, why, sizeof(why));
    else
        (void)snprintf(text, PS_TEXT_BYTES, "checkpoint %" PRIu64 " is based on %" PRIu64 ": %.190s",
                       ps_reader_manifest(r)->id, link->manifest.id, why);
    return read;
}

enum mr_status ps_reader_blocks(struct ps_reader *r, uint32_t batch, uint32_t held, ps_visit_blocks visit,
                                void *arg, char *text)
{
    enum mr_status status = MR_OK;
    for (uint32_t link = 0; link < r->chain.count && status == MR_OK; link++)
        if (!r->is_left_out[r->chain.links[link]->part])
            status = read_link(r, link, batch, held, visit, arg, text);
    return status;
}

/* Opens one checkpoint's chain, and verifies all of it when `whole`. */
static enum mr_status open_one(const struct ps_store *store, const char *directory, uint64_t id, bool whole,
                               struct ps_reader **out, char *text)
{
    struct ps_reader *r = calloc(1, sizeof(*r));
    if (!r)
        return ps_checkpoint_fail(text, "open", directory, -ENOMEM);
    enum mr_status status = ps_chain_open(store ? store : ps_store_local(), directory, id, &r->chain, text);
    if (status == MR_OK && whole)
        status = ps_reader_blocks(r, VERIFY_BATCH, 1, NULL, NULL, text);
    if (status != MR_OK) {
        ps_reader_close(r);
        return status;
    }
    text[0] = '\0';
    *out = r;
    return MR_OK;
}

struct newest {
    const struct ps_store *store;
    const char *directory;
    struct ps_reader **out;
};

static enum mr_status try_one(void *arg, uint64_t id, bool *is_damaged, char *text)
{
    const struct newest *n = arg;
    enum mr_status status = open_one(n->store, n->directory, id, true, n->out, text);
    *is_damaged = status == MR_CHECKPOINT_CORRUPT || status == MR_CHECKPOINT_NOT_FOUND;
    return status;
}

enum mr_status ps_reader_open(const struct ps_store *store, const char *directory, uint64_t id,
                              struct ps_reader **out, char *text)
{
    struct newest n = {store, directory, out};
    uint64_t *ids;
    uint32_t count;
    if (id != 0)
        return open_one(store, directory, id, true, out, text);
    enum mr_status status = ps_checkpoint_find(store, directory, &ids, &count, text);
    if (status == MR_OK)
        status = ps_checkpoint_try(ids, count, try_one, &n, text);
    free(ids);
    return status;
}

enum mr_status ps_reader_open_unread(const struct ps_store *store, const char *directory, uint64_t id,
                                     struct ps_reader **out, char *text)
{
    return open_one(store, directory, id, false, out, text);
}

void ps_reader_leave_out(struct ps_reader *r, uint32_t part)
{
    r->is_left_out[part] = true;
}

const struct ps_chain *ps_reader_chain(const struct ps_reader *r)
{
    return &r->chain;
}

const struct ps_manifest *ps_reader_manifest(const struct ps_reader *r)
{
    return ps_chain_manifest(&r->chain);
}

bool ps_reader_is_damaged(const struct ps_reader *r)
{
    return r->damaged;
}

void ps_reader_close(struct ps_reader *r)
{
    if (!r)
        return;
    ps_chain_close(&r->chain);
    free(r);
}
