#include "ps/core/history.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "dataplane/wire/format/op.h"
#include "ps/checkpoint/state_file.h"

#define LINE_BYTES 48u
#define HEX_DIGITS (2u * sizeof(struct mr_feature))
#define TEXT_BYTES                                                                                           \
    (LINE_BYTES * (3u * MR_FEATURE_MAX + 6u) + HEX_DIGITS * MR_FEATURE_MAX + PS_HISTORY_DIRECTORY_BYTES)

static_assert(TEXT_BYTES <= PS_HISTORY_BYTES_MAX, "a copy of it has room");

/* ---- reading ---- */

/* The directory is the rest of the line. */
static bool read_back(struct ps_history *h, const char *line)
{
    int at = 0;
    if (sscanf(line, "back %" SCNu64 " %" SCNu64 " %n", &h->back_id, &h->back_newest, &at) != 2 || at == 0)
        return false;
    size_t bytes = strcspn(line + at, "\n");
    if (bytes >= sizeof(h->back_directory))
        return false;
    memcpy(h->back_directory, line + at, bytes);
    h->back_directory[bytes] = '\0';
    return true;
}

/* The descriptor's bytes, two digits each, are the rest of the line. */
static bool read_altered(struct ps_history *h, const char *line)
{
    struct mr_feature feature;
    uint32_t id;
    int at = 0;
    if (sscanf(line, "altered %" SCNu32 " %n", &id, &at) != 1 || at == 0 || id < 1 || id > MR_FEATURE_ID_MAX)
        return false;
    const char *digits = line + at;
    if (strspn(digits, "0123456789abcdef") != HEX_DIGITS || digits[HEX_DIGITS] != '\n')
        return false;
    for (size_t i = 0; i < sizeof(feature); i++) {
        const char byte[3] = {digits[2 * i], digits[2 * i + 1], '\0'};
        ((uint8_t *)&feature)[i] = (uint8_t)strtoul(byte, NULL, 16);
    }
    if (mr_feature_check(&feature) != NULL || h->altered_count == MR_FEATURE_MAX ||
        ps_history_find_altered(h, id) != NULL)
        return false;
    ps_history_altered(h, id, &feature);
    return true;
}

static bool read_line(struct ps_history *h, const char *line)
{
    struct ps_replaced r;
    int end = 0;
    if (sscanf(line, "lineage %" SCNx32 "%n", &h->lineage, &end) == 1 && line[end] == '\n')
        return true;
    if (sscanf(line, "features %" SCNu32 "%n", &h->last_feature, &end) == 1 && line[end] == '\n')
        return h->last_feature <= MR_FEATURE_ID_MAX;
    if (sscanf(line, "freeze %" SCNu32 "%n", &h->freeze, &end) == 1 && line[end] == '\n')
        return h->freeze <= MR_FREEZE_ALL;
    if (sscanf(line, "restores %" SCNu32 " %" SCNu32 "%n", &h->restores, &h->whole, &end) == 2 &&
        line[end] == '\n')
        return h->whole <= h->restores;
    if (sscanf(line, "replaced %" SCNu32 " %" SCNu32 "%n", &r.id, &r.restores, &end) == 2 &&
        line[end] == '\n' && h->replaced_count < MR_FEATURE_MAX && r.restores <= h->restores) {
        h->replaced[h->replaced_count++] = r;
        return true;
    }
    if (strncmp(line, "log\n", 4) == 0) {
        h->has_log = true;
        return true;
    }
    uint32_t dropped;
    if (sscanf(line, "dropped %" SCNu32 "%n", &dropped, &end) == 1 && line[end] == '\n' &&
        dropped <= MR_FEATURE_ID_MAX) {
        ps_history_dropped(h, dropped);
        return true;
    }
    if (strncmp(line, "altered ", 8) == 0)
        return read_altered(h, line);
    return strncmp(line, "back ", 5) == 0 && read_back(h, line);
}

static bool read_text(struct ps_history *h, const char *text)
{
    *h = (struct ps_history){.lineage = 0};
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1)
        if (strchr(line, '\n') == NULL || !read_line(h, line))
            return false;
    return h->lineage != 0;
}

