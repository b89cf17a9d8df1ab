/* What carries a port's packets, from what the kernel says about its sockets. Its answers are made here. */
#include <errno.h>
#include <linux/if_xdp.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include "dataplane/dpdk/port_carrier.h"
#include "tests/test.h"

#define FD 7

static struct {
    uint32_t xdp_flags;
    bool knows_xdp, knows_segments;
} kernel;

/* getsockopt() by another name: the build renames it. */
int test_getsockopt(/* NOLINT(readability-inconsistent-declaration-parameter-name) */
                    int fd, int level, int name, void *value, socklen_t *bytes)
{
    assert_int_equal(fd, FD);
    if (level == SOL_XDP && name == XDP_OPTIONS && kernel.knows_xdp) {
        assert_int_equal(*bytes, sizeof(struct xdp_options));
        ((struct xdp_options *)value)->flags = kernel.xdp_flags;
        *bytes = sizeof(struct xdp_options);
        return 0;
    }
    if (level == IPPROTO_UDP && name == UDP_SEGMENT && kernel.knows_segments)
        return 0;
    errno = ENOPROTOOPT;
    return -1;
}

TEST(af_xdp_copies_unless_the_kernel_says_otherwise)
{
    kernel.knows_xdp = true;
    kernel.xdp_flags = XDP_OPTIONS_ZEROCOPY;
    assert_int_equal(dp_port_carrier(DP_DRIVER_AF_XDP, FD), DP_CARRIER_XDP_ZERO_COPY);
    kernel.xdp_flags = 0;
    assert_int_equal(dp_port_carrier(DP_DRIVER_AF_XDP, FD), DP_CARRIER_XDP_COPY);
    kernel.knows_xdp = false;
    kernel.xdp_flags = XDP_OPTIONS_ZEROCOPY;
    assert_int_equal(dp_port_carrier(DP_DRIVER_AF_XDP, FD), DP_CARRIER_XDP_COPY);
}

TEST(sockets_have_super_packets_where_the_kernel_knows_them)
{
    kernel.knows_segments = true;
    assert_int_equal(dp_port_carrier(DP_DRIVER_SOCKET, FD), DP_CARRIER_SUPER_PACKETS);
    kernel.knows_segments = false;
    assert_int_equal(dp_port_carrier(DP_DRIVER_SOCKET, FD), DP_CARRIER_DATAGRAMS);
}

TEST(other_drivers_have_one_carrier)
{
    assert_int_equal(dp_port_carrier(DP_DRIVER_PCI, -1), DP_CARRIER_NIC);
    assert_int_equal(dp_port_carrier(DP_DRIVER_MEMIF, -1), DP_CARRIER_SHARED_MEMORY);
    assert_int_equal(dp_port_carrier(DP_DRIVER_AF_PACKET, -1), DP_CARRIER_PACKET_SOCKET);
    assert_int_equal(dp_port_carrier(DP_DRIVER_TAP, -1), DP_CARRIER_TAP);
}
