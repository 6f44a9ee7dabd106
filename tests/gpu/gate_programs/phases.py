# SPDX-License-Identifier: Apache-2.0
"""The commands that gate_pair.py gives to the programs that it measures, and their answers.

A program reads commands from stdin, one per line, and answers each with a line of JSON:

    prepare         does everything that must not be measured
    MODE SECONDS    runs a phase, which the next command or the end of the input ends early
    stop            only ends a phase; has no answer

An answer with the key "error" says why the command failed. The program ends with its input, and is killed after
--limit seconds even if it hangs inside the driver. Points in time are in seconds on the clock that processes share.
"""
import argparse
import ctypes
import json
import os
import select
import signal
import time

MPS_ENABLED = 133  # CU_DEVICE_ATTRIBUTE_MPS_ENABLED


def parse_arguments(description, add=lambda parser: None):
    """Returns the options, and limits the time of this process."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=60, help="seconds after which this process is killed")
    add(parser)
    options = parser.parse_args()
    signal.alarm(options.limit)
    return options


def tell(answer):
    print(json.dumps(answer), flush=True)


class Commands:
    """Lines of stdin, read without blocking a phase."""

    def __init__(self):
        self._text, self._is_over = b"", False

    def _read(self, timeout):
        if not self._is_over and select.select([0], [], [], timeout)[0]:
            piece = os.read(0, 4096)
            self._text += piece
            self._is_over = not piece

    def has_next(self):
        """Returns whether there is a command that has not been taken, or no other will come."""
        self._read(0)
        return b"\n" in self._text or self._is_over

    def take(self):
        """Waits for the next command. None: the input has ended."""
        while b"\n" not in self._text and not self._is_over:
            self._read(None)
        line, end, self._text = self._text.partition(b"\n")
        return line.decode().split() if end else None


class Phase:
    """A phase that is running."""

    def __init__(self, commands, seconds):
        self._commands = commands
        self.begin = time.monotonic()
        self._until = self.begin + seconds

    def goes_on(self):
        return time.monotonic() < self._until and not self._commands.has_next()


def answer_commands(prepare, modes):
    """Answers commands until the input ends. `modes`: name to a function that runs a phase and returns its results."""
    commands = Commands()
    while (words := commands.take()) is not None:
        if words in ([], ["stop"]):
            continue
        try:
            if words == ["prepare"]:
                tell(prepare())
                continue
            mode, seconds = words
            phase = Phase(commands, float(seconds))
            results = modes[mode](phase)
            tell({"begin": phase.begin, "end": time.monotonic(), **results})
        except Exception as error:  # pylint: disable=broad-exception-caught
            # Catches every error, so that a row states why there is no figure.
            tell({"error": f"{' '.join(words)}: {type(error).__name__}: {error}"[:300]})


def mps_clients():
    """Returns 1 if this process is a client of MPS, 0 if it is not, and None if the driver does not say."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        device, value = ctypes.c_int(), ctypes.c_int()
        if driver.cuDeviceGet(ctypes.byref(device), 0) or \
                driver.cuDeviceGetAttribute(ctypes.byref(value), MPS_ENABLED, device):
            return None
    except (OSError, AttributeError):
        return None
    return value.value
