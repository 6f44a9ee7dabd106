# SPDX-License-Identifier: Apache-2.0
"""gpu_hog, both_native and the priorities of native streams on a fake driver: their reports about themselves are
correct."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

BIN = FAKE_CUDA = FAKE_NVML = PTXAS = ""  # Directories, and a compiler for the fake driver; from the command line.
# The fake CUDA driver's GPU is the one that the fake NVML calls GPU 0.
GPU = "sms 2; uuid 0 GPU-a0000000-fa4e-4000-8000-000000000000; "
WAVE_BLOCKS = 64  # Blocks of a wave on two multiprocessors.
SIZES = ("--wave-blocks", str(WAVE_BLOCKS), "--iterations-per-us", "1")
HOG = ("--load", "hog", "--waves", "3", "--block-us", "20", "--seconds", "0.2", *SIZES)
NULL = ("--load", "null", "--seconds", "0.2", *SIZES)
LIMIT_S = 60


class Programs(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = pathlib.Path(scratch.name)

    def environment(self, script="", **variables):
        (self.directory / "nvml.json").write_text('{"gpus": [{"board": "H200"}]}', encoding="utf-8")
        return dict(os.environ, LD_LIBRARY_PATH=f"{FAKE_CUDA}:{FAKE_NVML}", FAKE_CUDA=GPU + script,
                    FAKE_NVML=str(self.directory / "nvml.json"), GPUSHARED_SOCKET=str(self.directory / "gpushared.sock"),
                    # gcc 12's leak checker crashes on threads of libraries that were loaded at run time (run_test.py).
                    ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0", **variables)

    def run_program(self, program, *arguments, **given):
        return subprocess.run([BIN / program, *arguments], env=self.environment(**given), capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)

    def outcome(self, program, *arguments, status=0, **given):
        file = self.directory / f"{program}.json"
        ran = self.run_program(program, *arguments, "--json", file, **given)
        self.assertEqual(ran.returncode, status, ran.stdout + ran.stderr)
        return json.loads(file.read_text(encoding="utf-8"))

    def calls(self, log):
        """Returns the names of the driver calls, in order."""
        return [line.split(" ")[1] for line in log.read_text(encoding="utf-8").splitlines()]


class Hog(Programs):
    def test_counts_its_launches_and_keeps_two_in_flight(self):
        log = self.directory / "log"
        hog = self.outcome("gpu_hog_native", *HOG, script=f"log {log}")
        self.assertTrue(hog["results_checked"])
        self.assertEqual((hog["waves"], hog["blocks"]), (3, 3 * WAVE_BLOCKS))
        self.assertGreater(hog["launches"], 2)
        self.assertAlmostEqual(hog["launches_per_s"], hog["launches"] / hog["seconds"], delta=0.01 * hog["launches_per_s"])
        self.assertGreaterEqual(hog["seconds"], 0.2)
        self.assertGreater(hog["kernel_ms"], 0)
        calls = self.calls(log)
        # One more launch at the start loads the kernel.
        self.assertEqual(calls.count("cuLaunchKernel"), hog["launches"] + 1)
        del calls[:calls.index("cuLaunchKernel") + 1]
        in_flight = most = 0
        for call in calls:
            in_flight += {"cuLaunchKernel": 1, "cuEventSynchronize": -1}.get(call, 0)
            most = max(most, in_flight)
        self.assertEqual((in_flight, most), (0, 2))

    def test_measures_sizes_that_are_not_given(self):
        found = self.outcome("gpu_hog_native", "--load", "calibrate")
        self.assertEqual((found["wave_blocks"], found["multiprocessors"]), (WAVE_BLOCKS, 2))
        self.assertGreater(found["iterations_per_us"], 0)
        alone = self.outcome("gpu_hog_native", "--load", "kernel_1ms", "--seconds", "0.1")
        self.assertEqual(alone["blocks"], WAVE_BLOCKS)

    def test_several_loads_share_one_client(self):
        log = self.directory / "log"
        files = [self.directory / name for name in ("first", "second")]
        ran = self.run_program("gpu_hog_native", *HOG, "--json", files[0], "+", *NULL, "--json", files[1], script=f"log {log}")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        hog, trips = (json.loads(file.read_text(encoding="utf-8")) for file in files)
        self.assertTrue(hog["results_checked"] and trips["results_checked"])
        calls = self.calls(log)
        self.assertEqual(calls.count("cuModuleLoadDataEx"), 1)
        self.assertEqual(calls.count("cuLaunchKernel"), hog["launches"] + trips["count"] + 2)

    def test_one_wrong_load_fails_all(self):
        for loads in ((*HOG, "+", *NULL), (*NULL, "+", *HOG)):
            ran = self.run_program("gpu_hog_native", *loads, script="copies wrong 1K")
            self.assertEqual(ran.returncode, 1, ran.stdout)

    def test_detects_wrong_block_counts(self):
        for load in (HOG, NULL):
            outcome = self.outcome("gpu_hog_native", *load, script="copies wrong 1K", status=1)
            self.assertFalse(outcome["results_checked"])

    def test_starts_at_the_given_time(self):
        for load in (HOG, NULL):
            at = time.time() + 1
            outcome = self.outcome("gpu_hog_native", *load, "--start-at", str(at))
            self.assertGreaterEqual(outcome["late_s"], 0)
            self.assertGreaterEqual(time.time(), at + 0.2)

    def test_round_trips_have_pauses_and_ordered_percentiles(self):
        for load, pause_ms in (("null", 1), ("kernel_1ms", 3)):
            log = self.directory / load
            trips = self.outcome("gpu_hog_native", "--load", load, "--seconds", "0.3", *SIZES, script=f"log {log}")
            self.assertTrue(trips["results_checked"])
            self.assertEqual(trips["pause_ms"], pause_ms)
            self.assertEqual(self.calls(log).count("cuLaunchKernel"), trips["count"] + 1)
            self.assertLessEqual(0, trips["p50_us"])
            self.assertLessEqual(trips["p50_us"], trips["p90_us"])
            self.assertLessEqual(trips["p90_us"], trips["p99_us"])
            self.assertLessEqual(trips["p99_us"], trips["max_us"])
            self.assertLessEqual(trips["mean_us"], trips["max_us"])
            # More than twice the mean number of exponential pauses is practically impossible.
            self.assertLess(trips["count"], 2 * 300 / pause_ms)

    def test_rejects_invalid_arguments(self):
        for wrong in ((), ("--load", "pig"), (*NULL, "--iterations-per-us", "0"), (*HOG, "--waves", "0"),
                      (*HOG, "--waves", "65536", "--wave-blocks", "1000000"), (*NULL, "--json", "/nowhere/file")):
            ran = self.run_program("gpu_hog_native", *wrong)
            self.assertEqual(ran.returncode, 1, wrong)
            self.assertTrue(ran.stderr.startswith("gpu_hog: "), ran.stderr)


class NativePriority(Programs):
    def device(self, **variables):
        return self.outcome("gpu_hog_native", *NULL, **variables)["device"]

    def test_is_clamped_to_the_range_of_the_context(self):
        self.assertEqual(self.device(), "native cuda:0")
        for wanted, given in (("-3", -3), ("-99", -5), ("0", 0), ("7", 0)):
            self.assertEqual(self.device(NATIVE_PRIORITY=wanted), f"native cuda:0 at stream priority {given}")

    def test_rejects_a_value_that_is_not_a_whole_number(self):
        for wrong in ("", "high", "-5x", "1.5", "99999999999999"):
            ran = self.run_program("gpu_hog_native", *NULL, NATIVE_PRIORITY=wrong)
            self.assertEqual(ran.returncode, 1, wrong)
            self.assertIn(f"NATIVE_PRIORITY is '{wrong}', allowed: a whole number", ran.stderr)

    def test_is_reported_with_the_mps_settings(self):
        self.assertEqual(
            self.device(script="attribute 133 1", NATIVE_PRIORITY="-5", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="50",
                        CUDA_MPS_CLIENT_PRIORITY="1"),
            "native cuda:0 at stream priority -5 with CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50 with CUDA_MPS_CLIENT_PRIORITY=1 "
            "under MPS")


class BothNative(Programs):
    def both(self, low, high, **given):
        files = [self.directory / side for side in ("low.json", "high.json")]
        for file in files:
            file.unlink(missing_ok=True)
        ran = self.run_program("both_native", *low, "--json", files[0], "--", *high, "--json", files[1], **given)
        outcomes = [json.loads(file.read_text(encoding="utf-8")) if file.exists() else None for file in files]
        return ran, *outcomes

    def test_share_one_context_with_streams_of_both_priorities(self):
        log = self.directory / "log"
        at = ("--start-at", str(time.time() + 1))
        # NATIVE_PRIORITY must be ignored, because it is for programs that are alone in their process.
        ran, low, high = self.both(("gpu_hog", *HOG, *at), ("gpu_hog", *NULL, *at), script=f"log {log}", NATIVE_PRIORITY="-1")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(low["device"], "native cuda:0 at stream priority 0")
        self.assertEqual(high["device"], "native cuda:0 at stream priority -5")
        self.assertTrue(low["results_checked"] and high["results_checked"])
        lines = [line.split(" ") for line in log.read_text(encoding="utf-8").splitlines()]
        launching = {thread for thread, call, *_ in lines if call == "cuLaunchKernel"}
        self.assertEqual(len(launching), 2)
        self.assertEqual(self.calls(log).count("cuDevicePrimaryCtxRetain"), 2)

    def test_runs_the_samples(self):
        model = self.directory / "model"
        text = self.directory / "text"
        text.write_text("to be or not to be, that is the question\n" * 50, encoding="utf-8")
        train = ("train", "--text", text, "--hidden", "16", "--batch", "8", "--steps", "4")
        made = self.run_program("train_native", *train[1:], "--model", model)
        self.assertEqual(made.returncode, 0, made.stderr)
        ran, low, high = self.both(train, ("serve", "--model", model, "--batch", "4", "--requests", "5", "--service-ms", "1"))
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual((low["device"], high["device"]),
                         ("native cuda:0 at stream priority 0", "native cuda:0 at stream priority -5"))
        self.assertTrue(low["results_checked"] and high["results_checked"])

    def test_fails_if_either_program_fails(self):
        nowhere = ("serve", "--model", "/nowhere/model")
        for low, high in ((nowhere, ("gpu_hog", *NULL)), (("gpu_hog", *NULL), nowhere)):
            ran, *outcomes = self.both(low, high)
            self.assertEqual(ran.returncode, 1, ran.stderr)
            self.assertEqual([outcome is None for outcome in outcomes], [low is nowhere, high is nowhere])

    def test_rejects_anything_but_two_known_programs(self):
        for words in ((), ("gpu_hog", *NULL), ("--", "gpu_hog"), ("gpu_hog", "--"), ("gpu_hog", "--", "vi")):
            ran = self.run_program("both_native", *words)
            self.assertEqual(ran.returncode, 2, words)
            self.assertIn("usage: both_native", ran.stderr)


class Shared(Programs):
    def setUp(self):
        super().setUp()
        self.server = subprocess.Popen(
            [BIN / "gpushared", "--policy", "priority", "--device", "GPU-a0000000-fa4e-4000-8000-000000000000", "--socket",
             self.directory / "gpushared.sock", "--ptx-compiler", PTXAS, "--code-cache", self.directory / "code"],
            env=self.environment(), stderr=subprocess.DEVNULL)
        self.addCleanup(self.server.wait)
        self.addCleanup(self.server.terminate)
        end = time.monotonic() + LIMIT_S
        while " ready " not in self.run_program("gpusharedctl", "devices").stdout:
            self.assertIsNone(self.server.poll())
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def test_a_low_hog_is_stopped_for_a_high_round_trip(self):
        at = str(time.time() + 1)
        files = [self.directory / side for side in ("hog", "trips")]
        # Several waves of blocks of at least 10 us, so that preempting them pays off.
        loads = (("--load", "hog", "--waves", "40", "--block-us", "400", "--seconds", "2"), ("--load", "null", "--seconds", "1"))
        started = [subprocess.Popen([BIN / "gpu_hog_shared", *load, *SIZES, "--start-at", at, "--json", file],
                                    env=self.environment(), stdout=subprocess.DEVNULL) for load, file in zip(loads, files)]
        self.assertEqual(started[1].wait(LIMIT_S), 0)
        clients = json.loads(self.run_program("gpusharedctl", "--json", "ps").stdout)["clients"]
        self.assertEqual(started[0].wait(LIMIT_S), 0)
        hog, trips = (json.loads(file.read_text(encoding="utf-8")) for file in files)
        self.assertTrue(hog["results_checked"] and trips["results_checked"])
        client = next(each for each in clients if each["name"] == "hog")
        self.assertEqual(client["class"], "low")
        self.assertGreater(client["stops"], 0)


if __name__ == "__main__":
    BIN, FAKE_CUDA, FAKE_NVML = map(pathlib.Path, sys.argv[1:4])
    PTXAS = sys.argv[4]
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2)
