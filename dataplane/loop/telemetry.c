/* What the data plane runs on, and its counters over DPDK's telemetry socket: dpdk-telemetry.py --file-prefix
 * ... shows them.
 *
 *   /millrace/port             driver, memory and steering, and why that was chosen
 *   /millrace/cores            busy share and packets of every core, by its number
 *   /millrace/counters,<core>  every counter of a core, by set
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rte_telemetry.h>
#include <rte_version.h>
#include "dataplane/dpdk/dpdk_compat.h"
#include "dataplane/loop/core.h"

enum dp_driver dp_driver(const struct dp *dp)
{
    return dp->port.driver;
}

const char *dp_driver_name(const struct dp *dp)
{
    return dp_port_driver_text(dp->port.driver);
}

const char *dp_driver_why(const struct dp *dp)
{
    return dp->driver_why;
}

const char *dp_carrier_name(const struct dp *dp)
{
    return dp_carrier_text(dp->port.carrier);
}

const char *dp_faster(const struct dp *dp)
{
    return dp->faster;
}

const char *dp_dpdk_version(void)
{
    return rte_version();
}

const char *dp_memory_name(const struct dp *dp)
{
    return dp->hugepages ? "hugepages" : "no-huge";
}

const char *dp_steering_name(const struct dp *dp)
{
    return dp_steering_text(dp->port.steering.steering);
}

const char *dp_steering_why(const struct dp *dp)
{
    return dp->port.steering.why;
}

/* Commands cannot be taken back from the telemetry thread, so it asks here whether there is a data plane. */
static struct {
    pthread_mutex_t lock;
    struct dp *dp;
    bool registered;
} served = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void describe_core(struct rte_tel_data *cores, const struct dp_core *core)
{
    struct rte_tel_data *entry = rte_tel_data_alloc();
    char name[16];
    if (entry == NULL)
        return;
    rte_tel_data_start_dict(entry);
    rte_tel_data_add_dict_uint(entry, "busy_ppm", dp_core_busy_ppm(core));
    rte_tel_data_add_dict_uint(entry, "rx_frames", mr_counter_read(&core->counters.rx_frames));
    rte_tel_data_add_dict_uint(entry, "tx_frames", mr_counter_read(&core->counters.tx_frames));
    snprintf(name, sizeof(name), "%u", core->index);
    rte_tel_data_add_dict_container(cores, name, entry, 0);
}

static int handle_cores(const char *command, const char *parameters, struct rte_tel_data *data)
{
    rte_tel_data_start_dict(data); /* DPDK 22.11 knows no arrays of objects */
    pthread_mutex_lock(&served.lock);
    for (uint32_t i = 0; served.dp != NULL && i < served.dp->config.core_count; i++)
        describe_core(data, &served.dp->cores[i]);
    pthread_mutex_unlock(&served.lock);
    return 0;
}

static int handle_port(const char *command, const char *parameters, struct rte_tel_data *data)
{
    rte_tel_data_start_dict(data);
    pthread_mutex_lock(&served.lock);
    if (served.dp != NULL) {
        rte_tel_data_add_dict_string(data, "driver", dp_driver_name(served.dp));
        rte_tel_data_add_dict_string(data, "driver_why", dp_driver_why(served.dp));
        rte_tel_data_add_dict_string(data, "carrier", dp_carrier_name(served.dp));
        rte_tel_data_add_dict_string(data, "memory", dp_memory_name(served.dp));
        rte_tel_data_add_dict_uint(data, "queues", served.dp->port.queue_count);
        rte_tel_data_add_dict_string(data, "steering", dp_steering_name(served.dp));
        rte_tel_data_add_dict_string(data, "why", dp_steering_why(served.dp));
    }
    pthread_mutex_unlock(&served.lock);
    return 0;
}

struct writer {
    struct rte_tel_data *root;
    struct rte_tel_data *set;
    const char *set_name;
};

static void close_set(struct writer *writer)
{
    if (writer->set != NULL)
        rte_tel_data_add_dict_container(writer->root, writer->set_name, writer->set, 0);
    writer->set = NULL;
}

static void write_counter(void *arg, const struct mr_counter_set *set, const struct mr_counter *counter,
                          uint64_t value)
{
    struct writer *writer = arg;
    if (writer->set == NULL || strcmp(set->name, writer->set_name) != 0) {
        close_set(writer);
        writer->set = rte_tel_data_alloc();
        writer->set_name = set->name;
        if (writer->set == NULL)
            return;
        rte_tel_data_start_dict(writer->set);
    }
    rte_tel_data_add_dict_uint(writer->set, counter->name, value);
}

static int handle_counters(const char *command, const char *parameters, struct rte_tel_data *data)
{
    struct writer writer = {.root = data};
    char *end = NULL;
    unsigned long core = parameters != NULL ? strtoul(parameters, &end, 10) : 0;
    if (parameters != NULL && (end == parameters || *end != '\0'))
        return -1;
    rte_tel_data_start_dict(data);
    pthread_mutex_lock(&served.lock);
    bool known = served.dp != NULL && core < served.dp->config.core_count;
    if (known)
        dp_core_each_counter(&served.dp->cores[core], write_counter, &writer);
    pthread_mutex_unlock(&served.lock);
    close_set(&writer);
    return known ? 0 : -1;
}

void dp_telemetry_serve(struct dp *dp)
{
    pthread_mutex_lock(&served.lock);
    served.dp = dp;
    bool first = !served.registered && dp != NULL;
    served.registered |= first;
    pthread_mutex_unlock(&served.lock);
    if (!first)
        return;
    (void)rte_telemetry_register_cmd("/millrace/port", handle_port,
                                     "Driver, memory and steering. No parameters");
    (void)rte_telemetry_register_cmd("/millrace/cores", handle_cores,
                                     "Busy share of every core. No parameters");
    (void)rte_telemetry_register_cmd("/millrace/counters", handle_counters,
                                     "Every counter of a core. Parameters: core index");
}
