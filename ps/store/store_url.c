#include "ps/store/store_url.h"

#include <stdio.h>
#include <string.h>

#define QUERY_BYTES 512u

struct scheme {
    const char *prefix;
    enum ps_store_kind kind;
    const char *http; /* how requests begin */
};

static const struct scheme schemes[] = {
    {"hdfs://", PS_STORE_HDFS, "http://"},
    {"webhdfs://", PS_STORE_HDFS, "http://"},
    {"swebhdfs://", PS_STORE_HDFS, "https://"},
    {"s3://", PS_STORE_S3, NULL},
};

static const struct scheme *scheme_of(const char *url)
{
    for (size_t i = 0; i < sizeof(schemes) / sizeof(*schemes); i++)
        if (strncmp(url, schemes[i].prefix, strlen(schemes[i].prefix)) == 0)
            return &schemes[i];
    return NULL;
}

bool ps_store_url_is_remote(const char *text)
{
    return strstr(text, "://") != NULL;
}

/* Shows no query; of a URL with an @ no more than its scheme, as a password may stand before it. */
static bool refuse(char *text, const char *url, const char *why)
{
    const size_t bytes = strcspn(url, "?");
    const char *host = strstr(url, "://");
    if (host && memchr(host, '@', bytes - (size_t)(host - url)))
        (void)snprintf(text, PS_TEXT_BYTES, "%.*s://...: %s", (int)(host - url), url, why);
    else
        (void)snprintf(text, PS_TEXT_BYTES, "%.*s: %s", bytes > 120 ? 120 : (int)bytes, url, why);
    return false;
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-._~", c);
}

bool ps_store_url_append(char *url, size_t url_bytes, const char *from)
{
    const size_t at = strlen(url), bytes = strlen(from) + 1;
    if (bytes > url_bytes - at)
        return false;
    memcpy(url + at, from, bytes);
    return true;
}

bool ps_store_url_escape(char *url, size_t url_bytes, const char *from, bool keep_slash)
{
    size_t at = strlen(url);
    for (; *from; from++) {
        const bool plain = is_plain(*from) || (keep_slash && *from == '/');
        if (at + (plain ? 1 : 3) >= url_bytes)
            return false;
        if (plain)
            url[at++] = *from;
        else
            at += (size_t)snprintf(url + at, 4, "%%%02X", (unsigned char)*from);
    }
    url[at] = '\0';
    return true;
}

/* ---- the query ---- */

static bool set_flag(const char *value, int *out)
{
    const bool is_flag = (value[0] == '0' || value[0] == '1') && value[1] == '\0';
    if (is_flag)
        *out = value[0] - '0';
    return is_flag;
}

static bool store_url_copy(char *out, size_t out_bytes, const char *value)
{
    return value[0] != '\0' && (size_t)snprintf(out, out_bytes, "%s", value) < out_bytes;
}

/* Whether it may be HOST or HOST:PORT. */
static bool is_host(const char *host, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!is_plain(host[i]) && !strchr("[]:", host[i]))
            return false;
    return bytes > 0;
}

static bool set_endpoint(struct ps_store_url *u, const char *value)
{
    const size_t scheme_bytes = strncmp(value, "http://", 7) == 0    ? 7
                                : strncmp(value, "https://", 8) == 0 ? 8
                                                                     : 0;
    size_t bytes = strlen(value);
    while (bytes > scheme_bytes && value[bytes - 1] == '/')
        bytes--;
    if (scheme_bytes == 0 || bytes >= sizeof(u->endpoint) ||
        !is_host(value + scheme_bytes, bytes - scheme_bytes))
        return false;
    (void)snprintf(u->endpoint, sizeof(u->endpoint), "%.*s", (int)bytes, value);
    return true;
}

static bool set_hdfs(struct ps_store_url *u, const char *key, const char *value)
{
    if (strcmp(key, "user.name") == 0)
        return store_url_copy(u->user, sizeof(u->user), value);
    u->negotiate = strcmp(key, "auth") == 0 && strcmp(value, "negotiate") == 0;
    return u->negotiate;
}

