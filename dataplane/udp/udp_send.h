/* Sends datagrams in batches: they are laid out one after the other, and sent with one system call; runs of
 * equal length to one peer become one large send that the kernel or the NIC cuts up (UDP_SEGMENT), where that
 * is allowed. Belongs to one thread at a time. */
#ifndef MR_UDP_SEND_H
#define MR_UDP_SEND_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"
#include "dataplane/udp/udp_socket.h"

struct mr_udp_sender;

/* NULL when memory is short. The socket must outlive it. */
struct mr_udp_sender *mr_udp_sender_create(const struct mr_udp_socket *socket, bool offload);
void mr_udp_sender_destroy(struct mr_udp_sender *s);

/* As mr_endpoint_io.tx_begin and tx_end: room for one datagram, 8-byte aligned; NULL when the batch and the
 * socket's buffer are full. */
uint8_t *mr_udp_send_begin(struct mr_udp_sender *s, const struct mr_address *to, uint32_t bytes_max);
void mr_udp_send_end(struct mr_udp_sender *s, uint32_t bytes);
/* Hands the batch to the kernel. Returns false when some datagrams are left because the socket's buffer is
 * full: call it again soon. Datagrams that the kernel refuses for another reason are dropped, as the network
 * might do; the transport sends them again. */
bool mr_udp_send_flush(struct mr_udp_sender *s);
/* Does the same, but where more datagrams are about to come: those at the end of the batch that make less
 * than half a run stay until then. */
bool mr_udp_send_flush_runs(struct mr_udp_sender *s);
/* Returns how many datagrams of that length leave as one large send, where that is allowed. */
uint32_t mr_udp_run_datagrams(uint32_t datagram_bytes);

/* Returns the functions with which an endpoint sends through it. */
struct mr_endpoint_io mr_udp_io(struct mr_udp_sender *s);

/* Switches the offload on or off. A peer that receives large sends uncut (an AF_PACKET socket on a virtual
 * link) loses all of them; the caller watches what had to be sent again, and then switches the offload
 * off. */
void mr_udp_send_set_offload(struct mr_udp_sender *s, bool offload);
/* Returns whether, since the last call, a datagram was longer than this machine sends, or a router reported
 * one as too long for the path. */
bool mr_udp_send_too_long(struct mr_udp_sender *s);
/* Returns the number of dropped answers to peers without a session. A HELLO may carry a forged address; for
 * one that no host on the link has, the kernel keeps the answer for seconds while ARP fails. So answers
 * without a session use at most half of the socket's send buffer, and sessions have the rest. A client
 * whose answer was dropped retries. Any thread. */
uint64_t mr_udp_send_strangers_dropped(const struct mr_udp_sender *s);
/* Returns the number of datagrams sent in runs so far. */
uint64_t mr_udp_send_offloaded(const struct mr_udp_sender *s);

#endif
