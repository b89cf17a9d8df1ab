/* Against a kernel made here, whose processor has what each test says; and against the real one, whose
 * software events need no processor. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "dataplane/loop/perf_group.h"
#include "tests/test.h"

#define FIRST_FD 1000
#define FDS_MAX  8

static struct {
    uint64_t missing; /* configs that the processor does not have, a bit each */
    int error;        /* of every open; 0: none */
    int enable_error;
    uint32_t opened, closed, enabled;
    struct perf_event_attr attributes[FDS_MAX];
    pid_t tid;
    int leaders[FDS_MAX];
    uint64_t answer[3 + DP_PERF_GROUP_MAX]; /* of a read */
    ssize_t answer_bytes;
} kernel;

static int fake_open(struct perf_event_attr *attributes, pid_t tid, int leader)
{
    errno = kernel.error;
    if (kernel.error == 0 && (kernel.missing >> attributes->config & 1) != 0)
        errno = ENOENT;
    if (errno != 0)
        return -1;
    kernel.attributes[kernel.opened] = *attributes;
    kernel.tid = tid;
    kernel.leaders[kernel.opened] = leader;
    return FIRST_FD + (int)kernel.opened++;
}

static int fake_enable(int leader)
{
    assert_int_equal(leader, FIRST_FD);
    kernel.enabled = kernel.opened;
    errno = kernel.enable_error;
    return errno != 0 ? -1 : 0;
}

static ssize_t fake_read(int fd, void *to, size_t bytes)
{
    assert_int_equal(fd, FIRST_FD);
    memcpy(to, kernel.answer, bytes);
    return kernel.answer_bytes != 0 ? kernel.answer_bytes : (ssize_t)bytes;
}

static int fake_close(int fd)
{
    assert_int_equal(fd, FIRST_FD + (int)(kernel.opened - 1 - kernel.closed)); /* the leader last */
    kernel.closed++;
    return 0;
}

static const struct dp_perf_calls fake = {fake_open, fake_enable, fake_read, fake_close, NULL, NULL};
static const struct dp_perf_event three[] = {{0, 1}, {0, 2}, {3, 3}};
static struct dp_perf_group group;
static uint64_t sums[3];

static int setup(void **state)
{
    memset(&kernel, 0, sizeof(kernel));
    memset(sums, 0, sizeof(sums));
    return 0;
}

static void perf_group_answer(uint64_t count, uint64_t enabled, uint64_t running, uint64_t a, uint64_t b,
                              uint64_t c)
{
    const uint64_t words[] = {count, enabled, running, a, b, c};
    memcpy(kernel.answer, words, sizeof(words));
}

static void assert_sums(uint64_t a, uint64_t b, uint64_t c)
{
    assert_int_equal(sums[0], a);
    assert_int_equal(sums[1], b);
    assert_int_equal(sums[2], c);
}

TEST(the_first_event_leads_the_others, setup)
{
    assert_int_equal(dp_perf_group_open(&group, &fake, 77, three, 3, false), 0);
    assert_int_equal(group.count, 3);
    assert_int_equal(kernel.tid, 77);
    assert_int_equal(kernel.leaders[0], -1);
    assert_int_equal(kernel.leaders[1], FIRST_FD);
    assert_int_equal(kernel.leaders[2], FIRST_FD);
    assert_int_equal(kernel.attributes[2].type, 3);
    assert_int_equal(kernel.attributes[2].config, 3);
    assert_false(kernel.attributes[0].exclude_kernel);
    /* not before all are there: the kernel puts a group on the processor as a whole */
    assert_true(kernel.attributes[0].disabled && !kernel.attributes[1].disabled);
    assert_int_equal(kernel.enabled, 3);
    dp_perf_group_close(&group, &fake);
    assert_int_equal(kernel.closed, 3);
    dp_perf_group_close(&group, &fake); /* again: nothing is left */
    assert_int_equal(kernel.closed, 3);
}

TEST(the_kernels_part_is_left_out_where_asked, setup)
{
    assert_int_equal(dp_perf_group_open(&group, &fake, 77, three, 3, true), 0);
    assert_true(kernel.attributes[0].exclude_kernel && kernel.attributes[2].exclude_kernel);
}

TEST(counts_are_taken_since_the_last_read, setup)
{
    assert_int_equal(dp_perf_group_open(&group, &fake, 1, three, 3, false), 0);
    perf_group_answer(3, 1000, 1000, 10, 20, 30);
    assert_true(dp_perf_group_read(&group, &fake, sums));
    assert_sums(10, 20, 30);
    perf_group_answer(3, 3000, 3000, 15, 20, 90);
    assert_true(dp_perf_group_read(&group, &fake, sums));
    assert_sums(15, 20, 90);
}

