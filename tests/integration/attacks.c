#include "tests/integration/attacks.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include "tests/integration/wire_client.h"
#include "tests/wait.h"

enum {
    ATTACKERS = 4,
    REQUESTS = 16, /* of each */
    REQUEST_BYTES = 2 << 20,
    TURNS = 100,       /* over which datagrams are counted; the first ones bring all first segments */
    TURNS_MAX = 60000, /* until one is refused */
    REFUSED = 4,       /* sessions in a row, until there are no more */
    ANSWER_MS = 2000,
    LONG_MS = 600000,
    DATAGRAM_BYTES = 3464 /* a first segment's over the benchmarks' link */
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
    uint64_t sent_before = 0, refused_before = 0;
    bool is_under_way = false;
    for (uint32_t turn = 1; is_under_way || turn < TURNS_MAX; turn++) {
        uint64_t sent = 0, refused = 0;
        for (uint32_t i = 0; i < ATTACKERS; i++) {
            wire_client_turn(clients[i]);
            sent += wire_client_sent(clients[i]);
            refused += wire_client_refused(clients[i]);
        }
        if (turn % TURNS == 0 && !is_under_way) {
            is_under_way = turn > TURNS && refused > refused_before;
            if (is_under_way)
                attack->under_way(attack->context, (uint32_t)(sent - sent_before));
            sent_before = sent;
            refused_before = refused;
        }
        wait_pause();
    }
    exit(1);
}

void attack_nobody(const struct attack *attack, uint32_t datagrams)
{
    struct sockaddr_in nobody = {.sin_family = AF_INET, .sin_port = htons(attack->port)};
    char bytes[DATAGRAM_BYTES] = {0};
    int sockets[ATTACKERS];
    if (inet_pton(AF_INET, attack->ip, &nobody.sin_addr) != 1)
        exit(1);
    for (uint32_t i = 0; i < ATTACKERS; i++)
        if ((sockets[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) < 0)
            exit(1);
    uint64_t sent = 0;
    for (uint64_t turn = 0;; turn++) {
        for (; sent * TURNS < turn * datagrams; sent++)
            (void)!sendto(sockets[sent % ATTACKERS], bytes, sizeof(bytes), 0, (struct sockaddr *)&nobody,
                          sizeof(nobody));
        for (uint32_t i = 0; i < ATTACKERS; i++) /* as the attackers look for answers */
            (void)!recv(sockets[i], bytes, sizeof(bytes), 0);
        if (turn == TURNS)
            attack->under_way(attack->context, datagrams);
        wait_pause();
    }
}

void attack_sessions(const struct attack *attack, uint32_t count)
{
    uint32_t refused = 0;
    for (uint32_t i = 0; i < count && refused < REFUSED; i++)
        refused += wire_client_echo(attacker_create(attack), 1, 1, ANSWER_MS) != MR_OK;
    if (refused < REFUSED)
        exit(1);
    attack->under_way(attack->context, 0);
    for (;;)
        pause();
}
