#include "core_fixture.h"

#include <string.h>
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/save/save.h"
#include "ps/server/poll.h"
#include "tests/test.h"

void core_fixture_init(struct core_fixture *c, uint32_t core_count, uint32_t memory_limit_mib)
{
    memset(c, 0, sizeof(*c));
    ps_config_default(&c->config);
    c->config.memory_limit_mib = memory_limit_mib;
    c->config.batches_memory_mib = 16;
    c->node.config = &c->config;
    ps_node_map_partitions(&c->node, core_count);
}

void core_fixture_make(struct core_fixture *c, uint32_t index)
{
    c->core = ps_core_create(&c->node, index);
    assert_non_null(c->core);
}

struct ps_writer *core_fixture_save(struct ps_core *core, const struct ps_writer_options *options,
                                    enum ps_save_kind kind, uint64_t *bytes)
{
    struct ps_writer *writer;
    struct ps_writer_options whole = *options;
    char text[PS_TEXT_BYTES];
    whole.core_count = 1;
    whole.incarnation = 1;
    assert_int_equal(ps_writer_start(NULL, &whole, &writer, text), MR_OK);
    assert_int_equal(ps_save_begin(core, writer, kind, bytes), MR_OK);
    return writer;
}

struct ps_writer_status core_fixture_save_end(struct ps_core *core, struct ps_writer *writer)
{
    struct ps_writer_status status;
    while (core->save.writer != NULL)
        ps_save_step(core, dp_now_us(), PS_SAVE_STEP_US);
    do {
        ps_writer_status(writer, &status);
    } while (!status.done);
    ps_writer_finish(writer);
    return status;
}
