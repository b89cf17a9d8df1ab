#include "ps/store/remote_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "ps/store/credentials.h"

static int no_descriptor(const struct ps_store_file *file)
{
    (void)file;
    return -1;
}

static bool is_not_direct(const struct ps_store_file *file)
{
    (void)file;
    return false;
}

static int drop_nothing(struct ps_store_file *file)
{
    (void)file;
    return 0;
}

/* Names last as soon as they are given. */
static int sync_nothing(void *self, const char *path)
{
    (void)self;
    (void)path;
    return 0;
}

const struct ps_store ps_remote_store_base = {
    .descriptor = no_descriptor,
    .is_direct = is_not_direct,
    .drop_direct = drop_nothing,
    .sync_directory = sync_nothing,
};

bool ps_remote_is_secure(const char *endpoint)
{
    return strncasecmp(endpoint, "https://", strlen("https://")) == 0;
}

/* AWS_CA_BUNDLE is Amazon's, the others are those of curl's command. */
const char *ps_remote_ca(const struct ps_remote *remote)
{
    static const char *const names[] = {"AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"};
    if (remote->url.ca[0] != '\0')
        return remote->url.ca;
    for (size_t i = remote->url.kind == PS_STORE_S3 ? 0 : 1; i < sizeof(names) / sizeof(*names); i++) {
        const char *file = getenv(names[i]);
        if (file && *file != '\0')
            return file;
    }
    return NULL;
}

enum mr_status ps_remote_open(const char *url, const struct ps_remote_options *options,
                              struct ps_remote **out, char *text)
{
    struct ps_credentials credentials;
    struct ps_remote *remote = calloc(1, sizeof(*remote));
    if (!remote) {
        ps_text_path(text, url, "no memory");
        return MR_NO_MEMORY;
    }
    enum mr_status status = MR_INVALID_ARGUMENT;
    if (ps_store_url_parse(url, &remote->url, text) &&
        ps_credentials_read(options->credentials ? options->credentials : "", &credentials, text)) {
        memcpy(remote->directory, remote->url.directory, sizeof(remote->directory));
        remote->store = ps_remote_store_base;
        remote->store.self = remote;
        status = remote->url.kind == PS_STORE_S3     ? ps_s3_open(remote, options, &credentials, text)
                 : remote->url.kind == PS_STORE_HDFS ? ps_webhdfs_open(remote, options, &credentials, text)
                                                     : MR_INVALID_ARGUMENT;
        if (remote->url.kind == PS_STORE_LOCAL)
            ps_text_path(text, url, "this is no URL of a store");
        explicit_bzero(&credentials, sizeof(credentials));
    }
    if (status == MR_OK)
        *out = remote;
    else
        ps_remote_close(remote);
    return status;
}

void ps_remote_close(struct ps_remote *remote)
{
    if (!remote)
        return;
    if (remote->url.kind == PS_STORE_S3)
        ps_s3_close(remote);
    else if (remote->url.kind == PS_STORE_HDFS)
        ps_webhdfs_close(remote);
    ps_http_destroy(remote->http);
    free(remote);
}
