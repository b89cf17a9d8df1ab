#include "dataplane/dpdk/pci_device.h"
#include <dirent.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORD_BYTES      48u
#define DIRECTORY_BYTES 512u

bool dp_pci_name(const char *text, char name[DP_PCI_NAME_BYTES])
{
    unsigned domain = 0, bus, slot, function;
    char rest;
    if (text[strspn(text, "0123456789abcdefABCDEF:.")] != '\0')
        return false;
    bool is_one = sscanf(text, "%x:%x:%x.%x%c", &domain, &bus, &slot, &function, &rest) == 4;
    if (!is_one) {
        domain = 0;
        is_one = sscanf(text, "%x:%x.%x%c", &bus, &slot, &function, &rest) == 3;
    }
    if (!is_one || bus > 0xff || slot > 0x1f || function > 7)
        return false;
    snprintf(name, DP_PCI_NAME_BYTES, "%.4x:%.2x:%.2x.%x", domain, bus, slot, function);
    return true;
}

/* The last name of where a link leads, as that of a driver; "" if there is no link. */
static void link_target_name(const char *path, char out[WORD_BYTES])
{
    char target[PATH_MAX];
    const ssize_t bytes = readlink(path, target, sizeof(target) - 1);
    target[bytes > 0 ? bytes : 0] = '\0';
    const char *slash = strrchr(target, '/');
    snprintf(out, WORD_BYTES, "%.40s", slash != NULL ? slash + 1 : target);
}

/* The first line of one of the device's files, without "0x". */
static void read_word(const char *directory, const char *file_name, char out[WORD_BYTES])
{
    char path[PATH_MAX], line[WORD_BYTES] = "";
    snprintf(path, sizeof(path), "%s/%s", directory, file_name);
    FILE *file = fopen(path, "re");
    if (file != NULL && fgets(line, sizeof(line), file) == NULL)
        line[0] = '\0';
    if (file != NULL)
        fclose(file);
    line[strcspn(line, "\n")] = '\0';
    snprintf(out, WORD_BYTES, "%s", strncmp(line, "0x", 2) == 0 ? line + 2 : line);
}

