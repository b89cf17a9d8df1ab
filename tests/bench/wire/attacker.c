/* A client that attacks a node with its key until it is killed; says "attacking" and how many datagrams it
 * sends in 100 turns, once that is under way. nobody: sends as many to a closed port.
 * usage: attacker IP PORT KEY-FILE messages|sessions | attacker IP PORT DATAGRAMS nobody */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/session/auth.h"
#include "tests/bench/common/bench_print.h"
#include "tests/integration/attacks.h"

#define SESSIONS_MAX 4096u

static void read_psk(const char *path, uint8_t psk[MR_PSK_BYTES])
{
    FILE *file = fopen(path, "r");
    for (uint32_t i = 0; i < MR_PSK_BYTES; i++)
        if (file == NULL || fscanf(file, "%2hhx", &psk[i]) != 1)
            bench_give_up("the key file has no key");
    (void)fclose(file);
}

static void say_under_way(void *context, uint32_t datagrams)
{
    (void)printf("attacking %u\n", datagrams);
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    uint8_t psk[MR_PSK_BYTES];
    if (argc != 5) {
        fprintf(stderr,
                "usage: attacker IP PORT KEY-FILE messages|sessions | attacker IP PORT DATAGRAMS nobody\n");
        return 2;
    }
    const struct attack attack = {
        .ip = argv[1], .port = (uint16_t)atoi(argv[2]), .psk = psk, .under_way = say_under_way};
    if (strcmp(argv[4], "nobody") == 0)
        attack_nobody(&attack, (uint32_t)strtoul(argv[3], NULL, 10));
    read_psk(argv[3], psk);
    if (strcmp(argv[4], "messages") == 0)
        attack_messages(&attack);
    attack_sessions(&attack, SESSIONS_MAX);
}
