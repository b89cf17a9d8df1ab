/* A PCI device: how it is named, and what keeps DPDK from driving it, as the kernel's files tell. */
#ifndef DP_PCI_DEVICE_H
#define DP_PCI_DEVICE_H

#include <stdbool.h>
#include "dataplane/dataplane.h"

#define DP_PCI_NAME_BYTES 24u

/* Where the kernel's files are; tests have a copy. */
#define DP_PCI_SYSFS "/sys"
#define DP_PCI_VFIO  "/dev/vfio"

/* DPDK's name of the device, "0000:3b:00.0", of an address with or without its domain. False: `text` is no
 * PCI address, and `name` stays as it is. */
bool dp_pci_name(const char *text, char name[DP_PCI_NAME_BYTES]);

/* One line that says why DPDK has no port for `device`, and what to do: it is no PCI address or not there,
 * another driver or none has it, the user may not open its group. Else `cause`, DPDK's own words, "" if it
 * had none: then no driver of DPDK's takes the device. */
void dp_pci_explain(const char *sysfs, const char *vfio, const char *device, const char *cause,
                    char error[DP_ERROR_BYTES]);

#endif
