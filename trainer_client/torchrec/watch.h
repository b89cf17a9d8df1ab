/* Looks whether the node refuses new rows: pushes are answered all the same. The instance's thread. */
#ifndef TDE_WATCH_H
#define TDE_WATCH_H

#include "millrace.h"

struct tde_watch {
    bool is_begun;
    uint64_t refused; /* rows, by the node's counters when they were last looked at */
    uint64_t looked_us, told_us;
};

/* Before the first push and after each. Asks the node once a second at most, and tells once a minute at most. */
void tde_watch_look(struct tde_watch *w, struct mr_client *client, uint32_t deadline_ms, uint64_t now_us);
/* Once more, however long ago the last time was, if it is begun. */
void tde_watch_end(struct tde_watch *w, struct mr_client *client);

#endif
