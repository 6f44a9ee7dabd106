# SPDX-License-Identifier: Apache-2.0
"""gpu_facts on a fake driver: it measures the costs configured in the driver, names the calls that block another
thread, and continues if a driver lacks a call or a call fails."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BIN = FAKE_CUDA = VIRTUAL_TIME = ""  # Directories, and a library; from the command line.
# Costs in ns that differ from the fake driver's defaults, so that a measured cost cannot be right by chance.
PUT_IN = {
    "call_launch": 2500, "call_copy": 2700, "call_fill": 2900, "call_record": 1300, "call_write": 1500,
    "call_query": 400, "call_elapsed": 500, "call_create": 150000, "call_map": 2500, "call_access": 40000,
    "call_unmap": 20000, "call_release": 30000, "call_graph_launch": 3500, "graph_launched_node": 5,
    "call_graph_node": 800, "graph_instantiated_node": 2500, "kernel_gap": 1500, "graph_gap": 700, "untimed_event": 800,
    "timed_event": 1700, "write_value": 1200, "engine_switch": 2600, "copy_latency": 1900, "fill_kernel": 2200,
    "host_function": 15000, "host_bytes_per_us": 40000, "device_bytes_per_us": 2000000,
}
# The time of a kernel's first instructions, which cannot be distinguished from idle time before it.
FIRST_INSTRUCTIONS_NS = 400
PART_OF_IDLE = {"kernel_gap": 1, "graph_gap": 1, "fill_kernel": -1}


class Facts(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.rows_file = pathlib.Path(directory.name) / "rows"
        self.costs_file = pathlib.Path(directory.name) / "costs"

    def ask(self, only, script, is_virtual=False, ms=10):
        environment = dict(os.environ, LD_LIBRARY_PATH=FAKE_CUDA, FAKE_CUDA=script)
        if is_virtual:
            environment |= {"VIRTUAL_TIME": "1", "LD_PRELOAD": VIRTUAL_TIME}
        return subprocess.run(
            [f"{BIN}/gpu_facts", "--rows", self.rows_file, "--costs", self.costs_file, "--ms", str(ms), "--limit", "60",
             "--only", only], env=environment, capture_output=True, text=True, check=False)

    def rows(self):
        return [line.split("\t") for line in self.rows_file.read_text(encoding="utf-8").splitlines()]

    def value(self, what):
        """Returns the value and the note of a row."""
        found = [row for row in self.rows() if row[1] == what]
        self.assertEqual(len(found), 1, f"'{what}' among\n" + self.rows_file.read_text(encoding="utf-8"))
        return found[0][2], found[0][6]

    def costs(self):
        found = {}
        for line in self.costs_file.read_text(encoding="utf-8").splitlines():
            parts = re.fullmatch(r"(\w+) (\d+)  # \S.*", line)
            self.assertIsNotNone(parts, line)
            self.assertNotIn(parts[1], found)
            found[parts[1]] = int(parts[2])
        return found

    def test_measures_the_configured_costs(self):
        script = "sms 8; attribute 39 256; costs on" + "".join(f"; cost {name} {ns}" for name, ns in PUT_IN.items())
        for only in ("chains of kernels", "costs of calls", "a graph", "mapping memory", "sealed shared memory"):
            run = self.ask(only, script, is_virtual=True)
            self.assertEqual(run.returncode, 0, run.stderr)
        found = self.costs()
        self.assertEqual(found.keys(), PUT_IN.keys())
        for name, put_in in PUT_IN.items():
            least = most = put_in
            if name in PART_OF_IDLE:
                least, most = sorted((put_in, put_in + PART_OF_IDLE[name] * FIRST_INSTRUCTIONS_NS))
            # A driver call takes its time and 50 ns for each read of the virtual clock.
            self.assertGreaterEqual(found[name], 0.95 * least - 60, name)
            self.assertLessEqual(found[name], 1.05 * most + 60, name)
        # The message is about the invalid option after the file, so gpu_modelled has accepted all lines of the file.
        run = subprocess.run([f"{BIN}/gpu_modelled", "--costs", self.costs_file, "--cost", "nonsense 1"],
                             capture_output=True, text=True, check=False)
        self.assertEqual((run.returncode, run.stderr),
                         (1, "gpu_modelled: fake_cuda: not understood:  cost nonsense 1\n"))

    def test_measures_costs_that_need_real_time(self):
        for only in ("end of work", "calls beside a kernel, lazy"):
            run = self.ask(only, "sms 2")
            self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.costs().keys(), {"wake", "kernel_load", "compile_text"})

    def test_names_calls_that_block_another_thread(self):
        """This driver blocks all other calls while it gets a function or instantiates a graph."""
        for mode in ("LAZY", "EAGER"):
            with self.subTest(mode):
                run = self.ask(f"calls beside a kernel, {mode.lower()}",
                               "sms 2; slow cuModuleGetFunction 30; slow cuGraphInstantiateWithFlags 40")
                self.assertEqual(run.returncode, 0, run.stderr)
                for call, ms in (("cuModuleGetFunction", 30), ("cuGraphInstantiate of 50 kernels", 40)):
                    takes, note = self.value(f"{call} beside a 20 ms kernel, {mode}: takes")
                    self.assertGreaterEqual(float(takes), ms)
                    self.assertRegex(note, r"^\d+\.\d+ alone, \d+\.\d of the kernel were left$")
                    held, by = self.value(f"{call} beside a 20 ms kernel, {mode}: another thread's longest call")
                    self.assertGreaterEqual(float(held), ms / 2)
                    self.assertIn(by, ("cuEventQuery", "cuStreamWriteValue32"))
                count, names = self.value(
                    f"calls beside a 20 ms kernel, {mode}, that held up another thread for 1 ms or more")
                self.assertEqual(int(count), names.count("("))
                self.assertRegex(names, r"cuModuleGetFunction \(\d+\.\d ms\)")
                self.assertRegex(names, r"cuGraphInstantiate of 50 kernels \(\d+\.\d ms\)")
                self.value(f"calls beside a 20 ms kernel, {mode}, that waited for it")

    def test_names_calls_that_wait_for_the_kernel(self):
        """This driver waits with the context's lock held (`lock on`). A block takes its time in few instructions,
        because the fake GPU blocks all calls while it executes them."""
        script = "sms 1; attribute 39 256; costs on; cost instruction 2000; lock on"
        waiting = {"cuModuleLoadDataEx of PTX in the cache", "cuModuleLoadDataEx of PTX that is new",
                   "cuModuleLoadDataEx of machine code", "cuModuleUnload", "cuMemFree of 16 MiB",
                   "cuMemHostUnregister of 16 MiB", "cuMemSetAccess of 16 MiB", "cuMemUnmap of 16 MiB"}
        # Creating the fake GPU's memory fills it, which takes long on a busy machine.
        unclear = {"cuMemCreate of 16 MiB"}
        loading = {"cuModuleGetFunction", "cuFuncLoad"}
        for mode, expected in (("LAZY", waiting | loading), ("EAGER", waiting)):
            with self.subTest(mode):
                run = self.ask(f"calls beside a kernel, {mode.lower()}", script)
                self.assertEqual(run.returncode, 0, run.stderr)
                for what in ("waited for it", "held up another thread for 1 ms or more"):
                    _, names = self.value(f"calls beside a 20 ms kernel, {mode}, that {what}")
                    found = set(re.findall(r"([^ ,][^,]*) \(\d+\.\d ms\)", names))
                    self.assertLessEqual(expected, found)
                    if what == "waited for it":
                        self.assertEqual(found - unclear, expected)

    def test_a_failed_call_affects_only_rows_that_need_it(self):
        run = self.ask("calls beside a kernel, lazy", "sms 2; fail cuMemCreate * 2; missing cuFuncLoad")
        self.assertEqual(run.returncode, 0, run.stderr)
        takes = " beside a 20 ms kernel, LAZY: takes"
        out_of_memory = "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"
        self.assertEqual(self.value("cuMemCreate of 16 MiB" + takes), ("none", "cuMemCreate of 16 MiB: " + out_of_memory))
        self.assertEqual(self.value("cuMemUnmap of 16 MiB" + takes), ("none", "cuMemCreate: " + out_of_memory))
        self.assertEqual(self.value("cuFuncLoad" + takes), ("none", "not in this driver"))
        for call in ("no call", "cuModuleUnload", "cuMemAlloc of 16 MiB", "cuCtxSetLimit of the stack"):
            self.assertGreaterEqual(float(self.value(call + takes)[0]), 0)

    def test_reports_the_address_range_of_shared_memory(self):
        run = self.ask("shared", "sms 2")
        self.assertEqual(run.returncode, 0, run.stderr)
        for static, begin in ((" after 1,000 static bytes", 1008), ("", 0)):
            for size in (0, 16, 1000, 200000):
                what = f"{size} bytes of dynamic shared memory{static}: "
                self.assertEqual(self.value(what + "reported"),
                                 (f"{size:g}", f"from {begin:#x} to {begin + size:#x}; %total_smem_size is {begin + size}"))
                self.assertEqual(self.value(what + "no less than was asked for")[0], "1")
                self.assertEqual(self.value(what + "its last byte can be stored to")[0], "1" if size else "none")
        for address in ("0x0", "0x3fc"):
            self.assertEqual(self.value(f"a store to shared address {address}")[0], "0")
            self.assertEqual(self.value(f"a store to shared address {address}: kernels that follow it")[0], "0")

    def test_reports_the_error_code_of_a_faulting_store(self):
        run = self.ask("a store to shared address 0x3fc", "sms 2; fault 1 719")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.value("a store to shared address 0x3fc")[0], "719")
        self.assertEqual(self.value("a store to shared address 0x3fc: answered")[0], "1")
        # The first two kernels only report the ranges of 0 and 16 bytes. The third one stores to the last byte of 16.
        run = self.ask("the last byte", "sms 2; fault 3 719")
        self.assertEqual(run.returncode, 1, run.stdout)
        value, note = self.value("16 bytes of dynamic shared memory: its last byte can be stored to")
        self.assertEqual(value, "0")
        self.assertIn("(719)", note)
        self.assertEqual(self.value("the last byte of dynamic shared memory: answered"),
                         ("0", "the context is dead: further sizes were not asked for"))

    def test_measures_how_soon_a_word_is_seen_beside_busy_streams(self):
        run = self.ask("busy streams", "sms 2")
        self.assertEqual(run.returncode, 0, run.stderr)
        value, note = self.value("31 busy streams: a word of another one is seen after")
        self.assertGreater(float(value), 0)
        self.assertRegex(note, r"^\d+ of 31 kernels had begun, [1-9]\d* streams were still busy then$")

    def test_reports_events_and_kernels_on_green_contexts(self):
        stream = "a green context's stream"
        run = self.ask("events on green", "sms 16; missing cuLibraryGetKernel; fail cuEventRecord 1 400")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.value(stream + ": an event made with the primary context current: recorded")[0], "400")
        self.assertEqual(self.value(stream + ": an event made with that context current: recorded")[0], "0")
        self.assertEqual(self.value(stream + ": a kernel of the primary context's module: its end")[0], "0")
        self.assertEqual(self.value(stream + ": a kernel of a library"), ("none", "not in this driver"))
        self.rows_file.unlink()
        run = self.ask("events on green", "sms 16; green strict")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.value(stream + ": an event made with the primary context current: recorded")[0], "400")
        self.assertEqual(self.value(stream + ": an event made with that context current: recorded")[0], "0")
        self.rows_file.unlink()
        run = self.ask("events on green", "sms 16")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.value(stream + ": an event made with the primary context current: recorded")[0], "0")
        self.assertEqual(self.value(stream + ": the time between two such events")[0], "0")
        self.assertEqual(self.value(stream + ": a kernel of a library: its end")[0], "0")

    def test_names_attributes_with_an_unexpected_error(self):
        run = self.ask("attributes", "sms 2; fail cuDeviceGetAttribute 150 801")
        self.assertEqual(run.returncode, 0, run.stderr)
        count, values = self.value("attributes 1 to 159 that the driver answers")
        self.assertEqual(int(count), len(values.split()))
        self.assertIn("16=2", values.split())
        self.assertRegex(self.value("attributes that fail otherwise than by code 1")[1], r"^\d+: 801$")

    def test_reports_local_memory_with_the_servers_limit(self):
        run = self.ask("local memory", "sms 2; memory 2G")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.value("local memory of a thread, as the server sets it"),
                         ("8192", "8192 asked for, it was 1024"))
        self.assertEqual(self.value("a first kernel with 4 KiB of local memory: memory that it takes")[1],
                         "4096 bytes for each thread by the driver")

    def test_two_hanging_questions_end_the_program_but_one_does_not(self):
        environment = dict(os.environ, LD_LIBRARY_PATH=FAKE_CUDA, FAKE_CUDA="sms 2; hold")
        run = subprocess.run([f"{BIN}/gpu_facts", "--rows", self.rows_file, "--ms", "10", "--limit", "1"], env=environment,
                             capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertEqual(self.value("calls beside a kernel, lazy loading: answered"), ("0", "none after 1 s"))
        self.assertEqual(self.value("stream priority: answered"), ("0", "not asked: the GPU no longer answers"))

    def test_rejects_invalid_arguments(self):
        for arguments in (["--only"], ["--onyl", "a graph"], ["--ms", "0"]):
            run = subprocess.run([f"{BIN}/gpu_facts", *arguments], capture_output=True, text=True, check=False)
            self.assertEqual(run.returncode, 2, arguments)
            self.assertIn("usage: gpu_facts", run.stderr)


if __name__ == "__main__":
    BIN, FAKE_CUDA, VIRTUAL_TIME = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
