/* An .npy file opened for reading. Belongs to one thread. */
#ifndef TOOL_NPY_FILE_H
#define TOOL_NPY_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include "tools/ckpt/npy.h"

#define TOOL_NPY_TEXT_BYTES 512u

struct tool_npy_file {
    const char *path; /* the caller's */
    struct tool_npy array;
    int fd;
};

/* False with one line in `text` (TOOL_NPY_TEXT_BYTES) that names the file. */
bool tool_npy_open(struct tool_npy_file *f, const char *path, char *text);
/* Rows [first, first + count) of the first dimension, packed. */
bool tool_npy_read(const struct tool_npy_file *f, uint64_t first, uint64_t count, void *out, char *text);
void tool_npy_close(struct tool_npy_file *f);
/* Bytes of a row of the first dimension. */
uint64_t tool_npy_row_bytes(const struct tool_npy *array);

#endif
