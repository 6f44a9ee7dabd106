# SPDX-License-Identifier: Apache-2.0
"""Tests gpushared from the pods of a Kubernetes cluster. Usage: scenarios.py PROGRAMS CACHE WORK RESULTS
[SCENARIO...]"""
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import time
import traceback

import cluster as k8s
from cluster import NODES, SHARES, SYSTEM, until

CLASSES = ("high", "low")
PODS = len(NODES) * len(CLASSES) * SHARES
USER = 1234
END_MAX_S = 60


def expect(is_so: bool, what: str):
    if not is_so:
        raise AssertionError(what)


class Pods:
    """A user's actions, and the answers of cluster and servers."""

    def __init__(self, cluster: k8s.Cluster):
        self.cluster = cluster
        examples = cluster.kubectl("create", "--dry-run=client", "-o", "json", "-f", k8s.PACKAGING / "pair.yaml")
        # Each of the consecutive JSON documents is a pod.
        decoder, self.examples = json.JSONDecoder(), {}
        while examples.strip():
            pod, end = decoder.raw_decode(examples.strip())
            examples = examples.strip()[end:]
            self.examples[pod["metadata"]["name"]] = pod

    def pod(self, name: str, scheduling_class: str, seconds: float = 8, node: str = "", resources=None, command=None) -> dict:
        """Returns a pod like the example's."""
        pod = json.loads(json.dumps(self.examples[scheduling_class]))
        pod["metadata"]["name"] = name
        pod["spec"]["securityContext"]["runAsUser"] = USER
        container = pod["spec"]["containers"][0]
        container["command"][container["command"].index("--seconds") + 1] = str(seconds)
        if node:
            pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        if command:
            container["command"] = command
        if resources:
            container["resources"] = {"limits": resources}
        return pod

    def create(self, *pods: dict):
        self.cluster.kubectl("create", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))

    def get(self, name: str) -> dict:
        return self.cluster.get("pod", name)

    def phases(self) -> dict:
        return {pod["metadata"]["name"]: pod["status"].get("phase") for pod in self.cluster.get("pods")["items"]}

    def await_phase(self, name: str, phase: str, seconds: float = END_MAX_S):
        def is_so():
            pod = self.get(name)
            ended = pod["status"].get("phase") in ("Succeeded", "Failed")
            if ended and pod["status"]["phase"] != phase:
                raise AssertionError(f"{name} is {pod['status']['phase']}, not {phase}: {pod['status']} {self.said(name)}")
            return pod["status"].get("phase") == phase
        until(f"{name} is {phase}", is_so, seconds)

    def said(self, name: str) -> str:
        """Returns the output of the pod's container."""
        return self.cluster.run("master", "kubectl", "logs", name, check=False).stdout

    def why_pending(self, name: str) -> str:
        return " ".join(each.get("message", "") for each in self.get(name)["status"].get("conditions", []))

    def clear(self):
        self.cluster.kubectl("delete", "pods", "--all", "--grace-period=1", "--wait=true")

    def allocatable(self, node: str) -> dict:
        shares = self.cluster.get("node", node)["status"]["allocatable"]
        return {each: int(shares.get(f"gpushared.io/{each}", -1)) for each in CLASSES}

    def await_shares(self, nodes, count: int, seconds: float = END_MAX_S):
        begun = time.monotonic()
        wanted = dict.fromkeys(CLASSES, count)
        until(f"{', '.join(nodes)}: {wanted}", lambda: all(self.allocatable(node) == wanted for node in nodes), seconds)
        return time.monotonic() - begun

    def system_pod(self, of: str, node: str) -> dict:
        pods = self.cluster.get("pods", "-n", SYSTEM, "-l", f"app.kubernetes.io/name=gpushared-{of}",
                                "--field-selector", f"spec.nodeName={node}")["items"]
        expect(len(pods) == 1, f"{node} has {len(pods)} pods gpushared-{of}")
        return pods[0]

    def processes(self, node: str, program: str) -> list:
        """Returns the ids of processes of a node's containers."""
        found = []
        network = os.readlink(f"/proc/{self.cluster.holders[node].pid}/ns/uts")
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                # The kernel keeps 15 characters of the name.
                is_it = (process / "comm").read_text().strip() == program[:15]
                is_it = is_it and os.readlink(process / "exe").endswith(f"/{program}")
                parent = process
                while is_it and int(parent.name) > 1 and "containerd-shim" not in (parent / "comm").read_text():
                    parent = pathlib.Path("/proc") / re.search(r"PPid:\s+(\d+)", (parent / "status").read_text())[1]
                if is_it and os.readlink(parent / "ns/uts") == network:
                    found.append(int(process.name))
            except OSError:
                continue
        return sorted(found)

    def registrations(self, node: str) -> int:
        """Returns how often the node's kubelets received a registration of a resource."""
        log = (self.cluster.work / f"log/kubelet.{node}.log").read_text(errors="replace")
        return log.count("Got registration request from device plugin")

    def await_registrations(self, node: str, count: int) -> float:
        begun = time.monotonic()
        until(f"the plugin of {node} registers", lambda: self.registrations(node) >= count, END_MAX_S)
        return time.monotonic() - begun

    def clients(self, node: str) -> list:
        """Returns the clients of the node's server."""
        server = self.processes(node, "gpushared")[0]
        done = self.cluster.run("master", "nsenter", f"--target={server}", "--mount", "--", "/usr/bin/gpusharedctl", "--socket",
                                "/run/gpushared/gpushared.sock", "ps", "--json")
        return json.loads(done.stdout)["clients"]


