#include "dataplane/dataplane.h"
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/dpdk/eal.h"
#include "dataplane/dpdk/netdev.h"
#include "dataplane/dpdk/pci_device.h"
#include "dataplane/dpdk/port_carrier.h"
#include "dataplane/loop/core.h"
#include "dataplane/net/route.h"
#include "dataplane/udp/address.h"
#include "dataplane/wire/base/clock.h"

#define SOCKET_MEMORY_MIB 16u /* of DPDK, for its rings: sockets have no packet buffers */

void dp_config_default(struct dp_config *config)
{
    *config = (struct dp_config){
        .file_prefix = "millrace",
        .hugepage_memory_mib = 256,
        .hugepages = -1,
        .driver = DP_DRIVER_AUTO,
        .udp_port = 7700,
        .rx_descriptors = 2048,
        .tx_descriptors = 2048,
        .core_count = 1,
        .poll_mode = DP_POLL_BUSY,
        .adaptive_idle_us = 50,
        .measured_turns = 64,
        .cpu_events = true,
    };
    for (uint32_t i = 0; i < DP_CORES_MAX; i++)
        config->core_cpus[i] = -1;
    mr_endpoint_config_default(&config->endpoint);
}

/* NULL, or what is wrong with how the port is to be opened. */
static const char *check_port(const struct dp_config *config)
{
    if (config->driver != DP_DRIVER_SOCKET)
        return config->device[0] != '\0'
                   ? NULL
                   : "port: device is not set; name an interface, a PCI address, a tap or a memif socket";
    if (config->ipv4_gateway[0] != '\0' || config->ipv6_gateway[0] != '\0')
        return "port: with driver = socket the kernel has the routes: leave ipv4_gateway and ipv6_gateway "
               "unset, and set routes there (ip route add)";
    if (config->mac[0] != '\0' || config->vlan != 0)
        return "port: with driver = socket the kernel has the interface: leave mac and vlan unset, and "
               "set both there";
    if (config->fault.direction != DP_FAULT_OFF)
        return "fault: driver = socket has no frames to lose; use af_xdp, af_packet or tap";
    return NULL;
}

static bool check_config(const struct dp_config *config, char error[DP_ERROR_BYTES])
{
    const char *why = check_port(config);
    if (strpbrk(config->device, ", =") != NULL)
        why = "port: device must not contain commas, blanks or equals signs";
    else if (config->core_count == 0 || config->core_count > DP_CORES_MAX)
        why = "cores: the number of cores must be 1..64";
    else if (config->udp_port == 0 || config->udp_port + config->core_count - 1 > UINT16_MAX)
        why = "port: udp_port and the ports of the further cores must lie in 1..65535";
    else if (config->mtu != 0 && (config->mtu < DP_MTU_MIN || config->mtu > DP_MTU_MAX))
        why = "port: mtu must be 0 (the device's own) or 1280..9000";
    else if (config->vlan > 4094)
        why = "port: vlan must be 0 (untagged) or 1..4094";
    if (why != NULL)
        snprintf(error, DP_ERROR_BYTES, "%s", why);
    return why == NULL;
}

/* The kernel's sockets stand for a port: a queue for each core, as it were. */
static bool open_sockets(struct dp *dp, char error[DP_ERROR_BYTES])
{
    uint32_t cores = dp->config.core_count;
    if (!dp_socket_port_settle(&dp->config, &dp->net, error))
        return false;
    dp->port.driver = DP_DRIVER_SOCKET;
    dp->port.queue_count = (uint16_t)cores;
    dp->port.kernel_driven = true;
    dp_steering_choose(&(struct dp_steering_facts){.core_count = cores, .sockets = true}, &dp->port.steering);
    for (uint32_t i = 0; i < cores; i++) {
        dp->cores[i].socket = dp_socket_port_open(&dp->config, &dp->net, i, error);
        if (dp->cores[i].socket == NULL)
            return false;
        dp->port.fds[i] = dp_socket_port_fd(dp->cores[i].socket);
    }
    return true;
}

