/* References between workers over real sockets on loopback, each worker in a process of its own. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "rpc_processes.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { WORLD = 3, ROUNDS = 200 };

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, mr_rpc_last_error());                 \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

/* Of this process. */
static _Atomic uint32_t objects_alive;
static struct mr_rref *kept;

/* ---- functions ---- */

static void rref_destroy(void *object)
{
    free(object);
    atomic_fetch_sub(&objects_alive, 1);
}

static enum mr_status make_counter(struct mr_rpc_call *call, const struct mr_value *arguments,
                                   uint32_t argument_count)
{
    int64_t *counter = malloc(sizeof(*counter));
    if (counter == NULL)
        return mr_rpc_fail(call, "no memory");
    *counter = arguments[0].i64;
    atomic_fetch_add(&objects_alive, 1);
    return mr_rpc_return_object(call, counter, rref_destroy);
}

static enum mr_status rref_add(struct mr_rpc_call *call, const struct mr_value *arguments,
                               uint32_t argument_count)
{
    const struct mr_value *value;
    if (mr_rref_local_value(arguments[0].rref, 0, &value) != MR_OK)
        return mr_rpc_fail(call, "%s", mr_rpc_last_error());
    return mr_rpc_return(
        call, mr_value_i64(__atomic_add_fetch((int64_t *)value->object, arguments[1].i64, __ATOMIC_SEQ_CST)));
}

static enum mr_status twice(struct mr_rpc_call *call, const struct mr_value *arguments,
                            uint32_t argument_count)
{
    return mr_rpc_return(call, mr_value_i64(arguments[0].i64 * 2));
}

static enum mr_status mirror(struct mr_rpc_call *call, const struct mr_value *arguments,
                             uint32_t argument_count)
{
    return mr_rpc_return(call, arguments[0]);
}

/* Reads what it gets a reference to, and sends it on to the next worker, unless that is who made it. */
static enum mr_status read_and_send_on(struct mr_rpc_call *call, const struct mr_value *arguments,
                                       uint32_t argument_count)
{
    struct mr_rpc *rpc = mr_rpc_of(call);
    uint32_t next = (mr_rpc_rank(rpc) + 1) % mr_rpc_world_size(rpc);
    struct mr_rpc_result *result;
    int64_t sum;
    if (mr_rref_to_here(arguments[0].rref, 0, &result) != MR_OK)
        return mr_rpc_fail(call, "%s", mr_rpc_last_error());
    sum = mr_rpc_result_value(result, 0)->i64;
    mr_rpc_result_free(result);
    if (arguments[1].i64 > 0) {
        struct mr_value on[2] = {arguments[0], mr_value_i64(arguments[1].i64 - 1)};
        if (mr_rpc_sync(rpc, next, "read_and_send_on", on, 2, NULL, &result) != MR_OK)
            return mr_rpc_fail(call, "%s", mr_rpc_last_error());
        sum += mr_rpc_result_value(result, 0)->i64;
        mr_rpc_result_free(result);
    }
    return mr_rpc_return(call, mr_value_i64(sum));
}

static enum mr_status rref_keep(struct mr_rpc_call *call, const struct mr_value *arguments,
                                uint32_t argument_count)
{
    kept = arguments[0].rref;
    mr_rref_retain(kept);
    return MR_OK;
}

static enum mr_status rref_drop(struct mr_rpc_call *call, const struct mr_value *arguments,
                                uint32_t argument_count)
{
    mr_rref_release(kept);
    return MR_OK;
}

static enum mr_status count_objects(struct mr_rpc_call *call, const struct mr_value *arguments,
                                    uint32_t argument_count)
{
    return mr_rpc_return(call, mr_value_i64(atomic_load(&objects_alive)));
}

static enum mr_status die(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t argument_count)
{
    (void)kill(getpid(), SIGKILL);
    return MR_OK;
}

static const struct mr_rpc_function functions[] = {
    {.name = "make_counter", .arguments = "i64", .results = "object", .run = make_counter},
    {.name = "add", .arguments = "ref, i64", .results = "i64", .run = rref_add},
    {.name = "twice", .arguments = "i64", .results = "i64", .run = twice},
    {.name = "mirror", .arguments = "ref", .results = "ref", .run = mirror},
    {.name = "read_and_send_on", .arguments = "ref, i64", .results = "i64", .run = read_and_send_on},
    {.name = "keep", .arguments = "ref", .run = rref_keep},
    {.name = "drop", .run = rref_drop},
    {.name = "count_objects", .results = "i64", .run = count_objects},
    {.name = "die", .run = die},
};

