/* Checkpoints are read again, and what is damaged is found. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "ps/base/counter.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/scrubber.h"
#include "tests/test.h"
#include "tests/unit/ps/chain_fixture.h"
#include "tests/unit/temporary_directory.h"
#include "tests/wait.h"

/* Four checkpoints of a block for each core, each read once in a round. */
enum { ROUND_BYTES = 4 * FIXTURE_CORES * PS_BLOCK_BYTES };

struct fixture {
    char *directory;
    struct ps_scrubber_counters counters;
    struct ps_scrubber_options options;
    struct ps_scrubber *scrubber;
    sem_t found;
};

static int set_up(void **state)
{
    static struct fixture x;
    memset(&x, 0, sizeof(x));
    x.directory = temporary_directory_make();
    sem_init(&x.found, 0, 0);
    x.options = (struct ps_scrubber_options){
        .directory = x.directory, .every_us = 1000, .counters = &x.counters, .found = &x.found};
    chain_save_key(x.directory, 1, 0, 1, 10);
    chain_save_key(x.directory, 2, 1, 2, 20);
    chain_save_key(x.directory, 3, 0, 3, 30);
    chain_save_key(x.directory, 4, 3, 4, 40);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    ps_scrubber_stop(x->scrubber);
    sem_destroy(&x->found);
    return temporary_directory_remove(x->directory);
}

static void scrubber_start(struct fixture *x)
{
    x->scrubber = ps_scrubber_start(&x->options);
    assert_non_null(x->scrubber);
}

/* Until a round that began after this call has ended. */
static void wait_for_a_round(const struct fixture *x)
{
    const uint64_t last = ps_counter_read(&x->counters.rounds) + 2;
    WAIT_UNTIL(ps_counter_read(&x->counters.rounds) >= last);
}

static void flip(struct fixture *x, uint64_t id)
{
    fixture_flip(fixture_path(x->directory, id, "core-000.mrc"), 5000, 1);
}

static void scrubber_check(const struct fixture *x, uint64_t damaged, uint64_t damaged_id)
{
    wait_for_a_round(x);
    assert_int_equal(ps_counter_read(&x->counters.damaged), damaged);
    assert_int_equal(ps_counter_read(&x->counters.damaged_id), damaged_id);
}

TEST(whole_ones_are_read_again_and_again, set_up, tear_down)
{
    struct fixture *x = *state;
    scrubber_start(x);
    scrubber_check(x, 0, 0);
    assert_true(ps_counter_read(&x->counters.last_s) > 0);
    assert_int_equal(sem_trywait(&x->found), -1);
    ps_scrubber_stop(x->scrubber);
    x->scrubber = NULL;
    const uint64_t rounds = ps_counter_read(&x->counters.rounds), bytes = ps_counter_read(&x->counters.bytes);
    assert_true(bytes >= rounds * ROUND_BYTES && bytes <= (rounds + 1) * ROUND_BYTES);
}

/* The full one of the older chain: neither it nor its delta can be restored, and they are one chain. */
TEST(an_old_base_is_found, set_up, tear_down)
{
    struct fixture *x = *state;
    scrubber_start(x);
    scrubber_check(x, 0, 0);
    flip(x, 1);
    scrubber_check(x, 1, 0);
    flip(x, 1);
    scrubber_check(x, 0, 0);
    assert_int_equal(sem_trywait(&x->found), -1);
}

TEST(the_newest_is_reported_whatever_of_its_chain_is_damaged, set_up, tear_down)
{
    struct fixture *x = *state;
    scrubber_start(x);
    flip(x, 3);
    scrubber_check(x, 1, 4);
    assert_int_equal(sem_trywait(&x->found), 0);
    assert_int_equal(sem_trywait(&x->found), -1); /* once */
    chain_save_key(x->directory, 5, 0, 5, 50);
    scrubber_check(x, 1, 0);
}

TEST(partial_ones_are_read_too, set_up, tear_down)
{
    struct fixture *x = *state;
    char partial[512];
    (void)snprintf(partial, sizeof(partial), "%s/" PS_PARTIAL_NAME, x->directory);
    assert_int_equal(mkdir(partial, 0700), 0);
    chain_save_key(partial, 1, 0, 1, 10);
    fixture_flip(fixture_path(partial, 1, "core-000.mrc"), 5000, 1);
    scrubber_start(x);
    scrubber_check(x, 1, 0);
}

TEST(a_stop_ends_it_in_the_middle_of_a_round, set_up, tear_down)
{
    struct fixture *x = *state;
    x->options.bytes_per_s_max = 1; /* a block would take twelve days */
    scrubber_start(x);
    WAIT_UNTIL(ps_counter_read(&x->counters.bytes) > 0);
    ps_scrubber_stop(x->scrubber);
    x->scrubber = NULL;
    assert_int_equal(ps_counter_read(&x->counters.rounds), 0);
}
