# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, controlled by its driver over WebDriver, with only Python's standard library."""
import base64
import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request

ANSWER_TIME_S = 60
# Chromium's sandbox needs rights that root in a container lacks, and Chromium does not run as root with it.
ARGUMENTS = ["--headless=new", "--disable-gpu", "--hide-scrollbars"] + (["--no-sandbox"] if os.getuid() == 0 else [])


class Browser:
    """Owns the driver's process and one session."""

    def __init__(self):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                       text=True)
        port = None
        while port is None:
            line = self.driver.stdout.readline()
            if not line:
                raise RuntimeError("chromedriver ended before it listened")
            port = re.search(r"successfully on port (\d+)", line)
        self.address = f"http://127.0.0.1:{port.group(1)}"
        self.session = None
        try:
            made = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
                "goog:chromeOptions": {"args": ARGUMENTS}, "goog:loggingPrefs": {"browser": "ALL"}}}})
            self.session = f"/session/{made['sessionId']}"
        except BaseException:
            self.close()
            raise

    def close(self):
        if self.session:
            self.call("DELETE", self.session)
        self.driver.terminate()
        self.driver.wait(timeout=20)

    def call(self, method, path, body=None):
        request = urllib.request.Request(self.address + path, method=method,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_TIME_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.read().decode()[:500]}") from error

    def command(self, path, body):
        return self.call("POST", self.session + path, body)

    def open(self, url):
        self.command("/url", {"url": url})

    def url(self):
        return self.call("GET", self.session + "/url")

    def js(self, script, *arguments):
        return self.command("/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector):
        """Returns the element's visible text; None if there is no such element."""
        return self.js("const found = document.querySelector(arguments[0]); return found && found.innerText.trim()", selector)

    def click(self, selector):
        found = self.command("/element", {"using": "css selector", "value": selector})
        self.command(f"/element/{next(iter(found.values()))}/click", {})

    def keys(self, text):
        """Types into the focused element."""
        actions = [{"type": kind, "value": each} for each in text for kind in ("keyDown", "keyUp")]
        self.command("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def console(self):
        """Returns the console's messages since the last call."""
        return [entry["message"] for entry in self.command("/se/log", {"type": "browser"})]

    def size(self, width, height):
        """Sets the size of the screen. A screen narrower than 600 pixels is that of a telephone."""
        self.command("/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": width, "height": height, "deviceScaleFactor": 2 if width < 600 else 1, "mobile": width < 600}})

    def screenshot(self, file, width, height):
        """Takes a picture of the whole page, however long."""
        self.size(width, height)
        time.sleep(1)  # For the new layout to be drawn.
        length = max(height, self.js("return document.documentElement.scrollHeight"))
        taken = self.command("/goog/cdp/execute", {"cmd": "Page.captureScreenshot", "params": {
            "captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": width, "height": length, "scale": 1}}})
        file.write_bytes(base64.b64decode(taken["data"]))
