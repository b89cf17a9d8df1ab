#include "dataplane/dpdk/port.h"
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <rte_bus_vdev.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_mempool.h>
#include "dataplane/dpdk/eal.h"
#include "dataplane/dpdk/netdev.h"
#include "dataplane/dpdk/pci_device.h"

#if defined(__SANITIZE_ADDRESS__)
#define DP_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DP_ADDRESS_SANITIZER
#endif
#endif
#ifdef DP_ADDRESS_SANITIZER
#include <sanitizer/lsan_interface.h>
#endif

#define PAGE_BYTES         4096u
#define XDP_HEADROOM_BYTES 256u /* the kernel's, in front of every packet (XDP_PACKET_HEADROOM) */
#define ETHER_EXTRA_BYTES  22u  /* Ethernet header, VLAN tag, frame check sequence */
/* net_af_xdp keeps a packet, its mbuf and both headrooms within one page. */
#define AF_XDP_MTU_MAX                                                                                       \
    (PAGE_BYTES - RTE_ALIGN_CEIL((uint32_t)sizeof(struct rte_mempool_objhdr), RTE_CACHE_LINE_SIZE) -         \
     (uint32_t)sizeof(struct rte_mbuf) - RTE_PKTMBUF_HEADROOM - XDP_HEADROOM_BYTES - ETHER_EXTRA_BYTES)
#define TAP_MTU_MAX        1500u
#define SOCKETS_MAX        (2 * DP_QUEUES_MAX)
#define AF_PACKET_BLOCK    65536u
#define POOL_BUFFERS       8192u /* per queue; net_af_xdp alone may hold 4 x 2048 of them */
#define POOL_BUFFERS_MEMIF 2048u /* it copies at once, and holds none */
#define POOL_CACHE_BUFFERS 256u
/* Of several cores, each may keep 1.5 caches full of those that came by another's queue, and one that is late
 * has a ring full of them (DP_RING_PACKETS); 1024 are left. */
#define POOL_BUFFERS_KEPT   (POOL_CACHE_BUFFERS * 3 / 2)
#define POOL_BUFFERS_SHARED 3072u
#define RINGS_PER_RX_QUEUE  2u /* vmxnet3 fills two, of the length that is asked for */
#define MEMIF_RING_LOG2     9u /* of packets; both ends go through all of a ring's memory, 4.6 MB here */

const char *dp_port_driver_text(enum dp_driver driver)
{
    static const char *const text[] = {
        [DP_DRIVER_AUTO] = "auto",     [DP_DRIVER_AF_XDP] = "af_xdp", [DP_DRIVER_AF_PACKET] = "af_packet",
        [DP_DRIVER_TAP] = "tap",       [DP_DRIVER_MEMIF] = "memif",   [DP_DRIVER_PCI] = "pci",
        [DP_DRIVER_SOCKET] = "socket",
    };
    return text[driver];
}

static uint32_t mtu_max(enum dp_driver driver)
{
    if (driver == DP_DRIVER_AF_XDP)
        return AF_XDP_MTU_MAX;
    return driver == DP_DRIVER_TAP ? TAP_MTU_MAX : DP_MTU_MAX;
}

/* ---- step 1: the MTU, before the driver sizes its rings by it ---- */

static bool check_mtu(enum dp_driver driver, const struct dp_config *config, uint16_t mtu,
                      char error[DP_ERROR_BYTES])
{
    if (mtu <= mtu_max(driver))
        return true;
    snprintf(error, DP_ERROR_BYTES,
             "port: %s has an MTU of %u, but %s takes at most %u; set mtu = %u, or name another driver",
             config->device, mtu, dp_port_driver_text(driver), mtu_max(driver), mtu_max(driver));
    return false;
}

/* net_af_xdp of DPDK 22.11 knows queues that receive and transmit, and takes one where they are apart. The
 * others' packets would go to the kernel. */
