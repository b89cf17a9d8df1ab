#include "dataplane/rpc/base/functions.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- signatures ---- */

static const char *const kind_names[] = {
    [MR_VALUE_NONE] = "none",     [MR_VALUE_TENSOR] = "tensor", [MR_VALUE_I64] = "i64",
    [MR_VALUE_F64] = "f64",       [MR_VALUE_STRING] = "string", [MR_VALUE_RREF] = "ref",
    [MR_VALUE_OBJECT] = "object",
};

static const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

static bool functions_take(const char **at, const char *word)
{
    size_t bytes = strlen(word);
    if (strncmp(*at, word, bytes) != 0)
        return false;
    *at = skip_blanks(*at + bytes);
    return true;
}

/* A name ends where no letter or digit follows: "i64" is not the beginning of "i640". */
static bool take_name(const char **at, const char *name)
{
    size_t bytes = strlen(name);
    char next = strncmp(*at, name, bytes) == 0 ? (*at)[bytes] : 'x';
    if ((next >= 'a' && next <= 'z') || (next >= '0' && next <= '9') || next == '_')
        return false;
    return functions_take(at, name);
}

static bool read_dim(const char **at, uint64_t *dim)
{
    uint64_t n = 0;
    const char *p = *at;
    if (functions_take(at, "?")) {
        *dim = UINT64_MAX;
        return true;
    }
    for (; *p >= '0' && *p <= '9'; p++) {
        n = n * 10 + (uint64_t)(*p - '0');
        if (n > UINT32_MAX)
            return false;
    }
    if (p == *at)
        return false;
    *dim = n;
    *at = skip_blanks(p);
    return true;
}

static bool read_dims(const char **at, struct mr_signature_part *part)
{
    if (!functions_take(at, "["))
        return false;
    if (functions_take(at, "...")) {
        part->any_dims = true;
        return functions_take(at, "]");
    }
    if (functions_take(at, "]"))
        return true;
    do {
        if (part->rank == MR_RANK_MAX || !read_dim(at, &part->dims[part->rank]))
            return false;
        part->rank++;
    } while (functions_take(at, ","));
    return functions_take(at, "]");
}

static bool read_part(const char **at, struct mr_signature_part *part)
{
    const char *start = *at;
    *part = (struct mr_signature_part){.kind = MR_VALUE_TENSOR};
    for (int dtype = 1; dtype < MR_DTYPE_COUNT; dtype++) {
        *at = start;
        if (take_name(at, mr_dtype_name((enum mr_dtype)dtype)) && **at == '[') {
            part->dtype = (enum mr_dtype)dtype;
            return read_dims(at, part);
        }
    }
    *at = start;
    if (take_name(at, "tensor")) {
        part->any_dims = true;
        return true;
    }
    for (int kind = MR_VALUE_I64; kind <= MR_VALUE_OBJECT; kind++) {
        if (take_name(at, kind_names[kind])) {
            part->kind = (enum mr_value_kind)kind;
            return true;
        }
    }
    return false;
}

static enum mr_status unreadable(const char *text, const char *at, char *error, size_t error_bytes)
{
    snprintf(error, error_bytes,
             "the signature \"%s\" cannot be read at \"%s\": it is a list of f32[32,?] (a dtype and dims), "
             "f32[...], tensor, i64, f64, string, ref, object, and ... at its end, at most %u",
             text, at, MR_RPC_ARGUMENTS_MAX);
    return MR_INVALID_ARGUMENT;
}

static enum mr_status read_parts(const char *text, struct mr_signature *out, char *error, size_t error_bytes)
{
    const char *at = skip_blanks(text);
    if (*at == 0)
        return MR_OK;
    do {
        const char *start = at;
        if (functions_take(&at, "...")) {
            out->more = true;
            break;
        }
        if (out->count == MR_RPC_ARGUMENTS_MAX || !read_part(&at, &out->parts[out->count]))
            return unreadable(text, start, error, error_bytes);
        out->count++;
    } while (functions_take(&at, ","));
    return *at == 0 ? MR_OK : unreadable(text, at, error, error_bytes);
}

enum mr_status mr_signature_read(const char *text, struct mr_signature *out, char *error, size_t error_bytes)
{
    struct mr_signature signature = {.parts = calloc(MR_RPC_ARGUMENTS_MAX, sizeof(*signature.parts))};
    if (signature.parts == NULL) {
        snprintf(error, error_bytes, "no memory for a signature");
        return MR_NO_MEMORY;
    }
    enum mr_status status = read_parts(text == NULL ? "" : text, &signature, error, error_bytes);

    if (status != MR_OK) {
        mr_signature_free(&signature);
        return status;
    }
    size_t bytes = (signature.count == 0 ? 1 : signature.count) * sizeof(*signature.parts);
    struct mr_signature_part *fitting = realloc(signature.parts, bytes);

    if (fitting != NULL)
        signature.parts = fitting;
    *out = signature;
    return MR_OK;
}

void mr_signature_free(struct mr_signature *signature)
{
    free(signature->parts);
    *signature = (struct mr_signature){.count = 0};
}

static bool tensor_matches(const struct mr_signature_part *part, const struct mr_tensor *tensor)
{
    if (part->dtype != MR_DTYPE_NONE && part->dtype != tensor->dtype)
        return false;
    if (part->any_dims)
        return true;
    if (part->rank != tensor->rank)
        return false;
    for (uint32_t i = 0; i < part->rank; i++)
        if (part->dims[i] != UINT64_MAX && part->dims[i] != tensor->dims[i])
            return false;
    return true;
}

bool mr_signature_matches(const struct mr_signature *signature, const struct mr_value *values, uint32_t count)
{
    if (count < signature->count || (count > signature->count && !signature->more))
        return false;
    for (uint32_t i = 0; i < signature->count; i++) {
        const struct mr_signature_part *part = &signature->parts[i];
        if (part->kind == MR_VALUE_OBJECT && values[i].kind == MR_VALUE_RREF)
            continue;
        if (part->kind != values[i].kind)
            return false;
        if (part->kind == MR_VALUE_TENSOR && !tensor_matches(part, &values[i].tensor))
            return false;
    }
    return true;
}

/* Appends to `out` as much as fits. */
static void append(char *out, size_t bytes, size_t *used, const char *text)
{
    size_t left = bytes - *used, length = strlen(text);
    if (length >= left)
        length = left - 1;
    memcpy(out + *used, text, length);
    *used += length;
    out[*used] = 0;
}

void mr_signature_describe(const struct mr_value *values, uint32_t count, char *out, size_t bytes)
{
    size_t used = 0;
    char number[24];
    if (bytes == 0)
        return;
    out[0] = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_value *value = &values[i];
        if (i != 0)
            append(out, bytes, &used, ", ");
        if (value->kind != MR_VALUE_TENSOR) {
            append(out, bytes, &used, value->kind <= MR_VALUE_OBJECT ? kind_names[value->kind] : "?");
            continue;
        }
        append(out, bytes, &used, mr_dtype_name(value->tensor.dtype));
        append(out, bytes, &used, "[");
        for (uint32_t d = 0; d < value->tensor.rank && d < MR_RANK_MAX; d++) {
            snprintf(number, sizeof(number), "%s%" PRIu32, d == 0 ? "" : ",", value->tensor.dims[d]);
            append(out, bytes, &used, number);
        }
        append(out, bytes, &used, "]");
    }
}

/* ---- functions ---- */

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

/* Returns the slot with that name, or the free slot for it. */
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
    if ((function->flags & ~(uint32_t)(MR_RPC_INLINE | MR_RPC_SERIAL | MR_RPC_RETAINED)) != 0)
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
