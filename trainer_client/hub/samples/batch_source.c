#include "trainer_client/hub/samples/batch_source.h"

void hub_batch_source_close(struct hub_batch_source *s)
{
    if (s != NULL)
        s->functions->close(s);
}

const struct hub_sample_file_info *hub_batch_source_info(struct hub_batch_source *s)
{
    return s->functions->info(s);
}

enum mr_status hub_batch_source_check(struct hub_batch_source *s, char *error)
{
    return s->functions->check != NULL ? s->functions->check(s, error) : MR_OK;
}

enum mr_status hub_batch_source_ready(struct hub_batch_source *s, char *error)
{
    return s->functions->ready != NULL ? s->functions->ready(s, error) : MR_OK;
}

bool hub_batch_source_is_live(const struct hub_batch_source *s)
{
    return s->functions->is_live;
}

bool hub_batch_source_can_repeat(const struct hub_batch_source *s)
{
    return s->functions->can_repeat == NULL || s->functions->can_repeat(s);
}

uint32_t hub_batch_source_parts(struct hub_batch_source *s)
{
    return s->functions->parts != NULL ? s->functions->parts(s) : 1;
}

uint64_t hub_batch_source_salt(const struct hub_batch_source *s, uint32_t part)
{
    return s->functions->salt != NULL ? s->functions->salt(s, part) : 0;
}

enum mr_status hub_batch_source_begin(struct hub_batch_source *s, uint32_t part, const uint64_t *known,
                                      uint64_t *data, char *error)
{
    if (s->functions->begin != NULL)
        return s->functions->begin(s, part, known, data, error);
    *data = s->functions->info(s)->digest;
    return MR_OK;
}

enum mr_status hub_batch_source_look(struct hub_batch_source *s, uint32_t part, char *error)
{
    return s->functions->look != NULL ? s->functions->look(s, part, error) : MR_OK;
}

uint64_t hub_batch_source_batches(struct hub_batch_source *s, uint32_t part)
{
    return s->functions->batches(s, part);
}

void hub_batch_source_release(struct hub_batch_source *s, uint32_t part, uint64_t oldest)
{
    if (s->functions->release != NULL)
        s->functions->release(s, part, oldest);
}

uint64_t hub_batch_source_lag(const struct hub_batch_source *s, uint32_t part, uint64_t oldest)
{
    return s->functions->lag != NULL ? s->functions->lag(s, part, oldest) : 0;
}

const char *hub_batch_source_trouble(const struct hub_batch_source *s)
{
    return s->functions->trouble != NULL ? s->functions->trouble(s) : "";
}

void hub_batch_source_finish(struct hub_batch_source *s)
{
    if (s->functions->finish != NULL)
        s->functions->finish(s);
}

enum mr_status hub_batch_source_build(struct hub_batch_source *s, uint32_t part, uint64_t sequence,
                                      struct hub_batch *batch, char *error)
{
    return s->functions->build(s, part, sequence, batch, error);
}
