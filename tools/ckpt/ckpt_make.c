#include "tools/ckpt/ckpt_make.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/store/store_url.h"

#define PENDING_ROWS  256u
#define PENDING_BYTES (64u << 10)
#define NAP_NS        50000L

/* Rows of one table, to go out as one record. */
struct ckpt_make_core {
    uint32_t feature, row_bytes, count;
    uint64_t keys[PENDING_ROWS];
    uint8_t rows[PENDING_BYTES];
};

static_assert(PENDING_BYTES >= (3 * MR_DIM_MAX + 8) * sizeof(float), "the largest row fits");

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

enum mr_status ckpt_make_start(struct ckpt_make *make, struct ps_writer_options *options, char *text)
{
    *make = (struct ckpt_make){.core_count = options->core_count};
    if (ps_store_url_is_remote(options->directory)) {
        ps_text_path(text, options->directory,
                     "checkpoints are made on this machine's disk; millrace ckpt pull and push copy them");
        return MR_INVALID_ARGUMENT;
    }
    options->buffers_per_core = CKPT_MAKE_BUFFERS;
    make->cores = calloc(make->core_count, sizeof(*make->cores));
    if (!make->cores)
        return ps_checkpoint_fail(text, "save to", options->directory, -ENOMEM);
    enum mr_status status = ps_checkpoint_lock(options->directory, "millrace ckpt", &make->lock, text);
    if (status == MR_OK)
        status = ps_writer_start(NULL, options, &make->writer, text);
    if (status != MR_OK) {
        ps_checkpoint_unlock(make->lock);
        free(make->cores);
    }
    return status;
}

static uint8_t *append(struct ckpt_make *make, uint32_t core, const struct ps_record *record)
{
    uint8_t *to;
    while (!(to = ps_writer_append(make->writer, core, record)) && !ps_writer_failed(make->writer))
        nap();
    return to;
}

bool ckpt_make_record(struct ckpt_make *make, uint32_t core, const struct ps_record *record,
                      const uint8_t *bytes)
{
    uint8_t *to = append(make, core, record);
    if (to)
        memcpy(to, bytes, record->bytes);
    return to != NULL;
}

static bool flush(struct ckpt_make *make, uint32_t core)
{
    struct ckpt_make_core *c = &make->cores[core];
    if (c->count == 0)
        return true;
    const uint64_t keys_bytes = c->count * sizeof(*c->keys), rows_bytes = (uint64_t)c->count * c->row_bytes;
    const struct ps_record record = {.kind = PS_RECORD_ROWS,
                                     .feature = c->feature,
                                     .count = c->count,
                                     .row_bytes = c->row_bytes,
                                     .bytes = keys_bytes + rows_bytes};
    uint8_t *to = append(make, core, &record);
    if (!to)
        return false;
    memcpy(to, c->keys, keys_bytes);
    memcpy(to + keys_bytes, c->rows, rows_bytes);
    c->count = 0;
    return true;
}

bool ckpt_make_rows(struct ckpt_make *make, const struct ckpt_rows *rows)
{
    for (uint32_t i = 0; i < rows->count; i++) {
        const uint32_t core = (uint32_t)(ckpt_place(rows->keys[i]) * make->core_count >> 32);
        struct ckpt_make_core *c = &make->cores[core];
        const bool is_full = c->count == PENDING_ROWS || (c->count + 1) * rows->row_bytes > PENDING_BYTES;
        if ((is_full || c->feature != rows->feature) && !flush(make, core))
            return false;
        c->feature = rows->feature;
        c->row_bytes = rows->row_bytes;
        c->keys[c->count] = rows->keys[i];
        memcpy(c->rows + (size_t)c->count * rows->row_bytes, rows->rows + (size_t)i * rows->row_bytes,
               rows->row_bytes);
        c->count++;
    }
    return true;
}

enum mr_status ckpt_make_finish(struct ckpt_make *make, bool publish, uint64_t *bytes, char *text)
{
    struct ps_writer_status status;
    for (uint32_t core = 0; core < make->core_count && publish; core++)
        publish = flush(make, core) || ps_writer_failed(make->writer);
    if (!publish)
        ps_writer_abort(make->writer);
    for (uint32_t core = 0; core < make->core_count && publish; core++)
        ps_writer_core_done(make->writer, core);
    for (ps_writer_status(make->writer, &status); !status.done; ps_writer_status(make->writer, &status))
        nap();
    ps_writer_finish(make->writer);
    ps_checkpoint_unlock(make->lock);
    free(make->cores);
    if (bytes)
        *bytes = status.bytes_written;
    if (!publish || status.status == MR_OK)
        return MR_OK;
    memcpy(text, status.text, sizeof(status.text));
    return status.status;
}
