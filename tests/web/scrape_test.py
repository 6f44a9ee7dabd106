# SPDX-License-Identifier: Apache-2.0
"""Validates the metrics of gpushared-web with third-party programs. Exit code 77: they are not installed.

Usage: scrape_test.py DIRECTORY_OF_PROGRAMS
"""
import subprocess
import sys

from prometheus import Observed, skip_without

LINT_REMARKS = 3  # promtool's exit code for a text that is readable but has style remarks.
# The remark is about labels that dcgm-exporter also has: panels join the metrics of both exporters on them.
DCGM_STYLE = "label names should be written in 'snake_case' not 'camelCase'"
OPEN_METRICS = "application/openmetrics-text;version=1.0.0"


def check_text(text):
    told = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
    remarks = [line for line in told.stderr.decode().splitlines() if line.strip() and not line.endswith(DCGM_STYLE)]
    if told.returncode not in (0, LINT_REMARKS) or remarks:
        sys.exit(f"promtool rejects the text ({told.returncode}):\n" + "\n".join(remarks))
    print("promtool accepts the text")


def check_open_metrics(text):
    try:
        from prometheus_client.openmetrics.parser import text_string_to_metric_families
    except ImportError:
        print("OpenMetrics not checked: PyPI's prometheus_client is missing; tests/run.sh metrics fetches it")
        return
    families = list(text_string_to_metric_families(text.decode()))  # The parser is strict and raises exceptions.
    if len(families) < 30:
        sys.exit(f"OpenMetrics has {len(families)} families only")
    print(f"prometheus_client accepts OpenMetrics: {len(families)} families")


def main():
    skip_without("promtool", "prometheus")
    with Observed(sys.argv[1]) as observed:
        check_text(observed.text())
        check_open_metrics(observed.text(OPEN_METRICS))
        observed.start_prometheus()
        for question in ("gpushared_device_busy_seconds_total", "gpushared_build_info", "gpushared_sessions",
                         "histogram_quantile(0.99, sum by (le) (gpushared_queue_wait_seconds_bucket))"):
            if not observed.ask(question):
                sys.exit(f"Prometheus has no series for {question}")
        print("Prometheus scrapes the server")


if __name__ == "__main__":
    main()
