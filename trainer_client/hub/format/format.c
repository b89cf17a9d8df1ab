#include "trainer_client/hub/format/format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/hub/format/built_in_formats.h"
#include "trainer_client/hub/format/description.h"
#include "trainer_client/hub/format/sample_block.h"

const char *hub_format_wrong_part(bool has_labels, bool held_out)
{
    if (has_labels)
        return held_out ? "it has labels: what is read once and has labels is for the part for training"
                        : NULL;
    return held_out
               ? NULL
               : "it has no labels to train on: score its samples with a plan of the held-out part, which "
                 "has all of them";
}

const char *hub_format_take_block(struct hub_format *shape, const struct hub_block_head *head, bool held_out)
{
    const bool has_no_labels = (head->flags & HUB_BLOCK_NO_LABELS) != 0;
    const char *wrong = hub_format_wrong_part(!has_no_labels, held_out);
    if (wrong != NULL)
        return wrong;
    shape->slots = head->slots;
    shape->dense = head->dense;
    shape->has_no_labels = has_no_labels;
    shape->has_weights = (head->flags & HUB_BLOCK_WEIGHTS) != 0;
    return NULL;
}

const char *hub_format_check_block(const struct hub_format *shape, const struct hub_block_head *head)
{
    if (head->slots != shape->slots)
        return "it has another number of slots than the first block";
    if (head->dense != shape->dense)
        return "it has another number of dense values than the first block";
    if (((head->flags & HUB_BLOCK_NO_LABELS) != 0) != shape->has_no_labels)
        return "labels are either in every block or in none";
    return ((head->flags & HUB_BLOCK_WEIGHTS) != 0) == shape->has_weights
               ? NULL
               : "weights are either in every block or in none";
}

void hub_format_free(struct hub_format *f)
{
    if (f == NULL)
        return;
    free(f->description);
    free(f);
}

const char *hub_format_slot_name(const struct hub_format *f, uint32_t slot)
{
    return f->description->slots[slot].name;
}

const char *hub_format_dense_name(const struct hub_format *f, uint32_t i)
{
    return f->description->dense[i].name;
}

bool hub_format_has_names(const struct hub_format *f)
{
    return f->description->layout == HUB_DELIMITED && f->description->header == HUB_HEADER_NAMES;
}

struct hub_format *hub_format_bind(const struct hub_format *f, const char *line, size_t bytes, char *reason)
{
    struct hub_format *bound = malloc(sizeof(*bound));
    struct hub_description *d = malloc(sizeof(*d));
    snprintf(reason, HUB_REASON_BYTES, "no memory");
    if (bound != NULL && d != NULL) {
        *bound = *f;
        *d = *f->description;
        bound->description = d;
        if (hub_delimited_bind(d, line, bytes, reason))
            return bound;
    }
    free(d);
    free(bound);
    return NULL;
}

enum hub_parse hub_format_parse(const struct hub_format *f, const char *line, size_t bytes,
                                uint64_t line_number, struct hub_sample *sample, char *reason)
{
    return f->description->layout == HUB_LIBSVM
               ? hub_libsvm_parse(f->description, line, bytes, line_number, sample, reason)
               : hub_delimited_parse(f->description, line, bytes, line_number, sample, reason);
}

/* ---- all formats ---- */

static bool add_built_in(struct hub_formats *formats, const struct hub_built_in_format *built_in)
{
    char error[HUB_FORMAT_ERROR_BYTES];
    FILE *file = fmemopen((void *)(uintptr_t)built_in->text, strlen(built_in->text), "r");
    if (file == NULL)
        return false;
    struct hub_format *format = NULL;
    if (hub_format_read(file, built_in->path, &format, error) == MR_OK) {
        format->is_built_in = true;
        formats->all[formats->count++] = format;
    }
    fclose(file);
    return format != NULL;
}

struct hub_formats *hub_formats_create(void)
{
    struct hub_formats *formats = calloc(1, sizeof(*formats));
    for (uint32_t i = 0; formats != NULL && hub_built_in_formats[i].text != NULL; i++) {
        if (!add_built_in(formats, &hub_built_in_formats[i])) {
            hub_formats_destroy(formats);
            formats = NULL;
        }
    }
    return formats;
}

void hub_formats_destroy(struct hub_formats *formats)
{
    if (formats == NULL)
        return;
    for (uint32_t i = 0; i < formats->count; i++)
        hub_format_free(formats->all[i]);
    free(formats);
}

static enum mr_status format_add(struct hub_formats *formats, struct hub_format *format, const char *path,
                                 char *error)
{
    char names[HUB_FORMAT_NAMES_BYTES];
    if (hub_formats_find(formats, format->name) != NULL || strcmp(format->name, HUB_BLOCK_FORMAT) == 0) {
        snprintf(error, HUB_FORMAT_ERROR_BYTES,
                 "%.160s: format.name = \"%s\": there is such a format already; there are %s", path,
                 format->name, hub_formats_names(formats, names));
        return MR_INVALID_ARGUMENT;
    }
    if (formats->count == HUB_FORMATS_MAX) {
        snprintf(error, HUB_FORMAT_ERROR_BYTES,
                 "%.160s: there are %u formats already, the most that a hub has", path, HUB_FORMATS_MAX);
        return MR_INVALID_ARGUMENT;
    }
    formats->all[formats->count++] = format;
    return MR_OK;
}

enum mr_status hub_formats_add(struct hub_formats *formats, const char *path, char *error)
{
    struct hub_format *format = NULL;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        snprintf(error, HUB_FORMAT_ERROR_BYTES, "%.300s: %s; name a file that describes a format", path,
                 strerror(errno));
        return MR_IO_ERROR;
    }
    enum mr_status status = hub_format_read(file, path, &format, error);
    fclose(file);
    if (status != MR_OK)
        return status;
    status = format_add(formats, format, path, error);
    if (status != MR_OK)
        hub_format_free(format);
    return status;
}

const struct hub_format *hub_formats_find(const struct hub_formats *formats, const char *name)
{
    for (uint32_t i = 0; i < formats->count; i++)
        if (strcmp(formats->all[i]->name, name) == 0)
            return formats->all[i];
    return NULL;
}

const char *hub_formats_names(const struct hub_formats *formats, char *out)
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < formats->count && at < HUB_FORMAT_NAMES_BYTES; i++)
        at += (size_t)snprintf(out + at, HUB_FORMAT_NAMES_BYTES - at, "%s%s", i > 0 ? ", " : "",
                               formats->all[i]->name);
    return out;
}
