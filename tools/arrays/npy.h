/* NumPy's .npy files: the header, read and written, and rows read from a file. Any thread.
 *
 * Source: "NPY format" in numpy/lib/format.py
 * (numpy.org/doc/stable/reference/generated/numpy.lib.format.html): magic, version, length of the header, a
 * Python dictionary with the keys descr, fortran_order and shape, spaces up to a multiple of 64 bytes, a
 * newline, then the elements. Versions 1.0, 2.0 and 3.0 are read; 1.0 is written, with the same bytes as
 * numpy.save().
 *
 * Reading is strict: little-endian numbers in row-major order, each key once, and a file that is as long as
 * header and shape say. Everything else is refused with a line that says what to do in Python.
 */
#ifndef TOOL_NPY_H
#define TOOL_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "mr_tensor.h"

#define TOOL_NPY_RANK_MAX         4u
#define TOOL_NPY_HEADER_BYTES_MAX 65536u /* magic and all: what is read of a file's beginning */
#define TOOL_NPY_ERROR_BYTES      160u

struct tool_npy {
    enum mr_dtype dtype; /* never MR_BF16, which numpy does not know */
    uint32_t rank;
    uint64_t shape[TOOL_NPY_RANK_MAX];
    uint64_t data_offset; /* of the first element in the file */
    uint64_t data_bytes;
};

/* `head`: the first head_bytes of a file of file_bytes, all of it or at least TOOL_NPY_HEADER_BYTES_MAX.
 * False with one line in `error`, without the file's name. */
bool tool_npy_parse(const uint8_t *head, size_t head_bytes, uint64_t file_bytes, struct tool_npy *out,
                    char error[TOOL_NPY_ERROR_BYTES]);

/* What each row of an array holds. A single field without a name is a plain array: [rows], [rows,
 * columns], or with further dimensions [rows, columns, more[0], more[1]]. Named fields are a structured
 * array, one record a row, packed in this order. MR_BF16 is written as '<u2', the upper halves of f32. */
struct tool_npy_field {
    const char *name;
    enum mr_dtype dtype;
    uint32_t columns; /* 0: one element */
    uint32_t more[2]; /* 0: no such dimension */
};

/* Writes the header and returns its length; 0 when it does not fit into `out`. */
size_t tool_npy_header(const struct tool_npy_field *fields, uint32_t field_count, uint64_t rows, uint8_t *out,
                       size_t out_bytes);

/* ---- a file opened for reading ---- */

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
