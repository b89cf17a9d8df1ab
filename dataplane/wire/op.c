#include "dataplane/wire/op.h"

#include <stddef.h>

static const struct {
    const char *name;
    bool repeatable;
} ops[MR_OP_COUNT] = {
#define OP_ROW(name, value, text, repeatable) [value] = {text, repeatable},
    MR_OP_LIST(OP_ROW)
#undef OP_ROW
};

const char *mr_op_name(uint32_t op)
{
    return op < MR_OP_COUNT && ops[op].name != NULL ? ops[op].name : "?";
}

bool mr_op_repeatable(uint32_t op)
{
    return op < MR_OP_COUNT && ops[op].repeatable;
}