static bool check_queues(enum dp_driver driver, const struct dp_config *config, char error[DP_ERROR_BYTES])
{
    bool combined;
    if (driver != DP_DRIVER_AF_XDP)
        return true;
    uint16_t count = dp_netdev_queue_count(config->device, &combined);
    if (combined || count == 1)
        return true;
    snprintf(error, DP_ERROR_BYTES,
             "port: %s has %u receive queues apart from those that transmit, of which af_xdp takes one only; "
             "set driver = af_packet, or \"ethtool -L %s rx 1\"",
             config->device, count, config->device);
    return false;
}

/* libxdp replaces or removes what is attached. It may do so with what an earlier millraced has left. */
static bool check_xdp(enum dp_driver driver, const struct dp_config *config, char error[DP_ERROR_BYTES])
{
    struct dp_netdev_link link;
    char name[16];
    if (driver != DP_DRIVER_AF_XDP || dp_netdev_get_link(if_nametoindex(config->device), &link) != 0 ||
        link.xdp_program == 0)
        return true;
    dp_netdev_xdp_name(link.xdp_program, name);
    if (strncmp(name, "xsk_def_", 8) == 0 || strcmp(name, "xdp_dispatcher") == 0)
        return true;
    snprintf(
        error, DP_ERROR_BYTES,
        "port: another program has an XDP program on %s (number %u, \"%s\"); remove it with \"ip link set "
        "%s xdp off\" if nobody needs it, or set driver = af_packet",
        config->device, link.xdp_program, name, config->device);
    return false;
}

static bool settle_mtu(enum dp_driver driver, const struct dp_config *config, struct dp_net *net,
                       char error[DP_ERROR_BYTES])
{
    bool kernel_device = driver == DP_DRIVER_AF_XDP || driver == DP_DRIVER_AF_PACKET;
    uint16_t mtu = config->mtu;
    int result = 0;
    if (kernel_device && !dp_netdev_exists(config->device)) {
        snprintf(
            error, DP_ERROR_BYTES,
            "port: there is no network interface \"%s\" here; \"ip link\" lists them, driver = tap makes one",
            config->device);
        return false;
    }
    if (kernel_device && mtu == 0)
        result = dp_netdev_get_mtu(config->device, &mtu);
    else if (mtu == 0)
        mtu = driver == DP_DRIVER_MEMIF ? DP_MTU_MAX : 1500;
    if (result == 0 && !check_mtu(driver, config, mtu, error))
        return false;
    if (kernel_device && result == 0 && config->mtu != 0)
        result = dp_netdev_set_mtu(config->device, mtu);
    if (kernel_device && result == 0)
        result = dp_netdev_set_up(config->device);
    if (result != 0) {
        snprintf(error, DP_ERROR_BYTES, "port: cannot set up %s (MTU %u): %s; it needs CAP_NET_ADMIN",
                 config->device, mtu, strerror(-result));
        return false;
    }
    net->mtu = mtu;
    return true;
}

/* ---- step 2: the driver ---- */

static uint16_t queues_wanted(enum dp_driver driver, const struct dp_config *config)
{
    /* AF_XDP: a queue that no socket is bound to would hand its packets to the kernel. */
    if (driver == DP_DRIVER_AF_XDP) {
        bool combined;
        uint16_t count = dp_netdev_queue_count(config->device, &combined);
        return count < DP_QUEUES_MAX ? count : DP_QUEUES_MAX;
    }
    return driver == DP_DRIVER_PCI || driver == DP_DRIVER_TAP ? (uint16_t)config->core_count : 1;
}

/* PACKET_MMAP's frames hold its own header and must tile the block. */
static uint32_t af_packet_frame_bytes(uint32_t mtu)
{
    uint32_t bytes = 2048;
    while (bytes < mtu + 256)
        bytes *= 2;
    return bytes;
}

