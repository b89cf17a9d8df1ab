#include "ps/log/log_segments.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "dataplane/wire/base/number.h"

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
        qsort(list->numbers, list->count, sizeof(*list->numbers), mr_compare_u64);
    return MR_OK;
}

/* ---- made and removed ---- */

/* One file: `bytes` of its beginning, durable, and a new nonce in the header there. 0 or -errno. */
static int segment_create(const struct ps_store *store, const char *path, uint8_t *bytes,
                          struct ps_log_file *out)
{
    struct ps_log_header *h = (struct ps_log_header *)(void *)bytes;
    if (getrandom(&h->nonce, sizeof(h->nonce), 0) != (ssize_t)sizeof(h->nonce))
        return -errno;
    ps_log_header_seal(h);
    out->nonce = h->nonce;
    int error = store->create(store->self, path, true, &out->file);
    if (error != 0) {
        out->file = NULL;
        return error;
    }
    error = ps_store_write_all(store, out->file, bytes, PS_LOG_FIRST_BYTES, 0);
    if (ps_store_leave_direct(store, out->file, error))
        error = ps_store_write_all(store, out->file, bytes, PS_LOG_FIRST_BYTES, 0);
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

enum mr_status ps_log_create(const struct ps_store *store, const char *directory,
                             const struct ps_log_segment *segment, struct ps_log_file *files,
                             char text[PS_TEXT_BYTES])
{
    const uint64_t number = segment->number;
    const uint32_t core_count = segment->core_count;
    const struct ps_log_base *base = segment->base;
    char folder[PS_PATH_BYTES], path[PS_PATH_BYTES];
    memset(files, 0, core_count * sizeof(*files));
    if (!folder_path(directory, folder) || !segment_path(directory, number, core_count, path))
        return path_too_long(directory, text);
    uint8_t *bytes = aligned_alloc(PS_LOG_ALIGN, PS_LOG_FIRST_BYTES);
    int error = bytes != NULL ? folder_make(store, directory, folder) : -ENOMEM;
    snprintf(path, sizeof(path), "%s", folder);
    if (bytes != NULL)
        memset(bytes, 0, PS_LOG_FIRST_BYTES);
    for (uint32_t core = 0; core < core_count && error == 0; core++) {
        struct ps_log_header *header = (struct ps_log_header *)(void *)bytes;
        *header = (struct ps_log_header){.number = number,
                                         .core = core,
                                         .core_count = core_count,
                                         .base_id = base != NULL ? base->id : PS_LOG_NO_BASE,
                                         .told = segment->told,
                                         .is_first = segment->is_first};
        if (base != NULL)
            snprintf(header->base_directory, sizeof(header->base_directory), "%s", base->directory);
        header->cut_number = segment->cuts != NULL ? segment->cuts[core].number : 0;
        header->cut_bytes = segment->cuts != NULL ? segment->cuts[core].bytes : 0;
        (void)segment_path(directory, number, core, path);
        error = segment_create(store, path, bytes, &files[core]);
    }
    free(bytes);
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

/* Of one core. */
struct log_segment {
    uint64_t number;
    bool has_header; /* else it was never used: it is missing, or its header was not durable */
    bool is_cut;     /* a later start has found the log's end at cut_bytes of it */
    uint64_t cut_bytes;
};

struct ps_log_replay {
    const struct ps_store *store;
    char directory[PS_PATH_BYTES];
    uint32_t core;
    struct log_segment *segments;
    uint32_t count, at; /* the segment that is read, or the next */
    struct ps_log_reader *reader;
    struct ps_log_cut end; /* no record may follow; number 0: not reached */
    uint64_t torn_bytes;
    uint64_t read_bytes; /* of segments that were read to their end */
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

/* The header of a core's segment. MR_OK and number 0: the segment was never used. */
static enum mr_status header_of(const struct ps_store *store, const char *directory, uint64_t number,
                                uint32_t core, struct ps_log_header *out, char text[PS_TEXT_BYTES])
{
    char path[PS_PATH_BYTES];
    struct ps_log_reader *reader;
    int error;
    *out = (struct ps_log_header){.number = 0};
    if (!segment_path(directory, number, core, path))
        return path_too_long(directory, text);
    const enum ps_log_read read = ps_log_reader_open(store, path, 0, &reader, &error, text);
    if (read == PS_LOG_READ_TORN || (read == PS_LOG_READ_FAILED && error == -ENOENT))
        return MR_OK;
    if (read != PS_LOG_READ_RECORD)
        return read_status(read, error);
    *out = *ps_log_reader_header(reader);
    ps_log_reader_close(reader);
    if (out->number == number && out->core == core)
        return MR_OK;
    return segments_damaged(directory, number, core, "the segment of another place", text);
}

static bool base_is(const struct ps_log_header *h, const struct ps_log_base *base)
{
    return h->base_id == base->id && strcmp(h->base_directory, base->directory) == 0;
}

enum mr_status ps_log_newest(const struct ps_store *store, const char *directory,
                             const struct ps_log_list *list, bool is_first, struct ps_log_header *out,
                             char text[PS_TEXT_BYTES])
{
    *out = (struct ps_log_header){.number = 0};
    for (uint32_t at = list->count; at > 0 && out->number == 0; at--) {
        struct ps_log_header header;
        const enum mr_status status = header_of(store, directory, list->numbers[at - 1], 0, &header, text);
        if (status != MR_OK)
            return status;
        if (header.number != 0 && (header.is_first || !is_first))
            *out = header;
    }
    return MR_OK;
}

enum mr_status ps_log_find(const struct ps_store *store, const char *directory,
                           const struct ps_log_list *list, const struct ps_log_base *base,
                           struct ps_log_header *first, char text[PS_TEXT_BYTES])
{
    struct ps_log_header header = {.is_first = 0};
    *first = (struct ps_log_header){.number = 0};
    for (uint32_t at = list->count; at > 0 && first->number == 0 && !header.is_first; at--) {
        const enum mr_status status = header_of(store, directory, list->numbers[at - 1], 0, &header, text);
        if (status != MR_OK)
            return status;
        if (header.number != 0 && base_is(&header, base))
            *first = header;
    }
    return MR_OK;
}

/* What a start's header says of the segments before it. */
static void segments_cut(struct ps_log_replay *r, const struct ps_log_header *h)
{
    for (uint32_t i = 0; i < r->count && h->cut_number != 0; i++) {
        struct log_segment *s = &r->segments[i];
        if (s->number < h->cut_number || s->number >= h->number || s->is_cut)
            continue;
        s->is_cut = true;
        s->cut_bytes = s->number == h->cut_number ? h->cut_bytes : PS_LOG_ALIGN;
    }
}

static enum mr_status segments_look(struct ps_log_replay *r, const struct ps_log_list *list, uint64_t first,
                                    char text[PS_TEXT_BYTES])
{
    for (uint32_t at = 0; at < list->count; at++) {
        struct ps_log_header header;
        if (list->numbers[at] < first)
            continue;
        const enum mr_status status =
            header_of(r->store, r->directory, list->numbers[at], r->core, &header, text);
        if (status != MR_OK)
            return status;
        r->segments[r->count++] =
            (struct log_segment){.number = list->numbers[at], .has_header = header.number != 0};
        segments_cut(r, &header);
    }
    for (uint32_t i = 0; i < r->count; i++) {
        const struct log_segment *s = &r->segments[i];
        if (i > 0 && s->number != s[-1].number + 1)
            return segments_damaged(r->directory, s[-1].number + 1, r->core,
                                    "the segment is missing, and later ones are there", text);
        if (!s->has_header && !s->is_cut && i + 1 < r->count)
            return segments_damaged(r->directory, s->number, r->core,
                                    "the segment is missing or has no header, and later ones are there",
                                    text);
    }
    return MR_OK;
}

enum mr_status ps_log_replay_open(const struct ps_store *store, const char *directory,
                                  const struct ps_log_list *list, uint64_t first, uint32_t core,
                                  struct ps_log_replay **out, char text[PS_TEXT_BYTES])
{
    struct ps_log_replay *r = calloc(1, sizeof(*r));
    if (r != NULL)
        r->segments = calloc(list->count, sizeof(*r->segments));
    if (r == NULL || r->segments == NULL) {
        ps_log_replay_close(r);
        snprintf(text, PS_TEXT_BYTES, "no memory left");
        return MR_NO_MEMORY;
    }
    r->store = store;
    r->core = core;
    snprintf(r->directory, sizeof(r->directory), "%s", directory);
    const enum mr_status status = segments_look(r, list, first, text);
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
    free(r->segments);
    free(r);
}

static enum mr_status replay_open_segment(struct ps_log_replay *r, char text[PS_TEXT_BYTES])
{
    const struct log_segment *s = &r->segments[r->at];
    char path[PS_PATH_BYTES];
    int error;
    (void)segment_path(r->directory, s->number, r->core, path);
    const enum ps_log_read read =
        ps_log_reader_open(r->store, path, s->is_cut ? s->cut_bytes : 0, &r->reader, &error, text);
    if (read == PS_LOG_READ_RECORD)
        return MR_OK;
    if (read == PS_LOG_READ_TORN)
        return segments_damaged(r->directory, s->number, r->core, "its header has changed", text);
    return read_status(read, error);
}

/* The log ends here, unless it has before; later segments may not have records. */
static void replay_note_end(struct ps_log_replay *r, uint64_t good_bytes, uint64_t torn_bytes)
{
    if (r->end.number != 0)
        return;
    r->end = (struct ps_log_cut){r->segments[r->at].number, good_bytes};
    r->torn_bytes = torn_bytes;
}

/* A segment was read to its end. What this start applies has to be there for the next one: before this one
 * only the process may have died, and before that the power fails. */
static enum mr_status replay_end_segment(struct ps_log_replay *r, bool is_torn, char text[PS_TEXT_BYTES])
{
    const struct log_segment *s = &r->segments[r->at];
    const uint64_t good_bytes = ps_log_reader_good_bytes(r->reader);
    char path[PS_PATH_BYTES];
    r->read_bytes += good_bytes - PS_LOG_ALIGN;
    if (s->is_cut && (is_torn || good_bytes != s->cut_bytes))
        return segments_damaged(r->directory, s->number, r->core,
                                "it is damaged before the place where a start found its end", text);
    if (s->is_cut)
        return MR_OK;
    if (is_torn || !ps_log_reader_is_closed(r->reader))
        replay_note_end(r, good_bytes, is_torn ? ps_log_reader_torn_bytes(r->reader) : 0);
    const int error = ps_log_reader_sync(r->reader);
    if (error == 0)
        return MR_OK;
    (void)segment_path(r->directory, s->number, r->core, path);
    return segments_fail("cannot flush", path, error, text);
}

/* *record NULL: the segment has no more. */
static enum mr_status segment_next(struct ps_log_replay *r, const struct ps_log_record **record,
                                   uint8_t **content, char text[PS_TEXT_BYTES])
{
    enum mr_status status = r->reader == NULL ? replay_open_segment(r, text) : MR_OK;
    *record = NULL;
    if (status != MR_OK)
        return status;
    const enum ps_log_read read = ps_log_reader_next(r->reader, record, content, text);
    if (read == PS_LOG_READ_RECORD && r->end.number != 0)
        return segments_damaged(r->directory, r->end.number, r->core,
                                "its end is damaged, and later segments have records", text);
    if (read == PS_LOG_READ_RECORD)
        return MR_OK;
    *record = NULL;
    if (read == PS_LOG_READ_DAMAGED || read == PS_LOG_READ_FAILED)
        return read_status(read, 0);
    return replay_end_segment(r, read == PS_LOG_READ_TORN, text);
}

enum mr_status ps_log_replay_next(struct ps_log_replay *r, const struct ps_log_record **record,
                                  uint8_t **content, char text[PS_TEXT_BYTES])
{
    *record = NULL;
    while (r->at < r->count) {
        const struct log_segment *s = &r->segments[r->at];
        enum mr_status status = MR_OK;
        if (s->has_header)
            status = segment_next(r, record, content, text);
        else if (!s->is_cut)
            replay_note_end(r, PS_LOG_ALIGN, 0);
        if (status != MR_OK || *record != NULL)
            return status;
        ps_log_reader_close(r->reader);
        r->reader = NULL;
        r->at++;
    }
    return MR_OK;
}

uint64_t ps_log_replay_bytes(const struct ps_log_replay *r)
{
    return r->read_bytes;
}

struct ps_log_cut ps_log_replay_cut(const struct ps_log_replay *r, uint64_t *torn_bytes)
{
    *torn_bytes = r->torn_bytes;
    return r->end;
}