static struct mr_rpc *rref_join(uint32_t rank, const char *address)
{
    struct mr_rpc_options options = {.functions = functions,
                                     .function_count = sizeof(functions) / sizeof(functions[0])};
    return rpc_join(rank, WORLD, address, &options);
}

static int leave(struct mr_rpc *rpc)
{
    CHECK(mr_rpc_shutdown(rpc, 0) == MR_OK);
    CHECK(atomic_load(&objects_alive) == 0);
    mr_rpc_destroy(rpc);
    return 0;
}

static int64_t number_of(struct mr_rpc *rpc, uint32_t to, const char *function, struct mr_value *arguments,
                         uint32_t count)
{
    struct mr_rpc_result *result;
    if (mr_rpc_sync(rpc, to, function, arguments, count, NULL, &result) != MR_OK) {
        fprintf(stderr, "%s\n", mr_rpc_last_error());
        return -1;
    }
    int64_t number = mr_rpc_result_value(result, 0)->i64;

    mr_rpc_result_free(result);
    return number;
}

/* ---- made, passed round, read, freed ---- */

static int share_values(uint32_t rank, const char *address)
{
    struct mr_rpc *rpc = rref_join(rank, address);
    CHECK(rpc != NULL);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t owner = (rank + i) % WORLD, first = (rank + i / WORLD) % WORLD;
        struct mr_value arguments[2] = {mr_value_i64(i)};
        struct mr_rref *rref;
        CHECK(mr_remote(rpc, owner, "twice", arguments, 1, NULL, &rref) == MR_OK);
        arguments[0] = mr_value_rref(rref);
        arguments[1] = mr_value_i64(3);
        CHECK(number_of(rpc, first, "read_and_send_on", arguments, 2) == 4 * 2 * (int64_t)i);
        mr_rref_release(rref);
    }
    return leave(rpc);
}

TEST(values_go_round)
{
    rpc_run_world(share_values, WORLD, UINT32_MAX);
}

static int share_objects(uint32_t rank, const char *address)
{
    struct mr_rpc *rpc = rref_join(rank, address);
    struct mr_value argument = mr_value_i64(0);
    struct mr_rref *rrefs[WORLD];
    CHECK(rpc != NULL);
    for (uint32_t to = 0; to < WORLD; to++)
        CHECK(mr_remote(rpc, to, "make_counter", &argument, 1, NULL, &rrefs[to]) == MR_OK);
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        for (uint32_t to = 0; to < WORLD; to++) {
            struct mr_value arguments[2] = {mr_value_rref(rrefs[to]), mr_value_i64(1)};
            CHECK(number_of(rpc, to, "add", arguments, 2) == i);
        }
    }
    for (uint32_t to = 0; to < WORLD; to++)
        mr_rref_release(rrefs[to]);
    return leave(rpc);
}

TEST(objects_are_used_where_they_are)
{
    rpc_run_world(share_objects, WORLD, UINT32_MAX);
}

/* ---- deaths ---- */

static int lose_the_owner(uint32_t rank, const char *address)
{
    struct mr_rpc *rpc = rref_join(rank, address);
    struct mr_value argument = mr_value_i64(4);
    struct mr_rpc_result *result;
    struct mr_rref *rref;
    CHECK(rpc != NULL);
    if (rank == 0) {
        CHECK(mr_remote(rpc, 2, "twice", &argument, 1, NULL, &rref) == MR_OK);
        CHECK(mr_rref_to_here(rref, 0, &result) == MR_OK);
        mr_rpc_result_free(result);
        argument = mr_value_rref(rref);
        CHECK(mr_rpc_sync(rpc, 1, "keep", &argument, 1, NULL, NULL) == MR_OK);
        CHECK(mr_rpc_sync(rpc, 2, "die", NULL, 0, NULL, NULL) == MR_WORKER_DIED);
        CHECK(mr_rref_to_here(rref, 0, &result) == MR_WORKER_DIED);
        CHECK(strstr(mr_rpc_last_error(), "worker \"w2\" (rank 2)") != NULL);
        CHECK(mr_rref_confirm(rref, 0) == MR_WORKER_DIED);
        CHECK(mr_remote(rpc, 2, "twice", &argument, 1, NULL, &rref) == MR_WORKER_DIED);
        mr_rref_release(rref);
        CHECK(mr_rpc_sync(rpc, 1, "drop", NULL, 0, NULL, NULL) == MR_OK);
    }
    return leave(rpc);
}

