/* What bare_server and bare_client share: the header of their datagrams, and a UDP socket whose datagrams
 * move in runs (UDP_SEGMENT, UDP_GRO). There are no sessions, tags, retries or records, and integers are
 * those of the machine. Of one thread. */
#ifndef BARE_SOCKET_H
#define BARE_SOCKET_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* A call's request and its answer are datagrams with some of its items each, in any order. */
enum bare_op {
    BARE_EMPTY,         /* nothing -> nothing */
    BARE_PULL,          /* u64 key[] -> f32 row[][BARE_DIM] */
    BARE_BAGS,          /* u64 key[][BARE_BAG_KEYS] -> f32 sum[][BARE_DIM] */
    BARE_PUSH,          /* u64 key[n], f32 gradient[n][BARE_DIM] -> one answer to all, without items */
    BARE_SET,           /* u64 key[n], f32 row[n][BARE_DIM] -> as BARE_PUSH */
    BARE_PULL_VARIABLE, /* nothing -> f32[] */
    BARE_PUSH_VARIABLE, /* f32 gradient[] -> as BARE_PUSH */
};

struct bare_header {
    uint32_t call;
    uint32_t op;
    uint32_t first; /* of the items that the datagram has: keys, bags or floats */
    uint32_t total; /* items of the call */
};

#define BARE_BAG_KEYS          26u
#define BARE_VARIABLE_FLOATS   (2u << 20) /* 8 MiB */
#define BARE_TABLE_KEYS        163840u    /* 0 to that, without it */
#define BARE_RUN_DATAGRAMS_MAX 64u        /* UDP_MAX_SEGMENTS of Linux up to 6.8 */
#define BARE_RUN_BYTES_MAX     65000u
#define BARE_RECEIVED_RUNS_MAX 8u
#define BARE_PIECES_MAX        2u /* of a payload */

struct bare_socket {
    int fd;
    uint32_t payload_bytes_max; /* of a datagram behind its header; a multiple of 8 */
    struct sockaddr_in peer;    /* who is sent to: the client's server, or the last sender */
    /* A run on its way, all of whose datagrams have the first one's size, or less in the last one. */
    uint32_t datagrams, datagram_bytes, bytes, pieces;
    struct bare_header headers[BARE_RUN_DATAGRAMS_MAX];
    struct iovec vector[BARE_RUN_DATAGRAMS_MAX * (1 + BARE_PIECES_MAX)];
    uint8_t *received; /* [BARE_RECEIVED_RUNS_MAX] runs */
};

/* Ends the program when there is no socket. mtu: of the link, with the headers of IPv4 and UDP. */
void bare_socket_open(struct bare_socket *s, uint32_t mtu);
/* Adds a datagram to the run, which goes when it is full. The pieces stay where they are until then. */
void bare_socket_add(struct bare_socket *s, const struct bare_header *header, const struct iovec *pieces,
                     uint32_t piece_count);
/* Sends what was added. */
void bare_socket_flush(struct bare_socket *s);
/* Gives the datagrams that are there to `take`, if there are any; returns how many. The payload is on a
 * boundary of 8 bytes, and good for the call. */
uint32_t bare_socket_receive(struct bare_socket *s,
                             void (*take)(void *arg, const struct bare_header *header, const void *payload,
                                          uint32_t bytes),
                             void *arg);

#endif
