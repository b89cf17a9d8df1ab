/* Status codes: the answer to "did it work, and if not, why" of every call, on the wire and in the library.
 *
 * Declared once here; enum, names and texts follow. Values are part of the wire protocol: append, never
 * renumber.
 */
#ifndef MR_STATUS_H
#define MR_STATUS_H

#include "mr_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, value, text) */
#define MR_STATUS_LIST(X)                                                                                    \
    X(OK, 0, "ok")                                                                                           \
    X(DEADLINE_EXCEEDED, 1,                                                                                  \
      "the deadline passed before an answer came; a change asked for may still be made, once")               \
    X(UNKNOWN_OUTCOME, 2,                                                                                    \
      "the connection was lost after the call was sent; it may or may not have been applied")                \
    X(UNREACHABLE, 3, "the server does not answer")                                                          \
    X(BUSY, 4, "the server has no room for this call now; try again")                                        \
    X(CANCELLED, 5, "the call was cancelled")                                                                \
    X(INVALID_ARGUMENT, 6, "an argument is out of its range")                                                \
    X(BAD_MESSAGE, 7, "the message is malformed")                                                            \
    X(UNKNOWN_OP, 8, "this node does not serve that operation")                                              \
    X(UNKNOWN_TABLE, 9, "no table of that name or number")                                                   \
    X(UNKNOWN_VARIABLE, 10, "no variable of that name or number")                                            \
    X(UNKNOWN_BATCH, 11, "no batch of that id was fed to this node")                                         \
    X(BATCH_EXPIRED, 12, "the batch was fed but nobody asked for it in time")                                \
    X(ALREADY_LEARNT, 13, "the batch's gradients have been applied before; nothing was changed")             \
    X(WRONG_DIM, 14, "the row length does not match the table's dim")                                        \
    X(WRONG_SHAPE, 15, "the tensor's shape does not match")                                                  \
    X(WRONG_DTYPE, 16, "the tensor's dtype does not match")                                                  \
    X(FEATURE_MISMATCH, 17, "a feature of that name exists with another descriptor")                         \
    X(UNSUPPORTED, 18, "not supported by this version")                                                      \
    X(FROZEN, 19, "the node is frozen: it takes no updates")                                                 \
    X(OUT_OF_MEMORY, 20, "the node's memory limit is reached")                                               \
    X(BATCH_CACHE_FULL, 21, "the node's batch cache is full; feed again later")                              \
    X(TOO_LARGE, 22, "the message is larger than the node takes")                                            \
    X(CHECKPOINT_RUNNING, 23, "a checkpoint or a restore is running")                                        \
    X(CHECKPOINT_NOT_FOUND, 24, "no such checkpoint")                                                        \
    X(CHECKPOINT_CORRUPT, 25, "the checkpoint does not verify")                                              \
    X(IO_ERROR, 26, "a file operation failed")                                                               \
    X(NOT_STARTED, 27, "StartSample has not been called")                                                    \
    X(END_OF_DATA, 28, "all batches are handed out and applied")                                             \
    X(UNAUTHORIZED, 29, "the key does not allow this")                                                       \
    X(VERSION_MISMATCH, 30, "the peer speaks another protocol version")                                      \
    X(SHUTTING_DOWN, 31, "the node is stopping")                                                             \
    X(NOT_READY, 32, "nothing to hand out now; ask again")                                                   \
    X(ALREADY_STARTED, 33, "StartSample was called before with other arguments")                             \
    X(NO_MEMORY, 34, "this process has no memory left for the call")                                         \
    X(INTERNAL, 35, "internal error")                                                                        \
    X(UNKNOWN_WORKER, 36, "no worker of that name or rank in this world")                                    \
    X(UNKNOWN_FUNCTION, 37, "the worker has no function of that name")                                       \
    X(WRONG_SIGNATURE, 38, "the arguments or results do not match the function's signature")                 \
    X(FUNCTION_FAILED, 39, "the function ended with an error of its own")                                    \
    X(WORKER_DIED, 40, "the worker died, or has not been heard of for too long")                             \
    X(CHECKPOINT_NEWER, 41, "the checkpoint was written by a newer version")                                 \
    X(FORKED, 42, "the handle belongs to the process that this one was forked from")                         \
    X(WRONG_OWNER, 43, "the node does not own these keys (any more): read the map again")

enum mr_status {
#define MR_STATUS_ENUM(name, value, text) MR_##name = (value),
    MR_STATUS_LIST(MR_STATUS_ENUM)
#undef MR_STATUS_ENUM
        MR_STATUS_COUNT
};

/* One line of English for `status`; "unknown status" for a value this version does not know. Any thread. */
MR_API const char *mr_status_text(enum mr_status status);

/* The code's name, as "UNKNOWN_TABLE"; "?" for a value this version does not know. Any thread. */
MR_API const char *mr_status_name(enum mr_status status);

#ifdef __cplusplus
}
#endif
#endif
