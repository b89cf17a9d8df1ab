/* Lookups with a future that are made again when the node's cores change under them (mrc_future.again): what
 * the caller gave is kept until the future is gone, for the caller may use its memory at once. */
#ifndef MRC_ROWS_AGAIN_H
#define MRC_ROWS_AGAIN_H

#include "trainer_client/api/rows_call.h"

/* The call was sent with this future. Without memory it will not be made again. */
void mrc_rows_keep(const struct mrc_rows_call *c, struct mr_future *f);

#endif
