/* Visits a checkpoint's records one by one, as a restore takes them from its blocks. */
#ifndef TESTS_READER_EACH_H
#define TESTS_READER_EACH_H

#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_chain.h"

struct reader_each {
    enum mr_status (*visit)(void *arg, const struct ps_record *record, const uint8_t *bytes);
    void *arg;
    const struct ps_reader *reader;
    bool is_last;
};

static inline enum mr_status reader_each_record(void *arg, const struct ps_record *record,
                                                const uint8_t *bytes)
{
    const struct reader_each *e = arg;
    return ps_record_counts(record->kind, e->is_last) ? e->visit(e->arg, record, bytes) : MR_OK;
}

static inline enum mr_status reader_each_blocks(void *arg, uint32_t link, const uint8_t *const *blocks,
                                                uint32_t count)
{
    struct reader_each *e = arg;
    enum mr_status status = MR_OK;
    e->is_last = ps_reader_chain(e->reader)->links[link]->is_last;
    for (uint32_t i = 0; i < count && status == MR_OK; i++)
        status = ps_block_each(blocks[i], reader_each_record, e);
    return status;
}

/* Visits every record that counts, link by link; each block is verified once more. Stops at the first status
 * that is not MR_OK and returns it; then the visitor fills `text`. */
static inline enum mr_status reader_each(struct ps_reader *r,
                                         enum mr_status (*visit)(void *arg, const struct ps_record *record,
                                                                 const uint8_t *bytes),
                                         void *arg, char *text)
{
    struct reader_each e = {.visit = visit, .arg = arg, .reader = r};
    return ps_reader_blocks(r, 4, 1, reader_each_blocks, &e, text);
}

#endif
