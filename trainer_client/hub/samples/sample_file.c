#include "trainer_client/hub/samples/sample_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include "trainer_client/hub/samples/distinct.h"
#include "trainer_client/hub/samples/file_bytes.h"
#include "trainer_client/hub/samples/lines.h"
#include "trainer_client/hub/samples/paths.h"
#include "trainer_client/hub/samples/permutation.h"
#include "trainer_client/hub/samples/sample_store.h"

#define SCAN_READ_BYTES     (1u << 20)
#define RANDOM_READ_BYTES   4096u
#define DISTINCT_ENTRIES    (1u << 23) /* exact up to 4 Mi keys */
#define STOP_CHECK_LINES    4096u
#define INDEX_ENTRIES_FIRST 4096u
#define CHECKED_FILES       16u /* by hub_sample_file_check_some() */

/* Offsets and line numbers count through all files, as if they were one. */
struct place {
    uint64_t offset, line_number;
};

struct file {
    const char *path;
    int fd;
    struct stat opened; /* the file as it was then */
    struct hub_file_bytes *bytes;
    struct hub_format *bound; /* the format with this file's columns, if its first line names them */
    uint64_t begin,
        lines_before; /* of the files before this one: their bytes as they are unpacked, and lines */
};

struct hub_sample_file {
    struct hub_sample_file_info info;
    const struct hub_formats *formats;
    const struct hub_allowed *allowed;
    char *path; /* of the plan */
    struct hub_paths paths;
    struct file *files;  /* [paths.count] */
    uint32_t current;    /* file that `lines` reads */
    uint32_t checked;    /* file that is checked next */
    uint64_t good_lines; /* of all parts */
    const char *first_broken_path;
    uint64_t first_broken; /* line of that file */
    char first_reason[HUB_REASON_BYTES],
        first_format[HUB_REASON_BYTES]; /* and the format that it is of, if any */
    uint64_t seed;
    double held_out_share;
    bool held_out;
    struct place *index; /* of every `stride`-th sample of the part */
    uint32_t index_used, index_size, index_max;
    uint64_t stride;
    struct hub_lines lines;          /* for hub_sample_file_read() */
    struct hub_sample_store *store;  /* NULL: no samples stay in memory */
    struct hub_sample_store *window; /* samples from window_begin on, of packed files; NULL: none yet */
    uint64_t window_begin;
    struct hub_distinct *distinct;
};

static bool in_part(const struct hub_sample_file *f, uint64_t line_number)
{
    if (f->info.format->has_no_labels)
        return true;
    return hub_is_held_out(line_number, f->seed, f->held_out_share) == f->held_out;
}

static enum hub_parse parse_line(const struct hub_format *format, const struct hub_line *line,
                                 struct hub_sample *sample, char *reason)
{
    if (line->too_long) {
        snprintf(reason, HUB_REASON_BYTES, "longer than %u bytes", HUB_LINE_BYTES_MAX);
        return HUB_BROKEN;
    }
    return hub_format_parse(format, line->text, line->bytes, line->number, sample, reason);
}

static void thin_index(struct hub_sample_file *f)
{
    for (uint32_t i = 0; 2 * i < f->index_used; i++)
        f->index[i] = f->index[2 * i];
    f->index_used = (f->index_used + 1) / 2;
    f->stride *= 2;
}

static bool add_to_index(struct hub_sample_file *f, struct place place)
{
    if (f->info.samples++ % f->stride != 0)
        return true;
    if (f->index_used == f->index_max) {
        thin_index(f);
        if ((f->info.samples - 1) % f->stride != 0)
            return true;
    }
    if (f->index_used == f->index_size) {
        uint32_t size = f->index_size == 0 ? INDEX_ENTRIES_FIRST : 2 * f->index_size;
        size = size < f->index_max ? size : f->index_max;
        struct place *grown = realloc(f->index, size * sizeof(*grown));
        if (grown == NULL)
            return false;
        f->index = grown;
        f->index_size = size;
    }
    f->index[f->index_used++] = place;
    return true;
}

