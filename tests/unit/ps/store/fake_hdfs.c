#include "fake_hdfs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t fake_hdfs_find(const struct fake_hdfs *h, const char *path)
{
    uint32_t i = 0;
    while (i < FAKE_HDFS_ENTRIES_MAX && strcmp(h->entries[i].path, path) != 0)
        i++;
    return i;
}

static uint32_t fake_hdfs_add(struct fake_hdfs *h, const char *path, bool is_directory)
{
    uint32_t i = fake_hdfs_find(h, path);
    if (i == FAKE_HDFS_ENTRIES_MAX)
        i = fake_hdfs_find(h, "");
    if (i == FAKE_HDFS_ENTRIES_MAX)
        abort();
    free(h->entries[i].data);
    h->entries[i].data = NULL;
    h->entries[i].bytes = 0;
    h->entries[i].is_directory = is_directory;
    (void)snprintf(h->entries[i].path, sizeof(h->entries[i].path), "%s", path);
    return i;
}

static void fake_hdfs_drop(struct fake_hdfs *h, uint32_t i)
{
    free(h->entries[i].data);
    memset(&h->entries[i], 0, sizeof(h->entries[i]));
}

static void refuse(struct http_server_answer *a, int status, const char *exception)
{
    http_server_say(a, status,
                    "{\"RemoteException\":{\"exception\":\"%s\",\"message\":\"no\\nat java.lang\"}}",
                    exception);
}

static void say_whether(struct http_server_answer *a, bool is_done)
{
    http_server_say(a, 200, "{\"boolean\":%s}", is_done ? "true" : "false");
}

static void make_directories(struct fake_hdfs *h, const char *path, struct http_server_answer *a)
{
    char parent[300];
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        (void)snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path);
        if (fake_hdfs_find(h, parent) == FAKE_HDFS_ENTRIES_MAX)
            (void)fake_hdfs_add(h, parent, true);
    }
    if (fake_hdfs_find(h, path) == FAKE_HDFS_ENTRIES_MAX)
        (void)fake_hdfs_add(h, path, true);
    say_whether(a, true);
}

static void say_status(const struct fake_hdfs *h, uint32_t i, struct http_server_answer *a)
{
    if (i == FAKE_HDFS_ENTRIES_MAX)
        refuse(a, 404, "FileNotFoundException");
    else
        http_server_say(a, 200, "{\"FileStatus\":{\"length\":%zu,\"modificationTime\":%u,\"type\":\"%s\"}}",
                        h->entries[i].bytes, 100000 + h->entries[i].written,
                        h->entries[i].is_directory ? "DIRECTORY" : "FILE");
}

/* What the path names in this directory; NULL: it is not directly in it. */
static const char *name_in(const char *directory, const char *path)
{
    const size_t bytes = strlen(directory);
    if (strncmp(path, directory, bytes) != 0 || path[bytes] != '/' || strchr(path + bytes + 1, '/'))
        return NULL;
    return path + bytes + 1;
}

/* The first name after `after`; NULL: there is none. */
static const char *next_name(const struct fake_hdfs *h, const char *directory, const char *after)
{
    const char *next = NULL;
    for (uint32_t i = 0; i < FAKE_HDFS_ENTRIES_MAX; i++) {
        const char *name = name_in(directory, h->entries[i].path);
        if (name && strcmp(name, after) > 0 && (!next || strcmp(name, next) < 0))
            next = name;
    }
    return next;
}

static void list(const struct fake_hdfs *h, const struct http_server_request *r, const char *path,
                 struct http_server_answer *a)
{
    char after[300] = "", json[8192] = "";
    const char *name;
    size_t at = 0;
    if (fake_hdfs_find(h, path) == FAKE_HDFS_ENTRIES_MAX) {
        refuse(a, 404, "FileNotFoundException");
        return;
    }
    (void)http_server_parameter(r, "startAfter", after, sizeof(after));
    name = next_name(h, path, after);
    for (uint32_t i = 0; i < FAKE_HDFS_PAGE && name; i++) {
        at += (size_t)snprintf(json + at, sizeof(json) - at, "%s{\"pathSuffix\":\"%s\"}", i > 0 ? "," : "",
                               name);
        name = next_name(h, path, name);
    }
    http_server_say(a, 200,
                    "{\"DirectoryListing\":{\"partialListing\":{\"FileStatuses\":{\"FileStatus\":[%s]}},"
                    "\"remainingEntries\":%d}}",
                    json, name != NULL);
}

