#include "trainer_client/hub/sample_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include "trainer_client/hub/distinct.h"
#include "trainer_client/hub/lines.h"
#include "trainer_client/hub/permutation.h"
#include "trainer_client/hub/sample_store.h"

#define SCAN_READ_BYTES     (1u << 20)
#define RANDOM_READ_BYTES   4096u
#define DISTINCT_ENTRIES    (1u << 23) /* exact up to 4 Mi keys */
#define STOP_CHECK_LINES    4096u
#define INDEX_ENTRIES_FIRST 4096u

struct place {
    uint64_t offset, line_number;
};

struct hub_sample_file {
    struct hub_sample_file_info info;
    const struct hub_formats *formats;
    struct hub_format *bound; /* info.format with this file's columns, if its first line names them */
    char *path;
    int fd;
    struct stat opened;    /* the file as it was then */
    uint64_t good_lines;   /* of all parts */
    uint64_t first_broken; /* line */
    char first_reason[HUB_REASON_BYTES],
        first_format[HUB_REASON_BYTES]; /* and the format that it is of, if any */
    uint64_t seed;
    double held_out_share;
    bool held_out;
    struct place *index; /* of every `stride`-th sample of the part */
    uint32_t index_used, index_size, index_max;
    uint64_t stride;
    struct hub_lines lines;         /* for hub_sample_file_read() */
    struct hub_sample_store *store; /* NULL: no samples stay in memory */
    struct hub_distinct *distinct;
};

static bool in_part(const struct hub_sample_file *f, uint64_t line_number)
{
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

static bool add_to_index(struct hub_sample_file *f, const struct hub_line *line)
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
    f->index[f->index_used++] = (struct place){line->offset, line->number};
    return true;
}

/* What the file's lines are parsed with. */
static const struct hub_format *format_of(const struct hub_sample_file *f)
{
    return f->bound != NULL ? f->bound : f->info.format;
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
                             const struct hub_line *line, struct hub_sample *sample, const char *reason,
                             char *error)
{
    if (f->info.broken_lines++ == 0) {
        f->first_broken = line->number;
        snprintf(f->first_reason, sizeof(f->first_reason), "%s", reason);
        name_format(f, line, sample);
    }
    if (options->on_broken_line != NULL && f->info.broken_lines <= HUB_BROKEN_SHOWN_MAX)
        options->on_broken_line(options->arg, f->path, line->number, reason);
    if (!options->strict)
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES, "%s:%" PRIu64 ": broken line: %s", f->path, line->number, reason);
    return MR_BAD_MESSAGE;
}

/* The first line says where the columns are. */
static enum mr_status bind_format(struct hub_sample_file *f, const struct hub_line *line, char *error)
{
    char reason[HUB_REASON_BYTES] = "it is too long";
    if (!line->too_long)
        f->bound = hub_format_bind(f->info.format, line->text, line->bytes, reason);
    if (f->bound != NULL)
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES, "%.200s is no %s: %s", f->path, f->info.format->name, reason);
    return MR_BAD_MESSAGE;
}

static enum mr_status scan_line(struct hub_sample_file *f, const struct hub_sample_file_options *options,
                                const struct hub_line *line, struct hub_sample *sample, char *error)
{
    char reason[HUB_REASON_BYTES];
    if (line->number == 1 && hub_format_has_names(f->info.format))
        return bind_format(f, line, error);
    switch (parse_line(format_of(f), line, sample, reason)) {
    case HUB_NO_SAMPLE:
        return MR_OK;
    case HUB_BROKEN:
        return broken(f, options, line, sample, reason, error);
    case HUB_PARSED:
        break;
    }
    for (uint32_t i = 0; i < sample->key_count; i++)
        hub_distinct_add(f->distinct, sample->keys[i]);
    f->good_lines++;
    if (sample->key_count > f->info.sample_keys_max)
        f->info.sample_keys_max = sample->key_count;
    if (!in_part(f, line->number))
        return MR_OK;
    if (f->store != NULL)
        hub_sample_store_add(f->store, sample);
    if (add_to_index(f, line))
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES, "%s: no memory for the index of its lines", f->path);
    return MR_NO_MEMORY;
}

