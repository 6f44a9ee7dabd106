# SPDX-License-Identifier: Apache-2.0
"""Triton: a kernel that adds."""
from results import bits, need

(torch, triton) = need("torch", "triton")
tl = triton.language


@triton.jit
def add(a, b, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    tl.store(out + places, tl.load(a + places, mask=mask) + tl.load(b + places, mask=mask), mask=mask)


torch.manual_seed(1)
COUNT = 100_000
first, second = torch.randn(COUNT).cuda(), torch.randn(COUNT).cuda()
total = torch.empty_like(first)
add[(triton.cdiv(COUNT, 1024),)](first, second, total, COUNT, BLOCK=1024)
assert torch.equal(total, first + second)
bits("sum", total.cpu().numpy())
