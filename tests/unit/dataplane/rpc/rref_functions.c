#include "rref_functions.h"

#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/rref/rref.h"
#include "tests/test.h"
#include "tests/wait.h"

void destroy_counted(void *object)
{
    atomic_fetch_add(&((struct counted *)object)->destroyed, 1);
}

void await_destroyed(struct counted *object, uint32_t times)
{
    WAIT_UNTIL(atomic_load(&object->destroyed) >= times);
    assert_int_equal(atomic_load(&object->destroyed), times);
}

enum mr_status pass_gate(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    struct gate *gate = mr_rpc_user(call);
    struct mr_value object = {.kind = MR_VALUE_OBJECT, .object = gate->object};
    struct mr_rref *rref;
    gate_pass(gate);
    if (gate->object == NULL)
        return mr_rpc_return(call, mr_value_i64(1));
    enum mr_status status = mr_rref_create(mr_rpc_of(call), object, destroy_counted, &rref);

    if (status == MR_OK) {
        status = mr_rpc_return(call, mr_value_rref(rref));
        mr_rref_release(rref);
    }
    return status;
}

/* ---- functions ---- */

static enum mr_status make_object(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    return mr_rpc_return_object(call, (void *)(intptr_t)arguments[0].i64, // NOLINT: the test's own
                                destroy_counted);
}

static enum mr_status add_to_object(struct mr_rpc_call *call, const struct mr_value *arguments,
                                    uint32_t count)
{
    const struct mr_value *value;
    enum mr_status status = mr_rref_local_value(arguments[0].rref, 0, &value);
    if (status != MR_OK)
        return mr_rpc_fail(call, "%s", mr_rpc_last_error());
    struct counted *object = value->object;

    object->value += arguments[1].i64;
    return mr_rpc_return(call, mr_value_i64(object->value));
}

static enum mr_status read_value(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    struct mr_rpc_result *result;
    enum mr_status status = mr_rref_to_here(arguments[0].rref, 0, &result);
    if (status != MR_OK) {
        (void)mr_rpc_fail(call, "%s", mr_rpc_last_error());
        return status;
    }
    status = mr_rpc_return(call, *mr_rpc_result_value(result, 0));
    mr_rpc_result_free(result);
    return status;
}

static enum mr_status read_inner(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    struct mr_rpc_result *outer;
    enum mr_status status = mr_rref_to_here(arguments[0].rref, 0, &outer);
    if (status != MR_OK)
        return mr_rpc_fail(call, "%s", mr_rpc_last_error());
    status = read_value(call, mr_rpc_result_value(outer, 0), 1);
    mr_rpc_result_free(outer);
    return status;
}

static enum mr_status pass_around(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    struct mr_rpc *rpc = mr_rpc_of(call);
    struct mr_rref *rref = arguments[0].rref;
    enum mr_status status = MR_OK;
    mr_rref_retain(rref);
    for (uint32_t to = 0; to < mr_rpc_world_size(rpc) && status == MR_OK; to++) {
        struct mr_value value = mr_value_rref(rref);
        struct mr_rpc_result *result;
        status = mr_rpc_sync(rpc, to, "mirror", &value, 1, NULL, &result);
        if (status != MR_OK)
            break;
        mr_rref_release(rref);
        rref = mr_rpc_result_value(result, 0)->rref;
        mr_rref_retain(rref);
        mr_rpc_result_free(result);
    }
    if (status == MR_OK)
        status = mr_rpc_return(call, mr_value_rref(rref));
    mr_rref_release(rref);
    return status == MR_OK ? MR_OK : mr_rpc_fail(call, "%s", mr_rpc_last_error());
}

static enum mr_status rref_functions_keep(struct mr_rpc_call *call, const struct mr_value *arguments,
                                          uint32_t count)
{
    struct mr_rref **kept = mr_rpc_user(call);
    *kept = arguments[0].rref;
    mr_rref_retain(*kept);
    return MR_OK;
}

static enum mr_status rref_functions_drop(struct mr_rpc_call *call, const struct mr_value *arguments,
                                          uint32_t count)
{
    struct mr_rref **kept = mr_rpc_user(call);
    mr_rref_release(*kept);
    *kept = NULL;
    return MR_OK;
}

static enum mr_status read_kept(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    struct mr_value value = mr_value_rref(*(struct mr_rref **)mr_rpc_user(call));
    return read_value(call, &value, 1);
}

static enum mr_status use(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    struct mr_rref *rref = arguments[0].rref;
    const struct mr_value *value;
    if (!mr_rref_is_owner(rref)) {
        enum mr_status status =
            mr_rpc_sync(mr_rpc_of(call), mr_rref_owner(rref), "use", arguments, 1, NULL, NULL);
        return status == MR_OK ? MR_OK : mr_rpc_fail(call, "%s", mr_rpc_last_error());
    }
    if (mr_rref_local_value(rref, 0, &value) != MR_OK)
        return mr_rpc_fail(call, "%s", mr_rpc_last_error());
    struct counted *object = value->object;

    if (atomic_load(&object->destroyed) != 0)
        atomic_fetch_add(&object->used_late, 1);
    return MR_OK;
}

/* ---- the world ---- */

struct world {
    struct net net; /* first: tests take the one for the other */
    struct mr_rref *kept[3];
};

int setup(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    *state = world;
    net_world(&world->net, 3);
    for (uint32_t i = 0; i < 3; i++) {
        struct mr_rpc *rpc = world->net.workers[i].rpc;
        net_function(rpc, "nothing", "", "", net_nothing, NULL, 0);
        net_function(rpc, "mirror", "...", "...", net_mirror, NULL, 0);
        net_function(rpc, "mirror_inline", "...", "...", net_mirror, NULL, MR_RPC_INLINE);
        net_function(rpc, "fails", "", "i64", net_fails, NULL, 0);
        net_function(rpc, "make_object", "i64", "object", make_object, NULL, 0);
        net_function(rpc, "add_to_object", "ref, i64", "i64", add_to_object, NULL, 0);
        net_function(rpc, "read", "ref", "...", read_value, NULL, 0);
        net_function(rpc, "read_inner", "ref", "...", read_inner, NULL, 0);
        net_function(rpc, "pass_around", "ref", "ref", pass_around, NULL, 0);
        net_function(rpc, "keep", "ref", "", rref_functions_keep, &world->kept[i], 0);
        net_function(rpc, "read_kept", "", "...", read_kept, &world->kept[i], 0);
        net_function(rpc, "drop", "", "", rref_functions_drop, &world->kept[i], 0);
        net_function(rpc, "use", "ref", "", use, NULL, 0);
    }
    return 0;
}

void forget_kept(void **state, uint32_t rank)
{
    struct world *world = *state;
    mr_rref_release(world->kept[rank]);
    world->kept[rank] = NULL;
}

static bool nothing_held(struct net *net)
{
    bool nothing = true;
    pthread_mutex_lock(&net->lock);
    for (uint32_t i = 0; i < net->count; i++) {
        struct mr_rpc *rpc = net->workers[i].rpc;
        if (rpc == NULL || net->workers[i].silent)
            continue;
        nothing = nothing && !mr_agent_has_work(rpc) && mr_executor_load(rpc->executor) == 0 &&
                  !mr_rrefs_held(rpc->rrefs, NULL, 0);
    }
    pthread_mutex_unlock(&net->lock);
    return nothing;
}

void await_nothing_held(void **state)
{
    WAIT_UNTIL(nothing_held(*state));
}
