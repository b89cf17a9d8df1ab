#include "tests/integration/attacks.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "tests/integration/wire_client.h"

enum {
    ATTACKERS = 4,
    REQUESTS = 16, /* of each */
    REQUEST_BYTES = 2 << 20,
    TURNS = 100, /* until all first segments are there */
    REFUSED = 4, /* sessions in a row, until there are no more */
    ANSWER_MS = 2000,
    LONG_MS = 600000
};

static struct wire_client *attacker_create(const struct attack *attack)
{
    struct wire_client *client = wire_client_create(attack->ip, attack->port, 0);
    wire_client_set_key(client, attack->psk);
    return client;
}

void attack_messages(const struct attack *attack)
{
    struct wire_client *clients[ATTACKERS];
    for (uint32_t i = 0; i < ATTACKERS; i++) {
        clients[i] = attacker_create(attack);
        if (wire_client_echo(clients[i], 1, 1, LONG_MS) != MR_OK)
            exit(1);
        wire_client_send_first_segments(clients[i]);
        wire_client_begin(clients[i], REQUEST_BYTES, REQUESTS, LONG_MS);
    }
    for (uint64_t turn = 0;; turn++) {
        for (uint32_t i = 0; i < ATTACKERS; i++)
            wire_client_turn(clients[i]);
        if (turn == TURNS)
            attack->under_way(attack->context);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

void attack_sessions(const struct attack *attack, uint32_t count)
{
    uint32_t refused = 0;
    for (uint32_t i = 0; i < count && refused < REFUSED; i++)
        refused += wire_client_echo(attacker_create(attack), 1, 1, ANSWER_MS) != MR_OK;
    if (refused < REFUSED)
        exit(1);
    attack->under_way(attack->context);
    for (;;)
        pause();
}
