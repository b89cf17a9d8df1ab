#include "ps/checkpoint/checkpoint_attempt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESERVE_BYTES (UINT64_C(64) << 20) /* at a time, where it is not known how long a file will be */

static int fail(char text[PS_TEXT_BYTES], const char *what, const char *path, int error)
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
        return fail(text, "make directory", a->directory, error);
    /* Also when it was there: whoever made it may have died, or failed, before its name was on disk. */
    char parent[PS_PATH_BYTES];
    parent_of(a->directory, parent);
    error = s->sync_directory(s->self, parent);
    if (error == -EACCES && existed)
        return 0;
    return error != 0 ? fail(text, "fsync of", parent, error) : 0;
}

/* What a writer that died left behind goes; what a live one holds stays. */
static int clear_leftover(const struct ps_attempt *a, char text[PS_TEXT_BYTES])
{
    const struct ps_store *s = a->store;
    int claim;
    int error = ps_store_claim(s, a->temporary, false, &claim);
    if (error != 0)
        return fail(text, "lock", a->temporary, error);
    error = ps_store_remove_tree(s, a->temporary, NULL);
    ps_store_release(s, claim);
    return error != 0 ? fail(text, "remove", a->temporary, error) : 0;
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
        return fail(text, "make directory", a->temporary, error);
    a->made = true;
    error = ps_store_claim(s, a->temporary, false, &a->claim);
    if (error != 0)
        return fail(text, "lock", a->temporary, error);
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
            return fail(text, "create", path, error);
    }
    return 0;
}

static int begin(struct ps_attempt *a, const char *directory, char text[PS_TEXT_BYTES])
{
    /* The longest path made below a directory must fit as well. */
    const size_t room = PS_PATH_BYTES - 64;
    if (directory[0] == '\0' || strlen(directory) >= room)
        return fail(text, "save to", directory, directory[0] ? -ENAMETOOLONG : -ENOENT);
    (void)snprintf(a->directory, sizeof(a->directory), "%s", directory);
    (void)ps_path_temporary(directory, a->manifest.id, a->temporary);
    (void)ps_path_published(directory, a->manifest.id, a->published);
    int error = make_base(a, text);
    if (error != 0)
        return error;
    error = ps_store_look(a->store, a->published);
    if (error != -ENOENT)
        return fail(text, "save as", a->published, error == 0 ? -EEXIST : error);
    error = make_temporary(a, text);
    return error != 0 ? error : make_files(a, text);
}

int ps_attempt_begin(struct ps_attempt *a, const char *directory, char text[PS_TEXT_BYTES])
{
    int error = begin(a, directory, text);
    if (error != 0)
        ps_attempt_end(a, false);
    return error;
}

/* Writes that make a file longer come one after the other, and each waits for the file's lock: hence room for
 * many at a time. */
void ps_attempt_reserve(struct ps_attempt *a, uint32_t core, uint32_t block, uint64_t expected_bytes)
{
    const struct ps_store *s = a->store;
    uint64_t *reserved = &a->reserved_bytes[core];
    uint64_t end = ((uint64_t)block + 1) * PS_BLOCK_BYTES, wanted = (end / RESERVE_BYTES + 1) * RESERVE_BYTES;
    uint64_t expected = (expected_bytes + PS_BLOCK_BYTES - 1) / PS_BLOCK_BYTES * PS_BLOCK_BYTES;
    if (end <= *reserved || !s->reserve || !s->set_length || !s->is_direct(a->files[core]))
        return;
    if (end <= expected) /* and no more: what is set aside for one core's file, another one's cannot have */
        wanted = expected;
    *reserved = s->reserve(a->files[core], wanted) == 0 ? wanted : UINT64_MAX;
}

static int cut_to_length(struct ps_attempt *a, uint32_t core, const char *path, char text[PS_TEXT_BYTES])
{
    if (a->reserved_bytes[core] == 0)
        return 0;
    int error =
        a->store->set_length(a->files[core], (uint64_t)a->manifest.files[core].blocks * PS_BLOCK_BYTES);
    return error != 0 ? fail(text, "set the length of", path, error) : 0;
}

static int sync_and_close(struct ps_attempt *a, struct ps_store_file **file, const char *path,
                          char text[PS_TEXT_BYTES])
{
    int error = a->store->sync(*file);
    if (error != 0)
        return fail(text, "fsync of", path, error);
    error = a->store->close(*file);
    *file = NULL;
    return error != 0 ? fail(text, "close of", path, error) : 0;
}

static int write_manifest(struct ps_attempt *a, char text[PS_TEXT_BYTES])
{
    char path[PS_PATH_BYTES];
    (void)ps_path_join(a->temporary, PS_MANIFEST_NAME, path);
    char *json = ps_manifest_seal(&a->manifest);
    if (!json)
        return fail(text, "write", path, -ENOMEM);
    struct ps_store_file *file = NULL;
    int error = a->store->create(a->store->self, path, false, &file);
    if (error != 0) {
        fail(text, "create", path, error);
        goto out;
    }
    error = ps_store_write_all(a->store, file, json, strlen(json), 0);
    if (error != 0)
        fail(text, "write", path, error);
    else
        error = sync_and_close(a, &file, path, text);
    if (file)
        (void)a->store->close(file);
out:
    free(json);
    return error;
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
    int error = write_manifest(a, text);
    if (error != 0)
        return error;
    error = s->sync_directory(s->self, a->temporary);
    if (error != 0)
        return fail(text, "fsync of", a->temporary, error);
    error = s->rename(s->self, a->temporary, a->published);
    if (error != 0)
        return fail(text, "rename to", a->published, error);
    a->renamed = true;
    error = s->sync_directory(s->self, a->directory);
    return error != 0 ? fail(text, "fsync of", a->directory, error) : 0;
}

/* Out of sight first, and on disk so: what a power failure leaves of it must not look like a damaged
 * checkpoint. The MANIFEST goes before all else: without it what remains is no checkpoint, should removing
 * stop half-way. */
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
    if (a->made && !published)
        remove_failed(a);
    a->made = false;
    if (a->claimed)
        ps_store_release(a->store, a->claim);
    a->claimed = false;
}
