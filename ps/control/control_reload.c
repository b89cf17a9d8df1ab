/* Keys of the configuration that change while the node serves: those that the control thread alone reads. */
#include <stdlib.h>
#include <string.h>
#include "ps/config/config_reload.h"
#include "ps/control/control_internal.h"

struct ps_control_reload {
    struct ps_config *in_use;
    struct ps_config fresh;
    bool takes[PS_CONFIG_KEY_COUNT];
};

bool ps_control_reload(struct ps_control *c, struct ps_config *in_use, const struct ps_config *fresh,
                       const bool takes[PS_CONFIG_KEY_COUNT])
{
    struct ps_control_reload *next = malloc(sizeof(*next));
    if (next == NULL)
        return false;
    next->in_use = in_use;
    next->fresh = *fresh;
    memcpy(next->takes, takes, sizeof(next->takes));
    struct ps_control_reload *waiting = atomic_exchange(&c->reload, NULL);
    for (uint32_t i = 0; i < PS_CONFIG_KEY_COUNT && waiting != NULL; i++)
        next->takes[i] |= waiting->takes[i];
    free(waiting);
    atomic_store(&c->reload, next);
    sem_post(&c->wake);
    return true;
}

void ps_control_reload_poll(struct ps_control *c)
{
    struct ps_control_reload *reload = atomic_exchange(&c->reload, NULL);
    if (reload == NULL)
        return;
    struct ps_config *config = reload->in_use;
    for (uint32_t i = 0; i < PS_CONFIG_KEY_COUNT; i++)
        if (reload->takes[i])
            ps_config_take(config, &reload->fresh, i);
    free(reload);
    atomic_store_explicit(&c->node->checkpoint_every_s, config->checkpoint_every_s, memory_order_relaxed);
    ps_save_schedule_change(&c->saves.schedule, config->checkpoint_every_steps,
                            config->checkpoint_every_s * UINT64_C(1000000), ps_control_step(c), dp_now_us());
    ps_scrubber_set_rate(c->scrubber, config->checkpoint_scrub_rate_mib_s << 20);
    const struct ps_retention retention = ps_control_retention(config);
    ps_copier_set_limits(atomic_load(&c->node->copier), &retention,
                         config->checkpoint_remote_rate_mib_s << 20);
}
