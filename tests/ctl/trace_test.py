#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traces a real server at work, and reads the file by the rules of Perfetto's JSON importer.

Usage: trace_test.py BIN_DIR
"""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile
import time

NAME = 'train "<b>\\\u00e9'  # Characters with a meaning in JSON and markup, and one of two bytes.


class Check:
    """Reports each condition that does not hold, and continues."""

    def __init__(self):
        self.failures = 0

    def __call__(self, holds, *what):
        if not holds:
            self.failures += 1
            print("FAILED:", *what)


def await_watch(trace):
    deadline = time.monotonic() + 30
    while "memfd:gpushared-trace" not in pathlib.Path(f"/proc/{trace.pid}/maps").read_text():
        if time.monotonic() > deadline:
            raise TimeoutError("gpusharedctl trace does not watch")
        time.sleep(0.02)


def total_s(status):
    return sum(row["device_time_s"] for row in status["devices"][0]["totals"]["classes"].values())


def record(bin_dir, directory):
    """Traces clients that connect, work and leave. Returns the server's report about them."""
    socket = f"{directory}/gpushared.sock"

    def ctl(*arguments):
        return [f"{bin_dir}/gpusharedctl", "--socket", socket, *arguments]

    def run(program, *arguments):
        subprocess.run([f"{bin_dir}/{program}", *arguments, "--device", "cpu:0"], check=True, stdout=subprocess.DEVNULL,
                       env={"GPUSHARED_SOCKET": socket})

    text = f"{directory}/text"
    pathlib.Path(text).write_text("All work and no play makes a dull model. " * 200)
    server = subprocess.Popen([f"{bin_dir}/gpushared", "--socket", socket, "--device", "cpu:0", "--policy", "priority"],
                              stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            asked = subprocess.run(ctl("status", "--json"), capture_output=True, text=True, check=False)
            if asked.returncode == 0 and json.loads(asked.stdout)["devices"][0]["state"] == "ready":
                break
            if time.monotonic() > deadline:
                raise TimeoutError(asked.stderr)
            time.sleep(0.1)
        run("train", "--text", text, "--model", f"{directory}/model", "--steps", "5")
        before = json.loads(subprocess.run(ctl("status", "--json"), capture_output=True, check=True).stdout)
        trace = subprocess.Popen(ctl("trace", "--json", "--seconds", "600", "--out", f"{directory}/t.json"),
                                 stdout=subprocess.PIPE, text=True)
        await_watch(trace)
        low = subprocess.Popen([f"{bin_dir}/train", "--text", text, "--model", "", "--seconds", "3", "--name", NAME],
                               stdout=subprocess.DEVNULL, env={"GPUSHARED_SOCKET": socket})
        run("serve", "--model", f"{directory}/model", "--seconds", "2")
        low.wait()
        after = json.loads(subprocess.run(ctl("status", "--json"), capture_output=True, check=True).stdout)
        trace.terminate()  # Like Ctrl-C, which completes the file.
        return total_s(after) - total_s(before), json.loads(trace.communicate()[0])
    finally:
        server.terminate()
        server.wait()


def check_lines(check, slices):
    """Checks that slices of a line do not overlap, because viewers would nest them."""
    for line, spans in slices.items():
        last = None
        for begin, end in sorted(spans):
            check(begin <= end and (last is None or last <= begin), line, "overlaps at", begin)
            last = end


def check_flows(check, starts, reached):
    """Checks that ids of flows are hexadecimal, and that slices of a flow begin after the slice that starts the flow,
    because viewers recognise no others."""
    tied = 0
    for flow, begins in reached.items():
        check(0 < int(flow, 16) < 1 << 64, "a flow's id", flow)
        if flow in starts:  # A flow without a start belongs to a request that began before the trace.
            check(starts[flow] < min(begins), "what ran for a request began before that, at", min(begins))
            tied += 1
    check(tied > 10, "requests are tied to what ran for them:", tied)


def read(check, path, charged_s, summary):
    """Checks the file; returns the sum of the device's slices in seconds."""
    events = json.loads(pathlib.Path(path).read_text())["traceEvents"]
    named = {kind: {event[key]: event["args"]["name"] for event in events if event["name"] == kind}
             for kind, key in (("process_name", "pid"), ("thread_name", "tid"))}
    slices, names = collections.defaultdict(list), set()
    starts, reached = {}, collections.defaultdict(list)
    for event in (event for event in events if event["ph"] == "X"):
        check(event["tid"] in named["thread_name"] and event["pid"] in named["process_name"], "a slice on no line")
        # Exact nanoseconds, which a double can represent.
        begin = round(event["ts"] * 1000)
        slices[event["tid"]].append((begin, begin + round(event["dur"] * 1000)))
        names.add(event["name"])
        if "flow_out" in event:
            check(event["bind_id"] not in starts, "a flow starts twice")
            starts[event["bind_id"]] = begin
        elif "flow_in" in event:
            reached[event["bind_id"]].append(begin)
    check_lines(check, slices)
    check_flows(check, starts, reached)
    device = [tid for tid, name in named["thread_name"].items() if name.startswith("cpu:0")]
    clients = [name for name in named["process_name"].values() if not name.startswith("cpu:0")]
    check(len(device) == 1, named)
    check(len(clients) == 2 and any(name.startswith(NAME) for name in clients), clients)
    sum_s = sum(end - begin for begin, end in slices[device[0]]) / 1e9
    check(abs(sum_s - charged_s) <= 0.01 * charged_s, f"slices are {sum_s} s, device time is {charged_s} s")
    check({"multiply", "softmax"} & {part for name in names for part in name.split("_")}, names)
    kinds = collections.Counter(event["ph"] for event in events)
    check(kinds["i"] == summary["stops"] and kinds["C"] > 0, kinds)
    check(len(slices[device[0]]) == summary["slices"] and summary["lost"] == 0, summary)
    return sum_s


def main(bin_dir):
    check = Check()
    with tempfile.TemporaryDirectory() as directory:
        charged_s, summary = record(bin_dir, directory)
        check(charged_s > 0.5, "the server had work for", charged_s, "s")
        sum_s = read(check, f"{directory}/t.json", charged_s, summary)
    print(f"device time {charged_s:.6f} s; slices add up to {sum_s:.6f} s; "
          f"{summary['slices']} slices, {summary['requests']} requests, {summary['stops']} stops")
    return 0 if check.failures == 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
