#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "dataplane/net/carrier.h"

static void says(const char *text, const char *part)
{
    assert_non_null(text);
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}

static void what_bypasses_the_kernel_says_so(void **state)
{
    for (enum dp_carrier carrier = DP_CARRIER_NIC; carrier <= DP_CARRIER_XDP_ZERO_COPY; carrier++)
        says(dp_carrier_text(carrier), "bypassing the kernel");
    for (enum dp_carrier carrier = DP_CARRIER_XDP_COPY; carrier <= DP_CARRIER_DATAGRAMS; carrier++)
        says(dp_carrier_text(carrier), "through the kernel");
}

static void what_bypasses_the_kernel_needs_no_advice(void **state)
{
    for (enum dp_carrier carrier = DP_CARRIER_NIC; carrier <= DP_CARRIER_XDP_ZERO_COPY; carrier++) {
        assert_null(dp_carrier_advice(carrier, false));
        assert_null(dp_carrier_advice(carrier, true));
    }
}

static void virtual_links_want_sockets(void **state)
{
    says(dp_carrier_advice(DP_CARRIER_XDP_COPY, true), "driver = socket");
    says(dp_carrier_advice(DP_CARRIER_PACKET_SOCKET, true), "driver = socket");
    assert_null(dp_carrier_advice(DP_CARRIER_SUPER_PACKETS, true));
}

static void nics_want_no_kernel(void **state)
{
    says(dp_carrier_advice(DP_CARRIER_XDP_COPY, false), "driver = pci");
    says(dp_carrier_advice(DP_CARRIER_PACKET_SOCKET, false), "driver = pci");
    says(dp_carrier_advice(DP_CARRIER_SUPER_PACKETS, false), "driver = pci");
}

static void an_old_kernel_is_named_on_any_link(void **state)
{
    says(dp_carrier_advice(DP_CARRIER_DATAGRAMS, false), "Linux 5.0");
    says(dp_carrier_advice(DP_CARRIER_DATAGRAMS, true), "Linux 5.0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_bypasses_the_kernel_says_so),
        cmocka_unit_test(what_bypasses_the_kernel_needs_no_advice),
        cmocka_unit_test(virtual_links_want_sockets),
        cmocka_unit_test(nics_want_no_kernel),
        cmocka_unit_test(an_old_kernel_is_named_on_any_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
