/* The last message of one event of the log (dataplane/wire/base/log.h), whichever thread writes it. */
#ifndef LOG_EVENT_H
#define LOG_EVENT_H

#include <stdbool.h>

/* From now on this event (static text) is listened for, and none has come. NULL: no event is. */
void log_event_listen(const char *event);
bool log_event_has_come(void);
/* Fails with the message, or without one, unless this is in it. */
void assert_log_event(const char *part);

#endif
