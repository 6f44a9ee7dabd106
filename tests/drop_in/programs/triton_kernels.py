# SPDX-License-Identifier: Apache-2.0
"""Triton without torch: its arrays are memory allocated through the driver interface."""
import numpy as np
import triton
import triton.language as tl
from cuda.bindings import driver


def check(answer):
    assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer[0]
    return answer[1] if len(answer) == 2 else None


check(driver.cuInit(0))
check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(0))))))


class Array:
    def __init__(self, values):
        self.values = np.ascontiguousarray(values)
        self.dtype, self.shape = str(self.values.dtype), self.values.shape
        self.address = int(check(driver.cuMemAlloc(self.values.nbytes)))
        check(driver.cuMemcpyHtoD(self.address, self.values.ctypes.data, self.values.nbytes))

    def data_ptr(self):
        return self.address

    def stride(self, i):
        return self.values.strides[i] // self.values.itemsize

    def get(self):
        result = np.empty_like(self.values)
        check(driver.cuMemcpyDtoH(result.ctypes.data, self.address, result.nbytes))
        return result


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def softmax(out, x, stride, n, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + column, mask=column < n, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * stride + column, powers / tl.sum(powers, axis=0), mask=column < n)


@triton.jit
def matmul(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + row[:, None] * K + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * N + column[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + row[:, None] * N + column[None, :], total)


@triton.jit
def flash_attention(q, k, v, out, n, scale, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    first, head = tl.program_id(0) * BM, tl.program_id(1) * n * D
    row, column, inner = first + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    query = tl.load(q + head + row[:, None] * D + inner[None, :])
    highest = tl.full((BM,), -float("inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, first + BM if CAUSAL else n, BN):
        key = tl.load(k + head + (start + column)[None, :] * D + inner[:, None])
        score = tl.dot(query, key) * scale
        if CAUSAL:
            score = tl.where(row[:, None] >= (start + column)[None, :], score, -float("inf"))
        above = tl.maximum(highest, tl.max(score, axis=1))
        power = tl.exp(score - above[:, None])
        shrink = tl.exp(highest - above)
        value = tl.load(v + head + (start + column)[:, None] * D + inner[None, :])
        total = tl.dot(power.to(tl.float16), value, total * shrink[:, None])
        weight = weight * shrink + tl.sum(power, axis=1)
        highest = above
    tl.store(out + head + row[:, None] * D + inner[None, :], total / weight[:, None])


random = np.random.default_rng(0)
x, y, out = Array(np.arange(1000, dtype=np.float32)), Array(np.full(1000, 2, np.float32)), Array(np.zeros(1000, np.float32))
add[(4,)](x, y, out, 1000, BLOCK=256)
assert np.array_equal(out.get(), x.values + y.values)

x, out = Array(random.standard_normal((64, 300), dtype=np.float32)), Array(np.zeros((64, 300), np.float32))
softmax[(64,)](out, x, 300, 300, BLOCK=512)
powers = np.exp(x.values - x.values.max(1, keepdims=True))
assert np.allclose(out.get(), powers / powers.sum(1, keepdims=True), atol=1e-6)

SIZE = 128
a, b = (Array(random.standard_normal((SIZE, SIZE)).astype(np.float16)) for _ in range(2))
c = Array(np.zeros((SIZE, SIZE), np.float32))
matmul[(SIZE // 64, SIZE // 64)](a, b, c, SIZE, SIZE, BM=64, BN=64, BK=32)
assert np.allclose(c.get(), a.values.astype(np.float32) @ b.values.astype(np.float32), atol=1e-2, rtol=1e-2)

HEADS, TOKENS, DEPTH = 2, 128, 64
q, k, v = (Array(random.standard_normal((HEADS, TOKENS, DEPTH)).astype(np.float16)) for _ in range(3))
out = Array(np.zeros((HEADS, TOKENS, DEPTH), np.float32))
for causal in (False, True):
    flash_attention[(TOKENS // 64, HEADS)](q, k, v, out, TOKENS, DEPTH**-0.5, CAUSAL=causal, BM=64, BN=32, D=DEPTH)
    scores = q.values.astype(np.float32) @ k.values.astype(np.float32).transpose(0, 2, 1) * DEPTH**-0.5
    if causal:
        scores = np.where(np.tri(TOKENS, dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(2, keepdims=True))
    attention = powers / powers.sum(2, keepdims=True) @ v.values.astype(np.float32)
    assert np.allclose(out.get(), attention, atol=5e-3), np.abs(out.get() - attention).max()
