/* The call RECENT_CALLS: what a core's last calls were, or, of all calls, the slow ones with some before and
 * after each. A core keeps a limited number of both, the newest; a reader goes on where it has stopped, and
 * learns how many it has missed. */
#ifndef MR_RECENT_CALLS_H
#define MR_RECENT_CALLS_H

#include <stdint.h>

#define MR_RECENT_CALLS_MAX 256u                    /* in an answer */
#define MR_RECENT_FROM_NOW  UINT64_MAX              /* as a position: behind what is there */
#define MR_RECENT_SLOW_MAX  UINT64_C(1000000000000) /* ns */

/* The request: u64[MR_RECENT_ASK_WORDS]. */
enum mr_recent_ask_word {
    MR_RECENT_ASK_POSITION, /* the last answer's MR_RECENT_NEXT; 0 at first */
    /* 0: the last calls. Otherwise the calls around those that took so many ns or more; the core selects them
     * from the first such question on, until none has come for 10 s. Of several readers the smallest
     * counts */
    MR_RECENT_ASK_SLOW_NS,
    MR_RECENT_ASK_WORDS = 4 /* the rest is 0 */
};

/* The answer: u64[MR_RECENT_WORDS], u64[n, MR_RECENT_CALL_WORDS]. */
enum mr_recent_word {
    MR_RECENT_NEXT,     /* the position after these calls */
    MR_RECENT_LOST,     /* calls between the position asked for and these that were gone */
    MR_RECENT_LEFT,     /* calls that follow these */
    MR_RECENT_NOW_NS,   /* the core's clock */
    MR_RECENT_CALLS,    /* calls of this core since its start */
    MR_RECENT_SLOW,     /* of these: that were slow when they ended */
    MR_RECENT_WORDS = 8 /* the rest is 0 */
};

enum mr_recent_call_word {
    MR_RECENT_CALL_NUMBER,     /* in the order in which calls were over, from 1 */
    MR_RECENT_CALL_ARRIVED_NS, /* the last of the request, by the core's clock */
    MR_RECENT_CALL_TOTAL_NS,   /* from then until the last of the answer had gone to the port */
    MR_RECENT_CALL_IS_TIMED,   /* 0: the next two are not known */
    MR_RECENT_CALL_WAIT_NS,    /* until its work began; of a long call, until its turn */
    MR_RECENT_CALL_WORK_NS,    /* until its answer was there */
    MR_RECENT_CALL_OP,
    MR_RECENT_CALL_STATUS,
    MR_RECENT_CALL_TABLE, /* 0: none, or several */
    MR_RECENT_CALL_KEYS,
    MR_RECENT_CALL_REQUEST_BYTES,
    MR_RECENT_CALL_REPLY_BYTES,
    MR_RECENT_CALL_IP, /* of the client: two words, IPv4 as ::ffff:a.b.c.d */
    MR_RECENT_CALL_PORT = MR_RECENT_CALL_IP + 2,
    MR_RECENT_CALL_WORDS = 16 /* the rest is 0 */
};

#endif
