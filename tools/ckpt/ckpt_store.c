#include "tools/ckpt/ckpt_store.h"

#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/cli.h"
#include "ps/store/remote_store.h"
#include "tools/ckpt/ckpt_chain.h"

static struct ps_remote *stores[CKPT_STORES_MAX];
static uint32_t store_count;

static bool is_in(const struct ps_remote *remote, const char *path)
{
    const size_t bytes = strlen(remote->directory);
    return strncmp(path, remote->directory, bytes) == 0 && (path[bytes] == '/' || path[bytes] == '\0');
}

/* The last one counts: it may be the same directory with another endpoint. */
const struct ps_store *ckpt_store_of(const char *path)
{
    for (uint32_t i = store_count; i > 0; i--)
        if (is_in(stores[i - 1], path))
            return &stores[i - 1]->store;
    return ps_store_local();
}

/* "s3://b/p/ckpt-7?region=x" is checkpoint 7 of s3://b/p?region=x. */
static bool without_id(const char *url, char out[PS_PATH_BYTES], uint64_t *id)
{
    char base[PS_PATH_BYTES];
    const size_t bytes = strcspn(url, "?");
    return bytes < sizeof(base) && snprintf(base, sizeof(base), "%.*s", (int)bytes, url) > 0 &&
           ckpt_path_split(base, out, id) && ps_store_url_append(out, PS_PATH_BYTES, url + bytes);
}

static int open_remote(const char *command, const char *path, char directory[PS_PATH_BYTES], uint64_t *id)
{
    static const struct ps_remote_options options = {0};
    char url[PS_PATH_BYTES], text[PS_TEXT_BYTES];
    struct ps_remote *remote;
    if (!without_id(path, url, id))
        return cli_fail(command, "%.100s: the URL is too long", path);
    if (store_count == CKPT_STORES_MAX)
        return cli_fail(command, "it works on at most %u stores", CKPT_STORES_MAX);
    if (ps_remote_open(url, &options, &remote, text) != MR_OK)
        return cli_fail(command, "%s", text);
    stores[store_count++] = remote;
    (void)snprintf(directory, PS_PATH_BYTES, "%s", remote->directory);
    return 0;
}

int ckpt_place_open(const char *command, const char *path, char directory[PS_PATH_BYTES], uint64_t *id)
{
    if (ps_store_url_is_remote(path))
        return open_remote(command, path, directory, id);
    if (!ckpt_path_split(path, directory, id))
        return cli_fail(command, "%s: the path must have 1 to %u bytes", path, PS_PATH_BYTES - 1);
    return 0;
}
