# SPDX-License-Identifier: Apache-2.0
"""Tests gpushared-dra with the real server, and a kubelet and an API server that dra_node.py imitates.

Usage: dra_test.py PROTOS BIN_DIR [unittest arguments]. Needs grpcio and protobuf, protoc, openssl, kubernetes-validate,
and root for the containers' mount namespaces. GPUSHARED_DRA_ROUNDS (60) is the number of random steps.
"""
import concurrent.futures
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import grpc
import kubernetes_validate
import yaml
from kubernetes_validate.utils import all_versions

from dra_node import CONFIG, DRIVER, NODE, Node, parameters, wait_for

BIN = pathlib.Path(sys.argv.pop(2)).resolve()
PROTOS = pathlib.Path(sys.argv.pop(1)).resolve()
PACKAGING = pathlib.Path(__file__).resolve().parents[2] / "packaging"
TEXT = PACKAGING.parent / "README.md"
ROUNDS = int(os.environ.get("GPUSHARED_DRA_ROUNDS", "60"))
# Releases with resource.k8s.io/v1.
VERSIONS = [each for each in all_versions() if tuple(map(int, each.split(".")[:2])) >= (1, 34)]


class NodeCase(unittest.TestCase):
    OPTIONS = ()
    CONFIG = CONFIG

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="dra-")
        self.addCleanup(directory.cleanup)
        self.node = Node(pathlib.Path(directory.name), BIN, PROTOS, self.OPTIONS, self.CONFIG)
        self.addCleanup(self.node.kill_all)
        self.addCleanup(self.show_log)
        self.api, self.kubelet = self.node.api, self.node.kubelet
        self.kubelet.register()

    def show_log(self):
        result = self._outcome.result
        if any(case is self for case, _ in result.failures + result.errors):
            print(self.node.logged()[-6000:], file=sys.stderr)

    def prepare(self, claim):
        answer = self.kubelet.prepare(claim)[claim["uid"]]
        self.assertEqual(answer.error, "")
        return answer

    def assert_nothing_is_left(self):
        wait_for(lambda: not self.node.leases(), "the end of all leases")
        self.assertEqual(self.node.files(), [])
        self.assertEqual(list(self.node.sockets.glob("*.leases/*")), [])