static enum mr_status scan(struct hub_sample_file *f, const struct hub_sample_file_options *options,
                           struct hub_sample *sample, char *error)
{
    struct hub_lines lines;
    struct hub_line line;
    enum mr_status status = MR_OK;
    XXH3_state_t *digest = XXH3_createState();
    if (digest == NULL || !hub_lines_init(&lines, f->fd, SCAN_READ_BYTES)) {
        XXH3_freeState(digest);
        snprintf(error, HUB_ERROR_BYTES, "no memory to read %s", f->path);
        return MR_NO_MEMORY;
    }
    XXH3_64bits_reset(digest);
    lines.digest = digest;
    while (status == MR_OK && hub_lines_next(&lines, &line)) {
        status = scan_line(f, options, &line, sample, error);
        if (options->stop != NULL && line.number % STOP_CHECK_LINES == 0 && atomic_load(options->stop)) {
            status = MR_CANCELLED;
            snprintf(error, HUB_ERROR_BYTES, "stopped while reading %s", f->path);
        }
    }
    if (status == MR_OK && lines.error_number != 0) {
        snprintf(error, HUB_ERROR_BYTES, "cannot read %s: %s", f->path, strerror(lines.error_number));
        status = MR_IO_ERROR;
    }
    f->info.digest = XXH3_64bits_digest(digest);
    if (!f->info.format->is_built_in) /* another description makes other samples of the same file */
        f->info.digest = hub_mix(f->info.digest, f->info.format->digest);
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
             "%.200s is no %s: %" PRIu64 " of %" PRIu64 " lines are broken, line %" PRIu64
             " for one: %.60s%.40s",
             f->path, f->info.format->name, f->info.broken_lines, f->info.broken_lines + f->good_lines,
             f->first_broken, f->first_reason, f->first_format);
    return MR_BAD_MESSAGE;
}

static enum mr_status open_file(struct hub_sample_file *f, char *error)
{
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0 || fstat(f->fd, &f->opened) != 0) {
        snprintf(error, HUB_ERROR_BYTES, "cannot open %s: %s; the path is one on the hub's machine", f->path,
                 strerror(errno));
        return MR_INVALID_ARGUMENT;
    }
    if (!S_ISREG(f->opened.st_mode)) {
        snprintf(error, HUB_ERROR_BYTES, "%s is not a regular file; unpack or copy the samples into one",
                 f->path);
        return MR_INVALID_ARGUMENT;
    }
    return MR_OK;
}

static struct hub_sample_file *allocate(const struct hub_sample_file_options *options)
{
    struct hub_sample_file *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return NULL;
    f->fd = -1;
    f->formats = options->formats;
    f->seed = options->seed;
    f->held_out_share = options->held_out_share;
    f->held_out = options->held_out;
    f->stride = 1;
    f->index_max = options->index_entries_max != 0 ? options->index_entries_max : HUB_INDEX_ENTRIES_MAX;
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
    struct hub_sample_file *f = allocate(options);
    struct hub_sample *sample = malloc(sizeof(*sample));
    enum mr_status status = MR_NO_MEMORY;
    if (f == NULL || sample == NULL) {
        snprintf(error, HUB_ERROR_BYTES, "no memory to open %s", options->path);
        goto out;
    }
    f->info.format = format;
    if (options->memory_bytes > 0)
        f->store = hub_sample_store_create(format, options->memory_bytes);
    status = open_file(f, error);
    if (status == MR_OK)
        status = scan(f, options, sample, error);
    if (status == MR_OK)
        status = check_format(f, error);
    if (status == MR_OK)
        status = hub_sample_file_check(f, error);
    if (status == MR_OK && !hub_lines_init(&f->lines, f->fd, RANDOM_READ_BYTES)) {
        snprintf(error, HUB_ERROR_BYTES, "no memory to read %s", f->path);
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
    hub_format_free(f->bound);
    if (f->fd >= 0)
        close(f->fd);
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

enum mr_status hub_sample_file_check(const struct hub_sample_file *f, char *error)
{
    struct stat now;
    const char *what = NULL;
    if (fstat(f->fd, &now) == 0)
        what = what_changed(&f->opened, &now);
    if (what == NULL && stat(f->path, &now) == 0) /* one that was deleted can be read all the same */
        what = what_changed(&f->opened, &now);
    if (what == NULL)
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES,
             "%.200s has changed since its plan began: %s; bring the samples back, or start a plan with "
             "another `run`",
             f->path, what);
    return MR_IO_ERROR;
}

void hub_sample_file_prefetch(const struct hub_sample_file *f, uint64_t next, uint64_t later)
{
    if (f->store != NULL)
        hub_sample_store_prefetch(f->store, next, later);
}

enum mr_status hub_sample_file_read(struct hub_sample_file *f, uint64_t index, struct hub_sample *sample,
                                    char *error)
{
    const struct place *place = &f->index[index / f->stride];
    uint64_t to_skip = index % f->stride;
    char reason[HUB_REASON_BYTES] = "it ends early";
    struct hub_line line;
    if (f->store != NULL && hub_sample_store_get(f->store, index, sample))
        return MR_OK;
    hub_lines_seek(&f->lines, place->offset, place->line_number);
    while (hub_lines_next(&f->lines, &line)) {
        /* With a stride of one the index names the very line, so a fault there is a change of the file. */
        enum hub_parse parsed =
            in_part(f, line.number) ? parse_line(format_of(f), &line, sample, reason) : HUB_NO_SAMPLE;
        if (parsed == HUB_PARSED && to_skip-- == 0)
            return MR_OK;
        if (f->stride == 1)
            break;
    }
    if (f->lines.error_number != 0) {
        snprintf(reason, sizeof(reason), "%s", strerror(f->lines.error_number));
        f->lines.error_number = 0;
    }
    snprintf(error, HUB_ERROR_BYTES, "%s has changed while it was read: line %" PRIu64 ": %s", f->path,
             place->line_number, reason);
    return MR_IO_ERROR;
}
