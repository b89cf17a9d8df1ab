/* Pushes of variables: their splitting when the cores of the node have changed, and their joining. A share
 * names its pieces (dataplane/wire/format/ranges.h), whether the push that it comes from did or was of the
 * whole variable. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/op.h"
#include "trainer_client/api/divide.h"
#include "trainer_client/replay/push.h"

bool mrc_push_is_of_variable(const struct mrc_push *push)
{
    return push->op == MR_OP_VARIABLE_PUSH ||
           (push->op == MR_OP_PUSH_GRAD && push->tensor_count > 0 && push->tensor_count < MRC_ROWS_TENSORS);
}

/* The tensors of a push of a variable. */
struct parts {
    struct mr_push_head head; /* of a gradient */
    const uint64_t *words;    /* its pieces */
    uint32_t word_count;
    const struct mr_tensor *values; /* of all of them */
    uint64_t one[MR_PIECE_WORDS];   /* where its only piece is, unless it names pieces */
};

static uint64_t element_count(const struct mr_tensor *t)
{
    return t->bytes / sizeof(float);
}

static void find_parts(const struct mrc_push *push, struct parts *p)
{
    const struct mr_tensor *t = push->tensors;
    const bool sets = push->op == MR_OP_VARIABLE_PUSH;
    *p = (struct parts){.word_count = 0};
    if (!sets)
        p->head = *(const struct mr_push_head *)t[0].data;
    p->values = &t[push->tensor_count - 1];
    const bool has_pieces = sets || (p->head.flags & MR_PUSH_PIECES) != 0;
    const struct mr_tensor *pieces = &t[sets ? 0 : 1];

    if (has_pieces && pieces->dims[0] >= MR_PIECE_WORDS) {
        p->words = pieces->data;
        p->word_count = pieces->dims[0];
        return;
    }
    p->one[0] = has_pieces ? *(const uint64_t *)pieces->data : 0;
    p->one[1] = element_count(p->values);
    p->words = p->one;
    p->word_count = MR_PIECE_WORDS;
}

/* A push of these pieces, whose words and values are to be filled in. */
static struct mrc_push *new_push(const struct mrc_push *like, const struct parts *p, uint32_t word_count,
                                 uint64_t elements)
{
    struct mr_push_head head = p->head;
    struct mr_tensor tensors[3];
    uint32_t count = 0;
    head.flags |= MR_PUSH_PIECES;
    if (like->op != MR_OP_VARIABLE_PUSH)
        tensors[count++] = mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &head);
    tensors[count++] = mr_tensor_1d(MR_U64, word_count, NULL);
    tensors[count++] = mr_tensor_1d(MR_F32, (uint32_t)elements, NULL);
    struct mrc_push *push = mrc_push_new(like->op, like->table, like->priority, like->step, tensors, count);

    if (push != NULL) {
        push->looked_up_in = like->looked_up_in;
        push->era = like->era;
        push->restores = like->restores;
    }
    return push;
}

static uint64_t *words_of(const struct mrc_push *push)
{
    return push->tensors[push->tensor_count - 2].data;
}

static float *values_of(const struct mrc_push *push)
{
    return push->tensors[push->tensor_count - 1].data;
}

bool mrc_variable_push_split(const struct mrc_push *push, const uint16_t owners[MR_PARTITION_COUNT],
                             uint32_t owner_count, const struct mr_feature *variable,
                             struct mrc_push *shares[])
{
    struct parts parts;
    struct mrc_pieces pieces;
    bool ok = true;
    memset((void *)shares, 0, owner_count * sizeof(void *));
    find_parts(push, &parts);
    if (!mrc_divide_pieces(&pieces, variable, owners, owner_count, parts.words, parts.word_count))
        return false;
    for (uint32_t i = 0; i < pieces.share_count && ok; i++) {
        struct mrc_piece_share *share = &pieces.shares[i];
        struct mrc_push *made = new_push(push, &parts, share->word_count, share->elements);
        shares[share->owner] = made;
        ok = made != NULL;
        if (!ok)
            break;
        memcpy(words_of(made), share->words, share->word_count * sizeof(*share->words));
        share->values = values_of(made);
    }
    if (ok)
        mrc_pieces_fill(&pieces, parts.values->data);
    for (uint32_t o = 0; o < owner_count && !ok; o++) {
        mrc_push_free(shares[o]);
        shares[o] = NULL;
    }
    free(pieces.memory);
    return ok;
}

/* The next piece, by its first element, of any of the pushes; UINT32_MAX: there is none. */
static uint32_t lowest(const struct parts parts[], const uint32_t at[], uint32_t count)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++)
        if (at[i] < parts[i].word_count &&
            (found == UINT32_MAX || parts[i].words[at[i]] < parts[found].words[at[found]]))
            found = i;
    return found;
}

/* Appends all pieces, in the order of their elements. */
static void merge(struct mrc_push *to, const struct parts parts[], uint32_t at[], uint64_t done[],
                  uint32_t count)
{
    uint64_t *words = words_of(to);
    float *values = values_of(to);
    for (uint32_t i; (i = lowest(parts, at, count)) != UINT32_MAX; at[i] += MR_PIECE_WORDS) {
        const uint64_t elements = parts[i].words[at[i] + 1];
        memcpy(words, parts[i].words + at[i], MR_PIECE_WORDS * sizeof(*words));
        memcpy(values, (const float *)parts[i].values->data + done[i], elements * sizeof(*values));
        words += MR_PIECE_WORDS;
        values += elements;
        done[i] += elements;
    }
}

struct mrc_push *mrc_variable_push_join(struct mrc_push *const shares[], uint32_t count)
{
    struct parts *parts = calloc(count, sizeof(*parts) + sizeof(uint64_t) + sizeof(uint32_t));
    uint32_t word_count = 0;
    uint64_t elements = 0;
    if (parts == NULL)
        return NULL;
    for (uint32_t i = 0; i < count; i++) {
        find_parts(shares[i], &parts[i]);
        word_count += parts[i].word_count;
        elements += element_count(parts[i].values);
    }
    struct mrc_push *push = new_push(shares[0], &parts[0], word_count, elements);
    uint64_t *done = (uint64_t *)(parts + count);

    if (push != NULL)
        merge(push, parts, (uint32_t *)(done + count), done, count);
    free(parts);
    return push;
}
