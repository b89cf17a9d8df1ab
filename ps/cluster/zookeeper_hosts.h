/* The servers of cluster.zookeeper as ZooKeeper's library can resolve them. It asks for addresses of those
 * families only of which an interface other than loopback has one (AI_ADDRCONFIG): where the only such
 * address is a link-local one of IPv6, as on the machine of a node that DPDK serves, it finds no
 * 127.0.0.1. */
#ifndef PS_ZOOKEEPER_HOSTS_H
#define PS_ZOOKEEPER_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

/* Writes `servers` (HOST:PORT[,HOST:PORT]...) to `out`; those whose IPv4 address it would not take, as the
 * IPv6 address that means the same. False: it finds no address of some, which stay as they are, and `why`
 * says of the first which, and what to do. */
bool ps_zookeeper_hosts(const char *servers, char *out, size_t out_bytes, char *why, size_t why_bytes);

#endif
