#include "ps/store/copy_record.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#include "ps/checkpoint/checkpoint_format.h"

#define VERSION_LINE "millrace copy 1"
#define NEW_NAME     PS_COPY_RECORD_NAME ".new"
#define BYTES_MAX    (4u << 20)
#define FILES_MAX    4096u

bool ps_copy_record_begin(struct ps_copy_record *r, const char *to, uint64_t id, struct ps_hash manifest,
                          uint32_t file_count)
{
    *r = (struct ps_copy_record){.id = id, .manifest = manifest, .file_count = file_count};
    (void)snprintf(r->to, sizeof(r->to), "%s", to);
    r->files = calloc(file_count + 1u, sizeof(*r->files));
    return r->files != NULL;
}

void ps_copy_record_clear(struct ps_copy_record *r)
{
    free(r->files);
    *r = (struct ps_copy_record){0};
}

/* ---- writing ---- */

static bool print_record(FILE *out, const struct ps_copy_record *r)
{
    bool is_good = fprintf(out, VERSION_LINE "\nto %s\ncheckpoint %" PRIu64 " %" PRIx64 " %" PRIx64 " %u\n",
                           r->to, r->id, r->manifest.low, r->manifest.high, r->file_count) > 0;
    for (uint32_t i = 0; i < r->file_count && is_good; i++) {
        const struct ps_copy_file *f = &r->files[i];
        is_good = fprintf(out, "%s %" PRIu64 " %" PRIu64 " %" PRIx64 " %" PRIx64 " %s\n",
                          f->is_whole ? "whole" : "part", f->sent, f->mark.bytes, f->hash.low, f->hash.high,
                          f->mark.bytes > 0 ? f->mark.text : "") > 0;
    }
    return is_good;
}

/* All of it with the hash of that as its last line, to be freed. */
static char *text_of(const struct ps_copy_record *r, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    if (!out)
        return NULL;
    bool is_good = print_record(out, r) && fflush(out) == 0;
    is_good = is_good && fprintf(out, "end %" PRIx64 "\n", XXH3_64bits(text, *bytes)) > 0;
    if (fclose(out) == 0 && is_good)
        return text;
    free(text);
    return NULL;
}

void ps_copy_record_write(const char *directory, const struct ps_copy_record *r)
{
    char path[PS_PATH_BYTES], next[PS_PATH_BYTES];
    size_t bytes = 0;
    if (!ps_path_join(directory, PS_COPY_RECORD_NAME, path) || !ps_path_join(directory, NEW_NAME, next))
        return;
    char *text = text_of(r, &bytes);
    (void)unlink(next); /* the rest of a run before, or a link that another user made */
    const int fd = text ? open(next, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, PS_FILE_MODE) : -1;
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file) {
        const bool is_written = fwrite(text, 1, bytes, file) == bytes;
        if (fclose(file) == 0 && is_written)
            (void)rename(next, path);
    }
    free(text);
}

void ps_copy_record_remove(const char *directory)
{
    char path[PS_PATH_BYTES];
    if (ps_path_join(directory, PS_COPY_RECORD_NAME, path))
        (void)unlink(path);
}

/* ---- reading ---- */

/* To be freed; NULL: there is none that ends with its hash. */
static char *read_text(const char *directory)
{
    char path[PS_PATH_BYTES];
    FILE *file = ps_path_join(directory, PS_COPY_RECORD_NAME, path) ? fopen(path, "re") : NULL;
    if (!file)
        return NULL;
    char *text = malloc(BYTES_MAX);
    const size_t bytes = text ? fread(text, 1, BYTES_MAX - 1, file) : 0;
    (void)fclose(file);
    if (!text)
        return NULL;
    text[bytes] = '\0';
    char *end = strlen(text) == bytes ? strstr(text, "\nend ") : NULL;
    uint64_t hash;
    if (end && sscanf(end + 1, "end %" SCNx64, &hash) == 1 &&
        hash == XXH3_64bits(text, (size_t)(end + 1 - text))) {
        end[1] = '\0';
        return text;
    }
    free(text);
    return NULL;
}

static bool parse_file(const char *line, struct ps_copy_file *f)
{
    char kind[8];
    int at = 0;
    if (sscanf(line, "%7s %" SCNu64 " %" SCNu64 " %" SCNx64 " %" SCNx64 "%n", kind, &f->sent, &f->mark.bytes,
               &f->hash.low, &f->hash.high, &at) != 5 ||
        line[at] != ' ' || strlen(line + at + 1) >= sizeof(f->mark.text))
        return false;
    f->is_whole = strcmp(kind, "whole") == 0;
    (void)snprintf(f->mark.text, sizeof(f->mark.text), "%s", line + at + 1);
    return true;
}

static bool parse_head(char **rest, struct ps_copy_record *r)
{
    const char *version = strsep(rest, "\n"), *to = strsep(rest, "\n"), *checkpoint = strsep(rest, "\n");
    uint64_t id;
    uint32_t file_count;
    struct ps_hash hash = {0};
    return checkpoint && strcmp(version, VERSION_LINE) == 0 && strncmp(to, "to ", 3) == 0 &&
           strlen(to + 3) < PS_PATH_BYTES &&
           sscanf(checkpoint, "checkpoint %" SCNu64 " %" SCNx64 " %" SCNx64 " %u", &id, &hash.low, &hash.high,
                  &file_count) == 4 &&
           file_count <= FILES_MAX && ps_copy_record_begin(r, to + 3, id, hash, file_count);
}

bool ps_copy_record_read(const char *directory, struct ps_copy_record *r)
{
    *r = (struct ps_copy_record){0};
    char *text = read_text(directory), *rest = text;
    if (!text)
        return false;
    bool is_good = parse_head(&rest, r);
    for (uint32_t i = 0; i < r->file_count && is_good; i++) {
        const char *line = strsep(&rest, "\n");
        is_good = line && parse_file(line, &r->files[i]);
    }
    free(text);
    if (!is_good)
        ps_copy_record_clear(r);
    return is_good;
}
