/* A timeline of what a process does: spans of time, kept in memory and written at the end as trace events in
 * JSON, which chrome://tracing and Perfetto read. The file says which clock its times are of, and how far
 * those of its peers were ahead, so that `millrace timeline` can join files of several machines.
 *
 * NULL stands for a trace that was not asked for: every function takes it, and does nothing then. Spans may
 * be added by any thread; the other functions are called while no thread adds any.
 */
#ifndef MR_TRACE_H
#define MR_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/base/clock.h"

#define MR_TRACE_SPANS_MAX  (1u << 18) /* those beyond are counted and left out */
#define MR_TRACE_TRACKS_MAX 64u
#define MR_TRACE_CLOCKS_MAX 4096u /* likewise */
#define MR_TRACE_NO_BATCH   UINT64_MAX

struct mr_trace;

/* Creates `path` and the trace of a process with this name; NULL for no path, or an empty one. False:
 * `error` says what, where and how to fix it. */
bool mr_trace_open(const char *path, const char *process, struct mr_trace **out, char *error,
                   size_t error_bytes);
/* Writes the file and frees the trace. False: it could not be written, and `error` says why. */
bool mr_trace_close(struct mr_trace *t, char *error, size_t error_bytes);
/* Names a track below MR_TRACE_TRACKS_MAX: a thread, for instance. `name` stays valid. */
void mr_trace_name(struct mr_trace *t, uint32_t track, const char *name);
/* Adds a span; use mr_trace_span(). */
void mr_trace_add(struct mr_trace *t, uint32_t track, const char *name, uint64_t begin_ns, uint64_t end_ns,
                  uint64_t batch);

/* Notes that at the own time at_ns the clock with the name `peer` was offset_ns ahead, give or take error_ns
 * (mr_clock_offset()). By one thread at a time. */
void mr_trace_clock(struct mr_trace *t, uint64_t peer, uint64_t at_ns, int64_t offset_ns, uint64_t error_ns);

/* Returns the time at which a span begins. */
static inline uint64_t mr_trace_begin(const struct mr_trace *t)
{
    return t == NULL ? 0 : mr_clock_ns();
}

/* Adds the span of `name`, which stays valid, from begin_ns until now. Spans of one track are disjoint or
 * nested. `batch` is the id of the batch that it works on, or MR_TRACE_NO_BATCH. */
static inline void mr_trace_span(struct mr_trace *t, uint32_t track, const char *name, uint64_t begin_ns,
                                 uint64_t batch)
{
    if (t != NULL)
        mr_trace_add(t, track, name, begin_ns, mr_clock_ns(), batch);
}

#endif
