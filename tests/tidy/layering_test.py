# SPDX-License-Identifier: Apache-2.0
"""Fails when a folder includes what it must not depend on, or when its own check is broken."""
import pathlib
import re
import sys
import tempfile

# Our folders that each folder may include, longest match first. "gpushared" are the public headers.
ALLOWED = {
    "ipc": {"ipc", "gpushared"},
    "scheduler": {"scheduler"},
    "client_lib": {"client_lib", "ipc", "gpushared"},
    "server/compile": {"server/compile", "ipc", "gpushared"},
    "server/ptx": {"server/ptx", "gpushared"},
    "server/device": {"server/device", "server/ptx", "gpushared"},
    "server/worker": {"server/worker", "server/device", "ipc", "scheduler", "gpushared"},
    "server/broker": {"server/broker", "server/config", "server/device", "ipc", "scheduler", "gpushared"},
    "server/ctl": {"server/ctl", "server/device", "server/ptx", "ipc", "gpushared"},
    "server": {"server", "ipc", "scheduler", "gpushared"},
    "samples": {"samples", "gpushared"},
}
# Libraries that a folder must not see at all.
BANNED = {
    "ipc": ("spdlog", "cuda", "nlohmann", "CLI"),
    "scheduler": ("spdlog", "boost", "thread", "mutex", "condition_variable", "fstream", "random",
                  "iostream", "filesystem", "unistd.h", "ctime"),
    "client_lib": ("spdlog", "nlohmann", "CLI"),
    "client_lib/include": ("boost", "spdlog"),
    "samples": ("boost", "spdlog", "nlohmann"),
    "server/ptx": ("boost", "spdlog"),
}
QUOTED = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
ANGLED = re.compile(r'^\s*#\s*include\s+<([^>]+)>', re.M)


def folder_of(include: str) -> str:
    parts = include.split("/")
    return "/".join(parts[:2]) if parts[0] == "server" and len(parts) > 2 else parts[0]


def violations(root: pathlib.Path, top: str):
    for path in sorted((root / top).rglob("*")):
        if path.suffix not in {".h", ".cpp", ".c", ".cu"}:
            continue
        name = str(path.relative_to(root))
        text = path.read_text(encoding="utf-8")
        rule = max((f for f in ALLOWED if name.startswith(f + "/")), key=len, default=None)
        if rule:
            for include in QUOTED.findall(text):
                if "/" not in include:
                    yield f'{name}: include "{include}" from the root of the tree'
                    continue
                folder = folder_of(include)
                if include.startswith("server/config"):
                    folder = "server/config"
                if not ({folder, folder.split("/")[0]} & ALLOWED[rule]):
                    yield f"{name}: {rule}/ must not include {include}"
        for banned_in, libraries in BANNED.items():
            if name.startswith(banned_in + "/"):
                for include in ANGLED.findall(text):
                    if include.split("/")[0] in libraries:
                        yield f"{name}: {banned_in}/ must not include <{include}>"


def checks_itself(scratch: pathlib.Path) -> bool:
    """A layering test that cannot fail is worth nothing: give it one offender of each kind."""
    (scratch / "ipc").mkdir(parents=True, exist_ok=True)
    offender = scratch / "ipc" / "offender.h"
    offender.write_text('#include "scheduler/policy.h"\n#include <spdlog/spdlog.h>\n', encoding="utf-8")
    return len(list(violations(scratch, "ipc"))) == 2


def main(root: pathlib.Path) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        if not checks_itself(pathlib.Path(scratch)):
            print("the layering test did not notice a planted offender")
            return 1
    found = [v for top in sorted({f.split("/")[0] for f in ALLOWED}) for v in violations(root, top)]
    print("\n".join(found))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
