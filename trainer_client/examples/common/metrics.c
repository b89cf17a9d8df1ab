#include "trainer_client/examples/common/metrics.h"

#include <math.h>

static void swap(float *a, float *b)
{
    float t = *a;
    *a = *b;
    *b = t;
}

static void sift_down(float *scores, float *labels, size_t root, size_t count)
{
    for (size_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
        if (child + 1 < count && scores[child + 1] > scores[child])
            child++;
        if (scores[root] >= scores[child])
            return;
        swap(&scores[root], &scores[child]);
        swap(&labels[root], &labels[child]);
        root = child;
    }
}

/* Heapsort: two arrays in step, in place. */
static void sort_by_score(float *scores, float *labels, size_t count)
{
    for (size_t i = count / 2; i-- > 0;)
        sift_down(scores, labels, i, count);
    for (size_t last = count; last-- > 1;) {
        swap(&scores[0], &scores[last]);
        swap(&labels[0], &labels[last]);
        sift_down(scores, labels, 0, last);
    }
}

double metric_auc(float *scores, float *labels, size_t count)
{
    double pairs_won = 0, negatives = 0, positives = 0;
    sort_by_score(scores, labels, count);
    for (size_t begin = 0, end; begin < count; begin = end) {
        double tied_positives = 0, tied_negatives = 0;
        for (end = begin; end < count && scores[end] <= scores[begin]; end++)
            *(labels[end] > 0.5f ? &tied_positives : &tied_negatives) += 1;
        pairs_won += tied_positives * (negatives + tied_negatives / 2);
        positives += tied_positives;
        negatives += tied_negatives;
    }
    return positives > 0 && negatives > 0 ? pairs_won / (positives * negatives) : 0.5;
}

double metric_log_loss(float score, float label)
{
    /* log(1 + exp(-m)) for the margin m, from the side where exp() cannot overflow. */
    double margin = label > 0.5f ? (double)score : -(double)score;
    return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
}

float metric_sigmoid(float score)
{
    return 1.0f / (1.0f + expf(-score));
}