static enum mr_status history_begin(struct ps_history *h, char *error, size_t error_bytes)
{
    *h = (struct ps_history){.lineage = 0};
    if (getrandom(&h->lineage, sizeof(h->lineage), 0) != (ssize_t)sizeof(h->lineage)) {
        snprintf(error, error_bytes, "no random numbers from the kernel: %s", strerror(errno));
        return MR_INTERNAL;
    }
    h->lineage |= 1;
    return MR_OK;
}

static enum mr_status open_file(const struct ps_store *store, const char *directory, struct ps_history *h,
                                char *text, char *error, size_t error_bytes)
{
    bool is_there;
    enum mr_status status = ps_state_directory(store, directory, error, error_bytes);
    if (status == MR_OK)
        status = ps_state_file_read(store, directory, PS_HISTORY_NAME, text, TEXT_BYTES, &is_there, error,
                                    error_bytes);
    if (status != MR_OK)
        return status;
    if (is_there) {
        if (read_text(h, text))
            return MR_OK;
        snprintf(error, error_bytes,
                 "%s/" PS_HISTORY_NAME
                 ": not as a node writes it: take it from a backup; without the file clients "
                 "of before are not told of restores",
                 directory);
        return MR_IO_ERROR;
    }
    status = history_begin(h, error, error_bytes);
    return status == MR_OK ? ps_history_write(store, directory, h, error, error_bytes) : status;
}

enum mr_status ps_history_open(const struct ps_store *store, const char *directory,
                               struct ps_history *history, char *error, size_t error_bytes)
{
    if (directory[0] == '\0')
        return history_begin(history, error, error_bytes);
    char *text = malloc(TEXT_BYTES);
    if (text == NULL) {
        snprintf(error, error_bytes, "no memory left");
        return MR_NO_MEMORY;
    }
    enum mr_status status = open_file(store, directory, history, text, error, error_bytes);
    free(text);
    return status;
}

/* ---- writing ---- */

static int print_altered(const struct ps_altered *altered, char *text, size_t text_bytes)
{
    int at = snprintf(text, text_bytes, "altered %" PRIu32 " ", altered->id);
    for (size_t i = 0; i < sizeof(altered->feature); i++)
        at += snprintf(text + at, text_bytes - (size_t)at, "%02x", ((const uint8_t *)&altered->feature)[i]);
    return at + snprintf(text + at, text_bytes - (size_t)at, "\n");
}

enum mr_status ps_history_write(const struct ps_store *store, const char *directory,
                                const struct ps_history *h, char *error, size_t error_bytes)
{
    if (directory[0] == '\0')
        return MR_OK;
    char *text = malloc(TEXT_BYTES);
    if (text == NULL) {
        snprintf(error, error_bytes, "no memory left");
        return MR_NO_MEMORY;
    }
    int at = snprintf(text, TEXT_BYTES,
                      "lineage %08" PRIx32 "\nfeatures %" PRIu32 "\nrestores %" PRIu32 " %" PRIu32 "\n",
                      h->lineage, h->last_feature, h->restores, h->whole);
    if (h->freeze != MR_FREEZE_OFF)
        at += snprintf(text + at, TEXT_BYTES - (size_t)at, "freeze %" PRIu32 "\n", h->freeze);
    if (h->has_log) /* a version that knows no log refuses the file, rather than begin without its pushes */
        at += snprintf(text + at, TEXT_BYTES - (size_t)at, "log\n");
    if (h->back_id != 0) {
        at += snprintf(text + at, TEXT_BYTES - (size_t)at, "back %" PRIu64 " %" PRIu64 " %s\n", h->back_id,
                       h->back_newest, h->back_directory);
    }
    for (uint32_t i = 0; i < h->replaced_count; i++) {
        at += snprintf(text + at, TEXT_BYTES - (size_t)at, "replaced %" PRIu32 " %" PRIu32 "\n",
                       h->replaced[i].id, h->replaced[i].restores);
    }
    for (uint32_t i = 0; i < h->dropped_count; i++)
        at += snprintf(text + at, TEXT_BYTES - (size_t)at, "dropped %" PRIu32 "\n", h->dropped[i]);
    for (uint32_t i = 0; i < h->altered_count; i++)
        at += print_altered(&h->altered[i], text + at, TEXT_BYTES - (size_t)at);
    enum mr_status status = ps_state_file_write(store, directory, PS_HISTORY_NAME, text, error, error_bytes);
    free(text);
    return status;
}

