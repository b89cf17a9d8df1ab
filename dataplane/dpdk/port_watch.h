/* Whether an open port is still this process's: the interface may be deleted or moved away, and others may
 * take its XDP program from it. A data core sees none of that: it finds no packets, as on a quiet day. */
#ifndef DP_PORT_WATCH_H
#define DP_PORT_WATCH_H

#include <stdatomic.h>
#include "dataplane/dpdk/port.h"

struct dp_port_watch {
    enum dp_driver driver;
    uint16_t port_id;
    uint32_t interface;      /* the kernel's index; 0: it is none of the kernel's */
    uint32_t xdp_program;    /* the kernel's number of what hands over packets; 0: nothing does */
    int tun;                 /* file of a tap, -1: none */
    const char *device_name; /* DPDK's, of a PCI device whose events are heard; NULL: none are */
    _Atomic bool removed;    /* it is being taken away; set by DPDK's thread of interrupts */
};

/* Remembers what is to stay so. The port has just been opened. The watch stays where it is until it is
 * stopped. */
void dp_port_watch_start(struct dp_port_watch *watch, const struct dp_port *port, const char *device);
/* Before the port is closed. */
void dp_port_watch_stop(struct dp_port_watch *watch);
/* Looks again: costs one request to the kernel. Unless it is up, one line that says why is in `why`. One
 * thread at a time. */
enum dp_port_state dp_port_watch_look(const struct dp_port_watch *watch, char why[DP_ERROR_BYTES]);

#endif
