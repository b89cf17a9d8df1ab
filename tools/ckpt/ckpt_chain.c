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

/* ---- live rows ---- */

/* Pieces of a table's filter are noted as keys of a table of their own. */
#define OBSERVATIONS_OF(feature) ((feature) | UINT32_C(0x80000000))

/* Partition, and first line in it. */
static uint64_t piece_key(const struct ps_record *record)
{
    return record->offset << 32 | record->row_bytes;
}

enum mr_status ckpt_live_open(struct ckpt_live *live, const struct ckpt_chain *chain, uint32_t feature,
                              uint64_t memory_bytes, struct ckpt_progress *progress, char *text)
{
    *live = (struct ckpt_live){.chain = chain, .feature = feature, .progress = progress};
    if (ps_chain_links(&chain->files) == 1)
        return MR_OK;
    live->map = ckpt_map_create(memory_bytes);
    return live->map ? MR_OK : ps_checkpoint_fail(text, "read", ps_chain_path(&chain->files), -ENOMEM);
}

void ckpt_live_close(struct ckpt_live *live)
{
    ckpt_map_destroy(live->map);
    live->map = NULL;
}

/* Which keys of a record count: in a cluster's checkpoint those whose partitions the part's node had. */
struct owned {
    const struct ps_chain *files; /* NULL: all do */
    uint32_t part;
    uint64_t seed;
};

static struct owned owned_of(const struct ps_chain *files, uint32_t link, uint32_t feature)
{
    struct owned o = {.files = files->cluster ? files : NULL, .part = files->links[link]->part};
    const struct mr_feature *f = o.files ? ps_manifest_feature(ps_chain_manifest(files), feature) : NULL;
    o.seed = f ? f->seed : 0;
    return o;
}

static bool is_owned(const struct owned *o, uint64_t key)
{
    return !o->files || ps_chain_part_owns(o->files, o->part, mr_partition_of(mr_key_hash(key, o->seed)));
}

/* ---- the index ---- */

struct indexing {
    struct ckpt_live *live;
    struct ckpt_range *range;
    uint32_t link;
    char *text;
};

static enum mr_status ckpt_live_note(struct indexing *x, uint32_t table, uint64_t key)
{
    struct ckpt_entry *entry;
    const enum ckpt_put put = ckpt_map_put(x->live->map, x->range, table, key, 0, &entry);
    if (put == CKPT_NO_ROOM) {
        (void)snprintf(x->text, PS_TEXT_BYTES,
                       "there is no room for the keys of the chain's deltas; raise --memory-mib");
        return MR_NO_MEMORY;
    }
    if (put != CKPT_OUTSIDE)
        entry->mark = x->link;
    return MR_OK;
}

static enum mr_status note_record(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    struct indexing *x = arg;
    if (x->live->feature != 0 && record->feature != x->live->feature)
        return MR_OK;
    const struct ps_chain *files = &x->live->chain->files;
    if (record->kind == PS_RECORD_OBSERVATIONS && !ckpt_part_has(files, files->links[x->link]->part, record))
        return MR_OK;
    if (record->kind == PS_RECORD_OBSERVATIONS)
        return ckpt_live_note(x, OBSERVATIONS_OF(record->feature), piece_key(record));
    if (record->kind != PS_RECORD_ROWS && record->kind != PS_RECORD_GONE)
        return MR_OK;
    const struct owned owned = owned_of(files, x->link, record->feature);
    const uint64_t *keys = (const uint64_t *)(const void *)bytes;
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < record->count && status == MR_OK; i++)
        if (is_owned(&owned, keys[i]))
            status = ckpt_live_note(x, record->feature, keys[i]);
    return status;
}

enum mr_status ckpt_live_index(struct ckpt_live *live, struct ckpt_range *range, char *text)
{
    enum mr_status status = MR_OK;
    if (!live->map)
        return MR_OK;
    ckpt_map_clear(live->map);
    for (uint32_t link = 0; link < live->chain->files.count && status == MR_OK; link++) {
        if (live->chain->files.links[link]->is_first)
            continue;
        struct indexing x = {.live = live, .range = range, .link = link, .text = text};
        status = ckpt_link_each(live->chain->files.links[link], note_record, &x, live->progress, text);
    }
    return status;
}

