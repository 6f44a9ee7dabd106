# SPDX-License-Identifier: Apache-2.0
"""Every expression of the dashboard and of the alerts has a series in a Prometheus that scraped a server under load.
Because this server has no GPU, the metrics in expressions about GPUs must only be described by the server.

Usage: expressions_test.py DIRECTORY_OF_PROGRAMS SOURCE_DIR. Exit code 77: Prometheus is not installed.
"""
import json
import pathlib
import re
import subprocess
import sys

from prometheus import Observed, skip_without, until

SECONDS = 25
# Variables that Grafana substitutes.
VARIABLES = {"$__rate_interval": "10s", "$host": ".*", "$device": ".*"}
OF_GPU = re.compile(r"gpushared_(?:gpu_|\w*energy_)\w+")
CONFIG = """
[[endpoint]]
name = "narrow"
class = "low"
"""


def dashboard_expressions(source):
    dashboard = json.loads((source / "packaging/grafana/gpushared.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            yield f"panel {panel['title']}", expression


def alert_expressions(observed):
    """Returns the expressions as Prometheus read them, without their thresholds, because no alert is firing."""
    told = observed.read("rules")["groups"]
    for rule in (rule for group in told for rule in group["rules"]):
        without_bounds = re.sub(r"\s(==|>|<)\s[0-9.]+", "", rule["query"])
        yield f"alert {rule['name']}", without_bounds


def load(observed):
    programs, text = observed.bin, observed.directory / "text"
    text.write_text("All work and no play makes Jack a dull boy.\n" * 500, encoding="utf-8")
    train = [programs / "train", "--text", text, "--batch", "32"]
    subprocess.run([*train, "--steps", "3", "--model", observed.directory / "model"], env=observed.environment(), check=True,
                   stdout=subprocess.DEVNULL, timeout=120)
    observed.start(*train, "--steps", "0", "--seconds", SECONDS * 4, env=observed.environment())
    observed.start(programs / "serve", "--model", observed.directory / "model", "--batch", "8", "--requests", "100000",
                   "--service-ms", "5", "--load", "0.3", "--latency-target-ms", "25", env=observed.environment())
    # The endpoint `narrow` rejects serve, which has class high. Repeated rejections give a rate.
    narrow = {**observed.environment(), "GPUSHARED_SOCKET": str(observed.directory / "narrow/gpushared.sock")}

    def is_rejected():
        told = subprocess.run([programs / "serve", "--model", observed.directory / "model", "--requests", "1"], env=narrow,
                              check=False, capture_output=True, timeout=60)
        return told.returncode != 0

    return is_rejected


def main():
    skip_without("prometheus")
    source = pathlib.Path(sys.argv[2])
    with Observed(sys.argv[1], config=CONFIG) as observed:
        is_rejected = load(observed)
        observed.start_prometheus(source / "packaging/prometheus/gpushared.rules.yml")
        expressions = [*dashboard_expressions(source), *alert_expressions(observed)]
        if len(expressions) < 30:
            sys.exit(f"{len(expressions)} expressions are too few to be all")
        described = set(re.findall(r"^# TYPE (\S+)", observed.text().decode(), re.M))
        of_gpu = {name for _, expression in expressions for name in OF_GPU.findall(expression)}
        if not of_gpu or of_gpu - described:
            sys.exit(f"the server has no such families: {of_gpu - described}, or no expression is about GPUs")
        for where, expression in expressions:
            if OF_GPU.search(expression):
                continue

            def has_series(question=expression):
                return is_rejected() and observed.ask(question)
            until(f"{where} has a series: {expression}", has_series, SECONDS, not_yet=OSError)
        print(f"{len(expressions)} expressions of dashboard and alerts have series")


if __name__ == "__main__":
    main()
