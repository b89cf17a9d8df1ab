/* What clients with a key may do to a node so that others get no answers. Each function attacks for ever, in
 * a process of its own, and calls `under_way` once what it wants is taken. `psk` is the key, MR_PSK_BYTES. */
#ifndef TESTS_ATTACKS_H
#define TESTS_ATTACKS_H

#include <stdint.h>

struct attack {
    const char *ip; /* of the node's core 0 */
    uint16_t port;
    const uint8_t *psk;
    void (*under_way)(void *context);
    void *context;
};

/* Sends the first segment of large requests, and never goes on; of those that were given up, again. So it
 * holds memory for messages. */
_Noreturn void attack_messages(const struct attack *attack);
/* Opens sessions until there are no more, at most `count`, and keeps them. Exits with 1 when none was
 * refused. */
_Noreturn void attack_sessions(const struct attack *attack, uint32_t count);

#endif