/* ---- the visit ---- */

struct visiting {
    const struct ckpt_live *live;
    const struct ckpt_range *range;
    ckpt_visit_rows rows;
    ckpt_visit_record small;
    void *arg;
    uint32_t link;
    char *text;
};

/* Whether this link has the last word. */
static bool is_last_word(const struct visiting *v, uint32_t table, uint64_t key)
{
    if (!ckpt_range_has(v->range, key))
        return false;
    const struct ckpt_entry *entry = v->live->map ? ckpt_map_find(v->live->map, table, key) : NULL;
    return !entry || entry->mark == v->link;
}

static enum mr_status visit_rows(const struct visiting *v, const struct ps_record *record,
                                 const uint8_t *bytes)
{
    const struct ckpt_row *row = &v->live->chain->rows[record->feature];
    if (row->bytes == 0)
        return MR_OK; /* a table that is no more */
    if (record->row_bytes != row->bytes) {
        (void)snprintf(v->text, PS_TEXT_BYTES, "%.150s: rows of feature %u have %u bytes, not %u",
                       v->live->chain->files.links[v->link]->path, record->feature, record->row_bytes,
                       row->bytes);
        return MR_CHECKPOINT_CORRUPT;
    }
    const struct owned owned = owned_of(&v->live->chain->files, v->link, record->feature);
    const uint64_t *keys = (const uint64_t *)(const void *)bytes;
    const uint8_t *rows = bytes + record->count * sizeof(*keys);
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < record->count && status == MR_OK;) {
        uint32_t n = 0;
        while (i + n < record->count && is_owned(&owned, keys[i + n]) &&
               is_last_word(v, record->feature, keys[i + n]))
            n++;
        const struct ckpt_rows live = {.feature = record->feature,
                                       .row_bytes = row->bytes,
                                       .count = n,
                                       .keys = keys + i,
                                       .rows = rows + (size_t)i * row->bytes};
        if (n > 0)
            status = v->rows(v->arg, &live);
        i += n + 1; /* the next one is not live, or is the end */
    }
    return status;
}

static enum mr_status visit_record(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    const struct visiting *v = arg;
    const struct ps_chain *files = &v->live->chain->files;
    const struct ps_chain_link *link = files->links[v->link];
    const bool is_wanted = v->live->feature == 0 || v->live->feature == record->feature;
    switch (record->kind) {
    case PS_RECORD_ROWS:
        return v->rows && is_wanted ? visit_rows(v, record, bytes) : MR_OK;
    case PS_RECORD_GONE:
        return MR_OK;
    case PS_RECORD_OBSERVATIONS:
        return v->small && is_wanted && ckpt_part_has(files, link->part, record) &&
                       is_last_word(v, OBSERVATIONS_OF(record->feature), piece_key(record))
                   ? v->small(v->arg, record, bytes)
                   : MR_OK;
    default:
        return v->small && v->range->begin == 0 && link->is_last && ckpt_part_has(files, link->part, record)
                   ? v->small(v->arg, record, bytes)
                   : MR_OK;
    }
}

enum mr_status ckpt_live_each(const struct ckpt_live *live, const struct ckpt_range *range,
                              ckpt_visit_rows rows, ckpt_visit_record small, void *arg, char *text)
{
    enum mr_status status = MR_OK;
    for (uint32_t link = 0; link < live->chain->files.count && status == MR_OK; link++) {
        struct visiting v = {live, range, rows, small, arg, link, text};
        status = ckpt_link_each(live->chain->files.links[link], visit_record, &v, live->progress, text);
    }
    return status;
}

enum mr_status ckpt_live_all(struct ckpt_live *live, ckpt_visit_rows rows, ckpt_visit_record small, void *arg,
                             char *text)
{
    enum mr_status status = MR_OK;
    for (struct ckpt_range range = {0, CKPT_PLACES}; range.begin < CKPT_PLACES && status == MR_OK;) {
        status = ckpt_live_index(live, &range, text);
        if (status == MR_OK)
            status = ckpt_live_each(live, &range, rows, small, arg, text);
        range = (struct ckpt_range){range.end, CKPT_PLACES};
    }
    return status;
}
