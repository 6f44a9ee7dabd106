# SPDX-License-Identifier: Apache-2.0
"""Tests gpushared from jobs on a Slurm cluster. Usage: scenarios.py PROGRAMS PLUGIN WORK RESULTS [SCENARIO...]"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback

import cluster as slurm
from cluster import NODES, PAIR, until

USER = "daemon"
JOBS, JOBS_A_DEVICE = 100, 4
END_MAX_S = 5  # Limit for the end of a lease after slurmstepd was killed; the servers' lease_grace is 2 s.
LOG_ERROR_MAX = 0.01


def expect(is_so: bool, what: str):
    if not is_so:
        raise AssertionError(what)


class Jobs:
    """A user's actions, and the reports of the nodes' servers."""

    def __init__(self, cluster: slurm.Cluster):
        self.cluster = cluster
        self.text = cluster.work / "etc/slurm.conf"  # Input of the programs whose work is measured.

    def srun(self, *options, environment=None):
        return self.cluster.run("ctl", "srun", *options, user=USER, environment=environment, check=False)

    def begin(self, *options) -> subprocess.Popen:
        """Starts srun in the background. Its output and errors are in the returned process's `stdout`."""
        return subprocess.Popen(self.cluster.inside("ctl", ["srun", *options], USER), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.cluster.environment,
                                cwd=self.cluster.work / "jobs")

    def train(self, seconds: int, scheduling_class: str = "low"):
        return ["train", "--seconds", seconds, "--text", self.text, "--class", scheduling_class]

    def server(self, node: str, command: str) -> dict:
        return json.loads(self.cluster.run(node, "gpusharedctl", "--socket", f"{slurm.RUN_DIRECTORY}/gpushared.sock", command,
                                           "--json").stdout)

    def clients(self, node: str) -> list:
        return self.server(node, "ps")["clients"]

    def endpoints(self, node: str) -> list:
        """Returns the leased endpoints that accept clients."""
        return [row for row in self.server(node, "endpoints")["endpoints"] if "lessee" in row and row["open"]]

    def totals(self) -> dict:
        """Returns the usage of all nodes since their servers began."""
        rows = [row for node in NODES for row in self.server(node, "status")["devices"][0]["totals"]["classes"].values()]
        keys = {"device_s": ("device_time_s",), "bytes": ("bytes_in", "bytes_out", "bytes_on_device"),
                "requests": ("requests",), "with_target": ("requests_with_target",), "met": ("requests_target_met",)}
        return {key: sum(row[name] for row in rows for name in names) for key, names in keys.items()}

    def accounted(self, job: int) -> dict:
        """Returns the job's usage in sacct."""
        comment = self.cluster.ask("sacct", "-X", "-n", "-P", "-j", job, "-o", "AdminComment")
        section = re.search(r"gpushared\((.*?)\)", comment)
        return {key: float(value) for key, value in re.findall(r"(\w+)=([\d.]+)", section[1])} if section else {}

    def last_job(self) -> int:
        return max(int(job) for job in self.cluster.ask("sacct", "-a", "-X", "-n", "-P", "-S", "now-1day", "-o", "JobIDRaw").split())

    def stepds(self, node: str) -> dict:
        """Returns the process ids of slurmstepd, by step such as \"7.0\"."""
        namespace = os.readlink(f"/proc/{self.cluster.holders[node].pid}/ns/net")
        found = {}
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                title = (process / "cmdline").read_bytes().split(b"\0")[0].decode()
                is_here = os.readlink(process / "ns/net") == namespace
            except OSError:
                continue
            if is_here and title.startswith("slurmstepd: ["):
                found[title[len("slurmstepd: ["):-1]] = int(process.name)
        return found

    def await_quiet(self):
        until("nobody is on the nodes", lambda: not any(self.clients(node) or self.endpoints(node) for node in NODES))


