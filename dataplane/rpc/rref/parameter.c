#include "dataplane/rpc/rref/parameter.h"

#include "dataplane/rpc/rref/rref_internal.h"

void mr_parameter_destroy(void *versions)
{
    mr_versions_release(versions);
}

struct mr_versions *mr_parameter_versions(struct mr_rref *parameter)
{
    return mr_rref_object(parameter, mr_parameter_destroy);
}

enum mr_status mr_parameter_create(struct mr_rpc *rpc, const struct mr_tensor *initial,
                                   struct mr_rref **parameter)
{
    struct mr_versions *versions;

    if (initial->dtype != MR_F32 || initial->bytes == 0 || initial->data == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT,
                            "mr_parameter_create: a parameter is an f32 tensor with at least one element, "
                            "not %s of %llu bytes%s",
                            mr_dtype_name(initial->dtype), (unsigned long long)initial->bytes,
                            initial->data == NULL ? " without data" : "");
    enum mr_status status = mr_versions_create(initial, &versions);

    if (status != MR_OK)
        return mr_rpc_error(status, "mr_parameter_create: no memory for %llu bytes",
                            (unsigned long long)initial->bytes);
    return mr_rref_create(rpc, (struct mr_value){.kind = MR_VALUE_OBJECT, .object = versions},
                          mr_parameter_destroy, parameter);
}

enum mr_status mr_parameter_read(struct mr_rref *parameter, struct mr_parameter_version **version)
{
    enum mr_status status = MR_OK;

    if (!mr_rref_pin(parameter, "mr_parameter_read"))
        return MR_INVALID_ARGUMENT;
    struct mr_versions *versions = mr_parameter_versions(parameter);

    if (versions != NULL)
        *version = mr_versions_hold(versions);
    else if (mr_rref_is_over(parameter, "mr_parameter_read"))
        status = MR_SHUTTING_DOWN;
    else
        status =
            mr_rpc_error(MR_INVALID_ARGUMENT,
                         mr_rref_is_owner(parameter)
                             ? "mr_parameter_read: the value is no parameter; mr_parameter_create() makes one"
                             : "mr_parameter_read: the parameter is another worker's; mr_rref_to_here() "
                               "gets a copy");
    mr_rref_unpin(parameter);
    return status;
}

const struct mr_tensor *mr_parameter_tensor(const struct mr_parameter_version *version)
{
    return mr_version_tensor(version);
}

uint64_t mr_parameter_number(const struct mr_parameter_version *version)
{
    return mr_version_number(version);
}

void mr_parameter_done(struct mr_parameter_version *version)
{
    mr_version_release(version);
}
