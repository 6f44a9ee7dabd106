# SPDX-License-Identifier: Apache-2.0
"""PyTorch: a small function with torch.compile, and the allocator's expandable segments (virtual memory management)."""
import os

from results import near, need

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
(torch, _triton) = need("torch", "triton")
torch.manual_seed(1)


@torch.compile
def function(a, b):
    return (torch.sin(a) * b).softmax(dim=-1).square().sum()


near("compiled", function(torch.randn(256, 512).cuda(), torch.randn(256, 512).cuda()).item())
