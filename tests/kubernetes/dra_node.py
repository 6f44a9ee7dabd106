# SPDX-License-Identifier: Apache-2.0
"""A node for the tests of gpushared-dra: the real server on the cpu device and the real driver, with a kubelet and an
API server that this file imitates. The kubelet calls the driver as kubelets from 1.34 on do, and starts "containers" as
a runtime does that follows the CDI file: in a mount namespace, with the mounts and variables of the file."""
import http.server
import json
import os
import pathlib
import signal
import ssl
import subprocess
import tempfile
import threading
import time
import uuid

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

DRIVER = "gpushared.io"
NODE = "node-a"
TOKEN = "token-of-the-service-account"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CONFIG = """policy = "priority"
lease_grace = "0s"
overcommit = "256MiB"
[[access]]
everyone = true
clients_max = 0
"""


def messages(directory: pathlib.Path) -> dict:
    """The classes of the messages of both protocols, by their names."""
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run(["protoc", f"--proto_path={directory}", f"--descriptor_set_out={file.name}", "dra.proto",
                        "plugin_registration.proto"], check=True)
        described = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(file.name).read_bytes())
    return message_factory.GetMessages(described.file, pool=descriptor_pool.DescriptorPool())


class ApiServer:
    """Claims and ResourceSlices over HTTPS, for holders of the token."""

    def __init__(self, directory: pathlib.Path):
        self.claims, self.slices = {}, {}  # By path; by name.
        self.calls, self.broken = [], None  # broken: text of all answers to GET.
        self.drops = None  # A field of devices that this server does not know.
        self.version = 0
        self.lock = threading.Lock()
        self.ca = directory / "ca.crt"
        key = directory / "ca.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", self.ca,
                        "-days", "2", "-subj", "/CN=api", "-addext", "subjectAltName=IP:127.0.0.1"],
                       check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca, key)
        played = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                code, answer = played.answer(self.command, self.path, self.headers.get("Authorization"), body)
                self.send_response(code)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = answer

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *_: None  # Drivers are killed in the middle of calls.
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, method, path, authorization, body):
        def failed(code, why):
            return code, json.dumps({"kind": "Status", "code": code, "message": why}).encode()

        with self.lock:
            self.calls.append((method, path))
            if authorization != f"Bearer {TOKEN}":
                return failed(401, "Unauthorized")
            if self.broken is not None and method == "GET":
                return 200, self.broken.encode()
            name = path.removeprefix(SLICES).removeprefix("/")
            if method == "GET":
                found = self.slices.get(name) if path.startswith(SLICES) else self.claims.get(path)
                return (200, json.dumps(found).encode()) if found else failed(404, f'"{path}" not found')
            sent = json.loads(body)
            if method == "POST" and not name:
                name = sent["metadata"]["name"]
                if name in self.slices:
                    return failed(409, "already exists")
            elif method != "PUT" or name not in self.slices:
                return failed(404, "not found")
            elif sent["metadata"]["resourceVersion"] != self.slices[name]["metadata"]["resourceVersion"]:
                return failed(409, "the object has been modified")
            for device in sent["spec"]["devices"]:
                device.pop(self.drops, None)
            self.version += 1
            sent["metadata"].update(resourceVersion=str(self.version), uid=str(uuid.uuid4()))
            self.slices[name] = sent
            return 200, json.dumps(sent).encode()

    def slice(self):
        with self.lock:
            return self.slices.get(f"{NODE}-{DRIVER}")

    def allocate(self, name, device_time="250", memory="16Mi", configs=(), uid=None, **result):
        """Adds a claim as the scheduler leaves it. Returns its name for the kubelet."""
        uid = uid or str(uuid.uuid4())
        consumed = {"deviceTime": device_time, "memory": memory}
        result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "cpu-0", "shareID": str(uuid.uuid4()),
                  "consumedCapacity": consumed, **result}
        self.put(name, uid, {"allocation": {"devices": {"results": [result], "config": list(configs)}}})
        return {"namespace": "jobs", "name": name, "uid": uid}

    def put(self, name, uid, status):
        claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "status": status,
                 "metadata": {"name": name, "namespace": "jobs", "uid": uid}, "spec": {}}
        with self.lock:
            self.claims[f"/apis/resource.k8s.io/v1/namespaces/jobs/resourceclaims/{name}"] = claim


def parameters(source="FromClass", **given):
    return {"source": source, "opaque": {"driver": DRIVER, "parameters": {
        "apiVersion": "gpushared.io/v1", "kind": "ClientTerms", **given}}}


