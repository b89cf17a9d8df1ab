#define ALLOW_EXPERIMENTAL_API
/* Whether a port is lost, by what its driver and the kernel say. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <rte_dev.h>
#include <rte_ethdev.h>
#include "dataplane/dpdk/netdev.h"
#include "dataplane/dpdk/port_watch.h"
#include "tests/test.h"

enum { PORT = 3 };

/* What stands in for DPDK and the kernel. */
static struct {
    rte_dev_event_cb_fn device_event;
    rte_eth_dev_cb_fn port_event;
    void *device_arg, *port_arg;
    char device_name[64];
    uint32_t busy; /* so many times the callback is being called when it is to be removed */
    int removed;
    bool link_up;
    int link_result;
    struct dp_netdev_link link;
} world;

int rte_dev_event_callback_register(const char *name, rte_dev_event_cb_fn callback, void *arg)
{
    assert_null(world.device_event);
    world.device_event = callback;
    world.device_arg = arg;
    snprintf(world.device_name, sizeof(world.device_name), "%s", name);
    return 0;
}

int rte_dev_event_callback_unregister(const char *name, rte_dev_event_cb_fn callback, void *arg)
{
    assert_string_equal(name, world.device_name);
    assert_true(callback == world.device_event && arg == world.device_arg);
    if (world.busy > 0) {
        world.busy--;
        return -EAGAIN;
    }
    world.device_event = NULL;
    return 1;
}

int rte_eth_dev_callback_register(uint16_t port, enum rte_eth_event_type event, rte_eth_dev_cb_fn callback,
                                  void *arg)
{
    assert_int_equal(port, PORT);
    assert_int_equal(event, RTE_ETH_EVENT_INTR_RMV);
    world.port_event = callback;
    world.port_arg = arg;
    return 0;
}

int rte_eth_dev_callback_unregister(uint16_t port, enum rte_eth_event_type event, rte_eth_dev_cb_fn callback,
                                    void *arg)
{
    assert_int_equal(port, PORT);
    assert_int_equal(event, RTE_ETH_EVENT_INTR_RMV);
    assert_true(callback == world.port_event && arg == world.port_arg);
    world.port_event = NULL;
    return 0;
}

int rte_eth_dev_is_removed(uint16_t port)
{
    assert_int_equal(port, PORT);
    return world.removed;
}

int rte_eth_link_get_nowait(uint16_t port, struct rte_eth_link *link)
{
    assert_int_equal(port, PORT);
    link->link_status = world.link_up ? RTE_ETH_LINK_UP : RTE_ETH_LINK_DOWN;
    return 0;
}

int dp_netdev_get_link(uint32_t index, struct dp_netdev_link *out)
{
    (void)index;
    *out = world.link;
    return world.link_result;
}

static const struct dp_port pci = {.driver = DP_DRIVER_PCI, .id = PORT, .device_name = "0000:3b:00.0"};
static struct dp_port_watch watch;

static int set_up(void **state)
{
    memset(&world, 0, sizeof(world));
    world.link_up = true;
    world.link.running = true;
    return 0;
}

static void is_lost(const char *says)
{
    char why[DP_ERROR_BYTES] = "";
    assert_int_equal(dp_port_watch_look(&watch, why), DP_PORT_LOST);
    assert_non_null(strstr(why, says));
}

static void is(enum dp_port_state state)
{
    char why[DP_ERROR_BYTES] = "";
    assert_int_equal(dp_port_watch_look(&watch, why), state);
    assert_int_equal(why[0] == '\0', state == DP_PORT_UP);
}

static void watch_stop(void)
{
    dp_port_watch_stop(&watch);
    assert_null(world.device_event);
    assert_null(world.port_event);
    dp_port_watch_stop(&watch); /* once more does nothing */
}

TEST(a_device_that_vfio_asks_back_is_lost, set_up)
{
    dp_port_watch_start(&watch, &pci, "0000:3b:00.0");
    assert_string_equal(world.device_name, "0000:3b:00.0");
    is(DP_PORT_UP);
    world.device_event("0000:3b:00.0", RTE_DEV_EVENT_ADD, world.device_arg);
    is(DP_PORT_UP);
    world.device_event("0000:3b:00.0", RTE_DEV_EVENT_REMOVE, world.device_arg);
    is_lost("the device is being taken away");
    is_lost("the device is being taken away"); /* and remains so */
    watch_stop();
}

TEST(a_device_that_its_driver_reports_removed_is_lost, set_up)
{
    dp_port_watch_start(&watch, &pci, "0000:3b:00.0");
    assert_int_equal(world.port_event(PORT, RTE_ETH_EVENT_INTR_RMV, world.port_arg, NULL), 0);
    is_lost("the device is being taken away");
    watch_stop();
    dp_port_watch_start(&watch, &pci, "0000:3b:00.0");
    is(DP_PORT_UP);
    world.removed = 1;
    is_lost("the card is gone");
    watch_stop();
}

TEST(a_callback_that_runs_is_waited_for, set_up)
{
    dp_port_watch_start(&watch, &pci, "0000:3b:00.0");
    world.busy = 3;
    watch_stop();
    assert_int_equal(world.busy, 0);
}

TEST(a_link_that_is_down_is_not_lost, set_up)
{
    dp_port_watch_start(&watch, &pci, "0000:3b:00.0");
    world.link_up = false;
    is(DP_PORT_DOWN);
    world.link_up = true;
    is(DP_PORT_UP);
    watch_stop();
}

TEST(other_ports_have_no_events, set_up)
{
    static const struct dp_port af_packet = {.driver = DP_DRIVER_AF_PACKET, .id = PORT};
    dp_port_watch_start(&watch, &af_packet, "lo");
    watch_stop();
    is(DP_PORT_UP);
    world.link_result = -ENODEV;
    is_lost("the interface is gone");
}