def classes(jobs: Jobs):
    """A mixed pair on both nodes: the QOS determines the class, and classes above it are rejected."""
    pair = [jobs.begin("-N2", "-n4", "--ntasks-per-node=2", f"--qos={qos}", "--gres=gpushared:25,gpushared_memory:256M", *jobs.train(4, of_class))
            for qos, of_class in (("prod", "high"), ("batch", "low"))]
    until("both jobs are on both nodes", lambda: all(len(jobs.clients(node)) == 4 for node in NODES), 30)
    for node in NODES:
        rows = {row["endpoint"]: row for row in jobs.endpoints(node)}
        expect(sorted(row["class"] for row in rows.values()) == ["high", "low"], f"{node}: {rows}")
        for row in rows.values():
            expect(row["max_share_percent"] == 25 and row["memory"] == "256 MiB" and row["client_memory"] == "128 MiB"
                   and row["devices"] == ["cpu:0"] and row["budget"] == row["endpoint"][:-2], f"{node}: {row}")
        for client in jobs.clients(node):
            expect(client["class"] == rows[client["endpoint"]]["class"], f"{node}: {client}")
    for job in pair:
        output = job.communicate(timeout=60)[0]
        expect(job.returncode == 0, output)
    rejected = [(["--qos=batch", "--gres=gpushared:25", "--gpushared-class=high"], "class rejected: asked for high, allowed: low [QOS 'batch'"),
               (["--qos=batch", "--gres=gpushared:75"], "share rejected: asked for 75%, allowed: 50% [QOS 'batch'"),
               (["--qos=batch", "--gres=gpushared:25,gpushared_memory:1G"], "memory rejected: asked for 1 GiB, allowed: 512 MiB"),
               (["--qos=batch", "--gres=gpushared:25", "--gpushared-share=30%"], "allowed: the job's on this node, 25%"),
               (["--qos=batch", "--gpushared-class=low"], "it has no share of a device here; ask for one with --gres"),
               (["--qos=open", "--gres=gpushared:25"], "there is no rule for QOS 'open'"),
               (["--gpushared-class=turbo"], "allowed: high, normal and low")]
    for options, sentence in rejected:
        done = jobs.srun("-n1", *options, "vector_add_cpp")
        expect(done.returncode != 0 and sentence in done.stderr, f"{options}: {done.returncode} {done.stderr}")
    states = jobs.cluster.ask("sinfo", "-h", "-N", "-o", "%t").split()
    expect(not any("drain" in state for state in states), f"a rejection took a node out of service: {states}")
    lower = jobs.srun("-n1", "--qos=prod", "--gres=gpushared:25", "--gpushared-class=low", "--gpushared-share=10%",
                      "--gpushared-memory=64MiB", "vector_add_cpp")
    expect(lower.returncode == 0, lower.stderr)