class Preparation(NodeCase):
    def test_slice_has_the_devices_and_is_valid(self):
        info = self.kubelet.registered
        self.assertEqual((info.type, info.name, list(info.supported_versions)), ("DRAPlugin", DRIVER, ["v1.DRAPlugin"]))
        published = wait_for(self.api.slice, "the slice")
        self.assertTrue(VERSIONS)
        for version in VERSIONS:
            kubernetes_validate.validate(published, version, strict=True)
        device, = published["spec"]["devices"]
        self.assertEqual((device["name"], device["allowMultipleAllocations"]), ("cpu-0", True))
        self.assertIn("cpu device", device["attributes"]["productName"]["string"])
        self.assertRegex(device["attributes"]["serverVersion"]["version"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(device["capacity"]["deviceTime"]["value"], "1000")
        memory = device["capacity"]["memory"]
        self.assertEqual(int(memory["value"]) % int(memory["requestPolicy"]["validRange"]["step"]), 0)
        self.assertLessEqual(int(memory["value"]), self.node.ctl("status")["devices"][0]["memory_bytes"])

    def test_slice_is_published_again_for_a_new_kubelet_and_follows_the_server(self):
        wait_for(self.api.slice, "the slice")
        with self.api.lock:
            self.api.slices.clear()
        self.kubelet.register()
        wait_for(self.api.slice, "the slice for the new kubelet", 5)
        self.node.kill_server()
        wait_for(lambda: not self.api.slice()["spec"]["devices"], "a slice without devices")
        self.assertEqual(self.api.slice()["spec"]["pool"]["generation"], 2)
        self.node.start_server()
        wait_for(lambda: self.api.slice()["spec"]["devices"], "the device")
        writes = [call for call in self.api.calls if call[0] != "GET"]
        self.assertEqual([method for method, _ in writes], ["POST", "POST", "PUT", "PUT"])

    def test_claim_leases_exactly_its_terms(self):
        configs = [parameters(**{"class": "low"}, maxDeviceTime=500, memoryLimit="64Mi", latencyTargetMs=25),
                   parameters("FromClaim", clients=2, maxDeviceTime=400)]
        claim = self.api.allocate("train", "250", "16Mi", configs)
        answer = self.prepare(claim)
        device, = answer.devices
        self.assertEqual((list(device.request_names), device.pool_name, device.device_name), (["gpu"], NODE, "cpu-0"))
        self.assertEqual(list(device.cdi_device_ids), [f"gpushared.io/claim={claim['uid']}"])
        (name, row), = self.node.leases().items()
        self.assertTrue(claim["uid"].replace("-", "").startswith(name.removeprefix("claim-")))
        self.assertEqual({key: row[key] for key in ("class", "highest_class", "weight", "max_share_percent", "memory",
                                                    "client_memory", "memory_limit", "latency_targets", "devices")},
                         {"class": "low", "highest_class": "low", "weight": 125, "max_share_percent": 40,
                          "memory": "16 MiB", "client_memory": "8 MiB", "memory_limit": "64 MiB",
                          "latency_targets": True, "devices": ["cpu:0"]})
        self.assertEqual(self.node.files(), [f"gpushared.io-claim_{claim['uid']}.json"])
        edits = self.node.edits(device.cdi_device_ids[0])
        self.assertEqual(set(edits["env"]), {"GPUSHARED_SOCKET=/run/gpushared/gpushared.sock", "GPUSHARED_DEVICE=cpu:0",
                                             "GPUSHARED_LATENCY_TARGET=25.0"})
        mount, = edits["mounts"]
        self.assertEqual(mount["hostPath"] + "/gpushared.sock", row["socket"])
        self.assertEqual(mount["containerPath"], "/run/gpushared")
        self.assertIn("ro", mount["options"])
        self.assertEqual(self.kubelet.unprepare(claim)[claim["uid"]].error, "")
        self.assert_nothing_is_left()

    def test_device_without_consumable_capacity_is_taken_as_a_whole(self):
        claim = self.api.allocate("whole", consumedCapacity=None)
        self.prepare(claim)
        row, = self.node.leases().values()
        self.assertEqual((row["max_share_percent"], row["class"]), (100, "normal"))

    def test_preparing_and_unpreparing_again_changes_nothing(self):
        claim = self.api.allocate("shared")
        first = self.prepare(claim)
        row = self.node.leases()
        with self.api.lock:
            self.api.claims.clear()  # A second pod of the claim starts while the API server returns no claims.
        self.assertEqual(self.prepare(claim), first)
        self.assertEqual(self.node.leases(), row)
        for _ in range(2):
            self.assertEqual(self.kubelet.unprepare(claim)[claim["uid"]].error, "")
        self.assert_nothing_is_left()
        # A claim of the same name can be prepared for the next pod immediately.
        self.api.allocate("shared", uid=claim["uid"])
        self.prepare(claim)

    def test_bad_input_is_named_with_what_is_allowed(self):
        low = parameters(**{"class": "low"})
        none = {"consumedCapacity": {"deviceTime": "250"}}
        cases = [
            (dict(device_time="1001"), "deviceTime of device 'cpu-0': asked for '1001', allowed: 1 to 1000"),
            (dict(device_time="some"), "deviceTime of device 'cpu-0': asked for 'some'"),
            (dict(memory="1Mi"), "memory of device 'cpu-0': asked for '1Mi', allowed: 2097152 to"),
            (none, "memory of device 'cpu-0': asked for ''"),
            (dict(device="cpu-7"), "device: asked for 'cpu-7', allowed: one of the node's server: cpu-0"),
            (dict(pool="node-b"), f"no device of {DRIVER} on node '{NODE}'"),
            (dict(adminAccess=True), "adminAccess: asked for true, allowed: false"),
            (dict(configs=[parameters(colour="red")]),
             "parameter colour of its DeviceClass is unknown, allowed: class, maxDeviceTime"),
            (dict(configs=[parameters("FromClaim", clients=0)]),
             "parameter clients of its config: asked for 0, allowed: 1 to 32"),
            (dict(configs=[parameters("FromClaim", clients=9)]), "clients: asked for 9, allowed: 8, because"),
            (dict(configs=[parameters("FromClaim", memoryLimit="1.5Gi")]), "asked for \"1.5Gi\", allowed: a size"),
            (dict(configs=[parameters(latencyTargetMs="fast")]), "latencyTargetMs of its DeviceClass: asked for \"fast\""),
            (dict(configs=[parameters("FromClaim", **{"class": "royal"})]), "allowed: high, normal or low"),
            (dict(configs=[parameters("FromClaim", **{"class": "high"})]),
             "class of its config: asked for high, allowed: normal at most, by its DeviceClass"),
            (dict(configs=[low, parameters("FromClaim", **{"class": "normal"})]), "allowed: low at most"),
            (dict(configs=[low, parameters("FromClaim", maxDeviceTime=500)]),
             "maxDeviceTime of its config: asked for 500, allowed: 250 (its deviceTime) to 250"),
            (dict(configs=[low, parameters("FromClaim", memoryLimit="1Gi")]), "memoryLimit of its config"),
            (dict(configs=[low, parameters("FromClaim", latencyTargetMs=5)]),
             "latencyTargetMs of its config: asked for 5"),
            (dict(configs=[{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": {"class": "low"}}}]),
             "parameter apiVersion of its config: asked for null, allowed: gpushared.io/v1"),
        ]
        claims = [self.api.allocate(f"bad-{number}", **given) for number, (given, _) in enumerate(cases)]
        answers = self.kubelet.prepare(*claims)
        for claim, (given, expected) in zip(claims, cases):
            error = answers[claim["uid"]].error
            self.assertIn(f"claim 'jobs/{claim['name']}' rejected", error, given)
            self.assertIn(expected, error, given)
        # Parameters for other drivers are ignored.
        other = {"source": "FromClaim", "opaque": {"driver": "other.example", "parameters": 7}}
        self.prepare(self.api.allocate("good", configs=[other]))

    def test_two_parts_of_a_device_need_two_claims(self):
        part = {"request": "a", "driver": DRIVER, "pool": NODE, "device": "cpu-0",
                "consumedCapacity": {"deviceTime": "100", "memory": "4Mi"}}
        self.api.put("pair", "11", {"allocation": {"devices": {"results": [part, {**part, "request": "b"}]}}})
        error = self.kubelet.prepare({"namespace": "jobs", "name": "pair", "uid": "11"})["11"].error
        self.assertIn("device 'cpu-0': asked for twice, allowed: one claim for each part", error)

    def test_malformed_answers_and_wrong_names_are_errors(self):
        claim = self.api.allocate("job")
        for broken in ("", "[]", "7", "{", "{}", '{"metadata":{"uid":[]}}', '{"status":"none"}', "x" * (5 << 20)):
            self.api.broken = broken
            self.assertIn("claim 'jobs/job'", self.kubelet.prepare(claim)[claim["uid"]].error)
        for broken in ("[]", '{"metadata":[]}', '{"metadata":{"resourceVersion":7},"spec":{"pool":[1]}}'):
            self.api.broken = broken
            calls = len(self.api.calls)
            self.kubelet.register()  # Makes the driver publish.
            wait_for(lambda: len(self.api.calls) > calls, "a call", 5)
        self.assertIsNone(self.node.driver.poll())
        for status in ("no", {"allocation": 3}, {"allocation": {"devices": {"results": "x"}}},
                       {"allocation": {"devices": {"results": [7, {}, {"driver": 9}], "config": 5}}}):
            self.api.broken = None
            self.api.put("job", claim["uid"], status)
            self.assertIn("no device of gpushared.io", self.kubelet.prepare(claim)[claim["uid"]].error)
        for config in (5, [5], [{"source": "FromClass", "opaque": [3]}], [parameters(), 5]):
            self.api.allocate("job", uid=claim["uid"], configs=config if isinstance(config, list) else ())
            self.prepare(claim)
            self.kubelet.unprepare(claim)
        replaced = {**claim, "uid": "another"}
        self.assertIn("the kubelet asked for UID another, the API server has",
                      self.kubelet.prepare(replaced)["another"].error)
        self.assertIn("404", self.kubelet.prepare({**claim, "name": "gone"})[claim["uid"]].error)
        evil = {**claim, "uid": "../../etc/x"}
        for answers in (self.kubelet.prepare(evil), self.kubelet.unprepare(evil)):
            self.assertIn("its UID: asked for '../../etc/x'", answers[evil["uid"]].error)
        self.assert_nothing_is_left()

    def test_missing_rights_are_named(self):
        (self.node.directory / "token").write_text("forged", encoding="utf-8")
        claim = self.api.allocate("job")
        error = self.kubelet.prepare(claim)[claim["uid"]].error
        self.assertRegex(error, r"claim 'jobs/job' is not prepared: GET https://\S+/jobs/resourceclaims/job failed: 401")

    def test_authority_of_the_api_server_is_checked(self):
        other = self.node.directory / "other"
        other.mkdir()
        self.node.api.ca.write_bytes(type(self.api)(other).ca.read_bytes())
        claim = self.api.allocate("job")
        self.assertIn("certificate", self.kubelet.prepare(claim)[claim["uid"]].error)

    def test_missing_feature_gate_is_named(self):
        self.api.drops = "allowMultipleAllocations"
        with self.api.lock:
            self.api.slices.clear()
        self.kubelet.register()
        wait_for(lambda: "enable its feature gate DRAConsumableCapacity" in self.node.logged(), "the message")

    def test_removed_file_is_written_again(self):
        self.prepare(self.api.allocate("job"))
        name, = self.node.files()
        (self.node.cdi / name).unlink()
        wait_for(lambda: self.node.files() == [name], "the file")

    def test_second_driver_waits(self):
        first = self.node.driver
        self.node.start_driver()
        wait_for(lambda: "another driver runs on this node" in self.node.logged(), "the rejection")
        first.send_signal(signal.SIGTERM)
        self.assertEqual(first.wait(), 0)
        wait_for(lambda: self.kubelet.register(), "the second driver")
        self.prepare(self.api.allocate("job"))


class Sharing(NodeCase):
    OPTIONS = ("--drop-in", str(BIN.parent / "lib/drop_in"))

    def usage(self):
        device, = self.node.ctl("status")["devices"]
        return {row["endpoint"]: row["device_time_s"] for row in device["totals"]["endpoints"]}

    def device_time(self, seconds):
        """Device time by endpoint in the next seconds, and the time that really passed."""
        before, start = self.usage(), time.monotonic()
        time.sleep(seconds)
        after, passed = self.usage(), time.monotonic() - start
        return {endpoint: used - before.get(endpoint, 0) for endpoint, used in after.items()}, passed

    def test_a_quarter_is_a_quarter_beside_others_and_alone(self):
        endpoints, programs = {}, []
        for name, part in (("quarter", "250"), ("half", "500"), ("other quarter", "250")):
            known = set(self.node.leases())
            answer = self.prepare(self.api.allocate(name.replace(" ", "-"), part, "1Gi", [parameters(**{"class": "low"})]))
            endpoints[name], = set(self.node.leases()) - known
            programs.append(self.node.run(answer, str(BIN / "train"), "--text", str(TEXT), "--steps", "0", "--seconds", "90"))
        self.addCleanup(lambda: [(os.killpg(each.pid, signal.SIGKILL), each.wait()) for each in programs])
        wait_for(lambda: len([each for each in self.usage().values() if each > 0.2]) == 3, "three training programs")
        used, seconds = self.device_time(15)
        total = sum(used.values())
        shares = {name: 100 * used[endpoint] / total for name, endpoint in endpoints.items()}
        print(f"of {total:.2f} s of device time in {seconds:.1f} s: " + ", ".join(
            f"{name} {share:.1f} %" for name, share in shares.items()), file=sys.stderr)
        # Shares of the time that the machine gave the device, because other programs use its cores, too.
        self.assertAlmostEqual(shares["quarter"], 25, delta=2)
        self.assertAlmostEqual(shares["half"], 50, delta=2)
        while len(programs) > 1:
            each = programs.pop()
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()
        wait_for(lambda: len(self.node.ctl("ps")["clients"]) == 1, "the end of the others")
        used, seconds = self.device_time(5)
        alone = 100 * used[endpoints["quarter"]] / seconds
        print(f"quarter alone: {alone:.1f} % of {seconds:.1f} s", file=sys.stderr)
        self.assertLess(alone, 27)

    def test_unmodified_program_uses_the_drop_in_within_its_memory(self):
        answer = self.prepare(self.api.allocate("small", memory="4Mi"))
        program = self.node.run(answer, str(BIN / "drop_in_vector_add"))
        self.assertEqual(program.wait(), 0)
        edits = self.node.edits(answer.devices[0].cdi_device_ids[0])
        self.assertIn("LD_LIBRARY_PATH=/usr/lib/gpushared/drop_in", edits["env"])
        library = edits["mounts"][1]
        self.assertNotIn("noexec", library["options"])

    def test_pods_of_a_claim_share_it(self):
        claim = self.api.allocate("both", memory="64Mi", configs=[parameters("FromClaim", clients=2)])
        answer = self.prepare(claim)
        programs = [self.node.run(self.prepare(claim), str(BIN / "drop_in_vector_add")) for _ in range(2)]
        self.assertEqual([each.wait() for each in programs], [0, 0])
        row, = self.node.leases().values()
        self.assertEqual((row["admitted"], answer), (2, self.prepare(claim)))


class Chart(NodeCase):
    """The chart's configuration, driver options and device classes, and the two claims of its README."""

    @classmethod
    def setUpClass(cls):
        rendered = subprocess.run(["helm", "template", "release", PACKAGING / "helm/gpushared", "--set", "allocation=dra",
                                   "--kube-version", "1.36.0"], capture_output=True, text=True, check=True).stdout
        cls.documents = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(rendered) if each}
        cls.CONFIG = cls.documents["ConfigMap", "gpushared"]["data"]["gpushared.toml"]
        pod = cls.documents["DaemonSet", "gpushared-dra"]["spec"]["template"]["spec"]
        program, socket, path, *options = pod["containers"][0]["command"]
        assert (program, socket, path) == ("/usr/bin/gpushared-dra", "--socket", "/run/gpushared/gpushared.sock")
        cls.OPTIONS = [each.replace("/var/lib/gpushared/drop_in", str(BIN.parent / "lib/drop_in")) for each in options]

    def test_two_pods_of_two_classes_get_what_they_claimed(self):
        programs = {}
        self.addCleanup(lambda: [(os.killpg(each.pid, signal.SIGKILL), each.wait()) for each in programs.values()])
        for document in yaml.safe_load_all((PACKAGING / "kubernetes/claim.yaml").read_text(encoding="utf-8")):
            name = document["metadata"]["name"]
            if document["kind"] == "Pod":
                # The example's command, with files of this machine and a longer run.
                command = document["spec"]["containers"][0]["command"]
                files = {"/usr/bin/train": str(BIN / "train"), "/usr/share/gpushared/text": str(TEXT), "20": "60"}
                programs[name] = self.node.run(answer, *[files.get(each, each) for each in command])
                continue
            devices = document["spec"]["spec"]["devices"]
            exactly = devices["requests"][0]["exactly"]
            # What the scheduler does with the class and the claim. This device has less than their 8 GiB.
            configs = [{"source": "FromClass", **each}
                       for each in self.documents["DeviceClass", exactly["deviceClassName"]]["spec"]["config"]]
            configs += [{"source": "FromClaim", **each} for each in devices.get("config", [])]
            claim = self.api.allocate(name, exactly["capacity"]["requests"]["deviceTime"], "512Mi", configs)
            answer = self.prepare(claim)
        wait_for(lambda: len(self.node.ctl("ps")["clients"]) == 2, "two training programs")
        found = {row["class"]: row["max_share_percent"] for row in self.node.ctl("ps")["clients"]}
        self.assertEqual(found, {"high": 50, "low": 25})
        shares = self.shares(10)
        # On a busy machine high does not reach its limit, and low gets the time that high leaves.
        self.assertLess(shares["high"], 53)
        self.assertLess(shares["low"], 28)
        self.assertGreater(shares["high"], shares["low"])
        self.assertGreater(shares["low"], 0)
        os.killpg(programs["half"].pid, signal.SIGKILL)
        wait_for(lambda: len(self.node.ctl("ps")["clients"]) == 1, "the end of the pod of class high")
        alone = self.shares(5)["low"]
        self.assertLess(alone, 28)
        self.assertGreater(alone, 3)

    def shares(self, seconds):
        """Percentage of the device's time by class in the next seconds."""
        def device_time():
            return {row["class"]: row["device_time_s"] for row in self.node.ctl("ps")["clients"]}

        before, start = device_time(), time.monotonic()
        time.sleep(seconds)
        after, passed = device_time(), time.monotonic() - start
        shares = {each: 100 * (after[each] - used) / passed for each, used in before.items()}
        print(", ".join(f"{each} {share:.1f} %" for each, share in shares.items()), file=sys.stderr)
        return shares


class GateMode(NodeCase):
    OPTIONS = ("--gpu-cdi-kind", "nvidia.com/gpu")

    def test_containers_get_the_gate(self):
        # The cpu device has no UUID, so no GPU is passed to the container.
        answer = self.prepare(self.api.allocate("torch"))
        env = self.node.edits(answer.devices[0].cdi_device_ids[0])["env"]
        self.assertIn("GPUSHARED_MODE=gate", env)
        self.assertNotIn("GPUSHARED_DEVICE=cpu:0", env)


class Restarts(NodeCase):
    def path_of(self, claim):
        return self.node.edits(f"gpushared.io/claim={claim['uid']}")["mounts"][0]["hostPath"] + "/gpushared.sock"

    def admits(self, claim):
        """Whether a container that starts now reaches the server through its claim."""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(self.path_of(claim))
        return True

    def test_sessions_outlive_the_driver(self):
        claim = self.api.allocate("long", memory="1Gi")
        train = self.node.run(self.prepare(claim), str(BIN / "train"), "--text", str(TEXT), "--steps", "0", "--seconds", "8")
        wait_for(lambda: self.node.ctl("ps")["clients"], "the training program")
        path = self.path_of(claim)
        self.node.kill_driver()
        self.assertTrue(self.admits(claim))
        self.node.start_driver()
        wait_for(lambda: "held" not in next(iter(self.node.leases().values())), "the resumption")
        self.assertEqual(self.path_of(claim), path)
        self.assertEqual(train.wait(), 0)
        wait_for(lambda: self.kubelet.unprepare(claim)[claim["uid"]].error == "", "the end")
        self.assert_nothing_is_left()

    def test_lease_that_no_driver_resumes_ends(self):
        self.node.kill_driver(signal.SIGTERM)
        self.node.options += ["--resume-within", "1"]
        self.node.start_driver()
        self.kubelet.register()
        self.prepare(self.api.allocate("lost"))
        self.node.kill_driver()
        wait_for(lambda: not self.node.leases(), "the end of the lease")

    def test_claims_get_new_endpoints_from_a_new_server(self):
        claim = self.api.allocate("job")
        self.prepare(claim)
        self.node.kill_server()
        self.node.start_server()
        wait_for(lambda: self.admits(claim), "the endpoint")
        self.node.kill_server(with_workers=False)  # Its successor adopts the worker and the lease.
        self.node.start_server()
        wait_for(lambda: self.admits(claim), "the endpoint")

    def test_unprepared_while_the_server_is_down(self):
        claim = self.api.allocate("job")
        self.prepare(claim)
        os.killpg(self.node.server.pid, signal.SIGSTOP)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            ended = pool.submit(self.kubelet.unprepare, claim, seconds=60)
            time.sleep(12)
            os.killpg(self.node.server.pid, signal.SIGCONT)
            self.assertEqual(ended.result()[claim["uid"]].error, "")
        self.assert_nothing_is_left()

    def test_part_of_a_file_is_removed(self):
        self.node.kill_driver()
        (self.node.cdi / "gpushared.io-claim_1-2.json.part").write_text("{", encoding="utf-8")
        (self.node.cdi / "gpushared.io-claim_1-3.json").write_text("{}", encoding="utf-8")
        (self.node.cdi / "other.json").write_text("{}", encoding="utf-8")
        self.node.start_driver()
        wait_for(lambda: self.node.files() == ["other.json"], "the removal")

    def test_lease_without_a_file_ends(self):
        claim = self.api.allocate("job")
        self.prepare(claim)
        self.node.kill_driver()
        (self.node.cdi / self.node.files()[0]).unlink()
        self.node.start_driver()
        wait_for(lambda: not self.node.leases(), "the end of the lease")

    def test_random_kills_leave_nothing(self):
        seed = int(os.environ.get("GPUSHARED_DRA_SEED", time.time_ns() % 1_000_000))
        chance = random.Random(seed)
        print(f"{ROUNDS} random steps, GPUSHARED_DRA_SEED={seed}", file=sys.stderr)
        claims = [self.api.allocate(f"job-{number}", "50", "4Mi") for number in range(16)]
        prepared, counts = set(), {"prepare": 0, "unprepare": 0, "driver": 0, "kubelet": 0, "server": 0, "broker": 0}

        def try_once(method, claim):
            counts[method.__name__] += 1
            try:
                return method(claim, seconds=5)[claim["uid"]].error == ""
            except grpc.RpcError:
                return False

        def call(method, claim):
            """Repeats the call like a kubelet, until the answer contains no error."""
            wait_for(lambda: try_once(method, claim), f"{method.__name__} of {claim['name']}")

        def call_for_short_pod(claim):
            """The pod is deleted while the kubelet waits for its claim."""
            try_once(self.kubelet.prepare, claim)
            call(self.kubelet.unprepare, claim)

        def disturb(pool, others):
            """Ends a process while a call is in progress; returns the calls of a new kubelet."""
            victim = chance.choice(["driver", "driver", "kubelet", "server", "broker"])
            counts[victim] += 1
            time.sleep(chance.uniform(0, 0.05))
            if victim == "driver":
                self.node.kill_driver()
                self.node.start_driver()
            elif victim == "kubelet":  # A new one prepares the claims of its pods again.
                return [pool.submit(call, self.kubelet.prepare, claims[each]) for each in others]
            else:
                self.node.kill_server(with_workers=victim == "server")
                self.node.start_server()
            return []

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for step in range(ROUNDS):
                number = chance.randrange(len(claims))
                is_short = number not in prepared and chance.random() < 0.3
                method = self.kubelet.unprepare if number in prepared else self.kubelet.prepare
                calls = [pool.submit(call_for_short_pod, claims[number]) if is_short else
                         pool.submit(call, method, claims[number])]
                if chance.random() < 0.25:
                    calls += disturb(pool, prepared - {number})
                for each in calls:
                    each.result()
                prepared ^= set() if is_short else {number}
                if step % 20 == 19:
                    for each in prepared:
                        wait_for(lambda each=each: self.admits(claims[each]), f"the endpoint of job-{each}")
                    wait_for(lambda: len(self.node.leases()) == len(prepared),
                             lambda: f"{len(prepared)} leases, but {self.node.leases()}")
                    self.assertEqual(len(self.node.files()), len(prepared))
            for each in prepared:
                call(self.kubelet.unprepare, claims[each])
        print(", ".join(f"{count} x {what}" for what, count in counts.items()), file=sys.stderr)
        self.assert_nothing_is_left()
        with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
            self.assertNotIn(str(self.node.directory), mounts.read())


if __name__ == "__main__":
    unittest.main(verbosity=2)
