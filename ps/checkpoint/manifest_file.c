#include "ps/checkpoint/manifest_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ps/checkpoint/checkpoint_error.h"

/* What a text that does not parse is: of a later version, or damaged. */
static enum mr_status refuse(const char *json, uint64_t bytes, const char *path, const char *why, char *text)
{
    const uint32_t version = ps_manifest_version(json, bytes);
    if (version <= PS_FORMAT_VERSION)
        return ps_checkpoint_corrupt(text, path, why);
    char newer[PS_TEXT_BYTES];
    (void)snprintf(
        newer, sizeof(newer),
        "it is of format %" PRIu32
        ", this version reads up to %u: use the version that wrote it, or name an older checkpoint",
        version, PS_FORMAT_VERSION);
    ps_text_path(text, path, newer);
    return MR_CHECKPOINT_NEWER;
}

static enum mr_status parse(const struct ps_store *store, struct ps_store_file *file, uint64_t bytes,
                            const char *path, uint64_t id, struct ps_manifest *out, char *text)
{
    if (bytes == 0 || bytes > PS_MANIFEST_BYTES_MAX)
        return ps_checkpoint_corrupt(text, path,
                                     bytes == 0 ? "it is empty" : "it is too long for a manifest");
    char *json = malloc(bytes);
    struct ps_manifest m = {0};
    int error = json ? ps_store_read_all(store, file, json, bytes, 0) : -ENOMEM;
    enum mr_status status = error == 0 ? MR_OK : ps_checkpoint_fail(text, "read", path, error);
    char why[PS_TEXT_BYTES];
    if (status == MR_OK && !ps_manifest_parse(json, bytes, &m, why))
        status = refuse(json, bytes, path, why, text);
    if (status == MR_OK && m.id != id) {
        status = ps_checkpoint_corrupt(text, path, "it belongs to another checkpoint");
        ps_manifest_clear(&m);
    }
    free(json);
    if (status == MR_OK)
        *out = m;
    return status;
}

static void ignore_name(void *arg, const char *name)
{
    (void)arg;
    (void)name;
}

enum mr_status ps_manifest_read(const struct ps_store *store, const char *directory, uint64_t id,
                                struct ps_manifest *out, char *text)
{
    char base[PS_PATH_BYTES], path[PS_PATH_BYTES];
    if (!ps_path_published(directory, id, base) || !ps_path_join(base, PS_MANIFEST_NAME, path))
        return ps_checkpoint_fail(text, "open", directory, -ENAMETOOLONG);
    if (store->list(store->self, base, ignore_name, NULL) == -ENOENT) {
        ps_text_path(text, base,
                     "there is no such checkpoint; millrace ckpt list shows those of its directory");
        return MR_CHECKPOINT_NOT_FOUND;
    }
    struct ps_store_file *file = NULL;
    uint64_t bytes = 0;
    int error = store->open(store->self, path, &file, &bytes);
    if (error != 0)
        return ps_checkpoint_fail(text, "open", path, error);
    enum mr_status status = parse(store, file, bytes, path, id, out, text);
    (void)store->close(file);
    return status;
}
