/* A coordinator in the test's process, in place of ZooKeeper (ps/cluster/zookeeper.h): the node under test
 * leads, and the test says when it goes round. One node at a time. */
#ifndef FAKE_COORDINATOR_H
#define FAKE_COORDINATOR_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/cluster/cluster_map.h"
#include "ps/cluster/report.h"

#define FAKE_SESSION_US UINT64_C(600000000)

struct ps_config;

/* The node is a, in a cluster of so many nodes. */
void fake_coordinator_configure(struct ps_config *config, uint32_t nodes);
/* Forgets the map and everybody else. */
void fake_coordinator_reset(void);
/* The coordinator's map; whoever changes it raises its epoch. */
struct ps_cluster_map *fake_coordinator_map(void);
/* Another node registers from now on; or no longer, if name is NULL. */
void fake_coordinator_set_other(const char *name);
/* The session of the other is so long. */
void fake_coordinator_set_session(uint32_t ms);
/* What the other is configured with. */
void fake_coordinator_set_settings(uint32_t take_over_s, uint32_t replication);
/* What the node's entry says that it has free is this much at most (MiB); UINT64_MAX: as the node says. */
void fake_coordinator_set_room(uint64_t free_mib_max);
/* What the node's entry says of its work. */
struct ps_cluster_report fake_coordinator_report(void);
/* Somebody has created a table of this name, number 1. */
void fake_coordinator_create(const char *name);
/* One round in this session: the node's request was sent at that time (mr_clock_boot_us()). */
void fake_coordinator_round(uint64_t session, uint64_t sent_us);
/* Rounds, until nobody changes the map any more. */
void fake_coordinator_settle(uint64_t session);
/* The node's session is dead. */
void fake_coordinator_expire(void);
/* Has the node ended its session? */
bool fake_coordinator_is_left(void);

#endif
