#include "log_event.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/log_line.h"
#include "tests/test.h"

static pthread_mutex_t log_event_lock = PTHREAD_MUTEX_INITIALIZER;
static char said[MR_LOG_LINE_BYTES];

static void log_event_keep(void *arg, const char *event, const char *message)
{
    const char *wanted = arg;
    if (strcmp(event, wanted) != 0)
        return;
    pthread_mutex_lock(&log_event_lock);
    (void)snprintf(said, sizeof(said), "%s", message);
    pthread_mutex_unlock(&log_event_lock);
}

void log_event_listen(const char *event)
{
    mr_log_listen(NULL, NULL);
    said[0] = '\0'; /* nobody writes it now */
    if (event != NULL)
        mr_log_listen(log_event_keep, (void *)(uintptr_t)event);
}

bool log_event_has_come(void)
{
    pthread_mutex_lock(&log_event_lock);
    const bool has_come = said[0] != '\0';
    pthread_mutex_unlock(&log_event_lock);
    return has_come;
}

void assert_log_event(const char *part)
{
    char message[MR_LOG_LINE_BYTES];
    pthread_mutex_lock(&log_event_lock);
    memcpy(message, said, sizeof(message));
    pthread_mutex_unlock(&log_event_lock);
    assert_says(message, part);
}
