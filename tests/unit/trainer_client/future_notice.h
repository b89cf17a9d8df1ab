#ifndef FUTURE_NOTICE_H
#define FUTURE_NOTICE_H

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "trainer_client/millrace.h"
#include "tests/test.h"

/* As a loop does it: it looks at the future when the descriptor says so. The first time a call may be made
 * again, and that one tells, too. */
static inline void future_wait_by_notice(struct mr_client *client, struct mr_future *future)
{
    struct pollfd fds[] = {{.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .events = POLLIN},
                           {.fd = mr_client_fd(client), .events = POLLIN}};
    uint64_t count;
    mr_future_notify(future, fds[0].fd);
    for (;;) {
        assert_true(poll(fds, 2, mr_client_timeout_ms(client)) >= 0);
        (void)mr_client_progress(client);
        if (read(fds[0].fd, &count, sizeof(count)) == sizeof(count) && mr_future_wait_for(future, 0))
            break;
    }
    mr_future_notify(future, -1);
    close(fds[0].fd);
}

#endif
