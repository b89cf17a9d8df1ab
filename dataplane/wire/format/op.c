#include "dataplane/wire/format/op.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    bool repeatable;
    enum mr_role role;
} ops[MR_OP_COUNT] = {
#define MR_OP(NAME, name, value, repeatable, role, served, request, reply)                                   \
    [value] = {#name, repeatable, MR_ROLE_##role},
#include "dataplane/wire/format/ops.def"
};

const char *mr_op_name(uint32_t op)
{
    return op < MR_OP_COUNT && ops[op].name != NULL ? ops[op].name : "?";
}

bool mr_op_repeatable(uint32_t op)
{
    return op < MR_OP_COUNT && ops[op].repeatable;
}

enum mr_role mr_op_role(uint32_t op)
{
    return op < MR_OP_COUNT && ops[op].name != NULL ? ops[op].role : MR_ROLE_READ_ONLY;
}

static const char *const role_names[MR_ROLE_COUNT] = {
    [MR_ROLE_OPERATOR] = "operator", [MR_ROLE_TRAINER] = "trainer", [MR_ROLE_READ_ONLY] = "read_only"};

const char *mr_role_name(enum mr_role role)
{
    return (uint32_t)role < MR_ROLE_COUNT ? role_names[role] : "?";
}

bool mr_role_parse(const char *name, enum mr_role *role)
{
    for (uint32_t i = 0; i < MR_ROLE_COUNT; i++) {
        if (strcmp(name, role_names[i]) == 0) {
            *role = (enum mr_role)i;
            return true;
        }
    }
    return false;
}
