#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#include "dataplane/rpc/base/executor.h"
#include "tests/test.h"
#include "tests/wait.h"

struct bench {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t running, most, ended, told, begun;
    bool open;
    uint32_t order[MR_EXECUTOR_THREADS_MAX + 64];
    uint32_t refused;
};

struct task {
    struct mr_job job;
    struct bench *bench;
    uint32_t number;
    bool waits, stands_aside;
};

static void told(void *self)
{
    struct bench *b = self;
    pthread_mutex_lock(&b->lock);
    b->told++;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static void executor_run(struct mr_job *job)
{
    struct task *task = (struct task *)(void *)job;
    struct bench *b = task->bench;
    if (job->refused) {
        pthread_mutex_lock(&b->lock);
        b->refused++;
        pthread_cond_broadcast(&b->changed);
        pthread_mutex_unlock(&b->lock);
        return;
    }
    if (task->stands_aside)
        mr_executor_blocks();
    pthread_mutex_lock(&b->lock);
    b->running++;
    if (b->running > b->most)
        b->most = b->running;
    pthread_cond_broadcast(&b->changed);
    while (task->waits && !b->open)
        pthread_cond_wait(&b->changed, &b->lock);
    b->running--;
    b->order[b->ended++] = task->number;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    if (task->stands_aside)
        mr_executor_unblocks();
}

static struct mr_executor *executor_start(struct bench *b, uint32_t threads)
{
    struct mr_executor_config config = {.threads = threads, .self = b, .done = told};
    struct mr_executor *e;
    *b = (struct bench){.open = false};
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    assert_int_equal(mr_executor_create(&config, &e), MR_OK);
    return e;
}

static void wait_until(struct bench *b, const uint32_t *counter, uint32_t value)
{
    pthread_mutex_lock(&b->lock);
    while (*counter < value)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

static void open_gate(struct bench *b)
{
    pthread_mutex_lock(&b->lock);
    b->open = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static void executor_give(struct mr_executor *e, struct task *tasks, uint32_t count, bool is_short)
{
    for (uint32_t i = 0; i < count; i++) {
        tasks[i].job = (struct mr_job){
            .run = executor_run, .is_short = is_short, .next = i + 1 < count ? &tasks[i + 1].job : NULL};
        tasks[i].number = i;
    }
    mr_executor_give(e, &tasks[0].job, &tasks[count - 1].job, count);
}

static void begins(void *self)
{
    struct bench *b = self;
    pthread_mutex_lock(&b->lock);
    b->begun++;
    pthread_mutex_unlock(&b->lock);
}

/* Told by each thread, the first one, too, before it runs anything; and what they do is known. */
TEST(threads_say_that_they_begin)
{
    struct bench b = {.open = false};
    struct mr_executor_config config = {.threads = 3, .self = &b, .done = told, .begins = begins};
    struct mr_executor_use use;
    struct mr_executor *e;
    struct task tasks[4];
    pthread_mutex_init(&b.lock, NULL);
    pthread_cond_init(&b.changed, NULL);
    assert_int_equal(mr_executor_create(&config, &e), MR_OK);
    for (uint32_t i = 0; i < 4; i++)
        tasks[i] = (struct task){.bench = &b, .waits = true, .stands_aside = i == 0};
    executor_give(e, tasks, 4, false);
    wait_until(&b, &b.running, 4); /* one of them is stood in for */
    mr_executor_use(e, &use);
    assert_int_equal(use.threads, 4);
    assert_int_equal(use.running, 4);
    assert_int_equal(use.blocked, 1);
    assert_int_equal(use.waiting, 0);
    assert_int_equal(b.begun, 4);
    open_gate(&b);
    mr_executor_destroy(e);
}

TEST(one_thread_keeps_the_order)
{
    struct bench b;
    struct mr_executor *e = executor_start(&b, 1);
    struct task tasks[50];
    for (uint32_t i = 0; i < 50; i++)
        tasks[i] = (struct task){.bench = &b};
    executor_give(e, tasks, 50, true);
    wait_until(&b, &b.ended, 50);
    mr_executor_destroy(e);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(b.order[i], i);
    assert_true(b.told >= 1);
}

static bool has_number(const struct mr_job *job, const void *arg)
{
    return ((const struct task *)(const void *)job)->number == *(const uint32_t *)arg;
}

/* Whoever gives them, and however many at a time; all wait behind one that runs. */
TEST(bursts_and_single_ones_keep_their_order)
{
    struct bench b;
    struct mr_executor *e = executor_start(&b, 1);
    struct task first = {.job = {.run = executor_run}, .bench = &b, .waits = true}, tasks[12];
    mr_executor_give_one(e, &first.job);
    wait_until(&b, &b.running, 1);
    for (uint32_t i = 0; i < 12; i++)
        tasks[i] =
            (struct task){.job = {.run = executor_run, .is_short = i % 2 == 0}, .bench = &b, .number = 1 + i};
    for (uint32_t i = 0; i < 12; i += 3) {
        tasks[i].job.next = &tasks[i + 1].job;
        mr_executor_give(e, &tasks[i].job, &tasks[i + 1].job, 2);
        mr_executor_give_one(e, &tasks[i + 2].job);
    }
    assert_int_equal(mr_executor_load(e), 13);
    open_gate(&b);
    mr_executor_destroy(e);
    for (uint32_t i = 0; i < 13; i++)
        assert_int_equal(b.order[i], i);
}

/* The last in the list, and one given after it. */
TEST(one_is_given_after_the_last_was_taken_back)
{
    struct bench b;
    struct mr_executor *e = executor_start(&b, 1);
    struct task tasks[3];
    for (uint32_t i = 0; i < 3; i++)
        tasks[i] = (struct task){.job = {.run = executor_run}, .bench = &b, .waits = i == 0, .number = i};
    mr_executor_give_one(e, &tasks[0].job);
    wait_until(&b, &b.running, 1);
    mr_executor_give_one(e, &tasks[1].job);
    uint32_t number = 1;
    assert_ptr_equal(mr_executor_take_back(e, has_number, &number), &tasks[1].job);
    mr_executor_give_one(e, &tasks[2].job);
    assert_int_equal(mr_executor_load(e), 2);
    open_gate(&b);
    mr_executor_destroy(e);
    assert_int_equal(b.ended, 2);
    assert_int_equal(b.order[1], 2);
}

/* ---- when very many wait for others ---- */

static struct task blocked[MR_EXECUTOR_THREADS_MAX];

/* So many more that wait until the gate opens. */
static void block(struct mr_executor *e, struct bench *b, uint32_t from, uint32_t to, uint8_t depth)
{
    for (uint32_t i = from; i < to; i++) {
        blocked[i] = (struct task){
            .job = {.run = executor_run, .depth = depth}, .bench = b, .waits = true, .stands_aside = true};
        mr_executor_give_one(e, &blocked[i].job);
        wait_until(b, &b->running, i + 1);
    }
}

static uint32_t room_of(uint8_t depth)
{
    return depth + 1u < MR_EXECUTOR_DEPTHS
               ? MR_EXECUTOR_THREADS_MAX - (MR_EXECUTOR_THREADS_MAX >> (depth + 1))
               : MR_EXECUTOR_THREADS_MAX;
}

static struct task one_of(struct bench *b, uint8_t depth)
{
    return (struct task){
        .job = {.run = executor_run, .depth = depth, .may_refuse = true}, .bench = b, .number = depth};
}

/* At each depth, when its share of the threads waits: the next of that depth waits, a deeper one goes before
 * it. At last all wait, and the deepest is refused, whether it comes then or was there before; the others run
 * when somebody goes on. */
TEST(threads_are_kept_for_those_that_others_wait_for)
{
    static struct task waiting[MR_EXECUTOR_DEPTHS], deeper[MR_EXECUTOR_DEPTHS];
    struct bench b;
    struct mr_executor *e = executor_start(&b, 2);
    struct mr_executor_use use;
    uint32_t ended = 0;
    for (uint8_t depth = 0; depth + 1u < MR_EXECUTOR_DEPTHS; depth++) {
        block(e, &b, depth == 0 ? 0 : room_of((uint8_t)(depth - 1)), room_of(depth), depth);
        waiting[depth] = one_of(&b, depth);
        mr_executor_give_one(e, &waiting[depth].job);
        deeper[depth] = one_of(&b, (uint8_t)(depth + 1));
        mr_executor_give_one(e, &deeper[depth].job);
        wait_until(&b, &b.ended, ++ended);
        assert_int_equal(b.order[ended - 1], depth + 1);
        mr_executor_use(e, &use);
        assert_int_equal(use.waiting, depth + 1);
        assert_int_equal(use.blocked, room_of(depth));
    }
    block(e, &b, room_of(MR_EXECUTOR_DEPTHS - 2), MR_EXECUTOR_THREADS_MAX, MR_EXECUTOR_DEPTHS - 1);
    struct task last = one_of(&b, MR_EXECUTOR_DEPTHS - 1), again = last;
    mr_executor_give_one(e, &last.job);
    assert_int_equal(b.refused, 1); /* at once, by this thread */
    mr_executor_give(e, &again.job, &again.job, 1);
    while (mr_executor_nudge(e) && b.refused == 1)
        ;
    assert_int_equal(b.refused, 2);
    struct task urgent = {.job = {.run = executor_run, .urgent = true}, .bench = &b, .number = 77};
    mr_executor_give_one(e, &urgent.job);
    wait_until(&b, &b.ended, ++ended);
    assert_int_equal(b.order[ended - 1], 77);
    open_gate(&b);
    mr_executor_destroy(e);
    assert_int_equal(b.ended, ended + MR_EXECUTOR_THREADS_MAX + MR_EXECUTOR_DEPTHS - 1);
    assert_int_equal(b.refused, 2);
}

struct waits_deeply {
    struct mr_job job;
    struct bench *bench;
    struct mr_executor *e;
    struct task *behind;
    uint32_t depth, refused_before;
};

/* The one that it waits for is there before it waits itself. */
static void give_and_wait(struct mr_job *job)
{
    struct waits_deeply *w = (struct waits_deeply *)(void *)job;
    w->depth = mr_executor_depth();
    mr_executor_give_one(w->e, &w->behind->job);
    w->refused_before = w->bench->refused;
    mr_executor_blocks();
    wait_until(w->bench, &w->bench->refused, 1);
    mr_executor_unblocks();
}

/* Of the threads that there may be all but one wait, and that one begins to. */
TEST(what_waits_is_refused_when_the_last_thread_waits)
{
    struct bench b;
    struct mr_executor *e = executor_start(&b, 1);
    struct task behind = one_of(&b, MR_EXECUTOR_DEPTHS - 1);
    struct waits_deeply last = {.job = {.run = give_and_wait, .depth = MR_EXECUTOR_DEPTHS - 1},
                                .bench = &b,
                                .e = e,
                                .behind = &behind};
    assert_int_equal(mr_executor_depth(), 0);
    block(e, &b, 0, MR_EXECUTOR_THREADS_MAX - 1, MR_EXECUTOR_DEPTHS - 1);
    mr_executor_give_one(e, &last.job);
    wait_until(&b, &b.refused, 1);
    assert_int_equal(last.depth, MR_EXECUTOR_DEPTHS - 1);
    assert_int_equal(last.refused_before, 0);
    open_gate(&b);
    mr_executor_destroy(e);
    assert_int_equal(b.ended, MR_EXECUTOR_THREADS_MAX - 1);
}

/* Each waits for all the others: they must run at the same time, although they came as one burst. */
TEST(long_jobs_run_beside_each_other)
{
    struct bench b;
    struct mr_executor *e = executor_start(&b, 8);
    struct task tasks[9];
    for (uint32_t i = 0; i < 9; i++)
        tasks[i] = (struct task){.bench = &b, .waits = true};
    executor_give(e, tasks, 9, false);
    wait_until(&b, &b.running, 8);
    assert_int_equal(mr_executor_load(e), 9);
    open_gate(&b);
    wait_until(&b, &b.ended, 9);
    assert_int_equal(b.most, 8); /* and not more than there may be */
    mr_executor_destroy(e);
}

/* They were taken for short, and are not: whoever looks after a while brings more threads. */
TEST(short_ones_that_are_not_are_nudged)
{
    struct bench b;
    struct mr_executor *e = executor_start(&b, 4);
    struct task tasks[4];
    for (uint32_t i = 0; i < 4; i++)
        tasks[i] = (struct task){.bench = &b, .waits = true};
    executor_give(e, tasks, 4, true);
    wait_until(&b, &b.running, 1);
    for (uint32_t i = 2; i <= 4; i++) {
        assert_true(mr_executor_nudge(e));
        wait_until(&b, &b.running, i);
    }
    assert_false(mr_executor_nudge(e));
    open_gate(&b);
    wait_until(&b, &b.ended, 4);
    mr_executor_destroy(e);
}

static void wait_until_asleep(struct mr_executor *e, uint32_t threads)
{
    struct mr_executor_use use;
    WAIT_UNTIL(mr_executor_use(e, &use), use.asleep >= threads);
}

/* Of two threads one runs a short job, which is not as short as it seems: those that come after it wait until
 * somebody looks, but not if it waits for others. */
TEST(short_ones_wait_for_one_that_runs)
{
    struct bench b;
    struct mr_executor *e = executor_start(&b, 2);
    struct task both[2] = {{.bench = &b, .waits = true}, {.bench = &b, .waits = true}}, one, more[3];
    struct mr_executor_use use;
    executor_give(e, both, 2, false);
    wait_until(&b, &b.running, 2);
    open_gate(&b);
    wait_until(&b, &b.ended, 2);
    for (uint32_t aside = 0; aside < 2; aside++) {
        wait_until_asleep(e, 2);
        one = (struct task){.bench = &b, .waits = true, .stands_aside = aside != 0};
        uint32_t ended = b.ended;
        b.open = false;
        executor_give(e, &one, 1, true);
        wait_until(&b, &b.running, 1);
        for (uint32_t i = 0; i < 3; i++)
            more[i] = (struct task){.bench = &b};
        executor_give(e, more, 3, true);
        if (aside == 0) {
            mr_executor_use(e, &use);
            assert_int_equal(use.asleep, 1);
            assert_int_equal(use.waiting, 3);
            assert_true(mr_executor_nudge(e));
        }
        wait_until(&b, &b.ended, ended + 3);
        open_gate(&b);
        wait_until(&b, &b.ended, ended + 4);
    }
    mr_executor_destroy(e);
}

TEST(those_that_wait_for_others_are_stood_in_for)
{
    struct bench b;
    struct mr_executor *e = executor_start(&b, 1);
    struct task tasks[20];
    for (uint32_t i = 0; i < 20; i++)
        tasks[i] = (struct task){.bench = &b, .waits = true, .stands_aside = true};
    executor_give(e, tasks, 20, false);
    wait_until(&b, &b.running, 20);
    open_gate(&b);
    wait_until(&b, &b.ended, 20);
    mr_executor_destroy(e);
}

TEST(a_job_that_waits_can_be_taken_back)
{
    struct bench b;
    struct mr_executor *e = executor_start(&b, 1);
    struct task tasks[5];
    for (uint32_t i = 0; i < 5; i++)
        tasks[i] = (struct task){.bench = &b, .waits = true};
    executor_give(e, tasks, 5, false);
    wait_until(&b, &b.running, 1);
    for (uint32_t number = 4; number >= 2; number -= 2)
        assert_ptr_equal(mr_executor_take_back(e, has_number, &number), &tasks[number].job);
    uint32_t runs = 0;
    assert_null(mr_executor_take_back(e, has_number, &runs));
    open_gate(&b);
    wait_until(&b, &b.ended, 3);
    mr_executor_destroy(e);
    assert_int_equal(b.ended, 3);
    assert_int_equal(b.order[2], 3);
}

/* The only thread there may be runs one that waits for another, with one before that. */
TEST(an_urgent_one_has_a_thread_made_for_it)
{
    struct bench b;
    struct mr_executor *e = executor_start(&b, 1);
    struct task tasks[2] = {{.bench = &b, .waits = true}, {.bench = &b, .waits = true}};
    struct task urgent = {.bench = &b, .number = 7};
    executor_give(e, tasks, 2, false);
    wait_until(&b, &b.running, 1);
    urgent.job = (struct mr_job){.run = executor_run, .urgent = true};
    mr_executor_give_one(e, &urgent.job);
    wait_until(&b, &b.ended, 1);
    assert_int_equal(b.order[0], 7);
    assert_int_equal(b.most, 2);
    struct task more = {.job = {.run = executor_run}, .bench = &b, .waits = true, .number = 8};
    mr_executor_give_one(e, &more.job); /* it was for that one: the limit is what it was */
    assert_true(mr_executor_nudge(e));
    struct mr_executor_use use;
    mr_executor_use(e, &use);
    assert_int_equal(use.threads, 2);
    assert_int_equal(use.waiting, 2);
    open_gate(&b);
    wait_until(&b, &b.ended, 4);
    wait_until(&b, &b.ended, 3);
    mr_executor_destroy(e);
}

/* What was given is run, also when it has not begun. */
TEST(destroying_waits_for_all)
{
    struct bench b;
    struct mr_executor *e = executor_start(&b, 2);
    struct task tasks[40];
    b.open = true;
    for (uint32_t i = 0; i < 40; i++)
        tasks[i] = (struct task){.bench = &b, .waits = true};
    executor_give(e, tasks, 40, false);
    mr_executor_destroy(e);
    assert_int_equal(b.ended, 40);
    mr_executor_destroy(NULL);
}

/* The only thread that was made runs one that takes long. */
TEST(one_does_not_wait_behind_one_that_takes_long)
{
    struct bench b;
    struct mr_executor *e = executor_start(&b, 4);
    struct task tasks[2] = {{.bench = &b, .waits = true}, {.bench = &b, .waits = true}};
    for (uint32_t i = 0; i < 2; i++) {
        tasks[i].job = (struct mr_job){.run = executor_run};
        mr_executor_give_one(e, &tasks[i].job);
        wait_until(&b, &b.running, i + 1);
    }
    open_gate(&b);
    mr_executor_destroy(e);
    assert_int_equal(b.ended, 2);
}

struct waiter {
    struct task task; /* what it waits for, after it */
    struct mr_job job;
    struct mr_executor *e;
};

static void wait_for_another(struct mr_job *job)
{
    struct waiter *w = (struct waiter *)(void *)((uint8_t *)job - offsetof(struct waiter, job));
    struct bench *b = w->task.bench;
    mr_executor_give_one(w->e, &w->task.job);
    wait_until(b, &b->told, UINT32_MAX); /* until the executor ends */
    mr_executor_blocks();
    wait_until(b, &b->ended, 1);
    mr_executor_unblocks();
}

/* A thread that stops an executor. */
struct stopper {
    pthread_t thread;
    _Atomic pid_t id;
    struct mr_executor *e;
};

static void *stopper_main(void *arg)
{
    struct stopper *s = arg;
    atomic_store(&s->id, gettid());
    mr_executor_stop(s->e);
    return NULL;
}

/* Returns when it waits for the executor's threads, all of which know by then that it ends. */
static void stopper_start(struct stopper *s, struct mr_executor *e)
{
    *s = (struct stopper){.e = e};
    assert_int_equal(pthread_create(&s->thread, NULL, stopper_main, s), 0);
    WAIT_UNTIL(atomic_load(&s->id) != 0 && thread_sleeps(atomic_load(&s->id)));
}

/* Or stopping it would wait for ever. */
TEST(who_waits_is_stood_in_for_to_the_end)
{
    struct bench b;
    struct mr_executor *e = executor_start(&b, 1);
    struct waiter w = {
        .task = {.job = {.run = executor_run}, .bench = &b}, .job = {.run = wait_for_another}, .e = e};
    struct stopper stopper;
    mr_executor_give_one(e, &w.job);
    stopper_start(&stopper, e);
    pthread_mutex_lock(&b.lock);
    b.told = UINT32_MAX;
    pthread_cond_broadcast(&b.changed);
    pthread_mutex_unlock(&b.lock);
    pthread_join(stopper.thread, NULL);
    assert_int_equal(b.ended, 1);
    mr_executor_destroy(e);
}

/* It sleeps when it learns of the end, as another works for it, which leaves it nothing to be woken for. */
TEST(one_that_is_one_too_many_ends_too)
{
    struct bench waits, runs;
    struct mr_executor *e = executor_start(&waits, 1), *none = executor_start(&runs, 1);
    struct task first = {.job = {.run = executor_run}, .bench = &waits, .waits = true, .stands_aside = true};
    struct task second = {.job = {.run = executor_run}, .bench = &runs, .waits = true}, third = second;
    struct stopper stopper;
    mr_executor_give_one(e, &first.job);
    wait_until(&waits, &waits.running, 1);
    mr_executor_give_one(e, &second.job); /* a second thread stands in for the first, */
    wait_until(&runs, &runs.running, 1);
    open_gate(&waits); /* which comes back, and sleeps */
    wait_until(&waits, &waits.ended, 1);
    mr_executor_give_one(e, &third.job);
    wait_until_asleep(e, 1);
    stopper_start(&stopper, e);
    open_gate(&runs);
    pthread_join(stopper.thread, NULL);
    assert_int_equal(runs.ended, 2);
    mr_executor_destroy(e);
    mr_executor_destroy(none);
}

/* Whoever is inside an agent does not know yet that its executor has come to its end. */
TEST(what_is_given_after_the_end_runs_at_once)
{
    struct bench b;
    struct mr_executor *e = executor_start(&b, 2);
    struct task tasks[3] = {{.bench = &b, .number = 0}, {.bench = &b, .number = 1}};
    tasks[2] = (struct task){.job = {.run = executor_run}, .bench = &b, .number = 2};
    mr_executor_stop(e);
    executor_give(e, tasks, 2, false);
    assert_int_equal(b.ended, 2);
    mr_executor_give_one(e, &tasks[2].job);
    assert_int_equal(b.ended, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(b.order[i], i);
    assert_int_equal(mr_executor_load(e), 0);
    mr_executor_destroy(e);
}
