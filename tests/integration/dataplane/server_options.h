/* Command line of the test servers: --key value pairs into a dp_config. */
#ifndef TESTS_SERVER_OPTIONS_H
#define TESTS_SERVER_OPTIONS_H

#include "dataplane/dataplane.h"

/* Knows --driver, --device, --ipv4, --ipv6, --mac, --vlan, --mtu, --cores, --port, --memory-mib, --hugepages,
 * --fault-loss-ppm, --fault-corrupt-ppm, --idle-us (adaptive polling). Returns the index of the first
 * argument it does not know, or argc. Ends the process on a bad value. */
int server_options_parse(int argc, char **argv, struct dp_config *config);

#endif
