#include "tools/ckpt/ckpt_verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/cli.h"
#include "dataplane/wire/base/number.h"
#include "dataplane/wire/base/plural.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "tools/ckpt/ckpt.h"
#include "tools/ckpt/ckpt_store.h"
#include "tools/commands.h"

void ckpt_check_begin(struct ckpt_check *check, uint64_t total_bytes)
{
    *check = (struct ckpt_check){0};
    ckpt_progress_begin(&check->progress, "verify", total_bytes);
}

void ckpt_check_end(struct ckpt_check *check)
{
    ckpt_progress_end(&check->progress);
    free(check->done);
    check->done = NULL;
}

static const struct ckpt_checked *check_link(struct ckpt_check *check, const struct ps_chain_link *link)
{
    for (uint32_t i = 0; i < check->count; i++)
        if (strcmp(check->done[i].path, link->path) == 0)
            return &check->done[i];
    struct ckpt_checked *done = realloc(check->done, (check->count + 1) * sizeof(*done));
    if (!done)
        return NULL;
    check->done = done;
    struct ckpt_checked *found = &done[check->count++];
    *found = (struct ckpt_checked){0};
    memcpy(found->path, link->path, sizeof(found->path));
    found->status = ckpt_link_each(link, NULL, NULL, &check->progress, found->text);
    return found;
}

enum mr_status ckpt_check_chain(struct ckpt_check *check, const struct ckpt_chain *chain, char *text)
{
    for (uint32_t i = 0; i < chain->files.count; i++) {
        const struct ckpt_checked *found = check_link(check, chain->files.links[i]);
        if (!found)
            return ps_checkpoint_fail(text, "read", chain->files.links[i]->path, -ENOMEM);
        if (found->status != MR_OK) {
            memcpy(text, found->text, sizeof(found->text));
            return found->status;
        }
    }
    return MR_OK;
}

static void ignore_name(void *arg, const char *name)
{
}

/* All published checkpoints of a directory, oldest first. */
static int all_ids(const char *command, const char *directory, uint64_t **ids, uint32_t *count)
{
    const struct ps_store *store = ckpt_store_of(directory);
    int error = store->list(store->self, directory, ignore_name, NULL);
    const char *explained = ps_store_explanation(-error);
    if (error != 0 && explained)
        return cli_fail(command, "%s: %s", directory, explained);
    if (error != 0)
        return cli_fail(command, "%s: %s; name a directory of checkpoints, or one of them as DIR/ckpt-N",
                        directory, strerror(-error));
    const uint32_t room = ps_checkpoint_list(store, directory, NULL, 0);
    *ids = malloc((room + 1u) * sizeof **ids);
    if (!*ids)
        return cli_fail(command, "no memory");
    *count = ps_checkpoint_list(store, directory, *ids, room);
    if (*count > room) /* some have come since they were counted */
        *count = room;
    qsort(*ids, *count, sizeof(**ids), mr_compare_u64);
    return 0;
}

int ckpt_find_ids(const char *command, const char *path, char directory[PS_PATH_BYTES], uint64_t **ids,
                  uint32_t *count)
{
    uint64_t id;
    const int exit_code = ckpt_place_open(command, path, directory, &id);
    if (exit_code != 0)
        return exit_code;
    if (id == 0)
        return all_ids(command, directory, ids, count);
    *ids = malloc(sizeof **ids);
    if (!*ids)
        return cli_fail(command, "no memory");
    **ids = id;
    *count = 1;
    return 0;
}

/* ---- millrace ckpt verify ---- */

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
    uint32_t count = 0;
    uint64_t *ids = NULL;
    (void)cli_parse(&usage, argc, argv, &path);
    int exit_code = ckpt_find_ids(command, path, directory, &ids, &count);
    if (exit_code != 0)
        return exit_code;
    exit_code = count > 0 ? verify_all(command, directory, ids, count, json)
                          : cli_fail(command, "%s: there is no checkpoint here", directory);
    free(ids);
    return exit_code;
}
