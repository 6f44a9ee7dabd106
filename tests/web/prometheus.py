# SPDX-License-Identifier: Apache-2.0
"""A real server, gpushared-web and a real Prometheus in a separate directory."""
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from waiting import until  # noqa: E402

PATIENCE_S = 30
SKIPPED = 77  # Exit code that ctest reports as skipped.


def skip_without(*names):
    missing = [name for name in names if not shutil.which(name)]
    if missing:
        print(f"skipped: {' and '.join(missing)} not installed (Debian's package prometheus)")
        sys.exit(SKIPPED)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(url, accept="*/*"):
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=10) as answer:
        return answer.read()


class Observed:
    """A context manager for the three programs; leaving the context ends every process."""

    def __init__(self, programs, config=""):
        self.bin = pathlib.Path(programs).resolve()
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="gpushared-"))
        self.socket = self.directory / "gpushared.sock"
        self.processes = []
        self.address = self.prometheus = None
        (self.directory / "gpushared.toml").write_text(config, encoding="utf-8")

    def __enter__(self):
        try:
            self.start(self.bin / "gpushared", "--socket", self.socket, "--device", "cpu:0", "--memory", "256MiB",
                       "--overcommit", "64MiB", "--policy", "priority", "--config", self.directory / "gpushared.toml")
            web = self.start(self.bin / "gpushared-web", "--socket", self.socket, "--listen", "127.0.0.1:0",
                             stderr=subprocess.PIPE, text=True)
            self.address = web.stderr.readline().split("//")[1].split("/")[0]
            until("the server has totals", lambda: b"gpushared_queue_wait_seconds_bucket" in self.text(), PATIENCE_S, not_yet=OSError)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, *command, **more):
        more.setdefault("stderr", subprocess.DEVNULL)
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, **more)
        self.processes.append(process)
        return process

    def environment(self):
        return {"GPUSHARED_SOCKET": str(self.socket), "PATH": "/usr/bin:/bin"}

    def text(self, accept="*/*"):
        return get(f"http://{self.address}/metrics", accept)

    def status(self):
        told = subprocess.run([self.bin / "gpusharedctl", "--socket", self.socket, "status", "--json"],
                              capture_output=True, check=True, timeout=30)
        return json.loads(told.stdout)

    def start_prometheus(self, rules=None):
        """Starts Prometheus, which scrapes every second."""
        config = self.directory / "prometheus.yml"
        named = f"rule_files: ['{pathlib.Path(rules).resolve()}']\n" if rules else ""
        config.write_text(f"global: {{evaluation_interval: 1s}}\n{named}scrape_configs:\n- job_name: gpushared\n"
                          f"  scrape_interval: 1s\n  static_configs: [{{targets: ['{self.address}']}}]\n", encoding="utf-8")
        self.prometheus = f"127.0.0.1:{free_port()}"
        self.start("prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.directory}/data",
                   f"--web.listen-address={self.prometheus}")
        until("Prometheus scrapes the server", lambda: self.ask('up{job="gpushared"} == 1'), PATIENCE_S, not_yet=OSError)

    def read(self, path):
        return json.loads(get(f"http://{self.prometheus}/api/v1/{path}"))["data"]

    def ask(self, question):
        return self.read("query?" + urllib.parse.urlencode({"query": question}))["result"]