def deployed(pods: Pods):
    """The unmodified manifests start server and plugin on both nodes, and register their shares with the cluster."""
    pods.cluster.deploy()
    took = pods.await_shares(NODES, SHARES, 120)
    for node in NODES:
        for of in ("server", "plugin"):
            spec = pods.system_pod(of, node)["spec"]
            expect(not spec.get("hostIPC") and not spec.get("hostPID") and not spec.get("hostNetwork"), f"{of}: {spec}")
            expect(not any("token" in volume["name"] for volume in spec["volumes"]), f"{of} has a token")
        for server in pods.processes(node, "gpushared"):
            rights = pathlib.Path(f"/proc/{server}/status").read_text()
            expect(re.search(r"Uid:\s+64000\s+64000", rights) and re.search(r"CapEff:\s+0+\n", rights), rights)
        plugin = pods.processes(node, "gpushared-kubernetes")
        expect(len(plugin) == 1, f"{node}: {plugin}")
        rights = pathlib.Path(f"/proc/{plugin[0]}/status").read_text()
        expect(re.search(r"CapEff:\s+0+\n", rights) and re.search(r"CapBnd:\s+0+\n", rights), rights)
        cdi = json.loads(pods.cluster.run(node, "cat", "/var/run/cdi/gpushared.io-endpoint.json").stdout)
        expect([each["name"] for each in cdi["devices"]] == sorted(CLASSES), f"{cdi}")
    return f"{SHARES} shares of each class on each node after {took:.0f} s"


