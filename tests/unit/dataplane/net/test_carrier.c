#include <string.h>
#include "dataplane/net/carrier.h"
#include "tests/test.h"

static void says(const char *text, const char *part)
{
    assert_non_null(text);
    assert_says(text, part);
}

TEST(what_bypasses_the_kernel_says_so)
{
    for (enum dp_carrier carrier = DP_CARRIER_NIC; carrier <= DP_CARRIER_XDP_ZERO_COPY; carrier++)
        says(dp_carrier_text(carrier), "bypassing the kernel");
    for (enum dp_carrier carrier = DP_CARRIER_XDP_COPY; carrier <= DP_CARRIER_DATAGRAMS; carrier++)
        says(dp_carrier_text(carrier), "through the kernel");
}

TEST(what_bypasses_the_kernel_needs_no_advice)
{
    for (enum dp_carrier carrier = DP_CARRIER_NIC; carrier <= DP_CARRIER_XDP_ZERO_COPY; carrier++) {
        assert_null(dp_carrier_advice(carrier, false));
        assert_null(dp_carrier_advice(carrier, true));
    }
}

TEST(virtual_links_want_sockets)
{
    says(dp_carrier_advice(DP_CARRIER_XDP_COPY, true), "driver = socket");
    says(dp_carrier_advice(DP_CARRIER_PACKET_SOCKET, true), "driver = socket");
    assert_null(dp_carrier_advice(DP_CARRIER_SUPER_PACKETS, true));
}

TEST(nics_want_no_kernel)
{
    says(dp_carrier_advice(DP_CARRIER_XDP_COPY, false), "driver = pci");
    says(dp_carrier_advice(DP_CARRIER_PACKET_SOCKET, false), "driver = pci");
    says(dp_carrier_advice(DP_CARRIER_SUPER_PACKETS, false), "driver = pci");
}

TEST(an_old_kernel_is_named_on_any_link)
{
    says(dp_carrier_advice(DP_CARRIER_DATAGRAMS, false), "Linux 5.0");
    says(dp_carrier_advice(DP_CARRIER_DATAGRAMS, true), "Linux 5.0");
}
