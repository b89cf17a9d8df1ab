/* Pieces of a variable, divided by the owners of its ranges, and their values. */
#include "trainer_client/api/divide.h"

#include <stdlib.h>
#include <string.h>

/* Goes through the runs of all pieces; starts as {0}. */
struct walk {
    uint32_t word;
    uint64_t in_piece;
    struct mr_run run;
    uint64_t first; /* of the run, in the variable */
};

static bool next_run(const struct mr_feature *variable, const uint64_t *words, uint32_t word_count,
                     struct walk *w)
{
    if (w->word < word_count && w->in_piece == words[w->word + 1]) {
        w->word += MR_PIECE_WORDS;
        w->in_piece = 0;
    }
    if (w->word == word_count)
        return false;
    w->first = words[w->word] + w->in_piece;
    w->run = mr_run_of(variable, w->first, words[w->word + 1] - w->in_piece);
    w->in_piece += w->run.count;
    return true;
}

/* Whether a run continues the last piece of its owner's share. */
static bool adjoins(const struct mrc_piece_share *share, const struct walk *w)
{
    const uint64_t *last = share->words + share->word_count - MR_PIECE_WORDS;
    return share->word_count > 0 && last[0] + last[1] == w->first;
}

static void add_run(struct mrc_piece_share *share, const struct walk *w)
{
    if (adjoins(share, w)) {
        share->words[share->word_count - 1] += w->run.count;
    } else {
        share->words[share->word_count++] = w->first;
        share->words[share->word_count++] = w->run.count;
    }
    share->elements += w->run.count;
}

bool mrc_divide_pieces(struct mrc_pieces *p, const struct mr_feature *variable,
                       const uint16_t owners[MR_PARTITION_COUNT], uint32_t owner_count, const uint64_t *words,
                       uint32_t word_count)
{
    uint32_t runs = 0;
    for (struct walk w = {0}; next_run(variable, words, word_count, &w);)
        runs++;
    const size_t shares_bytes = owner_count * sizeof(struct mrc_piece_share);
    const size_t words_bytes = (word_count + (size_t)MR_PIECE_WORDS * runs) * sizeof(uint64_t);
    uint8_t *memory = calloc(1, shares_bytes + words_bytes + runs * (sizeof(uint16_t) + sizeof(uint32_t)) +
                                    owner_count * sizeof(uint32_t));

    if (memory == NULL)
        return false;
    *p = (struct mrc_pieces){.variable = *variable,
                             .words = (uint64_t *)(void *)(memory + shares_bytes),
                             .word_count = word_count,
                             .shares = (struct mrc_piece_share *)(void *)memory,
                             .memory = memory};
    uint64_t *room = p->words + word_count;
    uint32_t *runs_of = (uint32_t *)(void *)(memory + shares_bytes + words_bytes); /* of each owner */
    uint32_t at = 0;

    p->share_of = (uint16_t *)(runs_of + owner_count);
    memcpy(p->words, words, word_count * sizeof(*words));
    for (struct walk w = {0}; next_run(variable, words, word_count, &w);)
        runs_of[p->share_of[at++] = owners[mr_range_partition(variable->name, w.run.range)]]++;
    for (uint32_t o = 0; o < owner_count; o++) {
        if (runs_of[o] == 0)
            continue;
        p->shares[p->share_count] = (struct mrc_piece_share){.owner = (uint16_t)o, .words = room};
        room += (size_t)MR_PIECE_WORDS * runs_of[o];
        runs_of[o] = p->share_count++; /* from now on: which share is its */
    }
    at = 0;
    for (struct walk w = {0}; next_run(variable, words, word_count, &w); at++) {
        p->share_of[at] = (uint16_t)runs_of[p->share_of[at]];
        add_run(&p->shares[p->share_of[at]], &w);
        p->elements += w.run.count;
    }
    return true;
}

static void rewind_shares(struct mrc_pieces *p)
{
    for (uint32_t i = 0; i < p->share_count; i++)
        p->shares[i].next = 0;
}

void mrc_pieces_fill(struct mrc_pieces *p, const float *values)
{
    rewind_shares(p);
    const uint16_t *share_of = p->share_of;

    for (struct walk w = {0}; next_run(&p->variable, p->words, p->word_count, &w); values += w.run.count) {
        struct mrc_piece_share *share = &p->shares[*share_of++];
        memcpy(share->values + share->next, values, w.run.count * sizeof(*values));
        share->next += w.run.count;
    }
}

void mrc_pieces_join(struct mrc_pieces *p, float *values)
{
    rewind_shares(p);
    const uint16_t *share_of = p->share_of;

    for (struct walk w = {0}; next_run(&p->variable, p->words, p->word_count, &w); values += w.run.count) {
        struct mrc_piece_share *share = &p->shares[*share_of++];
        memcpy(values, share->values + share->next, w.run.count * sizeof(*values));
        share->next += w.run.count;
    }
}