/* It becomes part of a host's name. */
static bool is_region(const char *value)
{
    return value[strspn(value, "abcdefghijklmnopqrstuvwxyz0123456789-")] == '\0';
}

static bool set_s3(struct ps_store_url *u, const char *key, const char *value)
{
    if (strcmp(key, "region") == 0)
        return is_region(value) && store_url_copy(u->region, sizeof(u->region), value);
    if (strcmp(key, "endpoint") == 0)
        return set_endpoint(u, value);
    return strcmp(key, "path_style") == 0 && set_flag(value, &u->path_style);
}

/* What both have. */
static bool set_any(struct ps_store_url *u, const char *key, const char *value)
{
    if (strcmp(key, "ca") == 0)
        return value[0] == '/' && store_url_copy(u->ca, sizeof(u->ca), value);
    return (u->kind == PS_STORE_HDFS ? set_hdfs : set_s3)(u, key, value);
}

static bool parse_query(struct ps_store_url *u, const char *query)
{
    char pairs[QUERY_BYTES], *rest = pairs, *pair;
    if (!store_url_copy(pairs, sizeof(pairs), query))
        return false;
    while ((pair = strsep(&rest, "&")) != NULL) {
        char *value = strchr(pair, '=');
        if (value == NULL)
            return false;
        *value++ = '\0';
        if (!set_any(u, pair, value))
            return false;
    }
    return true;
}

/* ---- the path ---- */

/* Whether all of a path can be named in a store, and no part of it leads elsewhere. */
static bool is_path(const char *path)
{
    for (const char *part = path; *part == '/';) {
        const size_t bytes = strcspn(++part, "/");
        const bool is_dots = (bytes == 1 && part[0] == '.') || (bytes == 2 && strncmp(part, "..", 2) == 0);
        if ((bytes == 0 && *part != '\0') || is_dots)
            return false;
        for (size_t i = 0; i < bytes; i++)
            if (!is_plain(part[i]) && !strchr("=+@:,", part[i]))
                return false;
        part += bytes;
    }
    return true;
}

static bool is_bucket(const char *name, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= '0' && name[i] <= '9') ||
              strchr("-.", name[i])))
            return false;
    return bytes >= 3 && bytes <= 63;
}

static bool is_port(const char *text, size_t bytes)
{
    return bytes > 0 && bytes <= 5 && strspn(text, "0123456789") >= bytes;
}

static bool set_host(struct ps_store_url *u, const struct scheme *s, const char *host, size_t bytes,
                     char *text)
{
    if (s->kind == PS_STORE_S3) {
        if (!is_bucket(host, bytes))
            return refuse(text, u->directory, "a bucket's name has 3 to 63 small letters, digits, - and .");
        (void)snprintf(u->bucket, sizeof(u->bucket), "%.*s", (int)bytes, host);
        return true;
    }
    if (!is_host(host, bytes))
        return refuse(text, u->directory, "write hdfs://NAMENODE:PORT/PATH, without a password");
    const char *port = memrchr(host, ':', bytes);
    if (!port || port == host || !is_port(port + 1, (size_t)(host + bytes - port - 1)) || bytes > 200)
        return refuse(text, u->directory,
                      "name the port of WebHDFS, for instance hdfs://namenode:9870/path (HttpFS: 14000)");
    (void)snprintf(u->endpoint, sizeof(u->endpoint), "%s%.*s", s->http, (int)bytes, host);
    return true;
}

static bool parse_remote(const struct scheme *s, const char *url, struct ps_store_url *u, char *text)
{
    const size_t scheme_bytes = strlen(s->prefix);
    const char *query = strchr(url, '?');
    size_t bytes = query ? (size_t)(query - url) : strlen(url);
    while (bytes > scheme_bytes && url[bytes - 1] == '/')
        bytes--;
    u->kind = s->kind;
    u->path_style = -1;
    if (bytes >= sizeof(u->directory))
        return refuse(text, url, "the URL is too long");
    (void)snprintf(u->directory, sizeof(u->directory), "%.*s", (int)bytes, url);
    const char *host = u->directory + scheme_bytes;
    u->root_bytes = scheme_bytes + strcspn(host, "/");
    if (!set_host(u, s, host, strcspn(host, "/"), text))
        return false;
    if (!is_path(u->directory + u->root_bytes))
        return refuse(text, url,
                      "its path may have letters, digits and -._~=+@:, in parts other than . and ..");
    if (query && !parse_query(u, query + 1))
        return refuse(text, url,
                      s->kind == PS_STORE_S3
                          ? "after ? it may have endpoint=http(s)://HOST:PORT, region=R, path_style=0 or 1 "
                            "and ca=/FILE"
                          : "after ? it may have user.name=NAME, auth=negotiate and ca=/FILE");
    return true;
}

