# SPDX-License-Identifier: Apache-2.0
"""PyTorch: training steps of a small language model, whole steps as CUDA graphs, or long kernels, back to back.

Answers the commands of phases.py with the modes `step`, `graph` and `kernel`: when each step has ended on the GPU.
"""
import time

import phases
from results import need

(torch,) = need("torch")
functional = torch.nn.functional

WARM_UP = 3
KERNEL_MS = 20
SIZE_OF_FIRST, SIZE_STEP, SIZE_MAX = 8192, 256, 32768  # Rows and columns of a matrix.


def make_step(layers, width, tokens, batch, words, device, **options):
    """Returns a function that trains a GPT-like model for one step. `options`: of the optimizer."""

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.attention_in, self.attention_out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.wide, self.narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def forward(self, x):
            heads = [part.view(batch, tokens, -1, 64).transpose(1, 2)
                     for part in self.attention_in(self.norm1(x)).split(width, dim=2)]
            attended = functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.attention_out(attended.transpose(1, 2).reshape(batch, tokens, width))
            return x + self.narrow(functional.gelu(self.wide(self.norm2(x))))

    model = torch.nn.Sequential(torch.nn.Embedding(words, width), *(Block() for _ in range(layers)),
                                torch.nn.LayerNorm(width), torch.nn.Linear(width, words)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    text = torch.randint(words, (batch, tokens + 1), device=device)

    def step():
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def make_training_step(**options):
    step = make_step(layers=12, width=768, tokens=1024, batch=8, words=50304, device="cuda", **options)
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    return step


def make_graph():
    """Returns a function that launches a whole training step as one graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step = make_training_step(capturable=True)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay


def make_product(size):
    factor = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    product = torch.empty_like(factor)
    return lambda: torch.mm(factor, factor, out=product)


def milliseconds(action):
    """Returns the best of three times."""
    times = []
    for _ in range(3):
        torch.cuda.synchronize()
        begin = time.monotonic()
        action()
        torch.cuda.synchronize()
        times.append(1000 * (time.monotonic() - begin))
    return min(times)


def make_kernel():
    """Returns a function that multiplies matrices in one kernel of about KERNEL_MS."""
    size = SIZE_OF_FIRST * (KERNEL_MS / milliseconds(make_product(SIZE_OF_FIRST))) ** (1 / 3)
    return make_product(min(SIZE_MAX, max(SIZE_STEP, round(size / SIZE_STEP) * SIZE_STEP)))


MAKE = {"step": make_training_step, "graph": make_graph, "kernel": make_kernel}


class Trainer:
    def __init__(self, modes):
        self.modes = modes
        self.steps, self.errors = {}, {}

    def prepare(self):
        """Prepares all modes. A mode that cannot be prepared does not affect the others."""
        torch.manual_seed(1)
        for mode in self.modes:
            try:
                self.steps[mode] = MAKE[mode]()
            except Exception as error:  # pylint: disable=broad-exception-caught
                self.errors[mode] = f"{type(error).__name__}: {error}"
        return {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "mps": phases.mps_clients(),
                "step_ms": {mode: milliseconds(step) for mode, step in self.steps.items()}, "errors": self.errors}

    def run(self, phase, mode):
        if mode not in self.steps:
            raise RuntimeError(self.errors.get(mode, "was not prepared"))
        # The processor is one step ahead, as in a loop that reads the loss of the step before.
        events = [torch.cuda.Event(), torch.cuda.Event()]
        ends, launched = [], 0
        while phase.goes_on():
            self.steps[mode]()
            events[launched % 2].record()
            launched += 1
            if launched > 1:
                events[launched % 2].synchronize()
                ends.append(time.monotonic())
        torch.cuda.synchronize()
        if launched:
            ends.append(time.monotonic())
        return {"ends": ends}


def add_options(parser):
    parser.add_argument("--modes", default="step", help=f"modes to prepare: {', '.join(MAKE)}")


def main():
    trainer = Trainer(phases.parse_arguments(__doc__, add_options).modes.split(","))
    phases.answer_commands(trainer.prepare, {mode: lambda phase, mode=mode: trainer.run(phase, mode) for mode in MAKE})


if __name__ == "__main__":
    main()
