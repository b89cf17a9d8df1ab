/* Files that dump and export write: buffered, with a name of their own until they are complete; and rows of a
 * table as columns of numbers in them. Belongs to one thread. */
#ifndef TOOL_CKPT_OUTPUT_H
#define TOOL_CKPT_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tools/ckpt/ckpt_chain.h"

#define CKPT_OUTPUT_PATH_BYTES 1024u

struct ckpt_output {
    char path[CKPT_OUTPUT_PATH_BYTES];    /* what it will be called */
    char partial[CKPT_OUTPUT_PATH_BYTES]; /* what it is called until then: path with ".part" appended */
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

/* Lines of text, to a file or to standard output. */
struct ckpt_text {
    const char *command, *path; /* NULL: standard output */
    struct ckpt_output output;
    struct ckpt_column column;
};

/* 0, or an exit code, and the reason was printed. From now on SIGPIPE is ignored. */
int ckpt_text_open(struct ckpt_text *t, const char *command, const char *path);
/* Ends it. With `failure` (NULL: none), or after an error of writing, a file is discarded; either is printed,
 * `what` being the words for what standard output got. Returns the exit code: 0 also if the reader of a pipe
 * has enough, as `| head` does. */
int ckpt_text_close(struct ckpt_text *t, const char *what, const char *failure);

/* ---- rows ---- */

#define CKPT_FIELDS_MAX (CKPT_PARTS_MAX + 1u)

/* The key, and parts of the row. */
struct ckpt_field {
    const char *name;
    enum mr_dtype dtype;          /* as written */
    uint32_t columns;             /* 0: a single element */
    const struct ckpt_part *part; /* NULL: the key */
};

struct ckpt_fields {
    struct ckpt_field list[CKPT_FIELDS_MAX];
    uint32_t count;
};

/* What is asked for. The key comes first, then the values. */
void ckpt_fields_of(const struct ckpt_row *row, const char *key_name, bool with_state, bool as_f32,
                    struct ckpt_fields *out);

/* Rows of the table at `index` of the chain's last link. */
struct ckpt_table_source {
    const struct ckpt_chain *chain;
    uint32_t index;
    uint64_t memory_bytes;
    const char *what; /* for progress: "dump" */
    bool is_silent;   /* no progress */
};
/* Visits all live rows, with progress on standard error. */
enum mr_status ckpt_table_each(const struct ckpt_table_source *source, ckpt_visit_rows visit, void *arg,
                               char *text);
enum mr_status ckpt_table_count(const struct ckpt_table_source *source, uint64_t *rows, char *text);
/* Writes each field of each row to its column, or all to the first column, row by row. `row_count`: what
 * ckpt_table_count() said; another number of rows is an error. Errors of the columns are reported by
 * ckpt_column_close(). */
enum mr_status ckpt_table_write(const struct ckpt_table_source *source, const struct ckpt_fields *fields,
                                struct ckpt_column *columns, bool is_interleaved, uint64_t row_count,
                                char *text);

#endif
