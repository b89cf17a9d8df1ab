#include "ps/server/reload.h"

#include <string.h>
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "ps/config/config_reload.h"
#include "ps/control/control.h"
#include "ps/core/facts.h"
#include "ps/server/node_log.h"

/* Cluster and checkpoint.serve decide these, whatever the configuration says. */
static const uint32_t own_nodes_only[] = {
    PS_CONFIG_KEY_checkpoint_keep,         PS_CONFIG_KEY_checkpoint_keep_trainers,
    PS_CONFIG_KEY_checkpoint_least_age_s,  PS_CONFIG_KEY_checkpoint_trainer_saves,
    PS_CONFIG_KEY_checkpoint_every_s,      PS_CONFIG_KEY_checkpoint_every_steps,
    PS_CONFIG_KEY_checkpoint_save_on_stop,
};

static bool can_change(const struct ps_node *node, uint32_t key)
{
    for (uint32_t i = 0; i < sizeof(own_nodes_only) / sizeof(*own_nodes_only); i++)
        if (own_nodes_only[i] == key && (node->is_member || node->is_read_only))
            return false;
    return ps_config_key_reloads(key);
}

/* Sorts the keys that differ. */
static void sort_changes(const struct ps_node *node, const struct ps_config *given,
                         const struct ps_config *fresh, struct ps_config_keys_found *now,
                         struct ps_config_keys_found *later)
{
    struct ps_config_keys_found all;
    ps_config_changed(given, fresh, &all);
    now->count = later->count = 0;
    for (uint32_t i = 0; i < all.count; i++) {
        struct ps_config_keys_found *to = can_change(node, all.keys[i]) ? now : later;
        to->keys[to->count++] = all.keys[i];
    }
}

static void log_change(const struct ps_config *given, const struct ps_config *fresh, uint32_t key)
{
    char name[PS_CONFIG_SHOWN_BYTES], before[PS_CONFIG_SHOWN_BYTES], after[PS_CONFIG_SHOWN_BYTES];
    ps_config_key_name(key, name);
    ps_config_show(given, key, before);
    ps_config_show(fresh, key, after);
    mr_log_with(MR_LOG_INFO,
                MR_LOG_FIELDS({"key", .text = name}, {"old", .text = before}, {"new", .text = after}),
                "config_changed", "%s: %s -> %s", name, before, after);
}

static void log_restart(const struct ps_config_keys_found *later)
{
    char names[512];
    if (later->count == 0)
        return;
    ps_config_join(later, names, sizeof(names));
    mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"keys", .text = names}), "config_needs_restart",
                "changed in the configuration, but used only after a restart: %s", names);
}

static void set_hellos(struct ps_core *core, void *arg)
{
    mr_endpoint_set_hellos(core->ep, *(const uint32_t *)arg);
}

/* False: the key is the control thread's. */
static bool take_here(struct ps_node *node, struct ps_config *in_use, const struct ps_config *fresh,
                      uint32_t key)
{
    uint32_t hellos = (uint32_t)fresh->transport_hellos_per_address;
    switch (key) {
    case PS_CONFIG_KEY_log_level:
    case PS_CONFIG_KEY_log_format:
    case PS_CONFIG_KEY_log_journal:
    case PS_CONFIG_KEY_log_rate_per_s:
        return true; /* the log has them by now */
    case PS_CONFIG_KEY_checkpoint_save_on_stop:
    case PS_CONFIG_KEY_checkpoint_remote_stop_s:
        ps_config_take(in_use, fresh, key);
        return true;
    case PS_CONFIG_KEY_transport_hellos_per_address:
        ps_node_each_core(node, set_hellos, &hellos);
        return true;
    default:
        return false;
    }
}

bool ps_reload(struct ps_node *node, struct ps_config *given, struct ps_config *in_use,
               const struct ps_config *fresh, char error[DP_ERROR_BYTES])
{
    struct ps_config_keys_found now, later;
    bool for_control[PS_CONFIG_KEY_COUNT] = {false};
    sort_changes(node, given, fresh, &now, &later);
    if (!ps_node_log_configure(fresh, error, DP_ERROR_BYTES))
        return false;
    for (uint32_t i = 0; i < now.count; i++) {
        log_change(given, fresh, now.keys[i]);
        for_control[now.keys[i]] = !take_here(node, in_use, fresh, now.keys[i]);
        ps_config_take(given, fresh, now.keys[i]);
        ps_facts_take(node->facts, fresh, now.keys[i]);
    }
    if (!ps_control_reload(node->control, in_use, fresh, for_control))
        mr_log_error("config_not_taken", "no memory to tell the control thread of the changes: reload again");
    log_restart(&later);
    mr_log_with(MR_LOG_INFO,
                MR_LOG_FIELDS({"changed", .number = now.count}, {"restart", .number = later.count}),
                "config_read", "configuration read again: %u key%s changed", now.count, mr_plural(now.count));
    return true;
}
