/* The feeding thread's own state, and what its files share: feeder.c; feed.c, which feeds batches; and
 * claim.c, which finds the streams of a plan's parts. Only this thread calls these functions. */
#ifndef HUB_FEEDER_H
#define HUB_FEEDER_H

#include "trainer_client/hub/hub.h"
#include "trainer_client/millrace.h"

#define HUB_SERVER_RETRY_US 50000u /* after the server refused, did not answer, or did not know the table */

struct hub_feeder {
    struct hub *hub;
    uint64_t plan_number; /* of the plan that `source` belongs to */
    struct hub_request request;
    bool was_started; /* a part had its stream */
    /* the plan that has come to its end is taken up again, and nothing has changed: it continues as it is */
    bool is_again;
    struct hub_batch_source *source;
    struct mr_client *client; /* NULL: the server was never reached */
    uint64_t server_start;    /* start id of the server, as last seen */
    uint32_t table;           /* feature id; 0 = not known */
    uint32_t table_dim;
    uint32_t turn; /* the part that was fed last */
    uint64_t feeds;
    uint64_t retry_us;
    uint64_t clocks_ns; /* when the server is asked for its clock next */
    uint64_t salt;      /* of the plan of `source` */
    bool is_refused;    /* the server has refused batch `refused`, and has not taken it since */
    uint64_t refused;
    bool said_away, said_no_table, said_no_list, said_no_samples, said_trouble;
};

/* The parts belong to the plan of `source`; they change under the lock, by this thread, but for their plans'
 * books. */
static inline struct hub_part *hub_part_at(const struct hub_feeder *f, uint32_t index)
{
    return &f->hub->parts.all[index];
}

/* The plan cannot continue: trainers get this error. */
void hub_fail_plan(struct hub_feeder *f, enum mr_status status, const char *error);
/* After a call with this outcome: logs when the server is away, or back. */
void hub_server_answered(struct hub_feeder *f, enum mr_status status);

/* Sets the reason that trainers get as long as there is nothing to hand out; "" for nothing in particular. */
void hub_wait_for(struct hub_feeder *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* After a call: when the server turns out to have restarted, what was fed to it is void. */
void hub_notice_restart(struct hub_feeder *f);

/* ---- feed.c ---- */

/* Begins a feed, of the parts in turn. False: none has a batch, or there is no room. Sets *has_applied when a
 * batch without samples was applied instead. */
bool hub_feed_next(struct hub_feeder *f, bool *has_applied);
/* Ends the feed that was begun first; it waits for the server. False: none is in flight. */
bool hub_feed_end_oldest(struct hub_feeder *f);

/* ---- claim.c ---- */

uint64_t hub_batch_id(const struct hub_part *part, uint64_t sequence);
/* The options of calls that name the stream, with its plan's words in `words`. */
struct mr_options hub_plan_options(const struct mr_plan *plan, uint64_t words[MR_PLAN_WORDS]);
/* After a call that named the stream: it may belong to another plan by now. */
void hub_check_stream(struct hub_feeder *f, const struct hub_part *part, enum mr_status status);
/* A part's plan of which nothing is known. Under the lock. */
void hub_init_part(struct hub_feeder *f, uint32_t index);
/* Claims the streams of the parts that have samples and no stream. False: not all of them now, or the plan
 * failed. */
bool hub_claim_streams(struct hub_feeder *f);
/* The parts have no stream from now on. That of held-out samples is given back: nobody reads them again under
 * its number. */
void hub_leave_streams(struct hub_feeder *f);

#endif