static void device_arguments(enum dp_driver driver, const struct dp_config *config, const struct dp_net *net,
                             char *out, size_t out_bytes)
{
    uint32_t frame_bytes = af_packet_frame_bytes(net->mtu);
    switch (driver) {
    case DP_DRIVER_AF_XDP:
        snprintf(out, out_bytes, "iface=%s,start_queue=0,queue_count=%u,busy_budget=0", config->device,
                 queues_wanted(driver, config));
        break;
    case DP_DRIVER_AF_PACKET:
        snprintf(out, out_bytes, "iface=%s,qpairs=1,blocksz=%u,framesz=%u,framecnt=%u,qdisc_bypass=1",
                 config->device, AF_PACKET_BLOCK, frame_bytes, (4u << 20) / frame_bytes);
        break;
    case DP_DRIVER_TAP:
        snprintf(out, out_bytes, "iface=%s", config->device);
        break;
    case DP_DRIVER_MEMIF:
        snprintf(out, out_bytes, "role=%s,id=0,socket=%s,socket-abstract=no,rsize=%u,bsize=%u",
                 config->memif_client ? "client" : "server", config->device, MEMIF_RING_LOG2,
                 net->mtu + ETHER_EXTRA_BYTES);
        break;
    default:
        out[0] = '\0';
        break;
    }
}

static bool attach(struct dp_port *port, const struct dp_config *config, const struct dp_net *net)
{
    char arguments[256];
    if (port->driver == DP_DRIVER_PCI) { /* DPDK has looked for it, and said what went wrong, as it started */
        snprintf(port->device_name, sizeof(port->device_name), "%.63s", config->device);
    } else {
        dp_eal_forget_error();
        snprintf(port->device_name, sizeof(port->device_name), "net_%s0", dp_port_driver_text(port->driver));
        device_arguments(port->driver, config, net, arguments, sizeof(arguments));
        if (rte_eal_hotplug_add("vdev", port->device_name, arguments) != 0)
            return false;
    }
    return rte_eth_dev_get_port_by_name(port->device_name, &port->id) == 0;
}

/* ---- step 3: queues ---- */

static int socket_family(enum dp_driver driver)
{
    if (driver == DP_DRIVER_AF_XDP)
        return AF_XDP;
    return driver == DP_DRIVER_AF_PACKET ? AF_PACKET : AF_UNSPEC;
}

/* The sockets that came into being since `before` was taken are the queues', in order. */
static void find_fds(struct dp_port *port, const int *before, uint32_t before_count)
{
    int now[SOCKETS_MAX];
    uint32_t now_count = dp_netdev_sockets(socket_family(port->driver), now, SOCKETS_MAX);
    uint16_t queue = 0;
    for (uint32_t i = 0; i < now_count && queue < port->queue_count; i++) {
        bool old = false;
        for (uint32_t j = 0; j < before_count; j++)
            old |= before[j] == now[i];
        if (!old)
            port->fds[queue++] = now[i];
    }
}

/* Over PCI the card must be configured. The kernel spreads packets over the queues of its own devices: AF_XDP
 * as the device is set up, a tap by the hash of the flow, and to where answers come from once there was
 * one. */
static void choose_rss(struct dp_port *port, const struct rte_eth_dev_info *info, struct rte_eth_conf *conf)
{
    static const struct dp_rss_types udp = {
        .udp_ipv4 = RTE_ETH_RSS_NONFRAG_IPV4_UDP,
        .udp_ipv6 = RTE_ETH_RSS_NONFRAG_IPV6_UDP,
    };
    if (port->queue_count == 1)
        return;
    port->rss = port->driver == DP_DRIVER_AF_XDP || port->driver == DP_DRIVER_TAP;
    if (port->driver != DP_DRIVER_PCI)
        return;
    conf->rx_adv_conf.rss_conf.rss_hf = dp_steering_rss_types(&udp, info->flow_type_rss_offloads);
    port->rss = conf->rx_adv_conf.rss_conf.rss_hf != 0;
    if (port->rss)
        conf->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
}

/* Of each kind. DPDK's driver of 8254x and their successors claims two queues for all of them: the 8254x have
 * one, and what is sent on a second never leaves. The successors cannot spread what they receive over two. */
static uint16_t queues_most(const struct rte_eth_dev_info *info)
{
    if (info->driver_name != NULL && strcmp(info->driver_name, "net_e1000_em") == 0)
        return 1;
    return info->max_rx_queues < info->max_tx_queues ? info->max_rx_queues : info->max_tx_queues;
}

