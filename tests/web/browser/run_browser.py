#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of gpushared-web in a real browser, with a running pair of train and serve.

Usage: run_browser.py BIN_DIR DIRECTORY_FOR_SCREENSHOTS [TEST ...]
"""
import http.client
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from fake_server import STATUS, FakeServer
from web_driver import Browser

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))
from waiting import until  # noqa: E402

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
PICTURES = pathlib.Path(sys.argv.pop(1)).resolve()
PATIENCE_S = 60
UPDATES = 100
SIZES = ((1400, 900), (900, 900), (390, 844))
THEMES = ("light", "dark")
CONNECTIONS, CONNECTIONS_MAX = 1000, 128
TOKEN = "a-token-of-some-length"
# Three digits are shown.
ROUNDING = 0.006
UNITS = {"µs": 1, "ms": 1e3, "s": 1e6, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "%": 1, "": 1}
HOSTILE_NAMES = ("<img src=x onerror=\"document.title='hit'\"><b>bold</b>", "x" * 4096,
                 "\u202eevil\u202d \u0639\u0631\u0628\u064a \u2067mirrored", "</script><script>document.title='hit'</script>",
                 "&lt;b&gt; &amp; \" ' ` ${1}", "\u0000\u0007\ufffd", "")


def value(text):
    """Returns the number in a text of the page, in microseconds, bytes, percent or without a unit."""
    said = re.fullmatch(r"([0-9,.]+) ?(\S*)", text)
    if not said:
        raise AssertionError(f"'{text}' is no figure")
    return float(said.group(1).replace(",", "")) * UNITS[said.group(2)]


class Programs:
    """Ends the programs that it has started, the last one first."""

    def __init__(self):
        self.running = []

    def start(self, *command, **more):
        self.running.append(subprocess.Popen([str(each) for each in command], stdout=subprocess.DEVNULL, **more))
        return self.running[-1]

    def web(self, path, *more):
        """Starts a gpushared-web for the server at that path; returns its address."""
        program = self.start(BIN / "gpushared-web", "--socket", path, "--listen", "127.0.0.1:0", *more,
                             stderr=subprocess.PIPE, text=True)
        return program.stderr.readline().split("//")[1].split("/")[0]

    def end(self):
        for program in reversed(self.running):
            program.terminate()
            program.wait(timeout=30)
            if program.stderr:
                program.stderr.close()


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="gpushared-")
        cls.addClassCleanup(scratch.cleanup)
        cls.directory = pathlib.Path(scratch.name)
        cls.socket = cls.directory / "gpushared.sock"
        cls.programs = Programs()
        cls.addClassCleanup(cls.programs.end)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def open(self, address, path="/"):
        self.browser.open(f"http://{address}{path}")
        self.browser.console()

    def await_state(self, state):
        until(f"the page is {state}", lambda: self.browser.js("return document.getElementById('state').dataset.state") == state)

    def assert_fits(self):
        wide, shown = self.browser.js("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        self.assertLessEqual(wide, shown)

    def assert_quiet(self):
        self.assertEqual(self.browser.console(), [])


class TestPair(Case):
    """train and serve share a device while a page is open."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        run = {"env": {"GPUSHARED_SOCKET": str(cls.socket), "PATH": "/usr/bin:/bin"}, "cwd": ROOT}
        cls.programs.start(BIN / "gpushared", "--socket", cls.socket, "--device", "cpu:0", "--policy", "priority",
                           stderr=subprocess.DEVNULL)
        until("the server answers", lambda: subprocess.run([BIN / "gpusharedctl", "--socket", cls.socket, "status"],
                                                           capture_output=True, check=False).returncode == 0)
        model = cls.directory / "model"
        subprocess.run([BIN / "train", "--text", "LICENSE", "--model", model, "--batch", "64", "--steps", "20"], check=True,
                       capture_output=True, **run)
        cls.programs.start(BIN / "train", "--text", "LICENSE", "--batch", "64", "--steps", "0", "--seconds", "600", **run)
        cls.programs.start(BIN / "serve", "--model", model, "--batch", "16", "--requests", "0", "--seconds", "600",
                           "--load", "0.3", "--variation", "1", **run)
        cls.address = cls.programs.web(cls.socket)

    def setUp(self):
        self.browser.size(*SIZES[0])
        self.open(self.address)
        until("both clients are shown", lambda: self.browser.js("return document.querySelectorAll('tbody tr').length") == 2)
        until("serve has ended a request", lambda: self.cell("serve", "p99") != "–")

    def tearDown(self):
        self.assert_quiet()

    def ctl(self, *command):
        told = subprocess.run([BIN / "gpusharedctl", "--socket", self.socket, *command, "--json"], capture_output=True, check=True)
        return json.loads(told.stdout)

    def cell(self, name, key):
        """Returns the text of a figure in the client's row."""
        return self.browser.js("""const row = [...document.querySelectorAll('tbody tr')]
            .find((each) => each.querySelector('.name').textContent === arguments[0]);
            return row ? row.querySelector(`.${arguments[1]} .text`).textContent : '–'""", name, key)

    def figure(self, name):
        return self.browser.js("""const found = [...document.querySelectorAll('.figure')]
            .find((each) => each.querySelector('dt').textContent === arguments[0]);
            return found.querySelector('.value').textContent""", name)

    def updates(self):
        return int(self.browser.js("return document.documentElement.dataset.updates"))

    def test_figures_are_those_of_gpusharedctl(self):
        fields = {"p50": "request_p50_us", "p99": "request_p99_us", "met": "target_met_percent",
                  "target": "latency_target_us", "wait": "queue_wait_p99_us", "memory": "memory_bytes", "stops": "stops"}
        compared = 0
        for _ in range(5):
            before = {client["name"]: client for client in self.ctl("ps")["clients"]}
            gap_before = self.ctl("status")["devices"][0]["gap_used_percent"]
            updates = self.updates()
            # The next update may have been requested before those figures existed.
            until("there are two more updates", lambda: self.updates() >= updates + 2)
            shown = {name: {key: self.cell(name, key) for key in fields} for name in ("serve", "train")}
            gap = self.figure("Gap used")
            after = {client["name"]: client for client in self.ctl("ps")["clients"]}
            gap_after = self.ctl("status")["devices"][0]["gap_used_percent"]
            for name, cells in shown.items():
                for key, field in fields.items():
                    if field not in after[name]:
                        self.assertEqual(cells[key], "–", f"{name} {key}")
                        continue
                    told = sorted((before[name][field], after[name][field]))
                    self.assertGreaterEqual(value(cells[key]), told[0] * (1 - ROUNDING), f"{name} {key}")
                    self.assertLessEqual(value(cells[key]), told[1] * (1 + ROUNDING), f"{name} {key}")
                    compared += 1
            self.assertGreaterEqual(value(gap), min(gap_before, gap_after) - 0.1)
            self.assertLessEqual(value(gap), max(gap_before, gap_after) + 0.1)
        self.assertGreaterEqual(compared, 5 * 10)

    def test_a_hundred_updates_are_drawn(self):
        until(f"{UPDATES} updates", lambda: self.updates() >= UPDATES)
        self.assertEqual(self.browser.text("#state"), "live")
        painted = self.browser.js("""const canvas = document.querySelector('.timeline canvas');
            const style = getComputedStyle(document.querySelector('.timeline'));
            const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            const count = (name) => {
              const [r, g, b] = style.getPropertyValue(`--${name}`).trim().match(/[0-9a-f]{2}/g).map((each) => parseInt(each, 16));
              let found = 0;
              for (let i = 0; i < pixels.length; i += 4) found += pixels[i] === r && pixels[i + 1] === g && pixels[i + 2] === b;
              return found;
            };
            return [count('high'), count('low')]""")
        self.assertGreater(min(painted), 500, painted)

    def test_the_slowest_request_is_explained_with_one_click(self):
        self.browser.click("tr[data-class='high'] button")
        text = until("an explanation", lambda: self.browser.text(".verdict"))
        self.assertRegex(text, r"^Request \d+ took [0-9.]+ ms; target 25 ms: (met|missed)\.$")
        self.assertIn("on the device", self.browser.text(".parts"))
        kinds = self.browser.js("return [...document.querySelectorAll('.fall ol li')].map((each) => each.dataset.kind)")
        self.assertIn("own", kinds, "what serve ran itself")
        self.browser.screenshot(PICTURES / "explain.png", *SIZES[0])
        self.browser.keys("\ue00c")  # Escape.
        until("the dialog is closed", lambda: not self.browser.js("return document.getElementById('explain').open"))

    def test_keys(self):
        self.browser.keys("p")
        self.await_state("paused")
        stops = self.cell("train", "stops")
        time.sleep(1)
        self.assertEqual(self.cell("train", "stops"), stops)
        self.browser.keys("p")
        self.await_state("live")
        theme = self.browser.js("return document.documentElement.dataset.theme")
        self.browser.keys("t")
        self.assertNotEqual(self.browser.js("return document.documentElement.dataset.theme"), theme)
        # Everything can be reached, in document order.
        reached = []
        self.browser.js("document.activeElement.blur()")
        for _ in range(14):
            self.browser.keys("\ue004")  # Tab.
            reached.append(self.browser.js("return document.activeElement.innerText"))
        self.assertEqual(reached[:3], ["Pause", self.browser.text("#theme"), "Client"])
        self.assertIn("Explain", reached)

    def test_a_heading_sorts(self):
        names = "return [...document.querySelectorAll('tbody .name')].map((each) => each.textContent)"
        self.assertEqual(self.browser.js(names), ["serve", "train"])
        self.browser.click("thead .stops button")
        self.assertEqual(self.browser.js(names), ["train", "serve"])

    def test_screenshots_at_three_widths_in_two_themes(self):
        time.sleep(10)  # The timeline is full.
        for theme in THEMES:
            self.browser.js("document.documentElement.dataset.theme = arguments[0]", theme)
            for width, height in SIZES:
                file = PICTURES / f"page-{width}-{theme}.png"
                self.browser.screenshot(file, width, height)
                self.assert_fits()
                self.assertGreater(file.stat().st_size, 10_000)

    def test_idle_connections_do_not_keep_a_good_one_out(self):
        host, port = self.address.split(":")
        idle = []
        self.addCleanup(lambda: [each.close() for each in idle])
        for _ in range(CONNECTIONS):
            idle.append(socket.create_connection((host, int(port)), timeout=PATIENCE_S))
        status, body = get(self.address, "/api/ps")
        self.assertEqual((status, len(json.loads(body)["clients"])), (200, 2))
        updates = self.updates()
        until("updates go on", lambda: self.updates() > updates + 4)

        def dropped():
            gone = 0
            for each in idle:
                each.setblocking(False)
                try:
                    gone += each.recv(1) == b""
                except BlockingIOError:
                    pass
                except ConnectionResetError:
                    gone += 1
            return gone

        self.assertGreaterEqual(dropped(), CONNECTIONS - CONNECTIONS_MAX)

    def test_another_host_is_rejected(self):
        self.assertEqual(get(self.address, "/", Host="evil.example")[0], 421)
        self.assertEqual(get(self.address, "/events", Host="evil.example:80")[0], 421)

    def test_a_token_is_asked_for_once(self):
        file = self.directory / "token"
        file.write_text(TOKEN + "\n", encoding="utf-8")
        file.chmod(0o600)
        address = self.programs.web(self.socket, "--token-file", file)
        self.assertEqual(get(address, "/api/ps", Authorization="Bearer wrong")[0], 401)
        self.assertEqual(get(address, "/api/ps", Authorization=f"Bearer {TOKEN}")[0], 200)
        self.open(address)
        self.assertEqual(self.browser.url(), f"http://{address}/login")
        self.browser.screenshot(PICTURES / "login.png", *SIZES[2])
        self.log_in("wrong")
        self.assertEqual(self.browser.text(".problem"), "That is not the token.")
        self.assertTrue(any("401" in each for each in self.browser.console()))
        self.log_in(TOKEN)
        self.await_state("live")
        self.assertEqual(self.browser.js("return document.cookie"), "")
        until("both clients are shown", lambda: self.browser.js("return document.querySelectorAll('tbody tr').length") == 2)

    def log_in(self, token):
        self.browser.click("#token")
        self.browser.keys(token)
        self.browser.click("button")
        until("the answer is there", lambda: self.browser.js("return document.readyState") == "complete")


