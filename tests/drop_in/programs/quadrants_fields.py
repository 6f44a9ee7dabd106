# SPDX-License-Identifier: Apache-2.0
"""Quadrants: a field filled by a kernel, and the sum of its elements."""
import numpy
import quadrants as qd

COUNT = 1000
qd.init(arch=qd.cuda)
waves = qd.field(qd.f32, shape=COUNT)


@qd.kernel
def fill():
    for i in waves:
        waves[i] = qd.sin(i * 0.1)


@qd.kernel
def energy() -> qd.f32:
    total = 0.0
    for i in waves:
        total += waves[i] * waves[i]
    return total


fill()
expected = numpy.sin(numpy.arange(COUNT) * 0.1)
numpy.testing.assert_allclose(waves.to_numpy(), expected, atol=1e-5)
numpy.testing.assert_allclose(energy(), numpy.square(expected).sum(), rtol=1e-4)
