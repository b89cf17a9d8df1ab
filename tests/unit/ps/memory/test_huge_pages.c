#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "ps/memory/prefault.h"
#include "ps/memory/huge_pages.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

#define UNIT  PS_HUGE_PAGE_BYTES
#define UNITS 16u
#define LIMIT (UNITS * UNIT)

/* Linked with --wrap of these, so that populating, and giving back, can be made to fail, and address space to
 * cost memory. */
int __real_madvise(void *p, size_t bytes, int advice);
int __wrap_madvise(void *p, size_t bytes, int advice);
void *__real_mmap64(void *p, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *p, size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_mprotect(void *p, size_t bytes, int protection);
int __wrap_mprotect(void *p, size_t bytes, int protection);
FILE *__wrap_fopen64(const char *path, const char *mode);

static _Atomic bool memory_is_short;
static _Atomic bool kernel_is_old;
static _Atomic bool huge_pages_stay;
static _Atomic uint32_t mapping_changes;
static bool address_space_costs_memory;

int __wrap_madvise(void *p, size_t bytes, int advice)
{
    if (advice == MADV_POPULATE_WRITE && (memory_is_short || kernel_is_old)) {
        errno = kernel_is_old ? EINVAL : ENOMEM;
        return -1;
    }
    if (advice == MADV_DONTNEED && huge_pages_stay) {
        errno = EAGAIN;
        return -1;
    }
    return __real_madvise(p, bytes, advice);
}

void *__wrap_mmap64(void *p, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (huge_pages_stay && (flags & MAP_FIXED) != 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    mapping_changes += (flags & MAP_FIXED) != 0;
    return __real_mmap64(p, bytes, protection, flags, fd, offset);
}

int __wrap_mprotect(void *p, size_t bytes, int protection)
{
    mapping_changes++;
    return __real_mprotect(p, bytes, protection);
}

/* Of vm.overcommit_memory, which is all that the code under test opens. */
FILE *__wrap_fopen64(const char *path, const char *mode)
{
    static char heuristic[] = "0\n", never[] = "2\n";
    assert_string_equal(path, "/proc/sys/vm/overcommit_memory");
    char *policy = address_space_costs_memory ? never : heuristic;
    return fmemopen(policy, strlen(policy), "r");
}

static uint32_t orders_ahead(struct ps_huge_pages *u, uint32_t state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PS_HUGE_PAGES_AHEAD_MAX; i++)
        count += atomic_load(&u->ahead[i].state) == state;
    return count;
}

static void wait_until_ready(struct ps_huge_pages *u, uint32_t count)
{
    WAIT_UNTIL(orders_ahead(u, PS_ORDER_DONE) >= count);
}

static void wait_until_failed(struct ps_huge_pages *u)
{
    WAIT_UNTIL(orders_ahead(u, PS_ORDER_FAILED) > 0);
}

static bool is_resident(const uint8_t *p)
{
    unsigned char pages[UNIT / 4096];
    if (mincore((void *)(uintptr_t)p, UNIT, pages) != 0)
        return false; /* in emulation: what may not be read is not resident */
    for (uint32_t i = 0; i < sizeof(pages); i++)
        if ((pages[i] & 1) == 0)
            return false;
    return true;
}

static void check_zero_and_mark(uint8_t *p)
{
    assert_non_null(p);
    assert_true(p[0] == 0 && memcmp(p, p + 1, UNIT - 1) == 0);
    memset(p, 0xff, UNIT);
}

/* False, and says so: emulation of single programs ignores this advice. */
static bool populate_there(void)
{
    uint8_t *p = mmap(NULL, UNIT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    const bool is_there = madvise(p, UNIT, MADV_POPULATE_WRITE) != 0 || is_resident(p);
    assert_int_equal(munmap(p, UNIT), 0);
    if (!is_there)
        printf("skipped: what emulates the kernel ignores MADV_POPULATE_WRITE\n");
    return is_there;
}

TEST(test_units_ahead_are_there_and_counted)
{
    struct ps_huge_pages u;
    const bool is_populated = populate_there();
    struct ps_prefault *helper = ps_prefault_create(NULL, 0);
    assert_true(ps_huge_pages_init(&u, LIMIT));
    ps_prefault_attach(helper, &u);
    uint8_t *p = ps_huge_pages_take(&u, UNIT, UNIT);
    check_zero_and_mark(p);
    assert_int_equal(u.ahead_bytes, PS_HUGE_PAGES_AHEAD_MIN * UNIT);
    assert_int_equal(u.mapped_bytes, (PS_HUGE_PAGES_AHEAD_MIN + 1) * UNIT);
    wait_until_ready(&u, PS_HUGE_PAGES_AHEAD_MIN);
    p = ps_huge_pages_take(&u, UNIT, UNIT);
    assert_true(!is_populated || is_resident(p)); /* before it was touched here */
    check_zero_and_mark(p);
    ps_huge_pages_give_ahead(&u);
    assert_int_equal(u.ahead_bytes, 0);
    assert_int_equal(u.mapped_bytes, 2 * UNIT);
    ps_prefault_detach(&u);
    ps_huge_pages_free(&u);
    ps_prefault_destroy(helper);
}

/* What is ahead counts, and is no loss: all huge pages within the limit can be had, one by one or several
 * in a row. */
TEST(test_the_limit_is_exact_with_units_ahead)
{
    struct ps_huge_pages u;
    struct ps_prefault *helper = ps_prefault_create(NULL, 0);
    assert_true(ps_huge_pages_init(&u, LIMIT));
    ps_prefault_attach(helper, &u);
    for (uint32_t round = 0; round < 20; round++) {
        uint8_t *huge_pages[UNITS], *many;
        for (uint32_t i = 0; i < UNITS; i++) {
            huge_pages[i] = ps_huge_pages_take(&u, UNIT, UNIT);
            check_zero_and_mark(huge_pages[i]);
            assert_true(u.mapped_bytes <= LIMIT);
        }
        assert_null(ps_huge_pages_take(&u, UNIT, UNIT));
        assert_int_equal(u.mapped_bytes, LIMIT);
        assert_int_equal(u.ahead_bytes, 0);
        for (uint32_t i = 0; i < UNITS; i++)
            assert_true(ps_huge_pages_give(&u, huge_pages[i], UNIT));
        huge_pages[0] = ps_huge_pages_take(&u, UNIT, UNIT);
        many = ps_huge_pages_take(&u, (UNITS - 1) * UNIT, UNIT);
        assert_non_null(many);
        assert_true(ps_huge_pages_give(&u, many, (UNITS - 1) * UNIT));
        assert_true(ps_huge_pages_give(&u, huge_pages[0], UNIT));
        ps_huge_pages_give_ahead(&u);
        assert_int_equal(u.mapped_bytes, 0);
    }
    ps_prefault_detach(&u);
    ps_huge_pages_free(&u);
    ps_prefault_destroy(helper);
}

TEST(test_the_helper_gives_units_back)
{
    struct ps_huge_pages u;
    struct ps_prefault *helper = ps_prefault_create(NULL, 0);
    assert_true(ps_huge_pages_init(&u, LIMIT));
    ps_prefault_attach(helper, &u);
    uint8_t *p = ps_huge_pages_take(&u, UNIT, UNIT);
    check_zero_and_mark(p);
    wait_until_ready(&u, PS_HUGE_PAGES_AHEAD_MIN);
    assert_true(ps_huge_pages_give(&u, p, UNIT));
    WAIT_UNTIL(u.out_bytes == 0); /* without any doing of the owner */
    assert_int_equal(ps_huge_pages_mapped_bytes(&u), PS_HUGE_PAGES_AHEAD_MIN * UNIT);
    assert_false(is_resident(p));
    ps_prefault_detach(&u);
    ps_huge_pages_free(&u);
    ps_prefault_destroy(helper);
}

/* A helper that does not come to it: it is asleep, or busy with others' huge pages. */
TEST(test_units_on_their_way_out_count_and_can_be_had_again)
{
    struct ps_huge_pages u;
    sem_t nobody;
    sem_init(&nobody, 0, 0);
    uint8_t *huge_pages[UNITS];
    assert_true(ps_huge_pages_init(&u, LIMIT));
    for (uint32_t i = 0; i < UNITS; i++) {
        huge_pages[i] = ps_huge_pages_take(&u, UNIT, UNIT);
        check_zero_and_mark(huge_pages[i]);
    }
    u.helper_wake = &nobody;
    for (uint32_t i = 0; i < UNITS; i++)
        assert_true(ps_huge_pages_give(&u, huge_pages[i], UNIT));
    assert_int_equal(u.mapped_bytes, 0);
    assert_int_equal(ps_huge_pages_mapped_bytes(&u), LIMIT);
    assert_true(is_resident(huge_pages[0]));
    uint8_t *many = ps_huge_pages_take(&u, LIMIT, UNIT);
    assert_non_null(many);
    for (uint32_t i = 0; i < UNITS; i++)
        check_zero_and_mark(many + i * UNIT);
    assert_int_equal(ps_huge_pages_mapped_bytes(&u), LIMIT);
    assert_null(ps_huge_pages_take(&u, UNIT, UNIT));
    u.helper_wake = NULL;
    ps_huge_pages_free(&u);
    sem_destroy(&nobody);
}

TEST(test_more_units_than_a_helper_is_given_go_at_once)
{
    struct ps_huge_pages u;
    sem_t nobody;
    sem_init(&nobody, 0, 0);
    size_t bytes = (PS_HUGE_PAGES_OUT_MAX + 1) * UNIT;
    assert_true(ps_huge_pages_init(&u, bytes));
    uint8_t *p = ps_huge_pages_take(&u, bytes, UNIT);
    assert_non_null(p);
    u.helper_wake = &nobody;
    assert_true(ps_huge_pages_give(&u, p, bytes));
    assert_int_equal(ps_huge_pages_mapped_bytes(&u), 0);
    u.helper_wake = NULL;
    ps_huge_pages_free(&u);
    sem_destroy(&nobody);
}

TEST(test_units_that_the_kernel_does_not_take_back_stay_in_use)
{
    struct ps_huge_pages u;
    struct ps_prefault *helper = ps_prefault_create(NULL, 0);
    assert_true(ps_huge_pages_init(&u, 2 * UNIT));
    uint8_t *p = ps_huge_pages_take(&u, UNIT, UNIT);
    huge_pages_stay = true;
    assert_false(ps_huge_pages_give(&u, p, UNIT));
    ps_prefault_attach(helper, &u);
    assert_true(ps_huge_pages_give(&u, p, UNIT)); /* it is not known yet */
    WAIT_UNTIL(atomic_load(&u.out[0].state) == PS_ORDER_FAILED);
    huge_pages_stay = false;
    ps_prefault_detach(&u);
    assert_non_null(ps_huge_pages_take(&u, UNIT, UNIT));
    assert_int_equal(ps_huge_pages_mapped_bytes(&u), 2 * UNIT);
    assert_null(ps_huge_pages_take(&u, UNIT, UNIT));
    ps_huge_pages_free(&u);
    ps_prefault_destroy(helper);
}

TEST(test_without_memory_units_are_refused_and_counted)
{
    struct ps_huge_pages u;
    struct ps_prefault *helper = ps_prefault_create(NULL, 0);
    assert_true(ps_huge_pages_init(&u, LIMIT));
    ps_prefault_attach(helper, &u);
    memory_is_short = true;
    uint8_t *p = ps_huge_pages_take(&u, UNIT, UNIT); /* not populated: nobody knows yet */
    assert_non_null(p);
    wait_until_failed(&u);
    /* the helper may not have come to the others */
    WAIT_UNTIL(ps_huge_pages_take(&u, UNIT, UNIT) == NULL);
    assert_true(u.huge_pages_failed > 0);
    size_t mapped = u.mapped_bytes;
    assert_null(ps_huge_pages_take(&u, UNIT, UNIT));
    assert_int_equal(u.mapped_bytes, mapped);
    assert_int_equal(u.ahead_bytes, 0);
    memory_is_short = false;
    uint8_t *again = ps_huge_pages_take(&u, UNIT, UNIT);
    check_zero_and_mark(again);
    assert_true(ps_huge_pages_give(&u, again, UNIT));
    ps_prefault_detach(&u);
    ps_huge_pages_give_ahead(&u);
    ps_huge_pages_free(&u);
    ps_prefault_destroy(helper);
}

TEST(test_a_kernel_that_cannot_populate_has_pages_touched)
{
    struct ps_huge_pages u;
    struct ps_prefault *helper = ps_prefault_create(NULL, 0);
    assert_true(ps_huge_pages_init(&u, LIMIT));
    ps_prefault_attach(helper, &u);
    kernel_is_old = true;
    (void)ps_huge_pages_take(&u, UNIT, UNIT);
    wait_until_ready(&u, 1);
    kernel_is_old = false;
    uint8_t *p = ps_huge_pages_take(&u, UNIT, UNIT);
    assert_true(is_resident(p));
    check_zero_and_mark(p);
    ps_prefault_detach(&u);
    ps_huge_pages_free(&u);
    ps_prefault_destroy(helper);
}

TEST(test_one_helper_serves_several)
{
    struct ps_huge_pages u[3];
    struct ps_prefault *helper = ps_prefault_create((const int[]){0}, 1);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(ps_huge_pages_init(&u[i], LIMIT));
        ps_prefault_attach(helper, &u[i]);
        check_zero_and_mark(ps_huge_pages_take(&u[i], UNIT, UNIT));
    }
    for (uint32_t i = 0; i < 3; i++)
        wait_until_ready(&u[i], PS_HUGE_PAGES_AHEAD_MIN);
    for (uint32_t i = 0; i < 3; i++) {
        ps_prefault_detach(&u[(i + 1) % 3]);
        ps_prefault_detach(&u[(i + 1) % 3]);
        ps_huge_pages_free(&u[(i + 1) % 3]);
    }
    ps_prefault_destroy(helper);
    ps_prefault_destroy(NULL);
}

/* A change waits until no thread is touching pages, which takes milliseconds. */
TEST(test_mappings_change_only_where_address_space_costs_memory)
{
    struct ps_huge_pages u;
    struct ps_prefault *helper = ps_prefault_create(NULL, 0);
    mapping_changes = 0;
    assert_true(ps_huge_pages_init(&u, LIMIT));
    ps_prefault_attach(helper, &u);
    for (uint32_t round = 0; round < 2; round++) {
        uint8_t *one = ps_huge_pages_take(&u, UNIT, UNIT), *two = ps_huge_pages_take(&u, 2 * UNIT, UNIT);
        check_zero_and_mark(one);
        check_zero_and_mark(two + UNIT);
        assert_true(ps_huge_pages_give(&u, one, UNIT));
        assert_true(ps_huge_pages_give(&u, two, 2 * UNIT));
        ps_huge_pages_give_ahead(&u);
        assert_int_equal(ps_huge_pages_mapped_bytes(&u), 0);
    }
    assert_true((mapping_changes > 0) == address_space_costs_memory);
    ps_prefault_detach(&u);
    ps_huge_pages_free(&u);
    ps_prefault_destroy(helper);
}

static int charge_address_space(void **state)
{
    address_space_costs_memory = true;
    return 0;
}

int main(void)
{
    int failed = tests_run(NULL, NULL);
    return failed + tests_run(charge_address_space, NULL);
}