bool ps_store_url_parse(const char *url, struct ps_store_url *out, char *text)
{
    struct ps_store_url u = {.kind = PS_STORE_LOCAL};
    if (!ps_store_url_is_remote(url)) {
        if (!store_url_copy(u.directory, sizeof(u.directory), url))
            return refuse(text, url, "a path has 1 to 511 bytes");
        *out = u;
        return true;
    }
    const struct scheme *s = scheme_of(url);
    if (!s)
        return refuse(text, url, "stores are hdfs://, webhdfs://, swebhdfs://, s3:// or a path");
    if (!parse_remote(s, url, &u, text))
        return false;
    *out = u;
    return true;
}

/* ---- directories below ---- */

bool ps_store_url_join(const char *directory, const char *name, char *out, size_t out_bytes)
{
    const size_t all = strlen(directory);
    size_t bytes = ps_store_url_is_remote(directory) ? strcspn(directory, "?") : all;
    const char *query = directory + bytes;
    while (bytes > 1 && directory[bytes - 1] == '/')
        bytes--;
    return (size_t)snprintf(out, out_bytes, "%.*s/%s%s", (int)bytes, directory, name, query) < out_bytes;
}

bool ps_store_url_split(const char *path, char *directory, size_t directory_bytes, uint64_t *id)
{
    const bool is_remote = ps_store_url_is_remote(path);
    size_t bytes = is_remote ? strcspn(path, "?") : strlen(path);
    const char *query = path + bytes, *root = is_remote ? strstr(path, "://") + 3 : path;
    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    if (bytes == 0 || bytes + strlen(query) + 2 > directory_bytes)
        return false;
    memcpy(directory, path, bytes);
    directory[bytes] = '\0';
    char *slash = strrchr(directory + (root - path), '/');
    const char *name = slash != NULL ? slash + 1 : directory;
    *id = ps_name_published(name);
    if (*id == 0)
        *id = ps_name_cluster(name);
    if (*id != 0 && slash == NULL)
        memcpy(directory, ".", 2);
    else if (*id != 0)
        slash[slash == directory ? 1 : 0] = '\0';
    memcpy(directory + strlen(directory), query, strlen(query) + 1);
    return true;
}

static bool is_same_store(const struct ps_store_url *a, const struct ps_store_url *b)
{
    return strcmp(a->region, b->region) == 0 && strcmp(a->endpoint, b->endpoint) == 0 &&
           strcmp(a->user, b->user) == 0 && strcmp(a->ca, b->ca) == 0 && a->negotiate == b->negotiate &&
           a->path_style == b->path_style;
}

bool ps_store_url_allows(const char *allowed, const char *url, char *out, size_t out_bytes)
{
    struct ps_store_url base, asked;
    char ignored[PS_TEXT_BYTES];
    if (!ps_store_url_is_remote(allowed) || !ps_store_url_is_remote(url) ||
        !ps_store_url_parse(allowed, &base, ignored) || !ps_store_url_parse(url, &asked, ignored))
        return false;
    const size_t bytes = strlen(base.directory);
    const char *query = strchr(allowed, '?');
    if (strncmp(base.directory, asked.directory, bytes) != 0 || !strchr("/", asked.directory[bytes]) ||
        (strchr(url, '?') && !is_same_store(&base, &asked)))
        return false;
    return (size_t)snprintf(out, out_bytes, "%s%s", asked.directory, query ? query : "") < out_bytes;
}
