/* A client that attacks a node with its key until it is killed; says "attacking" once that is under way.
 * usage: attacker IP PORT KEY-FILE messages|sessions */
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

static void say_under_way(void *context)
{
    (void)puts("attacking");
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    uint8_t psk[MR_PSK_BYTES];
    if (argc != 5) {
        fprintf(stderr, "usage: attacker IP PORT KEY-FILE messages|sessions\n");
        return 2;
    }
    read_psk(argv[3], psk);
    const struct attack attack = {
        .ip = argv[1], .port = (uint16_t)atoi(argv[2]), .psk = psk, .under_way = say_under_way};
    if (strcmp(argv[4], "messages") == 0)
        attack_messages(&attack);
    attack_sessions(&attack, SESSIONS_MAX);
}