class Kubelet:
    def __init__(self, directory: pathlib.Path, protos: pathlib.Path):
        self.directory = directory
        self.messages = messages(protos)
        self.registered = None
        for each in ("plugins_registry", "plugins"):
            (directory / each).mkdir(parents=True)

    def call(self, socket, service, method, request, answer, seconds=20):
        package = service.rsplit(".", 1)[0]
        with grpc.insecure_channel(f"unix:{socket}") as channel:
            return channel.unary_unary(f"/{service}/{method}", request_serializer=lambda m: m.SerializeToString(),
                                       response_deserializer=self.messages[f"{package}.{answer}"].FromString)(
                                           request, timeout=seconds, wait_for_ready=True)

    def register(self):
        """What the plugin watcher does with each socket that it finds."""
        socket = self.directory / "plugins_registry" / f"{DRIVER}-reg.sock"
        wait_for(socket.is_socket, "the driver's registration socket")
        service = "pluginregistration.Registration"
        info = self.call(socket, service, "GetInfo", self.messages["pluginregistration.InfoRequest"](), "PluginInfo")
        status = self.messages["pluginregistration.RegistrationStatus"](plugin_registered=True)
        self.call(socket, service, "NotifyRegistrationStatus", status, "RegistrationStatusResponse")
        self.registered = info
        return info

    def plugin(self, method, claims, seconds=20):
        package = "k8s.io.kubelet.pkg.apis.dra.v1"
        request = self.messages[f"{package}.Node{method}ResourcesRequest"](claims=claims)
        return self.call(self.directory / "plugins" / DRIVER / "dra.sock", f"{package}.DRAPlugin",
                         f"Node{method}Resources", request, f"Node{method}ResourcesResponse", seconds).claims

    def prepare(self, *claims, seconds=20):
        return self.plugin("Prepare", claims, seconds)

    def unprepare(self, *claims, seconds=20):
        return self.plugin("Unprepare", claims, seconds)


def wait_for(what, name, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if found := what():
                return found
        except (OSError, ValueError, KeyError, subprocess.CalledProcessError):
            pass
        time.sleep(0.05)
    raise AssertionError(f"not seen in {seconds} s: {name() if callable(name) else name}")


class Node:
    """Owns all processes; kill_all ends them."""

    def __init__(self, directory: pathlib.Path, programs: pathlib.Path, protos: pathlib.Path, options=(), config=CONFIG):
        self.directory, self.programs, self.options = directory, programs, list(options)
        self.api = ApiServer(directory)
        self.kubelet = Kubelet(directory / "kubelet", protos)
        self.sockets, self.cdi = directory / "run", directory / "cdi"
        for each in (self.sockets, self.cdi):
            each.mkdir()
        self.socket = self.sockets / "gpushared.sock"
        (directory / "token").write_text(TOKEN, encoding="utf-8")
        (directory / "gpushared.toml").write_text(config, encoding="utf-8")
        self.log = open(directory / "log", "ab")
        self.server = self.driver = None
        self.start_server()
        self.start_driver()

    def start(self, *command, **more):
        # In a group of its own, so that workers can be killed with their server.
        return subprocess.Popen(command, stdout=self.log, stderr=self.log, start_new_session=True, **more)

    def start_server(self):
        self.server = self.start(self.programs / "gpushared", "--config", self.directory / "gpushared.toml",
                                 "--socket", self.socket)
        wait_for(lambda: self.ctl("status")["devices"][0]["state"] == "ready", "the server")

    def start_driver(self):
        self.driver = self.start(
            self.programs / "gpushared-dra", "--socket", self.socket, "--node", NODE, "--kubelet-directory",
            self.kubelet.directory, "--cdi-directory", self.cdi, "--api-server", self.api.url, "--api-ca", self.api.ca,
            "--api-token", self.directory / "token", *self.options)

    def kill_driver(self, how=signal.SIGKILL):
        self.driver.send_signal(how)
        self.driver.wait()

    def kill_server(self, with_workers=True):
        if with_workers:
            os.killpg(self.server.pid, signal.SIGKILL)
        else:
            self.server.kill()
        self.server.wait()

    def kill_all(self):
        for process in (self.driver, self.server):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.log.close()

    def ctl(self, *arguments):
        ran = subprocess.run([self.programs / "gpusharedctl", "--json", "--socket", self.socket, *arguments],
                             capture_output=True, text=True, check=True)
        return json.loads(ran.stdout)

    def leases(self):
        return {row["endpoint"]: row for row in self.ctl("endpoints")["endpoints"] if "lessee" in row}

    def files(self):
        return sorted(each.name for each in self.cdi.iterdir())

    def logged(self):
        return (self.directory / "log").read_text(encoding="utf-8", errors="replace")

    def edits(self, cdi_name):
        """Finds the file of a CDI device like a runtime, and returns the device's edits."""
        kind, _, device = cdi_name.partition("=")
        for file in self.cdi.glob("*.json"):
            spec = json.loads(file.read_text(encoding="utf-8"))
            for each in spec["devices"]:
                if spec["kind"] == kind and each["name"] == device:
                    return each["containerEdits"]
        raise AssertionError(f"unresolvable CDI device {cdi_name}")

    def run(self, prepared, *command, **variables):
        """Starts a program as a container that got the CDI devices of a prepared claim."""
        edits = self.edits(prepared.devices[0].cdi_device_ids[0])
        return self.start("unshare", "--mount", "--propagation", "private", "bash", "-ec", mount_script(edits), "bash",
                          *command, env={**os.environ, **dict(each.split("=", 1) for each in edits["env"]), **variables})


def mount_script(edits):
    lines = ["keep=/mnt", "mount -t tmpfs tmpfs $keep"]
    for number, mount in enumerate(edits["mounts"]):
        lines += [f"mkdir $keep/{number}", f"mount --rbind '{mount['hostPath']}' $keep/{number}"]
    lines.append("mount -t tmpfs tmpfs /run")  # The only way to the server is the mount of the CDI file.
    for number, mount in enumerate(edits["mounts"]):
        inside = mount["containerPath"]
        options = ",".join(each for each in mount["options"] if each != "bind")
        lines += [f"mkdir -p '{inside}'", f"mount --bind $keep/{number} '{inside}'",
                  f"mount -o remount,bind,{options} '{inside}'"]
    return "\n".join([*lines, "umount -R $keep", 'exec "$@"'])
