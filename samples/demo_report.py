# SPDX-License-Identifier: Apache-2.0
"""Pools the rounds of demo.sh, prints the table, draws the picture and judges: DEMO OK, or the reason why not."""
import argparse
import json
import math
import pathlib
import random
import statistics
import sys

import demo_moment
import demo_picture

# The demo's targets, which it checks.
P99_TO_FIFO_MAX = 0.5
P99_TO_ALONE_MAX = 1.5
GAP_USED_MIN = 0.8
LOAD_RANGE = (0.2, 0.45)
KERNEL_MS_MAX = 20  # Limit of train's longest kernel, because a request may have to wait for a kernel to end.

PHASES = ("alone", "fifo", "priority")
RESAMPLES = 1000
CONFIDENCE = 0.95


def percentile(values, fraction):
    """Returns the smallest of the values such that at least this fraction of all values is not larger."""
    return sorted(values)[max(math.ceil(fraction * len(values)) - 1, 0)]


def rounds(work, program, phase):
    """Returns the outcomes of one phase, by round."""
    files = sorted(work.glob(f"{program}.{phase}.*.json"), key=lambda file: int(file.name.split(".")[2]))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def steps_per_s(runs):
    return sum(run["steps"] for run in runs) / sum(run["seconds"] for run in runs)


class Rounds:
    """All rounds of a run; every figure is a function of the rounds that it is computed from."""

    def __init__(self, work):
        self.serve = {phase: rounds(work, "serve", phase) for phase in PHASES}
        self.p99_of_round = {phase: [percentile(run["latencies_ms"], 0.99) for run in runs]
                             for phase, runs in self.serve.items()}
        self.train = {phase: rounds(work, "train", phase) for phase in PHASES[1:]}
        self.device = {phase: rounds(work, "device", phase) for phase in PHASES[1:]}
        self.gap_of_round = [gap(samples) for samples in self.device["priority"]]
        self.numbers = range(len(self.serve["alone"]))

    def latencies_ms(self, phase, numbers):
        return [latency for number in numbers for latency in self.serve[phase][number]["latencies_ms"]]

    def p99_ms(self, phase, numbers):
        """Returns the median of the rounds' p99, because a machine that stalls in one round must not decide for all."""
        return statistics.median(self.p99_of_round[phase][number] for number in numbers)

    def quantiles_ms(self, phase, shares):
        """Returns the medians of the rounds' quantiles, computed like the table's p99."""
        return [statistics.median(percentile(run["latencies_ms"], share) for run in self.serve[phase]) for share in shares]

    def p99_ratio(self, phase, other, numbers):
        return self.p99_ms(phase, numbers) / self.p99_ms(other, numbers)

    def gap_used(self, numbers):
        """Returns train's device time divided by the time that serve left: time in which the device could work and had
        no work of serve."""
        used, idle = (sum(self.gap_of_round[number][part] for number in numbers) for part in (0, 1))
        return used / (used + max(idle, 0)) if used > 0 else 0

    def interval(self, figure):
        return interval(figure, self.numbers)


def interval(figure, numbers):
    """Returns the 95 % confidence interval of `figure` over the rounds `numbers`, by a bootstrap over the
    rounds."""
    chance = random.Random(1)
    values = sorted(figure([chance.choice(numbers) for _ in numbers]) for _ in range(RESAMPLES))
    tail = int((1 - CONFIDENCE) / 2 * RESAMPLES)
    return {"value": figure(numbers), "low": values[tail], "high": values[-1 - tail]}


def host_share(samples):
    """Returns the share of the time in which the machine kept the device from its work."""
    known = [(at, host_steal_s) for at, _, host_steal_s in samples if host_steal_s is not None]
    return (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0]) if len(known) > 1 else 0


def device_intervals(samples):
    """Returns length and device seconds by client, for each interval between samples in which both clients were
    connected."""
    for (begin, before, _), (end, after, _) in zip(samples, samples[1:]):
        if {"serve", "train"} <= before.keys() & after.keys():
            yield end - begin, {name: after[name] - before[name] for name in ("serve", "train")}


def gap(samples):
    """Returns, of the time that serve left, the seconds that train had, and those that no client had."""
    intervals, share = list(device_intervals(samples)), host_share(samples)
    used = sum(had["train"] for _, had in intervals)
    return used, sum(length * (1 - share) - had["serve"] for length, had in intervals) - used