static void close_port(struct dp *dp)
{
    dp_port_watch_stop(&dp->port_watch);
    dp_port_xstats_close(&dp->port_xstats);
    for (uint32_t i = 0; i < dp->config.core_count; i++) {
        dp_socket_port_close(dp->cores[i].socket);
        dp->cores[i].socket = NULL;
    }
    if (dp->port.driver != DP_DRIVER_SOCKET)
        dp_port_close(&dp->port);
}

static bool open_port(struct dp *dp, char error[DP_ERROR_BYTES])
{
    if (dp->config.driver != DP_DRIVER_SOCKET)
        return dp_port_open(&dp->port, &dp->config, &dp->net, error);
    bool opened = open_sockets(dp, error);
    if (!opened)
        close_port(dp);
    return opened;
}

/* Sockets on all interfaces have no NIC in particular either. */
static void settle_carrier(struct dp *dp)
{
    struct dp_port *port = &dp->port;
    port->carrier = dp_port_carrier(port->driver, port->fds[0]);
    port->virtual_link = dp->config.device[0] == '\0' || dp_netdev_is_virtual(dp->config.device);
    dp->faster = dp_carrier_advice(port->carrier, port->virtual_link);
}

/* Queue q is polled by core q modulo the number of cores, and a core without a queue sends through one of
 * those. */
static bool share_queues(struct dp *dp, char error[DP_ERROR_BYTES])
{
    uint32_t cores = dp->config.core_count;
    uint16_t queues = dp->port.queue_count;
    for (uint32_t i = 0; i < cores; i++) {
        struct dp_core *core = &dp->cores[i];
        core->dp = dp;
        core->index = i;
        core->counters.steering = dp->port.steering.steering;
        core->counters.queues = queues;
        core->counters.carrier = dp->port.carrier;
        core->counters.virtual_link = dp->port.virtual_link;
        core->rx_queue_first = (uint16_t)i;
        core->rx_queue_step = (uint16_t)cores;
        core->tx_queue = (uint16_t)(i % queues);
        core->tx_owner = &dp->cores[i % queues];
        core->pool = dp->port.pools[core->tx_queue];
        if (!dp_waiter_init(&core->waiter)) {
            snprintf(error, DP_ERROR_BYTES, "core %u: no eventfd: %s; raise the limit of open files", i,
                     strerror(errno));
            return false;
        }
        for (uint32_t queue = i; queue < queues; queue += cores)
            dp_waiter_watch(&core->waiter, dp->port.fds[queue]);
        if (!dp_fault_port_create(core, error))
            return false;
    }
    return true;
}

static void destroy_fault_ports(struct dp *dp)
{
    for (uint32_t i = 0; i < dp->config.core_count; i++)
        dp_fault_port_destroy(&dp->cores[i]);
}

static const char *settle_driver(struct dp_config *config, const struct dp_net *net)
{
    if (config->driver != DP_DRIVER_AUTO)
        return "as configured";
    config->driver = dp_port_choose_bus(config);
    if (config->driver == DP_DRIVER_PCI)
        return "the device is a PCI address";
    if (!dp_socket_port_suits(config, net))
        return "the first that opens";
    config->driver = DP_DRIVER_SOCKET;
    return "the kernel has the address";
}

/* A wheel has none of DPDK's drivers (meson_options.txt). */
static bool check_driver(const struct dp_config *config, char error[DP_ERROR_BYTES])
{
#ifdef DP_NO_DRIVERS
    if (config->driver != DP_DRIVER_SOCKET) {
        snprintf(
            error, DP_ERROR_BYTES,
            "port: this server came with pip and has the kernel's sockets only: set driver = socket and give "
            "the address to the interface (ip address add), or install the Debian package or the source "
            "tree");
        return false;
    }
#endif
    char name[DP_PCI_NAME_BYTES];
    if (config->driver != DP_DRIVER_PCI || dp_pci_name(config->device, name))
        return true;
    dp_pci_explain(DP_PCI_SYSFS, DP_PCI_VFIO, config->device, "", error);
    return false;
}

