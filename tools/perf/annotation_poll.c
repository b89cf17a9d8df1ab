#include "tools/perf/annotation_poll.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "millrace_observe.h"
#include "dataplane/wire/base/clock.h"

#define ANSWER_MS    1000u
#define EVICTIONS_US 10000000u /* without any, and the next ones are an annotation again */
#define LINE_BYTES   (MR_ANNOTATION_TEXT_BYTES + MR_NODE_NAME_BYTES + 2)

struct visit {
    struct tool_annotation_poll *poll;
    const struct tool_annotation_node *node;
    uint64_t now_us; /* of the run, about when the node answered */
};

static void write_annotation(struct tool_annotation_poll *p, uint64_t time_us, const char *event,
                             const char *text)
{
    json_t *line =
        json_pack("{s:I, s:s, s:s}", "t", (json_int_t)(time_us / 1000), "annotation", text, "event", event);
    if (line == NULL) /* its text is no UTF-8 */
        line = json_pack("{s:I, s:s, s:s}", "t", (json_int_t)(time_us / 1000), "annotation", "?", "event",
                         event);
    if (!tool_run_write(p->file, line))
        p->failed = true;
}

static void take_annotation(void *arg, const struct mr_annotation *annotation)
{
    const struct visit *v = arg;
    const uint64_t age_us = annotation->age_ns / 1000;
    char line[LINE_BYTES];
    (void)snprintf(line, sizeof(line), "%s%s%s", v->node->name, v->node->name[0] != '\0' ? ": " : "",
                   annotation->text);
    write_annotation(v->poll, v->now_us > age_us ? v->now_us - age_us : 0, annotation->event, line);
}

static struct tool_annotation_node *node_of(struct tool_annotation_poll *p, const char *name)
{
    for (uint32_t i = 0; i < p->node_count; i++)
        if (strcmp(p->nodes[i].name, name) == 0)
            return &p->nodes[i];
    if (p->node_count == TOOL_RUN_CORES_MAX)
        return NULL;
    struct tool_annotation_node *node = &p->nodes[p->node_count++];
    (void)snprintf(node->name, sizeof(node->name), "%s", name);
    return node;
}

static bool read_from(struct tool_annotation_poll *p, struct tool_annotation_node *node, uint32_t core,
                      uint64_t since, uint64_t *last)
{
    const struct mr_options options = {.deadline_ms = ANSWER_MS};
    struct visit v = {.poll = p, .node = node, .now_us = mr_clock_us() - p->started_us};
    return mr_annotations(p->client, &options, core, since, last, NULL, take_annotation, &v) == MR_OK;
}

void tool_annotation_poll(struct tool_annotation_poll *p, uint32_t core, uint32_t round)
{
    struct mr_core_place place;
    uint64_t last;
    if (!mr_client_core_place(p->client, core, &place))
        return;
    struct tool_annotation_node *node = node_of(p, place.node[0] != '\0' ? place.node : p->name);
    if (node == NULL || (node->is_known && node->round == round))
        return;
    if (!read_from(p, node, core, node->is_known ? node->last : UINT64_MAX, &last))
        return; /* it is away, or has none: next time */
    const bool started_again = node->is_known && last < node->last;
    if (started_again) /* all of its annotations are new */
        (void)read_from(p, node, core, 0, &last);
    node->last = last;
    node->is_known = true;
    node->round = round;
}

void tool_annotation_evicted(struct tool_annotation_poll *p, uint64_t rows)
{
    p->evicted += rows;
}

void tool_annotation_evictions(struct tool_annotation_poll *p)
{
    const uint64_t now_us = mr_clock_us();
    char text[64];
    if (p->evicted == 0)
        return;
    if (p->evicted_us == 0 || now_us - p->evicted_us > EVICTIONS_US) {
        (void)snprintf(text, sizeof(text), "tables evict rows: %" PRIu64 " at first", p->evicted);
        write_annotation(p, now_us - p->started_us, "evicted", text);
    }
    p->evicted_us = now_us;
    p->evicted = 0;
}
