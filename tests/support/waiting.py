# SPDX-License-Identifier: Apache-2.0
"""Waiting for other processes."""
import time

WAIT_MAX_S = 120


def until(what: str, done, seconds: float = WAIT_MAX_S, pause: float = 0.1, not_yet=()):
    """Returns the first true result of `done`; fails after that time. It may raise errors of the kind `not_yet`."""
    end = time.monotonic() + seconds
    while True:
        try:
            if answer := done():
                return answer
        except not_yet:
            pass
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(pause)
