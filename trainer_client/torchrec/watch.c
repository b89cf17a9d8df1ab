#include "trainer_client/torchrec/watch.h"

#include <inttypes.h>
#include <string.h>
#include "trainer_client/torchrec/line.h"

#define LOOK_US UINT64_C(1000000)
#define TELL_US UINT64_C(60000000)
#define END_MS  1000u /* the server may be away */

static void add(void *arg, const char *name, uint64_t value)
{
    if (strcmp(name, "table.rows_refused") == 0)
        *(uint64_t *)arg += value;
}

/* False: it cannot be told now. */
static bool count(struct mr_client *client, uint32_t deadline_ms, uint64_t *refused)
{
    const struct mr_options options = {.deadline_ms = deadline_ms};
    *refused = 0;
    for (uint32_t core = 0; core < mr_client_core_count(client); core++)
        if (mr_stats(client, &options, core, add, refused) != MR_OK)
            return false;
    return true;
}

static void look(struct tde_watch *w, struct mr_client *client, uint32_t deadline_ms, uint64_t now_us)
{
    uint64_t refused;
    if (!count(client, deadline_ms, &refused))
        return;
    uint64_t more = refused > w->refused && w->is_begun ? refused - w->refused : 0;
    bool tells = more > 0 && (w->told_us == 0 || now_us - w->told_us >= TELL_US);
    if (tells) {
        tde_line("the node has refused %" PRIu64
                 " new rows: its memory, or a table's limit, is used up. Rows that are "
                 "pushed are lost (said once a minute); raise memory.limit_mib",
                 more);
        w->told_us = now_us;
    }
    if (tells || more == 0) /* else it is told later */
        w->refused = refused;
    w->looked_us = now_us;
    w->is_begun = true;
}

void tde_watch_look(struct tde_watch *w, struct mr_client *client, uint32_t deadline_ms, uint64_t now_us)
{
    if (deadline_ms > 0 && (!w->is_begun || now_us - w->looked_us >= LOOK_US))
        look(w, client, deadline_ms, now_us);
}

void tde_watch_end(struct tde_watch *w, struct mr_client *client)
{
    if (w->is_begun)
        look(w, client, END_MS, w->looked_us);
}