/* ---- restores ---- */

void ps_history_restored(struct ps_history *h, const char *directory, uint64_t id, uint64_t newest)
{
    h->whole = ++h->restores;
    h->replaced_count = 0;
    h->back_id = id;
    h->back_newest = newest;
    snprintf(h->back_directory, sizeof(h->back_directory), "%s", directory);
}

bool ps_history_goes_back(const struct ps_history *h, uint64_t newest)
{
    return h->back_id != 0 && newest <= h->back_newest;
}

static struct ps_replaced *history_find(struct ps_history *h, uint32_t id)
{
    uint32_t i = 0;
    while (i < h->replaced_count && h->replaced[i].id != id)
        i++;
    return &h->replaced[i];
}

void ps_history_replaced(struct ps_history *h, uint32_t id)
{
    struct ps_replaced *r = history_find(h, id);
    if (r == &h->replaced[h->replaced_count]) {
        assert(h->replaced_count < MR_FEATURE_MAX); /* features that are there, which are no more */
        h->replaced_count++;
    }
    *r = (struct ps_replaced){.id = id, .restores = h->restores};
}

/* ---- drops ---- */

static uint32_t find_dropped(const struct ps_history *h, uint32_t id)
{
    uint32_t i = 0;
    while (i < h->dropped_count && h->dropped[i] != id)
        i++;
    return i;
}

static void forget_dropped(struct ps_history *h, uint32_t at)
{
    h->dropped_count--;
    memmove(&h->dropped[at], &h->dropped[at + 1], (h->dropped_count - at) * sizeof(*h->dropped));
}

/* Its number never comes again, nor do pushes for it. */
static void forget_replaced(struct ps_history *h, uint32_t id)
{
    struct ps_replaced *r = history_find(h, id);
    if (r != &h->replaced[h->replaced_count])
        *r = h->replaced[--h->replaced_count];
}

void ps_history_dropped(struct ps_history *h, uint32_t id)
{
    forget_replaced(h, id);
    if (h->dropped_count == MR_FEATURE_MAX)
        forget_dropped(h, 0);
    h->dropped[h->dropped_count++] = (uint16_t)id;
    ps_history_not_altered(h, id);
}

void ps_history_brought_back(struct ps_history *h, uint32_t id)
{
    const uint32_t at = find_dropped(h, id);
    if (at < h->dropped_count)
        forget_dropped(h, at);
}

bool ps_history_is_dropped(const struct ps_history *h, uint32_t id)
{
    return find_dropped(h, id) < h->dropped_count;
}

/* ---- alterations ---- */

static uint32_t place_altered(const struct ps_history *h, uint32_t id)
{
    uint32_t i = 0;
    while (i < h->altered_count && h->altered[i].id != id)
        i++;
    return i;
}

const struct mr_feature *ps_history_find_altered(const struct ps_history *h, uint32_t id)
{
    const uint32_t at = place_altered(h, id);
    return at < h->altered_count ? &h->altered[at].feature : NULL;
}

void ps_history_altered(struct ps_history *h, uint32_t id, const struct mr_feature *feature)
{
    ps_history_not_altered(h, id);
    if (h->altered_count == MR_FEATURE_MAX) /* the oldest are of features that are no more */
        ps_history_not_altered(h, h->altered[0].id);
    h->altered[h->altered_count++] = (struct ps_altered){.id = id, .feature = *feature};
}

void ps_history_not_altered(struct ps_history *h, uint32_t id)
{
    const uint32_t at = place_altered(h, id);
    if (at == h->altered_count)
        return;
    h->altered_count--;
    memmove(&h->altered[at], &h->altered[at + 1], (h->altered_count - at) * sizeof(*h->altered));
}

uint32_t ps_history_taken_back(const struct ps_history *h, uint32_t id)
{
    for (uint32_t i = 0; i < h->replaced_count; i++)
        if (h->replaced[i].id == id)
            return h->replaced[i].restores;
    return h->whole;
}
