/* A recorded run, *.mrp: JSON lines, compressed with gzip, so that `zcat run.mrp | jq` reads it, too.
 *
 * The first line is the header: {"format": "millrace run", "version": 1, ...}, with the configuration and the
 * machine of each node in "facts". Then, each with "t", the milliseconds since the start:
 *   {"name": 7, "is": "wire.rx_packets"}         what counter 7 is, before it is first used
 *   {"t": 100, "c": 0, "v": [7, 1200, 9, -3]}    core 0: counter 7 rose by 1200, counter 9 fell by 3; those
 *                                                that did not change are left out
 *   {"t": 100, "c": 0, "away": true}             core 0 did not answer
 *   {"t": 100, "c": 0, "op": "lookup", "phase": "work", "sum": 9000, "max": 700, "b": [300, 2]}
 *                                                calls counted since the line before: bucket 300 has 2 more
 *                                                (mr_histogram.h); "max" is the longest so far
 *   {"t": 100, "c": 0, "call": {"n": 7, "at": 12, "op": "lookup", "total": 9000, "in": 9, "out": 80,
 *    "from": "."}}                             core 0: a call that arrived then, and was slow (the header's
 *                                                "on_slow_ns") or not far from one that was; "n" is its
 *                                                number, "at" its arrival by the core's clock; with
 *                                                "wait" and "work" where they are known; "table", "keys",
 *                                                "status" if any
 *   {"t": 100, "c": 0, "calls_lost": 3, "calls_left_out": 0}
 *                                                that many more the core no longer had, and the file has no
 *                                                room for
 *   {"t": 100, "annotation": "text", "event": "saved"} what a client or a node's log said
 * Lines and members that a reader does not know are left out by it.
 */
#ifndef TOOL_RUN_FILE_H
#define TOOL_RUN_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>

#define TOOL_RUN_FORMAT  "millrace run"
#define TOOL_RUN_VERSION 1

/* ---- writing ---- */

struct tool_run_writer;

/* Makes or replaces the file. NULL: errno says why. */
struct tool_run_writer *tool_run_create(const char *path);
/* Appends a line and takes the value over. False: the disk has no room, or memory is short; nothing more is
 * written then. */
bool tool_run_write(struct tool_run_writer *w, json_t *line);
/* Gives all lines so far to the kernel: whoever reads the file, also after a crash, finds them. */
bool tool_run_flush(struct tool_run_writer *w);
/* False: not all is in the file. */
bool tool_run_close(struct tool_run_writer *w);

/* ---- reading ---- */

/* What reads a run. Each function returns whether it goes on. */
struct tool_run_visitor {
    bool (*line)(void *arg, const json_t *line);
    /* A line of counters, which most are: `values` are pairs of a counter and by how much it rose. NULL: such
     * lines are given to `line`, too. */
    bool (*counters)(void *arg, uint64_t time_ms, uint32_t core, const int64_t *values, uint32_t count);
};

/* Calls the visitor with every line, the header first, until it returns false. False: there is no such file,
 * or it is no run; `error` says what is wrong. A file that ends in the middle of a line, as after a crash, is
 * read up to there. */
bool tool_run_read(const char *path, const struct tool_run_visitor *visitor, void *arg, char *error,
                   size_t error_bytes);

#endif
