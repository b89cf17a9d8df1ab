/* Which source port to send from. A NIC that spreads packets by their addresses (RSS) chooses a queue for
 * each port, and the server has to forward what arrives on another core's queue. So a link tries ports until
 * one leads to its core directly. It tries a bounded number of times, more and more rarely, and only while
 * nothing is in flight. Pure.
 *
 * A random port leads there with a probability of 1 / cores: after 8 x cores tries all but one link in 3000
 * have found one.
 */
#ifndef MRC_PORTS_H
#define MRC_PORTS_H

#include <stdbool.h>
#include <stdint.h>

#define MRC_PORT_TRIES_PER_CORE 8u

struct mrc_ports {
    uint32_t tries;
    uint64_t next_us; /* when another port may be tried */
};

/* Returns whether to try another port now. `core` is the link's core, `arrived_core` the one that its packets
 * arrive at (the same if the server does not spread packets by addresses), `cores` their number; `idle`: the
 * link is up, and nothing is in flight. */
bool mrc_ports_try_another(struct mrc_ports *ports, uint16_t core, uint16_t arrived_core, uint32_t cores,
                           bool idle, uint64_t now_us);
/* Returns when to ask again; UINT64_MAX = never, unless an argument changes. */
uint64_t mrc_ports_next_us(const struct mrc_ports *ports, uint16_t core, uint16_t arrived_core,
                           uint32_t cores);

#endif
