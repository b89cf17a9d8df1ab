#define ALLOW_EXPERIMENTAL_API /* of DPDK: events of devices, unchanged since 18.05 */
#include "dataplane/dpdk/port_watch.h"
#include <dirent.h>
#include <errno.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <rte_dev.h>
#include <rte_ethdev.h>
#include "dataplane/dpdk/netdev.h"

/* The driver's first queue of a tap: net_tap keeps its files to itself. */
static int find_tun(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int found = -1;
    if (dir == NULL)
        return -1;
    for (struct dirent *entry = readdir(dir); entry != NULL && found < 0; entry = readdir(dir)) {
        char target[32];
        struct ifreq ifr;
        ssize_t bytes = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
        int fd = atoi(entry->d_name);
        if (bytes <= 0)
            continue;
        target[bytes] = '\0';
        if (strcmp(target, "/dev/net/tun") == 0 && ioctl(fd, TUNGETIFF, &ifr) == 0)
            found = fd;
    }
    closedir(dir);
    return found;
}

/* VFIO asks for the device back: somebody unbinds it, or pulls the card, and waits until we let go. */
static void on_device_event(const char *device_name, enum rte_dev_event_type event, void *arg)
{
    struct dp_port_watch *watch = arg;
    (void)device_name;
    if (event == RTE_DEV_EVENT_REMOVE)
        atomic_store(&watch->removed, true);
}

/* A driver that shares the device with the kernel says it so. */
static int on_removed(uint16_t port_id, enum rte_eth_event_type event, void *arg, void *result)
{
    struct dp_port_watch *watch = arg;
    (void)port_id, (void)event, (void)result;
    atomic_store(&watch->removed, true);
    return 0;
}

static void hear_removal(struct dp_port_watch *watch, const struct dp_port *port)
{
    watch->device_name = port->device_name;
    (void)rte_dev_event_callback_register(watch->device_name, on_device_event, watch);
    (void)rte_eth_dev_callback_register(watch->port_id, RTE_ETH_EVENT_INTR_RMV, on_removed, watch);
}

void dp_port_watch_stop(struct dp_port_watch *watch)
{
    if (watch->device_name == NULL)
        return;
    (void)rte_eth_dev_callback_unregister(watch->port_id, RTE_ETH_EVENT_INTR_RMV, on_removed, watch);
    while (rte_dev_event_callback_unregister(watch->device_name, on_device_event, watch) == -EAGAIN)
        sched_yield(); /* it is being called */
    watch->device_name = NULL;
}

void dp_port_watch_start(struct dp_port_watch *watch, const struct dp_port *port, const char *device)
{
    struct dp_netdev_link link;
    *watch = (struct dp_port_watch){.driver = port->driver, .port_id = port->id, .tun = -1};
    if (port->driver == DP_DRIVER_TAP)
        watch->tun = find_tun();
    if (port->driver == DP_DRIVER_PCI)
        hear_removal(watch, port);
    if (port->driver != DP_DRIVER_AF_XDP && port->driver != DP_DRIVER_AF_PACKET &&
        (port->driver != DP_DRIVER_SOCKET || device[0] == '\0'))
        return;
    watch->interface = if_nametoindex(device);
    if (port->driver == DP_DRIVER_AF_XDP && dp_netdev_get_link(watch->interface, &link) == 0)
        watch->xdp_program = link.xdp_program;
}

static enum dp_port_state look_at_interface(const struct dp_port_watch *watch, char why[DP_ERROR_BYTES])
{
    struct dp_netdev_link link;
    int result = dp_netdev_get_link(watch->interface, &link);
    if (result == -ENODEV) {
        snprintf(why, DP_ERROR_BYTES, "the interface is gone: it was deleted, or moved to another namespace");
        return DP_PORT_LOST;
    }
    if (result != 0)
        return DP_PORT_UP; /* the kernel has no answer now; it is asked again */
    if (link.xdp_program != watch->xdp_program && watch->driver == DP_DRIVER_AF_XDP) {
        snprintf(why, DP_ERROR_BYTES,
                 "its XDP program was %s by another process, so that no packet arrives here",
                 link.xdp_program == 0 ? "removed" : "replaced");
        return DP_PORT_LOST;
    }
    if (!link.running)
        snprintf(why, DP_ERROR_BYTES, "the link is down");
    return link.running ? DP_PORT_UP : DP_PORT_DOWN;
}

enum dp_port_state dp_port_watch_look(const struct dp_port_watch *watch, char why[DP_ERROR_BYTES])
{
    struct rte_eth_link link = {0};
    struct ifreq ifr;
    switch (watch->driver) {
    case DP_DRIVER_AF_XDP:
    case DP_DRIVER_AF_PACKET:
        return look_at_interface(watch, why);
    case DP_DRIVER_SOCKET: /* bound to an interface by its number: one of the same name is another one */
        return watch->interface != 0 ? look_at_interface(watch, why) : DP_PORT_UP;
    case DP_DRIVER_TAP: /* by its file, as it may be moved to another namespace and continue there */
        if (watch->tun < 0 || ioctl(watch->tun, TUNGETIFF, &ifr) == 0 || errno != EBADFD)
            return DP_PORT_UP;
        snprintf(why, DP_ERROR_BYTES, "the tap interface was deleted");
        return DP_PORT_LOST;
    case DP_DRIVER_PCI:
        if (atomic_load(&watch->removed)) {
            snprintf(why, DP_ERROR_BYTES,
                     "the device is being taken away: it is unbound from its driver, or was unplugged");
            return DP_PORT_LOST;
        }
        if (rte_eth_dev_is_removed(watch->port_id) != 0) {
            snprintf(why, DP_ERROR_BYTES, "the card is gone");
            return DP_PORT_LOST;
        }
        if (rte_eth_link_get_nowait(watch->port_id, &link) != 0 || link.link_status == RTE_ETH_LINK_UP)
            return DP_PORT_UP;
        snprintf(why, DP_ERROR_BYTES, "the link is down");
        return DP_PORT_DOWN;
    default: /* memif: peers connect and disconnect */
        return DP_PORT_UP;
    }
}
