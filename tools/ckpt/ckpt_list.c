/* millrace ckpt list. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ckpt/ckpt.h"
#include "tools/commands.h"
#include "tools/ckpt/ckpt_verify.h"
#include "dataplane/wire/base/cli.h"

struct listed {
    uint64_t id;
    bool is_known; /* its MANIFEST could be read, and those it builds upon */
    bool is_good;  /* as far as it was looked at */
    bool is_newer; /* a later version wrote it */
    bool is_at_step;
    const char *kind;
    uint64_t parent, step, disk_bytes;
    uint32_t link_count;
    uint32_t node_count; /* of a cluster; else 0 */
    char time[CKPT_TIME_BYTES];
    char text[PS_TEXT_BYTES];
};

static void look_at(const char *directory, uint64_t id, struct ckpt_check *check, struct listed *l)
{
    struct ckpt_chain chain = {0};
    *l = (struct listed){.id = id, .kind = "?", .time = "?"};
    const enum mr_status status = ckpt_chain_open(directory, id, &chain, l->text);
    l->is_known = status == MR_OK;
    l->is_newer = status == MR_CHECKPOINT_NEWER;
    l->is_good = l->is_known;
    if (!l->is_known)
        return;
    const struct ps_manifest *m = ps_chain_manifest(&chain.files);
    l->kind = ckpt_kind_name(&chain);
    l->parent = m->parent;
    l->step = m->step;
    l->is_at_step = m->is_at_step;
    l->link_count = ps_chain_links(&chain.files);
    l->node_count = chain.files.cluster ? chain.files.part_count : 0;
    if (!ckpt_facts(&chain, l->time, &l->disk_bytes)) {
        l->is_good = false;
        ps_text_path(l->text, ps_chain_path(&chain.files), "a file that its MANIFEST names is missing");
    } else if (check)
        l->is_good = ckpt_check_chain(check, &chain, l->text) == MR_OK;
    ckpt_chain_close(&chain);
}

static json_t *listed_json(const struct listed *l, bool verify)
{
    json_t *o = json_pack("{s:I, s:s, s:b, s:b}", "id", (json_int_t)l->id, "kind", l->kind, "damaged",
                          !l->is_good && !l->is_newer, "newer", l->is_newer);
    if (l->is_known) {
        json_object_set_new(o, "parent", l->parent > 0 ? json_integer((json_int_t)l->parent) : json_null());
        json_object_set_new(o, "step", l->step > 0 ? json_integer((json_int_t)l->step) : json_null());
        json_object_set_new(o, "at_step", json_boolean(l->is_at_step));
        json_object_set_new(o, "links", json_integer(l->link_count));
        if (l->node_count > 0)
            json_object_set_new(o, "nodes", json_integer(l->node_count));
        json_object_set_new(o, "time", json_string(l->time));
        json_object_set_new(o, "bytes", json_integer((json_int_t)l->disk_bytes));
    }
    if (verify)
        json_object_set_new(o, "verified", json_boolean(l->is_good));
    if (!l->is_good)
        json_object_set_new(o, "error", json_string(l->text));
    return o;
}

static void print_listed(const struct listed *l, bool verify)
{
    char parent[24] = "-", step[24] = "-", size[16] = "?";
    if (l->parent > 0)
        (void)snprintf(parent, sizeof(parent), "%" PRIu64, l->parent);
    if (l->step > 0)
        (void)snprintf(step, sizeof(step), "%" PRIu64 "%s", l->step, l->is_at_step ? "" : "+");
    if (l->disk_bytes > 0)
        ckpt_size_text(l->disk_bytes, size);
    (void)printf("%8" PRIu64 "  %-7s%8s%12s  %-20s%12s", l->id, l->kind, parent, step, l->time, size);
    if (!l->is_good)
        (void)printf("  %s: %s\n", l->is_newer ? "NEWER" : "DAMAGED", l->text);
    else
        (void)printf("%s\n", verify ? "  ok" : "");
}

static int list_all(const char *command, const char *path, bool verify, bool json)
{
    char directory[PS_PATH_BYTES];
    uint64_t *ids = NULL;
    uint32_t count = 0, damaged = 0;
    struct ckpt_check check;
    json_t *list = json ? json_array() : NULL;
    int exit_code = ckpt_find_ids(command, path, directory, &ids, &count);
    if (exit_code != 0) {
        json_decref(list);
        return exit_code;
    }
    if (!json && count > 0)
        (void)printf("%8s  %-7s%8s%12s  %-20s%12s\n", "id", "kind", "parent", "step", "time (UTC)", "size");
    ckpt_check_begin(&check, 0);
    for (uint32_t i = 0; i < count; i++) {
        struct listed l;
        look_at(directory, ids[i], verify ? &check : NULL, &l);
        ckpt_progress_end(&check.progress);
        damaged += !l.is_good;
        if (json)
            json_array_append_new(list, listed_json(&l, verify));
        else
            print_listed(&l, verify);
    }
    ckpt_check_end(&check);
    free(ids);
    if (json)
        exit_code = tool_print_json(command, list);
    if (count == 0 && !json)
        (void)cli_fail(command, "%s: there is no checkpoint in this directory", directory);
    if (damaged > 0 && exit_code == 0)
        exit_code = cli_fail(command, "%s: %" PRIu32 " of %" PRIu32 " checkpoints cannot be restored",
                             directory, damaged, count);
    return exit_code;
}

int ckpt_list(int argc, char **argv)
{
    bool verify = false, json = false;
    const struct cli_option options[] = {
        {"verify", CLI_FLAG, &verify, NULL, "read every block of each checkpoint"},
        {"json", CLI_FLAG, &json, NULL, "print one JSON value instead of text"},
    };
    const struct cli_usage usage = {
        .program = "millrace ckpt list",
        .synopsis = "DIR|DIR/ckpt-N [options]",
        .summary = "Lists the checkpoints of a directory, oldest first. For each it shows which checkpoint\n"
                   "it builds on, the step at which it was cut (with a + if it may contain later pushes),\n"
                   "when it was written, and how much space its own files take on disk.\n"
                   "The exit code is 1 if a checkpoint is damaged; a directory without checkpoints is not\n"
                   "an error.\n"
                   "\n"
                   "  millrace ckpt list /var/lib/millrace --verify",
        CLI_OPTIONS(options),
        .words_min = 1,
        .words_max = 1,
    };
    const char *path;
    (void)cli_parse(&usage, argc, argv, &path);
    return list_all(usage.program, path, verify, json);
}
