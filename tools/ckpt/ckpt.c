/* millrace ckpt: its commands, and what several of them do. */
#include "tools/ckpt/ckpt.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tools/ckpt/ckpt_store.h"
#include "tools/commands.h"
#include "dataplane/wire/base/cli.h"

static const struct tool_command list[] = {
    {"list", ckpt_list, "list the checkpoints of a directory or a store"},
    {"verify", ckpt_verify, "read every block, and name the file and block of any damage"},
    {"info", ckpt_info, "show what a checkpoint holds"},
    {"diff", ckpt_diff, "show what differs between two checkpoints"},
    {"dump", ckpt_dump, "write the rows of a table, or a parameter, as CSV or .npy"},
    {"export", ckpt_export, "write a table or a parameter as one .safetensors or .npy file"},
    {"compact", ckpt_compact, "write a checkpoint and those that it builds on as one full checkpoint"},
    {"import", ckpt_import, "make a checkpoint with a table from .npy files"},
    {"push", ckpt_push, "copy a checkpoint to a store: HDFS or S3"},
    {"pull", ckpt_pull, "copy a checkpoint from a store"},
};

int tool_ckpt(int argc, char **argv)
{
    const struct tool_commands commands = {
        .program = "millrace ckpt",
        .summary =
            "Inspects checkpoints on disk or in a store, copies them, and makes new ones; no server is\n"
            "needed.",
        .list = list,
        .count = sizeof(list) / sizeof(*list),
        .name_width = 12};
    return tool_run_command(&commands, argc, argv);
}

int ckpt_open(const char *command, const char *path, struct ckpt_chain *chain)
{
    char directory[PS_PATH_BYTES], text[PS_TEXT_BYTES];
    uint64_t id;
    const int exit_code = ckpt_place_open(command, path, directory, &id);
    if (exit_code != 0)
        return exit_code;
    if (ckpt_chain_open(directory, id, chain, text) != MR_OK)
        return cli_fail(command, "%s", text);
    return 0;
}

int ckpt_find_table(const char *command, const struct ckpt_chain *chain, const char *name, uint32_t *index)
{
    char names[512] = "";
    size_t at = 0;
    const struct ps_manifest *m = ps_chain_manifest(&chain->files);
    if (!name)
        cli_refuse(command, "name a table with --table, or a parameter with --parameter");
    *index = ckpt_chain_table(chain, name);
    if (*index != UINT32_MAX)
        return 0;
    for (uint32_t i = 0; i < m->feature_count && at < sizeof(names); i++)
        if (m->features[i].kind == MR_TABLE)
            at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", at > 0 ? ", " : "",
                                   m->features[i].name);
    return cli_fail(command, "%s: it has no table %s; its tables are: %s%s", ps_chain_path(&chain->files),
                    name, at > 0 ? names : "none", at >= sizeof(names) ? ".." : "");
}

static void put_time(time_t time_s, char time_text[CKPT_TIME_BYTES])
{
    struct tm utc;
    if (!gmtime_r(&time_s, &utc) || strftime(time_text, CKPT_TIME_BYTES, "%Y-%m-%d %H:%M:%S", &utc) == 0)
        (void)snprintf(time_text, CKPT_TIME_BYTES, "?");
}

const char *ckpt_kind_name(const struct ckpt_chain *chain)
{
    const struct ps_manifest *m = ps_chain_manifest(&chain->files);
    if (chain->files.cluster)
        return "cluster";
    return m->is_partial ? "partial" : m->parent != 0 ? "delta" : "full";
}

bool ckpt_facts(const struct ckpt_chain *chain, char time_text[CKPT_TIME_BYTES], uint64_t *disk_bytes)
{
    *disk_bytes = 0;
    for (uint32_t part = 0; part < chain->files.part_count; part++) {
        uint64_t bytes;
        if (!ckpt_link_facts(ps_chain_part_last(&chain->files, part), time_text, &bytes))
            return false;
        *disk_bytes += bytes;
    }
    if (chain->files.cluster)
        put_time((time_t)chain->files.cluster->time_s, time_text);
    return true;
}

bool ckpt_link_facts(const struct ps_chain_link *link, char time_text[CKPT_TIME_BYTES], uint64_t *disk_bytes)
{
    const struct ps_store *store = ckpt_store_of(link->path);
    char path[PS_PATH_BYTES];
    uint64_t bytes;
    int64_t written_s, ignored;
    if (!ps_path_join(link->path, PS_MANIFEST_NAME, path) ||
        store->facts(store->self, path, disk_bytes, &written_s) != 0)
        return false;
    put_time(written_s, time_text);
    for (uint32_t core = 0; core < link->manifest.file_count; core++) {
        char name[PS_FILE_NAME_BYTES];
        ps_file_name(core, name);
        if (!ps_path_join(link->path, name, path) || store->facts(store->self, path, &bytes, &ignored) != 0)
            return false;
        *disk_bytes += bytes;
    }
    return true;
}
