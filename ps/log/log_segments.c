#include "ps/log/log_segments.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define SEGMENT_NAME_BYTES 48u

static void segment_name(uint64_t number, uint32_t core, char out[SEGMENT_NAME_BYTES])
{
    snprintf(out, SEGMENT_NAME_BYTES, "segment-%" PRIu64 ".%03" PRIu32, number, core);
}

/* 0: it has another form. */
static uint64_t segment_number(const char *name, uint32_t *core)
{
    uint64_t number;
    char again[SEGMENT_NAME_BYTES];
    if (sscanf(name, "segment-%" SCNu64 ".%" SCNu32, &number, core) != 2)
        return 0;
    segment_name(number, *core, again);
    return strcmp(name, again) == 0 ? number : 0;
}

static bool folder_path(const char *directory, char out[PS_PATH_BYTES])
{
    return ps_path_join(directory, PS_LOG_FOLDER, out);
}

static bool segment_path(const char *directory, uint64_t number, uint32_t core, char out[PS_PATH_BYTES])
{
    char folder[PS_PATH_BYTES], name[SEGMENT_NAME_BYTES];
    segment_name(number, core, name);
    return folder_path(directory, folder) && ps_path_join(folder, name, out);
}

static enum mr_status path_too_long(const char *directory, char text[PS_TEXT_BYTES])
{
    ps_text_path(text, directory, "the path of the log's folder is too long: take a shorter directory");
    return MR_INVALID_ARGUMENT;
}

static enum mr_status segments_fail(const char *what, const char *path, int error, char text[PS_TEXT_BYTES])
{
    ps_text_io(text, what, path, -error);
    return error == -ENOMEM ? MR_NO_MEMORY : MR_IO_ERROR;
}

/* ---- the list ---- */

struct listing {
    struct ps_log_list *list;
    uint32_t capacity;
    bool has_no_memory;
};

static void list_add(void *arg, const char *name)
{
    struct listing *l = arg;
    uint32_t core;
    const uint64_t number = segment_number(name, &core);
    for (uint32_t i = 0; i < l->list->count && number != 0; i++)
        if (l->list->numbers[i] == number)
            return;
    if (number == 0)
        return;
    if (l->list->count == l->capacity) {
        const uint32_t capacity = 2 * l->capacity + 16;
        uint64_t *numbers = realloc(l->list->numbers, capacity * sizeof(*numbers));
        if (numbers == NULL) {
            l->has_no_memory = true;
            return;
        }
        l->list->numbers = numbers;
        l->capacity = capacity;
    }
    l->list->numbers[l->list->count++] = number;
}

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

enum mr_status ps_log_list(const struct ps_store *store, const char *directory, struct ps_log_list *list,
                           char text[PS_TEXT_BYTES])
{
    char folder[PS_PATH_BYTES];
    struct listing l = {.list = list};
    *list = (struct ps_log_list){.numbers = NULL};
    if (!folder_path(directory, folder))
        return path_too_long(directory, text);
    int error = store->list(store->self, folder, list_add, &l);
    if (error == 0 && l.has_no_memory)
        error = -ENOMEM;
    if (error != 0 && error != -ENOENT) {
        free(list->numbers);
        *list = (struct ps_log_list){.numbers = NULL};
        return segments_fail("cannot list", folder, error, text);
    }
    if (list->count > 0)
        qsort(list->numbers, list->count, sizeof(*list->numbers), compare_numbers);
    return MR_OK;
}

/* ---- made and removed ---- */

/* One file with its header. 0 or -errno. */
static int segment_create(const struct ps_store *store, const char *path, const struct ps_log_header *header,
                          struct ps_log_file *out)
{
    uint8_t block[PS_LOG_ALIGN] = {0};
    struct ps_log_header *h = (struct ps_log_header *)(void *)block;
    *h = *header;
    if (getrandom(&h->nonce, sizeof(h->nonce), 0) != (ssize_t)sizeof(h->nonce))
        return -errno;
    ps_log_header_seal(h);
    out->nonce = h->nonce;
    int error = store->create(store->self, path, false, &out->file);
    if (error != 0) {
        out->file = NULL;
        return error;
    }
    error = ps_store_write_all(store, out->file, block, sizeof(block), 0);
    return error != 0 ? error : store->sync(out->file);
}

