#include "tools/perf/run_facts.h"

#include <string.h>
#include "millrace_observe.h"
#include "tools/perf/svg.h"

#define ANSWER_MS 1000u

static void take_fact(void *arg, const char *name, const char *value)
{
    (void)json_object_set_new(arg, name, json_string(value)); /* no UTF-8: it is left out */
}

void tool_run_facts_ask(struct mr_client *client, const char *name, json_t *nodes)
{
    const struct mr_options options = {.deadline_ms = ANSWER_MS};
    const uint32_t cores = mr_client_core_count(client);
    for (uint32_t core = 0; nodes != NULL && core < cores; core++) {
        struct mr_core_place place;
        const char *node =
            mr_client_core_place(client, core, &place) && place.node[0] != '\0' ? place.node : name;
        if (json_object_get(nodes, node) != NULL)
            continue;
        json_t *facts = json_object();
        if (facts != NULL && mr_facts(client, &options, core, take_fact, facts) == MR_OK)
            (void)json_object_set(nodes, node, facts);
        json_decref(facts);
    }
}

void tool_run_facts_html(const struct tool_run *run, FILE *out)
{
    const char *node, *name;
    json_t *facts, *value;
    json_object_foreach(json_object_get(run->header, "facts"), node, facts)
    {
        (void)fprintf(out, "<details><summary>Configuration and machine");
        if (node[0] != '\0') {
            (void)fprintf(out, " of ");
            tool_html_text(node, out);
        }
        (void)fprintf(out, "</summary><div class=\"wide\"><table>\n");
        json_object_foreach(facts, name, value)
        {
            const char *text = json_string_value(value);
            (void)fprintf(out, "<tr><td>");
            tool_html_text(name, out);
            (void)fprintf(out, "</td><td>");
            tool_html_text(text != NULL ? text : "", out);
            (void)fprintf(out, "</td></tr>\n");
        }
        (void)fprintf(out, "</table></div></details>\n");
    }
}

static const char *text_of(const json_t *facts, const char *name)
{
    const char *text = json_string_value(json_object_get(facts, name));
    return text != NULL ? text : "";
}

uint32_t tool_run_facts_differ(const struct tool_run *before, const struct tool_run *after,
                               void (*visit)(void *arg, const char *node, const char *name,
                                             const char *before, const char *after),
                               void *arg)
{
    const json_t *old = json_object_get(before->header, "facts");
    const char *node, *name;
    json_t *facts, *value;
    uint32_t count = 0;
    json_object_foreach(json_object_get(after->header, "facts"), node, facts)
    {
        json_t *of_node = json_object_get(old, node);
        json_t *all = json_copy(facts);
        if (of_node == NULL || all == NULL) { /* another node: all differs, which says nothing */
            json_decref(all);
            continue;
        }
        (void)json_object_update_missing(all, of_node);
        json_object_foreach(all, name, value)
        {
            const char *was = text_of(of_node, name), *is = text_of(facts, name);
            if (strcmp(was, is) == 0)
                continue;
            visit(arg, node, name, was, is);
            count++;
        }
        json_decref(all);
    }
    return count;
}
