# SPDX-License-Identifier: Apache-2.0
"""Checks the manifests against the published schemas of Kubernetes, and against their guarantees.

Usage: manifests_test.py DIRECTORY. Needs kubernetes-validate; contacts no cluster.
"""
import copy
import pathlib
import sys
import unittest

import kubernetes_validate
import yaml
from kubernetes_validate.utils import all_versions

DIRECTORY = pathlib.Path(sys.argv.pop(1))
# Files that need resource.k8s.io/v1.
DRA_FILES = {"dra.yaml", "claim.yaml"}
DOCUMENTS = [(file.name, document) for file in sorted(DIRECTORY.glob("*.yaml")) if file.name != "kustomization.yaml"
             for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def versions_for(name):
    return [each for each in all_versions() if name not in DRA_FILES or tuple(map(int, each.split(".")[:2])) >= (1, 34)]


def pods():
    for name, document in DOCUMENTS:
        if document["kind"] in ("DaemonSet", "Pod"):
            spec = document["spec"]["template"]["spec"] if document["kind"] == "DaemonSet" else document["spec"]
            yield f"{name}: {document['metadata']['name']}", spec


class Manifests(unittest.TestCase):
    def test_every_known_release_accepts_them(self):
        self.assertGreaterEqual(len(DOCUMENTS), 16)
        for name, document in DOCUMENTS:
            self.assertTrue(versions_for(name))
            for version in versions_for(name):
                with self.subTest(f"{name}, {document['kind']}, {version}"):
                    kubernetes_validate.validate(document, version, strict=True)

    def test_a_misspelt_field_is_rejected(self):
        for name, document in DOCUMENTS:
            if document["kind"] != "DaemonSet":
                continue
            broken = copy.deepcopy(document)
            broken["spec"]["template"]["spec"]["hostIpc"] = True
            with self.assertRaises(kubernetes_validate.ValidationError, msg=name):
                kubernetes_validate.validate(broken, all_versions()[-1], strict=True)

    def test_no_pod_shares_host_namespaces_or_has_privileges(self):
        for name, spec in pods():
            self.assertFalse({"hostIPC", "hostPID", "hostNetwork"} & spec.keys(), name)
            self.assertIs(spec["automountServiceAccountToken"], "gpushared-dra" in name, name)
            for container in spec.get("initContainers", []) + spec["containers"]:
                rights = container["securityContext"]
                self.assertIs(rights["allowPrivilegeEscalation"], False, name)
                self.assertIs(rights["readOnlyRootFilesystem"], True, name)
                self.assertEqual(rights["capabilities"]["drop"], ["ALL"], name)

    def test_only_plugin_and_driver_are_root(self):
        for name, spec in pods():
            is_plugin = "gpushared-plugin" in name or "gpushared-dra" in name
            self.assertEqual(spec.get("securityContext", {}).get("runAsNonRoot", False), not is_plugin, name)

    def test_only_the_driver_has_a_role(self):
        kinds = {document["kind"] for name, document in DOCUMENTS if name not in DRA_FILES}
        self.assertEqual(kinds, {"Namespace", "ServiceAccount", "DaemonSet", "Pod"})
        rules, = (document["rules"] for _, document in DOCUMENTS if document["kind"] == "ClusterRole")
        rights = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
        self.assertEqual(rights, {("resourceclaims", "get"), ("resourceslices", "get"), ("resourceslices", "create"),
                                  ("resourceslices", "update")})

    def test_there_is_a_class_of_devices_for_each_scheduling_class(self):
        classes = {document["metadata"]["name"]: document["spec"]["config"][0]["opaque"]["parameters"]["class"]
                   for _, document in DOCUMENTS if document["kind"] == "DeviceClass"}
        self.assertEqual(classes, {f"gpushared-{each}": each for each in ("high", "normal", "low")})

    def test_resources_of_the_pair_are_endpoints(self):
        config = (DIRECTORY / "gpushared.toml").read_text(encoding="utf-8")
        for name, spec in pods():
            for container in spec["containers"]:
                for resource in container.get("resources", {}).get("limits", {}):
                    self.assertIn(f'name = "{resource.removeprefix("gpushared.io/")}"', config, name)


if __name__ == "__main__":
    unittest.main()
