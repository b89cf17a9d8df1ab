/* Which source port to send from: a NIC that spreads packets by their addresses (RSS) puts each port's
 * packets on a queue of its own choosing, and the server has to pass on what comes in on another core's. So a
 * link tries ports until one leads to its core directly. It tries a bounded number of times, ever more
 * rarely, and only while nothing is in flight. Pure.
 *
 * A random port leads there with a chance of 1 in `cores`: after 8 x cores tries all but one link in 3000
 * have found one.
 */
#ifndef MRC_PORTS_H
#define MRC_PORTS_H

#include <stdbool.h>
#include <stdint.h>

#define MRC_PORT_TRIES_PER_CORE 8u

struct mrc_ports {
    uint32_t tries;
    uint64_t next_us; /* no other one before */
};

/* What is known at `now_us`: the core this link talks to, the one that its packets arrive at (the same where
 * the server does not spread by addresses), of how many, and whether the link is up with nothing in flight.
 * True: try another port now. */
bool mrc_ports_try_another(struct mrc_ports *ports, uint16_t core, uint16_t arrived_core, uint32_t cores,
                           bool idle, uint64_t now_us);
/* When to ask again; UINT64_MAX = never, unless what is known changes. */
uint64_t mrc_ports_next_us(const struct mrc_ports *ports, uint16_t core, uint16_t arrived_core,
                           uint32_t cores);

#endif
