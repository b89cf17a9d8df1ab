#include "tools/capture/capture_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FLUSH_BYTES (1u << 20)
#define PATH_BYTES  4096

void capture_file_name(const char *path, uint32_t number, char *out, uint32_t out_bytes)
{
    const char *slash = strrchr(path, '/');
    const char *dot = strrchr(path, '.');
    const bool has_ending = dot != NULL && (slash == NULL ? dot > path : dot > slash + 1);
    const int stem = has_ending ? (int)(dot - path) : (int)strlen(path);
    (void)snprintf(out, out_bytes, "%.*s-%05u%s", stem, path, number, has_ending ? dot : "");
}

static bool is_stdout(const struct capture_files *files)
{
    return strcmp(files->path, "-") == 0;
}

/* Of file `number`; alone it has the name that it was given. */
static void name_of(const struct capture_files *files, uint32_t number, char name[PATH_BYTES])
{
    if (files->file_bytes == 0)
        (void)snprintf(name, PATH_BYTES, "%s", files->path);
    else
        capture_file_name(files->path, number, name, PATH_BYTES);
}

static bool files_fail(const struct capture_files *files, const char *what, char error[CAPTURE_ERROR_BYTES])
{
    char name[PATH_BYTES];
    name_of(files, files->number, name);
    (void)snprintf(error, CAPTURE_ERROR_BYTES, "%.256s cannot be %s: %s", name, what, strerror(errno));
    return false;
}

bool capture_files_flush(struct capture_files *files, char error[CAPTURE_ERROR_BYTES])
{
    struct pcapng *blocks = &files->blocks;
    if (blocks->no_memory) {
        (void)snprintf(error, CAPTURE_ERROR_BYTES, "no memory left for packets");
        return false;
    }
    for (uint32_t at = 0; at < blocks->count;) {
        const ssize_t got = write(files->fd, blocks->bytes + at, blocks->count - at);
        if (got < 0 && errno != EINTR)
            return files_fail(files, "written", error);
        at += got > 0 ? (uint32_t)got : 0;
    }
    files->written += blocks->count;
    pcapng_clear(blocks);
    return true;
}

/* Leaves room for what the file ends with. */
static void measure_end(struct capture_files *files)
{
    struct pcapng end = {.bytes = NULL};
    files->end(files->arg, &end);
    files->end_bytes = end.count;
    pcapng_free(&end);
}

static bool open_next(struct capture_files *files, char error[CAPTURE_ERROR_BYTES])
{
    char name[PATH_BYTES];
    files->number++;
    files->written = 0;
    name_of(files, files->number, name);
    files->fd = is_stdout(files) ? STDOUT_FILENO : open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (files->fd < 0)
        return files_fail(files, "made", error);
    files->begin(files->arg, &files->blocks);
    measure_end(files);
    return capture_files_flush(files, error);
}

bool capture_files_open(struct capture_files *files, char error[CAPTURE_ERROR_BYTES])
{
    files->fd = -1;
    files->number = 0;
    return open_next(files, error);
}

bool capture_files_close(struct capture_files *files, char error[CAPTURE_ERROR_BYTES])
{
    bool good = files->fd >= 0;
    if (good) {
        files->end(files->arg, &files->blocks);
        good = capture_files_flush(files, error);
        if (!is_stdout(files) && close(files->fd) != 0 && good)
            good = files_fail(files, "written", error);
    }
    files->fd = -1;
    pcapng_free(&files->blocks);
    return good;
}

static void remove_oldest(const struct capture_files *files)
{
    char name[PATH_BYTES];
    if (files->files_max == 0 || files->number <= files->files_max)
        return;
    name_of(files, files->number - files->files_max, name);
    (void)unlink(name);
}

bool capture_files_add(struct capture_files *files, const struct pcapng_packet *packet,
                       char error[CAPTURE_ERROR_BYTES])
{
    const uint64_t bytes = files->written + files->blocks.count + files->end_bytes;
    if (files->file_bytes != 0 && bytes + pcapng_packet_bytes(packet) > files->file_bytes) {
        if (!capture_files_close(files, error) || !open_next(files, error))
            return false;
        remove_oldest(files);
    }
    pcapng_add_packet(&files->blocks, packet);
    return files->blocks.count < FLUSH_BYTES || capture_files_flush(files, error);
}