def nine(pods: Pods):
    """Eight pods of two classes fill both nodes; the ninth waits, with the reason, and runs when a share is free."""
    names = [f"{of_class}{number}" for of_class in CLASSES for number in range(len(NODES) * SHARES)]
    begun = time.monotonic()
    pods.create(*(pods.pod(name, name[:-1], 30) for name in names))
    until("all eight run", lambda: list(pods.phases().values()) == ["Running"] * PODS)
    pods.create(pods.pod("ninth", "low", 1))
    until("the ninth says why it waits", lambda: f"{len(NODES)} Insufficient gpushared.io/low" in pods.why_pending("ninth"))
    expect(pods.phases()["ninth"] == "Pending", f"{pods.phases()}")
    ipc = {os.readlink(f"/proc/{pid}/ns/ipc") for node in NODES for pid in pods.processes(node, "gpushared")}
    ipc |= {os.readlink("/proc/self/ns/ipc")}
    for node in NODES:
        until("all four are the server's clients", lambda: len(pods.clients(node)) == PODS // len(NODES))
        clients = pods.clients(node)
        found = sorted((client["class"], client["endpoint"], client["uid"]) for client in clients)
        expect(found == sorted((each, each, USER) for each in CLASSES for _ in range(SHARES)), f"{node}: {found}")
        jobs = pods.processes(node, "train")
        expect(len(jobs) == PODS // len(NODES), f"{node}: {jobs}")
        for job in jobs:
            status = pathlib.Path(f"/proc/{job}/status").read_text()
            expect(re.search(rf"Uid:\s+{USER}\s+{USER}", status) and re.search(r"CapEff:\s+0+\n", status), status)
            expect(os.readlink(f"/proc/{job}/ns/ipc") not in ipc, "a job has the IPC of somebody else")
    for name in (*names, "ninth"):
        pods.await_phase(name, "Succeeded")
        expect("loss" in pods.said(name), f"{name}: {pods.said(name)}")
    return f"all nine ended well, {time.monotonic() - begun:.0f} s"


def rejected(pods: Pods):
    """A request that no node can satisfy waits with the reason; one that an endpoint does not permit is rejected by
    name."""
    pods.create(pods.pod("turbo", "low", resources={"gpushared.io/turbo": 1}))
    pods.create(pods.pod("much", "low", resources={"gpushared.io/low": SHARES + 1}))
    for name, resource in (("turbo", "turbo"), ("much", "low")):
        until(f"{name} says why", lambda: f"Insufficient gpushared.io/{resource}" in pods.why_pending(name))
    pods.create(pods.pod("two", "low", resources={"gpushared.io/low": 2}))
    pods.await_phase("two", "Failed")
    why = pods.get("two")["status"].get("message", "")
    expect("asked for 2 of gpushared.io/low, allowed: 1 for each container" in why, why)
    forged = [*pods.examples["low"]["spec"]["containers"][0]["command"], "--class", "high"]
    pods.create(pods.pod("forged", "low", command=forged))
    pods.await_phase("forged", "Failed")
    expect("asked for high" in pods.said("forged"), pods.said("forged"))


def plugin_restart(pods: Pods):
    """The plugin is killed while a job runs: the job continues, and the shares return."""
    pods.create(pods.pod("beside", "low", 20))
    pods.await_phase("beside", "Running")
    node = pods.get("beside")["spec"]["nodeName"]
    before = pods.registrations(node)
    os.kill(pods.processes(node, "gpushared-kubernetes")[0], signal.SIGKILL)
    took = pods.await_registrations(node, before + len(CLASSES))
    pods.await_shares([node], SHARES)
    pods.create(pods.pod("after", "high", 1, node))
    pods.await_phase("after", "Succeeded")
    pods.await_phase("beside", "Succeeded")
    return f"it registered again after {took:.0f} s"


def kubelet_restart(pods: Pods):
    """A kubelet is restarted while a job runs: the plugin registers again, and the job continues."""
    pods.create(pods.pod("beside", "low", 25))
    pods.await_phase("beside", "Running")
    node = pods.get("beside")["spec"]["nodeName"]
    before, plugin = pods.registrations(node), pods.processes(node, "gpushared-kubernetes")
    kubelet = pods.cluster.processes[f"kubelet.{node}"]
    kubelet.terminate()
    kubelet.wait(timeout=30)
    pods.cluster.start_kubelet(node)
    took = pods.await_registrations(node, before + len(CLASSES))
    pods.await_shares([node], SHARES)
    pods.create(pods.pod("after", "low", 1, node))
    pods.await_phase("after", "Succeeded")
    pods.await_phase("beside", "Succeeded")
    expect(pods.processes(node, "gpushared-kubernetes") == plugin, "the plugin is another one")
    return f"registered {took:.0f} s after its start"


def server_silent(pods: Pods):
    """The processes of a node's server are suspended: the node has no shares until they resume."""
    node = NODES[0]
    server = pods.processes(node, "gpushared")
    for process in server:
        os.kill(process, signal.SIGSTOP)
    silent = pods.await_shares([node], 0)
    expect(pods.allocatable(NODES[1]) == dict.fromkeys(CLASSES, SHARES), f"{NODES[1]}: {pods.allocatable(NODES[1])}")
    for process in server:
        os.kill(process, signal.SIGCONT)
    back = pods.await_shares([node], SHARES)
    return f"no shares after {silent:.0f} s, back after {back:.0f} s"


def server_stopped(pods: Pods):
    """A node's server is stopped: the node has no shares, and a pod that finds no share elsewhere waits until the
    server runs again."""
    pods.create(pods.pod("elsewhere", "low", 20))
    other = until("it has a node", lambda: pods.get("elsewhere")["spec"].get("nodeName"))
    node = next(each for each in NODES if each != other)
    pods.cluster.kubectl("label", "node", other, "gpushared.io/stopped=no")
    pods.cluster.kubectl("patch", "daemonset", "gpushared-server", "-n", SYSTEM, "-p", json.dumps(
        {"spec": {"template": {"spec": {"nodeSelector": {"gpushared.io/stopped": "no"}}}}}))
    stopped = pods.await_shares([node], 0)
    expect(pods.allocatable(other) == dict.fromkeys(CLASSES, SHARES), f"{other}: {pods.allocatable(other)}")
    jobs = [f"job{number}" for number in range(SHARES + 1)]
    pods.create(*(pods.pod(job, "high", 5) for job in jobs))
    full = "2 Insufficient gpushared.io/high"
    until("the one too many waits", lambda: any(full in pods.why_pending(job) for job in jobs))
    pods.cluster.kubectl("label", "node", node, "gpushared.io/stopped=no")
    back = pods.await_shares([node], SHARES)
    for job in ("elsewhere", *jobs):
        pods.await_phase(job, "Succeeded")
    return f"no shares after {stopped:.0f} s, back after {back:.0f} s"


def commands_of(readme: str) -> list:
    """Returns the commands of the indented blocks."""
    readme = re.sub(r"```.*?```", "", readme, flags=re.DOTALL)
    return re.findall(r"^    (\S.*)$", readme.replace("\\\n", ""), re.MULTILINE)


def chart(pods: Pods):
    """An operator follows the chart's README word for word: two pods of two classes get different shares."""
    cluster, node = pods.cluster, NODES[0]
    cluster.undeploy()
    checkout = cluster.checkout()
    readme = (k8s.CHART / "README.md").read_text().partition("**Claims instead of resources**")[0]
    commands = [command for command in commands_of(readme) if not command.startswith(("packaging/setup", "cmake"))]
    expect(len(commands) == 11, f"{commands}")

    def follow(command):
        where = node if command.startswith("ctr") else "master"
        in_checkout = f"cd {checkout} && export CONTAINERD_ADDRESS=/run/containerd.sock && {command.replace('NODE', node)}"
        return cluster.run(where, "bash", "-c", in_checkout, check="| grep" not in command).stdout

    for command in commands[:-1]:
        if "| grep" in command:
            resources = [f"gpushared.io/{each}:4" for each in CLASSES]
            until(command, lambda command=command: set(follow(command).replace(" ", "").split()) >= set(resources))
        else:
            follow(command)
    def device_times():
        return time.monotonic(), {row["endpoint"]: row["device_time_s"] for row in pods.clients(node)}

    until("both pods are clients", lambda: all(f" {each} " in follow(commands[-1]) for each in CLASSES), 10)
    (begun, before), _, (ended, after) = device_times(), time.sleep(5), device_times()
    shares = {each: 100 * (after[each] - before[each]) / (ended - begun) for each in CLASSES}
    caps = {row["endpoint"]: row["max_share_percent"] for row in pods.clients(node)}
    expect(caps == {"high": 60, "low": 30}, f"{caps}")
    # On a busy machine high does not reach its cap, and low gets the time that high leaves.
    expect(shares["low"] < shares["high"] < 63 and 0 < shares["low"] < 33, f"{shares}\n{follow(commands[-1])}")
    for name in CLASSES:
        pods.await_phase(name, "Succeeded")
    follow("helm uninstall gpushared --namespace gpushared-system")
    until("nothing is left", lambda: not cluster.get("pods", "-n", SYSTEM)["items"], END_MAX_S)
    return f"high had {shares['high']:.1f} %, low {shares['low']:.1f} % of the device"


SCENARIOS = (deployed, nine, rejected, plugin_restart, kubelet_restart, server_silent, server_stopped, chart)


def main() -> int:
    programs, cache, work, results = map(pathlib.Path, sys.argv[1:5])
    # All others need the cluster that the first one creates.
    chosen = [each for each in SCENARIOS if not sys.argv[5:] or each.__name__ in sys.argv[5:] or each is deployed]
    cluster, passed, failed = k8s.Cluster(programs, cache, work), 0, 0
    try:
        cluster.up()
        pods = Pods(cluster)
        for scenario in chosen:
            begun = time.monotonic()
            try:
                said = scenario(pods)
                passed += 1
                print(f"kubernetes: {scenario.__name__}: ok in {time.monotonic() - begun:.0f} s{'; ' + said if said else ''}", flush=True)
            except Exception:
                failed += 1
                print(f"kubernetes: {scenario.__name__} FAILED", flush=True)
                traceback.print_exc()
                if scenario is deployed:
                    break
            pods.clear()
    finally:
        shutil.rmtree(results, ignore_errors=True)
        shutil.copytree(work / "log", results)
        for node in NODES:
            pod_logs = results / f"pods.{node}"
            holder = cluster.holders.get(node)
            if holder and holder.poll() is None:
                shutil.copytree(f"/proc/{holder.pid}/root/var/log/pods", pod_logs, symlinks=True)
    print(f"kubernetes: {passed} passed, {failed} failed of {len(chosen)}; the programs' logs are in {results}")
    return 0 if passed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