TEST(a_dead_owner_is_named)
{
    rpc_run_world(lose_the_owner, WORLD, 2);
}

/* Worker 2 got it from worker 1, which has let it go. The owner frees the value when 2 is dead, and not
 * before. */
static int lose_the_holder(uint32_t rank, const char *address)
{
    struct mr_rpc *rpc = rref_join(rank, address);
    struct mr_value argument = mr_value_i64(4);
    struct mr_rref *rref;
    CHECK(rpc != NULL);
    if (rank == 1) {
        CHECK(mr_remote(rpc, 0, "make_counter", &argument, 1, NULL, &rref) == MR_OK);
        struct mr_value arguments[2] = {mr_value_rref(rref), mr_value_i64(0)};
        CHECK(number_of(rpc, 0, "add", arguments, 2) == 4); /* once it has been made */
        CHECK(mr_rpc_sync(rpc, 2, "keep", arguments, 1, NULL, NULL) == MR_OK);
        mr_rref_release(rref);
        CHECK(number_of(rpc, 0, "count_objects", NULL, 0) == 1);
        CHECK(mr_rpc_sync(rpc, 2, "die", NULL, 0, NULL, NULL) == MR_WORKER_DIED);
        CHECK(WAIT_WITHIN(WAIT_LIMIT_S, number_of(rpc, 0, "count_objects", NULL, 0) == 0));
    }
    return leave(rpc);
}

TEST(what_a_killed_worker_held_is_freed)
{
    rpc_run_world(lose_the_holder, WORLD, 2);
}

/* Worker 1 passes worker 0's object on to 2, and is killed; 2 has it still. */
static int lose_the_parent(uint32_t rank, const char *address)
{
    struct mr_rpc *rpc = rref_join(rank, address);
    struct mr_value argument = mr_value_i64(4);
    struct mr_rpc_result *result;
    struct mr_rref *rref;
    CHECK(rpc != NULL);
    if (rank == 2) {
        CHECK(mr_remote(rpc, 0, "make_counter", &argument, 1, NULL, &rref) == MR_OK);
        argument = mr_value_rref(rref);
        CHECK(mr_rpc_sync(rpc, 1, "mirror", &argument, 1, NULL, &result) == MR_OK);
        mr_rref_release(rref);
        rref = mr_rpc_result_value(result, 0)->rref;
        mr_rref_retain(rref);
        mr_rpc_result_free(result);
        CHECK(mr_rpc_sync(rpc, 1, "die", NULL, 0, NULL, NULL) == MR_WORKER_DIED);
        struct mr_value arguments[2] = {mr_value_rref(rref), mr_value_i64(1)};

        CHECK(number_of(rpc, 0, "add", arguments, 2) == 5);
        mr_rref_release(rref);
        CHECK(WAIT_WITHIN(WAIT_LIMIT_S, number_of(rpc, 0, "count_objects", NULL, 0) == 0));
    }
    return leave(rpc);
}

TEST(who_passed_it_on_may_die)
{
    rpc_run_world(lose_the_parent, WORLD, 1);
}

/* ---- leaving, and mistakes ---- */

static int leave_late(uint32_t rank, const char *address)
{
    struct mr_rpc *rpc = rref_join(rank, address);
    struct mr_value argument = mr_value_i64(4);
    struct mr_rpc_result *result;
    struct mr_rref *rref;
    CHECK(rpc != NULL);
    if (rank == 1) {
        CHECK(mr_remote(rpc, 0, "make_counter", &argument, 1, NULL, &rref) == MR_OK);
        CHECK(mr_rref_confirm(rref, 0) == MR_OK);
        CHECK(mr_rpc_shutdown(rpc, 100) == MR_DEADLINE_EXCEEDED);
        CHECK(strstr(mr_rpc_last_error(), "worker \"w1\" (rank 1) holds 1 value of worker \"w0\" (rank 0)") !=
              NULL);
        mr_rref_release(rref);
        CHECK(mr_rref_to_here(rref, 0, &result) == MR_INVALID_ARGUMENT);
        CHECK(strstr(mr_rpc_last_error(), "mr_rref_to_here: this reference was released before") != NULL);
        mr_rref_release(rref);
        CHECK(strstr(mr_rpc_last_error(), "mr_rref_release: this reference was released before") != NULL);
    }
    return leave(rpc);
}

TEST(a_reference_keeps_all_from_leaving)
{
    rpc_run_world(leave_late, WORLD, UINT32_MAX);
}
