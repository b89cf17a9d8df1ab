#include "tools/ckpt/ckpt_output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/base/cli.h"
#include "dataplane/wire/format/convert.h"

int ckpt_output_create(struct ckpt_output *o, const char *path)
{
    o->fd = -1;
    const int n = snprintf(o->partial, sizeof(o->partial), "%s.part", path);
    if (n < 0 || n >= (int)sizeof(o->partial))
        return -ENAMETOOLONG;
    (void)snprintf(o->path, sizeof(o->path), "%s", path);
    (void)unlink(o->partial); /* the rest of a run before, or a link that another user made */
    o->fd = open(o->partial, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return o->fd >= 0 ? 0 : -errno;
}

void ckpt_output_discard(struct ckpt_output *o)
{
    if (o->fd < 0)
        return;
    (void)close(o->fd);
    o->fd = -1;
    (void)unlink(o->partial);
}

int ckpt_output_commit(struct ckpt_output *o)
{
    int error = fsync(o->fd) == 0 ? 0 : -errno;
    if (error == 0 && rename(o->partial, o->path) != 0)
        error = -errno;
    if (error != 0) {
        ckpt_output_discard(o);
        return error;
    }
    const int closed = close(o->fd);
    o->fd = -1;
    return closed == 0 ? 0 : -errno;
}

bool ckpt_column_open(struct ckpt_column *c, int fd, bool is_pipe, uint64_t offset)
{
    *c = (struct ckpt_column){.fd = fd, .is_pipe = is_pipe, .offset = offset};
    c->buffer = malloc(CKPT_COLUMN_BYTES);
    return c->buffer != NULL;
}

static void flush(struct ckpt_column *c)
{
    const uint8_t *from = c->buffer;
    while (c->fill > 0 && c->error == 0) {
        const ssize_t n =
            c->is_pipe ? write(c->fd, from, c->fill) : pwrite(c->fd, from, c->fill, (off_t)c->offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            c->error = n < 0 ? -errno : -EIO;
            break;
        }
        from += n;
        c->fill -= (size_t)n;
        c->offset += (uint64_t)n;
    }
    c->fill = 0;
}

void ckpt_column_put(struct ckpt_column *c, const void *bytes, size_t count)
{
    const uint8_t *from = bytes;
    while (count > 0 && c->error == 0) {
        const size_t room = CKPT_COLUMN_BYTES - c->fill, n = count < room ? count : room;
        memcpy(c->buffer + c->fill, from, n);
        c->fill += n;
        from += n;
        count -= n;
        if (c->fill == CKPT_COLUMN_BYTES)
            flush(c);
    }
}

int ckpt_column_close(struct ckpt_column *c)
{
    if (c->buffer)
        flush(c);
    free(c->buffer);
    c->buffer = NULL;
    return c->error;
}

/* ---- lines of text ---- */

int ckpt_text_open(struct ckpt_text *t, const char *command, const char *path)
{
    *t = (struct ckpt_text){.command = command, .path = path, .output.fd = -1};
    const int error = path ? ckpt_output_create(&t->output, path) : 0;
    if (error != 0)
        return cli_fail(command, "create %s: %s", path, strerror(-error));
    (void)signal(SIGPIPE, SIG_IGN);
    if (ckpt_column_open(&t->column, path ? t->output.fd : STDOUT_FILENO, !path, 0))
        return 0;
    ckpt_output_discard(&t->output);
    return cli_fail(command, "no memory");
}

int ckpt_text_close(struct ckpt_text *t, const char *what, const char *failure)
{
    int exit_code = 0;
    int error = ckpt_column_close(&t->column);
    if (error == -EPIPE && !t->path)
        return 0;
    if (error == 0 && failure)
        exit_code = cli_fail(t->command, "%s", failure);
    else if (error == 0 && t->path)
        error = ckpt_output_commit(&t->output);
    if (error != 0)
        exit_code = cli_fail(t->command, "write %s: %s", t->path ? t->path : what, strerror(-error));
    ckpt_output_discard(&t->output);
    return exit_code;
}

/* ---- rows ---- */

static bool is_narrow(enum mr_dtype dtype)
{
    return dtype == MR_F16 || dtype == MR_BF16;
}

void ckpt_fields_of(const struct ckpt_row *row, const char *key_name, bool with_state, bool as_f32,
                    struct ckpt_fields *out)
{
    *out = (struct ckpt_fields){.count = 1};
    out->list[0] = (struct ckpt_field){.name = key_name, .dtype = MR_U64};
    for (uint32_t i = 0; i < (with_state ? row->part_count : 1); i++) {
        const struct ckpt_part *part = &row->parts[i];
        out->list[out->count++] =
            (struct ckpt_field){.name = part->name,
                                .dtype = as_f32 && is_narrow(part->dtype) ? MR_F32 : part->dtype,
                                .columns = part->columns,
                                .part = part};
    }
}

struct writing {
    const struct ckpt_fields *fields;
    struct ckpt_column *columns;
    bool is_interleaved;
    uint64_t rows;
};

static enum mr_status count_rows(void *arg, const struct ckpt_rows *rows)
{
    ((struct writing *)arg)->rows += rows->count;
    return MR_OK;
}

static void put_field(const struct ckpt_field *field, struct ckpt_column *column, uint64_t key,
                      const uint8_t *row)
{
    float expanded[MR_DIM_MAX];
    if (!field->part) {
        ckpt_column_put(column, &key, sizeof(key));
        return;
    }
    const struct ckpt_part *part = field->part;
    if (part->dtype == field->dtype) {
        ckpt_column_put(column, row + part->offset, ckpt_part_bytes(part));
        return;
    }
    mr_convert_to_f32(part->dtype, expanded, row + part->offset, NULL, 1, ckpt_part_elements(part));
    ckpt_column_put(column, expanded, ckpt_part_elements(part) * sizeof(*expanded));
}

static enum mr_status write_rows(void *arg, const struct ckpt_rows *rows)
{
    struct writing *w = arg;
    for (uint32_t i = 0; i < rows->count; i++)
        for (uint32_t field = 0; field < w->fields->count; field++)
            put_field(&w->fields->list[field], &w->columns[w->is_interleaved ? 0 : field], rows->keys[i],
                      rows->rows + (size_t)i * rows->row_bytes);
    w->rows += rows->count;
    for (uint32_t field = 0; field < w->fields->count; field++)
        if (w->columns[w->is_interleaved ? 0 : field].error != 0)
            return MR_IO_ERROR;
    return MR_OK;
}

enum mr_status ckpt_table_each(const struct ckpt_table_source *source, ckpt_visit_rows visit, void *arg,
                               char *text)
{
    struct ckpt_progress progress;
    struct ckpt_live live;
    const struct ps_manifest *m = ps_chain_manifest(&source->chain->files);
    ckpt_progress_begin(&progress, source->what, ps_chain_bytes(&source->chain->files));
    progress.is_on = progress.is_on && !source->is_silent;
    enum mr_status status = ckpt_live_open(&live, source->chain, m->feature_ids[source->index],
                                           source->memory_bytes, &progress, text);
    if (status == MR_OK)
        status = ckpt_live_all(&live, visit, NULL, arg, text);
    ckpt_live_close(&live);
    ckpt_progress_end(&progress);
    return status;
}

enum mr_status ckpt_table_count(const struct ckpt_table_source *source, uint64_t *rows, char *text)
{
    struct writing w = {0};
    enum mr_status status = ckpt_table_each(source, count_rows, &w, text);
    *rows = w.rows;
    return status;
}

enum mr_status ckpt_table_write(const struct ckpt_table_source *source, const struct ckpt_fields *fields,
                                struct ckpt_column *columns, bool is_interleaved, uint64_t row_count,
                                char *text)
{
    struct writing w = {.fields = fields, .columns = columns, .is_interleaved = is_interleaved};
    text[0] = '\0';
    enum mr_status status = ckpt_table_each(source, write_rows, &w, text);
    if (status == MR_OK && w.rows != row_count) {
        (void)snprintf(text, PS_TEXT_BYTES, "%.200s: its files were changed meanwhile",
                       ps_chain_path(&source->chain->files));
        return MR_CHECKPOINT_CORRUPT;
    }
    return status;
}
