/* Which stream a plan's batches go by, among those that the server knows. Pure, any thread.
 *
 * A number is 16 bits, so that two plans may want the same one: the server's cores compare plans, and whoever
 * comes second takes the next number that is free. It is found again by its plan.
 */
#ifndef HUB_STREAM_H
#define HUB_STREAM_H

#include <stdint.h>
#include "dataplane/wire/format/op.h"
#include "trainer_client/millrace_admin.h"

enum hub_stream_found {
    HUB_STREAM_FREE,    /* nobody has the number */
    HUB_STREAM_OWN,     /* the plan's own, from before */
    HUB_STREAM_ADOPTED, /* of a version that kept no plans, under the number that this plan had then */
    /* the plan's, but with other samples, of which batches were applied: `number` is that stream */
    HUB_STREAM_CHANGED,
};

/* streams: as mr_streams() gives them. There is always a free one, as a server keeps far fewer than there are
 * numbers. */
enum hub_stream_found hub_stream_choose(const struct mr_stream *streams, uint32_t count,
                                        const struct mr_plan *plan, uint32_t preferred, uint32_t *number);

/* The stream of the same request, whatever its samples were; of several the one with the most batches
 * applied. NULL: there is none. */
const struct mr_stream *hub_stream_of_request(const struct mr_stream *streams, uint32_t count,
                                              const struct mr_plan *plan);

#endif