/* What the lines of a file are parsed with. */
static const struct hub_format *format_of(const struct hub_sample_file *f, const struct file *file)
{
    return file->bound != NULL ? file->bound : f->info.format;
}

/* Which other format the line is of. */
static void name_format(struct hub_sample_file *f, const struct hub_line *line, struct hub_sample *sample)
{
    char ignored[HUB_REASON_BYTES];
    for (uint32_t i = 0; !line->too_long && i < f->formats->count; i++) {
        const struct hub_format *format = f->formats->all[i];
        if (format != f->info.format && parse_line(format, line, sample, ignored) == HUB_PARSED) {
            snprintf(f->first_format, sizeof(f->first_format), "; it is a line of %s", format->name);
            return;
        }
    }
}

static enum mr_status broken(struct hub_sample_file *f, const struct hub_sample_file_options *options,
                             const struct file *file, const struct hub_line *line, struct hub_sample *sample,
                             const char *reason, char *error)
{
    if (f->info.broken_lines++ == 0) {
        f->first_broken_path = file->path;
        f->first_broken = line->number;
        snprintf(f->first_reason, sizeof(f->first_reason), "%s", reason);
        name_format(f, line, sample);
    }
    if (options->on_broken_line != NULL && f->info.broken_lines <= HUB_BROKEN_SHOWN_MAX)
        options->on_broken_line(options->arg, file->path, line->number, reason);
    if (!options->strict)
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES, "%.300s:%" PRIu64 ": broken line: %s", file->path, line->number, reason);
    return MR_BAD_MESSAGE;
}

/* The first line says where the columns are. */
static enum mr_status bind_format(const struct hub_sample_file *f, struct file *file,
                                  const struct hub_line *line, char *error)
{
    char reason[HUB_REASON_BYTES] = "its first line is too long";
    if (!line->too_long)
        file->bound = hub_format_bind(f->info.format, line->text, line->bytes, reason);
    if (file->bound != NULL)
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES, "%.200s is not in the format %s: %s", file->path, f->info.format->name,
             reason);
    return MR_BAD_MESSAGE;
}

static enum mr_status scan_line(struct hub_sample_file *f, const struct hub_sample_file_options *options,
                                struct file *file, const struct hub_line *line, struct hub_sample *sample,
                                char *error)
{
    const struct place place = {file->begin + line->offset, file->lines_before + line->number};
    char reason[HUB_REASON_BYTES];
    if (line->number == 1 && hub_format_has_names(f->info.format))
        return bind_format(f, file, line, error);
    switch (parse_line(format_of(f, file), line, sample, reason)) {
    case HUB_NO_SAMPLE:
        return MR_OK;
    case HUB_BROKEN:
        return broken(f, options, file, line, sample, reason, error);
    case HUB_PARSED:
        break;
    }
    for (uint32_t i = 0; i < sample->key_count; i++)
        hub_distinct_add(f->distinct, sample->keys[i]);
    f->good_lines++;
    if (sample->key_count > f->info.sample_keys_max)
        f->info.sample_keys_max = sample->key_count;
    if (!in_part(f, place.line_number))
        return MR_OK;
    if (f->store != NULL)
        hub_sample_store_add(f->store, sample);
    if (add_to_index(f, place))
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES, "%.300s: no memory for the index of its lines", f->path);
    return MR_NO_MEMORY;
}

static enum mr_status scan_file(struct hub_sample_file *f, const struct hub_sample_file_options *options,
                                struct file *file, struct hub_lines *lines, struct hub_sample *sample,
                                char *error)
{
    struct hub_line line;
    enum mr_status status = MR_OK;
    hub_lines_change(lines, file->bytes);
    while (status == MR_OK && hub_lines_next(lines, &line)) {
        status = scan_line(f, options, file, &line, sample, error);
        if (options->stop != NULL && line.number % STOP_CHECK_LINES == 0 && atomic_load(options->stop)) {
            status = MR_CANCELLED;
            snprintf(error, HUB_ERROR_BYTES, "stopped while reading %.300s", file->path);
        }
    }
    if (status == MR_OK && lines->has_failed) {
        snprintf(error, HUB_ERROR_BYTES, "cannot read %.300s: %s", file->path,
                 hub_file_bytes_error(file->bytes));
        status = MR_IO_ERROR;
    }
    hub_file_bytes_rest(file->bytes);
    return status;
}

