#include "ps/checkpoint/checkpoint_chain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Appends the checkpoint to the links read so far, which come newest first. */
static enum mr_status read_link(struct ps_chain *c, const char *directory, uint64_t id, char *text)
{
    struct ps_chain_link *link = calloc(1, sizeof(*link));
    struct ps_chain_link **links = realloc(c->links, (c->count + 1u) * sizeof(struct ps_chain_link *));
    if (links)
        c->links = links;
    enum mr_status status = MR_OK;
    if (!link || !links)
        status = ps_checkpoint_fail(text, "open", directory, -ENOMEM);
    else if (!ps_path_published(directory, id, link->path))
        status = ps_checkpoint_fail(text, "open", directory, -ENAMETOOLONG);
    else
        status = ps_manifest_read(c->store, directory, id, &link->manifest, text);
    if (status == MR_OK && links)
        links[c->count++] = link;
    else
        free(link);
    return status;
}

static enum mr_status refuse_link(const char *directory, const struct ps_manifest *child, const char *what,
                                  char *text)
{
    char why[PS_TEXT_BYTES];
    (void)snprintf(why, sizeof(why), "checkpoint %" PRIu64 " is a delta on %" PRIu64 ", %.120s", child->id,
                   child->parent, what);
    return ps_checkpoint_corrupt(text, directory, why);
}

/* Checks that the parent is the one that the child was written on. */
static enum mr_status check_parent(const char *directory, const struct ps_manifest *parent,
                                   const struct ps_manifest *child, char *text)
{
    if (!ps_hash_equal(parent->hash, child->parent_hash))
        return refuse_link(directory, child, "which is not the one that it was written on", text);
    char wrong[PS_TEXT_BYTES];
    if (ps_manifest_follows(parent, child, wrong))
        return MR_OK;
    return refuse_link(directory, child, wrong, text);
}

static enum mr_status read_parent(struct ps_chain *c, uint32_t first, const char *directory, char *text)
{
    const struct ps_manifest *child = &c->links[c->count - 1]->manifest;
    char why[PS_TEXT_BYTES];
    if (c->count - first == PS_CHAIN_LINKS_MAX)
        return refuse_link(directory, child, "and its chain is longer than can be read", text);
    enum mr_status status = read_link(c, directory, child->parent, why);
    if (status == MR_CHECKPOINT_NOT_FOUND)
        return refuse_link(directory, child, "which is missing", text);
    if (status != MR_OK) {
        (void)snprintf(text, PS_TEXT_BYTES, "checkpoint %" PRIu64 " is a delta on %" PRIu64 ": %.190s",
                       child->id, child->parent, why);
        return status;
    }
    return check_parent(directory, &c->links[c->count - 1]->manifest, child, text);
}

/* Puts the links from `first` on into the order from the full to the checkpoint. */
static void reverse(struct ps_chain *c, uint32_t first)
{
    for (uint32_t i = first, j = c->count - 1; i < j; i++, j--) {
        struct ps_chain_link *link = c->links[i];
        c->links[i] = c->links[j];
        c->links[j] = link;
    }
}

/* Reads the links of one node. */
static enum mr_status open_part(struct ps_chain *c, const char *directory, uint64_t id, char *text)
{
    struct ps_chain_part part = {.first = c->count};
    enum mr_status status = read_link(c, directory, id, text);
    while (status == MR_OK && c->links != NULL && c->links[c->count - 1]->manifest.parent != 0)
        status = read_parent(c, part.first, directory, text);
    if (status != MR_OK || c->links == NULL)
        return status;
    reverse(c, part.first);
    part.count = c->count - part.first;
    for (uint32_t i = part.first; i < c->count; i++)
        c->links[i]->part = c->part_count;
    c->links[part.first]->is_first = true;
    c->links[c->count - 1]->is_last = true;
    /* Reading works without the claim, too: what is removed meanwhile is found to be missing. */
    part.claimed = ps_store_claim(c->store, c->links[part.first]->path, true, &part.claim) == 0;
    c->parts[c->part_count++] = part;
    return MR_OK;
}

