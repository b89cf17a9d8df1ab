#!/usr/bin/env python3
"""What logistic regression reaches on the census data (trainer_client/examples/data/a9a.libsvm.xz) with the
hub's split.

usage: /usr/bin/python3 tests/quality/reference_a9a.py     needs python3-sklearn; prints a line of JSON

tests/integration/trainer/test_a9a.c holds our own training to these figures:
  {"auc": 0.9014, "logloss": 0.3278, "samples": 6476, "train_samples": 26085, "positive_share": 0.2409, "c":
  0.3}
C is chosen on the training part alone, by five-fold cross-validation of the log loss.
"""
import json
import lzma
import pathlib

import numpy
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss, roc_auc_score

SEED, HELD_OUT_SHARE = 1, 0.2
SPLIT_SALT = 0x73706C6974
MASK = (1 << 64) - 1
DATA = pathlib.Path(__file__).parents[2] / "trainer_client/examples/data/a9a.libsvm.xz"


def mix(a, b):
    """hub_mix() of trainer_client/hub/samples/permutation.c."""
    h = (a * 0x9E3779B97F4A7C15 + b + 0x632BE59BD9B4E019) & MASK
    for _ in range(2):
        h ^= h >> 33
        h = h * 0xFF51AFD7ED558CCD & MASK
        h ^= h >> 33
        h = h * 0xC4CEB9FE1A85EC53 & MASK
        h ^= h >> 33
        h = (h + b) & MASK
    return h


def is_held_out(line_number):
    """hub_is_held_out(); lines count from 1."""
    return (mix(SEED ^ SPLIT_SALT, line_number) >> 11) * 2.0**-53 < HELD_OUT_SHARE


def read():
    labels, rows, columns, held_out = [], [], [], []
    with lzma.open(DATA, "rt") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            for word in words[1:]:
                index, value = word.split(":")
                assert value == "1"
                rows.append(len(labels))
                columns.append(int(index))
            labels.append(float(words[0]) > 0)
            held_out.append(is_held_out(number))
    x = csr_matrix((numpy.ones(len(rows)), (rows, columns)), shape=(len(labels), max(columns) + 1))
    return x, numpy.array(labels), numpy.array(held_out)


def main():
    x, y, held_out = read()
    train = ~held_out
    model = LogisticRegressionCV(
        Cs=[0.03, 0.1, 0.3, 1, 3, 10], cv=5, scoring="neg_log_loss", solver="liblinear"
    )
    model.fit(x[train], y[train])
    p = model.predict_proba(x[held_out])[:, 1]
    print(
        json.dumps(
            {
                "auc": round(roc_auc_score(y[held_out], p), 4),
                "logloss": round(log_loss(y[held_out], p), 4),
                "samples": int(held_out.sum()),
                "train_samples": int(train.sum()),
                "positive_share": round(float(y[held_out].mean()), 4),
                "c": float(model.C_[0]),
            }
        )
    )


if __name__ == "__main__":
    main()