static enum mr_status scan(struct hub_sample_file *f, const struct hub_sample_file_options *options,
                           struct hub_sample *sample, char *error)
{
    struct hub_lines lines;
    enum mr_status status = MR_OK;
    XXH3_state_t *digest = XXH3_createState();
    if (digest == NULL || !hub_lines_init(&lines, f->files[0].bytes, SCAN_READ_BYTES)) {
        XXH3_freeState(digest);
        snprintf(error, HUB_ERROR_BYTES, "no memory to read %.300s", f->path);
        return MR_NO_MEMORY;
    }
    XXH3_64bits_reset(digest);
    lines.digest = digest;
    for (uint32_t i = 0; status == MR_OK && i < f->paths.count; i++) {
        struct file *file = &f->files[i];
        status = scan_file(f, options, file, &lines, sample, error);
        if (i + 1 < f->paths.count) {
            file[1].begin = file->begin + lines.offset;
            file[1].lines_before = file->lines_before + lines.line_number - 1;
        }
    }
    f->info.digest = XXH3_64bits_digest(digest);
    if (!f->info.format->is_built_in) /* another description makes other samples of the same files */
        f->info.digest = hub_mix(f->info.digest, f->info.format->digest);
    for (uint32_t i = 1; i < f->paths.count; i++) /* the line at a file's end counts as its own */
        f->info.digest = hub_mix(f->info.digest, f->files[i].begin);
    XXH3_freeState(digest);
    hub_lines_free(&lines);
    return status;
}

/* A file of another format is no file of broken lines. */
static enum mr_status check_format(const struct hub_sample_file *f, char *error)
{
    if (f->info.broken_lines <= f->good_lines)
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES,
             "%.200s is not in the format %s: %" PRIu64 " of %" PRIu64
             " lines are broken, the first is line %" PRIu64 ": %.100s%.40s",
             f->first_broken_path, f->info.format->name, f->info.broken_lines,
             f->info.broken_lines + f->good_lines, f->first_broken, f->first_reason, f->first_format);
    return MR_BAD_MESSAGE;
}

static enum mr_status open_file(struct hub_sample_file *f, struct file *file, char *error)
{
    file->fd = hub_allowed_open(f->allowed, file->path, O_RDONLY | O_NONBLOCK);
    if (file->fd < 0 || fstat(file->fd, &file->opened) != 0) {
        snprintf(error, HUB_ERROR_BYTES, "cannot open %.300s: %s; the path is one on the hub's machine",
                 file->path, strerror(errno));
        return MR_INVALID_ARGUMENT;
    }
    if (!S_ISREG(file->opened.st_mode)) {
        snprintf(error, HUB_ERROR_BYTES, "%.300s is not a regular file; copy the samples into one",
                 file->path);
        return MR_INVALID_ARGUMENT;
    }
    file->bytes = hub_file_bytes_create(file->fd);
    if (file->bytes == NULL) {
        snprintf(error, HUB_ERROR_BYTES, "no memory to read %.300s", file->path);
        return MR_NO_MEMORY;
    }
    if (hub_file_bytes_refusal(file->bytes) != NULL) {
        snprintf(error, HUB_ERROR_BYTES, "%.300s %s", file->path, hub_file_bytes_refusal(file->bytes));
        return MR_BAD_MESSAGE;
    }
    if (hub_file_bytes_is_packed(file->bytes) && f->info.window_samples == 0)
        f->info.window_samples = HUB_WINDOW_SAMPLES;
    return MR_OK;
}