class TestHostileServer(Case):
    """A server whose clients have names that no real server accepts."""

    def server(self, clients, explanation=None, state="ready"):
        status = {"server": {"version": "1", "policy": "<i>fair</i>", "state": "serving", "uptime_s": 5, "sessions": 3},
                  "devices": [{"device": "cpu:0", "name": HOSTILE_NAMES[0], "state": state, "generation": 1, "last_death": "died",
                               "memory_bytes": 2**30, "mapped_bytes": 0, "device_time_s": 1.0}]}
        return FakeServer(self.socket, status, clients, explanation)

    def rows(self):
        return {"clients": [{"client": number, "name": name, "class": "low", "device": "cpu:0", "device_time_s": 0.5 * number,
                             "memory_bytes": 0, "stops": 0, "requests": 1} for number, name in enumerate(HOSTILE_NAMES, start=1)]}

    def explanation(self):
        """Returns the explanation of a request that waited for a preempted command, and for a non-preemptible one."""
        serve = {"client": 2, "name": "serve", "class": "high"}
        train = {"client": 3, "name": HOSTILE_NAMES[2], "class": "low"}
        gone = {"client": 4}
        return {**serve, "request": 812, "latency_us": 15000, "before_us": 1000, "latency_target_us": 12000, "target_met": False, "failed": False,
                "waited_us": 7000, "on_device_us": 6000, "host_us": 1000, "device_time_us": 5900, "commands": 979, "stops": 0,
                "longest_wait": {"us": 6500, "behind": {**train, "what": HOSTILE_NAMES[0], "on_device_us": 9000, "predicted_us": 8000,
                                                        "cut": "was stopped", "stop_latency_us": 6000}},
                "longest_command": {"what": "kernel 'attend'", "us": 4000}, "others": [{**train, "device_time_us": 6500}],
                "waterfall": [
                    {**train, "kind": "other", "what": HOSTILE_NAMES[0], "from_us": -2500, "to_us": 6500, "device_time_us": 9000,
                     "unfinished": True, "cut": "was stopped", "stop_asked_us": 500, "stop_latency_us": 6000},
                    {**serve, "kind": "wait", "from_us": 0, "to_us": 6500},
                    {**serve, "kind": "own", "what": "kernel 'attend'", "from_us": 6500, "to_us": 10500, "device_time_us": 4000,
                     "unfinished": False, "cut": "was not preempted: it is of the high class"},
                    {**gone, "kind": "other", "what": "kernel '" + HOSTILE_NAMES[1], "from_us": 10500, "to_us": 11000,
                     "device_time_us": 500, "unfinished": False,
                     "cut": "was not preempted: its predicted time was too short"},
                    {**serve, "kind": "own", "from_us": 12000, "to_us": 1e9, "device_time_us": 2000, "unfinished": False, "cut": ""}],
                "waterfall_rest": {"waits": 2, "waited_us": 500, "commands": 970, "on_device_us": 1900}}

    def test_a_waterfall_shows_who_had_the_device_and_why_a_command_was_stopped(self):
        fake = self.server(self.rows(), self.explanation())
        self.addCleanup(fake.close)
        self.browser.size(*SIZES[0])
        self.open(self.programs.web(self.socket))
        until("rows", lambda: self.browser.js("return document.querySelectorAll('tbody tr').length") == len(HOSTILE_NAMES))
        self.open_by_keyboard()
        rows = self.browser.js("""return [...document.querySelectorAll('.fall ol li')].map((row) => {
              const track = row.querySelector('.fall-track').getBoundingClientRect();
              const part = (what) => {
                const found = row.querySelector(what)?.getBoundingClientRect();
                return found && [Math.round(100 * (found.left - track.left) / track.width), Math.round(100 * (found.right - track.left) / track.width)];
              };
              return [row.querySelector('.fall-who').textContent, part('.fall-bar'), row.querySelector('.fall-time').textContent,
                row.querySelector('.fall-why')?.textContent ?? '', part('.stop-mark')?.[0] ?? null];
            })""")
        self.assertEqual(rows, [
            [f"{HOSTILE_NAMES[2]} {HOSTILE_NAMES[0]}", [0, 46], "9 ms", "It was stopped, which took 6 ms.", 4],
            ["waits", [0, 46], "6.50 ms", "", None],
            ["kernel 'attend'", [46, 75], "4 ms", "", None],
            [f"client 4 (left) kernel '{HOSTILE_NAMES[1]}", [75, 79], "500 µs",
             "It was not preempted: its predicted time was too short.", None],
            ["a command", [86, 100], "1000 s", "", None]])
        self.assertIn("And 970 shorter commands, 1.90 ms in all; 2 shorter waits, 500 µs in all.", self.browser.text(".fall"))
        self.assertEqual(self.browser.js("return document.querySelectorAll('dialog img, dialog script, dialog ol b').length"), 0)
        self.assertNotIn("hit", self.browser.js("return document.title"))
        for theme in THEMES:
            self.browser.js("document.documentElement.dataset.theme = arguments[0]", theme)
            for width, height in SIZES:
                self.browser.screenshot(PICTURES / f"waterfall-{width}-{theme}.png", width, height)
                self.assert_fits()
                wide, shown = self.browser.js("const box = document.getElementById('explain'); return [box.scrollWidth, box.clientWidth]")
                self.assertLessEqual(wide, shown, "nothing is cut off at the side")
                heights = self.browser.js("return [...document.querySelectorAll('.fall-who')].map((each) => each.offsetHeight)")
                self.assertLess(max(heights), 2 * min(heights), "a line each, however long the names")
        # Content that does not fit can be reached by keyboard as well.
        self.browser.size(390, 400)
        self.browser.keys("\ue00f")  # Page down.
        until("the dialog has scrolled", lambda: self.browser.js("return document.getElementById('explain').scrollTop") > 0)
        self.browser.keys("\ue00c")  # Escape.
        until("the dialog is closed", lambda: not self.browser.js("return document.getElementById('explain').open"))
        self.assert_quiet()

    def open_by_keyboard(self):
        """Presses Tab until a button that explains has the focus, then Enter."""
        self.browser.js("document.activeElement.blur()")
        for _ in range(30):
            self.browser.keys("\ue004")  # Tab.
            if self.browser.js("return document.activeElement.innerText") == "Explain":
                self.browser.keys("\ue007")  # Enter.
                break
        until("a waterfall", lambda: self.browser.text(".fall"))

    def test_a_drained_device_is_no_alarm(self):
        for state, words, looks in (("drained", "Drained by an operator: gpusharedctl resume cpu:0 admits clients again.", "hint"),
                                    ("restarting", "Its last worker: died", "trouble")):
            with self.subTest(state):
                fake = self.server(self.rows(), state=state)
                try:
                    self.open(self.programs.web(self.socket))
                    until(f"a device that is {state}", lambda wanted=state: self.browser.text(".pill") == wanted)
                    self.assertEqual(self.browser.text(f".device > .{looks}"), words)
                finally:
                    fake.close()

    def test_missed_targets_are_red_at_first_glance(self):
        bad = """const found = [...document.querySelectorAll('.figure')].find((each) => each.querySelector('dt').textContent === 'Targets met');
            return found && [found.querySelector('.value').textContent, found.classList.contains('bad')]"""
        for kept, shown in ((98, ["98.0 %", True]), (100, ["100 %", False])):
            with self.subTest(kept=kept):
                rows = self.rows()
                rows["clients"][0].update({"latency_target_us": 1000, "requests": 100, "requests_target_met": kept, "target_met_percent": kept})
                fake = self.server(rows)
                try:
                    self.open(self.programs.web(self.socket))
                    until(f"kept targets shown as {shown}", lambda wanted=shown: self.browser.js(bad) == wanted)
                finally:
                    fake.close()

    def test_a_lost_server_is_visible_everywhere(self):
        fake = self.server(self.rows())
        self.browser.size(*SIZES[0])
        self.open(self.programs.web(self.socket))
        looks = """const canvas = document.querySelector('.timeline canvas'), cards = getComputedStyle(document.querySelector('.cards'));
            return [document.querySelector('.pill').textContent, document.querySelector('.pill').dataset.state,
              document.querySelector('.now dt').textContent,
              canvas.getAttribute('aria-label'), cards.opacity, cards.filter]"""
        self.await_state("live")
        alive = ["ready", "ready", "Running now", "Who ran in the 10 s until now", "1", "none"]
        until("the device is ready", lambda: self.browser.js(looks) == alive)
        fake.close()
        self.await_state("lost")
        self.assertEqual(self.browser.js(looks), ["not known", "unknown", "Ran last", "Who ran in the 10 s until last news", "0.5", "grayscale(1)"])
        self.browser.screenshot(PICTURES / "no-server.png", *SIZES[0])
        again = self.server(self.rows())
        self.addCleanup(again.close)
        until("it looks alive again", lambda: self.browser.js(looks) == alive)
        self.assert_quiet()

    def test_a_starving_client_says_so_and_is_explained(self):
        rows = self.rows()
        starving = rows["clients"][1]
        del starving["requests"]
        starving.update({"name": "nightly", "commands": 7, "starved_for_s": 34.2, "queue_wait_p99_us": 872000})
        rows["clients"][2].update({"starved_for_s": 0.9, "queue_wait_p99_us": 872000})
        told = {"client": 2, "name": "nightly", "class": "low", "request": 1, "open": True, "latency_us": 34.2e6, "before_us": 0,
                "waited_us": 34.1e6, "on_device_us": 100000, "device_time_us": 30000, "host_steal_us": 50000, "host_us": 0,
                "commands": 3, "stops": 2, "others": [{"client": 1, "name": "serve", "class": "high", "device_time_us": 30e6}]}
        fake = self.server(rows, told)
        self.addCleanup(fake.close)
        for width, height in SIZES:
            self.browser.size(width, height)
            self.open(self.programs.web(self.socket))
            row = "tr[data-client='2'] "
            until("the client says so", lambda: self.browser.text("tr[data-client='2'] .starved") == "waiting for 34 s")
            self.assertEqual(self.browser.js("return document.querySelectorAll('.starved:not([hidden])').length"), 1)
            self.browser.js("document.documentElement.dataset.theme = 'light'")
            self.browser.screenshot(PICTURES / f"starving-{width}.png", width, height)
            self.assert_fits()
        self.assertEqual(self.browser.text(row + ".wait .text"), "34 s so far")
        self.assertEqual(self.browser.text("tr[data-client='3'] .wait .text"), "872 ms")
        self.browser.click(row + ".explain button")
        self.assertEqual(until("an explanation", lambda: self.browser.text(".verdict")), "Request 1 has not ended: so far it took 34.2 s.")
        self.assertIn("50 ms the machine ran other programs (host steal); 20 ms other clients ran at the same time",
                      self.browser.text(".answers"))
        self.assertIn("in the client’s own queue", self.browser.text(".parts"))
        self.assert_quiet()

    def test_host_steal_is_not_idle_time(self):
        begun = time.monotonic()
        fake = self.server(self.rows())
        self.addCleanup(fake.close)
        status = fake.answers[STATUS]

        def growing():
            passed = time.monotonic() - begun
            return {**status, "devices": [{**status["devices"][0], "host_steal_s": 0.24 * passed, "device_time_s": 0.6 * passed}]}

        fake.answers[STATUS] = growing
        self.browser.size(*SIZES[0])
        self.open(self.programs.web(self.socket))
        until("the machine's part is shown", lambda: re.search(r"host steal\s+2[2-6] %\s+idle\s+7[4-8] %", self.browser.text(".now-words") or ""))
        until("and of the last 10 s", lambda: re.fullmatch(r"host steal 2[2-6] %", self.browser.text(".figure:nth-child(2) .below") or ""))
        self.browser.screenshot(PICTURES / "host-steal.png", *SIZES[0])
        self.assert_quiet()

    def test_names_stay_text(self):
        fake = self.server(self.rows())
        self.addCleanup(fake.close)
        self.open(self.programs.web(self.socket))
        until("rows", lambda: self.browser.js("return document.querySelectorAll('tbody tr').length") == len(HOSTILE_NAMES))
        time.sleep(1)
        # A browser shows a NUL as U+FFFD only if it parses markup.
        self.assertEqual(self.browser.js("return [...document.querySelectorAll('tbody .name')].map((each) => each.textContent)"),
                         list(HOSTILE_NAMES))
        self.assertEqual(self.browser.js("return getComputedStyle([...document.querySelectorAll('tbody .name')].pop(), '::before').content"), '"no name"')
        self.assertEqual(self.browser.js("return document.querySelectorAll('main img, main b, main i, main script').length"), 0)
        self.assertNotIn("hit", self.browser.js("return document.title"))
        # A name's effect on text direction ends with it, so that the text after a name stays in place.
        self.assertEqual(self.browser.js("""return [...document.querySelectorAll('tbody th')].filter((each) => {
              const name = document.createRange(), id = each.querySelector('.id').getBoundingClientRect();
              name.selectNodeContents(each.querySelector('.name'));
              return [...name.getClientRects()].some((part) => part.left > id.left);
            }).length"""), 0)
        for width, height in SIZES:
            self.browser.screenshot(PICTURES / f"hostile-{width}.png", width, height)
            self.assert_fits()
        self.assertIn("Drawn from device time between updates: this server is not real.", self.browser.text(".remarks"))
        self.assert_quiet()

    def test_invalid_utf_8_is_no_answer_and_the_page_goes_on_after_it(self):
        bad = self.server(b'{"clients":[{"client":1,"name":"a\xff\xfeb","device":"cpu:0"}]}')
        self.open(self.programs.web(self.socket))
        until("a notice", lambda: self.browser.text("#notice") == "the server does not answer: the server's answer is no JSON object")
        self.await_state("lost")
        bad.close()
        until("the server has gone", lambda: "No such file" in (self.browser.text("#notice") or ""))
        fake = self.server(self.rows())
        self.addCleanup(fake.close)
        self.await_state("live")
        self.assertTrue(self.browser.js("return document.getElementById('notice').hidden"))
        self.assert_quiet()


def get(address, path, **headers):
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read() if answer.getheader("Content-Length") else b""
    finally:
        connection.close()


if __name__ == "__main__":
    PICTURES.mkdir(parents=True, exist_ok=True)
    unittest.main(verbosity=2)
