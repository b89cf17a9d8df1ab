#include "tools/ckpt/ckpt_parameters.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ps/checkpoint/checkpoint_format.h"
#include "dataplane/wire/format/mr_feature.h"

/* A MANIFEST lists them in this order. */
static int order(const struct ps_saved_parameter *a, const struct ps_saved_parameter *b)
{
    const int by_name = strcmp(a->name, b->name);
    return by_name != 0 ? by_name : strcmp(a->optimizer, b->optimizer);
}

static void pair_up(const struct ps_manifest *a, const struct ps_manifest *b,
                    struct ckpt_parameter_pairs *out)
{
    uint32_t i = 0;
    uint32_t j = 0;
    while (i < a->parameter_count || j < b->parameter_count) {
        struct ckpt_parameter_pair *pair = &out->pairs[out->count++];
        int which = i == a->parameter_count ? 1 : -1;
        if (i < a->parameter_count && j < b->parameter_count)
            which = order(&a->parameters[i], &b->parameters[j]);
        if (which <= 0)
            pair->a = &a->parameters[i++];
        if (which >= 0)
            pair->b = &b->parameters[j++];
    }
}

/* One side's values, summed up whatever the order and the length of its records. */
struct sums {
    const struct ps_saved_parameter *first; /* of the MANIFEST's list */
    struct ckpt_parameter_pairs *pairs;
    uint32_t *pair_of; /* by place in that list */
    bool is_b;
};

static enum mr_status add_record(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    const struct sums *s = arg;
    if (record->kind != PS_RECORD_PARAMETER)
        return MR_OK;
    struct ckpt_parameter_pair *pair = &s->pairs->pairs[s->pair_of[record->feature]];
    uint64_t *sum = s->is_b ? &pair->b_sum : &pair->a_sum;
    for (uint64_t i = 0; i + sizeof(uint32_t) <= record->bytes; i += sizeof(uint32_t)) {
        uint32_t bits;
        memcpy(&bits, bytes + i, sizeof(bits));
        *sum += mr_key_hash(record->offset + i, bits);
    }
    return MR_OK;
}

static enum mr_status sum_up(const struct ckpt_chain *chain, bool is_b, struct ckpt_progress *progress,
                             struct ckpt_parameter_pairs *pairs, char *text)
{
    const struct ps_chain_link *last = ps_chain_part_last(&chain->files, 0);
    const struct ps_manifest *m = ps_chain_manifest(&chain->files);
    struct sums s = {.first = m->parameters, .pairs = pairs, .is_b = is_b};
    if (m->parameter_count == 0)
        return MR_OK;
    s.pair_of = calloc(m->parameter_count, sizeof(*s.pair_of));
    if (!s.pair_of)
        return ps_checkpoint_fail(text, "compare", last->path, -ENOMEM);
    for (uint32_t i = 0; i < pairs->count; i++) {
        const struct ps_saved_parameter *p = is_b ? pairs->pairs[i].b : pairs->pairs[i].a;
        if (p)
            s.pair_of[p - s.first] = i;
    }
    const enum mr_status status = ckpt_link_each(last, add_record, &s, progress, text);
    free(s.pair_of);
    return status;
}

static bool differs(const struct ckpt_parameter_pair *p)
{
    return !p->a || !p->b || p->a->rule != p->b->rule || p->a->rank != p->b->rank ||
           memcmp(p->a->dims, p->b->dims, sizeof(p->a->dims)) != 0 || p->a->step != p->b->step ||
           p->a_sum != p->b_sum;
}

enum mr_status ckpt_parameters_compare(const struct ckpt_chain *a, const struct ckpt_chain *b,
                                       struct ckpt_progress *progress, struct ckpt_parameter_pairs *out,
                                       char *text)
{
    const struct ps_manifest *ma = ps_chain_manifest(&a->files);
    const struct ps_manifest *mb = ps_chain_manifest(&b->files);
    *out = (struct ckpt_parameter_pairs){0};
    out->pairs = calloc(ma->parameter_count + mb->parameter_count + 1u, sizeof(*out->pairs));
    if (!out->pairs)
        return ps_checkpoint_fail(text, "compare", ps_chain_path(&a->files), -ENOMEM);
    pair_up(ma, mb, out);
    enum mr_status status = sum_up(a, false, progress, out, text);
    if (status == MR_OK)
        status = sum_up(b, true, progress, out, text);
    for (uint32_t i = 0; i < out->count; i++)
        out->pairs[i].differs = differs(&out->pairs[i]);
    return status;
}

void ckpt_parameters_free(struct ckpt_parameter_pairs *pairs)
{
    free(pairs->pairs);
    *pairs = (struct ckpt_parameter_pairs){0};
}