static int configure(struct dp_port *port, const struct dp_config *config, const struct dp_net *net)
{
    struct rte_eth_conf conf = {0};
    struct rte_eth_dev_info info;
    int result = rte_eth_dev_info_get(port->id, &info);
    if (result != 0)
        return result;
    port->queue_count = queues_wanted(port->driver, config);
    if (port->queue_count > queues_most(&info))
        port->queue_count = queues_most(&info);
    choose_rss(port, &info, &conf);
    /* Shared memory damages nothing on its way, and each packet carries a tag. */
    if (port->driver == DP_DRIVER_MEMIF)
        port->checksums = DP_CHECKSUMS_NO_UDP;
    if (port->driver == DP_DRIVER_PCI) {
        uint64_t tx_wanted = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
        if ((info.tx_offload_capa & tx_wanted) == tx_wanted) {
            port->checksums = DP_CHECKSUMS_BY_CARD;
            conf.txmode.offloads = tx_wanted;
        }
        conf.rxmode.offloads =
            info.rx_offload_capa & (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM);
        /* A card may drop the frames of each VLAN that it was not told of, as virtio-net does. */
        port->filters_vlan =
            config->vlan != 0 && (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_FILTER) != 0;
        conf.rxmode.offloads |= port->filters_vlan ? RTE_ETH_RX_OFFLOAD_VLAN_FILTER : 0;
        conf.rxmode.mtu = net->mtu;
        conf.intr_conf.rmv = (*info.dev_flags & RTE_ETH_DEV_INTR_RMV) != 0;
    }
    return rte_eth_dev_configure(port->id, port->queue_count, port->queue_count, &conf);
}

/* `rx`, `tx`: descriptors of the queue. Full rings of a NIC leave buffers for what is on its way. */
static uint32_t pool_buffers(const struct dp_port *port, uint32_t cores, uint16_t rx, uint16_t tx)
{
    const uint32_t least = port->driver == DP_DRIVER_MEMIF ? POOL_BUFFERS_MEMIF : POOL_BUFFERS;
    const uint32_t shared = cores > 1 ? POOL_BUFFERS_SHARED + (cores - 1) * POOL_BUFFERS_KEPT : 0;
    const uint32_t rings =
        port->driver == DP_DRIVER_PCI ? RINGS_PER_RX_QUEUE * rx + tx + POOL_BUFFERS_SHARED : 0;
    return RTE_MAX(RTE_MAX(shared, rings), least);
}

static struct rte_mempool *make_pool(const struct dp_port *port, const struct dp_net *net, uint32_t buffers,
                                     uint16_t queue)
{
    uint32_t room = RTE_PKTMBUF_HEADROOM + XDP_HEADROOM_BYTES + net->mtu + ETHER_EXTRA_BYTES;
    struct rte_pktmbuf_pool_private private = {0};
    char name[RTE_MEMPOOL_NAMESIZE];
    /* net_af_xdp takes the pool for one piece without gaps, so buffers may lie across page boundaries. */
    unsigned flags =
        port->driver == DP_DRIVER_PCI ? 0 : RTE_MEMPOOL_F_NO_IOVA_CONTIG | RTE_MEMPOOL_F_NO_SPREAD;

    if (port->driver == DP_DRIVER_AF_PACKET)
        room = RTE_PKTMBUF_HEADROOM + af_packet_frame_bytes(net->mtu);
    if (room < RTE_MBUF_DEFAULT_BUF_SIZE)
        room = RTE_MBUF_DEFAULT_BUF_SIZE;
    room = RTE_ALIGN_CEIL(room, RTE_MBUF_PRIV_ALIGN);
    private.mbuf_data_room_size = (uint16_t)room;
    snprintf(name, sizeof(name), "packets_%u_%u", port->id, queue);
    struct rte_mempool *pool =
        rte_mempool_create_empty(name, buffers, (unsigned)sizeof(struct rte_mbuf) + room, POOL_CACHE_BUFFERS,
                                 sizeof(private), SOCKET_ID_ANY, flags);
    if (pool == NULL)
        return NULL;
    if (rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL) != 0)
        goto fail;
    rte_pktmbuf_pool_init(pool, &private);
    if (rte_mempool_populate_default(pool) < 0)
        goto fail;
    if (port->driver == DP_DRIVER_AF_XDP && pool->nb_mem_chunks != 1)
        goto fail;
    rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
    return pool;
