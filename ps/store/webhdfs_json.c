#include "ps/store/webhdfs_json.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

bool webhdfs_json_boolean(const char *json, size_t bytes, bool *value)
{
    json_t *root = json_loadb(json, bytes, 0, NULL);
    const json_t *boolean = json_object_get(root, "boolean");
    const bool is_good = json_is_boolean(boolean);
    if (is_good)
        *value = json_is_true(boolean);
    json_decref(root);
    return is_good;
}

bool webhdfs_json_status(const char *json, size_t bytes, struct webhdfs_status *out)
{
    json_t *root = json_loadb(json, bytes, 0, NULL);
    const json_t *status = json_object_get(root, "FileStatus");
    const json_t *length = json_object_get(status, "length");
    const char *type = json_string_value(json_object_get(status, "type"));
    const bool is_good = type && json_is_integer(length) && json_integer_value(length) >= 0;
    if (is_good)
        *out = (struct webhdfs_status){.bytes = (uint64_t)json_integer_value(length),
                                       .written_ms =
                                           json_integer_value(json_object_get(status, "modificationTime")),
                                       .is_directory = strcmp(type, "DIRECTORY") == 0,
                                       .is_link = strcmp(type, "SYMLINK") == 0};
    json_decref(root);
    return is_good;
}

bool webhdfs_json_listing(const char *json, size_t bytes, void (*visit)(void *arg, const char *name),
                          void *arg, char last[WEBHDFS_NAME_BYTES], bool *is_last)
{
    json_t *root = json_loadb(json, bytes, 0, NULL), *entry;
    const json_t *listing = json_object_get(root, "DirectoryListing");
    const json_t *page = json_object_get(json_object_get(listing, "partialListing"), "FileStatuses");
    const json_t *statuses = json_object_get(page, "FileStatus");
    const json_t *left = json_object_get(listing, "remainingEntries");
    const bool is_good = json_is_array(statuses) && json_is_integer(left);
    size_t i;
    json_array_foreach(statuses, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "pathSuffix"));
        if (!is_good || !name || strlen(name) >= WEBHDFS_NAME_BYTES)
            continue;
        visit(arg, name);
        (void)snprintf(last, WEBHDFS_NAME_BYTES, "%s", name);
    }
    if (is_good)
        *is_last = json_array_size(statuses) == 0 || json_integer_value(left) <= 0;
    json_decref(root);
    return is_good;
}

bool webhdfs_json_version(const char *json, size_t bytes, char *version, size_t version_bytes)
{
    json_t *root = json_loadb(json, bytes, 0, NULL);
    const json_t *bean = json_array_get(json_object_get(root, "beans"), 0);
    const char *text = json_string_value(json_object_get(bean, "SoftwareVersion"));
    if (text)
        (void)snprintf(version, version_bytes, "%s", text);
    json_decref(root);
    return text != NULL;
}

bool webhdfs_json_error(const char *json, char exception[WEBHDFS_WORD_BYTES],
                        char message[WEBHDFS_MESSAGE_BYTES])
{
    json_t *root = json_loads(json, 0, NULL);
    const json_t *remote = json_object_get(root, "RemoteException");
    const char *name = json_string_value(json_object_get(remote, "exception"));
    const char *text = json_string_value(json_object_get(remote, "message"));
    if (name)
        (void)snprintf(exception, WEBHDFS_WORD_BYTES, "%s", name);
    if (name)
        (void)snprintf(message, WEBHDFS_MESSAGE_BYTES, "%.*s", (int)strcspn(text ? text : "", "\r\n"),
                       text ? text : "");
    json_decref(root);
    return name != NULL;
}
