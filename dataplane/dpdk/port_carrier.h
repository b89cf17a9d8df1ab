/* What carries the packets of an open port: asks the kernel about its sockets and its link. */
#ifndef DP_PORT_CARRIER_H
#define DP_PORT_CARRIER_H

#include "dataplane/dataplane.h"
#include "dataplane/net/carrier.h"

/* fd: a socket of the port's, -1 when it has none. */
enum dp_carrier dp_port_carrier(enum dp_driver driver, int fd);

#endif