fail:
    rte_mempool_free(pool);
    return NULL;
}

/* net_af_xdp does not give back libxdp's description of the packet memory, so the leak checker ignores what
 * is allocated here. With a suppression it would look up the names of all functions in the allocation's
 * stack, which takes longer than the rest of a node's end. */
static int setup_rx_queue(const struct dp_port *port, uint16_t queue, uint16_t descriptors, unsigned socket)
{
#ifdef DP_ADDRESS_SANITIZER
    __lsan_disable();
#endif
    int result = rte_eth_rx_queue_setup(port->id, queue, descriptors, socket, NULL, port->pools[queue]);
#ifdef DP_ADDRESS_SANITIZER
    __lsan_enable();
#endif
    return result;
}

/* The queues, and a pool of packet buffers for each. 0, or -errno: pools that were made stay in `port`. */
static int setup_queues(struct dp_port *port, const struct dp_config *config, const struct dp_net *net)
{
    uint16_t rx = config->rx_descriptors, tx = config->tx_descriptors;
    unsigned socket = (unsigned)rte_eth_dev_socket_id(port->id);
    int result = rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &rx, &tx);
    for (uint16_t queue = 0; result == 0 && queue < port->queue_count; queue++) {
        port->pools[queue] = make_pool(port, net, pool_buffers(port, config->core_count, rx, tx), queue);
        if (port->pools[queue] == NULL)
            return -ENOMEM;
        result = setup_rx_queue(port, queue, rx, socket);
        if (result == 0)
            result = rte_eth_tx_queue_setup(port->id, queue, tx, socket, NULL);
    }
    return result;
}

/* ---- step 4: addresses ---- */

static int settle_mac(const struct dp_port *port, struct dp_net *net)
{
    struct rte_ether_addr mac;
    int result = rte_eth_macaddr_get(port->id, &mac);
    if (result != 0)
        return result;
    if (memcmp(net->mac, "\0\0\0\0\0", 6) != 0) {
        /* A name of our own: without the filter's help the port must hear everything. */
        memcpy(mac.addr_bytes, net->mac, 6);
        if (rte_eth_dev_default_mac_addr_set(port->id, &mac) != 0)
            (void)rte_eth_promiscuous_enable(port->id);
        return 0;
    }
    /* The tap interface's own address is the kernel's end of the wire; ours must differ. */
    if (port->driver == DP_DRIVER_TAP)
        mac.addr_bytes[5] ^= 0x01;
    dp_net_set_mac(net, mac.addr_bytes);
    return 0;
}

static void detach(struct dp_port *port)
{
    (void)rte_eth_dev_stop(port->id);
    (void)rte_eth_dev_close(port->id);
    if (port->driver != DP_DRIVER_PCI)
        (void)rte_eal_hotplug_remove("vdev", port->device_name);
    for (uint16_t queue = 0; queue < DP_QUEUES_MAX; queue++) {
        rte_mempool_free(port->pools[queue]);
        port->pools[queue] = NULL;
    }
}

static void describe_failure(enum dp_driver driver, const struct dp_config *config, const char *step,
                             int result, char error[DP_ERROR_BYTES])
{
    static const char *const fixes[] = {
        [DP_DRIVER_AF_XDP] =
            ("needs root or CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_SYS_ADMIN, Linux 5.4 "
             "or newer, and an interface that nobody else holds"),
        [DP_DRIVER_AF_PACKET] = "needs CAP_NET_RAW",
        [DP_DRIVER_TAP] = "needs CAP_NET_ADMIN, /dev/net/tun, and a name that is free",
        [DP_DRIVER_MEMIF] = "needs a socket path in a directory that can be written",
        [DP_DRIVER_PCI] = "says more with MILLRACE_DPDK_LOG=debug",
        [DP_DRIVER_AUTO] = "",
    };
    const char *cause = dp_eal_last_error();
    snprintf(error, DP_ERROR_BYTES, "port: cannot open \"%s\" with %s: %s%s%s%s%s; it %s", config->device,
             dp_port_driver_text(driver), step, result != 0 ? ": " : "",
             result != 0 ? rte_strerror(-result) : "", cause[0] != '\0' ? ": " : "", cause,
             result == -ENOMEM ? "needs more memory for packets: raise packets_mib" : fixes[driver]);
}

