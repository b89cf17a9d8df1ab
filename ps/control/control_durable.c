/* When clients may forget the pushes that a checkpoint holds: once it is on the disk, or, with
 * checkpoint.durable = remote, once its copy is in the store. One copy is waited for at a time; the newest
 * checkpoint of the disk is the next. */
#include "ps/base/counter.h"
#include "ps/config/config.h"
#include "ps/control/control_internal.h"
#include "ps/core/core.h"
#include "ps/exactly_once/pushes.h"
#include "ps/move/copy_source.h"

struct advance {
    enum ps_push_floor from, to;
    uint64_t id; /* of the checkpoint that is durable from now on; 0: that does not change */
};

static void advance_on_core(struct ps_core *core, void *arg)
{
    const struct advance *a = arg;
    ps_pushes_advance(core->pushes, a->from, a->to);
    if (core->copies != NULL)
        ps_copies_note_all(core); /* a backup answers what is durable, too, once it is promoted */
    if (a->id != 0)
        mr_endpoint_set_checkpoint(core->ep, a->id);
}

static void advance(struct ps_control *c, enum ps_push_floor from, enum ps_push_floor to, uint64_t id)
{
    struct advance a = {from, to, id};
    ps_node_each_core(c->node, advance_on_core, &a);
}

static bool waits_for_copies(const struct ps_control *c)
{
    return c->node->config->checkpoint_durable == PS_DURABLE_REMOTE;
}

void ps_control_copies_poll(struct ps_control *c)
{
    struct ps_durable *d = &c->durable;
    const uint64_t there = ps_counter_read(&c->node->copier_counters.last_id);
    while (waits_for_copies(c) && d->disk_id > d->id) {
        if (d->copying_id == 0) {
            advance(c, PS_FLOOR_DISK, PS_FLOOR_COPYING, 0);
            d->copying_id = d->disk_id;
        }
        if (there < d->copying_id)
            return;
        advance(c, PS_FLOOR_COPYING, PS_FLOOR_DURABLE, d->copying_id);
        d->id = d->copying_id;
        d->copying_id = 0;
    }
}

void ps_control_published(struct ps_control *c, uint64_t id)
{
    advance(c, PS_FLOOR_CUT, waits_for_copies(c) ? PS_FLOOR_DISK : PS_FLOOR_DURABLE,
            waits_for_copies(c) ? 0 : id);
    c->durable.disk_id = id;
    ps_control_copies_poll(c);
}

void ps_control_durable(struct ps_control *c)
{
    ps_control_published(c, c->ancestry.starts[0].from);
}
