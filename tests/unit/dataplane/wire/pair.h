/* A client's and a server's endpoint joined by two queues and a virtual clock, for tests that drive them by
 * hand. */
#ifndef TEST_PAIR_H
#define TEST_PAIR_H

#include "dataplane/wire/endpoint.h"

#define PAIR_QUEUE_MAX 8192
#define PAIR_DELAY_US  10

struct pair_packet {
    uint64_t arrives_us;
    uint32_t bytes;
    uint8_t data[MR_UDP_BYTES_MAX];
};

struct pair;
enum pair_side { PAIR_CLIENT, PAIR_SERVER };

struct pair_end {
    struct pair *pair;
    struct mr_endpoint *ep;
    struct mr_address address;
    struct pair_packet *queue[PAIR_QUEUE_MAX]; /* towards this end, in order of arrival */
    uint32_t head, tail;
    uint32_t sent; /* packets this end has sent */
    bool no_room;  /* its port is full */
    bool stands_still;
    struct pair_packet *open;
    uint64_t random_state;
};

/* What becomes of packet number `n` (from 0) that `from` sends. It may change the bytes. */
enum pair_verdict { PAIR_PASS, PAIR_DROP, PAIR_TWICE, PAIR_LATE };
typedef enum pair_verdict (*pair_filter)(struct pair *p, enum pair_side from, uint32_t n,
                                         struct pair_packet *packet);

struct pair_call {
    uint64_t sequence; /* of the request; set before pair_call */
    uint64_t reply_sequence;
    struct mr_call *call;
    struct mr_tensor tensors[4];
    uint32_t tensor_count;
    uint32_t ended; /* times */
    enum mr_status status;
    uint16_t epoch; /* of the request; set before pair_call */
    bool ahead;     /* set before pair_call */
    bool keep;      /* the test frees it */
};

struct pair {
    uint64_t now_us;
    struct pair_end ends[2];
    struct mr_endpoint_config config[2];
    pair_filter filter;
    uint32_t drop_from, drop_n; /* for filters */
    uint64_t late_us;
    uint32_t wire_packets; /* sent by both, in order */

    /* server */
    mr_on_request handler; /* NULL: pair_serve */
    uint32_t executed;
    uint32_t reply_bytes; /* of LOOKUP */
    struct mr_call_ref later[8];
    const struct mr_request *later_request[8];
    uint32_t later_count;
    /* client */
    struct mr_client_session *session;
    uint32_t events[5];
    void (*on_ended)(struct pair *p, struct pair_call *call);
    void (*on_event)(struct pair *p, enum mr_client_session_event event);
};

/* Fill in the configurations; they may be changed before pair_start. `p` is all zero, or was stopped. */
void pair_init(struct pair *p);
void pair_start(struct pair *p);
/* Another process in the server's (the client's) place. */
void pair_restart_server(struct pair *p);
void pair_restart_client(struct pair *p);
void pair_stop(struct pair *p);

/* Move clock and packets on by `us`. */
void pair_run(struct pair *p, uint64_t us);
/* Open the session and wait until it is up. */
void pair_open(struct pair *p);
/* Make one call; it goes out with the next flush or run. */
void pair_call(struct pair *p, struct pair_call *out, uint8_t op, struct mr_tensor *tensors, uint32_t count,
               uint64_t deadline_us);
/* The default handler: ECHO returns its tensors, LOOKUP u8[reply_bytes] counting up, SAVE answers later,
 * PUSH_GRAD counts, RESTORE is busy the first time, anything else MR_UNKNOWN_OP with a text. */
void pair_serve(void *app, struct mr_endpoint *ep, const struct mr_request *request);
/* Put a packet on the way to `to` as if `from` had sent it. */
void pair_inject(struct pair *p, enum pair_side to, const uint8_t *data, uint32_t bytes);

#endif
