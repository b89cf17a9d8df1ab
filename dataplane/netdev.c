#include "dataplane/netdev.h"
#include <dirent.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

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

int dp_netdev_get_mac(const char *name, uint8_t mac[6])
{
    struct ifreq ifr = {0};
    int result = interface_ioctl(name, SIOCGIFHWADDR, &ifr);

    if (result == 0)
        memcpy(mac, ifr.ifr_hwaddr.sa_data, 6);
    return result;
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
