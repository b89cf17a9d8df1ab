/* How long this core's calls have taken. */
#include "ps/ops/ops.h"

struct latency_visit {
    uint32_t histograms, buckets;
    uint32_t (*whose)[MR_LATENCY_WORDS]; /* NULL: only counts */
    uint64_t (*sums)[MR_LATENCY_SUM_WORDS];
    uint32_t *begins;
    uint64_t *counts;
    uint16_t *bucket;
};

static void visit_histogram(struct latency_visit *v, uint32_t op, uint32_t phase,
                            const struct mr_histogram *h)
{
    if (v->whose != NULL) {
        v->whose[v->histograms][MR_LATENCY_OP] = op;
        v->whose[v->histograms][MR_LATENCY_PHASE] = phase;
        v->sums[v->histograms][MR_LATENCY_SUM_NS] = h->sum_ns;
        v->sums[v->histograms][MR_LATENCY_SUM_MAX_NS] = h->max_ns;
        v->begins[v->histograms] = v->buckets;
    }
    for (uint32_t i = 0; i < MR_HISTOGRAM_BUCKETS; i++) {
        if (h->buckets[i] == 0)
            continue;
        if (v->whose != NULL) {
            v->bucket[v->buckets] = (uint16_t)i;
            v->counts[v->buckets] = h->buckets[i];
        }
        v->buckets++;
    }
    v->histograms++;
}

static void visit_all(const struct mr_endpoint *ep, struct latency_visit *v)
{
    for (uint32_t op = 0; op < MR_OP_COUNT; op++) {
        for (uint32_t phase = 0; phase < MR_LATENCY_PHASES; phase++) {
            const struct mr_histogram *h = mr_endpoint_latency(ep, op, (enum mr_latency_phase)phase);
            if (h != NULL)
                visit_histogram(v, op, phase, h);
        }
    }
}

void ps_op_latency(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct latency_visit v = {0};
    visit_all(ep, &v);
    struct mr_tensor tensors[5] = {
        mr_body_rows(MR_BODY_LATENCY, v.histograms, NULL),
        mr_body_rows(MR_BODY_LATENCY_SUM, v.histograms, NULL), mr_tensor_1d(MR_U32, v.histograms + 1, NULL),
        mr_tensor_1d(MR_U16, v.buckets, NULL), mr_tensor_1d(MR_U64, v.buckets, NULL)};
    if (!ps_reply_begin(ep, request, tensors, 5))
        return;
    v = (struct latency_visit){.whose = tensors[0].data,
                               .sums = tensors[1].data,
                               .begins = tensors[2].data,
                               .bucket = tensors[3].data,
                               .counts = tensors[4].data};
    visit_all(ep, &v);
    v.begins[v.histograms] = v.buckets;
    mr_reply_end(ep, request->ref);
}
