/* What servers may send where. Until somebody has shown to be at an address, by a cookie that was sent there,
 * a server may only answer what comes from it, and with no more bytes than came: it cannot be used to flood
 * somebody else. */
#include <string.h>

#include "sim.h"

#define CLIENT_PORT   40000u
#define STRANGER_PORT 50000u
#define NOBODY        UINT32_MAX

void sim_address_set(struct mr_address *address, uint32_t node, uint16_t port)
{
    memset(address, 0, sizeof(*address));
    address->ip[10] = 0xff;
    address->ip[11] = 0xff;
    address->ip[12] = 10;
    address->ip[15] = (uint8_t)(node + 1);
    address->port = port;
}

void sim_address_client(struct mr_address *address, uint32_t client, uint32_t move)
{
    sim_address_set(address, SIM_SERVERS_MAX + client,
                    (uint16_t)(CLIENT_PORT + client * SIM_PORTS + move % SIM_PORTS));
}

void sim_address_stranger(struct mr_address *address, uint32_t stranger)
{
    sim_address_set(address, 100 + stranger, (uint16_t)(STRANGER_PORT + stranger));
}

static uint32_t number_of(const struct mr_address *address)
{
    uint32_t port = address->port;
    if (port >= STRANGER_PORT && port < STRANGER_PORT + SIM_STRANGERS)
        return SIM_CLIENTS_MAX * SIM_PORTS + port - STRANGER_PORT;
    if (port >= CLIENT_PORT && port < CLIENT_PORT + SIM_CLIENTS_MAX * SIM_PORTS)
        return port - CLIENT_PORT;
    return NOBODY;
}

void sim_address_note_retry(struct sim_node *server, const struct mr_address *client)
{
    uint32_t number = number_of(client);
    if (number != NOBODY)
        server->cookie_came[number] = true;
}

/* Who sends a cookie has received one, if one has come to where it sends from. */
void sim_address_note_hello(struct sim_node *server, const struct mr_address *client, const uint8_t *data,
                            uint32_t bytes)
{
    static const uint8_t none[MR_COOKIE_BYTES];
    uint32_t number = number_of(client);
    struct mr_hello hello;
    if (number == NOBODY || bytes != MR_HEADER_BYTES + sizeof(hello) || data[3] != MR_PACKET_HELLO)
        return;
    memcpy(&hello, data + MR_HEADER_BYTES, sizeof(hello));
    if (server->cookie_came[number] && memcmp(hello.cookie, none, sizeof(none)) != 0)
        server->proven[number] = true;
}

void sim_address_check_send(struct sim_node *server, const struct mr_address *to, const uint8_t *data,
                            uint32_t bytes)
{
    uint32_t number = number_of(to);
    if (number == NOBODY)
        return;
    if (data[3] == MR_PACKET_ACCEPT && !server->proven[number])
        sim_fail(server->sim, "server %u accepts a session from port %u, where no cookie has come",
                 server->index, to->port);
    if (data[3] != MR_PACKET_ACCEPT && server->proven[number])
        return;
    bool answers = server->receiving_bytes > 0 && server->receiving_from.port == to->port;
    if (!answers || bytes > server->receiving_bytes)
        sim_fail(server->sim, "server %u sends %u bytes to port %u, where nobody has proven to be",
                 server->index, bytes, to->port);
    server->receiving_bytes -= bytes < server->receiving_bytes ? bytes : server->receiving_bytes;
}
