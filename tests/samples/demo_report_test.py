# SPDX-License-Identifier: Apache-2.0
"""What the demo's report says of given rounds.

Usage: demo_report_test.py SAMPLES_DIR
"""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, sys.argv.pop(1))
import demo_report

ROUNDS = 3
# What users' scripts read; and what is there beside it.
PROMISED_KEYS = {
    "device", "results_checked", "serve.load",
    *(f"serve.{phase}.{key}" for phase in ("alone", "fifo", "priority") for key in ("p50_ms", "p99_ms", "promise_met")),
    *(f"train.{phase}.steps_per_s" for phase in ("alone", "fifo", "priority")),
    "train.gap_used", "train.loss_first", "train.loss_last"}
FURTHER_KEYS = {
    "serve.promise_ms", "train.longest_kernel_ms", "taken_by_host.mean", "taken_by_host.most",
    *(f"serve.alone_again.{key}" for key in ("p50_ms", "p99_ms", "promise_met")),
    *(f"serve.{phase}.requests" for phase in ("alone", "alone_again", "fifo", "priority"))}


def leaves(value, name=""):
    if not isinstance(value, dict):
        return {name: value}
    return {leaf: found for key, part in value.items()
            for leaf, found in leaves(part, f"{name}.{key}" if name else key).items()}


