#include "dataplane/dpdk/netdev.h"
#include <dirent.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NETLINK_BYTES 32768 /* as the kernel's own tools take for one answer */

static int interface_ioctl(const char *name, unsigned long request, struct ifreq *ifr)
{
    if (strlen(name) >= sizeof(ifr->ifr_name))
        return -ENODEV;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    snprintf(ifr->ifr_name, sizeof(ifr->ifr_name), "%s", name);
    int result = ioctl(fd, request, ifr) < 0 ? -errno : 0;
    close(fd);
    return result;
}

bool dp_netdev_exists(const char *name)
{
    return if_nametoindex(name) != 0;
}

int dp_netdev_get_mtu(const char *name, uint16_t *mtu)
{
    struct ifreq ifr = {0};
    int result = interface_ioctl(name, SIOCGIFMTU, &ifr);
    if (result == 0)
        *mtu = (uint16_t)(ifr.ifr_mtu < UINT16_MAX ? ifr.ifr_mtu : UINT16_MAX);
    return result;
}

int dp_netdev_set_mtu(const char *name, uint16_t mtu)
{
    struct ifreq ifr = {.ifr_mtu = mtu};
    return interface_ioctl(name, SIOCSIFMTU, &ifr);
}

int dp_netdev_set_up(const char *name)
{
    struct ifreq ifr = {0};
    int result = interface_ioctl(name, SIOCGIFFLAGS, &ifr);
    if (result != 0 || (ifr.ifr_flags & IFF_UP) != 0)
        return result;
    ifr.ifr_flags = (short)(ifr.ifr_flags | IFF_UP);
    return interface_ioctl(name, SIOCSIFFLAGS, &ifr);
}

uint16_t dp_netdev_queue_count(const char *name, bool *combined)
{
    struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
    struct ifreq ifr = {.ifr_data = (char *)&channels};
    *combined = true;
    if (interface_ioctl(name, SIOCETHTOOL, &ifr) != 0)
        return 1;
    *combined = channels.combined_count != 0;
    uint32_t count = channels.combined_count != 0 ? channels.combined_count : channels.rx_count;
    return count == 0 ? 1 : (uint16_t)(count < UINT16_MAX ? count : UINT16_MAX);
}

bool dp_netdev_is_virtual(const char *name)
{
    static const char *const none[] = {"", "N/A", "tap", "tun"};
    struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
    struct ifreq ifr = {.ifr_data = (char *)&info};
    int result = interface_ioctl(name, SIOCETHTOOL, &ifr);
    if (result != 0)
        return result == -EOPNOTSUPP; /* loopback */
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        if (strcmp(info.bus_info, none[i]) == 0)
            return true;
    return false;
}

/* The attribute of a type among so many bytes of them; NULL when there is none. */
static const struct rtattr *find_attribute(const void *from, size_t bytes, uint16_t type)
{
    const uint8_t *at = from;
    while (bytes >= sizeof(struct rtattr)) {
        const struct rtattr *attribute = (const void *)at;
        size_t step = RTA_ALIGN((size_t)attribute->rta_len);
        if (attribute->rta_len < sizeof(struct rtattr) || attribute->rta_len > bytes)
            return NULL;
        if ((attribute->rta_type & NLA_TYPE_MASK) == type)
            return attribute;
        step = step < bytes ? step : bytes;
        at += step;
        bytes -= step;
    }
    return NULL;
}

static uint32_t xdp_program_of(const struct rtattr *xdp)
{
    uint32_t program = 0;
    if (xdp == NULL)
        return 0;
    const struct rtattr *id = find_attribute(RTA_DATA(xdp), RTA_PAYLOAD(xdp), IFLA_XDP_PROG_ID);
    if (id != NULL && RTA_PAYLOAD(id) >= sizeof(program))
        memcpy(&program, RTA_DATA(id), sizeof(program));
    return program;
}

static int read_link(const struct nlmsghdr *header, size_t bytes, struct dp_netdev_link *out)
{
    if (!NLMSG_OK(header, bytes))
        return -EPROTO;
    if (header->nlmsg_type == NLMSG_ERROR)
        return ((const struct nlmsgerr *)NLMSG_DATA(header))->error;
    if (header->nlmsg_type != RTM_NEWLINK || NLMSG_PAYLOAD(header, 0) < sizeof(struct ifinfomsg))
        return -EPROTO;
    const struct ifinfomsg *info = NLMSG_DATA(header);

    *out = (struct dp_netdev_link){
        .running = (info->ifi_flags & IFF_RUNNING) != 0,
        .xdp_program = xdp_program_of(find_attribute(IFLA_RTA(info), IFLA_PAYLOAD(header), IFLA_XDP))};
    return 0;
}

int dp_netdev_get_link(uint32_t index, struct dp_netdev_link *out)
{
    struct {
        struct nlmsghdr header;
        struct ifinfomsg info;
    } request = {
        .header = {.nlmsg_len = sizeof(request), .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST},
        .info = {.ifi_family = AF_UNSPEC, .ifi_index = (int)index}};
    _Alignas(struct nlmsghdr) char answer[NETLINK_BYTES];
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (fd < 0)
        return -errno;
    ssize_t bytes = send(fd, &request, sizeof(request), 0);
    if (bytes > 0)
        bytes = recv(fd, answer, sizeof(answer), 0);
    int result =
        bytes < 0 ? -errno : read_link((const struct nlmsghdr *)(const void *)answer, (size_t)bytes, out);
    close(fd);
    return result;
}

void dp_netdev_xdp_name(uint32_t program, char name[16])
{
    union bpf_attr attr = {.prog_id = program};
    struct bpf_prog_info info = {0};
    long fd = syscall(SYS_bpf, BPF_PROG_GET_FD_BY_ID, &attr, sizeof(attr));
    name[0] = '\0';
    if (fd < 0)
        return;
    attr = (union bpf_attr){
        .info = {.bpf_fd = (uint32_t)fd, .info_len = sizeof(info), .info = (uintptr_t)&info}};
    if (syscall(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &attr, sizeof(attr)) == 0)
        snprintf(name, 16, "%.15s", info.name);
    close((int)fd);
}

static int compare_int(const void *a, const void *b)
{
    int left = *(const int *)a, right = *(const int *)b;
    return (left > right) - (left < right);
}

uint32_t dp_netdev_sockets(int family, int *fds, uint32_t fds_max)
{
    DIR *dir = opendir("/proc/self/fd");
    uint32_t count = 0;
    if (dir == NULL)
        return 0;
    for (struct dirent *entry = readdir(dir); entry != NULL && count < fds_max; entry = readdir(dir)) {
        char *end;
        int fd = (int)strtol(entry->d_name, &end, 10), domain;
        socklen_t bytes = sizeof(domain);
        if (*end == '\0' && end != entry->d_name &&
            getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == family)
            fds[count++] = fd;
    }
    closedir(dir);
    qsort(fds, count, sizeof(fds[0]), compare_int);
    return count;
}