static void settle_steering(struct dp_port *port, const struct dp_net *net)
{
    struct dp_steering_facts facts = {
        .core_count = net->core_count, .queue_count = port->queue_count, .rss = port->rss};
    if (net->core_count > 1 && port->queue_count >= net->core_count) {
        facts.flow_error = dp_port_add_flow_rules(port, net);
        facts.flow_rules = facts.flow_error == NULL;
    }
    dp_steering_choose(&facts, &port->steering);
}

static bool open_with(struct dp_port *port, enum dp_driver driver, const struct dp_config *config,
                      struct dp_net *net, char error[DP_ERROR_BYTES])
{
    int before[SOCKETS_MAX];
    uint32_t before_count = dp_netdev_sockets(socket_family(driver), before, SOCKETS_MAX);
    struct dp_net settled = *net;
    const char *step = "probing";
    int result = 0;
    *port = (struct dp_port){.driver = driver,
                             .kernel_driven = driver != DP_DRIVER_PCI && driver != DP_DRIVER_MEMIF};
    for (uint16_t queue = 0; queue < DP_QUEUES_MAX; queue++)
        port->fds[queue] = -1;
    if (!check_xdp(driver, config, error) || !settle_mtu(driver, config, &settled, error) ||
        !check_queues(driver, config, error))
        return false;
    if (!attach(port, config, &settled)) {
        if (driver == DP_DRIVER_PCI)
            dp_pci_explain(DP_PCI_SYSFS, DP_PCI_VFIO, config->device, dp_eal_last_error(), error);
        else
            describe_failure(driver, config, step, -rte_errno, error);
        return false;
    }
    dp_eal_forget_error();
    step = "configuring";
    result = configure(port, config, &settled);
    if (result == 0) {
        step = "setting up queues";
        result = setup_queues(port, config, &settled);
    }
    if (result == 0) {
        step = "reading its address";
        result = settle_mac(port, &settled);
    }
    if (result == 0) {
        step = "starting";
        result = rte_eth_dev_start(port->id);
    }
    if (result == 0 && port->filters_vlan) {
        step = "admitting its VLAN";
        result = rte_eth_dev_vlan_filter(port->id, config->vlan, 1);
    }
    if (result != 0) {
        describe_failure(driver, config, step, result, error);
        detach(port);
        return false;
    }
    if (rte_eth_allmulticast_enable(port->id) != 0)
        (void)rte_eth_promiscuous_enable(port->id);
    if (socket_family(driver) != AF_UNSPEC)
        find_fds(port, before, before_count);
    settled.partial_checksums = driver == DP_DRIVER_AF_XDP || driver == DP_DRIVER_AF_PACKET;
    settle_steering(port, &settled);
    *net = settled;
    return true;
}

enum dp_driver dp_port_choose_bus(const struct dp_config *config)
{
    char name[DP_PCI_NAME_BYTES];
    return config->driver == DP_DRIVER_AUTO && dp_pci_name(config->device, name) ? DP_DRIVER_PCI
                                                                                 : config->driver;
}

bool dp_port_open(struct dp_port *port, const struct dp_config *config, struct dp_net *net,
                  char error[DP_ERROR_BYTES])
{
    if (config->driver != DP_DRIVER_AUTO)
        return open_with(port, config->driver, config, net, error);
    /* tap would make an interface of any name, and so serve on a misspelt one where nobody is. It must be
     * asked for. */
    if (open_with(port, DP_DRIVER_AF_XDP, config, net, error))
        return true;
    return open_with(port, DP_DRIVER_AF_PACKET, config, net, error);
}

void dp_port_close(struct dp_port *port)
{
    detach(port);
}
