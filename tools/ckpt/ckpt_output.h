/* Files that commands write: under a name of their own until they are whole, and buffered. Belongs to one
 * thread. */
#ifndef TOOL_CKPT_OUTPUT_H
#define TOOL_CKPT_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPT_OUTPUT_PATH_BYTES 1024u

struct ckpt_output {
    char path[CKPT_OUTPUT_PATH_BYTES];    /* what it will be called */
    char partial[CKPT_OUTPUT_PATH_BYTES]; /* what it is called until then: path with ".part" behind */
    int fd;                               /* -1: none */
};

/* 0, or -errno. What is left of an attempt that was killed is written over. */
int ckpt_output_create(struct ckpt_output *o, const char *path);
/* Durable under its own name, in place of what was there. 0, or -errno; then the file is gone, and what was
 * there stays. */
int ckpt_output_commit(struct ckpt_output *o);
/* Harmless when nothing is open. */
void ckpt_output_discard(struct ckpt_output *o);

/* A stream of bytes to a place in a file, or to a pipe. */
#define CKPT_COLUMN_BYTES (256u << 10)
struct ckpt_column {
    int fd;
    bool is_pipe;    /* written without an offset */
    uint64_t offset; /* of the next write */
    uint8_t *buffer; /* CKPT_COLUMN_BYTES */
    size_t fill;
    int error; /* the first -errno; from then on nothing is written */
};

/* False when memory is short. */
bool ckpt_column_open(struct ckpt_column *c, int fd, bool is_pipe, uint64_t offset);
void ckpt_column_put(struct ckpt_column *c, const void *bytes, size_t count);
/* What is left in the buffer; frees it. 0, or the first -errno. */
int ckpt_column_close(struct ckpt_column *c);

#endif
