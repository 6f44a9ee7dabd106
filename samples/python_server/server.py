# SPDX-License-Identifier: Apache-2.0
"""Completes text with the language model of these samples: an inference server with a latency target.

Usage: server.py MODEL [PORT]; then http://127.0.0.1:8080/complete?text=You+may
"""
import asyncio
import concurrent.futures
import pathlib
import sys
import time

import gpushared
import numpy as np
from aiohttp import web

LATENCY_TARGET_S, ANSWER_CHARACTERS = 0.1, 4
ALPHABET = "".join(map(chr, range(32, 127))) + "\n"  # The model's alphabet; it reads any other character as a space.
KERNELS = pathlib.Path(__file__).parents[1] / "kernels/language_model.ptx"


class Model:
    """The model in device memory, for one text at a time; used by a single thread."""

    def __init__(self, client, path):
        self.context, width, self.hidden, characters = map(int, np.fromfile(path, np.int32, 6)[2:])
        self.inputs, self.width, self.outputs = self.context * width, width, characters
        sizes = characters * width, self.inputs * self.hidden, self.hidden, self.hidden * characters, characters
        ends, all_parameters = np.cumsum(sizes), client.to_device(np.fromfile(path, np.float32, offset=24))
        self.embedding, self.w1, self.b1, self.w2, self.b2 = (all_parameters[e - n:e] for e, n in zip(ends, sizes))
        self.codes = client.allocate(self.context, np.int32)
        self.x, self.h, self.p = (client.allocate(n, np.float32) for n in (self.inputs, self.hidden, characters))
        self.stream, self.kernels = client.create_stream(), client.load_module_file(KERNELS)

    def launch(self, kernel, grid, block, *arguments):
        values = [np.int32(value) if isinstance(value, int) else value for value in arguments]
        self.stream.launch(self.kernels[kernel], grid, block, *values)

    def layer(self, x, weights, bias, y, inputs, outputs, add_bias):
        self.launch("multiply", -(-outputs // 16), (16, 16), x, weights, y, 1, outputs, inputs)
        self.launch(add_bias, -(-outputs // 128), 128, y, bias, outputs, outputs)

    def next_character(self, text):
        codes = [max(ALPHABET.find(character), 0) for character in text.rjust(self.context)[-self.context:]]
        self.stream.copy_to_device(self.codes, np.array(codes, np.int32))
        self.launch("embed", -(-self.inputs // 128), 128, self.embedding, self.codes, self.x, self.inputs, self.width)
        self.layer(self.x, self.w1, self.b1, self.h, self.inputs, self.hidden, "add_bias_tanh")
        self.layer(self.h, self.w2, self.b2, self.p, self.hidden, self.outputs, "add_bias")
        return ALPHABET[self.stream.copy_to_host(self.p).argmax()]

    def complete(self, text, arrived):
        with self.stream.request(age_s=time.monotonic() - arrived):  # The latency target applies to this block.
            for _ in range(ANSWER_CHARACTERS):
                text += self.next_character(text)
        return text


def main(model_path, port="8080"):
    with gpushared.connect(name="python_server", scheduling_class="high", latency_target_s=LATENCY_TARGET_S) as client:
        model, device_thread = Model(client, model_path), concurrent.futures.ThreadPoolExecutor(1)

        async def complete(request):
            work = model.complete, request.query.get("text", ""), time.monotonic()
            try:
                return web.Response(text=await asyncio.get_running_loop().run_in_executor(device_thread, *work))
            except gpushared.Error as error:
                return web.Response(status=503, text=f"{error.code.name}: {error}")

        app = web.Application()
        app.add_routes([web.get("/complete", complete)])
        web.run_app(app, host="127.0.0.1", port=int(port))


if __name__ == "__main__":
    main(*sys.argv[1:])
