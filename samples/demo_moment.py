# SPDX-License-Identifier: Apache-2.0
"""One moment in a trace of serve and train: a request that arrives while train has the device, until the request
ends."""

JOINED_MS = 0.2  # Device times with a smaller pause in between are drawn as one.


def lanes(trace):
    """Returns the spans in which the device was charged to serve and to train, the times at which train was preempted,
    and serve's requests from arrival to end, in ms."""
    events = trace["traceEvents"]
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    clients = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    found = {"serve": [], "train": [], "preempted": [], "requests": []}
    for event in events:
        if event["ph"] != "X":
            continue
        begin = event["ts"] / 1000
        end = begin + event["dur"] / 1000
        track = tracks[event["tid"]]
        client = clients[event["pid"]].partition(" (client ")[0]  # "serve (client 3, pid 17, cpu:0)"
        if "client" in event["args"]:  # The device's own track.
            found.setdefault(event["name"], []).append((begin, end))
        elif client == "serve" and track.startswith("requests"):
            found["requests"].append((end - event["args"]["latency_us"] / 1000, end))
        elif client == "train" and "left" in event["args"]:
            found["preempted"].append(end)
    for each in found.values():
        each.sort()
    return found


def joined(spans):
    """Merges spans whose distance would be invisible."""
    parts = []
    for begin, end in spans:
        if parts and begin - parts[-1][1] < JOINED_MS:
            parts[-1] = (parts[-1][0], max(end, parts[-1][1]))
        else:
            parts.append((begin, end))
    return parts


def choose(trace):
    """Chooses the request of median latency among those that arrive while train has the device, or, if there are any,
    among those that preempt train. Returns the latency of the request, and all other times relative to its arrival;
    None if the trace has no such request."""
    found = lanes(trace)
    last = max((end for _, end in found["train"]), default=0)
    candidates = [(ended - arrived, arrived) for arrived, ended in found["requests"]
                  if ended <= last and any(begin < arrived < end for begin, end in found["train"])]
    if not candidates:
        return None
    candidates = [(latency, arrived) for latency, arrived in candidates
                  if any(arrived < at < arrived + latency for at in found["preempted"])] or candidates
    latency, arrived = sorted(candidates)[len(candidates) // 2]
    spans = {who: [(begin - arrived, end - arrived) for begin, end in joined(found[who])] for who in ("serve", "train")}
    return {"latency_ms": latency, **spans, "preempted": [at - arrived for at in found["preempted"]]}
