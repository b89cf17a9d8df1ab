#include "ps/server/notify.h"

#ifdef MR_HAVE_SYSTEMD
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <systemd/sd-daemon.h>

#define STATE_BYTES 1024u

void ps_notify(const char *format, ...)
{
    char state[STATE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(state, sizeof(state), format, arguments);
    va_end(arguments);
    (void)sd_notify(0, state);
}

bool ps_notify_is_heard(void)
{
    const char *socket = getenv("NOTIFY_SOCKET");
    return socket != NULL && socket[0] != '\0';
}

uint64_t ps_notify_watchdog_us(void)
{
    uint64_t us = 0;
    return sd_watchdog_enabled(0, &us) > 0 ? us : 0;
}
#else
void ps_notify(const char *format, ...)
{
    (void)format;
}

bool ps_notify_is_heard(void)
{
    return false;
}

uint64_t ps_notify_watchdog_us(void)
{
    return 0;
}
#endif
