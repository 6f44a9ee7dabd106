# SPDX-License-Identifier: Apache-2.0
"""Scrapes /metrics next to a local user who opens and keeps 450 connections a second: every scrape must be answered.

If the test runs as root, the storm runs as the user nobody, and a second storm, which reads all streams, must not keep
a page from receiving events.

Usage: storm_test.py DIRECTORY_OF_PROGRAMS
"""
import collections
import contextlib
import multiprocessing
import os
import resource
import socket
import sys
import time
import urllib.error

from prometheus import Observed, get

SCRAPES, SCRAPE_PERIOD_S = 45, 0.1
RATE, KEPT_S = 450, 2.0
STREAMS = 40
NOBODY = 65534
# The requested path, and whether the client does not read the answer.
STORMS = {"lingers": ("/healthz", False), "does not read": ("/metrics", True), "asks the server": ("/api/explain?client=1", False),
          "is silent": (None, False)}


def become_another_user():
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connect(address, path, is_narrow=False):
    host, port = address.split(":")
    client = socket.socket()
    if is_narrow:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((host, int(port)))
    if path:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return client


def storm(address, path, is_narrow, opened):
    become_another_user()
    kept, begun = collections.deque(), time.monotonic()
    while True:
        now = time.monotonic()
        while opened.value < (now - begun) * RATE:
            opened.value += 1
            with contextlib.suppress(OSError):
                kept.append((now, connect(address, path, is_narrow)))
        while kept and kept[0][0] < now - KEPT_S:
            kept.popleft()[1].close()
        time.sleep(0.005)


def take_streams(address, _path, _is_narrow, opened):
    become_another_user()
    kept = []
    for _ in range(STREAMS):
        kept.append(connect(address, "/events"))
        kept[-1].recv(1)  # Waits until the request has been answered or rejected.
        opened.value += 1
    time.sleep(600)


@contextlib.contextmanager
def beside(deed, address, path=None, is_narrow=False, least=RATE):
    """Runs the block while a process of another user runs `deed`, once it has opened `least` connections."""
    fork = multiprocessing.get_context("fork")
    opened = fork.Value("l", 0)
    other = fork.Process(target=deed, args=(address, path, is_narrow, opened), daemon=True)
    other.start()
    try:
        while opened.value < least:
            if not other.is_alive():
                sys.exit("the storm has ended by itself")
            time.sleep(0.01)
        yield opened
    finally:
        other.kill()
        other.join()


def scrape(address):
    try:
        return b"gpushared_sessions" in get(f"http://{address}/metrics")
    except (OSError, urllib.error.URLError):
        return False


def answered(address):
    count = 0
    for _ in range(SCRAPES):
        count += scrape(address)
        time.sleep(SCRAPE_PERIOD_S)
    return count


def has_events(address):
    with connect(address, "/events") as client:
        client.settimeout(30)
        told = b""
        while part := client.recv(65536):
            told += part
            if b"\ndata: " in told:
                return True
    return False


def main():
    failures = []
    with Observed(sys.argv[1]) as observed:
        for name, (path, is_narrow) in STORMS.items():
            begun = time.monotonic()
            with beside(storm, observed.address, path, is_narrow) as opened:
                count = answered(observed.address)
                rate = opened.value / (time.monotonic() - begun)
            print(f"one who {name}: {count} of {SCRAPES} scrapes answered beside {rate:.0f} connections a second", flush=True)
            if count != SCRAPES:
                failures.append(name)
        if os.getuid() == 0:
            with beside(take_streams, observed.address, least=STREAMS):
                is_told = has_events(observed.address)
            print(f"one who reads all streams: another user has {'events' if is_told else 'none'}")
            if not is_told:
                failures.append("reads all streams")
        else:
            print("not looked at: streams, which needs a second user and therefore root")
    if failures:
        sys.exit("shut out by one who " + ", ".join(failures))


if __name__ == "__main__":
    main()
