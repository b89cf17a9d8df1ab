/* One pair for each test of a file, and what many of them do with it. */
#ifndef TEST_PAIR_FIXTURE_H
#define TEST_PAIR_FIXTURE_H

#include "pair.h"

extern struct pair p;

struct mr_endpoint *client(void);
struct mr_endpoint *server(void);
/* The server's counters. */
const struct mr_wire_counters *served(void);
/* The session is. */
bool up(void);
/* Of the next packet that `from` sends in the session, or that the test makes in its name. */
uint64_t next_number(enum pair_side from);

/* cmocka's set-up: the pair is configured, and the test starts it; it is started; and its session is up. */
int pair_configured(void **state);
int pair_started(void **state);
int pair_opened(void **state);
int pair_ended(void **state);

/* A server that times its calls, opened: each reading of its clock is a microsecond after the last one. */
extern uint64_t pair_clock_ns;
int pair_timed(void **state);
/* A call without a body, until it has ended. */
void pair_call_once(struct pair_call *call, uint8_t op);

/* Filters. */
enum pair_verdict drop_all(struct pair *pair, enum pair_side from, uint32_t n, struct pair_packet *packet);
enum pair_verdict drop_replies(struct pair *pair, enum pair_side from, uint32_t n,
                               struct pair_packet *packet);

#endif
