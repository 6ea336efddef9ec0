# SPDX-License-Identifier: MIT
"""A page in headless Chromium, driven over the DevTools protocol (through a pipe, no port)."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13, "Escape": 27}


class Page:
    def __init__(self, path, width=1280, height=800, dark=False):
        self.home = tempfile.mkdtemp(prefix="pipe-browser-")
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def pipes():  # 3 and 4 are what --remote-debugging-pipe reads and writes
            a, b = os.dup2(to_browser, 20), os.dup2(from_browser, 21)
            os.dup2(a, 3), os.dup2(b, 4)

        command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                   "--disable-dev-shm-usage", "--no-first-run", f"--user-data-dir={self.home}", "about:blank"]
        self.process = subprocess.Popen(command, preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env={**os.environ, "HOME": self.home})
        os.close(to_browser), os.close(from_browser)
        self.buffer, self.count, self.events, self.session = b"", 0, [], None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Network", "Log":
            self.call(domain + ".enable")
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.size(width, height)
        begin = time.monotonic()
        self.call("Page.navigate", url="file://" + os.path.realpath(path))
        while self.js("document.readyState") != "complete":
            time.sleep(0.02)
        self.loaded = time.monotonic() - begin

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 600
        while True:
            while b"\0" not in self.buffer:
                if not select.select([self.read_end], [], [], max(0, end - time.monotonic()))[0]:
                    raise TimeoutError(method)
                got = os.read(self.read_end, 1 << 20)
                if not got:
                    raise EOFError("the browser has ended")
                self.buffer += got
            text, self.buffer = self.buffer.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def js(self, text):
        """Value of an expression in the page; a promise is awaited."""
        got = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise RuntimeError(f"{text}: {got['exceptionDetails']['exception'].get('description')}")
        return got["result"].get("value")

    def rest(self):
        """Two frames, and what waits for the view to rest."""
        self.js("new Promise(done => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 150))")

    def size(self, width, height, ratio=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=ratio, mobile=False)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        for kind in "mousePressed", "mouseReleased":
            self.mouse(kind, x, y, button="left", buttons=1, clickCount=1)

    def key(self, key):
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = KEYS.get(key, ord(key[0].upper()))
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def screenshot(self, path):
        self.rest()
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self):
        """What the console and the network say: errors of the script, requests that are not the page itself."""
        said = []
        for e in self.events:
            p = e.get("params", {})
            if e.get("method") == "Runtime.exceptionThrown":
                said.append(p["exceptionDetails"].get("exception", {}).get("description", "exception"))
            elif e.get("method") == "Log.entryAdded" and p["entry"]["level"] == "error":
                said.append(p["entry"]["text"])
            elif e.get("method") == "Network.requestWillBeSent" and p.get("type") != "Document":
                said.append("request: " + p["request"]["url"][:200])
        return said