static struct dp *allocate(const struct dp_config *config, const struct dp_net *net)
{
    struct dp *dp = calloc(1, sizeof(*dp));
    if (dp == NULL)
        return NULL;
    dp->config = *config;
    dp->net = *net;
    dp->driver_why = settle_driver(&dp->config, net);
    if (dp->config.driver == DP_DRIVER_PCI) /* one name for the EAL, its port and ours */
        (void)dp_pci_name(config->device, dp->config.device);
    if (dp->config.driver == DP_DRIVER_SOCKET) { /* no packet buffers: rings only */
        dp->config.hugepages = 0;
        dp->config.hugepage_memory_mib = SOCKET_MEMORY_MIB;
    }
    dp->cores = calloc(config->core_count, sizeof(dp->cores[0]));
    if (dp->cores == NULL) {
        free(dp);
        return NULL;
    }
    pthread_mutex_init(&dp->lock, NULL);
    pthread_cond_init(&dp->changed, NULL);
    for (uint32_t i = 0; i < config->core_count; i++)
        dp->cores[i].waiter.bell = -1;
    return dp;
}

static void release(struct dp *dp)
{
    for (uint32_t i = 0; i < dp->config.core_count; i++)
        dp_waiter_destroy(&dp->cores[i].waiter);
    pthread_cond_destroy(&dp->changed);
    pthread_mutex_destroy(&dp->lock);
    free(dp->cores);
    free(dp);
}

enum mr_status dp_create(const struct dp_config *config, struct dp **out, char error[DP_ERROR_BYTES])
{
    struct dp_net net;
    struct dp *dp;
    if (!check_config(config, error) || !dp_net_from_config(&net, config, error))
        return MR_INVALID_ARGUMENT;
    dp = allocate(config, &net);
    if (dp == NULL) {
        snprintf(error, DP_ERROR_BYTES, "memory: none left for the data plane");
        return MR_NO_MEMORY;
    }
    if (!check_driver(&dp->config, error) || !dp_port_lock(&dp->port_lock, config, error))
        goto no_lock;
    if (!dp_eal_start(&dp->config, &dp->hugepages, error))
        goto no_eal;
    if (!open_port(dp, error))
        goto no_port;
    settle_carrier(dp);
    if (dp->port.driver != DP_DRIVER_SOCKET)
        dp_port_xstats_open(&dp->port_xstats, dp->port.id);
    dp_port_watch_start(&dp->port_watch, &dp->port, dp->config.device);
    if (!dp_rings_create(dp, error) || !share_queues(dp, error))
        goto no_rings;
    dp_telemetry_serve(dp);
    *out = dp;
    return MR_OK;
no_rings:
    destroy_fault_ports(dp);
    dp_rings_destroy(dp);
    close_port(dp);
no_port:
    dp_eal_stop();
no_eal:
    dp_port_unlock(&dp->port_lock);
no_lock:
    release(dp);
    return MR_IO_ERROR;
}

static bool start_thread(struct dp_core *core, char error[DP_ERROR_BYTES])
{
    int cpu = core->dp->config.core_cpus[core->index];
    pthread_attr_t attributes;
    cpu_set_t set;
    int result;
    pthread_attr_init(&attributes);
    if (cpu >= 0) {
        CPU_ZERO(&set);
        CPU_SET((size_t)cpu, &set);
        pthread_attr_setaffinity_np(&attributes, sizeof(set), &set);
    }
    result = pthread_create(&core->thread, &attributes, dp_core_run, core);
    pthread_attr_destroy(&attributes);
    core->thread_started = result == 0;
    if (result != 0)
        snprintf(error, DP_ERROR_BYTES,
                 "core %u: its thread does not start on CPU %d: %s; \"lscpu -e\" lists them", core->index,
                 cpu, strerror(result));
    return result == 0;
}

static void stop_threads(struct dp *dp)
{
    atomic_store(&dp->stop, true);
    for (uint32_t i = 0; i < dp->config.core_count; i++) {
        struct dp_core *core = &dp->cores[i];
        dp_waiter_ring(&core->waiter);
        if (core->thread_started)
            pthread_join(core->thread, NULL);
        core->thread_started = false;
    }
    dp_cpus_close(dp);
}

