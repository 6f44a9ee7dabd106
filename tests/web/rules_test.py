# SPDX-License-Identifier: Apache-2.0
"""The alert rules are well formed, and each fires on its condition. Exit code 77: promtool is not installed.

Usage: rules_test.py SOURCE_DIR
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from prometheus import skip_without


def main():
    skip_without("promtool")
    source = pathlib.Path(sys.argv[1])
    rules, cases = source / "packaging/prometheus/gpushared.rules.yml", source / "tests/web/gpushared.rules.test.yml"
    with tempfile.TemporaryDirectory() as directory:
        for file in (rules, cases):
            shutil.copy(file, directory)
        subprocess.run(["promtool", "check", "rules", rules.name], cwd=directory, check=True, timeout=60)
        subprocess.run(["promtool", "test", "rules", cases.name], cwd=directory, check=True, timeout=60)
    tested = cases.read_text(encoding="utf-8")
    for alert in re.findall(r"- alert: (\w+)", rules.read_text(encoding="utf-8")):
        if not re.search(rf"alertname: {alert}\n\s+exp_alerts:", tested):
            sys.exit(f"no case lets {alert} fire")


if __name__ == "__main__":
    main()