static int folder_make(const struct ps_store *store, const char *directory, const char *folder)
{
    int error = store->make_directory(store->self, folder);
    if (error == -EEXIST)
        return 0;
    return error != 0 ? error : store->sync_directory(store->self, directory);
}

void ps_log_discard(const struct ps_store *store, const char *directory, uint64_t number, uint32_t core_count,
                    const struct ps_log_file *files)
{
    char path[PS_PATH_BYTES];
    for (uint32_t core = 0; core < core_count; core++) {
        if (files[core].file == NULL)
            continue;
        (void)store->close(files[core].file);
        if (segment_path(directory, number, core, path))
            (void)store->remove(store->self, path);
    }
    if (folder_path(directory, path))
        (void)store->sync_directory(store->self, path);
}

enum mr_status ps_log_create(const struct ps_store *store, const char *directory, uint64_t number,
                             uint32_t core_count, const struct ps_log_base *base,
                             const struct ps_log_cut *cuts, struct ps_log_file *files,
                             char text[PS_TEXT_BYTES])
{
    char folder[PS_PATH_BYTES], path[PS_PATH_BYTES];
    struct ps_log_header header = {
        .number = number, .core_count = core_count, .base_id = base != NULL ? base->id : PS_LOG_NO_BASE};
    memset(files, 0, core_count * sizeof(*files));
    if (!folder_path(directory, folder) || !segment_path(directory, number, core_count, path))
        return path_too_long(directory, text);
    if (base != NULL)
        snprintf(header.base_directory, sizeof(header.base_directory), "%s", base->directory);
    int error = folder_make(store, directory, folder);
    snprintf(path, sizeof(path), "%s", folder);
    for (uint32_t core = 0; core < core_count && error == 0; core++) {
        header.core = core;
        header.cut_number = cuts != NULL ? cuts[core].number : 0;
        header.cut_bytes = cuts != NULL ? cuts[core].bytes : 0;
        (void)segment_path(directory, number, core, path);
        error = segment_create(store, path, &header, &files[core]);
    }
    if (error == 0)
        error = store->sync_directory(store->self, folder);
    if (error == 0)
        return MR_OK;
    const enum mr_status status = segments_fail("cannot begin a segment of the log", path, error, text);
    ps_log_discard(store, directory, number, core_count, files);
    return status;
}

struct removal {
    const struct ps_store *store;
    const char *folder;
    uint64_t before;
    char (*names)[SEGMENT_NAME_BYTES];
    uint32_t count, capacity;
    int error;
};

static void removal_add(void *arg, const char *name)
{
    struct removal *r = arg;
    uint32_t core;
    const uint64_t number = segment_number(name, &core);
    if (number == 0 || number >= r->before)
        return;
    if (r->count == r->capacity) {
        const uint32_t capacity = 2 * r->capacity + 16;
        char(*names)[SEGMENT_NAME_BYTES] = realloc(r->names, capacity * sizeof(*names));
        if (names == NULL) {
            r->error = -ENOMEM;
            return;
        }
        r->names = names;
        r->capacity = capacity;
    }
    snprintf(r->names[r->count++], SEGMENT_NAME_BYTES, "%s", name);
}

int ps_log_remove_before(const struct ps_store *store, const char *directory, uint64_t number)
{
    char folder[PS_PATH_BYTES], path[PS_PATH_BYTES];
    if (!folder_path(directory, folder))
        return -ENAMETOOLONG;
    struct removal r = {.store = store, .folder = folder, .before = number};
    int error = store->list(store->self, folder, removal_add, &r);
    r.error = error != 0 ? error : r.error;
    for (uint32_t i = 0; i < r.count; i++) {
        error = ps_path_join(folder, r.names[i], path) ? store->remove(store->self, path) : -ENAMETOOLONG;
        r.error = error != 0 && r.error == 0 ? error : r.error;
    }
    free(r.names);
    return r.error;
}