enum mr_status dp_start(struct dp *dp, const struct dp_app *app, char error[DP_ERROR_BYTES])
{
    uint32_t started = 0;
    dp->app = *app;
    while (started < dp->config.core_count && start_thread(&dp->cores[started], error))
        started++;
    pthread_mutex_lock(&dp->lock);
    while (dp->cores_ready < started)
        pthread_cond_wait(&dp->changed, &dp->lock);
    if (dp->start_failed)
        snprintf(error, DP_ERROR_BYTES, "%s", dp->start_error);
    /* The others wait for a core that will never come. */
    if (started < dp->config.core_count)
        dp->start_failed = true;
    bool failed = dp->start_failed;
    pthread_cond_broadcast(&dp->changed);
    pthread_mutex_unlock(&dp->lock);
    explicit_bzero(dp->config.endpoint.psk, sizeof(dp->config.endpoint.psk)); /* all endpoints have it */
    if (failed) {
        stop_threads(dp);
        return MR_INTERNAL;
    }
    dp_cpus_open(dp);
    return MR_OK;
}

void dp_stop(struct dp *dp)
{
    stop_threads(dp);
}

void dp_destroy(struct dp *dp)
{
    if (dp == NULL)
        return;
    stop_threads(dp);
    dp_telemetry_serve(NULL);
    destroy_fault_ports(dp);
    dp_rings_destroy(dp);
    close_port(dp);
    dp_eal_stop();
    dp_port_unlock(&dp->port_lock);
    release(dp);
}

enum dp_port_state dp_port_state(const struct dp *dp, char why[DP_ERROR_BYTES])
{
    return dp_port_watch_look(&dp->port_watch, why);
}

bool dp_can_reach(const struct dp *dp, const struct mr_address *to, char why[DP_ERROR_BYTES])
{
    struct dp_path path;
    uint8_t hop[16];
    if (dp_has_path(to))
        return true;
    if (dp->config.driver == DP_DRIVER_SOCKET)
        return dp_socket_port_can_reach(&dp->net, to, why);
    enum dp_route route = dp_route_find(&dp->net, to, dp->net.udp_port, &path, hop);
    if (route != DP_ROUTE_FOUND)
        dp_route_explain(&dp->net, to, route, why);
    return route == DP_ROUTE_FOUND;
}

void dp_own_addresses(const struct dp *dp, struct mr_address own[2])
{
    const struct dp_net *net = &dp->net;
    own[1] = (struct mr_address){.port = net->has_ipv6 ? net->udp_port : 0};
    memcpy(own[1].ip, net->ipv6, sizeof(net->ipv6));
    mr_address_from_ipv4(net->ipv4, &own[0]);
    own[0].port = net->has_ipv4 ? net->udp_port : 0;
}

bool dp_is_own_address(const struct dp *dp, const struct mr_address *address)
{
    const struct dp_net *net = &dp->net;
    if (address->port != net->udp_port)
        return false;
    if (dp->config.driver == DP_DRIVER_SOCKET && dp_socket_port_has(net, address))
        return true;
    if (mr_address_is_ipv4(address))
        return address->ip[12] == 127 || (net->has_ipv4 && memcmp(address->ip + 12, net->ipv4, 4) == 0);
    return memcmp(address->ip, &in6addr_loopback, 16) == 0 || memcmp(address->ip, net->link_local, 16) == 0 ||
           (net->has_ipv6 && memcmp(address->ip, net->ipv6, 16) == 0);
}

void dp_link_local(const struct dp *dp, char text[DP_ADDRESS_BYTES])
{
    static_assert(DP_ADDRESS_BYTES == INET6_ADDRSTRLEN, "room for any address");
    if (inet_ntop(AF_INET6, dp->net.link_local, text, DP_ADDRESS_BYTES) == NULL)
        text[0] = '\0';
}

uint64_t dp_now_us(void)
{
    return mr_clock_us();
}

uint32_t dp_core_index(const struct dp_core *core)
{
    return core->index;
}

struct mr_endpoint *dp_core_endpoint(struct dp_core *core)
{
    return core->endpoint;
}

void dp_core_due(struct dp_core *core, uint64_t due_us)
{
    core->app_due_us = due_us;
}

int dp_core_bell(const struct dp_core *core)
{
    return core->waiter.bell;
}
