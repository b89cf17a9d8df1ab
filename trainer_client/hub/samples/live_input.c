#include "trainer_client/hub/samples/live_input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include "trainer_client/hub/samples/sample_file.h"

#define READ_BYTES     (1u << 20) /* room for a read; also what a pipe is asked to hold */
#define FOLLOW_WAIT_MS 50

enum mr_status hub_live_input_open(struct hub_live_input *in, const char *path,
                                   const struct hub_allowed *allowed, bool follow, char *error)
{
    struct stat opened;
    bool is_standard = strcmp(path, HUB_STANDARD_INPUT) == 0;
    *in = (struct hub_live_input){.path = path, .follow = follow, .fd = -1, .stop_fd = -1};
    if (!is_standard && hub_allowed_check(allowed, path, error) != MR_OK)
        return MR_UNAUTHORIZED;
    in->fd = is_standard ? STDIN_FILENO : hub_allowed_open(allowed, path, O_RDONLY | O_NONBLOCK);
    if (in->fd < 0 || fstat(in->fd, &opened) != 0) {
        snprintf(error, HUB_ERROR_BYTES, "cannot open %.200s: %s; the path is one on the hub's machine",
                 is_standard ? "standard input" : path, strerror(errno));
        return MR_INVALID_ARGUMENT;
    }
    in->is_file = S_ISREG(opened.st_mode);
    in->file_number = opened.st_ino;
    if (!in->is_file && !is_standard) {
        snprintf(error, HUB_ERROR_BYTES,
                 "%.200s is not a regular file, and cannot be followed; give it to the hub as standard input",
                 path);
        return MR_INVALID_ARGUMENT;
    }
    if (in->is_file && is_standard)
        in->start = in->offset = (uint64_t)lseek(in->fd, 0, SEEK_CUR);
    if (!in->is_file)
        (void)fcntl(in->fd, F_SETPIPE_SZ, READ_BYTES); /* fewer wake-ups; a smaller pipe works as well */
    in->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (in->stop_fd < 0) {
        snprintf(error, HUB_ERROR_BYTES, "cannot read %.200s: eventfd: %s", path, strerror(errno));
        return MR_NO_MEMORY;
    }
    return MR_OK;
}

void hub_live_input_close(struct hub_live_input *in)
{
    if (in->fd > STDIN_FILENO)
        close(in->fd);
    if (in->stop_fd >= 0)
        close(in->stop_fd);
    free(in->buffer);
    *in = (struct hub_live_input){.fd = -1, .stop_fd = -1};
}

void hub_live_input_rewind(struct hub_live_input *in)
{
    eventfd_t ignored;
    (void)eventfd_read(in->stop_fd, &ignored);
    in->offset = in->start;
    in->begin = in->end = 0;
}

void hub_live_input_stop(struct hub_live_input *in)
{
    (void)eventfd_write(in->stop_fd, 1);
}

/* True: it was stopped. Returns early when `events` happen to the input. */
static bool wait_or_stopped(const struct hub_live_input *in, short events, int wait_ms)
{
    struct pollfd fds[2] = {{.fd = in->stop_fd, .events = POLLIN}, {.fd = in->fd, .events = events}};
    (void)poll(fds, events != 0 ? 2 : 1, wait_ms);
    return (fds[0].revents & POLLIN) != 0;
}

static bool make_room(struct hub_live_input *in, size_t bytes)
{
    if (in->begin > 0 && in->capacity - in->begin < bytes + READ_BYTES) {
        memmove(in->buffer, in->buffer + in->begin, in->end - in->begin);
        in->end -= in->begin;
        in->begin = 0;
    }
    if (in->capacity - in->begin >= bytes + READ_BYTES)
        return true;
    size_t capacity = in->begin + bytes + READ_BYTES;
    char *grown = realloc(in->buffer, capacity);
    if (grown == NULL)
        return false;
    in->buffer = grown;
    in->capacity = capacity;
    return true;
}

/* At the end of a followed file: whether its name is another's by now, or nobody's. */
static bool has_gone(const struct hub_live_input *in)
{
    struct stat now;
    return strcmp(in->path, HUB_STANDARD_INPUT) != 0 &&
           (stat(in->path, &now) != 0 || now.st_ino != in->file_number);
}

static enum hub_live_input_state input_fail(const struct hub_live_input *in, const char *why, char *error)
{
    snprintf(error, HUB_ERROR_BYTES, "cannot read %.200s: %s", in->path, why);
    return HUB_LIVE_INPUT_FAILED;
}

/* Nothing comes after in->offset. HUB_LIVE_INPUT_BYTES: more may by now. */
static enum hub_live_input_state at_file_end(const struct hub_live_input *in, bool *was_gone, char *error)
{
    struct stat now;
    if (!in->follow || *was_gone)
        return HUB_LIVE_INPUT_END;
    if (fstat(in->fd, &now) == 0 && (uint64_t)now.st_size < in->offset)
        return input_fail(in, "it has shrunk while it was followed: start a plan with another `run`", error);
    *was_gone = has_gone(in); /* what was written before is read once more */
    return !*was_gone && wait_or_stopped(in, 0, FOLLOW_WAIT_MS) ? HUB_LIVE_INPUT_STOPPED
                                                                : HUB_LIVE_INPUT_BYTES;
}

static enum hub_live_input_state read_some(struct hub_live_input *in, bool *was_gone, char *error)
{
    char *to = in->buffer + in->end;
    size_t room = in->capacity - in->end;
    if (wait_or_stopped(in, in->is_file ? 0 : POLLIN, in->is_file ? 0 : -1))
        return HUB_LIVE_INPUT_STOPPED;
    ssize_t n = in->is_file ? pread(in->fd, to, room, (off_t)in->offset) : read(in->fd, to, room);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN ? HUB_LIVE_INPUT_BYTES
                                                 : input_fail(in, strerror(errno), error);
    if (n == 0)
        return in->is_file ? at_file_end(in, was_gone, error) : HUB_LIVE_INPUT_END;
    in->end += (size_t)n;
    in->offset += (size_t)n;
    return HUB_LIVE_INPUT_BYTES;
}

enum hub_live_input_state hub_live_input_wait(struct hub_live_input *in, size_t bytes, char *error)
{
    bool was_gone = false;
    if (in->end - in->begin < bytes && !make_room(in, bytes))
        return input_fail(in, "no memory", error);
    while (in->end - in->begin < bytes) {
        enum hub_live_input_state state = read_some(in, &was_gone, error);
        if (state != HUB_LIVE_INPUT_BYTES)
            return state;
    }
    return HUB_LIVE_INPUT_BYTES;
}

uint64_t hub_live_input_identity(const struct hub_live_input *in)
{
    struct statx of = {0};
    if (!in->is_file || statx(in->fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &of) != 0)
        return 0;
    const uint64_t words[] = {of.stx_ino,
                              (of.stx_mask & STATX_BTIME) != 0 ? (uint64_t)of.stx_btime.tv_sec : 0,
                              (of.stx_mask & STATX_BTIME) != 0 ? of.stx_btime.tv_nsec : 0, in->start};
    return XXH3_64bits(words, sizeof(words));
}
