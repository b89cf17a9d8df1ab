/* Random bytes where the kernel gives some at a time, is interrupted, or refuses. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include "dataplane/wire/base/random.h"
#include "tests/test.h"

static struct {
    int error; /* 0: none */
    uint32_t interruptions, calls;
    size_t at_once;
} kernel;

ssize_t __wrap_getrandom(void *out, size_t bytes, unsigned flags);

ssize_t __wrap_getrandom(void *out, size_t bytes, unsigned flags)
{
    (void)flags;
    kernel.calls++;
    errno = kernel.interruptions > 0 ? EINTR : kernel.error;
    if (kernel.interruptions > 0 || kernel.error != 0) {
        kernel.interruptions -= kernel.interruptions > 0;
        return -1;
    }
    const size_t given = bytes < kernel.at_once ? bytes : kernel.at_once;
    memset(out, 0x5a, given);
    return (ssize_t)given;
}

TEST(all_bytes_come)
{
    uint8_t bytes[100];
    kernel.at_once = 7;
    kernel.interruptions = 3;
    memset(bytes, 0, sizeof(bytes));
    mr_random_fill(bytes, sizeof(bytes) - 1);
    for (uint32_t i = 0; i < sizeof(bytes) - 1; i++)
        assert_int_equal(bytes[i], 0x5a);
    assert_int_equal(bytes[sizeof(bytes) - 1], 0);
    assert_int_equal(kernel.calls, 3 + 15);
    mr_random_fill(bytes, 0);
    assert_int_equal(kernel.calls, 3 + 15);
}

TEST(a_refusal_is_not_asked_again)
{
    static const int errors[] = {EPERM, ENOSYS, EAGAIN};
    uint8_t bytes[64], more[64];
    for (uint32_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        kernel.error = errors[i];
        kernel.calls = 0;
        memset(bytes, 0, sizeof(bytes));
        memset(more, 0, sizeof(more));
        mr_random_fill(bytes, sizeof(bytes));
        mr_random_fill(more, sizeof(more));
        assert_int_equal(kernel.calls, 2);
        assert_memory_not_equal(bytes, more, sizeof(bytes));
    }
}
