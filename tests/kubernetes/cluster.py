# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own programs as a control plane and two nodes, each in separate namespaces, with the manifests of
packaging/kubernetes deployed. Everything is a child of this process, which must be the first of a pid namespace, so
that everything ends with it."""
import json
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "support"))
from waiting import until  # noqa: E402

SOURCE = HERE.parent.parent
PACKAGING = SOURCE / "packaging/kubernetes"
NODES = ("n1", "n2")
ADDRESS = {"n1": "10.79.0.11", "n2": "10.79.0.12"}
MASTER = "10.79.0.1"
SHARES = 2  # Per class on each node.
SYSTEM = "gpushared-system"
IMAGE = "gpushared:0.1.0"
CHART = SOURCE / "packaging/helm/gpushared"
PROGRAMS = ("gpushared", "gpusharedctl", "gpushared-kubernetes", "gpushared-dra", "gpushared-web", "train")
# Separate for each node, so that the machine's own directories are not written.
OWN_DIRECTORIES = ("/run", "/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers")
# Settings that a kubelet makes on its machine, and expects here.
KERNEL_SETTINGS = {"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
                   "kernel/keys/root_maxkeys": 1000000, "kernel/keys/root_maxbytes": 25000000}
# The nodes of this cluster are small. The endpoints are those of the manifests.
SERVER_SETTINGS = 'device = ["cpu:0"]\ncpu_threads = 1\nmemory = "1GiB"\nstaging_memory = "256MiB"\n'

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: here, cluster: {server: 'https://{master}:6443', insecure-skip-tls-verify: true}}]
users: [{name: me, user: {token: {token}}}]
contexts: [{name: me-here, context: {cluster: here, user: me}}]
current-context: me-here
"""
CONTAINERD = """
version = 2
root = "{node}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "{node}/cni"
    bin_dir = "{root}/usr/lib/cni"
"""
NETWORK = {"cniVersion": "0.4.0", "name": "pods", "plugins": [
    {"type": "bridge", "bridge": "pods0", "isGateway": True, "ipam": {"type": "host-local", "subnet": "SUBNET"}}]}