TEST(what_took_turns_is_scaled, setup)
{
    assert_int_equal(dp_perf_group_open(&group, &fake, 1, three, 3, false), 0);
    perf_group_answer(3, 1000, 1000, 100, 200, 0);
    assert_true(dp_perf_group_read(&group, &fake, sums));
    perf_group_answer(3, 2000, 1250, 150, 201, 0); /* a quarter of the time */
    assert_true(dp_perf_group_read(&group, &fake, sums));
    assert_sums(100 + 4 * 50, 200 + 4, 0);
    perf_group_answer(3, 3000, 1250, 150, 201, 0); /* had no turn: nothing is known of that time yet */
    assert_true(dp_perf_group_read(&group, &fake, sums));
    assert_sums(300, 204, 0);
    perf_group_answer(3, 4000, 2250, 250, 201, 7); /* half of the two intervals */
    assert_true(dp_perf_group_read(&group, &fake, sums));
    assert_sums(500, 204, 14);
    perf_group_answer(3, UINT64_C(1) << 60, 2250 + (UINT64_C(1) << 59), 250 + (UINT64_C(1) << 50), 201, 7);
    assert_true(dp_perf_group_read(&group, &fake, sums)); /* no overflow */
    assert_true(sums[0] > (UINT64_C(1) << 51) - 100000 && sums[0] < (UINT64_C(1) << 51) + 100000);
}

TEST(unknown_events_are_left_out, setup)
{
    kernel.missing = 1 << 1; /* the one that would lead */
    assert_int_equal(dp_perf_group_open(&group, &fake, 1, three, 3, false), 0);
    assert_int_equal(group.count, 2);
    assert_int_equal(kernel.leaders[0], -1);
    perf_group_answer(2, 10, 10, 5, 6, 0);
    assert_true(dp_perf_group_read(&group, &fake, sums));
    assert_sums(0, 5, 6);
}

TEST(without_events_it_says_why, setup)
{
    kernel.missing = UINT64_MAX;
    assert_int_equal(dp_perf_group_open(&group, &fake, 1, three, 3, false), ENOENT);
    assert_int_equal(group.count, 0);
    assert_false(dp_perf_group_read(&group, &fake, sums));
    kernel.error = EACCES;
    assert_int_equal(dp_perf_group_open(&group, &fake, 1, three, 3, false), EACCES);
    assert_sums(0, 0, 0);
}

TEST(what_cannot_be_enabled_is_closed, setup)
{
    kernel.enable_error = EINVAL;
    assert_int_equal(dp_perf_group_open(&group, &fake, 1, three, 3, false), EINVAL);
    assert_int_equal(kernel.closed, 3);
    assert_int_equal(group.count, 0);
}

TEST(a_short_answer_is_not_believed, setup)
{
    assert_int_equal(dp_perf_group_open(&group, &fake, 1, three, 3, false), 0);
    perf_group_answer(3, 1000, 1000, 10, 20, 30);
    kernel.answer_bytes = 8;
    assert_false(dp_perf_group_read(&group, &fake, sums));
    kernel.answer_bytes = -1;
    assert_false(dp_perf_group_read(&group, &fake, sums));
    kernel.answer_bytes = 0;
    perf_group_answer(2, 1000, 1000, 10, 20, 30);
    assert_false(dp_perf_group_read(&group, &fake, sums));
    assert_sums(0, 0, 0);
}

/* The kernel itself, with events that need no processor. */
TEST(the_real_kernel_counts, setup)
{
    enum { PAGES = 100 };
    const struct dp_perf_event software[] = {{PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
                                             {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS}};
    const long page_bytes = sysconf(_SC_PAGESIZE);
    int error = dp_perf_group_open(&group, &dp_perf_kernel, gettid(), software, 2, true);
    if (error == EACCES || error == EPERM || error == ENOSYS)
        skip(); /* in a container that forbids it */
    assert_int_equal(error, 0);
    assert_true(dp_perf_group_read(&group, &dp_perf_kernel, sums));
    const uint64_t before_ns = sums[0], before = sums[1];
    uint8_t *pages =
        mmap(NULL, (size_t)(PAGES * page_bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    (void)madvise(pages, (size_t)(PAGES * page_bytes), MADV_NOHUGEPAGE);
    for (long i = 0; i < PAGES; i++)
        pages[i * page_bytes] = 1;
    assert_true(dp_perf_group_read(&group, &dp_perf_kernel, sums));
    assert_true(sums[0] > before_ns);
    assert_true(sums[1] >= before + PAGES);
    (void)munmap(pages, (size_t)(PAGES * page_bytes));
    dp_perf_group_close(&group, &dp_perf_kernel);
}
