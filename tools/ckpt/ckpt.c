/* millrace ckpt: its commands, and what several of them do. */
#include "tools/ckpt/ckpt.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "tools/commands.h"
#include "dataplane/wire/base/cli.h"

static const struct tool_command list[] = {
    {"list", ckpt_list, "list the checkpoints of a directory"},
    {"verify", ckpt_verify, "read every block, and name the file and block of any damage"},
    {"info", ckpt_info, "show what a checkpoint holds"},
    {"diff", ckpt_diff, "show what differs between two checkpoints"},
    {"dump", ckpt_dump, "write the rows of a table as CSV or .npy"},
    {"export", ckpt_export, "write a table as one .safetensors or .npy file"},
    {"compact", ckpt_compact, "write a checkpoint and those that it builds on as one full checkpoint"},
    {"import", ckpt_import, "make a checkpoint with a table from .npy files"},
};

int tool_ckpt(int argc, char **argv)
{
    const struct tool_commands commands = {
        .program = "millrace ckpt",
        .summary = "Inspects checkpoints on disk, and makes new ones; no server is needed.",
        .list = list,
        .count = sizeof(list) / sizeof(*list),
        .name_width = 12};
    return tool_run_command(&commands, argc, argv);
}

int ckpt_open(const char *command, const char *path, struct ckpt_chain *chain)
{
    char directory[PS_PATH_BYTES], text[PS_TEXT_BYTES];
    uint64_t id;
    if (!ckpt_path_split(path, directory, &id))
        return cli_fail(command, "%s: the path must have 1 to %u bytes", path, PS_PATH_BYTES - 1);
    if (ckpt_chain_open(directory, id, chain, text) != MR_OK)
        return cli_fail(command, "%s", text);
    return 0;
}

int ckpt_find_table(const char *command, const struct ckpt_chain *chain, const char *name, uint32_t *index)
{
    char names[512] = "";
    size_t at = 0;
    const struct ps_manifest *m = &ckpt_chain_last(chain)->manifest;
    if (!name)
        cli_refuse(command, "--table is missing");
    *index = ckpt_chain_table(chain, name);
    if (*index != UINT32_MAX)
        return 0;
    for (uint32_t i = 0; i < m->feature_count && at < sizeof(names); i++)
        if (m->features[i].kind == MR_TABLE)
            at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", at > 0 ? ", " : "",
                                   m->features[i].name);
    return cli_fail(command, "%s: it has no table %s; its tables are: %s%s", ckpt_chain_last(chain)->path,
                    name, at > 0 ? names : "none", at >= sizeof(names) ? ".." : "");
}

bool ckpt_link_facts(const struct ps_chain_link *link, char time_text[CKPT_TIME_BYTES], uint64_t *disk_bytes)
{
    char path[PS_PATH_BYTES];
    struct stat st;
    struct tm utc;
    if (!ps_path_join(link->path, PS_MANIFEST_NAME, path) || stat(path, &st) != 0)
        return false;
    (void)gmtime_r(&st.st_mtim.tv_sec, &utc);
    (void)strftime(time_text, CKPT_TIME_BYTES, "%Y-%m-%d %H:%M:%S", &utc);
    *disk_bytes = (uint64_t)st.st_size;
    for (uint32_t core = 0; core < link->manifest.file_count; core++) {
        char name[PS_FILE_NAME_BYTES];
        ps_file_name(core, name);
        if (!ps_path_join(link->path, name, path) || stat(path, &st) != 0)
            return false;
        *disk_bytes += (uint64_t)st.st_size;
    }
    return true;
}
