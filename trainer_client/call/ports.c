#include "trainer_client/call/ports.h"

/* before the second try, for the handshake of the first; longer by this much before each further one */
#define PAUSE_US 20000u

static bool is_settled(const struct mrc_ports *ports, uint16_t core, uint16_t arrived_core, uint32_t cores)
{
    return arrived_core == core || arrived_core >= cores || ports->tries >= MRC_PORT_TRIES_PER_CORE * cores;
}

bool mrc_ports_try_another(struct mrc_ports *ports, uint16_t core, uint16_t arrived_core, uint32_t cores,
                           bool idle, uint64_t now_us)
{
    if (is_settled(ports, core, arrived_core, cores) || !idle || now_us < ports->next_us)
        return false;
    ports->tries++;
    ports->next_us = now_us + (uint64_t)ports->tries * PAUSE_US;
    return true;
}

uint64_t mrc_ports_next_us(const struct mrc_ports *ports, uint16_t core, uint16_t arrived_core,
                           uint32_t cores)
{
    return is_settled(ports, core, arrived_core, cores) ? UINT64_MAX : ports->next_us;
}
