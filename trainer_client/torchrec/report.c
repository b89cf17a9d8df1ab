#include "trainer_client/torchrec/report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define REPORT_US UINT64_C(60000000)

void tde_line(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "millrace: %s\n", text);
}

static void report_no_room(struct tde_losses *l)
{
    tde_line("the node did not take %" PRIu64 " of the rows pushed: its memory or a table's limit is used "
             "up, or it is frozen. These rows are lost (reported once a minute); raise memory.limit_mib",
             l->no_room);
    l->no_room = 0;
}

static void report_not_finite(struct tde_losses *l, const char *table, uint64_t count)
{
    tde_line("the node left out %" PRIu64 " of the rows pushed to table %s, for NaN, Inf or values that "
             "their type cannot hold: the earlier rows stay (reported once)",
             count, table);
    l->reported_not_finite = true;
}

void tde_losses_add(struct tde_losses *l, const char *table, const struct mr_pushed *pushed, uint64_t now_us)
{
    l->no_room += pushed->sent - pushed->applied - pushed->not_finite;
    if (l->no_room > 0 && (l->reported_us == 0 || now_us - l->reported_us >= REPORT_US)) {
        report_no_room(l);
        l->reported_us = now_us;
    }
    if (pushed->not_finite > 0 && !l->reported_not_finite)
        report_not_finite(l, table, pushed->not_finite);
}

void tde_losses_end(struct tde_losses *l)
{
    if (l->no_room > 0)
        report_no_room(l);
}
