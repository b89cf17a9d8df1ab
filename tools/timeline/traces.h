/* The traces of a run (dataplane/wire/base/trace.h) of hub, trainers and servers, read and put on one clock,
 * that of the first file. One thread. */
#ifndef TOOL_TIMELINE_TRACES_H
#define TOOL_TIMELINE_TRACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <jansson.h>

struct tool_span {
    const char *name;
    int64_t begin_ns, end_ns; /* of the common clock, from the first span on */
    const char *batch;        /* NULL: of none */
    uint32_t process;         /* index */
    uint32_t track;
};

struct tool_process {
    json_t *events;
    char name[64], host[64];
    char title[160];   /* "fm train 2 on HOST": tells it apart */
    uint64_t clock;    /* 0: the file does not say; taken for the first file's */
    uint64_t error_ns; /* its times are wrong by at most that against the first file's */
    uint64_t spans_left_out;
};

struct tool_traces {
    struct tool_process *processes;
    struct tool_span *spans; /* in the order of their begins */
    size_t span_count;
    uint32_t process_count;
};

/* Reads the files. False: `error` says what is wrong and where, and nothing is to be freed. */
bool tool_traces_load(const char *const *paths, uint32_t count, struct tool_traces *out, char *error,
                      size_t error_bytes);
void tool_traces_free(struct tool_traces *t);
/* Returns copies of the spans that work on a batch, by batch and then by time; the caller frees them. NULL:
 * no memory. */
struct tool_span *tool_traces_by_batch(const struct tool_traces *t, size_t *count);
/* Writes Chrome's trace events, with flows from span to span of each batch. False: it could not. */
bool tool_traces_write(const struct tool_traces *t, FILE *file);

#endif
