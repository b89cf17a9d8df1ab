#include "ps/checkpoint/checkpoint_attempt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESERVE_BYTES (UINT64_C(64) << 20) /* at a time, where it is not known how long a file will be */

static int io_failed(char text[PS_TEXT_BYTES], const char *what, const char *path, int error)
{
    ps_text_io(text, what, path, -error);
    return error;
}

static void parent_of(const char *path, char out[PS_PATH_BYTES])
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    if (n == 0)
        (void)snprintf(out, PS_PATH_BYTES, ".");
    else
        (void)snprintf(out, PS_PATH_BYTES, "%.*s", (int)n, path);
}

static int make_base(const struct ps_attempt *a, char text[PS_TEXT_BYTES])
{
    const struct ps_store *s = a->store;
    int error = s->make_directory(s->self, a->directory);
    const bool existed = error == -EEXIST;
    if (error != 0 && !existed)
        return io_failed(text, "make directory", a->directory, error);
    /* Also when it existed: whoever made it may have died before its name was on disk. */
    char parent[PS_PATH_BYTES];
    parent_of(a->directory, parent);
    error = s->sync_directory(s->self, parent);
    if (error == -EACCES && existed)
        return 0;
    return error != 0 ? io_failed(text, "fsync of", parent, error) : 0;
}

/* Removes what a writer that died has left, but not what a live one holds. */
static int clear_leftover(const struct ps_attempt *a, char text[PS_TEXT_BYTES])
{
    const struct ps_store *s = a->store;
    int claim;
    int error = ps_store_claim(s, a->temporary, false, &claim);
    if (error != 0)
        return io_failed(text, "lock", a->temporary, error);
    error = ps_store_remove_tree(s, a->temporary, NULL);
    ps_store_release(s, claim);
    return error != 0 ? io_failed(text, "remove", a->temporary, error) : 0;
}

static int make_temporary(struct ps_attempt *a, char text[PS_TEXT_BYTES])
{
    const struct ps_store *s = a->store;
    int error = s->make_directory(s->self, a->temporary);
    if (error == -EEXIST) {
        error = clear_leftover(a, text);
        if (error != 0)
            return error;
        error = s->make_directory(s->self, a->temporary);
    }
    if (error != 0)
        return io_failed(text, "make directory", a->temporary, error);
    a->made = true;
    error = ps_store_claim(s, a->temporary, false, &a->claim);
    if (error != 0)
        return io_failed(text, "lock", a->temporary, error);
    a->claimed = true;
    return 0;
}

static void file_path(const struct ps_attempt *a, uint32_t core, char out[PS_PATH_BYTES])
{
    char name[PS_FILE_NAME_BYTES];
    ps_file_name(core, name);
    (void)ps_path_join(a->temporary, name, out);
}

static int make_files(struct ps_attempt *a, char text[PS_TEXT_BYTES])
{
    for (uint32_t core = 0; core < a->manifest.file_count; core++) {
        char path[PS_PATH_BYTES];
        file_path(a, core, path);
        int error = a->store->create(a->store->self, path, true, &a->files[core]);
        if (error != 0)
            return io_failed(text, "create", path, error);
    }
    return 0;
}

static int make_all(struct ps_attempt *a, const char *directory, char text[PS_TEXT_BYTES])
{
    /* The longest path below the directory must fit as well. */
    const size_t room = PS_PATH_BYTES - 64;
    if (directory[0] == '\0' || strlen(directory) >= room)
        return io_failed(text, "save to", directory, directory[0] ? -ENAMETOOLONG : -ENOENT);
    (void)snprintf(a->directory, sizeof(a->directory), "%s", directory);
    (void)ps_path_temporary(directory, a->manifest.id, a->temporary);
    (void)ps_path_published(directory, a->manifest.id, a->published);
    int error = make_base(a, text);
    if (error != 0)
        return error;
    error = ps_store_look(a->store, a->published);
    if (error != -ENOENT)
        return io_failed(text, "save as", a->published, error == 0 ? -EEXIST : error);
    error = make_temporary(a, text);
    return error != 0 ? error : make_files(a, text);
}

