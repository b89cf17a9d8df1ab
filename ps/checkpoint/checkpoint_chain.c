#include "ps/checkpoint/checkpoint_chain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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

static enum mr_status read_parent(struct ps_chain *c, const char *directory, char *text)
{
    const struct ps_manifest *child = &c->links[c->count - 1]->manifest;
    char why[PS_TEXT_BYTES];
    if (c->count == PS_CHAIN_LINKS_MAX)
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

static void reverse(struct ps_chain *c)
{
    for (uint32_t i = 0; i < c->count / 2; i++) {
        struct ps_chain_link *link = c->links[i];
        c->links[i] = c->links[c->count - 1 - i];
        c->links[c->count - 1 - i] = link;
    }
}

enum mr_status ps_chain_open(const struct ps_store *store, const char *directory, uint64_t id,
                             struct ps_chain *out, char *text)
{
    struct ps_chain c = {.store = store};
    enum mr_status status = read_link(&c, directory, id, text);
    while (status == MR_OK && c.links != NULL && c.links[c.count - 1]->manifest.parent != 0)
        status = read_parent(&c, directory, text);
    if (status != MR_OK || c.links == NULL) {
        ps_chain_close(&c);
        return status;
    }
    reverse(&c);
    /* Reading works without the claim, too: what is removed meanwhile is found to be missing. */
    c.claimed = ps_store_claim(store, c.links[0]->path, true, &c.claim) == 0;
    *out = c;
    return MR_OK;
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
    if (c->claimed)
        ps_store_release(c->store, c->claim);
    for (uint32_t i = 0; c->links != NULL && i < c->count; i++) {
        ps_manifest_clear(&c->links[i]->manifest);
        free(c->links[i]);
    }
    free(c->links);
    *c = (struct ps_chain){0};
}
