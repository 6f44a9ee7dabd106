# SPDX-License-Identifier: Apache-2.0
"""Lets Prometheus' own programs judge the texts of gpushared-web. Exit code 77: they are not installed.

Usage: scrape_test.py FOLDER_OF_PROGRAMS
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

BIN = pathlib.Path(sys.argv[1])
PATIENCE_S = 30
LINT_REMARKS = 3  # promtool's exit code for a text that it can read and would have otherwise.
# dcgm-exporter calls a label so, and panels that show both join them by it.
DCGM_STYLE = "label names should be written in 'snake_case' not 'camelCase'"


def eventually(condition, what):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            if found := condition():
                return found
        except OSError:
            pass
        time.sleep(0.2)
    sys.exit(f"not within {PATIENCE_S} s: {what}")


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


def check_text(address):
    told = subprocess.run(["promtool", "check", "metrics"], input=get(f"http://{address}/metrics"), capture_output=True,
                          timeout=60, check=False)
    remarks = [line for line in told.stderr.decode().splitlines() if line.strip() and not line.endswith(DCGM_STYLE)]
    if told.returncode not in (0, LINT_REMARKS) or remarks:
        sys.exit(f"promtool refuses the text ({told.returncode}):\n" + "\n".join(remarks))
    print("promtool accepts the text")


def scrape(folder, address, programs):
    config = folder / "prometheus.yml"
    config.write_text("scrape_configs:\n- job_name: gpushared\n  scrape_interval: 1s\n"
                      f"  static_configs: [{{targets: ['{address}']}}]\n", encoding="utf-8")
    where = "127.0.0.1:19090"
    programs.append(subprocess.Popen(
        ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={where}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def ask(question):
        found = json.loads(get(f"http://{where}/api/v1/query?" + urllib.parse.urlencode({"query": question})))
        return found["data"]["result"]

    eventually(lambda: ask('up{job="gpushared"} == 1'), "Prometheus scrapes the server")
    for question in ("gpushared_device_busy_seconds_total", "gpushared_build_info", "gpushared_sessions",
                     "histogram_quantile(0.99, sum by (le) (gpushared_queue_wait_seconds_bucket))"):
        if not ask(question):
            sys.exit(f"Prometheus has no series for {question}")
    print("Prometheus scrapes the server")


def main():
    missing = [name for name in ("promtool", "prometheus") if not shutil.which(name)]
    if missing:
        print(f"skipped: {' and '.join(missing)} not installed (Debian's package prometheus)")
        return 77
    programs = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        try:
            socket = folder / "gpushared.sock"
            programs.append(subprocess.Popen([BIN / "gpushared", "--socket", socket, "--device", "cpu:0", "--memory",
                                              "64MiB"], stderr=subprocess.DEVNULL))
            web = subprocess.Popen([BIN / "gpushared-web", "--socket", socket, "--listen", "127.0.0.1:0"],
                                   stderr=subprocess.PIPE, text=True)
            programs.append(web)
            address = web.stderr.readline().split("//")[1].split("/")[0]
            eventually(lambda: b"gpushared_queue_wait_seconds_bucket" in get(f"http://{address}/metrics"), "totals")
            check_text(address)
            scrape(folder, address, programs)
        finally:
            for program in reversed(programs):
                program.terminate()
                program.wait(timeout=20)
    return 0


if __name__ == "__main__":
    sys.exit(main())
