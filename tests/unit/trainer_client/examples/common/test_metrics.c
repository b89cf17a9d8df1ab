/* AUC against its definition, log loss where exp() would overflow. */
#include <math.h>
#include <stdlib.h>
#include "trainer_client/examples/common/metrics.h"
#include "tests/test.h"

/* The share of pairs in the right order, ties half: by comparing each pair. */
static double auc_by_pairs(const float *scores, const float *labels, size_t count)
{
    double won = 0, pairs = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < count; j++) {
            if (labels[i] > 0.5f && labels[j] < 0.5f) {
                pairs += 1;
                won += scores[i] > scores[j] ? 1 : scores[i] < scores[j] ? 0 : 0.5;
            }
        }
    }
    return pairs > 0 ? won / pairs : 0.5;
}

TEST(auc_is_the_share_of_pairs)
{
    unsigned int random = 1;
    for (int round = 0; round < 300; round++) {
        float scores[200], labels[200];
        size_t count = (size_t)rand_r(&random) % 200;
        int levels = 1 + rand_r(&random) % 40; /* few levels: many ties */
        for (size_t i = 0; i < count; i++) {
            labels[i] = (float)(rand_r(&random) % 3 == 0);
            scores[i] = (float)(rand_r(&random) % levels - 5) + (labels[i] > 0 ? 1.0f : 0.0f);
        }
        double expected = auc_by_pairs(scores, labels, count);
        assert_true(fabs(metric_auc(scores, labels, count) - expected) < 1e-12);
    }
}

TEST(auc_at_its_ends)
{
    float scores[4] = {4, 3, 2, 1}, labels[4] = {1, 1, 0, 0};
    assert_true(fabs(metric_auc(scores, labels, 4) - 1) < 1e-12);
    float reversed[4] = {1, 2, 3, 4}, same[4] = {1, 1, 0, 0};
    assert_true(fabs(metric_auc(reversed, same, 4)) < 1e-12);
    assert_true(fabs(metric_auc(scores, labels, 0) - 0.5) < 1e-12);
    float only[2] = {1, 2}, ones[2] = {1, 1};
    assert_true(fabs(metric_auc(only, ones, 2) - 0.5) < 1e-12);
}

TEST(log_loss_is_finite)
{
    assert_true(fabs(metric_log_loss(0, 1) - log(2)) < 1e-12);
    assert_true(fabs(metric_log_loss(2, 1) - log1p(exp(-2))) < 1e-12);
    assert_true(fabs(metric_log_loss(2, 0) - (2 + log1p(exp(-2)))) < 1e-12);
    assert_true(fabs(metric_log_loss(1000, 0) - 1000) < 1e-9);
    assert_true(metric_log_loss(1000, 1) >= 0 && metric_log_loss(1000, 1) < 1e-9);
    assert_true(fabs(metric_log_loss(-1000, 1) - 1000) < 1e-9);
}

TEST(sigmoid_stays_inside)
{
    assert_true(fabsf(metric_sigmoid(0) - 0.5f) < 1e-7f);
    assert_true(metric_sigmoid(-500) >= 0 && metric_sigmoid(-500) < 1e-30f);
    assert_true(metric_sigmoid(500) > 0.999f && metric_sigmoid(500) <= 1);
}