void ps_attempt_reserve(struct ps_attempt *a, uint32_t core, uint32_t block, uint64_t expected_bytes)
{
    const struct ps_store *s = a->store;
    uint64_t *reserved = &a->reserved_bytes[core];
    uint64_t end = ((uint64_t)block + 1) * PS_BLOCK_BYTES, wanted = (end / RESERVE_BYTES + 1) * RESERVE_BYTES;
    uint64_t expected = (expected_bytes + PS_BLOCK_BYTES - 1) / PS_BLOCK_BYTES * PS_BLOCK_BYTES;
    if (end <= *reserved || !s->reserve || !s->set_length || !s->is_direct(a->files[core]))
        return;
    if (end <= expected) /* and no more: room reserved for one core's file is lost to the others */
        wanted = expected;
    *reserved = s->reserve(a->files[core], wanted) == 0 ? wanted : UINT64_MAX;
}

static int cut_to_length(struct ps_attempt *a, uint32_t core, const char *path, char text[PS_TEXT_BYTES])
{
    if (a->reserved_bytes[core] == 0)
        return 0;
    int error =
        a->store->set_length(a->files[core], (uint64_t)a->manifest.files[core].blocks * PS_BLOCK_BYTES);
    return error != 0 ? io_failed(text, "set the length of", path, error) : 0;
}

static int sync_and_close(struct ps_attempt *a, struct ps_store_file **file, const char *path,
                          char text[PS_TEXT_BYTES])
{
    int error = a->store->sync(*file);
    if (error != 0)
        return io_failed(text, "fsync of", path, error);
    error = a->store->close(*file);
    *file = NULL;
    return error != 0 ? io_failed(text, "close of", path, error) : 0;
}

static int write_manifest(struct ps_attempt *a, char text[PS_TEXT_BYTES])
{
    char path[PS_PATH_BYTES];
    (void)ps_path_join(a->temporary, PS_MANIFEST_NAME, path);
    if (a->manifest.needs != 0)
        (void)snprintf(a->manifest.written_by, sizeof(a->manifest.written_by), "%s", mr_version_text());
    char *json = ps_manifest_seal(&a->manifest);
    if (!json)
        return io_failed(text, "write", path, -ENOMEM);
    struct ps_store_file *file = NULL;
    int error = a->store->create(a->store->self, path, false, &file);
    if (error != 0) {
        io_failed(text, "create", path, error);
        goto out;
    }
    error = ps_store_write_all(a->store, file, json, strlen(json), 0);
    if (error != 0)
        io_failed(text, "write", path, error);
    else
        error = sync_and_close(a, &file, path, text);
    if (file)
        (void)a->store->close(file);
out:
    free(json);
    return error;
}

static int write_by_trainer(struct ps_attempt *a, char text[PS_TEXT_BYTES])
{
    char path[PS_PATH_BYTES];
    if (!a->is_by_trainer)
        return 0;
    (void)ps_path_join(a->temporary, PS_BY_TRAINER_NAME, path);
    const int error = ps_store_write_new(a->store, path, PS_BY_TRAINER_TEXT, strlen(PS_BY_TRAINER_TEXT));
    return error != 0 ? io_failed(text, "write", path, error) : 0;
}

