#include "ps/core/leaving.h"

#include <assert.h>
#include "ps/core/core.h"

void ps_leaving_add(struct ps_core *core, struct ps_feature *f)
{
    assert(!f->in_cut);
    f->leaving_next = core->leaving;
    core->leaving = f;
}

static void end_first(struct ps_core *core)
{
    struct ps_feature *f = core->leaving;
    core->leaving = f->leaving_next;
    ps_feature_destroy(f);
}

bool ps_leaving_step(struct ps_core *core)
{
    const struct ps_feature *f = core->leaving;
    if (f == NULL) {
        return false;
    }
    bool more = f->table != NULL      ? ps_table_destroy_some(f->table)
                : f->variable != NULL ? ps_variable_destroy_some(f->variable)
                                      : false;
    if (!more) {
        end_first(core);
    }
    return core->leaving != NULL;
}

void ps_leaving_end(struct ps_core *core)
{
    while (core->leaving != NULL) {
        end_first(core);
    }
}

struct left {
    bool more[DP_CORES_MAX];
};

static void step_on_core(struct ps_core *core, void *arg)
{
    struct left *left = arg;
    left->more[core->index] = ps_leaving_step(core);
}

void ps_leaving_wait(struct ps_node *node)
{
    bool more = true;
    while (more) {
        struct left left = {.more = {false}};
        ps_node_each_core(node, step_on_core, &left);
        more = false;
        for (uint32_t i = 0; i < node->core_count; i++) {
            more |= left.more[i];
        }
    }
}
