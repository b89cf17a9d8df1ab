#include "ps/manifest_file.h"

#include <errno.h>
#include <stdlib.h>

#include "ps/checkpoint_error.h"

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
        status = ps_checkpoint_corrupt(text, path, why);
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