/* ---- of a cluster ---- */

static enum mr_status refuse_part(const struct ps_chain *c, uint32_t part, const char *why, char *text)
{
    return ps_checkpoint_corrupt(text, ps_chain_part_last(c, part)->path, why);
}

/* Adds a part's feature to those of the whole. A part that was cut before a feature was created lacks it,
 * and one that was cut before it was altered has it as it was. NULL, or what is wrong. */
static const char *add_feature(struct ps_manifest *whole, uint32_t id, const struct mr_feature *f)
{
    for (uint32_t i = 0; i < whole->feature_count; i++) {
        struct mr_feature *known = &whole->features[i];
        const bool is_same_name = strncmp(known->name, f->name, MR_NAME_BYTES) == 0;
        if (whole->feature_ids[i] != id && !is_same_name)
            continue;
        const bool is_later = (f->altered | known->altered) != known->altered;
        struct mr_feature after = is_later ? *known : *f;
        if (whole->feature_ids[i] != id || !is_same_name ||
            mr_feature_alter(&after, is_later ? known : f, is_later ? f : known) != NULL)
            return "another node's part has a feature of the same number or name that differs";
        *known = is_later ? *f : *known;
        return NULL;
    }
    if (whole->feature_count == MR_FEATURE_MAX)
        return "the nodes' parts have more features than a node can have";
    whole->features[whole->feature_count] = *f;
    whole->feature_ids[whole->feature_count++] = id;
    return NULL;
}

/* Checks that a part is the one that was committed, and adds what it has to the whole. */
static enum mr_status add_part(struct ps_chain *c, uint32_t part, char *text)
{
    const struct ps_manifest *m = &ps_chain_part_last(c, part)->manifest;
    const struct ps_cluster_part *named = &c->cluster->parts[part];
    if (!ps_hash_equal(m->hash, named->manifest_hash) || m->file_count != named->core_count)
        return refuse_part(c, part, "it is not the part that the cluster's checkpoint was made of", text);
    if (m->is_partial)
        return refuse_part(c, part, "it is partial, and cannot be a part of a cluster's checkpoint", text);
    const char *wrong = NULL;
    for (uint32_t i = 0; i < m->feature_count && !wrong; i++)
        wrong = add_feature(&c->manifest, m->feature_ids[i], &m->features[i]);
    if (wrong)
        return refuse_part(c, part, wrong, text);
    c->manifest.version = m->version > c->manifest.version ? m->version : c->manifest.version;
    c->manifest.needs |= m->needs;
    c->manifest.clock_s = m->clock_s > c->manifest.clock_s ? m->clock_s : c->manifest.clock_s;
    return MR_OK;
}

static enum mr_status open_named_part(struct ps_chain *c, const char *directory, uint32_t part, char *text)
{
    char base[PS_PATH_BYTES], why[PS_TEXT_BYTES];
    if (!ps_path_join(directory, c->cluster->parts[part].name, base))
        return ps_checkpoint_fail(text, "open", directory, -ENAMETOOLONG);
    enum mr_status status = open_part(c, base, c->cluster->id, why);
    if (status == MR_OK)
        return add_part(c, part, text);
    (void)snprintf(text, PS_TEXT_BYTES, "checkpoint %" PRIu64 " of the cluster: %.200s", c->cluster->id, why);
    return status == MR_CHECKPOINT_NOT_FOUND ? MR_CHECKPOINT_CORRUPT : status;
}

