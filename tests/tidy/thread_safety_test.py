# SPDX-License-Identifier: Apache-2.0
"""Checks that clang rejects wrong uses of the mutexes of gpushared/mutex.h, and accepts correct ones.

Usage: thread_safety_test.py SOURCE_DIR. Exit code 77 (skipped): there is no clang.
"""
import pathlib
import re
import shutil
import subprocess
import sys

# Member functions of Guarded, with clang's message about them; None: no message.
NEEDS = "requires holding mutex"
CASES = {
    "void Add() { const MutexLock lock(mutex_); ++count_; }": None,
    "void Add() { ++count_; }": NEEDS,
    "void Call() { const MutexLock lock(mutex_); Count(); }": None,
    "void Call() { Count(); }": NEEDS,
    "void Call() { Take(); }": None,
    "void Call() { const MutexLock lock(mutex_); Take(); }": "while mutex 'mutex_' is held",
    "void Twice() { const MutexLock one(mutex_), two(mutex_); }": "already held",
    "void Again() { MutexLock lock(mutex_); lock.Unlock(); Take(); lock.Lock(); ++count_; }": None,
    "void Gone() { MutexLock lock(mutex_); lock.Unlock(); ++count_; }": NEEDS,
    "void Pause() GPUSHARED_REQUIRES(mutex_) { { const MutexUnlock unlock(mutex_); Take(); } ++count_; }": None,
    "void Pause() GPUSHARED_REQUIRES(mutex_) { const MutexUnlock unlock(mutex_); ++count_; }": NEEDS,
    "void Await() { MutexLock lock(mutex_); changed_.wait(lock.waitable(),"
    " [this]() GPUSHARED_REQUIRES(mutex_) { return count_ > 0; }); --count_; }": None,
    "void Await() { MutexLock lock(mutex_); changed_.wait(lock.waitable(), [this] { return count_ > 0; }); }": NEEDS,
    "void Try() { if (!mutex_.TryLock()) return; const MutexLock lock(mutex_, std::adopt_lock); ++count_; }": None,
    "void Try() { if (mutex_.TryLock()) ++count_; }": "not held on every path",
    "void Adopt() { const MutexLock lock(mutex_, std::adopt_lock); }": NEEDS,
    "int Read() const { const ReaderLock lock(shared_); return number_; }": None,
    "int Read() const { return number_; }": NEEDS,
    "void Write() { const WriterLock lock(shared_); ++number_; }": None,
    "void Write() { const ReaderLock lock(shared_); ++number_; }": "exclusively",
}
# Each case is a separate class, in a file that has the case's number.
BEGIN = '#include <condition_variable>\n#include "gpushared/mutex.h"\nusing namespace gpushared;\n'
CLASS = """#line 1 "{number}"
class Guarded{number} {{
 public:
  {case}
  void Count() GPUSHARED_REQUIRES(mutex_) {{ ++count_; }}
  void Take() GPUSHARED_EXCLUDES(mutex_) {{ const MutexLock lock(mutex_); ++count_; }}
  Mutex mutex_;
  std::condition_variable changed_;
  int count_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  mutable SharedMutex shared_;
  int number_ GPUSHARED_GUARDED_BY(shared_) = 0;
}};
"""


def main(root: pathlib.Path) -> int:
    if shutil.which("clang++") is None:
        print("skipped: there is no clang++; `packaging/setup_debian.sh lint` installs it")
        return 77
    code = BEGIN + "".join(CLASS.format(number=number, case=case) for number, case in enumerate(CASES))
    said = subprocess.run(["clang++", "-std=c++20", "-Wthread-safety", f"-I{root}/ipc/include", "-fsyntax-only", "-x", "c++", "-"],
                          input=code, capture_output=True, text=True, check=True).stderr
    wrong = 0
    for number, (case, expected) in enumerate(CASES.items()):
        warnings = re.findall(rf"^{number}:\d+:\d+: warning: (.*)$", said, re.M)
        if (expected is None and not warnings) or (expected is not None and any(expected in each for each in warnings)):
            continue
        wrong += 1
        print(f"of {case}\n  clang says {warnings}, expected is {expected or 'nothing'}")
    print(f"{len(CASES)} cases, {wrong} of them wrong")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
