/* Checkpoints are read again on a schedule (ps/checkpoint/scrubber.h). If the newest one is damaged, the node
 * still holds all of it: it saves a full one in its place. */
#include "ps/base/counter.h"
#include "ps/base/log.h"
#include "ps/checkpoint/scrubber.h"
#include "ps/config/config.h"
#include "ps/config/config_rules.h"
#include "ps/control/control_internal.h"

bool ps_control_scrub_start(struct ps_control *c)
{
    const struct ps_config *config = c->node->config;
    const int cpu_count = ps_cpus_parse(config->cores_cpus, c->scrub.avoids, DP_CORES_MAX);
    const struct ps_scrubber_options options = {
        .directory = config->checkpoint_directory,
        .every_us = config->checkpoint_scrub_every_s * UINT64_C(1000000),
        .bytes_per_s_max = config->checkpoint_scrub_rate_mib_s << 20,
        .avoid_cpus = c->scrub.avoids,
        .avoid_cpu_count = cpu_count > 0 ? (uint32_t)cpu_count : 0,
        .counters = &c->node->scrubber_counters,
        .found = &c->wake,
    };
    if (options.every_us == 0 || options.directory[0] == '\0')
        return true;
    c->scrub.scrubber = ps_scrubber_start(&options);
    return c->scrub.scrubber != NULL;
}

void ps_control_scrub_stop(struct ps_control *c)
{
    ps_scrubber_stop(c->scrub.scrubber);
    c->scrub.scrubber = NULL;
}

void ps_control_scrub_poll(struct ps_control *c)
{
    const uint64_t id = ps_counter_read(&c->node->scrubber_counters.damaged_id);
    if (id == c->scrub.damaged_id)
        return;
    c->scrub.damaged_id = id;
    if (id == 0)
        return;
    ps_save_chain_break(&c->saves.chain,
                        "the last checkpoint was damaged on the disk: save a full one first");
    c->saves.changes_saved = UINT64_MAX; /* no checkpoint that can be restored holds these */
    if (c->saves.schedule.every_us != 0)
        c->saves.schedule.next_us = dp_now_us();
    ps_log("checkpoint %llu is damaged: the next one is a full one%s", (unsigned long long)id,
           c->saves.schedule.every_us != 0 ? ", and begins now" : "");
}
