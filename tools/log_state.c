#include "tools/log_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/number.h"
#include "dataplane/wire/base/plural.h"

void tool_log_counter(void *arg, const char *name, uint64_t value)
{
    struct tool_log_state *log = arg;
    if (strcmp(name, "log.is_kept") == 0)
        log->cores += value;
    else if (strcmp(name, "log.stalled") == 0)
        log->stalled += value;
    else if (strcmp(name, "log.kept_bytes") == 0)
        log->kept_bytes += value;
    else if (strcmp(name, "log.flushes") == 0)
        log->flushes += value;
    else if (strcmp(name, "log.flush_us") == 0)
        log->flush_us += value;
    else if (strcmp(name, "log.flush_last_us") == 0)
        log->flush_last_us = mr_max_u64(log->flush_last_us, value);
    else if (strcmp(name, "log.flush_max_us") == 0)
        log->flush_max_us = mr_max_u64(log->flush_max_us, value);
    else if (strcmp(name, "log.answers_waiting") == 0)
        log->answers_waiting += value;
    else if (strcmp(name, "log.errors") == 0)
        log->errors += value;
}

void tool_log_line(const struct tool_log_state *log, char *out, size_t out_bytes)
{
    char flush[96] = "nothing flushed yet", waiting[48] = "";
    if (log->flushes > 0)
        (void)snprintf(flush, sizeof(flush), "a flush takes %.1f ms, the last %.1f ms, the longest %.1f ms",
                       (double)log->flush_us / (double)log->flushes / 1e3, (double)log->flush_last_us / 1e3,
                       (double)log->flush_max_us / 1e3);
    if (log->answers_waiting > 0)
        (void)snprintf(waiting, sizeof(waiting), "; %" PRIu64 " answer%s wait%s", log->answers_waiting,
                       mr_plural(log->answers_waiting), log->answers_waiting == 1 ? "s" : "");
    (void)snprintf(out, out_bytes, "%.1f MiB in no checkpoint yet; %s%s%s",
                   (double)log->kept_bytes / (1024.0 * 1024.0), flush, waiting,
                   log->stalled > 0 ? "; it cannot be written, and pushes wait (the server's log says why)"
                                    : "");
}

json_t *tool_log_json(const struct tool_log_state *log)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "kept_bytes", (json_int_t)log->kept_bytes,
                     "flushes", (json_int_t)log->flushes, "flush_us", (json_int_t)log->flush_us,
                     "flush_last_us", (json_int_t)log->flush_last_us, "flush_max_us",
                     (json_int_t)log->flush_max_us, "answers_waiting", (json_int_t)log->answers_waiting,
                     "errors", (json_int_t)log->errors, "stalled", (json_int_t)log->stalled);
}
