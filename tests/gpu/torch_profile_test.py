# SPDX-License-Identifier: Apache-2.0
"""torch_profile.py: its evaluation of a trace, and its message where it can measure nothing."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import torch_profile  # noqa: E402  pylint: disable=wrong-import-position

# Two multiprocessors of an H100.
DEVICE = {"id": 0, "warpSize": 32, "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536,
          "sharedMemPerMultiprocessor": 233472, "numSms": 2}


def kernel(correlation, us, grid=1, block=32, registers=16, shared=0, name="kernel"):
    return {"ph": "X", "cat": "kernel", "name": name, "dur": us,
            "args": {"device": 0, "correlation": correlation, "grid": [grid, 1, 1], "block": [block, 1, 1],
                     "registers per thread": registers, "shared memory": shared}}


def call(correlation, name, category="cuda_runtime"):
    return {"ph": "X", "cat": category, "name": name, "dur": 3, "args": {"correlation": correlation}}


class Shares(unittest.TestCase):
    def shares(self, *events):
        # The other contents of every trace: flows, copies, and names of threads.
        others = [{"ph": "M", "name": "thread_name", "args": {"name": "python"}}, {"ph": "s", "cat": "ac2g", "id": 1},
                  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "dur": 5000, "args": {"correlation": 99}}]
        return torch_profile.shares({"deviceProperties": [DEVICE], "traceEvents": [*others, *events]})

    def share(self, what, *events):
        found = self.shares(*events)["shares"]
        return next(found[each] for each in found if each.startswith(what))

    def test_counts_only_the_time_of_kernels(self):
        found = self.shares(kernel(1, 30), kernel(2, 50.5, name="the long one"), call(1, "cudaLaunchKernel"))
        self.assertEqual((found["kernels"], found["total_us"]), (2, 80.5))
        self.assertEqual((found["longest_us"], found["longest"]), (50.5, "the long one"))

    def test_a_trace_without_kernels_has_no_shares(self):
        with self.assertRaisesRegex(ValueError, "no kernel"):
            self.shares()

    def test_weights_kernel_lengths_by_time(self):
        events = [kernel(1, 100), kernel(2, 300), kernel(3, 1600)]
        self.assertEqual(self.share("kernels over 100 us", *events), 0.95)
        self.assertEqual(self.share("kernels over 1 ms", *events), 0.8)

    def test_computes_waves_from_the_occupancy_limit(self):
        for limited_by, wave in ((dict(), 2 * 32),                        # Limited by blocks per multiprocessor.
                                 (dict(block=1024), 2 * 2),               # Limited by threads.
                                 (dict(block=1000), 2 * 2),               # Limited by threads of whole warps.
                                 (dict(block=256, registers=128), 2 * 2),
                                 (dict(block=128, registers=255), 2 * 2),
                                 (dict(shared=116_000), 2 * 1),
                                 (dict(shared=232_448), 2 * 1)):
            almost, two = kernel(1, 10, grid=2 * wave - 1, **limited_by), kernel(2, 30, grid=2 * wave, **limited_by)
            self.assertEqual(self.share("grids below 2 waves", almost, two), 0.25, limited_by)

    def test_all_dimensions_of_grids_and_blocks_count(self):
        flat = kernel(1, 10)
        flat["args"].update(grid=[2, 4, 2], block=[16, 8, 8])
        self.assertEqual(self.share("grids below 2 waves", flat), 0)

    def test_preemptible_kernels_have_enough_waves_time_and_block_length(self):
        preempted = "kernels that could be preempted"
        for events, share in (([kernel(1, 100, grid=128)], 1), ([kernel(1, 99, grid=128)], 0), ([kernel(1, 5000, grid=127)], 0),
                              ([kernel(1, 100, grid=640)], 1), ([kernel(1, 100, grid=704)], 0),
                              ([kernel(1, 300, grid=128), kernel(2, 100, grid=1)], 0.75)):
            self.assertEqual(self.share(preempted, *events), share, events)

    def test_launches_are_found_by_their_calls(self):
        events = [kernel(1, 10), kernel(2, 20), kernel(3, 30), kernel(4, 40), call(1, "cudaLaunchKernelExC"),
                  call(2, "cuLaunchKernelEx", "cuda_driver"), call(3, "cudaLaunchCooperativeKernel"), call(4, "cudaLaunchKernel")]
        self.assertEqual(self.share("launches with attributes", *events), 0.3)
        self.assertEqual(self.share("cooperative launches", *events), 0.3)
        self.assertEqual(self.share("cooperative launches", kernel(9, 1)), 0)

    def test_clusters_are_found_by_the_names_of_cublas(self):
        names = {"nvjet_tst_192x192_64x4_1x2_h_bz_coopB_TNT": 1, "nvjet_hsh_128x256_64x4_1x1_h_bz_NNT": 0,
                 "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64": 0}
        for name, share in names.items():
            self.assertEqual(self.share("kernels whose names say a cluster", kernel(1, 7, name=name)), share, name)


class Script(unittest.TestCase):
    def rows(self, torch, *options):
        with tempfile.TemporaryDirectory() as scratch:
            directory = pathlib.Path(scratch)
            (directory / "torch.py").write_text(torch, encoding="utf-8")
            subprocess.run([sys.executable, HERE / "torch_profile.py", "--rows", directory / "rows", *options],
                           env=dict(os.environ, PYTHONPATH=scratch), check=True)
            return [line.split("\t") for line in (directory / "rows").read_text(encoding="utf-8").splitlines()]

    def test_reports_missing_pytorch(self):
        self.assertEqual(self.rows("raise ImportError('libtorch is lost')"),
                         [["torch", "PyTorch", "not installed", "-", "fact", "-", "libtorch is lost"]])

    def test_reports_an_error_as_the_reason_of_a_row(self):
        self.assertEqual(self.rows("class nn:\n    def __getattr__(self, name): raise RuntimeError('no GPU\\tat all')\nnn = nn()\n"),
                         [["torch", "a training step", "none", "-", "fact", "-", "RuntimeError: no GPU at all"]])

    def test_ends_a_step_that_exceeds_its_limit(self):
        self.assertEqual(self.rows("import time\ntime.sleep(1000)\n", "--seconds", "1"),
                         [["torch", "a training step", "none", "-", "fact", "-", "TimeoutError: not done within its limit"]])


if __name__ == "__main__":
    unittest.main()
