# SPDX-License-Identifier: Apache-2.0
"""Fails if a directory includes one that it must not depend on, if files include each other in a cycle, or if this
check itself is broken."""
import collections
import graphlib
import pathlib
import re
import sys
import tempfile

# The device thread's directories; each may include those before it.
DEVICE_THREAD = ("state", "output", "dispatch", "intake", "loop")
# Our directories that each directory may include, longest match first. "gpushared" means the public headers.
ALLOWED = {
    "common": {"gpushared"},
    "common/command_line": {"common/command_line"},
    "common/cuda_driver": {"common/cuda_driver"},
    "common/ptx/text": {"common/ptx/text", "gpushared"},
    "common/ptx/link": {"common/ptx", "gpushared"},
    "ipc": {"ipc", "gpushared"},
    "scheduler": {"scheduler", "gpushared/limits", "gpushared/scheduling_class"},
    "scheduler/sim": {"common/command_line", "scheduler", "gpushared"},
    "client_lib": {"client_lib", "ipc", "gpushared"},
    # The drop-in links PTX in the program's own process, and accepts or rejects a text's version like a driver.
    "client_lib/drop_in": {"client_lib", "ipc", "common/cuda_driver", "common/ptx", "gpushared"},
    "server": {"server", "common/command_line", "ipc", "scheduler", "gpushared"},
    "server/platform": {"server/platform", "server/config", "ipc", "gpushared"},
    "server/config": {"server/config", "server/platform/usable_memory", "server/worker/control/worker_settings", "server/device/isolation", "common/command_line", "ipc", "scheduler", "gpushared"},
    "server/ptx": {"server/ptx", "common/ptx", "gpushared"},
    "server/ptx/analysis": {"server/ptx/analysis", "common/ptx", "gpushared"},
    "server/modules/compile": {"server/modules/compile", "ipc", "gpushared"},
    "server/modules": {"server/modules", "server/config", "server/device", "ipc", "gpushared"},
    "server/device": {"server/device", "server/ptx", "server/platform/usable_memory", "common/cuda_driver", "common/ptx", "gpushared"},
    "server/device/inventory": {"server/device/inventory", "server/device/cuda/driver", "gpushared"},
    "server/telemetry": {"server/telemetry", "server/device/inventory/gpu_readings", "common/command_line", "ipc", "scheduler", "gpushared"},
    "server/telemetry/totals": {"server/telemetry/totals", "server/device/inventory/gpu_readings", "ipc", "scheduler", "gpushared"},
    "server/telemetry/trace": {"server/telemetry/trace", "ipc", "scheduler", "gpushared"},
    # The device thread's directories, from the bottom to the top.
    **{f"server/worker/{room}": {*(f"server/worker/{below}" for below in DEVICE_THREAD[:place + 1]), "server/telemetry/totals",
                                 "server/telemetry/trace", "server/platform/numa", "server/platform/thread_priority", "server/device",
                                 "ipc", "scheduler", "gpushared"}
       for place, room in enumerate(DEVICE_THREAD)},
    "server/worker/control": {"server/worker", "server/telemetry/totals", "server/telemetry/trace", "server/modules/loader",
                              "server/platform/log_rate", "server/device", "ipc", "scheduler", "gpushared"},
    "server/broker": {"server/broker", "server/telemetry/totals", "server/config", "server/platform", "server/device", "ipc", "scheduler",
                      "gpushared"},
    "server/tools/run": {"server/tools/run", "common/command_line", "ipc", "gpushared"},
    "server/tools/mig": {"server/tools/mig", "server/device/inventory", "ipc", "gpushared"},
    "server/tools/mps": {"server/tools/mps", "server/tools/ctl", "server/telemetry/admin", "ipc", "gpushared"},
    "server/tools/web": {"server/tools/web", "server/telemetry", "common/command_line", "scheduler", "ipc", "gpushared"},
    "server/tools/ctl": {"server/tools/ctl", "server/tools/mig", "server/tools/run", "server/telemetry", "server/modules/compile",
                         "server/device", "server/ptx", "common/command_line", "common/ptx", "scheduler", "scheduler/sim", "ipc", "gpushared"},
    "server/tools/cluster/kubernetes": {"server/tools/cluster/kubernetes", "server/telemetry/admin", "common/command_line", "ipc", "gpushared"},
    "server/tools/cluster/slurm": {"server/tools/cluster/slurm", "server/telemetry/admin", "server/telemetry/trace", "server/config/config_values",
                                   "scheduler", "ipc", "gpushared"},
    "samples": {"samples", "gpushared"},
}
# Programs inside a directory: its bans do not apply to them, and only directories that name them may include their
# files.
PROGRAMS = {"scheduler/sim"}
# Libraries that a directory must not include.
BANNED = {
    "ipc": ("spdlog", "cuda", "nlohmann"),
    "scheduler": ("spdlog", "boost", "thread", "mutex", "condition_variable", "fstream", "random",
                  "iostream", "filesystem", "unistd.h", "ctime"),
    "client_lib": ("spdlog", "nlohmann"),
    "client_lib/include": ("boost", "spdlog"),
    "samples": ("boost", "spdlog", "nlohmann"),
    "common": ("boost", "spdlog", "nlohmann"),
    "server/ptx": ("boost", "spdlog"),
    # The control thread logs on their behalf.
    **{f"server/worker/{room}": ("boost", "spdlog", "nlohmann") for room in DEVICE_THREAD},
}
# Libraries that one directory wraps for all others, because CLI11 takes 3 s and 1.9 MB in each file.
SOLE = {"CLI": "common"}
# Names that no file of a directory may use: the scheduler is passed the time, so that a test can set it.
UNSPOKEN = {
    "scheduler": ("steady_clock", "system_clock", "high_resolution_clock", "utc_clock", "clock_gettime", "gettimeofday",
                  "timespec_get", "__rdtsc"),
}
# Headers that contain private parts of another header in a separate file.
PRIVATE_PARTS = {
    "server/broker/broker_parts": "server/broker/broker",
    "server/device/cuda/cuda_device_impl": "server/device/cuda/cuda_device",
    "server/worker/control/session_calls": "server/worker/control/session",
    "server/worker/control/worker_impl": "server/worker/control/worker",
}
# Two files that include each other only through their sources.
CIRCLE = {
    "server/tools/web/one.h": "", "server/tools/web/one.cpp": '#include "server/tools/web/one.h"\n#include "server/tools/web/two.h"',
    "server/tools/web/two.h": "", "server/tools/web/two_more.cpp": '#include "server/tools/web/two.h"\n#include "server/tools/web/one.h"',
}
# One offender for every rule, by the file that contains it. A rule without an offender here fails.
OFFENDERS = {
    "common/a.cpp": '#include "ipc/unix_socket.h"',
    "common/b.cpp": "#include <spdlog/spdlog.h>",
    "common/command_line/a.cpp": '#include "server/config/config.h"',
    "common/cuda_driver/a.h": '#include "server/device/cuda/driver.h"',
    "common/ptx/text/a.cpp": '#include "common/ptx/link/linker.h"',
    "common/ptx/link/a.cpp": '#include "server/ptx/analysis/control_flow.h"',
    "ipc/a.h": '#include "scheduler/policy.h"',
    "ipc/b.cpp": "#include <spdlog/spdlog.h>",
    "ipc/c.cpp": '#include "unix_socket.h"',
    "ipc/d.cpp": "#include <ipc/unix_socket.h>",
    "scheduler/a.cpp": '#include "ipc/tag_ring.h"',
    "scheduler/b.cpp": '#include "gpushared/check.h"',
    "scheduler/c.h": "#include <mutex>",
    "scheduler/d.cpp": "  const auto now = std::chrono::steady_clock::now();",
    "scheduler/e.cpp": "  clock_gettime(CLOCK_MONOTONIC, &now);",
    "scheduler/f.h": "using Clock = std::chrono::system_clock;",
    "scheduler/g.cpp": '#include "scheduler/sim/job.h"',
    "scheduler/sim/a.cpp": '#include "server/device/device.h"',
    "scheduler/sim/b.cpp": "#include <CLI/App.hpp>",
    "client_lib/a.cpp": '#include "server/device/device.h"',
    "client_lib/b.cpp": "#include <nlohmann/json.hpp>",
    "client_lib/drop_in/a.cpp": '#include "server/device/cuda/driver.h"',
    "client_lib/include/gpushared/a.h": "#include <boost/asio.hpp>",
    "client_lib/include/gpushared/b.h": "#include <gpushared/status.h>",
    "server/a.cpp": '#include "client_lib/client_impl.h"',
    "server/b.cpp": "#include <CLI/CLI.hpp>",
    "server/platform/a.cpp": '#include "server/broker/broker.h"',
    "server/config/a.cpp": '#include "server/device/device.h"',
    "server/ptx/a.cpp": '#include "server/device/device.h"',
    "server/ptx/b.cpp": "#  include <spdlog/spdlog.h>",
    "server/ptx/analysis/a.cpp": '#include "server/ptx/passes/fence.h"',
    "server/modules/a.cpp": '#include "server/worker/control/session.h"',
    "server/modules/compile/a.cpp": '#include "server/modules/loader/child.h"',
    "server/device/a.cpp": '#include "ipc/doorbell.h"',
    "server/device/cpu/executor/a.cpp": '#include "server/worker/control/session.h"',
    "server/device/inventory/a.cpp": '#include "server/device/device.h"',
    "server/telemetry/a.cpp": '#include "server/broker/broker.h"',
    "server/telemetry/totals/a.cpp": '#include "server/telemetry/admin/ask.h"',
    "server/telemetry/trace/a.cpp": '#include "server/telemetry/totals/figures.h"',
    **{f"server/worker/{room}/a.cpp": f'#include "server/worker/{above}/a.h"'
       for room, above in zip(DEVICE_THREAD, (*DEVICE_THREAD[1:], "control"))},
    **{f"server/worker/{room}/b.h": "#include <spdlog/spdlog.h>" for room in DEVICE_THREAD},
    "server/worker/control/a.cpp": '#include "common/ptx/text/module.h"',
    "server/worker/control/b.cpp": '#include "server/config/config.h"',
    "server/broker/a.cpp": '#include "server/worker/control/session.h"',
    "server/tools/run/a.cpp": '#include "server/broker/broker.h"',
    "server/tools/mig/a.cpp": '#include "server/telemetry/admin/ask.h"',
    "server/tools/mps/a.cpp": '#include "server/broker/broker.h"',
    "server/tools/web/a.cpp": '#include "server/broker/broker.h"',
    "server/tools/ctl/a.cpp": '#include "server/broker/broker.h"',
    "server/tools/cluster/slurm/a.cpp": '#include "server/broker/broker.h"',
    "server/tools/cluster/kubernetes/a.cpp": '#include "server/tools/cluster/slurm/job_rules.h"',
    "samples/a.cpp": '#include "ipc/unix_socket.h"',
    "samples/b.cu": "#include <boost/asio.hpp>",
    "samples/c.cpp": "#include <CLI/CLI.hpp>",
}
# Includes that the rules must permit.
INNOCENTS = {
    "common/command_line/ok.cpp": "#include <CLI/CLI.hpp>",
    "ipc/ok.h": '#include <sys/mman.h>\n#include "gpushared/status.h"\n#include "ipc/unique_fd.h"',
    "scheduler/sim/ok.cpp": '#include <random>\n#include "scheduler/policy.h"',
    "client_lib/drop_in/ok.cpp": '#include "common/ptx/link/linker.h"\n#include "common/ptx/text/fatbin.h"',
    "server/ptx/passes/ok.cpp": '#include "common/ptx/text/module.h"',
    "scheduler/ok.h": "#include <chrono>\nusing TimePoint = std::chrono::nanoseconds;",
    "server/broker/ok.cpp": '#include <spdlog/spdlog.h>\n#include "server/config/config_file.h"\n#include "ipc/doorbell.h"',
}
QUOTED = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
ANGLED = re.compile(r'^\s*#\s*include\s+<([^>]+)>', re.M)
TOPS = sorted({directory.split("/")[0] for directory in ALLOWED})
OURS = {*TOPS, "gpushared", "tests"}


