/* Bodies: tensors of words, of which each side knows by ops.def what stands where.
 *
 * MR_RESTORED_STEP is the place of a word, MR_RESTORED_WORDS how many there are, MR_BODY_RESTORED the body.
 * A reader copies it with mr_body_read() or mr_body_read_row() into as many words as this version has: words
 * missing in an older sender's body are 0, additional words of a newer sender are ignored. */
#ifndef MR_BODIES_H
#define MR_BODIES_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_tensor.h"

// clang-format off
#define MR_BODY(BODY, body, dtype, least) enum {
#define MR_WORD(BODY, WORD, help) MR_##BODY##_##WORD,
#define MR_WORD_SPAN(BODY, WORD, count, help) \
    MR_##BODY##_##WORD, MR_##BODY##_##WORD##_LAST = MR_##BODY##_##WORD + (count) - 1,
#define MR_BODY_END(BODY, count) MR_##BODY##_NAMED, MR_##BODY##_WORDS = (count) };
// clang-format on
#include "dataplane/wire/format/ops.def"

enum mr_body {
#define MR_BODY(BODY, body, dtype, least) MR_BODY_##BODY,
#include "dataplane/wire/format/ops.def"
    MR_BODY_COUNT
};

struct mr_body_form {
    const char *name; /* as in docs/protocol.md, for errors */
    enum mr_dtype dtype;
    uint32_t least; /* of the words: as many as the first version had */
    uint32_t words;
};
extern const struct mr_body_form mr_body_forms[MR_BODY_COUNT];

/* A body's tensor; the words are only pointed to. */
struct mr_tensor mr_body_tensor(enum mr_body body, const void *words);
/* `count` rows of it, one after the other; `words` may be NULL, as in a reply that is begun. */
struct mr_tensor mr_body_rows(enum mr_body body, uint32_t count, const void *words);

/* Copies the body's words to `words`, which has room for all. False: the tensor has another type, or fewer
 * than the least. */
bool mr_body_read(enum mr_body body, const struct mr_tensor *tensor, void *words);
/* Whether a tensor is rows of that body: none, or at least so many words each. */
bool mr_body_is_rows(enum mr_body body, const struct mr_tensor *tensor);
/* Copies one of these rows. */
void mr_body_read_row(enum mr_body body, const struct mr_tensor *rows, uint32_t row, void *words);

#endif
