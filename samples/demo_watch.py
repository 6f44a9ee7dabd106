# SPDX-License-Identifier: Apache-2.0
"""Notes ten times a second how much time each client has had on the device.

Usage: demo_watch.py GPUSHAREDCTL SOCKET FILE

Says a line when it is ready, and reads one with the Unix time at which to begin. Ends when its input does.
"""
import json
import pathlib
import select
import subprocess
import sys
import time

PERIOD_S = 0.1
HOST_DELAY_EVERY = 5  # Samples.


def ask(ctl, socket, command):
    """The server's answer; None while it does not answer."""
    asked = subprocess.run([ctl, "--socket", socket, command, "--json"], capture_output=True, text=True, check=False)
    return json.loads(asked.stdout) if asked.returncode == 0 else None


def device_seconds(ctl, socket):
    """By the name of the client. A client that is just coming or going has none."""
    answer = ask(ctl, socket, "ps") or {"clients": []}
    return {client["name"]: client["device_time_s"] for client in answer["clients"] if "device_time_s" in client}


def host_delay_seconds(ctl, socket):
    """For how long the machine kept the device from its work."""
    answer = ask(ctl, socket, "status")
    return answer["devices"][0].get("host_delay_s") if answer and answer["devices"] else None


def has_ended(patience_s):
    """Whether the input ends within so many seconds."""
    readable, _, _ = select.select([sys.stdin], [], [], patience_s)
    return bool(readable) and not sys.stdin.read(1)


def main(ctl, socket, file):
    print("ready", flush=True)
    patience_s = float(sys.stdin.readline()) - time.time()
    samples = []
    is_over = patience_s > 0 and has_ended(patience_s)  # A phase may fail before it has begun.
    while not is_over:
        host_delay_s = host_delay_seconds(ctl, socket) if len(samples) % HOST_DELAY_EVERY == 0 else None
        samples.append([time.time(), device_seconds(ctl, socket), host_delay_s])
        is_over = has_ended(PERIOD_S)
    pathlib.Path(file).write_text(json.dumps(samples), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