def may_include(rule: str, include: str) -> bool:
    if any(include.startswith(program + "/") and rule != program and program not in ALLOWED[rule] for program in PROGRAMS):
        return False
    return any(re.match(rf"{re.escape(directory)}[/._]", include) for directory in ALLOWED[rule])


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
                if not may_include(rule, include):
                    yield f"{name}: {rule}/ must not include {include}"
        for include in ANGLED.findall(text):
            if include.split("/")[0] in OURS:
                yield f"{name}: <{include}> is ours, and ours stand in quotes"
            owner = SOLE.get(include.split("/")[0], top)
            if owner != top:
                yield f"{name}: <{include}> is for {owner}/ alone, which has a front for it"
        for banned_in, libraries in BANNED.items():
            if name.startswith(banned_in + "/") and rule not in PROGRAMS:
                for include in ANGLED.findall(text):
                    if include.split("/")[0] in libraries:
                        yield f"{name}: {banned_in}/ must not include <{include}>"
        for unspoken_in, names in UNSPOKEN.items():
            if name.startswith(unspoken_in + "/") and rule not in PROGRAMS:
                for used in names:
                    if re.search(rf"\b{used}\b", text):
                        yield f"{name}: {unspoken_in}/ must not use {used}"


def unit_of(name: str, text: str, headers: set) -> str:
    """Returns the header that a file belongs to: the header of the same name, or else, for a further source of a class,
    the header that the file includes first."""
    unit = name.rsplit(".", 1)[0]
    first = next(iter(QUOTED.findall(text)), "").rsplit(".", 1)[0]
    if not name.endswith(".h") and unit not in headers and unit.startswith(first) and first in headers:
        unit = first
    return PRIVATE_PARTS.get(unit, unit)


