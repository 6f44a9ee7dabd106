# SPDX-License-Identifier: Apache-2.0
"""Checks the Helm chart: what it renders, what it rejects, and that its defaults are the manifests.

Usage: chart_test.py PACKAGING BIN_DIR. Needs kubernetes-validate, and helm on the PATH; contacts no cluster. BIN_DIR
has the server, which checks the rendered configuration.
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import kubernetes_validate
import yaml
from kubernetes_validate.utils import all_versions

BIN = pathlib.Path(sys.argv.pop(2))
PACKAGING = pathlib.Path(sys.argv.pop(1))
CHART = PACKAGING / "helm/gpushared"
MANIFESTS = PACKAGING / "kubernetes"
# The kinds that are not Kubernetes' own.
FOREIGN = {"PodMonitor"}

WEB = {"web": {"enabled": True, "tokenSecret": {"name": "token"}}}
DRA = {"allocation": "dra"}
EVERYTHING = {
    **WEB,
    "gpu": {"enabled": True},
    "image": {"repository": "registry.example/gpushared", "tag": "1.2"},
    "plugin": {"sharesOf": {"low": 16, "high": 2}, "resources": {"limits": {"memory": "64Mi"}}},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "priorityClass": {"name": "gpushared", "create": True},
    "server": {"hostPid": True, "raisePriority": True, "resources": {"requests": {"cpu": "1"}}},
    "tolerations": [],
}


def helm(*arguments, values=None):
    if values and values.get("allocation") == "dra" and "--kube-version" not in arguments:
        arguments += ("--kube-version", "1.36.0")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values or {}, file)
        file.flush()
        return subprocess.run(["helm", *arguments, "--values", file.name], capture_output=True, text=True, check=False)


def render(values=None):
    ran = helm("template", "release", CHART, "--namespace", "gpushared-system", values=values)
    if ran.returncode != 0:
        raise AssertionError(ran.stderr)
    return [document for document in yaml.safe_load_all(ran.stdout) if document is not None]


def find(documents, kind, name):
    return next(document for document in documents if (document["kind"], document["metadata"]["name"]) == (kind, name))


def pod_of(documents, name):
    return find(documents, "DaemonSet", name)["spec"]["template"]["spec"]


class Chart(unittest.TestCase):
    maxDiff = None

    def test_lint_finds_nothing(self):
        for values in ({}, EVERYTHING, DRA):
            ran = helm("lint", "--strict", CHART, values=values)
            self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_every_known_release_accepts_what_it_renders(self):
        for values in ({}, WEB, EVERYTHING, DRA, {**EVERYTHING, **DRA, "dra": {"gpuCdiKind": "nvidia.com/gpu"}}):
            for document in render(values):
                if document["kind"] in FOREIGN:
                    continue
                for version in all_versions():
                    if document["kind"] == "DeviceClass" and tuple(map(int, version.split(".")[:2])) < (1, 34):
                        continue
                    with self.subTest(f"{document['kind']}, {version}"):
                        kubernetes_validate.validate(document, version, strict=True)

    def test_defaults_are_the_manifests(self):
        self.assert_equal(render(), ("server.yaml", "plugin.yaml"), "gpushared.toml")
        self.assert_equal(render(DRA), ("server.yaml", "dra.yaml"), "dra.toml")

    def assert_equal(self, documents, files, config_file):
        for document in documents:
            # Labels that only a chart has.
            labels = document["metadata"].get("labels", {})
            for label in ("helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"):
                labels.pop(label, None)
            if document["kind"] != "DaemonSet":
                document["metadata"].pop("labels", None)
        count = 0
        for file in files:
            for manifest in yaml.safe_load_all((MANIFESTS / file).read_text(encoding="utf-8")):
                self.assertEqual(find(documents, manifest["kind"], manifest["metadata"]["name"]), manifest)
                count += 1
        self.assertEqual(len(documents), count + 1)  # The additional document is the configuration.
        config = find(documents, "ConfigMap", "gpushared")["data"]["gpushared.toml"]
        manifest = (MANIFESTS / config_file).read_text(encoding="utf-8")
        self.assertEqual(config.strip(), manifest[manifest.index("policy"):].strip())

    def test_the_server_accepts_the_configuration(self):
        for values in ({}, DRA):
            config = find(render(values), "ConfigMap", "gpushared")["data"]["gpushared.toml"]
            with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
                file.write(config)
                file.flush()
                ran = subprocess.run([BIN / "gpushared", "--check-config", file.name], capture_output=True, text=True,
                                     check=False)
            self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_driver_replaces_the_plugin(self):
        documents = render({**DRA, "dra": {"gpuCdiKind": "nvidia.com/gpu", "dropIn": False, "maxDeviceTime": {"high": 700}}})
        names = {document["metadata"]["name"] for document in documents}
        self.assertIn("gpushared-dra", names)
        self.assertNotIn("gpushared-plugin", names)
        driver = pod_of(documents, "gpushared-dra")
        self.assertEqual(driver["containers"][0]["command"][-2:], ["--gpu-cdi-kind", "nvidia.com/gpu"])
        self.assertNotIn("initContainers", driver)
        parameters = find(documents, "DeviceClass", "gpushared-high")["spec"]["config"][0]["opaque"]["parameters"]
        self.assertEqual(parameters["maxDeviceTime"], 700)
        old = helm("template", "release", CHART, "--kube-version", "1.33.2", values=DRA)
        self.assertIn("allocation: dra needs Kubernetes 1.34, this is v1.33.2", old.stderr)

    def test_server_avoids_nodes_with_nvidias_device_plugin(self):
        for name in ("gpushared-server", "gpushared-plugin"):
            terms = pod_of(render({"gpu": {"enabled": True}}), name)["affinity"]["nodeAffinity"]
            self.assertIn("nvidia.com/gpu.deploy.device-plugin", str(terms))
            beside = pod_of(render({"gpu": {"enabled": True, "besideNvidiaPlugin": True}}), name)
            self.assertNotIn("affinity", beside)
            self.assertNotIn("affinity", pod_of(render(), name))

    def test_options_reach_the_programs(self):
        documents = render(EVERYTHING)
        server, plugin = pod_of(documents, "gpushared-server"), pod_of(documents, "gpushared-plugin")
        self.assertEqual(plugin["containers"][0]["command"][-6:],
                         ["--shares", "4", "--shares", "high=2", "--shares", "low=16"])
        self.assertEqual(server["runtimeClassName"], "nvidia")
        self.assertIs(server["hostPID"], True)
        main, web = server["containers"]
        self.assertEqual({each["name"]: each["value"] for each in main["env"]},
                         {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"})
        self.assertEqual(main["image"], "registry.example/gpushared:1.2")
        self.assertEqual(main["securityContext"]["capabilities"], {"drop": ["ALL"], "add": ["SYS_NICE"]})
        self.assertEqual(server["securityContext"]["runAsUser"], 0)
        self.assertIn("0:0", server["initContainers"][0]["command"])
        self.assertEqual(web["ports"], [{"name": "metrics", "containerPort": 9464}])
        monitor = find(documents, "PodMonitor", "gpushared")["spec"]["podMetricsEndpoints"][0]
        self.assertEqual((monitor["port"], monitor["authorization"]["credentials"]["name"]), ("metrics", "token"))
        self.assertEqual(find(documents, "PriorityClass", "gpushared")["value"], 1000000)
        for pod in (server, plugin):
            self.assertEqual(pod["priorityClassName"], "gpushared")
            self.assertNotIn("tolerations", pod)

    def test_privileges_are_only_those_that_were_chosen(self):
        for values in ({}, WEB, {"gpu": {"enabled": True}}):
            documents = render(values)
            for name in ("gpushared-server", "gpushared-plugin"):
                pod = pod_of(documents, name)
                self.assertFalse({"hostIPC", "hostPID", "hostNetwork"} & pod.keys())
                for container in pod.get("initContainers", []) + pod["containers"]:
                    rights = container["securityContext"]
                    self.assertEqual((rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"],
                                      rights["capabilities"]["drop"]), (False, True, ["ALL"]))
            self.assertFalse({"Role", "ClusterRole"} & {document["kind"] for document in documents})

    def test_wrong_values_are_rejected_by_name(self):
        for values, named in (
                ({"servr": {}}, "servr"),
                ({"plugin": {"shares": 0}}, "shares"),
                ({"plugin": {"sharesOf": {"low": "many"}}}, "sharesOf"),
                ({"server": {"config": "policy = \"fair\""}}, "config"),
                ({"web": {"enabled": True}}, "tokenSecret"),
                ({"podMonitor": {"enabled": True}}, "web"),
                ({"priorityClass": {"create": True}}, "priorityClass"),
                ({"allocation": "both"}, "allocation"),
                ({"dra": {"resumeSeconds": 3601}}, "resumeSeconds"),
                ({"dra": {"maxDeviceTime": {"lowest": 1}}}, "lowest"),
                ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy")):
            ran = helm("template", "release", CHART, values=values)
            self.assertNotEqual(ran.returncode, 0, values)
            self.assertIn(named, ran.stderr)


if __name__ == "__main__":
    unittest.main()