static enum mr_status open_files(struct hub_sample_file *f, char *error)
{
    enum mr_status status = hub_paths_expand(f->path, f->allowed, &f->paths, error);
    if (status != MR_OK)
        return status;
    f->files = calloc(f->paths.count, sizeof(*f->files));
    if (f->files == NULL) {
        snprintf(error, HUB_ERROR_BYTES, "no memory to open %.300s", f->path);
        return MR_NO_MEMORY;
    }
    f->info.files = f->paths.count;
    for (uint32_t i = 0; i < f->paths.count; i++)
        f->files[i] = (struct file){.path = f->paths.all[i], .fd = -1};
    for (uint32_t i = 0; status == MR_OK && i < f->paths.count; i++)
        status = open_file(f, &f->files[i], error);
    return status;
}

static struct hub_sample_file *allocate(const struct hub_sample_file_options *options)
{
    struct hub_sample_file *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return NULL;
    f->formats = options->formats;
    f->allowed = options->allowed;
    f->seed = options->seed;
    f->held_out_share = options->held_out_share;
    f->held_out = options->held_out;
    f->stride = 1;
    f->index_max = options->index_entries_max != 0 ? options->index_entries_max : HUB_INDEX_ENTRIES_MAX;
    f->info.window_samples = options->window_samples;
    f->path = strdup(options->path);
    f->distinct =
        hub_distinct_create(options->distinct_entries != 0 ? options->distinct_entries : DISTINCT_ENTRIES);
    if (f->path == NULL || f->distinct == NULL) {
        hub_sample_file_close(f);
        return NULL;
    }
    return f;
}

enum mr_status hub_sample_file_open(const struct hub_sample_file_options *options,
                                    struct hub_sample_file **out, char *error)
{
    const struct hub_format *format = hub_formats_find(options->formats, options->format);
    if (format == NULL) {
        char names[HUB_FORMAT_NAMES_BYTES];
        snprintf(error, HUB_ERROR_BYTES,
                 "unknown format '%.40s'; there are %s; the hub's --format FILE adds one", options->format,
                 hub_formats_names(options->formats, names));
        return MR_INVALID_ARGUMENT;
    }
    if (format->has_no_labels && !options->held_out) {
        snprintf(error, HUB_ERROR_BYTES, "format %.40s: %s", options->format,
                 hub_format_wrong_part(false, false));
        return MR_INVALID_ARGUMENT;
    }
    struct hub_sample_file *f = allocate(options);
    struct hub_sample *sample = malloc(sizeof(*sample));
    enum mr_status status = MR_NO_MEMORY;
    if (f == NULL || sample == NULL) {
        snprintf(error, HUB_ERROR_BYTES, "no memory to open %.300s", options->path);
        goto out;
    }
    f->info.format = format;
    if (options->memory_bytes > 0)
        f->store = hub_sample_store_create(format, options->memory_bytes);
    status = open_files(f, error);
    if (status == MR_OK)
        status = scan(f, options, sample, error);
    if (status == MR_OK)
        status = check_format(f, error);
    if (status == MR_OK)
        status = hub_sample_file_check(f, error);
    if (status == MR_OK && !hub_lines_init(&f->lines, f->files[0].bytes, RANDOM_READ_BYTES)) {
        snprintf(error, HUB_ERROR_BYTES, "no memory to read %.300s", f->path);
        status = MR_NO_MEMORY;
    }
    if (status == MR_OK) {
        f->info.keys = hub_distinct_count(f->distinct);
        f->info.keys_exact = hub_distinct_is_exact(f->distinct);
        hub_distinct_destroy(f->distinct);
        f->distinct = NULL;
        *out = f;
        f = NULL;
    }
out:
    free(sample);
    hub_sample_file_close(f);
    return status;
}

void hub_sample_file_close(struct hub_sample_file *f)
{
    if (f == NULL)
        return;
    hub_lines_free(&f->lines);
    hub_distinct_destroy(f->distinct);
    hub_sample_store_destroy(f->store);
    hub_sample_store_destroy(f->window);
    for (uint32_t i = 0; f->files != NULL && i < f->paths.count; i++) {
        hub_format_free(f->files[i].bound);
        hub_file_bytes_destroy(f->files[i].bytes);
        if (f->files[i].fd >= 0)
            close(f->files[i].fd);
    }
    free(f->files);
    hub_paths_free(&f->paths);
    free(f->index);
    free(f->path);
    free(f);
}

