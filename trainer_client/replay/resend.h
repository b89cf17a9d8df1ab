/* Sends the kept pushes of a client made with `replay` (replay.h) again to a restarted server, before any
 * other call.
 *
 * When a server comes back as another incarnation, its sessions are held: the transport sends only calls
 * marked `ahead`. The node is asked for its map, each link sends its streams' pushes again, and then the
 * sessions are released. Calls that were in flight are sent then, too; the server applies numbered ones once.
 *
 * Everything runs under the client's lock.
 */
#ifndef MRC_RESEND_H
#define MRC_RESEND_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"
#include "trainer_client/call/future.h"

/* Whether calls of this op are numbered. */
bool mrc_resend_numbers(const struct mr_client *client, uint32_t op);

/* Allocates a copy of each request, before it is begun: MR_NO_MEMORY. Does nothing for calls that are
 * not numbered. */
enum mr_status mrc_resend_prepare(struct mr_future *f);
/* Gives the request its number in f->options. MR_NO_MEMORY: it has to wait until other pushes are answered;
 * f->is_replay_full: as replay_bytes has no room. MR_UNKNOWN_OUTCOME: earlier pushes are lost; mrc_error()
 * says which. */
enum mr_status mrc_resend_begin(struct mr_future *f, struct mrc_shard_request *request,
                                struct mrc_link *link);
/* The request was begun, and will not be sent. */
void mrc_resend_undo(struct mrc_shard_request *request);
/* Copies the requests, once they are filled in. With or without the lock. */
void mrc_resend_copy(struct mr_future *f);
/* A numbered request's call ended: request->status is set, and changed where the caller cannot know the
 * outcome. */
void mrc_resend_ended(struct mrc_shard_request *request, const struct mr_message *reply);
/* All requests of the call ended: pushes that servers only ever refused (MR_BUSY) until their deadline are
 * undone, as if they had never been made. Where another core has applied its share, or will, they are kept,
 * so that the call is applied as a whole. */
void mrc_resend_all_ended(struct mr_future *f);
/* The request's call has ended so, and its push waits for the other requests. */
bool mrc_resend_was_refused(const struct mrc_shard_request *request);
/* Nobody answered the request: its push will be sent again. */
void mrc_resend_keep(struct mrc_shard_request *request);
/* Frees copies that were never numbered. With or without the lock. */
void mrc_resend_free(struct mr_future *f);
/* True while a push of the client waits for an answer. */
bool mrc_resend_pending(const struct mr_client *client);
/* Whether a push that is sent again to this node waits for its answer. */
bool mrc_resend_in_flight(const struct mrc_node *node);

/* The core has accepted the client: `again` by a server that had lost its session. */
void mrc_resend_session_up(struct mrc_link *link, const struct mr_client_session_info *info, bool again);
/* Cancels the repetitions in flight; their pushes are due again. */
void mrc_resend_stop(struct mrc_link *link);
/* Sends what is due and releases what is held. By the driving thread. */
void mrc_resend_poll(struct mr_client *client);
/* When mrc_resend_poll() has something to do by itself. */
uint64_t mrc_resend_next_us(const struct mr_client *client);

void mrc_resend_info(const struct mr_client *client, struct mr_replay_info *info);

/* Of a link: as it is created and destroyed. */
void mrc_resend_init(struct mrc_link *link);
void mrc_resend_fini(struct mrc_link *link);

#endif
