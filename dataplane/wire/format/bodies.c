#include "dataplane/wire/format/bodies.h"

#include <assert.h>
#include <string.h>

const struct mr_body_form mr_body_forms[MR_BODY_COUNT] = {
#define MR_BODY(BODY, body, type, fewest)                                                                    \
    [MR_BODY_##BODY] = {.name = #body, .dtype = MR_##type, .least = (fewest), .words = MR_##BODY##_WORDS},
#include "dataplane/wire/format/ops.def"
};

#define MR_BODY(BODY, body, dtype, least)                                                                    \
    static_assert((least) > 0 && (least) <= (int)MR_##BODY##_WORDS, "no more than there are");
#define MR_BODY_END(BODY, count)                                                                             \
    static_assert((int)MR_##BODY##_NAMED <= (int)MR_##BODY##_WORDS, "no more names than words");
#include "dataplane/wire/format/ops.def"

struct mr_tensor mr_body_tensor(enum mr_body body, const void *words)
{
    return mr_tensor_1d(mr_body_forms[body].dtype, mr_body_forms[body].words, words);
}

struct mr_tensor mr_body_rows(enum mr_body body, uint32_t count, const void *words)
{
    return mr_tensor_2d(mr_body_forms[body].dtype, count, mr_body_forms[body].words, words);
}

static void body_copy(const struct mr_body_form *form, const uint8_t *from, uint32_t count, void *words)
{
    const size_t word_bytes = mr_dtype_bytes(form->dtype);
    const uint32_t copied = count < form->words ? count : form->words;
    memcpy(words, from, copied * word_bytes);
    memset((uint8_t *)words + copied * word_bytes, 0, (form->words - copied) * word_bytes);
}

bool mr_body_read(enum mr_body body, const struct mr_tensor *tensor, void *words)
{
    const struct mr_body_form *form = &mr_body_forms[body];
    if (tensor->dtype != form->dtype || tensor->rank != 1 || tensor->dims[0] < form->least)
        return false;
    body_copy(form, tensor->data, tensor->dims[0], words);
    return true;
}

bool mr_body_is_rows(enum mr_body body, const struct mr_tensor *tensor)
{
    const struct mr_body_form *form = &mr_body_forms[body];
    return tensor->dtype == form->dtype && tensor->rank == 2 &&
           (tensor->dims[0] == 0 || tensor->dims[1] >= form->least);
}

void mr_body_read_row(enum mr_body body, const struct mr_tensor *rows, uint32_t row, void *words)
{
    const struct mr_body_form *form = &mr_body_forms[body];
    const size_t row_bytes = rows->dims[1] * mr_dtype_bytes(form->dtype);
    body_copy(form, (const uint8_t *)rows->data + row * row_bytes, rows->dims[1], words);
}
