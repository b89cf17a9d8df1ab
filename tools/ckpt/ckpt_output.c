#include "tools/ckpt/ckpt_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int ckpt_output_create(struct ckpt_output *o, const char *path)
{
    o->fd = -1;
    const int n = snprintf(o->partial, sizeof(o->partial), "%s.part", path);
    if (n < 0 || n >= (int)sizeof(o->partial))
        return -ENAMETOOLONG;
    (void)snprintf(o->path, sizeof(o->path), "%s", path);
    o->fd = open(o->partial, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return o->fd >= 0 ? 0 : -errno;
}

void ckpt_output_discard(struct ckpt_output *o)
{
    if (o->fd < 0)
        return;
    (void)close(o->fd);
    o->fd = -1;
    (void)unlink(o->partial);
}

int ckpt_output_commit(struct ckpt_output *o)
{
    int error = fsync(o->fd) == 0 ? 0 : -errno;
    if (error == 0 && rename(o->partial, o->path) != 0)
        error = -errno;
    if (error != 0) {
        ckpt_output_discard(o);
        return error;
    }
    const int closed = close(o->fd);
    o->fd = -1;
    return closed == 0 ? 0 : -errno;
}

bool ckpt_column_open(struct ckpt_column *c, int fd, bool is_pipe, uint64_t offset)
{
    *c = (struct ckpt_column){.fd = fd, .is_pipe = is_pipe, .offset = offset};
    c->buffer = malloc(CKPT_COLUMN_BYTES);
    return c->buffer != NULL;
}

static void flush(struct ckpt_column *c)
{
    const uint8_t *from = c->buffer;
    while (c->fill > 0 && c->error == 0) {
        const ssize_t n =
            c->is_pipe ? write(c->fd, from, c->fill) : pwrite(c->fd, from, c->fill, (off_t)c->offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            c->error = n < 0 ? -errno : -EIO;
            break;
        }
        from += n;
        c->fill -= (size_t)n;
        c->offset += (uint64_t)n;
    }
    c->fill = 0;
}

void ckpt_column_put(struct ckpt_column *c, const void *bytes, size_t count)
{
    const uint8_t *from = bytes;
    while (count > 0 && c->error == 0) {
        const size_t room = CKPT_COLUMN_BYTES - c->fill, n = count < room ? count : room;
        memcpy(c->buffer + c->fill, from, n);
        c->fill += n;
        from += n;
        count -= n;
        if (c->fill == CKPT_COLUMN_BYTES)
            flush(c);
    }
}

int ckpt_column_close(struct ckpt_column *c)
{
    if (c->buffer)
        flush(c);
    free(c->buffer);
    c->buffer = NULL;
    return c->error;
}