class Report(unittest.TestCase):
    """A run in which everything is as promised; each test spoils one thing."""

    def setUp(self):
        self.slow_ms = {"alone": 20, "alone_again": 22, "fifo": 200, "priority": 24}  # Two requests in a hundred.
        self.requests = 340  # Of serve, per round.
        self.busy = 0.4
        self.steps = {"alone": 100, "fifo": 50, "priority": 54}
        self.kernel_ms = [3.0, 2.0, 25.0]  # Of train alone, by round.
        self.model = {"device": "cpu:0", "loss_first": 4.5, "loss_last": 2.25, "results_checked": True, "steps": 150,
                      "seconds": 9.0, "longest_kernel_ms": 99}
        self.wrong_round = None
        self.taken_permille = [0, 0, 0]  # Of the processors, by the host, in each phase.

    def report(self, *options):
        """Exit code, what was printed, and the JSON."""
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)

            def write(name, run):
                run.setdefault("results_checked", name != self.wrong_round)
                (work / f"{name}.json").write_text(json.dumps(run), encoding="utf-8")

            write("model", self.model)
            (work / "taken_permille").write_text("".join(f"{taken}\n" for taken in self.taken_permille), encoding="ascii")
            for number in range(1, ROUNDS + 1):
                for phase, slow in self.slow_ms.items():
                    # The slow ones all in the first round: pooled they are 2 %, in the others none.
                    slow_count = ROUNDS * self.requests * 2 // 100 if number == 1 else 0
                    write(f"serve.{phase}.{number}", {
                        "busy": self.busy, "latencies_ms": [slow] * slow_count + [5.0] * (self.requests - slow_count)})
                for phase, steps in self.steps.items():
                    write(f"train.{phase}.{number}", {
                        "steps": steps, "seconds": 10.0, "longest_kernel_ms": self.kernel_ms[number - 1]})
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                code = demo_report.main([folder, "--promise-ms", "21", "--json", str(work / "out"), *options])
            return int(code), printed.getvalue(), json.loads((work / "out").read_text(encoding="utf-8"))

    def assert_fails(self, reason, *options):
        code, printed, _ = self.report(*options)
        self.assertEqual(code, 1)
        last = printed.splitlines()[-1]
        self.assertTrue(last.startswith("DEMO FAILED: "), last)
        self.assertIn(reason, last)
        self.assertNotIn(";", last, "one reason only")

    def assert_passes(self, *options):
        code, printed, _ = self.report(*options)
        self.assertEqual((code, printed.splitlines()[-1]), (0, "DEMO OK"))
        return printed

    def test_keeping_all_promises_is_ok(self):
        printed = self.assert_passes()
        self.assertIn("1020 requests per phase", printed)
        self.assertIn("longest kernel takes 2.0 ms alone", printed)
        self.assertNotIn("noise", printed)

    def test_json_has_the_promised_keys_and_pools_the_rounds(self):
        found = leaves(self.report()[2])
        self.assertEqual(set(found), PROMISED_KEYS | FURTHER_KEYS)
        self.assertEqual(found["device"], "cpu:0")
        self.assertIs(found["results_checked"], True)
        self.assertEqual(found["serve.alone.p50_ms"], 5)
        self.assertEqual(found["serve.fifo.p99_ms"], 200)
        self.assertEqual(found["serve.alone.promise_met"], 1)
        self.assertAlmostEqual(found["serve.priority.promise_met"], 1 - 20 / 1020)
        self.assertAlmostEqual(found["serve.load"], 0.4)
        self.assertAlmostEqual(found["train.fifo.steps_per_s"], 5)
        self.assertAlmostEqual(found["train.gap_used"], 0.54 / 0.6)
        self.assertEqual((found["train.loss_first"], found["train.loss_last"]), (4.5, 2.25))
        self.assertEqual(found["train.longest_kernel_ms"], 2)

    def test_a_difference_from_the_reference_fails(self):
        for self.wrong_round in ("serve.fifo.2", "train.priority.3", "model"):
            self.model.pop("results_checked", None)
            self.assert_fails("a result differs")
        self.assertIs(self.report()[2]["results_checked"], False)

    def test_a_loss_that_did_not_fall_fails(self):
        self.model["loss_last"] = 4.5
        self.assert_fails("the loss did not fall: 4.500 to 4.500")

    def test_a_load_outside_its_range_fails(self):
        self.busy, self.steps["priority"] = 0.65, 35
        self.assert_fails("busy 0.65 of the time, wanted 0.3 to 0.6")
        self.busy, self.steps["priority"] = 0.25, 75
        self.assert_fails("busy 0.25 of the time")

    def test_too_few_requests_fail_unless_fewer_were_asked_for(self):
        self.requests = 300
        code, printed, _ = self.report()
        self.assertEqual(code, 1)
        for phase in ("alone", "alone_again", "fifo", "priority"):
            self.assertIn(f"serve answered 900 requests in phase {phase}, wanted 1000", printed)
        self.assert_passes("--requests-min", "1")

    def test_priority_has_at_most_half_of_the_p99_of_fifo(self):
        self.slow_ms["fifo"] = 48
        self.assert_passes()
        self.slow_ms["fifo"] = 47
        self.assert_fails("p99 under priority is 0.51 of that under fifo, promised 0.5")

    def test_priority_has_at_most_one_and_a_half_of_the_p99_alone(self):
        self.slow_ms["priority"] = 30
        self.assert_passes()
        self.slow_ms["priority"] = 31
        self.assert_fails("p99 under priority is 1.55 of that alone, promised 1.50")

    def test_noise_beyond_the_promise_is_shown_and_allowed_for(self):
        self.slow_ms.update(alone_again=40, priority=40)
        self.assertIn("noise exceeds what is allowed: alone against alone is 2.00", self.assert_passes())
        self.slow_ms["priority"] = 41
        self.assert_fails("p99 under priority is 2.05 of that alone, promised 2.00")

    def test_what_the_host_took_is_shown_where_it_took_anything(self):
        self.assertNotIn("the host", self.assert_passes())
        self.taken_permille = [0, 0, 45]
        self.assertIn("the host of this virtual machine took 1.5% of its processors, up to 4.5% in a phase",
                      self.assert_passes())
        self.assertAlmostEqual(leaves(self.report()[2])["taken_by_host.most"], 0.045)

    def test_a_long_kernel_of_train_fails(self):
        self.kernel_ms = [20.5, 21, 30]
        self.assert_fails("a kernel of train takes 20.5 ms alone, allowed are 20")

    def test_a_gap_left_unused_fails(self):
        self.steps["priority"] = 47
        self.assert_fails("train used 0.78 of the gap, promised 0.8")


unittest.main()
