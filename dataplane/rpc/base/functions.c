#include "dataplane/rpc/base/functions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void mr_functions_init(struct mr_functions *functions)
{
    memset(functions, 0, sizeof(*functions));
    pthread_mutex_init(&functions->adding, NULL);
}

static void function_free(struct mr_function *function)
{
    if (function == NULL)
        return;
    free(function->arguments_text);
    free(function->results_text);
    mr_signature_free(&function->arguments);
    mr_signature_free(&function->results);
    free(function);
}

void mr_functions_fini(struct mr_functions *functions)
{
    for (uint32_t i = 0; i < MR_FUNCTION_SLOTS; i++)
        function_free(atomic_load(&functions->slots[i]));
    pthread_mutex_destroy(&functions->adding);
}

/* The slot with that name, or the free one where it belongs. */
static uint32_t slot_of(struct mr_functions *functions, const char *name)
{
    uint32_t slot = (uint32_t)XXH3_64bits(name, strlen(name)) % MR_FUNCTION_SLOTS;

    for (;;) {
        const struct mr_function *there = atomic_load_explicit(&functions->slots[slot], memory_order_acquire);

        if (there == NULL || strcmp(there->name, name) == 0)
            return slot;
        slot = (slot + 1) % MR_FUNCTION_SLOTS;
    }
}

struct mr_function *mr_functions_find(struct mr_functions *functions, const char *name)
{
    return atomic_load_explicit(&functions->slots[slot_of(functions, name)], memory_order_acquire);
}

void mr_functions_each(struct mr_functions *functions,
                       void (*visit)(void *arg, const struct mr_function *function), void *arg)
{
    for (uint32_t i = 0; i < MR_FUNCTION_SLOTS; i++) {
        const struct mr_function *function = atomic_load_explicit(&functions->slots[i], memory_order_acquire);

        if (function != NULL)
            visit(arg, function);
    }
}

static const char *what_is_wrong(const struct mr_rpc_function *function, bool own)
{
    size_t prefix = strlen(MR_FUNCTION_OWN_PREFIX);

    if (function->name == NULL || function->name[0] == 0)
        return "it has no name";
    if (strlen(function->name) >= MR_RPC_NAME_BYTES)
        return "its name is longer than 63 bytes";
    if ((strncmp(function->name, MR_FUNCTION_OWN_PREFIX, prefix) == 0) != own)
        return "names that begin with \"mr.\" are the library's own";
    if (function->run == NULL)
        return "run is NULL";
    if ((function->flags & ~(uint32_t)MR_RPC_INLINE) != 0)
        return "flags has bits that mean nothing";
    return NULL;
}

static enum mr_status function_new(const struct mr_rpc_function *from, struct mr_function **out, char *error,
                                   size_t error_bytes)
{
    struct mr_function *f = calloc(1, sizeof(*f));
    enum mr_status status = MR_NO_MEMORY;

    snprintf(error, error_bytes, "no memory");
    if (f == NULL)
        return MR_NO_MEMORY;
    snprintf(f->name, sizeof(f->name), "%s", from->name);
    f->arguments_text = strdup(from->arguments == NULL ? "" : from->arguments);
    f->results_text = strdup(from->results == NULL ? "" : from->results);
    f->run = from->run;
    f->backward = from->backward;
    f->user = from->user;
    f->flags = from->flags;
    if (f->arguments_text != NULL && f->results_text != NULL)
        status = mr_signature_read(f->arguments_text, &f->arguments, error, error_bytes);
    if (status == MR_OK)
        status = mr_signature_read(f->results_text, &f->results, error, error_bytes);
    if (status != MR_OK) {
        function_free(f);
        return status;
    }
    *out = f;
    return MR_OK;
}

static enum mr_status refused(const struct mr_rpc_function *function, const char *why, char *error,
                              size_t error_bytes)
{
    snprintf(error, error_bytes, "function \"%s\": %s", function->name == NULL ? "" : function->name, why);
    return MR_INVALID_ARGUMENT;
}

enum mr_status mr_functions_add(struct mr_functions *functions, const struct mr_rpc_function *function,
                                bool own, char *error, size_t error_bytes)
{
    const char *wrong = what_is_wrong(function, own);
    struct mr_function *made = NULL;
    char why[512];

    if (wrong != NULL)
        return refused(function, wrong, error, error_bytes);
    enum mr_status status = function_new(function, &made, why, sizeof(why));

    if (status != MR_OK) {
        (void)refused(function, why, error, error_bytes);
        return status;
    }
    pthread_mutex_lock(&functions->adding);
    uint32_t slot = slot_of(functions, function->name);

    if (atomic_load(&functions->slots[slot]) != NULL)
        wrong = "a function of that name is registered already";
    else if (functions->count == MR_FUNCTIONS_MAX)
        wrong = "there are 4096 functions already, which is the most";
    else {
        functions->count++;
        atomic_store_explicit(&functions->slots[slot], made, memory_order_release);
    }
    pthread_mutex_unlock(&functions->adding);
    if (wrong == NULL)
        return MR_OK;
    function_free(made);
    return refused(function, wrong, error, error_bytes);
}
