#include "dataplane/wire/base/trace.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/base/clock_name.h"

struct span {
    const char *name;
    uint64_t begin_ns, end_ns, batch;
    uint32_t track;
};

struct clock_sample {
    uint64_t peer, at_ns, error_ns;
    int64_t offset_ns;
};

struct mr_trace {
    FILE *file;
    const char *process;
    const char *tracks[MR_TRACE_TRACKS_MAX];
    uint32_t clock_count;
    struct clock_sample clocks[MR_TRACE_CLOCKS_MAX];
    atomic_uint_fast64_t added;            /* spans, those that found no room among them */
    struct span spans[MR_TRACE_SPANS_MAX]; /* the kernel gives pages when they are first written to */
};

bool mr_trace_open(const char *path, const char *process, struct mr_trace **out, char *error,
                   size_t error_bytes)
{
    *out = NULL;
    if (path == NULL || path[0] == '\0')
        return true;
    struct mr_trace *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        snprintf(error, error_bytes, "no memory for the trace %s", path);
        return false;
    }
    t->process = process;
    t->file = fopen(path, "we");
    if (t->file == NULL) {
        snprintf(error, error_bytes, "cannot create the trace %s: %s", path, strerror(errno));
        free(t);
        return false;
    }
    *out = t;
    return true;
}

void mr_trace_name(struct mr_trace *t, uint32_t track, const char *name)
{
    assert(track < MR_TRACE_TRACKS_MAX);
    if (t != NULL)
        t->tracks[track] = name;
}

void mr_trace_add(struct mr_trace *t, uint32_t track, const char *name, uint64_t begin_ns, uint64_t end_ns,
                  uint64_t batch)
{
    uint64_t place = atomic_fetch_add_explicit(&t->added, 1, memory_order_relaxed);
    if (place < MR_TRACE_SPANS_MAX)
        t->spans[place] = (struct span){name, begin_ns, end_ns, batch, track};
}

void mr_trace_clock(struct mr_trace *t, uint64_t peer, uint64_t at_ns, int64_t offset_ns, uint64_t error_ns)
{
    if (t != NULL && peer != mr_clock_name() && t->clock_count < MR_TRACE_CLOCKS_MAX)
        t->clocks[t->clock_count++] = (struct clock_sample){peer, at_ns, error_ns, offset_ns};
}

/* Microseconds with three decimals, as the format wants them. */
static void write_time(FILE *file, const char *key, uint64_t ns)
{
    fprintf(file, ", \"%s\": %" PRIu64 ".%03" PRIu64, key, ns / 1000, ns % 1000);
}

static void write_name(FILE *file, const char *what, uint32_t track, const char *name)
{
    fprintf(file,
            "{\"ph\": \"M\", \"name\": \"%s\", \"pid\": %d, \"tid\": %u, \"args\": {\"name\": \"%s\"}},\n",
            what, (int)getpid(), track, name);
}

/* Ids are text: readers in JavaScript have 53 bits for a number. */
static void write_span(FILE *file, const struct span *span)
{
    fprintf(file, "{\"ph\": \"X\", \"name\": \"%s\", \"pid\": %d, \"tid\": %u", span->name, (int)getpid(),
            span->track);
    write_time(file, "ts", span->begin_ns);
    write_time(file, "dur", span->end_ns - span->begin_ns);
    if (span->batch != MR_TRACE_NO_BATCH)
        fprintf(file, ", \"args\": {\"batch\": \"%#" PRIx64 "\"}", span->batch);
    fputs("},\n", file);
}

/* Each offset is [clock, own time, how far it is ahead, by how much that may be wrong], in ns. */
static void write_clock(const struct mr_trace *t)
{
    char host[HOST_NAME_MAX + 1] = "";
    (void)gethostname(host, sizeof(host) - 1);
    fprintf(t->file,
            "{\"ph\": \"M\", \"name\": \"process_clock\", \"pid\": %d, \"args\": {\"host\": \"%s\", "
            "\"clock\": \"%#" PRIx64 "\", \"offsets\": [",
            (int)getpid(), host, mr_clock_name());
    for (uint32_t i = 0; i < t->clock_count; i++)
        fprintf(t->file, "%s[\"%#" PRIx64 "\", %" PRIu64 ", %" PRId64 ", %" PRIu64 "]", i > 0 ? ", " : "",
                t->clocks[i].peer, t->clocks[i].at_ns, t->clocks[i].offset_ns, t->clocks[i].error_ns);
    fputs("]}},\n", t->file);
}

static void write_all(const struct mr_trace *t, uint64_t added)
{
    uint64_t kept = added < MR_TRACE_SPANS_MAX ? added : MR_TRACE_SPANS_MAX;
    fputs("[\n", t->file);
    for (uint32_t i = 0; i < MR_TRACE_TRACKS_MAX; i++)
        if (t->tracks[i] != NULL)
            write_name(t->file, "thread_name", i, t->tracks[i]);
    for (uint64_t i = 0; i < kept; i++)
        write_span(t->file, &t->spans[i]);
    write_clock(t);
    /* The last one has no comma after it. */
    fprintf(t->file,
            "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, \"args\": {\"name\": \"%s\", "
            "\"spans_left_out\": %" PRIu64 "}}\n]\n",
            (int)getpid(), t->process, added - kept);
}

bool mr_trace_close(struct mr_trace *t, char *error, size_t error_bytes)
{
    if (t == NULL)
        return true;
    write_all(t, atomic_load(&t->added));
    bool written = ferror(t->file) == 0;
    if (fclose(t->file) != 0 || !written) {
        snprintf(error, error_bytes, "cannot write the trace of %s: %s", t->process, strerror(errno));
        written = false;
    }
    free(t);
    return written;
}