class Cluster:
    def __init__(self, programs: pathlib.Path, cache: pathlib.Path, work: pathlib.Path):
        self.programs, self.cache, self.work = programs, cache, work
        self.root = cache / "root"
        self.processes, self.holders = {}, {}
        self.environment = {
            "PATH": f"{cache}/bin:{cache}/venv/bin:{self.root}/usr/bin:{self.root}/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(work),
            "LANG": "C.UTF-8", "KUBECONFIG": f"{work}/admin.conf"}
        for directory in ("log", "etcd", "images", "site", *NODES):
            (work / directory).mkdir()
        # Identities, by the token sent to the API server.
        tokens = {"admin": ("admin", "system:masters")}
        tokens.update({node: (f"system:node:{node}", "system:nodes") for node in NODES})
        with open(work / "tokens", "w", encoding="utf-8") as file:
            for number, (name, (user, group)) in enumerate(tokens.items()):
                token = secrets.token_hex(16)
                file.write(f"{token},{user},{number},{group}\n")
                text = KUBECONFIG.replace("{master}", MASTER).replace("{token}", token)
                (work / f"{name}.conf").write_text(text)

    # ---- running programs

    def inside(self, where: str, command):
        """Returns the command as run on the control plane or a node."""
        holder = self.holders.get(where)
        enter = ["nsenter", f"--target={holder.pid}", "--net", "--uts", "--mount", "--"] if holder else []
        return [*enter, *map(str, command)]

    def start(self, name: str, where: str, *command):
        with open(self.work / "log" / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(self.inside(where, command), stdin=subprocess.DEVNULL, stdout=log,
                                                    stderr=log, env=self.environment)
        return self.processes[name]

    def run(self, where: str, *command, check: bool = True, text: str = "", seconds: float = 120):
        done = subprocess.run(self.inside(where, command), input=text, capture_output=True, text=True, env=self.environment,
                              timeout=seconds, check=False)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))} on {where}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def kubectl(self, *command, **more) -> str:
        return self.run("master", "kubectl", *command, **more).stdout.strip()

    def get(self, *what) -> dict:
        return json.loads(self.kubectl("get", *what, "-o", "json"))

    # ---- from scratch to a cluster

    def up(self):
        begun = time.monotonic()
        self.make_images()
        self.namespaces()
        self.control_plane()
        for node in NODES:
            self.start_containerd(node)
            self.start_kubelet(node)
        until("the nodes are ready", lambda: self.ready_nodes() == list(NODES))
        print(f"the cluster was up in {time.monotonic() - begun:.0f} s", flush=True)

    def ready_nodes(self):
        return sorted(node["metadata"]["name"] for node in self.get("nodes")["items"]
                      if any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"]))

    def make_images(self):
        """Builds images like an operator, from the built programs without their debug information."""
        stripped = self.work / "checkout/build/demo/bin"
        stripped.mkdir(parents=True)
        for name in PROGRAMS:
            self.run("master", "strip", "-o", stripped / name, self.programs / name)
        made = {IMAGE: [f"/usr/bin/{name}={stripped / name}" for name in PROGRAMS] +
                       ["/usr/bin/chown=/usr/bin/chown", f"/usr/share/gpushared/text={SOURCE / 'README.md'}"],
                "pause:1": ["/usr/bin/sleep=/usr/bin/sleep"]}
        for image, files in made.items():
            archive = self.work / "images" / f"{image.split(':')[0]}.tar"
            # The pause container runs the entry point of its image, so it needs no program of its own.
            more = ["--command", "/usr/bin/sleep infinity"] if image == "pause:1" else []
            self.run("master", sys.executable, "-B", PACKAGING / "make_image.py", *more, image, archive, *files)

    def namespaces(self):
        for where in ("master", *NODES):
            steps = ["mount --make-rprivate /", f"hostname {where}"]
            if where in NODES:
                # Directories that are missing are made in memory only.
                steps += [f"mkdir -p {self.work}/{where}/var {self.work}/{where}/var.work",
                          f"mount -t overlay overlay -o lowerdir=/var,upperdir={self.work}/{where}/var,"
                          f"workdir={self.work}/{where}/var.work /var"]
                steps += [f"mkdir -p {directory} && mount -t tmpfs -o mode=755 tmpfs {directory}" for directory in OWN_DIRECTORIES]
                steps += ["mkdir -p /run/netns", "mount --make-rshared /var/lib/kubelet", "mount --make-rshared /run"]
                for setting, value in KERNEL_SETTINGS.items():
                    file = f"{self.work}/{where}/settings/{setting}"
                    steps += [f"mkdir -p {os.path.dirname(file)}", f"echo {value} >{file}",
                              f"mount --bind {file} /proc/sys/{setting}"]
            steps += ["ip link set lo up", f"touch {self.work}/{where}.apart", "exec sleep infinity"]
            with open(self.work / "log" / f"{where}.log", "ab") as log:
                command = ["unshare", "--net", "--uts", "--mount", "sh", "-ec", "\n".join(steps)]
                self.holders[where] = subprocess.Popen(command, stdout=log, stderr=log)
        for where, holder in self.holders.items():
            def is_apart():
                if holder.poll() is not None:
                    raise RuntimeError(f"{where}: " + (self.work / f"log/{where}.log").read_text())
                return (self.work / f"{where}.apart").exists()
            until(f"namespaces of {where}", is_apart)
        for command in ("link add br0 type bridge", f"addr add {MASTER}/24 dev br0", "link set br0 up"):
            self.run("master", "ip", *command.split())
        for node in NODES:
            self.run("master", "ip", "link", "add", f"to-{node}", "type", "veth", "peer", "name", "eth0", "netns",
                     self.holders[node].pid)
            self.run("master", "ip", "link", "set", f"to-{node}", "master", "br0", "up")
            self.run(node, "ip", "addr", "add", f"{ADDRESS[node]}/24", "dev", "eth0")
            self.run(node, "ip", "link", "set", "eth0", "up")
            self.run(node, "ip", "route", "add", "default", "via", MASTER)

    def control_plane(self):
        self.start("etcd", "master", "etcd", "--data-dir", self.work / "etcd", "--unsafe-no-fsync",
                   "--listen-client-urls", f"http://{MASTER}:2379", "--advertise-client-urls", f"http://{MASTER}:2379",
                   "--listen-peer-urls", f"http://{MASTER}:2380")
        key = self.work / "accounts.key"
        self.run("master", "openssl", "genrsa", "-out", key, "2048")
        self.start("apiserver", "master", "kube-apiserver", f"--etcd-servers=http://{MASTER}:2379", f"--bind-address={MASTER}",
                   f"--advertise-address={MASTER}", "--secure-port=6443", f"--cert-dir={self.work}/certs",
                   "--kubelet-preferred-address-types=InternalIP",  # The nodes' names do not resolve.
                   f"--token-auth-file={self.work}/tokens", "--authorization-mode=Node,RBAC",
                   "--enable-admission-plugins=NodeRestriction", "--service-cluster-ip-range=10.80.0.0/24",
                   "--service-account-issuer=https://here", f"--service-account-signing-key-file={key}",
                   f"--service-account-key-file={key}")
        ready = ("kubectl", "get", "--raw", "/readyz")
        until("the API server answers", lambda: self.run("master", *ready, check=False).returncode == 0)
        self.start("scheduler", "master", "kube-scheduler", f"--kubeconfig={self.work}/admin.conf", "--leader-elect=false")
        self.start("controllers", "master", "kube-controller-manager", f"--kubeconfig={self.work}/admin.conf",
                   "--leader-elect=false", f"--service-account-private-key-file={key}", f"--cert-dir={self.work}/certs",
                   "--controllers=daemonset,nodelifecycle,podgc,garbagecollector,serviceaccount,serviceaccount-token,namespace")

    def start_containerd(self, node: str):
        directory = self.work / node
        text = CONTAINERD.replace("{node}", str(directory)).replace("{root}", str(self.root))
        (directory / "containerd.toml").write_text(text)
        (directory / "cni").mkdir()
        network = json.dumps(NETWORK).replace("SUBNET", f"10.81.{NODES.index(node) + 1}.0/24")
        (directory / "cni/pods.conflist").write_text(network)
        self.start(f"containerd.{node}", node, "containerd", "-c", directory / "containerd.toml")
        ctr = ("ctr", "-a", "/run/containerd.sock", "-n", "k8s.io")
        until(f"containerd of {node} answers", lambda: self.run(node, *ctr, "version", check=False).returncode == 0)
        for archive in (self.work / "images").iterdir():
            self.run(node, *ctr, "images", "import", archive)

    def start_kubelet(self, node: str):
        self.start(f"kubelet.{node}", node, "kubelet", f"--kubeconfig={self.work}/{node}.conf", "--container-runtime=remote",
                   "--container-runtime-endpoint=unix:///run/containerd.sock", "--fail-swap-on=false", "--cgroup-driver=cgroupfs",
                   "--cgroups-per-qos=false", "--enforce-node-allocatable=", f"--address={ADDRESS[node]}",
                   f"--node-ip={ADDRESS[node]}", f"--hostname-override={node}", "--eviction-hard=", "--resolv-conf=",
                   "--make-iptables-util-chains=false", f"--cert-dir={self.work}/{node}/pki",
                   "--node-status-update-frequency=2s", "--v=2")

    def deploy(self):
        """Applies the manifests with a site's changes."""
        site = self.work / "site"
        shutil.copytree(PACKAGING, site, dirs_exist_ok=True)
        config = site / "gpushared.toml"
        config.write_text(SERVER_SETTINGS + config.read_text())
        plugin = site / "plugin.yaml"
        plugin.write_text(plugin.read_text().replace('--shares, "4"', f'--shares, "{SHARES}"'))
        self.kubectl("apply", "-k", site)
        for node in NODES:
            self.kubectl("label", "node", node, "gpushared.io/server=true")

    def undeploy(self):
        self.kubectl("delete", "-k", self.work / "site", "--timeout=110s")
        self.kubectl("label", "nodes", "--all", "gpushared.io/server-")

    def checkout(self) -> pathlib.Path:
        """Returns a directory in which the commands of the chart's README find what they name."""
        checkout = self.work / "checkout"
        for name in ("packaging", "README.md"):
            (checkout / name).symlink_to(SOURCE / name)
        (checkout / "build/demo/lib").symlink_to(self.programs.parent / "lib")
        # The chart's values, with the settings for a node of this size.
        values = re.search(r"```yaml\n(.*?)```", (CHART / "README.md").read_text(), re.DOTALL)[1]
        policy = '    policy = "priority"\n'
        settings = "".join(f"    {line}\n" for line in SERVER_SETTINGS.splitlines())
        (checkout / "values.yaml").write_text(values.replace(policy, settings + policy))
        return checkout
