# SPDX-License-Identifier: Apache-2.0
"""Notes ten times a second how much time each client has had on the device, until SIGTERM.

Usage: demo_watch.py GPUSHAREDCTL SOCKET FILE
"""
import json
import pathlib
import signal
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


def main(ctl, socket, file):
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    samples = []
    while not ended:
        host_delay_s = host_delay_seconds(ctl, socket) if len(samples) % HOST_DELAY_EVERY == 0 else None
        samples.append([time.time(), device_seconds(ctl, socket), host_delay_s])
        time.sleep(PERIOD_S)
    pathlib.Path(file).write_text(json.dumps(samples), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