def forged(jobs: Jobs):
    """Neither a user's nor a program's environment grants any access."""
    main_door = {"GPUSHARED_SOCKET": f"{slurm.RUN_DIRECTORY}/gpushared.sock"}
    options = ("-n1", "--qos=batch", "--gres=gpushared:25")
    led_back = jobs.srun(*options, "vector_add_cpp", environment=main_door)
    expect(led_back.returncode == 0, f"the plugin leaves a forged socket: {led_back.stderr}")
    cases = [({"GPUSHARED_CLASS": "high"}, ["vector_add_cpp"], "asked for high"),
             ({}, ["env", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=90", "vector_add_cpp"], "max_share rejected: asked for 90%"),
             ({}, ["env", *(f"{key}={value}" for key, value in main_door.items()), "vector_add_cpp"], "allows 0")]
    for environment, command, sentence in cases:
        done = jobs.srun(*options, *command, environment=environment)
        expect(done.returncode != 0 and sentence in done.stderr, f"{environment} {command}: {done.returncode} {done.stderr}")
    descriptors = ["sh", "-c", "ls /proc/self/fd | wc -l"]
    counts = {jobs.srun("-n1", *more, *descriptors).stdout for more in ((), ("--qos=batch", "--gres=gpushared:25"))}
    expect(len(counts) == 1, f"a task has a descriptor of the plugin's: {counts}")
    without = jobs.srun("-n1", "vector_add_cpp", environment=main_door)
    expect(without.returncode != 0 and "allows 0" in without.stderr, f"without a share: {without.stderr}")


def unmodified(jobs: Jobs):
    """A program of the driver interface runs in a job, through the endpoint of its step."""
    command = ("gpusharedctl", "run", "--", "drop_in_vector_add")
    done = jobs.srun("-n1", "--qos=batch", "--gres=gpushared:25", *command)
    expect(done.returncode == 0 and "added 100000 numbers" in done.stdout, f"{done.stdout} {done.stderr}")
    above = jobs.srun("-n1", "--qos=batch", "--gres=gpushared:25", "gpusharedctl", "run", "--class", "high", *command[2:])
    expect(above.returncode != 0 and "asked for high" in above.stderr, above.stderr)
    without = jobs.srun("-n1", *command)
    expect(without.returncode != 0, "a job without a share reached the device")


def types(jobs: Jobs):
    """A job gets its share on nodes of every type, with and without naming a type, and frees it when it ends."""
    def lease(node, *options):
        job = jobs.begin("-n1", "--qos=batch", *options, *jobs.train(40))
        row = until(f"{options} have an endpoint", lambda: jobs.endpoints(node), 30)[0]
        until(f"{options} have a client", lambda: jobs.clients(node), 30)
        jobs.cluster.ask("scancel", row["endpoint"].split("-")[1])
        job.communicate(timeout=60)
        until(f"{options} are over", lambda: not jobs.endpoints(node), 30)
        return row
    for node, options, device in (("n1", ("-w", "n1", "--gres=gpushared:25"), "cpu:0"),
                                  ("n2", ("-w", "n2", "--gres=gpushared:25"), "cpu:0"),
                                  ("n1", ("--gres=gpushared:cpu0:25",), "cpu:0"),
                                  ("n2", ("--gres=gpushared:embedded:25,gpushared_memory:128M",), "cpu:0"),
                                  (PAIR, ("-p", "pair", "--gres=gpushared:25"), "cpu:0"),
                                  (PAIR, ("-p", "pair", "--gres=gpushared:cpu1:25,gpushared_memory:128M"), "cpu:1")):
        row = lease(node, *options)
        expect(row["devices"] == [device] and row["max_share_percent"] == 25, f"{options}: {row}")
        expect(("memory" in options[-1]) == (row["memory"] == "128 MiB"), f"{options}: {row}")
    both = jobs.srun("-N2", "-n2", "--qos=batch", "--gres=gpushared:25,gpushared_memory:128M", "vector_add_cpp")
    expect(both.returncode == 0 and both.stdout.count("sums are right") == 2, f"{both.stdout} {both.stderr}")
    held = jobs.begin("-n1", "-p", "pair", "--qos=prod", "--gres=gpushared:80", *jobs.train(40))
    until("80 of the first device are taken", lambda: jobs.clients(PAIR), 30)
    split = jobs.srun("-n1", "-p", "pair", "--qos=batch", "--gres=gpushared:50", "vector_add_cpp")
    expect(split.returncode != 0 and "ask for one type, such as gpushared:cpu1:N" in split.stderr, split.stderr)
    jobs.cluster.ask("scancel", jobs.endpoints(PAIR)[0]["endpoint"].split("-")[1])
    held.communicate(timeout=60)
    def used():
        return [line.strip() for line in jobs.cluster.ask("scontrol", "show", "node", "-d").splitlines() if "GresUsed" in line]
    until("the controller counts nothing as used", lambda: not re.search(r"gpushared\w*:\w+:[1-9]", " ".join(used())), 30)


def mps(jobs: Jobs):
    """Slurm's own gres/mps sets CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, which caps the client. A prolog and an epilog that
    start and end an MPS daemon for each job work unchanged, and do not disturb the node's other jobs."""
    other = jobs.begin("-n1", "-w", "n1", "--qos=batch", "--gres=gpushared:25", *jobs.train(60))
    neighbour = until("another job is there", lambda: jobs.clients("n1"), 30)[0]
    job = jobs.begin("-n1", "-w", "n1", "--qos=batch", "--gres=gpushared:50,mps:20", *jobs.train(3))
    clients = until("its client is there, too", lambda: (rows := jobs.clients("n1"))[1:] and rows, 30)
    expect(sorted(row["max_share_percent"] for row in clients) == [20, 25], f"{clients}")
    output = job.communicate(timeout=60)[0]
    expect(job.returncode == 0, output)
    number = jobs.last_job()
    log = jobs.cluster.work / "log"
    begun, ended = (until(path.name, lambda path=path: path.exists() and path.read_text(), 30)
                    for path in (log / f"prolog.{number}", log / f"epilog.{number}"))
    expect("-d: nothing to do, a server answers" in begun and "start_server: nothing to do" in begun, begun)
    expect("quit: no effect in a Slurm job" in ended, ended)
    # Some users do in their scripts what those of the site do.
    own = ("sh", "-ec", "nvidia-cuda-mps-control -d; vector_add_cpp; echo quit | nvidia-cuda-mps-control")
    done = jobs.srun("-n1", "-w", "n1", "--qos=batch", "--gres=gpushared:25,mps:20", *own)
    expect(done.returncode == 0 and "sums are right" in done.stdout, f"{done.stdout} {done.stderr}")
    expect([row["client"] for row in jobs.clients("n1")] == [neighbour["client"]], "the epilog ended another job")
    states = jobs.cluster.ask("sinfo", "-h", "-N", "-o", "%t").split()
    expect(not any("drain" in state for state in states), f"a prolog or an epilog took a node out of service: {states}")
    jobs.cluster.ask("scancel", neighbour["endpoint"].split("-")[1])
    other.communicate(timeout=60)


def killed_stepd(jobs: Jobs):
    """The lease ends with slurmstepd, however that ends, and no other lease does."""
    victim = jobs.begin("-N2", "-n2", "--no-kill", "--qos=batch", "--gres=gpushared:25", *jobs.train(40))
    until("it is on both nodes", lambda: all(jobs.endpoints(node) and jobs.clients(node) for node in NODES), 30)
    name = jobs.endpoints("n1")[0]["endpoint"]
    job = name.split("-")[1]
    other = jobs.begin("-N2", "-n2", "--qos=batch", "--gres=gpushared:25", *jobs.train(12))
    until("another one, too", lambda: all(len(jobs.clients(node)) == 2 for node in NODES), 30)
    os.kill(jobs.stepds("n1")[f"{job}.0"], signal.SIGKILL)
    killed = time.monotonic()
    until("its sessions on n1 end", lambda: all(row["endpoint"] != name for row in jobs.clients("n1")), END_MAX_S)
    took = time.monotonic() - killed
    for node, count in (("n1", 1), ("n2", 2)):
        expect(len(jobs.clients(node)) == count, f"{node}: {jobs.clients(node)}")
    output = other.communicate(timeout=60)[0]
    expect(other.returncode == 0, output)
    jobs.cluster.ask("scancel", job)
    victim.communicate(timeout=60)
    return f"its sessions ended in {took:.1f} s"


def accounting(jobs: Jobs):
    """A job's usage of two nodes' devices is in sacct, and the usage of several steps is added up."""
    jobs.await_quiet()
    before = jobs.totals()
    script = jobs.cluster.work / "jobs/steps.sh"
    command = " ".join(map(str, jobs.train(2)))
    model = jobs.cluster.work / "jobs/model"
    script.write_text(f"#!/bin/sh -e\nsrun -N2 -n4 {command}\nsrun -N1 -n1 {command} --model {model}\n"
                      f"srun -N2 -n2 serve --model {model} --requests 40 --latency-target-ms 1000\nvector_add_cpp\n")
    done = jobs.cluster.run("ctl", "sbatch", "--wait", "-N2", "-n4", "--qos=prod", "--gres=gpushared:50", "--parsable",
                            "-o", jobs.cluster.work / "jobs/steps.out", script, user=USER)
    job = int(done.stdout.split()[0])
    after = jobs.totals()
    used = {key: after[key] - before[key] for key in after}
    sums = until("sacct has it", lambda: jobs.accounted(job), 30)
    for key, value in used.items():
        expect(value > 0 and abs(sums[key] - value) <= LOG_ERROR_MAX * value, f"{key}: sacct {sums[key]}, servers {value}")
    return ", ".join(f"{key}: sacct {sums[key]:g}, servers {value:g}" for key, value in used.items())


def restarted_server(jobs: Jobs):
    """A node's server is restarted under load: jobs elsewhere continue, and the job on the node gets the reason."""
    there = jobs.begin("-n1", "-w", "n1", "--qos=batch", "--gres=gpushared:25", *jobs.train(40))
    elsewhere = jobs.begin("-n1", "-w", "n2", "--qos=batch", "--gres=gpushared:25", *jobs.train(8))
    until("both are there", lambda: all(len(jobs.clients(node)) == 1 for node in NODES), 30)
    server = jobs.cluster.processes["gpushared.n1"]
    server.terminate()  # Waits for its clients;
    time.sleep(0.5)
    server.terminate()  # and then no longer.
    server.wait(timeout=20)
    output = there.communicate(timeout=30)[0]
    expect(there.returncode != 0 and "session ended: the server stops" in output, output)
    jobs.cluster.start_server("n1")
    fresh = jobs.srun("-n1", "-w", "n1", "--qos=batch", "--gres=gpushared:25", "vector_add_cpp")
    expect(fresh.returncode == 0, fresh.stderr)
    output = elsewhere.communicate(timeout=60)[0]
    expect(elsewhere.returncode == 0, output)


def queue(jobs: Jobs):
    """100 jobs of a quarter each on two devices: never more than four at once on one, and all end."""
    jobs.await_quiet()
    done = jobs.cluster.run("ctl", "sbatch", f"--array=1-{JOBS}", "-n1", "--qos=batch", "--gres=gpushared:25", "--parsable",
                            "-o", "/dev/null", "--wrap", "vector_add_cpp && sleep 0.5", user=USER)
    job = int(done.stdout)
    most, looks, begun = dict.fromkeys(NODES, 0), 0, time.monotonic()
    while jobs.cluster.ask("squeue", "-h", "-j", job, check=False):
        for node in NODES:
            most[node] = max(most[node], len(jobs.endpoints(node)))
        looks += 1
        expect(time.monotonic() - begun < 240, "the queue does not end")
    expect(all(count == JOBS_A_DEVICE for count in most.values()), f"at most at once: {most}")
    def states():
        words = jobs.cluster.ask("sacct", "-X", "-n", "-P", "-j", job, "-o", "State").split()
        return words if len(words) == JOBS and not {"RUNNING", "PENDING"} & set(words) else None
    ended = until("sacct has all", states, 30)
    expect(set(ended) == {"COMPLETED"}, f"{ended}")
    return f"{JOBS} jobs in {time.monotonic() - begun:.0f} s, at most {max(most.values())} at once on a device in {looks} looks"


SCENARIOS = (classes, forged, unmodified, types, mps, killed_stepd, accounting, restarted_server, queue)


def main() -> int:
    programs, plugin, work, results = map(pathlib.Path, sys.argv[1:5])
    chosen = [each for each in SCENARIOS if not sys.argv[5:] or each.__name__ in sys.argv[5:]]
    cluster, failed = slurm.Cluster(programs, plugin, work), 0
    try:
        cluster.up()
        jobs = Jobs(cluster)
        for scenario in chosen:
            begun = time.monotonic()
            try:
                said = scenario(jobs)
                print(f"slurm: {scenario.__name__}: ok in {time.monotonic() - begun:.0f} s{'; ' + said if said else ''}", flush=True)
            except Exception:
                failed += 1
                print(f"slurm: {scenario.__name__} FAILED", flush=True)
                traceback.print_exc()
    finally:
        shutil.rmtree(results, ignore_errors=True)
        shutil.copytree(work / "log", results)
    print(f"slurm: {len(chosen) - failed} passed, {failed} failed; the daemons' logs are in {results}")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