/* ---- replay ---- */

struct ps_log_replay {
    const struct ps_store *store;
    char directory[PS_PATH_BYTES];
    uint32_t core;
    uint64_t *numbers;
    struct ps_log_cut *cuts; /* beside them: what later segments say of each */
    uint32_t count, at;      /* the segment that is read, or the next */
    struct ps_log_reader *reader;
    struct ps_log_cut torn; /* the first that was torn; no record may follow */
    uint64_t torn_bytes;
};

static enum mr_status read_status(enum ps_log_read read, int error)
{
    if (read == PS_LOG_READ_DAMAGED)
        return MR_CHECKPOINT_CORRUPT;
    return error == -ENOMEM ? MR_NO_MEMORY : MR_IO_ERROR;
}

static enum mr_status segments_damaged(const char *directory, uint64_t number, uint32_t core, const char *why,
                                       char text[PS_TEXT_BYTES])
{
    char path[PS_PATH_BYTES];
    (void)segment_path(directory, number, core, path);
    ps_text_path(text, path, why);
    return MR_CHECKPOINT_CORRUPT;
}

/* The header of a core's segment. MR_OK and number 0: the segment was never used: it is torn, or missing, and
 * the newest. */
static enum mr_status header_of(const struct ps_store *store, const char *directory,
                                const struct ps_log_list *list, uint32_t at, uint32_t core,
                                struct ps_log_header *out, char text[PS_TEXT_BYTES])
{
    char path[PS_PATH_BYTES];
    struct ps_log_reader *reader;
    int error;
    *out = (struct ps_log_header){.number = 0};
    if (!segment_path(directory, list->numbers[at], core, path))
        return path_too_long(directory, text);
    const enum ps_log_read read = ps_log_reader_open(store, path, 0, &reader, &error, text);
    if (read == PS_LOG_READ_RECORD) {
        *out = *ps_log_reader_header(reader);
        ps_log_reader_close(reader);
        if (out->number == list->numbers[at] && out->core == core)
            return MR_OK;
        return segments_damaged(directory, list->numbers[at], core, "the segment of another place", text);
    }
    const bool is_newest = at + 1 == list->count;
    if (is_newest && (read == PS_LOG_READ_TORN || error == -ENOENT))
        return MR_OK;
    if (read == PS_LOG_READ_TORN || error == -ENOENT)
        return segments_damaged(directory, list->numbers[at], core,
                                "the segment is missing or has no header, and later ones are there", text);
    return read_status(read, error);
}

static bool base_is(const struct ps_log_header *h, const struct ps_log_base *base)
{
    return h->base_id == base->id && strcmp(h->base_directory, base->directory) == 0;
}

enum mr_status ps_log_find(const struct ps_store *store, const char *directory,
                           const struct ps_log_list *list, const struct ps_log_base *base, uint64_t *first,
                           uint32_t *core_count, char text[PS_TEXT_BYTES])
{
    *first = 0;
    for (uint32_t at = list->count; at > 0 && *first == 0; at--) {
        struct ps_log_header header;
        const enum mr_status status = header_of(store, directory, list, at - 1, 0, &header, text);
        if (status != MR_OK)
            return status;
        if (header.number != 0 && base_is(&header, base)) {
            *first = header.number;
            *core_count = header.core_count;
        }
    }
    return MR_OK;
}

static void note_cut(struct ps_log_replay *r, const struct ps_log_header *h)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (h->cut_number != 0 && r->numbers[i] == h->cut_number)
            r->cuts[i] = (struct ps_log_cut){h->cut_number, h->cut_bytes};
}

