/* The feeding thread's own state, and its parts: what goes to the server (feeder.c), what comes of talking to
 * it at all (feeder_server.c): connection, restarts, the table's number, the record; and the plan's stream
 * (feeder_stream.c). */
#ifndef HUB_FEEDER_INTERNAL_H
#define HUB_FEEDER_INTERNAL_H

#include "trainer_client/hub/hub.h"
#include "trainer_client/millrace.h"

#define HUB_CALL_DEADLINE_MS 1000u
#define HUB_SERVER_RETRY_US  50000u /* after the server refused, did not answer, or did not know the table */

struct feeder {
    struct hub *hub;
    uint64_t plan_number; /* of the plan that `source` belongs to */
    struct hub_request request;
    struct mr_plan plan;
    uint32_t stream;
    bool has_stream;
    /* the plan that has come to its end is taken up again, and nothing has changed: it goes on as it is */
    bool is_again;
    struct hub_batch_source *source;
    struct mr_client *client; /* NULL: the server was never reached */
    uint64_t server_start;    /* start id of the server, as last seen */
    uint32_t table;           /* feature id; 0 = not known */
    uint64_t next_record_us, retry_us;
    bool said_away, said_no_table;
};

/* False: the server is away; tried again at f->retry_us at the earliest. */
bool hub_feeder_connect(struct feeder *f);
/* After a call: when the server turns out to have restarted, what was fed to it is void. */
void hub_feeder_notice_restart(struct feeder *f);
/* After a call with this outcome: says when the server is away, or back. */
void hub_feeder_server_answered(struct feeder *f, enum mr_status status);
/* Makes sure of f->table. False: the server has no such table yet, or is away. */
bool hub_feeder_find_table(struct feeder *f);
/* Asks the server what it has applied, and has the plan follow. */
void hub_feeder_ask_record(struct feeder *f);
/* Finds the stream of f->plan, whose cores then know that it is this plan's. False: not now, or the plan
 * failed. */
bool hub_feeder_find_stream(struct feeder *f);
/* Gives the stream of held-out samples back: nobody reads them again under its number. */
void hub_feeder_leave_stream(struct feeder *f);
/* After a call that named the stream: it may be another plan's since. */
void hub_feeder_check_stream(struct feeder *f, enum mr_status status);
/* The options of calls that name the stream, with its plan's words in `words`. */
struct mr_options hub_feeder_options(const struct feeder *f, uint64_t words[MR_PLAN_WORDS]);
/* The plan cannot go on: trainers get this. */
void hub_feeder_fail_plan(struct feeder *f, enum mr_status status, const char *error);
/* What trainers are told as long as there is nothing to hand out; "" for nothing in particular. */
void hub_feeder_wait_for(struct feeder *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether it is time to. Under the lock. */
bool hub_feeder_record_due(const struct feeder *f, uint64_t now_us);

#endif
