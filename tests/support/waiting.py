# SPDX-License-Identifier: Apache-2.0
"""Waiting for other processes."""
import time

WAIT_MAX_S = 120


def until(what: str, done, seconds: float = WAIT_MAX_S, pause: float = 0.1, not_yet=()):
    """Calls `done` until its result is true, and returns that. Ignores `not_yet` errors of `done`. Raises TimeoutError
    after `seconds`."""
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
