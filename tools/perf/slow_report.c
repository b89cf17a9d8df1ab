#include "tools/perf/slow_report.h"

#include <inttypes.h>
#include <string.h>
#include "tools/perf/svg.h"

#define PRINTED_MAX 10u /* on the terminal */
#define SHOWN_MAX   50u /* elsewhere */
#define TEXT_BYTES  512u

static const char no_other[] = "no other call: the phases and \"waited for the CPU\" may tell";

/* ---- one call in words ---- */

static void phase_text(const struct tool_run_call *c, uint64_t ns, char out[24])
{
    if (c->is_timed)
        tool_quantity((double)ns, TOOL_UNIT_NS, out);
    else
        (void)snprintf(out, 24, "-");
}

static uint64_t send_ns(const struct tool_run_call *c)
{
    const uint64_t before_ns = c->wait_ns + c->work_ns;
    return c->total_ns > before_ns ? c->total_ns - before_ns : 0;
}

/* "lookup of 4000 keys, table 3". */
static void call_text(const struct tool_run_call *c, char *out, size_t out_bytes)
{
    size_t at = (size_t)snprintf(out, out_bytes, "%s", c->op);
    if (c->keys > 0 && at < out_bytes)
        at += (size_t)snprintf(out + at, out_bytes - at, " of %u key%s", c->keys, c->keys == 1 ? "" : "s");
    if (c->table > 0 && at < out_bytes)
        at += (size_t)snprintf(out + at, out_bytes - at, ", table %u", c->table);
    if (c->status[0] != '\0' && at < out_bytes)
        (void)snprintf(out + at, out_bytes - at, ", %s", c->status);
}

/* "9.8 ms lookup of 4000 keys, table 3, of 10.0.0.7:41000; ..." */
static void beside_text(const struct tool_run *run, const struct tool_run_call *slow, char out[TEXT_BYTES])
{
    struct tool_beside beside[TOOL_SLOW_BESIDE_MAX];
    const uint32_t count = tool_run_beside(&run->calls, slow, beside);
    size_t at = 0;
    (void)snprintf(out, TEXT_BYTES, "%s", no_other);
    for (uint32_t i = 0; i < count && at < TEXT_BYTES; i++) {
        char span[24], call[128];
        tool_quantity((double)beside[i].ns, TOOL_UNIT_NS, span);
        call_text(beside[i].call, call, sizeof(call));
        at += (size_t)snprintf(out + at, TEXT_BYTES - at, "%s%s %s, of %s", i > 0 ? "; " : "", span, call,
                               beside[i].call->client);
    }
}

/* What the list lacks; "" if nothing. */
static void missing_text(const struct tool_run_calls *calls, char *out, size_t out_bytes)
{
    out[0] = '\0';
    if (calls->lost + calls->left_out > 0)
        (void)snprintf(out, out_bytes,
                       "%" PRIu64
                       " more slow calls or neighbours of such are missing: the cores no longer had %" PRIu64
                       ", and %" PRIu64 " were beyond what a run may hold",
                       calls->lost + calls->left_out, calls->lost, calls->left_out);
}

/* ---- the terminal ---- */

void tool_slow_print(const struct tool_run *run, FILE *out)
{
    const struct tool_run_call *slowest[PRINTED_MAX];
    char span[24], wait[24], work[24], send[24], call[128], text[TEXT_BYTES];
    if (run->calls.slow_ns == 0)
        return;
    const uint32_t count = tool_run_slowest(&run->calls, slowest, PRINTED_MAX);
    tool_quantity((double)run->calls.slow_ns, TOOL_UNIT_NS, span);
    (void)fprintf(out, "\n%u slow call%s, of %s or longer\n", run->calls.slow,
                  run->calls.slow == 1 ? "" : "s", span);
    missing_text(&run->calls, text, sizeof(text));
    if (text[0] != '\0')
        (void)fprintf(out, "%s\n", text);
    if (count > 0)
        (void)fprintf(out, "%10s %4s %10s %10s %10s %10s  %s\n", "at", "core", "all", "wait", "work", "send",
                      "call");
    for (uint32_t i = 0; i < count; i++) {
        const struct tool_run_call *c = slowest[i];
        tool_quantity((double)c->total_ns, TOOL_UNIT_NS, span);
        phase_text(c, c->wait_ns, wait);
        phase_text(c, c->work_ns, work);
        phase_text(c, send_ns(c), send);
        call_text(c, call, sizeof(call));
        beside_text(run, c, text);
        (void)fprintf(out, "%8.2f s %4u %10s %10s %10s %10s  %s, %u bytes in, %u out, of %s\n",
                      (double)c->time_ms / 1e3, c->core, span, wait, work, send, call, c->request_bytes,
                      c->reply_bytes, c->client);
        (void)fprintf(out, "%10s meanwhile: %s\n", "", text);
    }
    if (run->calls.slow > count)
        (void)fprintf(out, "%10s and %u more\n", "", run->calls.slow - count);
}

