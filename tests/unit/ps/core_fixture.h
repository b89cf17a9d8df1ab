/* A core without a node around it, and saves of it. */
#ifndef CORE_FIXTURE_H
#define CORE_FIXTURE_H

#include "ps/core/core.h"

struct core_fixture {
    struct ps_config config;
    struct ps_node node;
    struct ps_core *core;
};

/* Default settings, but less memory. A test may change `config` and `node` before it makes the core. */
void core_fixture_init(struct core_fixture *c, uint32_t core_count, uint32_t memory_limit_mib);
/* Makes core `index` of them. */
void core_fixture_make(struct core_fixture *c, uint32_t index);

/* Begins checkpoint options->id of this core alone. */
struct ps_writer *core_fixture_save(struct ps_core *core, const struct ps_writer_options *options,
                                    enum ps_save_kind kind, uint64_t *bytes);
/* Writes all that is left of it, and waits until the writer is done. */
struct ps_writer_status core_fixture_save_end(struct ps_core *core, struct ps_writer *writer);

#endif
