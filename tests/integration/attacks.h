/* What clients with a key may do to a node so that others get no answers. Each function attacks for ever, in
 * a process of its own, and calls `under_way` once what it wants is taken. `psk` is the key, MR_PSK_BYTES. */
#ifndef TESTS_ATTACKS_H
#define TESTS_ATTACKS_H

#include <stdint.h>

struct attack {
    const char *ip; /* of the node's core 0 */
    uint16_t port;
    const uint8_t *psk;
    void (*under_way)(void *context, uint32_t datagrams); /* that it sends in 100 of its turns */
    void *context;
};

/* Sends the first segment of large requests, and never goes on; of those that were given up, again. So it
 * holds memory for messages: it is under way once there is no more for it. */
_Noreturn void attack_messages(const struct attack *attack);
/* Takes turns as attack_messages() does, with as many datagrams in 100 of them, which go to a closed port:
 * what such an attacker's program and datagrams cost who shares a processor with it, whatever a node does. */
_Noreturn void attack_nobody(const struct attack *attack, uint32_t datagrams);
/* Opens sessions until there are no more, at most `count`, and keeps them. Exits with 1 when none was
 * refused. */
_Noreturn void attack_sessions(const struct attack *attack, uint32_t count);

#endif
