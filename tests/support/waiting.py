# SPDX-License-Identifier: Apache-2.0
"""Waiting for what other processes do."""
import time

WAIT_MAX_S = 120


def until(what: str, done, seconds: float = WAIT_MAX_S, pause: float = 0.1):
    """What `done` says once it says anything; an error after that time."""
    end = time.monotonic() + seconds
    while True:
        answer = done()
        if answer:
            return answer
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(pause)
