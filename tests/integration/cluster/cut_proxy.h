/* A TCP proxy in the test's own process, one connection at a time, which it cuts on demand. For
 * cmocka tests. */
#ifndef TESTS_CUT_PROXY_H
#define TESTS_CUT_PROXY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define CUT_PROXY_NEEDLE_BYTES 64u

struct cut_proxy {
    uint16_t port, target_port; /* on the loopback interface */
    int listener, wake[2];
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    char needle[CUT_PROXY_NEEDLE_BYTES];
    unsigned cuts;
    bool holds, stops;
};

void cut_proxy_start(struct cut_proxy *p, uint16_t target_port);
/* The next request that contains these bytes reaches the server; its answer does not come back, and the
 * connection ends. Later connections go through. */
void cut_proxy_lose_answer(struct cut_proxy *p, const char *needle);
/* How many connections were cut. */
unsigned cut_proxy_cuts(struct cut_proxy *p);
/* True: cuts the connection, and lets none through. False: lets them through again. */
void cut_proxy_hold(struct cut_proxy *p, bool holds);
void cut_proxy_stop(struct cut_proxy *p);

#endif
