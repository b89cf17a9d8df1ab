#!/usr/bin/env python3
"""Writes lines as Criteo's, with something to learn: a weight for each category of ten slots, and one for
each integer.

usage: criteo_like.py LINES [SEED]
"""
import math
import random
import sys

MISSING_INTEGERS, MISSING_CATEGORIES, CATEGORIES_MAX, SLOTS_THAT_MATTER = 0.2, 0.05, 2000, 10


def line(draw, weights):
    score, integers, categories = -1.2, [], []
    for i in range(13):
        if draw.random() < MISSING_INTEGERS:
            integers.append("")
            continue
        value = int(math.exp(draw.gauss(1.5, 2.0))) if i else draw.randrange(-2, 40)
        integers.append(str(value))
        score += (0.12 if i % 3 == 0 else -0.05) * math.log1p(abs(value))
    for slot in range(26):
        if draw.random() < MISSING_CATEGORIES:
            categories.append("")
            continue
        category = min(int(draw.paretovariate(0.9)), CATEGORIES_MAX)
        if slot < SLOTS_THAT_MATTER:
            score += weights.setdefault((slot, category), draw.gauss(0, 0.45))
        categories.append(f"{(category * 2654435761 + slot) & 0xffffffff:08x}")
    label = int(draw.random() < 1 / (1 + math.exp(-score)))
    return "\t".join([str(label), *integers, *categories])


def main():
    draw, weights = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1), {}
    for _ in range(int(sys.argv[1])):
        print(line(draw, weights))


if __name__ == "__main__":
    main()
