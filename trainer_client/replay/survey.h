/* What the node says of its features after it was restarted, or took something back by a restore by call:
 * asked by LIST, before anything is sent again or any call continues.
 *
 * A number is this client's by the name under which it met it (mr_create, mr_list). Where the node has
 * something else under it now, or nothing, calls by it are refused here, until the client meets the number
 * again: numbers do not come again on one checkpoint directory, but the directory may be another one. What
 * the node has taken back is no longer kept for a replay. All under the client's lock.
 */
#ifndef MRC_SURVEY_H
#define MRC_SURVEY_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"

struct mr_client;
struct mr_future;
struct mrc_part;

struct mrc_survey {
    bool due;        /* LIST must be asked (again) ... */
    bool asking;     /* it is in flight */
    uint64_t ask_us; /* ... but not before */
    bool has_met;    /* a lineage: */
    uint32_t lineage,
        restores; /* as in struct mr_accept; of what is kept, `restores` as of the last survey */
    uint32_t lineage_now;
};

/* A core has accepted the client; `started`: the node was restarted. */
void mrc_survey_session_up(struct mr_client *client, const struct mr_client_session_info *info, bool started);
/* An answer says that so many restores there were. Fewer than is known: what it answers was done before a
 * restore, and may have been in flight when that was looked at. */
void mrc_survey_answered(struct mr_client *client, uint32_t restores);
/* Has it made, if it is not due yet. */
void mrc_survey_want(struct mr_client *client);
/* There is none to wait for. */
bool mrc_survey_is_over(const struct mr_client *client);
/* Ask when that is due. By the driving thread. */
void mrc_survey_look_after(struct mr_client *client);
/* When mrc_survey_look_after() has something to do by itself. */
uint64_t mrc_survey_next_us(const struct mr_client *client);

/* The caller knows the feature by this number from now on. `start_id`: of the server that said so. */
void mrc_survey_meet(struct mr_client *client, uint32_t id, const struct mr_feature *feature,
                     uint64_t start_id);
/* MR_UNKNOWN_TABLE, and a line by mrc_error(): the call names a number that is something else now. */
enum mr_status mrc_survey_check(const struct mr_future *f);

#endif
