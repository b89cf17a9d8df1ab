#include <string.h>
#include <unistd.h>
#include "dataplane/loop/perf_group.h"
#include "dataplane/loop/perf_page.h"
#include "tests/test.h"

static struct perf_event_mmap_page page;
static uint64_t counters[4];
static uint32_t moves; /* times that the kernel moves the event while it is read */

static uint64_t read_fake(uint32_t index)
{
    if (moves > 0) {
        moves--;
        page.lock++;
        page.offset += 1000;
    }
    return counters[index];
}

static int setup(void **state)
{
    memset(&page, 0, sizeof(page));
    memset(counters, 0, sizeof(counters));
    page.cap_user_rdpmc = 1;
    page.pmc_width = 48;
    page.index = 3;
    moves = 0;
    return 0;
}

TEST(a_count_is_the_kernels_and_the_processors, setup)
{
    uint64_t value;
    page.offset = 5000;
    counters[2] = 77;
    assert_true(dp_perf_page_read(&page, read_fake, &value));
    assert_int_equal(value, 5077);
    counters[2] = (UINT64_C(1) << 48) - 10; /* before its overflow */
    assert_true(dp_perf_page_read(&page, read_fake, &value));
    assert_int_equal(value, 4990);
    page.pmc_width = 64;
    counters[2] = UINT64_MAX;
    assert_true(dp_perf_page_read(&page, read_fake, &value));
    assert_int_equal(value, 4999);
}

TEST(what_moves_meanwhile_is_read_again, setup)
{
    uint64_t value;
    page.offset = 5000;
    counters[2] = 1;
    moves = 2;
    assert_true(dp_perf_page_read(&page, read_fake, &value));
    assert_int_equal(value, 7001);
    assert_int_equal(moves, 0);
}

TEST(it_says_when_there_is_nothing_to_read, setup)
{
    uint64_t value;
    assert_false(dp_perf_page_read(NULL, read_fake, &value));
    assert_false(dp_perf_page_read(&page, NULL, &value));
    page.index = 0; /* another event has the counter */
    assert_false(dp_perf_page_read(&page, read_fake, &value));
    page.index = 3;
    page.cap_user_rdpmc = 0;
    assert_false(dp_perf_page_read(&page, read_fake, &value));
}

/* Software events have a page, and no counter of the processor. */
TEST(the_real_kernel_gives_a_page, setup)
{
    const struct dp_perf_event clock = {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK};
    struct dp_perf_group group;
    uint64_t value;
    if (dp_perf_group_open(&group, &dp_perf_kernel, gettid(), &clock, 1, true) != 0)
        skip(); /* in a container that forbids it */
    struct perf_event_mmap_page *mapped = dp_perf_page_map(group.fds[0]);
    assert_non_null(mapped);
    assert_false(dp_perf_page_read(mapped, dp_read_processor_counter, &value));
    dp_perf_page_unmap(mapped);
    dp_perf_group_close(&group, &dp_perf_kernel);
    assert_null(dp_perf_page_map(-1));
    dp_perf_page_unmap(NULL);
}
