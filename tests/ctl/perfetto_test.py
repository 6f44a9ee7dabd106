#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traces a real server at work, and reads the file with Perfetto's own parser.

Usage: perfetto_test.py BIN_DIR CACHE_DIR

The parser (PyPI: perfetto) stays in an environment under CACHE_DIR. Where it cannot be had, this exits with 77 and the
reason.
"""
import collections
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

PACKAGES = ("perfetto==0.59.1",)
NAME = 'train "<b>\u202e'  # Characters with a meaning in JSON, markup and right-to-left text.
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


def environment(cache):
    """The Python of the environment, or why there is none."""
    folder = cache / "venv"
    python, done = folder / "bin/python", folder / "packages"
    if done.exists() and done.read_text() == "\n".join(PACKAGES):
        return python, None
    shutil.rmtree(folder, ignore_errors=True)
    for command in ([sys.executable, "-m", "venv", folder],
                    [python, "-m", "pip", "-q", "--retries", "1", "install", *PACKAGES]):
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            said = (made.stderr or made.stdout).strip().splitlines()
            return None, said[-1] if said else "pip failed"
    done.write_text("\n".join(PACKAGES))
    return python, None


class Check:
    """Says what does not hold, and goes on."""

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


def record(bin_dir, folder):
    """Traces both formats while clients come, work and go. What the server says of it."""
    socket = f"{folder}/gpushared.sock"

    def ctl(*arguments):
        return [f"{bin_dir}/gpusharedctl", "--socket", socket, *arguments]

    def run(program, *arguments):
        subprocess.run([f"{bin_dir}/{program}", *arguments, "--device", "cpu:0"], check=True, stdout=subprocess.DEVNULL,
                       env={"GPUSHARED_SOCKET": socket})

    text = f"{folder}/text"
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
        run("train", "--text", text, "--model", f"{folder}/model", "--steps", "5")
        before = json.loads(subprocess.run(ctl("status", "--json"), capture_output=True, check=True).stdout)
        traces = [subprocess.Popen(ctl("trace", "--json", "--seconds", "600", "--out", f"{folder}/{name}"),
                                   stdout=subprocess.PIPE, text=True) for name in ("t.pftrace", "t.json")]
        for trace in traces:
            await_watch(trace)
        low = subprocess.Popen([f"{bin_dir}/train", "--text", text, "--model", "", "--seconds", "3", "--name", NAME],
                               stdout=subprocess.DEVNULL, env={"GPUSHARED_SOCKET": socket})
        run("serve", "--model", f"{folder}/model", "--seconds", "2")
        low.wait()
        after = json.loads(subprocess.run(ctl("status", "--json"), capture_output=True, check=True).stdout)
        for trace in traces:
            trace.terminate()  # As Ctrl-C: it ends the file.
        summaries = [json.loads(trace.communicate()[0]) for trace in traces]
        return total_s(after) - total_s(before), summaries
    finally:
        server.terminate()
        server.wait()


def check_lines(check, slices):
    """Slices of a line do not overlap: viewers would nest them."""
    for line, spans in slices.items():
        last = None
        for begin, end in sorted(spans):
            check(begin <= end and (last is None or last <= begin), line, "overlaps at", begin)
            last = end


def read_perfetto(check, path, charged_s, summary):
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
    trace = Trace()
    trace.ParseFromString(pathlib.Path(path).read_bytes())
    tracks, parents, counters, names = {}, {}, set(), {}
    begun, slices, instants, flows = {}, collections.defaultdict(list), 0, collections.defaultdict(list)
    clocks = trace.packet[0].clock_snapshot
    check({clock.clock_id for clock in clocks.clocks} == {1, 3, 6} and clocks.primary_trace_clock == 3, "clocks")
    check(trace.packet[0].trace_packet_defaults.timestamp_clock_id == 3, "times are of CLOCK_MONOTONIC")
    for packet in trace.packet:
        for name in packet.interned_data.event_names:
            names[name.iid] = name.name
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            check(not track.HasField("parent_uuid") or track.parent_uuid in tracks, "a parent is unknown")
            tracks[track.uuid], parents[track.uuid] = track.name, track.parent_uuid
            if track.HasField("counter"):
                counters.add(track.uuid)
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        check(event.track_uuid in tracks, "an event on no track")
        if event.type == BEGIN:
            check(event.track_uuid not in begun, "two slices at one time on", tracks[event.track_uuid])
            begun[event.track_uuid] = packet.timestamp
            check(event.name_iid == 0 or event.name_iid in names, "an event without a name")
            for flow in event.flow_ids:
                flows[flow].append(tracks[event.track_uuid])
        elif event.type == END:
            slices[event.track_uuid].append((begun.pop(event.track_uuid), packet.timestamp))
        elif event.type == INSTANT:
            instants += 1
            check(tracks[event.track_uuid].startswith("stream"), "a stop is told where the work was")
        elif event.type == COUNTER:
            check(event.track_uuid in counters, "a count on", tracks[event.track_uuid])
    check(not begun, "slices without an end")
    check_lines(check, slices)
    device = [uuid for uuid, parent in parents.items() if parent == 0]
    check(len(device) == 1 and tracks[device[0]].startswith("cpu:0"), tracks)
    clients = sorted(tracks[uuid] for uuid, parent in parents.items() if parent == device[0])
    check(len(clients) == 2 and any(name.startswith(NAME) for name in clients), clients)
    sum_s = sum(end - begin for begin, end in slices[device[0]]) / 1e9
    check(abs(sum_s - charged_s) <= 0.01 * charged_s, f"slices are {sum_s} s, device time is {charged_s} s")
    check(len(slices[device[0]]) == summary["slices"] and instants == summary["stops"], summary)
    tied = [lines for lines in flows.values() if "requests" in lines and any(line.startswith("stream") for line in lines)]
    check(len(tied) > 10, "requests are tied to what ran for them:", len(tied))
    check({"multiply", "softmax"} & {part for name in names.values() for part in name.split("_")}, names)
    check(summary["lost"] == 0, summary)
    return sum_s


def read_chrome(check, path, charged_s, summary):
    events = json.loads(pathlib.Path(path).read_text())["traceEvents"]
    lines, slices = {}, collections.defaultdict(list)
    for event in events:
        if event["ph"] == "M" and event["name"] == "thread_name":
            lines[event["tid"]] = event["args"]["name"]
        if event["ph"] == "X":
            check(event["tid"] in lines, "a slice on no line")
            # Nanoseconds, as they were: a double holds them.
            begin = round(event["ts"] * 1000)
            slices[lines[event["tid"]]].append((begin, begin + round(event["dur"] * 1000)))
    check_lines(check, slices)
    sum_s = sum(end - begin for line, spans in slices.items() for begin, end in spans if line.startswith("cpu:0")) / 1e9
    check(abs(sum_s - charged_s) <= 0.01 * charged_s, f"slices are {sum_s} s, device time is {charged_s} s")
    check(any(line.startswith(NAME) for line in lines.values()), lines)
    kinds = collections.Counter(event["ph"] for event in events)
    check(kinds["i"] == summary["stops"] and kinds["C"] > 0, kinds)
    return sum_s


def main(bin_dir, cache):
    cache = pathlib.Path(cache).resolve()
    try:
        import perfetto  # noqa: F401
    except ImportError:
        python, reason = environment(cache)
        if reason is not None:
            print("skipped: Perfetto's parser cannot be had:", reason)
            return 77
        return subprocess.run([python, "-B", __file__, bin_dir, cache], check=False).returncode
    check = Check()
    with tempfile.TemporaryDirectory() as folder:
        charged_s, summaries = record(bin_dir, folder)
        check(charged_s > 0.5, "the server had work for", charged_s, "s")
        sums = (read_perfetto(check, f"{folder}/t.pftrace", charged_s, summaries[0]),
                read_chrome(check, f"{folder}/t.json", charged_s, summaries[1]))
    print(f"device time {charged_s:.6f} s; slices add up to {sums[0]:.6f} s (Perfetto) and {sums[1]:.6f} s (Chrome); "
          f"{summaries[0]['slices']} slices, {summaries[0]['requests']} requests, {summaries[0]['stops']} stops")
    return 0 if check.failures == 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
