# SPDX-License-Identifier: Apache-2.0
"""PyTorch: a matrix product, a convolution, attention, a training step, and a captured graph."""
import os

from results import bits, near, need

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
(torch,) = need("torch")
functional = torch.nn.functional
torch.backends.cudnn.deterministic = True
torch.manual_seed(1)


def numbers(*shape, dtype=torch.float32):
    return torch.randn(*shape).to("cuda", dtype)


def result(name, tensor):
    bits(name, tensor.detach().cpu().contiguous().numpy())


result("matmul", numbers(512, 512) @ numbers(512, 512))
result("convolution", functional.conv2d(numbers(4, 16, 32, 32), numbers(32, 16, 3, 3), padding=1))
attended = functional.scaled_dot_product_attention(*(numbers(2, 4, 128, 64, dtype=torch.float16) for _ in range(3)))
result("attention", attended)

model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
samples = numbers(64, 256)
for _ in range(5):
    optimizer.zero_grad()
    loss = model(samples).square().mean()
    loss.backward()
    optimizer.step()
near("training", loss.item())

weights, given = numbers(256, 256), numbers(256, 256)
stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    for _ in range(2):
        torch.relu(given @ weights)
torch.cuda.current_stream().wait_stream(stream)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    made = torch.relu(given @ weights)
for _ in range(3):
    given.copy_(torch.tanh(made + 1))
    graph.replay()
torch.cuda.synchronize()
result("graph", made)
