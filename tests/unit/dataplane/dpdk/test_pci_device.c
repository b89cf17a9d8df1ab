/* Why DPDK has no port for a PCI device: the kernel's files about it are made here. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dataplane/dpdk/pci_device.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"

#define DEVICE "0000:00:12.0"
#define NOBODY 65534

static const char *root;

static void make_directories(const char *path)
{
    char part[PATH_MAX];
    snprintf(part, sizeof(part), "%s", path);
    for (char *slash = strchr(part + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(part, 0755);
        *slash = '/';
    }
}

static void pci_device_put(const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    make_directories(path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void put_link(const char *name, const char *target)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    make_directories(path);
    (void)unlink(path);
    assert_int_equal(symlink(target, path), 0);
}

/* The device as the kernel shows it, with this driver, NULL: none. */
static void put_device(const char *driver)
{
    char target[64];
    pci_device_put("sys/bus/pci/devices/" DEVICE "/vendor", "0x8086\n");
    pci_device_put("sys/bus/pci/devices/" DEVICE "/device", "0x10d3\n");
    snprintf(target, sizeof(target), "../../../../bus/pci/drivers/%s", driver != NULL ? driver : "");
    if (driver != NULL)
        put_link("sys/bus/pci/devices/" DEVICE "/driver", target);
}

static void explains(const char *device, const char *cause, const char *says)
{
    char sysfs[PATH_MAX], vfio[PATH_MAX], error[DP_ERROR_BYTES];
    snprintf(sysfs, sizeof(sysfs), "%s/sys", root);
    snprintf(vfio, sizeof(vfio), "%s/vfio", root);
    dp_pci_explain(sysfs, vfio, device, cause, error);
    assert_says(error, says);
    assert_null(strchr(error, '\n'));
}

TEST(a_name_has_its_domain_and_small_letters)
{
    char name[DP_PCI_NAME_BYTES] = "as it was";
    static const char *const none[] = {"",         "eth0",    "3b:00",   "3b:00.0x",
                                       "100:00.0", "00:20.0", "00:00.8", "a.b"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        assert_false(dp_pci_name(none[i], name));
    assert_string_equal(name, "as it was");
    assert_true(dp_pci_name("3B:1f.7", name));
    assert_string_equal(name, "0000:3b:1f.7");
    assert_true(dp_pci_name("0:1:2.3", name));
    assert_string_equal(name, "0000:01:02.3");
    assert_true(dp_pci_name("10000:01:00.0", name)); /* behind Intel's VMD */
    assert_string_equal(name, "10000:01:00.0");
    char in_place[64] = "00:12.0";
    assert_true(dp_pci_name(in_place, in_place));
    assert_string_equal(in_place, DEVICE);
}

static int set_up(void **state)
{
    const int result = temporary_directory_setup(state);
    root = *state;
    return result != 0 ? result : chmod(root, 0755);
}

TEST(a_device_that_is_not_there_is_named, set_up, temporary_directory_teardown)
{
    put_device("vfio-pci");
    explains("00:13.0", "EAL: something else", "there is no PCI device 0000:00:13.0 here");
}

TEST(a_device_of_the_kernel_comes_with_the_command_that_binds_it, set_up, temporary_directory_teardown)
{
    put_device("e1000e");
    explains("00:12.0", "", "the kernel's driver e1000e has 0000:00:12.0;");
    pci_device_put("sys/bus/pci/devices/" DEVICE "/net/enp0s18/mtu", "1500\n");
    explains(DEVICE, "",
             "the kernel's driver e1000e has 0000:00:12.0 as enp0s18; \"ip link set enp0s18 down && modprobe "
             "vfio-pci && dpdk-devbind.py --bind=vfio-pci 0000:00:12.0\"");
}

TEST(virtios_interface_is_found_a_folder_deeper, set_up, temporary_directory_teardown)
{
    put_device("virtio-pci");
    pci_device_put("sys/bus/pci/devices/" DEVICE "/virtio3/net/eth2/mtu", "1500\n");
    put_link("sys/class/net/eth2", "../../bus/pci/devices/" DEVICE "/virtio3/net/eth2");
    put_link("sys/bus/pci/devices/" DEVICE "/virtio3/net/eth2/device", "../../../virtio3");
    explains(DEVICE, "", "virtio-pci has 0000:00:12.0 as eth2;");
    explains("eth2", "", "not \"eth2\": set device = 0000:00:12.0,");
}

TEST(a_device_without_a_driver_comes_with_the_command_that_binds_it, set_up, temporary_directory_teardown)
{
    put_device(NULL);
    explains(DEVICE, "",
             "no driver has 0000:00:12.0; \"modprobe vfio-pci && dpdk-devbind.py --bind=vfio-pci");
}

TEST(a_name_that_is_no_address_leads_to_one, set_up, temporary_directory_teardown)
{
    put_device("e1000e");
    pci_device_put("sys/bus/pci/devices/" DEVICE "/net/eth1/mtu", "1500\n");
    put_link("sys/class/net/eth1", "../../bus/pci/devices/" DEVICE "/net/eth1");
    put_link("sys/bus/pci/devices/" DEVICE "/net/eth1/device", "../../../" DEVICE);
    explains("eth1", "", "not \"eth1\": set device = 0000:00:12.0,");
    explains("nowhere", "", "needs a PCI address such as 0000:3b:00.0, not \"nowhere\"");
}

TEST(a_group_that_the_user_may_not_open_is_named, set_up, temporary_directory_teardown)
{
    char path[PATH_MAX];
    put_device("vfio-pci");
    put_link("sys/bus/pci/devices/" DEVICE "/iommu_group", "../../../kernel/iommu_groups/7");
    pci_device_put("vfio/7", "");
    snprintf(path, sizeof(path), "%s/vfio/7", root);
    explains(DEVICE, "", "no driver of DPDK here takes"); /* this user may */
    assert_int_equal(chmod(path, 0), 0);
    if (geteuid() == 0)
        assert_int_equal(setresuid(NOBODY, NOBODY, 0), 0);
    explains(DEVICE, "EAL: another cause", "may not open ");
    explains(DEVICE, "EAL: another cause", "/vfio/7");
    if (getuid() == NOBODY)
        assert_int_equal(setresuid(0, 0, 0), 0);
}

TEST(what_is_bound_has_dpdks_cause_or_no_driver, set_up, temporary_directory_teardown)
{
    put_device("vfio-pci");
    explains(DEVICE, "EAL: the group is not viable",
             "cannot open 0000:00:12.0, which vfio-pci has: EAL: the group");
    explains(DEVICE, "", "no driver of DPDK here takes 0000:00:12.0 (8086:10d3), which vfio-pci has");
    explains(DEVICE, "", "librte-meta-net");
    put_device("mlx5_core"); /* shares the NIC with DPDK */
    explains(DEVICE, "", "no driver of DPDK here takes");
}
