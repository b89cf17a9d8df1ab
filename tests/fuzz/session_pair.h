/* A client's and a server's endpoint, the packets between them, and somebody else who knows the key: what
 * fuzz_session.c scripts. */
#ifndef SESSION_PAIR_H
#define SESSION_PAIR_H

#include "dataplane/wire/endpoint.h"

#define SP_FLIGHT_MAX 64u
#define SP_CALLS_MAX  24u
#define SP_LATER_MAX  16u
#define SP_RECORD_MAX 512u

enum sp_side { SP_CLIENT, SP_SERVER, SP_STRANGER, SP_SIDES };

struct sp_packet {
    enum sp_side from, to;
    uint32_t bytes;
    uint8_t data[MR_UDP_BYTES_MAX];
};

struct sp_call {
    struct mr_call *call; /* NULL: the place is free */
    bool sent, ended;
};

struct sp_later {
    bool used, begun;
    uint32_t life;
    struct mr_call_ref ref;
    const struct mr_request *request;
    struct mr_tensor tensor;
};

/* How the next requests are answered. */
enum sp_answer { SP_STATUS, SP_TENSORS, SP_ERROR, SP_BUSY, SP_LATER, SP_TOO_LARGE, SP_ANSWERS };

struct sp {
    uint64_t now_us;
    struct mr_endpoint_config config[2];
    struct mr_endpoint *ep[2];
    struct mr_address address[SP_SIDES];
    uint64_t random_state;
    bool no_room;
    uint32_t life; /* of the server */
    struct mr_client_session *session;
    uint8_t open[MR_UDP_BYTES_MAX];
    struct mr_address open_to;
    bool is_open;
    struct sp_packet *flight[SP_FLIGHT_MAX]; /* the first flight_count are on their way, the others free */
    uint32_t flight_count;
    struct sp_call calls[SP_CALLS_MAX];
    enum sp_answer answer;
    uint32_t reply_bytes;
    struct sp_later later[SP_LATER_MAX];
    struct mr_call_ref executed[SP_RECORD_MAX]; /* by this life of the server */
    uint32_t executed_count, handled;
    uint64_t sent_packets[2], sent_bytes[2], delivered[2];
    uint64_t from_stranger_bytes, to_stranger_bytes;
};

void sp_start(struct sp *sp, uint32_t window, uint32_t memory_kib, uint32_t udp_bytes);
/* Ends what there is, and checks that nothing is left of it. */
void sp_stop(struct sp *sp);
void sp_deliver(struct sp *sp, const struct sp_packet *packet);
/* The packet stays as it was until the next is sent. */
/* The packet stays as it was until the next is sent. */
void sp_remove(struct sp *sp, uint32_t index);
void sp_poll(struct sp *sp);
/* Give a packet of a session that is there the next number of its sender, so that it is not dropped as one
 * that has come. */
void sp_renumber(const struct sp *sp, struct sp_packet *packet);
/* Write proof and tag as somebody with the key would. */
void sp_authenticate(const struct sp *sp, struct sp_packet *packet);
void sp_call(struct sp *sp, uint8_t op, uint8_t priority, uint32_t bytes, uint64_t sequence,
             uint64_t deadline_us, bool send);
void sp_call_free(struct sp *sp, struct sp_call *c);
/* The answer to a request put off, or a part of it. */
void sp_answer_later(struct sp *sp, struct sp_later *l, uint32_t part);
void sp_restart_server(struct sp *sp);
void sp_restart_client(struct sp *sp);
void sp_reopen(struct sp *sp);

#endif
