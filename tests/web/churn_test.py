# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes while 200 clients connect and disconnect. No counter decreases, and at the end the sums in
Prometheus equal those of the server.

Usage: churn_test.py DIRECTORY_OF_PROGRAMS [SECONDS]. Exit code 77: Prometheus is not installed.
"""
import re
import subprocess
import sys
import time

from prometheus import Observed, skip_without, until

CLIENTS = 200
AT_ONE_TIME = 8
# Metric families of a class, and the numbers of `status --json` that they must equal at the end.
OF_CLASS = {
    "class_device_seconds": "device_time_s", "sessions_started": "sessions", "commands": "commands", "launches": "launches",
    "copies": "copies", "fills": "fills", "copied_in_bytes": "bytes_in", "copied_out_bytes": "bytes_out",
    "copied_on_device_bytes": "bytes_on_device", "commands_rejected": "commands_rejected", "commands_failed": "commands_failed",
    "commands_skipped": "commands_skipped", "stops": "stops", "wasted_seconds": "wasted_s", "requests": "requests",
    "requests_with_target": "requests_with_target", "requests_target_met": "requests_target_met", "targets_abandoned": "targets_abandoned",
}
HISTOGRAMS = {"queue_wait_seconds": "queue_wait", "request_seconds": "request_time", "stop_seconds": "stop_time"}
OF_DEVICE = {"workers_started": "workers_started", "gap_seconds": "gap_s", "gap_used_seconds": "gap_used_s",
             "device_host_steal_seconds": "host_steal_s"}


def come_and_go(observed, seconds):
    """Starts the clients over this many seconds, a few at a time; returns how many completed their work."""
    begun, done, running = time.monotonic(), 0, []
    for number in range(CLIENTS):
        program = observed.directory / f"client-{number}"  # Another name, and therefore another owner.
        program.symlink_to(observed.bin / "vector_add_cpp")
        running.append(subprocess.Popen([program], env=observed.environment(),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        if len(running) == AT_ONE_TIME:
            done += running.pop(0).wait(timeout=60) == 0
        time.sleep(max(0.0, begun + (number + 1) * seconds / CLIENTS - time.monotonic()))
    return done + sum(client.wait(timeout=60) == 0 for client in running)


def check_no_counter_fell(observed, seconds):
    series = observed.ask(f'{{__name__=~"gpushared_.+_(total|bucket|count|sum)"}}[{seconds + 60}s]')
    names = {each["metric"]["__name__"] for each in series}
    for each in series:
        values = [float(value) for _, value in each["values"]]
        if any(later < earlier for earlier, later in zip(values, values[1:])):
            sys.exit(f"a counter fell: {each['metric']}: {values}")
    samples = max(len(each["values"]) for each in series)
    if len(names) < len(OF_CLASS) + 3 * len(HISTOGRAMS) or samples < seconds * 0.8:
        sys.exit(f"seen were only {len(names)} counters and {samples} samples in {seconds} s")
    print(f"no counter fell: {len(series)} series of {len(names)} names, {samples} scrapes")


def session_log(status):
    """Yields the values that Prometheus must have at the end, with name and class."""
    totals = status["devices"][0]["totals"]
    for name, key in OF_DEVICE.items():
        yield f"gpushared_{name}_total", "", totals[key]
    for scheduling_class, row in totals["classes"].items():
        for name, key in OF_CLASS.items():
            yield f"gpushared_{name}_total", scheduling_class, row[key]
        for name, key in HISTOGRAMS.items():
            yield f"gpushared_{name}_count", scheduling_class, sum(row[key]["counts"])
            yield f"gpushared_{name}_sum", scheduling_class, row[key]["sum_s"]


def differences(observed):
    """Returns lines that name the differences; an idle server has none after a scrape."""
    wanted = {(name, of_class): value for name, of_class, value in session_log(observed.status())}
    found = {(each["metric"]["__name__"], each["metric"].get("class", "")): float(each["value"][1])
             for each in observed.ask('{__name__=~"gpushared_.+_(total|count|sum)", device="cpu:0", endpoint=""}')}
    for key, value in wanted.items():
        # The text has all digits of a double, and so has Prometheus.
        if found.get(key) is None or abs(found[key] - value) > 1e-9 * max(1.0, abs(value)):
            yield f"{key}: Prometheus has {found.get(key)}, the server {value}"


def main():
    skip_without("prometheus")
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    with Observed(sys.argv[1]) as observed:
        observed.start_prometheus()
        done = come_and_go(observed, seconds)
        if done != CLIENTS:
            sys.exit(f"{done} of {CLIENTS} clients did their work")
        remarks = []

        def is_equal():
            remarks[:] = differences(observed)
            return not remarks

        try:
            until("Prometheus has what the server has", is_equal, not_yet=OSError)
        except SystemExit as late:
            sys.exit(f"{late}\n" + "\n".join(remarks))
        admitted = observed.ask('gpushared_endpoint_admitted_total')
        if [float(each["value"][1]) for each in admitted] != [CLIENTS]:
            sys.exit(f"admitted are {admitted}, not {CLIENTS}")
        started = sum(float(each["value"][1]) for each in observed.ask("gpushared_sessions_started_total"))
        if started != CLIENTS:
            sys.exit(f"{started} sessions began, not {CLIENTS}")
        owners = observed.ask("gpushared_owner_sessions_started_total")
        if {each["metric"]["program"]: float(each["value"][1]) for each in owners} != {f"client-{i}": 1 for i in range(CLIENTS)}:
            sys.exit(f"{len(owners)} owners began a session, not {CLIENTS}")
        print(f"{CLIENTS} clients came and went; {len(list(session_log(observed.status())))} sums equal the server's")
        check_no_counter_fell(observed, seconds)
        if not re.search(rb"gpushared_sessions\{[^}]*\} 0\n", observed.text()):
            sys.exit("sessions are left")


if __name__ == "__main__":
    main()