static enum mr_status open_cluster(struct ps_chain *c, const char *directory, uint64_t id, char *text)
{
    struct ps_cluster_manifest *cluster = malloc(sizeof(*cluster));
    c->parts = calloc(PS_CLUSTER_PARTS_MAX, sizeof(*c->parts));
    c->manifest.features = calloc(MR_FEATURE_MAX, sizeof(*c->manifest.features));
    c->manifest.feature_ids = calloc(MR_FEATURE_MAX, sizeof(*c->manifest.feature_ids));
    c->cluster = cluster;
    if (!cluster || !c->parts || !c->manifest.features || !c->manifest.feature_ids ||
        !ps_path_cluster(directory, id, c->path))
        return ps_checkpoint_fail(text, "open", directory, -ENOMEM);
    enum mr_status status = ps_cluster_manifest_read(c->store, directory, id, cluster, text);
    if (status != MR_OK)
        return status;
    c->manifest.id = id;
    c->manifest.step = cluster->step;
    c->manifest.is_at_step = cluster->is_at_step;
    c->manifest.hash = cluster->hash;
    c->manifest.needs = cluster->needs;
    memcpy(c->manifest.written_by, cluster->written_by, sizeof(cluster->written_by));
    for (uint32_t i = 0; i < cluster->part_count && status == MR_OK; i++)
        status = open_named_part(c, directory, i, text);
    return status;
}

/* ---- opening ---- */

enum mr_status ps_chain_open(const struct ps_store *store, const char *directory, uint64_t id,
                             struct ps_chain *out, char *text)
{
    struct ps_chain c = {.store = store};
    enum mr_status status;
    if (ps_cluster_manifest_is_there(store, directory, id)) {
        status = open_cluster(&c, directory, id, text);
    } else {
        c.parts = calloc(1, sizeof(*c.parts));
        status = c.parts ? open_part(&c, directory, id, text)
                         : ps_checkpoint_fail(text, "open", directory, -ENOMEM);
    }
    if (status != MR_OK || c.links == NULL) {
        ps_chain_close(&c);
        return status;
    }
    *out = c;
    return MR_OK;
}

uint32_t ps_chain_links(const struct ps_chain *c)
{
    uint32_t links = 0;
    for (uint32_t i = 0; i < c->part_count; i++)
        links = c->parts[i].count > links ? c->parts[i].count : links;
    return links;
}

bool ps_chain_drops(const struct ps_chain *c)
{
    uint32_t i = 0;
    while (i < c->count && c->links[i]->manifest.dropped_count == 0)
        i++;
    return i < c->count;
}

uint64_t ps_chain_bytes(const struct ps_chain *c)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->count; i++)
        bytes += ps_manifest_bytes(&c->links[i]->manifest);
    return bytes;
}

static enum mr_status check_file(const struct ps_store *store, const struct ps_chain_link *link,
                                 uint32_t core, char *text)
{
    char name[PS_FILE_NAME_BYTES], path[PS_PATH_BYTES];
    struct ps_store_file *file;
    uint64_t bytes;
    ps_file_name(core, name);
    int error = ps_path_join(link->path, name, path) ? 0 : -ENAMETOOLONG;
    if (error == 0)
        error = store->open(store->self, path, &file, &bytes);
    if (error != 0)
        return ps_checkpoint_fail(text, "open", path, error);
    (void)store->close(file);
    if (bytes != (uint64_t)link->manifest.files[core].blocks * PS_BLOCK_BYTES)
        return ps_checkpoint_corrupt(text, path, PS_WRONG_LENGTH);
    return MR_OK;
}

enum mr_status ps_chain_check_files(const struct ps_chain *c, char *text)
{
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < c->count; i++)
        for (uint32_t core = 0; core < c->links[i]->manifest.file_count && status == MR_OK; core++)
            status = check_file(c->store, c->links[i], core, text);
    return status;
}

void ps_chain_close(struct ps_chain *c)
{
    for (uint32_t i = 0; i < c->part_count; i++)
        if (c->parts[i].claimed)
            ps_store_release(c->store, c->parts[i].claim);
    for (uint32_t i = 0; c->links != NULL && i < c->count; i++) {
        ps_manifest_clear(&c->links[i]->manifest);
        free(c->links[i]);
    }
    free(c->links);
    free(c->parts);
    free(c->cluster);
    ps_manifest_clear(&c->manifest);
    *c = (struct ps_chain){0};
}