const struct hub_sample_file_info *hub_sample_file_info(const struct hub_sample_file *f)
{
    return &f->info;
}

static const char *what_changed(const struct stat *before, const struct stat *now)
{
    if (before->st_dev != now->st_dev || before->st_ino != now->st_ino)
        return "another file has its name";
    if (before->st_size != now->st_size)
        return now->st_size > before->st_size ? "it has grown" : "it has shrunk";
    if (before->st_mtim.tv_sec != now->st_mtim.tv_sec || before->st_mtim.tv_nsec != now->st_mtim.tv_nsec)
        return "it was written to";
    return NULL;
}

static enum mr_status refuse_changed(const char *path, const char *what, char *error)
{
    snprintf(error, HUB_ERROR_BYTES,
             "%.300s has changed since its plan began: %.240s; bring the samples back, or start a plan with "
             "another `run`",
             path, what);
    return MR_IO_ERROR;
}

static enum mr_status check_file(const struct file *file, char *error)
{
    struct stat now;
    const char *what = NULL;
    if (fstat(file->fd, &now) == 0)
        what = what_changed(&file->opened, &now);
    if (what == NULL && stat(file->path, &now) == 0) /* one that was deleted can be read all the same */
        what = what_changed(&file->opened, &now);
    return what == NULL ? MR_OK : refuse_changed(file->path, what, error);
}

/* Files that match the plan's path since it was opened. */
static enum mr_status check_paths(const struct hub_sample_file *f, char *error)
{
    struct hub_paths now = {0};
    enum mr_status status = MR_OK;
    char what[HUB_ERROR_BYTES];
    if (hub_paths_expand(f->path, f->allowed, &now, what) != MR_OK)
        return MR_OK; /* none matches any more: they were deleted */
    for (uint32_t i = 0, known = 0; status == MR_OK && i < now.count; i++) {
        while (known < f->paths.count && strcmp(f->paths.all[known], now.all[i]) != 0)
            known++;
        if (known == f->paths.count) {
            snprintf(what, sizeof(what), "%.200s has come in", now.all[i]);
            status = refuse_changed(f->path, what, error);
        }
    }
    hub_paths_free(&now);
    return status;
}

enum mr_status hub_sample_file_check(const struct hub_sample_file *f, char *error)
{
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; status == MR_OK && i < f->paths.count; i++)
        status = check_file(&f->files[i], error);
    return status == MR_OK ? check_paths(f, error) : status;
}

enum mr_status hub_sample_file_check_some(struct hub_sample_file *f, char *error)
{
    uint32_t count = f->paths.count < CHECKED_FILES ? f->paths.count : CHECKED_FILES;
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; status == MR_OK && i < count; i++) {
        status = check_file(&f->files[f->checked], error);
        f->checked = (f->checked + 1) % f->paths.count;
    }
    return status;
}

void hub_sample_file_prefetch(const struct hub_sample_file *f, uint64_t next, uint64_t later)
{
    if (f->store != NULL)
        hub_sample_store_prefetch(f->store, next, later);
}

/* ---- samples that are read again ---- */

