# SPDX-License-Identifier: Apache-2.0
"""Fails if the product has a mutex that clang cannot check, or one without a named guarded member.

Usage: mutex_test.py SOURCE_DIR. Needs no clang.
"""
import pathlib
import re
import sys
import tempfile

DIRECTORIES = ("ipc", "server", "client_lib", "samples")
WRAPPERS = "ipc/include/gpushared/mutex.h"
# Clang's analysis does not follow the mutexes and locks of the standard library.
UNCHECKED = re.compile(r"\bstd::(\w*mutex|lock_guard|unique_lock|scoped_lock|shared_lock)\b|\bpthread_(mutex|rwlock)_t\b")
MEMBER = re.compile(r"^ +(?:mutable )?(?:gpushared::)?(?:Shared)?Mutex (\w+);(.*)$", re.M)
NAMES = r"GPUSHARED_(?:GUARDED_BY|REQUIRES)\([^()]*\b{}\b"
# These only serialise calls; the comment next to each says so, and no member belongs to them.
GUARDS_NO_MEMBER = re.compile(r"//.*\b([Hh]eld|[Oo]ne \w+ at a time|[Oo]rder)\b")
CODE = re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"')

# One offender for every rule, by the file that contains it, and code that the rules permit.
OFFENDERS = {
    "ipc/a.h": "class A {\n  std::mutex mutex_;\n};\n",
    "server/b.cpp": "void B() { const std::lock_guard lock(mutex); }\n",
    "client_lib/drop_in/c.h": "  mutable std::shared_mutex mutex_;  // Guards the next two.\n",
    "samples/d.cpp": "pthread_mutex_t lock;\n",
    "server/e.h": "  Mutex mutex_;\n  int count_ = 0;  // Guarded by mutex_.\n",
    "client_lib/f.h": "  mutable SharedMutex names_mutex_;\n  int names GPUSHARED_GUARDED_BY(mutex_);\n",
}
INNOCENTS = {
    "ipc/ok.h": "// A std::mutex would not do.\n  Mutex mutex_;\n  int count_ GPUSHARED_GUARDED_BY(mutex_) = 0;\n",
    "server/ok.h": "  Mutex changing_;  // One change at a time.\n",
    "client_lib/ok.h": "  mutable SharedMutex mutex_;\n  int Count() const GPUSHARED_REQUIRES(mutex_);\n",
}


def findings(root: pathlib.Path):
    for directory in DIRECTORIES:
        for path in sorted((root / directory).rglob("*")):
            name = str(path.relative_to(root))
            if path.suffix not in {".h", ".cpp"} or name == WRAPPERS:
                continue
            text = path.read_text()
            code = CODE.sub("", text)
            for found in UNCHECKED.finditer(code):
                yield name, f"uses {found[0]}; take Mutex, SharedMutex and their locks of gpushared/mutex.h"
            for found in MEMBER.finditer(text):
                if not re.search(NAMES.format(found[1]), code) and not GUARDS_NO_MEMBER.search(found[2]):
                    yield name, f"has {found[1]}, which no GPUSHARED_GUARDED_BY or GPUSHARED_REQUIRES names"


def check_rules() -> int:
    wrong = 0
    for files, is_wanted in ((OFFENDERS, True), (INNOCENTS, False)):
        for name, text in files.items():
            with tempfile.TemporaryDirectory() as directory:
                path = pathlib.Path(directory, name)
                path.parent.mkdir(parents=True)
                path.write_text(text)
                found = list(findings(pathlib.Path(directory)))
            if bool(found) != is_wanted:
                wrong += 1
                print(f"the check is broken: {name} gives {found or 'nothing'}")
    return wrong


def main(root: pathlib.Path) -> int:
    wrong = check_rules()
    for name, what in findings(root):
        wrong += 1
        print(f"{name} {what}")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
