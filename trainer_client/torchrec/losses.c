#include "trainer_client/torchrec/losses.h"

#include <inttypes.h>
#include "trainer_client/torchrec/line.h"

#define TELL_US UINT64_C(60000000)

static void tell_no_room(struct tde_losses *l)
{
    tde_line("the node did not take %" PRIu64 " of the rows pushed: its memory, or a table's limit, is used "
             "up, or it is frozen. They are lost (said "
             "once a minute); raise memory.limit_mib",
             l->no_room);
    l->no_room = 0;
}

static void tell_not_finite(struct tde_losses *l, const char *table, uint64_t count)
{
    tde_line("the node left out %" PRIu64 " of the rows pushed to table %s, for NaN, Inf or values that "
             "their type cannot hold: the rows before "
             "them stay (said once)",
             count, table);
    l->told_not_finite = true;
}

void tde_losses_add(struct tde_losses *l, const char *table, const struct mr_pushed *pushed, uint64_t now_us)
{
    l->no_room += pushed->sent - pushed->applied - pushed->not_finite;
    if (l->no_room > 0 && (l->told_us == 0 || now_us - l->told_us >= TELL_US)) {
        tell_no_room(l);
        l->told_us = now_us;
    }
    if (pushed->not_finite > 0 && !l->told_not_finite)
        tell_not_finite(l, table, pushed->not_finite);
}

void tde_losses_end(struct tde_losses *l)
{
    if (l->no_room > 0)
        tell_no_room(l);
}