def serve_summary(latencies_ms, p99_ms, latency_target_ms):
    return {"p50_ms": percentile(latencies_ms, 0.5), "p99_ms": p99_ms,
            "target_met": sum(latency <= latency_target_ms for latency in latencies_ms) / len(latencies_ms),
            "requests": len(latencies_ms)}


def summarise(work, latency_target_ms):
    all_rounds = Rounds(work)
    numbers = all_rounds.numbers
    model = json.loads((work / "model.json").read_text(encoding="utf-8"))
    train_runs = {"alone": [model], **all_rounds.train}
    every_run = [run for runs in (*all_rounds.serve.values(), *train_runs.values()) for run in runs]

    serve = {phase: serve_summary(all_rounds.latencies_ms(phase, numbers), all_rounds.p99_ms(phase, numbers), latency_target_ms)
             for phase in PHASES}
    # The measured load, not the requested one: the share of the time in which a request was being answered.
    serve["load"] = sum(run["busy"] for run in all_rounds.serve["alone"]) / len(numbers)
    serve["service_ms"] = percentile([run["service_ms"] for run in all_rounds.serve["alone"]], 0.5)
    serve["latency_target_ms"] = latency_target_ms
    serve["p99_to_alone"] = {phase: all_rounds.interval(lambda some, phase=phase: all_rounds.p99_ratio(phase, "alone", some))
                             for phase in PHASES[1:]}
    serve["p99_priority_to_fifo"] = all_rounds.interval(lambda some: all_rounds.p99_ratio("priority", "fifo", some))
    train = {phase: {"steps_per_s": steps_per_s(train_runs[phase])} for phase in PHASES}
    gap_used = all_rounds.interval(all_rounds.gap_used)
    train["gap_used"], train["gap_used_low"], train["gap_used_high"] = gap_used["value"], gap_used["low"], gap_used["high"]
    # Any disturbance makes a kernel take longer, so the fastest run is the undisturbed one.
    train["longest_kernel_ms"] = min(run["longest_kernel_ms"] for runs in train_runs.values() for run in runs)
    train["loss_first"], train["loss_last"] = model["loss_first"], model["loss_last"]
    result = {"device": model["device"], "rounds": len(numbers), "serve": serve, "train": train,
              "results_checked": all(run["results_checked"] for run in every_run)}
    return all_rounds, result


def moment_of(work, phase):
    """Returns the chosen moment of a phase; None if its round was too short to be traced, or if no request arrived
    while train had the device."""
    trace = work / f"trace.{phase}.json"
    return demo_moment.choose(json.loads(trace.read_text(encoding="utf-8"))) if trace.exists() else None


def with_interval(figure, unit, digits):
    text = f"{figure['value']:.{digits}{unit}}"
    low, high = f"{figure['low']:.{digits}{unit}}", f"{figure['high']:.{digits}{unit}}"
    return f"{text} [{low}, {high}]"


def print_table(result):
    serve, train = result["serve"], result["train"]
    print(f"\ndevice {result['device']}; serve: {serve['service_ms']:.1f} ms per request, load {serve['load']:.2f}, "
          f"{serve['alone']['requests']} requests per phase in {result['rounds']} rounds")
    target = f"within {serve['latency_target_ms']:g} ms"
    print(f"{'phase':<24}{'serve p50':>11}{'serve p99':>11}{'p99/alone':>20}{target:>14}{'train steps/s':>15}")
    for phase, title in zip(PHASES, ("each alone", "both, policy fifo", "both, policy priority")):
        row = serve[phase]
        ratio = with_interval(serve["p99_to_alone"][phase], "f", 2) if phase != "alone" else "1"
        print(f"{title:<24}{row['p50_ms']:>8.2f} ms{row['p99_ms']:>8.2f} ms{ratio:>20}{row['target_met']:>14.1%}"
              f"{train[phase]['steps_per_s']:>15.2f}")
    gap_used = {"value": train["gap_used"], "low": train["gap_used_low"], "high": train["gap_used_high"]}
    of_few = serve["alone"]["requests"] < 100 * result["rounds"]
    print(f"p99 is the median of the rounds' p99{', the slowest where a round has fewer than 100' if of_few else ''}. "
          f"[low, high]: 95 % confidence interval.\nUnder priority, train used {with_interval(gap_used, '%', 0)} of the "
          f"device time that serve left.\n"
          f"train's longest kernel takes {train['longest_kernel_ms']:.1f} ms; its loss fell from {train['loss_first']:.3f} to "
          f"{train['loss_last']:.3f}; results {'agree with' if result['results_checked'] else 'DIFFER from'} plain C++")


