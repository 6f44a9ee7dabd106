# SPDX-License-Identifier: Apache-2.0
"""Samples ten times a second how much device time each client has used.

Usage: demo_watch.py GPUSHAREDCTL

Prints "ready" once. After an input line of BEGIN, SOCKET and FILE, separated by tabs, the program samples the server at
SOCKET from the Unix time BEGIN on. The next line ends the sampling. Then the program writes the samples to FILE and
prints "written". It exits at the end of its input.
"""
import json
import pathlib
import select
import subprocess
import sys
import time

PERIOD_S = 0.1
HOST_STEAL_EVERY = 5  # Number of samples per reading of the host steal.


def ask(ctl, socket, command):
    """Returns the server's answer; None while it does not answer."""
    asked = subprocess.run([ctl, "--socket", socket, command, "--json"], capture_output=True, text=True, check=False)
    return json.loads(asked.stdout) if asked.returncode == 0 else None


def device_seconds(ctl, socket):
    """Returns device seconds by the client's name. A client that is just connecting or leaving has no row."""
    answer = ask(ctl, socket, "ps") or {"clients": []}
    return {client["name"]: client["device_time_s"] for client in answer["clients"] if "device_time_s" in client}


def host_steal_seconds(ctl, socket):
    """Returns for how long the machine kept the device from its work."""
    answer = ask(ctl, socket, "status")
    return answer["devices"][0].get("host_steal_s") if answer and answer["devices"] else None


def is_told(orders, patience_s):
    """Returns whether the next line, or the end of the input, arrives within this many seconds."""
    readable, _, _ = select.select([orders], [], [], patience_s)
    if readable:
        orders.readline()
    return bool(readable)


def watch(orders, ctl, begin, socket):
    patience_s = float(begin) - time.time()
    samples = []
    is_over = patience_s > 0 and is_told(orders, patience_s)  # A phase may fail before its beginning.
    while not is_over:
        host_steal_s = host_steal_seconds(ctl, socket) if len(samples) % HOST_STEAL_EVERY == 0 else None
        samples.append([time.time(), device_seconds(ctl, socket), host_steal_s])
        is_over = is_told(orders, PERIOD_S)
    return samples


def main(ctl):
    print("ready", flush=True)
    # Unbuffered, because select does not see data in a buffer.
    with open(sys.stdin.fileno(), "rb", buffering=0) as orders:
        while order := orders.readline().decode():
            begin, socket, file = order.rstrip("\n").split("\t")
            pathlib.Path(file).write_text(json.dumps(watch(orders, ctl, begin, socket)), encoding="utf-8")
            print("written", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
