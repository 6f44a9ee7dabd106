# SPDX-License-Identifier: Apache-2.0
"""samples/python_server next to its Numba job, both started as in their README."""
import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
from conftest import BIN

SAMPLE = pathlib.Path(__file__).parents[2] / "samples/python_server"
CONTEXT, WIDTH, HIDDEN, CHARACTERS = 8, 24, 64, 96
LATENCY_TARGET_S = 0.1
WAIT_S = 120  # Python with Numba takes long to start on a machine whose cores are busy.


def random_model(path):
    """Writes a random model to `path` and returns its parts."""
    random = np.random.default_rng(3)
    shapes = (CHARACTERS, WIDTH), (CONTEXT * WIDTH, HIDDEN), (HIDDEN,), (HIDDEN, CHARACTERS), (CHARACTERS,)
    parts = [random.normal(size=shape).astype(np.float32) for shape in shapes]
    path.write_bytes(struct.pack("8s4i", b"GSCHAR01", CONTEXT, WIDTH, HIDDEN, CHARACTERS) +
                     b"".join(part.tobytes() for part in parts))
    return parts


def completion(parts, text, count):
    """Returns the model's output, computed with NumPy."""
    embedding, w1, b1, w2, b2 = parts
    for _ in range(count):
        codes = [95 if c == "\n" else ord(c) - 32 for c in text[-CONTEXT:].rjust(CONTEXT)]
        code = int((np.tanh(embedding[codes].reshape(-1) @ w1 + b1) @ w2 + b2).argmax())
        text += "\n" if code == 95 else chr(code + 32)
    return text


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(what, condition):
    """Waits until the condition is true, and returns its value."""
    end = time.monotonic() + WAIT_S
    while not (met := condition()):
        assert time.monotonic() < end, f"{WAIT_S} s have passed and {what}"
        time.sleep(0.1)
    return met


def listens(process, port):
    assert process.poll() is None, process.stderr.read()
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def sample(server, tmp_path):
    """Yields the server's address and its model's parts while it runs."""
    parts, port = random_model(tmp_path / "model"), free_port()
    process = subprocess.Popen([sys.executable, SAMPLE / "server.py", tmp_path / "model", str(port)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        until("the sample does not listen", lambda: listens(process, port))
        yield port, parts
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()


def ask(port, requests):
    """Returns the answers and failures that ask.py prints."""
    said = subprocess.run([sys.executable, SAMPLE / "ask.py", str(requests), "10", str(port)], check=True,
                          capture_output=True, text=True, timeout=WAIT_S).stdout
    return tuple(map(int, re.match(r"(\d+) answers, (\d+) failed: p50", said).groups()))


def of_ps(server, name):
    said = subprocess.run([BIN / "gpusharedctl", "--socket", server.socket, "ps", "--json"], check=True,
                          capture_output=True, text=True).stdout
    return next((entry for entry in json.loads(said)["clients"] if entry["name"] == name), None)


def that_launches(server, name):
    """Returns the client of this name if it has launched some kernels."""
    client = of_ps(server, name)
    return client if client is not None and client.get("launches", 0) > 10 else None


def test_the_server_answers_what_numpy_computes_beside_a_numba_job(server, sample):
    if not os.environ.get("NUMBA_PYTHON"):
        pytest.skip("there is no Numba")
    port, parts = sample
    kept = {key: value for key, value in os.environ.items() if key != "GPUSHARED_SOCKET"}
    job = subprocess.Popen([BIN / "gpusharedctl", "run", "--socket", server.socket, "--class", "low", "--name", "job", "--",
                            os.environ["NUMBA_PYTHON"], SAMPLE / "train_numba.py", "10"], env=kept,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        # The job ends after 10 s, so its row of `ps` is read before the requests are sent.
        theirs = until("the job launches nothing", lambda: that_launches(server, "job"))
        before = of_ps(server, "python_server")["requests"]
        assert ask(port, 20) == (20, 0)
        for text in ("You may", "", "a\nb", "longer than the context of the model"):
            url = f"http://127.0.0.1:{port}/complete?text={urllib.request.quote(text)}"
            assert urllib.request.urlopen(url, timeout=WAIT_S).read().decode() == completion(parts, text, 4)
        ours = of_ps(server, "python_server")
        assert (ours["class"], ours["latency_target_us"]) == ("high", LATENCY_TARGET_S * 1e6)
        # The upload of the model, before the first mark, may count as a request.
        assert 24 <= ours["requests"] - before <= 25
        assert theirs["class"] == "low"
        said, wrong = job.communicate(timeout=WAIT_S)
        assert job.returncode == 0, wrong
        first, last = map(float, re.search(r"loss (\S+) to (\S+)", said).groups())
        assert last < first / 2
    finally:
        job.kill()
        job.wait()


def test_askers_get_the_message_of_a_device_loss(server, sample):
    port, _ = sample
    session = of_ps(server, "python_server")["client"]
    subprocess.run([BIN / "gpusharedctl", "--socket", server.socket, "client", "terminate", str(session)], check=True)
    until("the session has not ended", lambda: of_ps(server, "python_server") is None)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/complete?text=a", timeout=WAIT_S)
    assert caught.value.code == 503 and "DISCONNECTED: session" in caught.value.read().decode()