def circles(root: pathlib.Path):
    """Reports files, each a header with its sources, that cannot be understood or tested without each other."""
    texts = {str(path.relative_to(root)): path.read_text(encoding="utf-8")
             for top in TOPS for path in sorted((root / top).rglob("*")) if path.suffix in {".h", ".cpp", ".c", ".cu"}}
    headers = {name.rsplit(".", 1)[0] for name in texts if name.endswith(".h")}
    needs = collections.defaultdict(set)
    for name, text in texts.items():
        unit = unit_of(name, text, headers)
        included = {include.rsplit(".", 1)[0] for include in QUOTED.findall(text)} & headers
        needs[unit] |= {PRIVATE_PARTS.get(other, other) for other in included} - {unit}
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        yield "a circle: " + " needs ".join(reversed(error.args[1]))


def checks_itself(scratch: pathlib.Path):
    """Reports offenders that the check does not notice, because a layering test that cannot fail is worthless."""
    for rules, what in ((ALLOWED, '#include "'), (BANNED, "<"), (UNSPOKEN, "")):
        for directory in rules:
            if not any(str(pathlib.PurePath(name).parent).startswith(directory) and what in text
                       for name, text in OFFENDERS.items()):
                yield f"no offender is planted for the rule of {directory}/"
    for library in SOLE:
        if not any(f"<{library}/" in text for text in OFFENDERS.values()):
            yield f"no offender is planted for {library}"
    for name, text in {**OFFENDERS, **INNOCENTS}.items():
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).write_text(text + "\n", encoding="utf-8")
    found = [v for top in TOPS for v in violations(scratch, top)]
    for name in OFFENDERS:
        complaints = [v for v in found if v.startswith(name + ":")]
        if len(complaints) != 1:
            yield f"of the offender {name} the test says {complaints}, expected is one sentence"
    for name in INNOCENTS:
        yield from (v for v in found if v.startswith(name + ":"))
    if list(circles(scratch)):
        yield "a circle is found where none is planted"
    for name, text in CIRCLE.items():
        (scratch / name).write_text(text + "\n", encoding="utf-8")
    if not list(circles(scratch)):
        yield "the planted circle is not found"


def main(root: pathlib.Path) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        found = list(checks_itself(pathlib.Path(scratch)))
    found += [v for top in TOPS for v in violations(root, top)]
    found += circles(root)
    print("\n".join(found))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
