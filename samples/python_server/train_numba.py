# SPDX-License-Identifier: Apache-2.0
"""Logistic regression by gradient descent: a training job for Numba on CUDA that is unaware of gpushared.

Usage: gpusharedctl run --class low -- python train_numba.py [SECONDS]
"""
import math
import sys
import time

import numpy as np
from numba import config, cuda

config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
ROWS, FEATURES, RATE = 8192, 16, np.float32(0.5)


@cuda.jit
def add_gradient(rows, labels, weights, gradient, loss):
    row = cuda.grid(1)
    score = np.float32(0)
    for i in range(FEATURES):
        score += rows[row, i] * weights[i]
    probability = np.float32(1) / (np.float32(1) + math.exp(-score))
    error = probability - labels[row]
    for i in range(FEATURES):
        cuda.atomic.add(gradient, i, error * rows[row, i])
    cuda.atomic.add(loss, 0, -math.log(max(np.float32(1e-6), np.float32(1) - abs(error))))


@cuda.jit
def descend(weights, gradient):
    i = cuda.threadIdx.x
    weights[i] -= RATE * gradient[i] / np.float32(ROWS)
    gradient[i] = np.float32(0)


def main(seconds="20"):
    random = np.random.default_rng(1)
    points = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
    labels = (points @ random.normal(size=FEATURES) > 0).astype(np.float32)
    rows, targets = cuda.to_device(points), cuda.to_device(labels)
    weights, gradient = (cuda.to_device(np.zeros(FEATURES, np.float32)) for _ in range(2))
    losses, steps, end = [], 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        loss = cuda.to_device(np.zeros(1, np.float32))
        for _ in range(10):
            add_gradient[ROWS // 128, 128](rows, targets, weights, gradient, loss)
            descend[1, FEATURES](weights, gradient)
        losses.append(float(loss.copy_to_host()[0]) / ROWS / 10)
        steps += 10
    print(f"{steps / float(seconds):.1f} steps/s, loss {losses[0]:.3f} to {losses[-1]:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
