/* millrace ckpt verify. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "dataplane/wire/base/plural.h"
#include "tools/ckpt/ckpt.h"
#include "tools/commands.h"
#include "tools/ckpt/ckpt_check.h"
#include "tools/ckpt/ckpt_store.h"
#include "dataplane/wire/base/cli.h"

static bool is_clusters(const char *directory, uint64_t id)
{
    return ps_cluster_manifest_is_there(ckpt_store_of(directory), directory, id);
}

/* One checkpoint with all that it builds upon. */
static bool verify_one(const char *directory, uint64_t id, struct ckpt_check *check, json_t *list)
{
    char text[PS_TEXT_BYTES] = "", size[16];
    struct ckpt_chain chain = {0};
    enum mr_status status = ckpt_chain_open(directory, id, &chain, text);
    const uint32_t links = chain.files.count, nodes = chain.files.cluster ? chain.files.part_count : 0;
    const uint64_t bytes = ps_chain_bytes(&chain.files);
    if (status == MR_OK) {
        check->progress.total_bytes = check->progress.done_bytes + bytes;
        status = ckpt_check_chain(check, &chain, text);
    }
    ckpt_progress_end(&check->progress);
    ckpt_chain_close(&chain);
    if (list) {
        json_t *o = json_pack("{s:I, s:b, s:I, s:I}", "id", (json_int_t)id, "ok", status == MR_OK, "links",
                              (json_int_t)links, "bytes", (json_int_t)bytes);
        json_object_set_new(o, "newer", json_boolean(status == MR_CHECKPOINT_NEWER));
        if (nodes > 0)
            json_object_set_new(o, "nodes", json_integer(nodes));
        if (status != MR_OK)
            json_object_set_new(o, "error", json_string(text));
        json_array_append_new(list, o);
        return status == MR_OK;
    }
    ckpt_size_text(bytes, size);
    if (status == MR_OK && nodes > 0)
        (void)printf("CLUSTER-%" PRIu64 ": ok, %s in %" PRIu32 " checkpoint%s of %" PRIu32 " node%s\n", id,
                     size, links, mr_plural(links), nodes, mr_plural(nodes));
    else if (status == MR_OK)
        (void)printf("ckpt-%" PRIu64 ": ok, %s in %" PRIu32 " checkpoint%s\n", id, size, links,
                     mr_plural(links));
    else
        (void)printf("%s-%" PRIu64 ": %s: %s\n", nodes > 0 || is_clusters(directory, id) ? "CLUSTER" : "ckpt",
                     id, status == MR_CHECKPOINT_NEWER ? "NEWER" : "DAMAGED", text);
    return status == MR_OK;
}

static int verify_all(const char *command, const char *directory, const uint64_t *ids, uint32_t count,
                      bool json)
{
    uint32_t damaged = 0;
    struct ckpt_check check;
    json_t *list = json ? json_array() : NULL;
    ckpt_check_begin(&check, 0);
    for (uint32_t i = 0; i < count; i++)
        damaged += !verify_one(directory, ids[i], &check, list);
    ckpt_check_end(&check);
    int exit_code = json ? tool_print_json(command, list) : 0;
    if (damaged > 0)
        exit_code = cli_fail(command, "%s: %" PRIu32 " of %" PRIu32 " checkpoints cannot be restored",
                             directory, damaged, count);
    return exit_code;
}

int ckpt_verify(int argc, char **argv)
{
    static const char command[] = "millrace ckpt verify";
    bool json = false;
    const struct cli_option options[] = {
        {"json", CLI_FLAG, &json, NULL, "print one JSON value instead of text"}};
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "DIR|DIR/ckpt-N [options]",
        .summary = "Reads every block of a checkpoint and of those that it builds on, or of all\n"
                   "checkpoints of a directory, and checks each block against its hash. Names the file\n"
                   "and the block of the first damage in each chain.\n"
                   "The exit code is 0 if all checkpoints can be restored, and 1 if one cannot, or if there\n"
                   "is none.\n"
                   "\n"
                   "  millrace ckpt verify /var/lib/millrace",
        CLI_OPTIONS(options),
        .words_min = 1,
        .words_max = 1,
    };
    const char *path;
    char directory[PS_PATH_BYTES];
    uint32_t count;
    uint64_t *ids;
    (void)cli_parse(&usage, argc, argv, &path);
    int exit_code = ckpt_find_ids(command, path, directory, &ids, &count);
    if (exit_code != 0)
        return exit_code;
    exit_code = count > 0 ? verify_all(command, directory, ids, count, json)
                          : cli_fail(command, "%s: there is no checkpoint here", directory);
    free(ids);
    return exit_code;
}