int ps_attempt_publish(struct ps_attempt *a, char text[PS_TEXT_BYTES])
{
    const struct ps_store *s = a->store;
    for (uint32_t core = 0; core < a->manifest.file_count; core++) {
        char path[PS_PATH_BYTES];
        file_path(a, core, path);
        int error = cut_to_length(a, core, path, text);
        if (error == 0)
            error = sync_and_close(a, &a->files[core], path, text);
        if (error != 0)
            return error;
    }
    int error = write_by_trainer(a, text);
    if (error == 0)
        error = write_manifest(a, text);
    if (error != 0)
        return error;
    error = s->sync_directory(s->self, a->temporary);
    if (error != 0)
        return io_failed(text, "fsync of", a->temporary, error);
    a->may_arrive = a->is_remote;
    error = s->rename(s->self, a->temporary, a->published);
    if (error != 0)
        return io_failed(text, "rename to", a->published, error);
    a->renamed = true;
    error = s->sync_directory(s->self, a->directory);
    return error != 0 ? io_failed(text, "fsync of", a->directory, error) : 0;
}

/* Renames it first, and syncs that: what a power failure leaves must not look like a damaged checkpoint. The
 * MANIFEST is removed before all else: without it the rest is no checkpoint, should the removal stop
 * halfway. */
static void remove_failed(const struct ps_attempt *a)
{
    const struct ps_store *s = a->store;
    bool hidden = !a->renamed || s->rename(s->self, a->published, a->temporary) == 0;
    if (a->renamed && hidden)
        (void)s->sync_directory(s->self, a->directory);
    (void)ps_store_remove_tree(s, hidden ? a->temporary : a->published, PS_MANIFEST_NAME);
}

void ps_attempt_end(struct ps_attempt *a, bool published)
{
    for (uint32_t core = 0; core < MR_CORE_MAX; core++) {
        if (a->files[core])
            (void)a->store->close(a->files[core]);
        a->files[core] = NULL;
    }
    if (a->made && !published && !a->may_arrive)
        remove_failed(a);
    a->made = false;
    if (a->claimed)
        ps_store_release(a->store, a->claim);
    a->claimed = false;
}

int ps_attempt_begin(struct ps_attempt *a, const char *directory, char text[PS_TEXT_BYTES])
{
    int error = make_all(a, directory, text);
    if (error != 0)
        ps_attempt_end(a, false);
    return error;
}

/* ---- what a delta is based on ---- */

/* The parent is the checkpoint that the delta was made for, and has no feature that the delta lacks. Notes,
 * the first time, which of the parent's features were dropped: those that the node no longer has. */
static enum mr_status check_parent(struct ps_manifest *m, const struct ps_manifest *parent,
                                   const struct ps_hash *expected, char *why)
{
    char wrong[PS_TEXT_BYTES];
    if (expected && !ps_hash_equal(*expected, parent->hash)) {
        (void)snprintf(why, PS_TEXT_BYTES,
                       "another checkpoint has come in the place of the one that was saved: save a full");
        return MR_CHECKPOINT_CORRUPT;
    }
    if (!m->dropped && !ps_manifest_note_dropped(m, parent)) {
        (void)snprintf(why, PS_TEXT_BYTES, "no memory left");
        return MR_NO_MEMORY;
    }
    if (!ps_manifest_follows(parent, m, wrong)) {
        (void)snprintf(why, PS_TEXT_BYTES, "%.190s: save a full", wrong);
        return MR_INVALID_ARGUMENT;
    }
    return MR_OK;
}

enum mr_status ps_attempt_open_parents(struct ps_attempt *a, const char *directory,
                                       const struct ps_hash *expected, struct ps_chain *out, char *text)
{
    struct ps_chain parents = {0};
    char why[PS_TEXT_BYTES];
    const uint64_t id = a->manifest.parent;
    enum mr_status status = ps_chain_open(a->store, directory, id, &parents, why);
    if (status == MR_OK)
        status = check_parent(&a->manifest, &parents.links[parents.count - 1]->manifest, expected, why);
    if (status == MR_OK)
        status = ps_chain_check_files(&parents, why);
    if (status == MR_OK) {
        *out = parents;
        return MR_OK;
    }
    ps_chain_close(&parents);
    (void)snprintf(text, PS_TEXT_BYTES, "a delta on checkpoint %" PRIu64 ": %.190s", id, why);
    return status;
}