/* A directory takes all below it along. */
static void rename_entry(struct fake_hdfs *h, const char *from, const char *to, struct http_server_answer *a)
{
    const size_t bytes = strlen(from);
    const bool is_done =
        fake_hdfs_find(h, from) < FAKE_HDFS_ENTRIES_MAX && fake_hdfs_find(h, to) == FAKE_HDFS_ENTRIES_MAX;
    for (uint32_t i = 0; i < FAKE_HDFS_ENTRIES_MAX && is_done; i++) {
        char path[300];
        if (strncmp(h->entries[i].path, from, bytes) != 0 || !strchr("/", h->entries[i].path[bytes]))
            continue;
        (void)snprintf(path, sizeof(path), "%s%s", to, h->entries[i].path + bytes);
        memcpy(h->entries[i].path, path, sizeof(path));
    }
    say_whether(a, is_done);
}

static void delete_entry(struct fake_hdfs *h, const char *path, struct http_server_answer *a)
{
    const uint32_t i = fake_hdfs_find(h, path);
    if (i < FAKE_HDFS_ENTRIES_MAX && next_name(h, path, "")) {
        refuse(a, 403, "PathIsNotEmptyDirectoryException");
        return;
    }
    say_whether(a, i < FAKE_HDFS_ENTRIES_MAX);
    if (i < FAKE_HDFS_ENTRIES_MAX)
        fake_hdfs_drop(h, i);
}

/* Nobody listens at port 1. */
static void send_to_datanode(struct fake_hdfs *h, const struct http_server_request *r,
                             struct http_server_answer *a)
{
    const uint16_t port = h->dead > 0 ? 1 : h->port;
    h->dead -= h->dead > 0;
    a->status = 307;
    (void)snprintf(a->headers, sizeof(a->headers), "Location: http://%s:%u%.800s&data=true\r\n",
                   h->datanode ? h->datanode : "127.0.0.1", port, r->target);
}

static void write_file(struct fake_hdfs *h, const struct http_server_request *r, const char *path,
                       struct http_server_answer *a)
{
    const uint32_t i = fake_hdfs_add(h, path, false);
    const size_t bytes = r->body_bytes - (r->body_bytes < h->lost ? r->body_bytes : h->lost);
    h->entries[i].data = malloc(bytes + 1);
    if (!h->entries[i].data)
        abort();
    memcpy(h->entries[i].data, r->body, bytes);
    h->entries[i].bytes = bytes;
    h->entries[i].written = h->written++;
    a->status = 201;
}

static void read_file(const struct fake_hdfs *h, const struct http_server_request *r, uint32_t i,
                      struct http_server_answer *a)
{
    char text[32];
    const size_t offset =
        http_server_parameter(r, "offset", text, sizeof(text)) ? strtoul(text, NULL, 10) : 0;
    size_t bytes = http_server_parameter(r, "length", text, sizeof(text)) ? strtoul(text, NULL, 10) : 0;
    if (offset > h->entries[i].bytes)
        bytes = 0;
    else if (bytes > h->entries[i].bytes - offset)
        bytes = h->entries[i].bytes - offset;
    a->status = 200;
    a->body_bytes = bytes;
    a->body = malloc(bytes + 1);
    if (!a->body)
        abort();
    if (bytes > 0)
        memcpy(a->body, h->entries[i].data + offset, bytes);
}

void fake_hdfs_handle(void *arg, const struct http_server_request *r, struct http_server_answer *a)
{
    static const char root[] = "/webhdfs/v1";
    struct fake_hdfs *h = arg;
    char target[400], op[32] = "", text[300] = "";
    const char *path = target + strlen(root), *query = strchr(r->target, '?');
    http_server_path(r, target, sizeof(target));
    (void)snprintf(h->last_query, sizeof(h->last_query), "%s", query ? query : "");
    (void)http_server_parameter(r, "op", op, sizeof(op));
    const bool is_data = http_server_parameter(r, "data", text, sizeof(text));
    const uint32_t i = fake_hdfs_find(h, path);

    if (h->exception)
        refuse(a, h->exception_status, h->exception);
    else if (strncmp(target, root, strlen(root)) != 0)
        http_server_say(a, 404, "not here");
    else if (strcmp(op, "MKDIRS") == 0)
        make_directories(h, path, a);
    else if (strcmp(op, "GETFILESTATUS") == 0)
        say_status(h, i, a);
    else if (strcmp(op, "LISTSTATUS_BATCH") == 0)
        list(h, r, path, a);
    else if (strcmp(op, "RENAME") == 0 && http_server_parameter(r, "destination", text, sizeof(text)))
        rename_entry(h, path, text, a);
    else if (strcmp(op, "DELETE") == 0)
        delete_entry(h, path, a);
    else if (strcmp(op, "OPEN") == 0 && i == FAKE_HDFS_ENTRIES_MAX)
        refuse(a, 404, "FileNotFoundException");
    else if (!is_data)
        send_to_datanode(h, r, a);
    else if (strcmp(op, "OPEN") == 0)
        read_file(h, r, i, a);
    else
        write_file(h, r, path, a);
}

void fake_hdfs_clear(struct fake_hdfs *h)
{
    for (uint32_t i = 0; i < FAKE_HDFS_ENTRIES_MAX; i++)
        fake_hdfs_drop(h, i);
}
