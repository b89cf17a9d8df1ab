#include "trainer_client/examples/common/layers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum mr_status example_start_layers(struct mr_rpc *rpc, const char *arguments, char *error,
                                    size_t error_bytes)
{
    mr_module_init init = NULL;
    void *object = dlopen(LAYERS_MODULE, RTLD_NOW | RTLD_LOCAL); /* stays: its functions are registered */
    void *symbol = object != NULL ? dlsym(object, MR_MODULE_INIT_SYMBOL) : NULL;
    if (symbol == NULL) {
        snprintf(error, error_bytes, "the module layers.so: %s; build it first", dlerror());
        return MR_INVALID_ARGUMENT;
    }
    memcpy(&init, &symbol, sizeof(init));
    return init(rpc, arguments, error, error_bytes);
}
