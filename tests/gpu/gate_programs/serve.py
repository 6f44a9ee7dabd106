# SPDX-License-Identifier: Apache-2.0
"""PyTorch: requests to a network like ResNet-50, eagerly and as a CUDA graph.

Answers the commands of phases.py with the modes `eager` and `graph`: the latency of each request since it was due, the
time that it took, and when it ended.
"""
import gc
import random
import time

import phases
from results import need

(torch,) = need("torch")
nn, functional = torch.nn, torch.nn.functional

DEPTHS = (3, 4, 6, 3)  # Bottleneck blocks of each stage.
WARM_UP = 5
SPIN_S = 0.0005  # Longer than the delay with which a sleep ends.


def convolution(inputs, outputs, size, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False),
                         nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.narrow, self.wide = convolution(inputs, width, 1), convolution(width, outputs, 1)
        self.middle = convolution(width, width, 3, stride)
        self.shortcut = convolution(inputs, outputs, 1, stride) if inputs != outputs else nn.Identity()

    def forward(self, x):
        y = functional.relu(self.middle(functional.relu(self.narrow(x))))
        return functional.relu(self.wide(y) + self.shortcut(x))


def make_network(classes=1000):
    layers, inputs = [convolution(3, 64, 7, stride=2), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)], 64
    for stage, depth in enumerate(DEPTHS):
        width = 64 << stage
        for block in range(depth):
            layers.append(Bottleneck(inputs, width, stride=2 if stage and not block else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class Server:
    def __init__(self, options):
        self.options = options
        self.network = self.host = self.images = self.graph = self.scores = None

    def prepare(self):
        torch.manual_seed(1)
        layout = {"dtype": torch.float16, "memory_format": torch.channels_last}
        self.network = make_network().eval().to(device="cuda", **layout)
        self.host = torch.randn(self.options.batch, 3, 224, 224).to(**layout).pin_memory()
        self.images = torch.empty_like(self.host, device="cuda")
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.eager()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(self.graph):
            self.scores = self.network(self.images)
        for request in (self.eager, self.replay):
            for _ in range(WARM_UP):
                request()
        gc.collect()
        gc.disable()  # A collection amid a request would count as its latency.
        return {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "mps": phases.mps_clients()}

    def eager(self):
        with torch.inference_mode():
            self.images.copy_(self.host, non_blocking=True)
            return self.network(self.images).argmax(1).cpu()

    def replay(self):
        with torch.inference_mode():
            self.images.copy_(self.host, non_blocking=True)
            self.graph.replay()
            return self.scores.argmax(1).cpu()

    def run(self, phase, request):
        """Serves requests at times that are the same in each phase, whether or not the earlier ones are done."""
        chance = random.Random(1)
        latencies, times, ends = [], [], []
        due = phase.begin
        while phase.goes_on():
            due += self.options.every_ms / 1000 * chance.uniform(0.8, 1.2)
            time.sleep(max(0.0, due - SPIN_S - time.monotonic()))
            while time.monotonic() < due:
                pass
            begin = time.monotonic()
            request()
            end = time.monotonic()
            latencies.append(1000 * (end - due))
            times.append(1000 * (end - begin))
            ends.append(end)
        return {"latencies_ms": latencies, "times_ms": times, "ends": ends}


def add_options(parser):
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--every-ms", type=float, default=25, help="mean time from one request to the next")


def main():
    server = Server(phases.parse_arguments(__doc__, add_options))
    phases.answer_commands(server.prepare, {"eager": lambda phase: server.run(phase, server.eager),
                                            "graph": lambda phase: server.run(phase, server.replay)})


if __name__ == "__main__":
    main()
