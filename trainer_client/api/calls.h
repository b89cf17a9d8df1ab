/* What the calls of the public API share. */
#ifndef MRC_CALLS_H
#define MRC_CALLS_H

#include <string.h>
#include "dataplane/wire/format/op.h"
#include "trainer_client/call/client.h"
#include "trainer_client/call/future.h"
#include "trainer_client/call/last_error.h"
#include "trainer_client/call/outcome.h"
#include "trainer_client/call/retry.h"

/* Finds the feature with this number; asks the node if the client does not know it. MR_UNKNOWN_TABLE or
 * MR_UNKNOWN_VARIABLE (by `kind`), or why asking failed. Takes the lock. */
enum mr_status mrc_find_feature(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                                uint32_t id, enum mr_feature_kind kind, struct mr_feature *out);
/* Does the same for either kind. */
enum mr_status mrc_find_any_feature(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                                    uint32_t id, struct mr_feature *out);
/* Stores all features of a LIST reply; false: the reply is malformed. Under the lock. */
bool mrc_learn_features(const struct mr_future *f);
/* Makes the future of a try with a request to each core of the shard map, each with this tensor (NULL: none).
 * The context has `context_bytes`, and `core_bytes` more for each core. Takes the lock. */
enum mr_status mrc_future_for_cores(struct mrc_retry *r, uint32_t feature, const struct mr_tensor *tensor,
                                    size_t context_bytes, size_t core_bytes, struct mr_future **out);
/* Runs a call by the shard map with that number. MR_CANCELLED if it has changed since: the caller's numbers
 * refer to the old one. */
enum mr_status mrc_run_by_map(struct mr_future *f, uint32_t map_generation, const struct mr_options *options,
                              struct mr_reply **reply);
/* Returns MR_INVALID_ARGUMENT unless offsets[0] is 0 and no offset is below the one before. */
enum mr_status mrc_check_offsets(const char *call, const uint32_t *offsets, uint64_t bag_count);

/* Returns MR_INVALID_ARGUMENT unless all weights are finite; NULL: there are none. */
enum mr_status mrc_check_weights(const char *call, const float *weights, uint64_t count);
/* Sets the type in which rows travel in a call with these options. MR_WRONG_DTYPE if they cannot travel in
 * it. */
enum mr_status mrc_wire_dtype(const char *call, const struct mr_options *options, enum mr_dtype *out);
/* Returns the flags of a lookup whose rows travel in this type. */
static inline uint32_t mrc_reply_dtype_flags(enum mr_dtype dtype)
{
    return dtype == MR_F32 ? 0 : (uint32_t)dtype << MR_LOOKUP_DTYPE_SHIFT;
}

/* Puts the options' plan, if there is one, after the number in words[0]. Returns how many words there are. */
static inline uint32_t mrc_add_plan(const struct mr_options *options, uint64_t words[1 + MR_PLAN_WORDS])
{
    if (options == NULL || options->plan == NULL)
        return 1;
    memcpy(&words[1], options->plan, MR_PLAN_WORDS * sizeof(*words));
    return 1 + MR_PLAN_WORDS;
}

/* Returns the head of a feature's part in a push with these options. */
static inline struct mr_push_head mrc_push_head(uint32_t feature, const struct mr_options *options)
{
    bool has_rate = options != NULL && options->has_learning_rate;
    return (struct mr_push_head){.feature = feature,
                                 .flags = has_rate ? MR_PUSH_LEARNING_RATE : 0,
                                 .learning_rate = has_rate ? options->learning_rate : 0};
}

/* Makes a call to core 0 of a node with these tensors, if any, and runs it. `finish` finds a copy of
 * `context` in the future. If the node leaves the cluster meanwhile, a repeatable call goes to another. */
enum mr_status mrc_run_core0(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                             const struct mr_tensor *tensors, uint32_t tensor_count, mrc_finish finish,
                             const void *context, size_t context_bytes);

/* For the finish of a call that shows the cluster's map, as any node has it: MR_BUSY, and an error, if that
 * map is older than the one with this client's last change of moves. Takes the lock. */
enum mr_status mrc_check_epoch(const struct mr_future *f, uint64_t epoch);

/* A call to one core, which the caller names by its number. */
struct mrc_core_call {
    const char *name; /* of the public function, for errors */
    enum mr_op op;
    const struct mr_tensor *tensors; /* [tensor_count]; their data is copied when the call begins */
    uint32_t tensor_count;
    mrc_finish finish;   /* finds a copy of `context` in the future */
    const void *context; /* context_bytes long */
    size_t context_bytes;
};
/* Makes and runs such a call. MR_INVALID_ARGUMENT: there is no such core; MR_CANCELLED: the cores have
 * changed meanwhile, and the number refers to an old one. */
enum mr_status mrc_run_on_core(struct mr_client *client, const struct mr_options *options, uint32_t core,
                               const struct mrc_core_call *call, struct mr_reply **reply);

/* Returns the names of features as a tensor's bytes, to be freed by the caller; NULL: *status says why
 * not. */
char *mrc_copy_names(const char *call, const char *const *names, uint32_t count, enum mr_status *status);

#endif