/* The file that holds a place. */
static uint32_t file_at(const struct hub_sample_file *f, uint64_t offset)
{
    uint32_t low = 0, high = f->paths.count; /* it is in [low, high) */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (f->files[middle].begin <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void change_file(struct hub_sample_file *f, uint32_t file)
{
    if (file == f->current)
        return;
    hub_file_bytes_rest(f->files[f->current].bytes);
    hub_lines_change(&f->lines, f->files[file].bytes);
    f->current = file;
}

static void seek_place(struct hub_sample_file *f, const struct place *place)
{
    uint32_t i = file_at(f, place->offset);
    change_file(f, i);
    f->lines.has_failed = false;
    hub_lines_seek(&f->lines, place->offset - f->files[i].begin,
                   place->line_number - f->files[i].lines_before);
}

/* The next line, of whatever file. */
static bool next_line(struct hub_sample_file *f, struct hub_line *line)
{
    while (!hub_lines_next(&f->lines, line)) {
        if (f->lines.has_failed || f->current + 1 == f->paths.count)
            return false;
        change_file(f, f->current + 1);
    }
    return true;
}

/* Reads on to the sample of the part after `skip` of them. `may_skip_lines`: there may be lines in between
 * that are no samples of the part; otherwise such a line is a change of the file. */
static enum mr_status read_on(struct hub_sample_file *f, uint64_t skip, bool may_skip_lines,
                              struct hub_sample *sample, char *error)
{
    char reason[HUB_REASON_BYTES] = "it ends early";
    uint64_t line_number = f->lines.line_number;
    uint32_t file = f->current;
    struct hub_line line;
    while (next_line(f, &line)) {
        const struct file *of = &f->files[f->current];
        enum hub_parse parsed = HUB_NO_SAMPLE;
        line_number = line.number;
        file = f->current;
        if (in_part(f, of->lines_before + line.number))
            parsed = parse_line(format_of(f, of), &line, sample, reason);
        if (parsed == HUB_PARSED && skip-- == 0)
            return MR_OK;
        if (!may_skip_lines)
            break;
    }
    if (f->lines.has_failed)
        snprintf(reason, sizeof(reason), "%s", hub_file_bytes_error(f->lines.bytes));
    snprintf(error, HUB_ERROR_BYTES, "%.300s has changed while it was read: line %" PRIu64 ": %s",
             f->files[file].path, line_number, reason);
    return MR_IO_ERROR;
}

static enum mr_status read_at(struct hub_sample_file *f, uint64_t index, struct hub_sample *sample,
                              char *error)
{
    seek_place(f, &f->index[index / f->stride]);
    /* With a stride of one the index names the very line. */
    return read_on(f, index % f->stride, f->stride > 1, sample, error);
}

/* Unpacks the window that a sample is in. */
static enum mr_status fill_window(struct hub_sample_file *f, uint64_t index, char *error)
{
    const uint64_t size = f->info.window_samples, begin = index / size * size,
                   end = begin + size < f->info.samples ? begin + size : f->info.samples;
    struct hub_sample *sample = malloc(sizeof(*sample));
    if (f->window == NULL)
        f->window = hub_sample_store_create(
            f->info.format, size * hub_sample_store_sample_bytes(f->info.format, f->info.sample_keys_max));
    if (f->window == NULL || sample == NULL) {
        free(sample);
        snprintf(error, HUB_ERROR_BYTES, "no memory for %" PRIu64 " samples of %.300s", size, f->path);
        return MR_NO_MEMORY;
    }
    hub_sample_store_clear(f->window);
    f->window_begin = begin;
    enum mr_status status = MR_OK;
    for (uint64_t i = begin; status == MR_OK && i < end; i++) {
        status = i == begin ? read_at(f, i, sample, error) : read_on(f, 0, true, sample, error);
        if (status == MR_OK)
            hub_sample_store_add(f->window, sample);
    }
    if (status != MR_OK)
        hub_sample_store_clear(f->window);
    free(sample);
    return status;
}

enum mr_status hub_sample_file_read(struct hub_sample_file *f, uint64_t index, struct hub_sample *sample,
                                    char *error)
{
    if (f->store != NULL && hub_sample_store_get(f->store, index, sample))
        return MR_OK;
    if (f->info.window_samples == 0)
        return read_at(f, index, sample, error);
    if (f->window == NULL || index < f->window_begin ||
        !hub_sample_store_get(f->window, index - f->window_begin, sample)) {
        enum mr_status status = fill_window(f, index, error);
        if (status != MR_OK)
            return status;
        if (!hub_sample_store_get(f->window, index - f->window_begin, sample)) {
            snprintf(error, HUB_ERROR_BYTES, "%.300s has changed while it was read", f->path);
            return MR_IO_ERROR;
        }
    }
    return MR_OK;
}