/* ---- JSON ---- */

static json_t *call_json(const struct tool_run_call *c)
{
    json_t *object =
        json_pack("{s:f, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:s}", "s", (double)c->time_ms / 1e3, "core",
                  (int)c->core, "op", c->op, "client", c->client, "table", (json_int_t)c->table, "keys",
                  (json_int_t)c->keys, "request_bytes", (json_int_t)c->request_bytes, "reply_bytes",
                  (json_int_t)c->reply_bytes, "total_ns", (json_int_t)c->total_ns, "status",
                  c->status[0] != '\0' ? c->status : "OK");
    if (object == NULL || !c->is_timed)
        return object;
    (void)json_object_set_new(object, "wait_ns", json_integer((json_int_t)c->wait_ns));
    (void)json_object_set_new(object, "work_ns", json_integer((json_int_t)c->work_ns));
    (void)json_object_set_new(object, "send_ns", json_integer((json_int_t)send_ns(c)));
    return object;
}

static json_t *slow_json(const struct tool_run *run, const struct tool_run_call *c)
{
    struct tool_beside beside[TOOL_SLOW_BESIDE_MAX];
    json_t *object = call_json(c), *list = json_array();
    const uint32_t count = tool_run_beside(&run->calls, c, beside);
    for (uint32_t i = 0; i < count; i++) {
        json_t *other = call_json(beside[i].call);
        (void)json_object_set_new(other, "within_ns", json_integer((json_int_t)beside[i].ns));
        (void)json_array_append_new(list, other);
    }
    (void)json_object_set_new(object, "meanwhile", list);
    return object;
}

json_t *tool_slow_json(const struct tool_run *run)
{
    const struct tool_run_call *slowest[SHOWN_MAX];
    if (run->calls.slow_ns == 0)
        return NULL;
    json_t *list = json_array();
    const uint32_t count = tool_run_slowest(&run->calls, slowest, SHOWN_MAX);
    for (uint32_t i = 0; i < count; i++)
        (void)json_array_append_new(list, slow_json(run, slowest[i]));
    return json_pack("{s:I, s:I, s:I, s:I, s:o}", "slow_ns", (json_int_t)run->calls.slow_ns, "count",
                     (json_int_t)run->calls.slow, "lost", (json_int_t)run->calls.lost, "left_out",
                     (json_int_t)run->calls.left_out, "slowest", list);
}

/* ---- the page ---- */

static void text_cell(const char *text, FILE *out)
{
    (void)fprintf(out, "<td>");
    tool_html_text(text, out);
    (void)fprintf(out, "</td>");
}

static void span_cell(const struct tool_run_call *c, uint64_t ns, FILE *out)
{
    char text[24];
    phase_text(c, ns, text);
    text_cell(text, out);
}

static void html_row(const struct tool_run *run, const struct tool_run_call *c, FILE *out)
{
    char text[TEXT_BYTES];
    (void)fprintf(out, "<tr>");
    call_text(c, text, sizeof(text));
    text_cell(text, out);
    (void)fprintf(out, "<td>%.2f s</td><td>%u</td>", (double)c->time_ms / 1e3, c->core);
    tool_quantity((double)c->total_ns, TOOL_UNIT_NS, text);
    text_cell(text, out);
    span_cell(c, c->wait_ns, out);
    span_cell(c, c->work_ns, out);
    span_cell(c, send_ns(c), out);
    (void)fprintf(out, "<td>%u</td><td>%u</td>", c->request_bytes, c->reply_bytes);
    text_cell(c->client, out);
    beside_text(run, c, text);
    text_cell(text, out);
    (void)fprintf(out, "</tr>\n");
}

void tool_slow_html(const struct tool_run *run, FILE *out)
{
    const struct tool_run_call *slowest[SHOWN_MAX];
    char span[24], text[TEXT_BYTES];
    if (run->calls.slow_ns == 0)
        return;
    const uint32_t count = tool_run_slowest(&run->calls, slowest, SHOWN_MAX);
    tool_quantity((double)run->calls.slow_ns, TOOL_UNIT_NS, span);
    missing_text(&run->calls, text, sizeof(text));
    (void)fprintf(out, "<h2>Slow calls</h2><p>%u call%s took %s or longer%s%s%s</p>\n", run->calls.slow,
                  run->calls.slow == 1 ? "" : "s", span,
                  run->calls.slow > count ? "; these are the slowest" : "", text[0] != '\0' ? ". " : "",
                  text);
    if (count == 0)
        return;
    (void)fprintf(out, "<div class=\"wide\"><table><tr><th>call</th><th>at</th><th>core</th><th>all</th>"
                       "<th>wait</th><th>work</th><th>send</th><th>bytes in</th><th>bytes out</th>"
                       "<th>client</th><th>what the core worked on meanwhile</th></tr>\n");
    for (uint32_t i = 0; i < count; i++)
        html_row(run, slowest[i], out);
    (void)fprintf(out, "</table></div>\n");
}
