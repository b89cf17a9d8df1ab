/* How well scores separate two classes. Pure, any thread. */
#ifndef EXAMPLES_METRICS_H
#define EXAMPLES_METRICS_H

#include <stddef.h>

/* Area under the ROC curve: the share of (positive, negative) pairs in which the positive has the higher
 * score; ties count half. 0.5 when a class is missing. Sorts both arrays by score. Scores are finite, labels
 * 0 or 1. */
double metric_auc(float *scores, float *labels, size_t count);
/* -log of the probability that a logistic model with this score (log odds) gives to the label. No
 * overflow. */
double metric_log_loss(float score, float label);
/* 1 / (1 + exp(-score)) */
float metric_sigmoid(float score);

#endif
