#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the figures of this directory from runs of gpushared-sim.

    figures.py --sim build/release/bin/gpushared-sim --traces TRACES [--data DIR] [FIGURE ...]

TRACES holds the kernel profiles (*.csv). Needs python3-matplotlib. The rows of each run are stored
in --data and reused; delete them to run again. The command is printed under each figure.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

# Small files with searchable text, reproducible byte by byte from the same rows.
plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gpushared", "font.size": 9})

PAIR = ["--high", "mobilenetv2_4_fwd.csv", "--low", "mobilenetv2_32_fb1.csv", "--contention", "0"]
OURS = ("fifo", "round_robin", "fair", "priority", "deadline", "gated-priority", "gated-deadline",
        "gated-priority-mps", "gated-deadline-mps")
RUNS = {
    "inflation": ["compare", *PAIR, "--load", "0.5", "--seed", "1", "--policy", "priority",
                  "deadline", "fair", "fifo", "gated-priority", "gated-priority-mps", "mps",
                  "mps-priority", "time-slicing", "vgpu-fixed", "orion", "tally", "tgs",
                  "xsched-1"],
    "attainment": ["compare", *PAIR, "--load", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7",
                   "0.8", "0.9", "--requests", "3000", "--latency-target", "20", "--seed", "1", "--policy",
                   "priority", "deadline", "tally", "mps-priority", "mps", "time-slicing"],
    "shares": ["shares", "--weights", "1", "2", "4", "--sleep", "5", "--seconds", "30",
               "--seed", "1", "--policy", "fair"],
}


def rows_of(name, arguments):
    """Returns the JSON rows of a run, stored or new."""
    path = arguments.data / f"{name}.json"
    if not path.exists():
        command = [str(arguments.sim.resolve()), *RUNS[name], "--json", str(path.resolve())]
        subprocess.run(command, cwd=arguments.traces, check=True, stdout=subprocess.DEVNULL)
    return json.loads(path.read_text())


def draw_inflation(rows, axes):
    axes.set_yscale("symlog", linthresh=1)
    for row in rows:
        ours = row["policy"] in OURS
        x, y = row["low_throughput"], max(100 * row["p99_inflation"], 0)
        axes.plot(x, y, "o" if ours else "s", color="tab:blue" if ours else "tab:gray")
        axes.annotate(row["policy"], (x, y), xytext=(4, 3), textcoords="offset points",
                      weight="bold" if ours else "normal")
    axes.axhline(10, color="tab:red", linewidth=0.6, linestyle="--")
    axes.axvline(0.5 * 0.9, color="tab:red", linewidth=0.6, linestyle="--")
    axes.set_xlabel("throughput of the low client, relative to alone (goal: right of the line)")
    axes.set_ylabel("p99 of the high client above alone, % (goal: below the line)")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.15)


def draw_attainment(rows, axes):
    for policy in dict.fromkeys(row["policy"] for row in rows):
        mine = [row for row in rows if row["policy"] == policy]
        axes.plot([row["load"] for row in mine], [100 * row["target_met"] for row in mine],
                  marker=".", linewidth=1.8 if policy in OURS else 0.9, label=policy)
    axes.set_xlabel("load of the high client")
    axes.set_ylabel("requests within 20 ms, %")
    axes.legend(fontsize=8)


def draw_shares(rows, axes):
    row = rows[0]
    held = [sample["held_ns"] for sample in row["samples"]]
    due = [sample["due_ns"] for sample in row["samples"]]
    for client, weight in enumerate(row["weights"]):
        def parts(totals):
            steps = zip([[0] * len(row["weights"])] + totals, totals)
            return [(now[client] - before[client]) / (sum(now) - sum(before))
                    for before, now in steps]
        seconds = range(1, len(held) + 1)
        label = f"weight {weight}" + (", busy every second 5 s" if client % 2 else "")
        line = axes.plot(seconds, [100 * part for part in parts(held)], marker=".", label=label)
        axes.plot(seconds, [100 * part for part in parts(due)], color=line[0].get_color(),
                  linewidth=0.6, linestyle="--")
    axes.set_xlabel("s (dashed: due)")
    axes.set_ylabel("device time of each second, %")
    axes.set_ylim(0, 100)
    axes.legend(fontsize=8)


DRAW = {"inflation": draw_inflation, "attainment": draw_attainment, "shares": draw_shares}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sim", type=pathlib.Path, required=True)
    parser.add_argument("--traces", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("figures-data"))
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(DRAW) + " (all)")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.figures if name not in DRAW]
    if unknown:
        parser.error(f"no figure '{unknown[0]}': there are {', '.join(DRAW)}")
    arguments.data.mkdir(parents=True, exist_ok=True)
    for name in arguments.figures or DRAW:
        figure, axes = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
        DRAW[name](rows_of(name, arguments), axes)
        figure.supxlabel("gpushared-sim " + " ".join(RUNS[name]), fontsize=6, family="monospace",
                         wrap=True)
        out = pathlib.Path(__file__).parent / f"{name}.svg"
        figure.savefig(out, metadata={"Date": None})
        plt.close(figure)
        print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
