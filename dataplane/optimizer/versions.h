/* An f32 tensor in versions. A version is a snapshot that does not change while anybody holds it: forwards
 * and backwards of several trainers read theirs while an optimizer makes the next. A change copies the values
 * only when the newest version is held; else it is made in place.
 *
 * Threads: any, at once. Changes of one mr_versions come one after the other. While values are changed in
 * place mr_versions_hold() waits: as long as an optimizer takes for one pass over them. All else is brief.
 */
#ifndef MR_VERSIONS_H
#define MR_VERSIONS_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "dataplane/wire/format/mr_tensor.h"

struct mr_versions;
struct mr_parameter_version; /* its name in millrace_rpc.h */

/* Version 1 is a copy of `initial`; data NULL: zeros. MR_INVALID_ARGUMENT: not f32; MR_NO_MEMORY. */
enum mr_status mr_versions_create(const struct mr_tensor *initial, struct mr_versions **out);
/* The same, but the first version has that number; its values are zeros in *values, which the caller fills
 * before anybody else knows of it. */
enum mr_status mr_versions_create_from(const struct mr_tensor *shape, uint64_t number,
                                       struct mr_versions **out, float **values);
/* Makes the newest version of `from` the newest of `versions`, which has the same shape. Nobody else may know
 * of `from`, which is gone then. Waits for a change to end. */
void mr_versions_replace(struct mr_versions *versions, struct mr_versions *from);
/* Adds and drops a user: after the last there is no hold and no change. Versions that are held stay
 * until they are let go. */
void mr_versions_retain(struct mr_versions *versions);
void mr_versions_release(struct mr_versions *versions); /* NULL is fine */
const struct mr_tensor *
mr_versions_shape(const struct mr_versions *versions); /* of all versions; without data */

/* The newest version, until mr_version_release(). Waits for a change in place to end. */
struct mr_parameter_version *mr_versions_hold(struct mr_versions *versions);
/* The same without waiting: NULL while values are changed in place. */
struct mr_parameter_version *mr_versions_try_hold(struct mr_versions *versions);
/* One holder more. */
void mr_version_retain(struct mr_parameter_version *version);
void mr_version_release(struct mr_parameter_version *version);          /* NULL is fine */
uint64_t mr_version_number(const struct mr_parameter_version *version); /* rises by one with each change */
/* Valid while held, as all that follows; `data` is 64-byte aligned. */
const struct mr_tensor *mr_version_tensor(const struct mr_parameter_version *version);
const float *mr_version_values(const struct mr_parameter_version *version);
size_t mr_version_floats(const struct mr_parameter_version *version);

/* Changes `values`, which are those of the newest version, to those of the next. */
typedef void mr_change_values(void *context, float *values);
/* Runs `change` once, in place or on a copy. One at a time; another waits. MR_NO_MEMORY: it was not run. */
enum mr_status mr_versions_change(struct mr_versions *versions, mr_change_values *change, void *context);

/* What a reader makes of a version's values once for all readers, such as another format of them, and keeps
 * beside it. */
struct mr_version_extra;
struct mr_version_extra_kind {
    struct mr_version_extra *(*create)(void); /* NULL: no memory */
    /* The version gets other values, and nobody holds it: what was made of them is of no use. The memory may
     * be used again. */
    void (*outdate)(struct mr_version_extra *extra);
    void (*destroy)(struct mr_version_extra *extra);
};
/* Begins what a kind keeps. */
struct mr_version_extra {
    const struct mr_version_extra_kind *kind;
    struct mr_version_extra *next;
};
/* That of this kind, created if there is none yet; what becomes of it among those who hold the version is the
 * kind's business. NULL: no memory. */
struct mr_version_extra *mr_version_extra(struct mr_parameter_version *version,
                                          const struct mr_version_extra_kind *kind);

#endif