enum mr_status ps_log_replay_open(const struct ps_store *store, const char *directory,
                                  const struct ps_log_list *list, uint64_t first, uint32_t core,
                                  struct ps_log_replay **out, char text[PS_TEXT_BYTES])
{
    struct ps_log_replay *r = calloc(1, sizeof(*r));
    enum mr_status status = MR_OK;
    if (r != NULL) {
        r->numbers = calloc(list->count, sizeof(*r->numbers));
        r->cuts = calloc(list->count, sizeof(*r->cuts));
    }
    if (r == NULL || r->numbers == NULL || r->cuts == NULL) {
        ps_log_replay_close(r);
        snprintf(text, PS_TEXT_BYTES, "no memory left");
        return MR_NO_MEMORY;
    }
    r->store = store;
    r->core = core;
    snprintf(r->directory, sizeof(r->directory), "%s", directory);
    for (uint32_t at = 0; at < list->count && status == MR_OK; at++) {
        struct ps_log_header header = {.number = 0};
        if (list->numbers[at] < first)
            continue;
        if (r->count > 0 && list->numbers[at] != r->numbers[r->count - 1] + 1)
            status = segments_damaged(directory, r->numbers[r->count - 1] + 1, core,
                                      "the segment is missing, and later ones are there", text);
        if (status == MR_OK)
            status = header_of(store, directory, list, at, core, &header, text);
        if (status != MR_OK || header.number == 0)
            continue;
        r->numbers[r->count++] = header.number;
        note_cut(r, &header);
    }
    if (status == MR_OK)
        *out = r;
    else
        ps_log_replay_close(r);
    return status;
}

void ps_log_replay_close(struct ps_log_replay *r)
{
    if (r == NULL)
        return;
    ps_log_reader_close(r->reader);
    free(r->numbers);
    free(r->cuts);
    free(r);
}

static enum mr_status replay_open_next(struct ps_log_replay *r, char text[PS_TEXT_BYTES])
{
    char path[PS_PATH_BYTES];
    int error;
    (void)segment_path(r->directory, r->numbers[r->at], r->core, path);
    const enum ps_log_read read =
        ps_log_reader_open(r->store, path, r->cuts[r->at].bytes, &r->reader, &error, text);
    if (read == PS_LOG_READ_RECORD)
        return MR_OK;
    if (read == PS_LOG_READ_TORN)
        return segments_damaged(r->directory, r->numbers[r->at], r->core, "its header has changed", text);
    return read_status(read, error);
}

static void replay_note_torn(struct ps_log_replay *r)
{
    r->torn = (struct ps_log_cut){r->numbers[r->at], ps_log_reader_good_bytes(r->reader)};
    r->torn_bytes = ps_log_reader_torn_bytes(r->reader);
}

enum mr_status ps_log_replay_next(struct ps_log_replay *r, const struct ps_log_record **record,
                                  uint8_t **content, char text[PS_TEXT_BYTES])
{
    *record = NULL;
    while (r->at < r->count) {
        if (r->reader == NULL) {
            const enum mr_status status = replay_open_next(r, text);
            if (status != MR_OK)
                return status;
        }
        const enum ps_log_read read = ps_log_reader_next(r->reader, record, content, text);
        if (read == PS_LOG_READ_RECORD && r->torn.number == 0)
            return MR_OK;
        *record = NULL;
        if (read == PS_LOG_READ_RECORD)
            return segments_damaged(r->directory, r->torn.number, r->core,
                                    "its end is damaged, and later segments have records", text);
        if (read == PS_LOG_READ_DAMAGED || read == PS_LOG_READ_FAILED)
            return read_status(read, 0);
        if (read == PS_LOG_READ_TORN && r->cuts[r->at].number != 0)
            return segments_damaged(r->directory, r->numbers[r->at], r->core,
                                    "it is damaged before the place where a start found its end", text);
        if (read == PS_LOG_READ_TORN)
            replay_note_torn(r);
        ps_log_reader_close(r->reader);
        r->reader = NULL;
        r->at++;
    }
    return MR_OK;
}

struct ps_log_cut ps_log_replay_cut(const struct ps_log_replay *r, uint64_t *torn_bytes)
{
    *torn_bytes = r->torn_bytes;
    return r->torn;
}
