#include "dataplane/rpc/base/signature.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static bool take(const char **at, const char *word)
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
    return take(at, name);
}

static bool read_dim(const char **at, uint64_t *dim)
{
    uint64_t n = 0;
    const char *p = *at;

    if (take(at, "?")) {
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
    if (!take(at, "["))
        return false;
    if (take(at, "...")) {
        part->any_dims = true;
        return take(at, "]");
    }
    if (take(at, "]"))
        return true;
    do {
        if (part->rank == MR_RANK_MAX || !read_dim(at, &part->dims[part->rank]))
            return false;
        part->rank++;
    } while (take(at, ","));
    return take(at, "]");
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
             "f32[...], "
             "tensor, i64, f64, string, ref, object, and ... at its end, at most %u",
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

        if (take(&at, "...")) {
            out->more = true;
            break;
        }
        if (out->count == MR_RPC_ARGUMENTS_MAX || !read_part(&at, &out->parts[out->count]))
            return unreadable(text, start, error, error_bytes);
        out->count++;
    } while (take(&at, ","));
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
    for (uint32_t i = 0; i < part->rank; i++) {
        if (part->dims[i] != UINT64_MAX && part->dims[i] != tensor->dims[i])
            return false;
    }
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

/* Adds to what stands in `out`, as much as there is room for. */
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
