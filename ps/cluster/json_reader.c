#include "ps/cluster/json_reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/capability.h"

#define ID_BYTES 17u

void ps_json_fault(struct ps_json_reader *r, const char *what, const char *key)
{
    if (r->is_good)
        (void)snprintf(r->text, PS_CLUSTER_TEXT_BYTES, "%s: %s", key, what);
    r->is_good = false;
}

uint64_t ps_json_number(struct ps_json_reader *r, const json_t *object, const char *key, uint64_t max)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > max) {
        ps_json_fault(r, "is no number that it can be", key);
        return 0;
    }
    return (uint64_t)json_integer_value(value);
}

uint64_t ps_json_id(struct ps_json_reader *r, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text == NULL || strlen(text) != ID_BYTES - 1 || strspn(text, "0123456789abcdef") != ID_BYTES - 1) {
        ps_json_fault(r, "is not 16 hexadecimal digits", key);
        return 0;
    }
    return strtoull(text, NULL, 16);
}

void ps_json_text(struct ps_json_reader *r, const json_t *object, const char *key, char *out,
                  size_t out_bytes)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text == NULL || strlen(text) >= out_bytes)
        ps_json_fault(r, "is no text, or too long a one", key);
    else
        (void)snprintf(out, out_bytes, "%s", text);
}

void ps_json_name(struct ps_json_reader *r, const json_t *object, const char *key,
                  char out[PS_CLUSTER_NAME_BYTES])
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text == NULL || text[0] == '\0' || strlen(text) >= PS_CLUSTER_NAME_BYTES)
        ps_json_fault(r, "is no name that it can be", key);
    else
        (void)snprintf(out, PS_CLUSTER_NAME_BYTES, "%s", text);
}

const json_t *ps_json_list(struct ps_json_reader *r, const json_t *root, const char *key, size_t max)
{
    const json_t *array = json_object_get(root, key);
    if (!json_is_array(array) || json_array_size(array) > max)
        ps_json_fault(r, "is no list, or too long a one", key);
    return array;
}

json_t *ps_json_load(struct ps_json_reader *r, const char *json, size_t bytes)
{
    json_error_t error;
    json_t *root = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        ps_json_fault(r, error.text, "not JSON");
        return NULL;
    }
    const uint64_t format = ps_json_number(r, root, "format", INT64_MAX);
    if (r->is_good && (format < PS_CLUSTER_FORMAT_1 || format > PS_CLUSTER_FORMAT)) {
        (void)snprintf(r->text, PS_CLUSTER_TEXT_BYTES,
                       "format: is %" PRIu64
                       ", and this version of millraced (%s) reads up to %d: install the one that "
                       "the other nodes have",
                       format, mr_version_text(), PS_CLUSTER_FORMAT);
        r->is_good = false;
    }
    return root;
}

char *ps_json_print(json_t *root)
{
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

json_t *ps_json_id_of(uint64_t id)
{
    char text[ID_BYTES];
    (void)snprintf(text, sizeof(text), "%016" PRIx64, id);
    return json_string(text);
}
