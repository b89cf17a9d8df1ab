/* The commands of `millrace ckpt`: checkpoints on disk or in a store, without a server. Same convention as
 * tools/commands.h. */
#ifndef TOOL_CKPT_H
#define TOOL_CKPT_H

#include <stdint.h>
#include "tools/ckpt/ckpt_chain.h"

int ckpt_list(int argc, char **argv);
int ckpt_verify(int argc, char **argv);
int ckpt_info(int argc, char **argv);
int ckpt_diff(int argc, char **argv);
int ckpt_dump(int argc, char **argv);
int ckpt_export(int argc, char **argv);
int ckpt_compact(int argc, char **argv);
int ckpt_import(int argc, char **argv);
int ckpt_push(int argc, char **argv);
int ckpt_pull(int argc, char **argv);

#define CKPT_MEMORY_MIB_DEFAULT 1024u
/* A row of an option table. */
#define CKPT_MEMORY_OPTION(value, what)                                                                      \
    {                                                                                                        \
        "memory-mib", CLI_U32, (value), "N",                                                                 \
            "memory in MiB " what "; with less, the files are read in more passes; default 1024"             \
    }

/* What several commands begin with. 0, or the exit code after one line about what is wrong. */
int ckpt_open(const char *command, const char *path, struct ckpt_chain *chain);
int ckpt_find_table(const char *command, const struct ckpt_chain *chain, const char *name, uint32_t *index);

/* Returns "full", "delta", "partial" or "cluster". */
const char *ckpt_kind_name(const struct ckpt_chain *chain);

/* "2026-01-31 12:00:00" of the MANIFEST, in UTC, and what the files take on disk; false when they cannot be
 * looked at. */
#define CKPT_TIME_BYTES 24u
/* The same of the checkpoint without what it builds on, and with the parts of all nodes of a cluster. */
bool ckpt_facts(const struct ckpt_chain *chain, char time_text[CKPT_TIME_BYTES], uint64_t *disk_bytes);
bool ckpt_link_facts(const struct ps_chain_link *link, char time_text[CKPT_TIME_BYTES], uint64_t *disk_bytes);

#endif