/* Finds an entry of a directory with this prefix; "" if there is none. */
static void first_name(const char *directory, const char *prefix, char out[WORD_BYTES])
{
    DIR *dir = opendir(directory);
    out[0] = '\0';
    for (struct dirent *entry = NULL; dir != NULL && out[0] == '\0' && (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.' && strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
            snprintf(out, WORD_BYTES, "%.40s", entry->d_name);
    if (dir != NULL)
        closedir(dir);
}

/* Finds the kernel's network interface of the device; "" if there is none. virtio's is a folder deeper. */
static void find_interface(const char *directory, char out[WORD_BYTES])
{
    char path[DIRECTORY_BYTES + WORD_BYTES], virtio[WORD_BYTES];
    snprintf(path, sizeof(path), "%.500s/net", directory);
    first_name(path, "", out);
    first_name(directory, "virtio", virtio);
    if (out[0] != '\0' || virtio[0] == '\0')
        return;
    snprintf(path, sizeof(path), "%.500s/%s/net", directory, virtio);
    first_name(path, "", out);
}

static void explain_name(const char *sysfs, const char *device, char error[DP_ERROR_BYTES])
{
    char path[PATH_MAX], name[WORD_BYTES], address[DP_PCI_NAME_BYTES];
    snprintf(path, sizeof(path), "%s/class/net/%.64s/device", sysfs, device);
    link_target_name(path, name);
    if (!dp_pci_name(name, address)) /* virtio's interfaces are a folder deeper */
        snprintf(path, sizeof(path), "%s/class/net/%.64s/device/..", sysfs, device);
    char resolved[PATH_MAX];
    if (!dp_pci_name(name, address) && realpath(path, resolved) != NULL)
        snprintf(name, sizeof(name), "%.40s", strrchr(resolved, '/') + 1);
    if (dp_pci_name(name, address))
        snprintf(
            error, DP_ERROR_BYTES,
            "port: driver = pci needs a PCI address, not \"%s\": set device = %s, which is that interface's",
            device, address);
    else
        snprintf(error, DP_ERROR_BYTES,
                 "port: driver = pci needs a PCI address such as 0000:3b:00.0, not \"%s\"; \"dpdk-devbind.py "
                 "--status-dev net\" lists them",
                 device);
}

static void explain_kernel_driver(const char *directory, const char *name, const char *driver,
                                  char error[DP_ERROR_BYTES])
{
    char interface[WORD_BYTES];
    find_interface(directory, interface);
    if (driver[0] == '\0')
        snprintf(
            error, DP_ERROR_BYTES,
            "port: no driver has %s; \"modprobe vfio-pci && dpdk-devbind.py --bind=vfio-pci %s\" gives it to "
            "DPDK",
            name, name);
    else if (interface[0] == '\0')
        snprintf(error, DP_ERROR_BYTES,
                 "port: the kernel's driver %s has %s; \"modprobe vfio-pci && dpdk-devbind.py "
                 "--bind=vfio-pci %s\" "
                 "gives it to DPDK",
                 driver, name, name);
    else
        snprintf(
            error, DP_ERROR_BYTES,
            "port: the kernel's driver %s has %s as %s; \"ip link set %s down && modprobe vfio-pci && "
            "dpdk-devbind.py --bind=vfio-pci %s\" gives it to DPDK, or share it with the kernel: device = %s",
            driver, name, interface, interface, name, interface);
}

/* What DPDK can drive: VFIO in all its kinds, UIO, and NICs that stay with the kernel's driver. */
static bool is_for_dpdk(const char *driver)
{
    static const char *const others[] = {"igb_uio", "uio_pci_generic", "mlx4_core", "mlx5_core", "mana"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(driver, others[i]) == 0)
            return true;
    return strstr(driver, "vfio") != NULL;
}

/* False: nothing is known to be in the way. */
static bool explain_group(const char *vfio, const char *directory, const char *name,
                          char error[DP_ERROR_BYTES])
{
    char path[PATH_MAX], group[WORD_BYTES];
    snprintf(path, sizeof(path), "%.500s/iommu_group", directory);
    link_target_name(path, group);
    snprintf(path, sizeof(path), "%s/%s", vfio, group);
    if (group[0] == '\0' || access(path, F_OK) != 0 || access(path, R_OK | W_OK) == 0)
        return false;
    const struct passwd *user = getpwuid(geteuid());
    snprintf(
        error, DP_ERROR_BYTES,
        "port: this user may not open %.64s, through which VFIO gives %s; \"chown %s %.64s\" allows it, or a "
        "udev rule for good",
        path, name, user != NULL ? user->pw_name : "USER", path);
    return true;
}

void dp_pci_explain(const char *sysfs, const char *vfio, const char *device, const char *cause,
                    char error[DP_ERROR_BYTES])
{
    char name[DP_PCI_NAME_BYTES], directory[DIRECTORY_BYTES], path[PATH_MAX];
    char driver[WORD_BYTES], vendor[WORD_BYTES], model[WORD_BYTES];
    struct stat status;
    if (!dp_pci_name(device, name)) {
        explain_name(sysfs, device, error);
        return;
    }
    snprintf(directory, sizeof(directory), "%.400s/bus/pci/devices/%s", sysfs, name);
    if (stat(directory, &status) != 0) {
        snprintf(error, DP_ERROR_BYTES,
                 "port: there is no PCI device %s here; \"dpdk-devbind.py --status-dev net\" lists the NICs",
                 name);
        return;
    }
    snprintf(path, sizeof(path), "%.500s/driver", directory);
    link_target_name(path, driver);
    if (!is_for_dpdk(driver)) {
        explain_kernel_driver(directory, name, driver, error);
        return;
    }
    if (strstr(driver, "vfio") != NULL && explain_group(vfio, directory, name, error))
        return;
    read_word(directory, "vendor", vendor);
    read_word(directory, "device", model);
    if (cause[0] != '\0')
        snprintf(error, DP_ERROR_BYTES, "port: cannot open %s, which %s has: %s", name, driver, cause);
    else
        snprintf(
            error, DP_ERROR_BYTES,
            "port: no driver of DPDK here takes %s (%s:%s), which %s has; Debian's package librte-meta-net "
            "has those for NICs",
            name, vendor, model, driver);
}
