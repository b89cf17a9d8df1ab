/* The functions of functions.h as a module: `module = layers.so [parts N]` in a node's configuration. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/modules/model/functions.h"
#include "ps/modules/model/model.h"

enum mr_status millrace_module_init(struct mr_rpc *rpc, const char *arguments, char *error,
                                    size_t error_bytes);

enum mr_status millrace_module_init(struct mr_rpc *rpc, const char *arguments, char *error,
                                    size_t error_bytes)
{
    unsigned long parts = 1;
    if (arguments != NULL && *arguments != 0) {
        static const char name[] = "parts ";
        char *end = NULL;
        bool named = strncmp(arguments, name, strlen(name)) == 0;
        parts = named ? strtoul(arguments + strlen(name), &end, 10) : 0;
        if (!named || *end != 0 || parts < 1 || parts > PS_MODEL_PARTS_MAX) {
            snprintf(error, error_bytes, "layers: expected \"parts N\", N from 1 to %u, not \"%.60s\"",
                     PS_MODEL_PARTS_MAX, arguments);
            return MR_INVALID_ARGUMENT;
        }
    }
    enum mr_status status = ps_model_register(rpc, (uint32_t)parts);
    if (status != MR_OK)
        snprintf(error, error_bytes, "layers: %s", mr_rpc_last_error());
    return status;
}