def complaints(result, requests_min):
    """Reports a target as missed only if its whole interval is beyond the bound, because the rest is the machine's
    noise."""
    serve, train = result["serve"], result["train"]
    for phase in PHASES:
        if serve[phase]["requests"] < requests_min:
            yield f"serve answered {serve[phase]['requests']} requests in phase {phase}, wanted {requests_min}"
    if not result["results_checked"]:
        yield "a result differs from the plain C++ reference"
    if not train["loss_last"] < train["loss_first"]:
        yield f"the loss did not fall: {train['loss_first']:.3f} to {train['loss_last']:.3f}"
    if not LOAD_RANGE[0] <= serve["load"] <= LOAD_RANGE[1]:
        yield f"serve alone was busy {serve['load']:.2f} of the time, wanted {LOAD_RANGE[0]} to {LOAD_RANGE[1]}"
    to_fifo, to_alone = serve["p99_priority_to_fifo"], serve["p99_to_alone"]["priority"]
    if to_fifo["low"] > P99_TO_FIFO_MAX:
        yield f"p99 under priority is {with_interval(to_fifo, 'f', 2)} of that under fifo, the target is at most {P99_TO_FIFO_MAX}"
    if to_alone["low"] > P99_TO_ALONE_MAX:
        yield f"p99 under priority is {with_interval(to_alone, 'f', 2)} of that alone, the target is at most {P99_TO_ALONE_MAX}"
    if train["longest_kernel_ms"] > KERNEL_MS_MAX:
        yield f"a kernel of train takes {train['longest_kernel_ms']:.1f} ms alone, allowed: at most {KERNEL_MS_MAX}"
    if train["gap_used_high"] == 0:
        yield "train was never observed on the device beside serve: use longer phases (--seconds) or a less busy machine"
    elif train["gap_used_high"] < GAP_USED_MIN:
        yield f"train used {train['gap_used']:.2f} of the gap, the target is at least {GAP_USED_MIN}"


def undecided(result):
    """Returns targets whose bound is within the interval, with the figure itself on the wrong side."""
    serve, train = result["serve"], result["train"]
    to_fifo, to_alone = serve["p99_priority_to_fifo"], serve["p99_to_alone"]["priority"]
    if to_fifo["low"] <= P99_TO_FIFO_MAX < to_fifo["value"]:
        yield f"p99 of at most {P99_TO_FIFO_MAX} of that under fifo ({with_interval(to_fifo, 'f', 2)})"
    if to_alone["low"] <= P99_TO_ALONE_MAX < to_alone["value"]:
        yield f"p99 of at most {P99_TO_ALONE_MAX} of that alone ({with_interval(to_alone, 'f', 2)})"
    if train["gap_used"] < GAP_USED_MIN <= train["gap_used_high"]:
        yield f"{GAP_USED_MIN:.0%} of the gap used ({train['gap_used']:.0%})"


def main(command=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--latency-target-ms", type=float, required=True)
    parser.add_argument("--requests-min", type=int, required=True, help="of serve in each phase")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--picture", type=pathlib.Path)
    arguments = parser.parse_args(command)

    all_rounds, result = summarise(arguments.work, arguments.latency_target_ms)
    print_table(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if arguments.picture:
        quantiles_ms = {phase: all_rounds.quantiles_ms(phase, demo_picture.SHARES) for phase in PHASES}
        moments = {phase: moment for phase in PHASES[1:] if (moment := moment_of(arguments.work, phase))}
        arguments.picture.write_text(demo_picture.draw(quantiles_ms, moments), encoding="utf-8")
        print(f"picture: {arguments.picture}")
    for target in undecided(result):
        print(f"inconclusive, because the noise of this run is too large: {target}")
    reasons = list(complaints(result, arguments.requests_min))
    print("DEMO OK" if not reasons else "DEMO FAILED: " + "; ".join(reasons))
    return bool(reasons)


if __name__ == "__main__":
    sys.exit(main())
