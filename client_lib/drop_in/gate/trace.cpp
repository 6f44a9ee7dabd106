// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/gate/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>

#include "gpushared/mutex.h"

#include "client_lib/drop_in/function_index.h"
#include "client_lib/drop_in/log.h"

extern "C" {

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables,readability-identifier-naming):
// the names are the assembler's, and the jumps write to the counts.

// Each counter is incremented only by its jump. A process without a trace never touches these
// pages.
[[gnu::used,
  gnu::visibility(
      "hidden")]] std::uint64_t gpushared_gate_counts[gpushared::drop_in::kFunctionCount];

[[gnu::visibility("hidden")]] extern const char gpushared_gate_counting_jumps[];

// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables,readability-identifier-naming)

}  // extern "C"

// Preserves all registers, because the arguments belong to the driver's function.
asm(R"(
.macro gpushared_gate_counting_jump
  .p2align 5
  endbr64
  lock incq gpushared_gate_counts + .Lplace(%rip)
  jmp *gpushared_gate_targets + .Lplace(%rip)
  .set .Lplace, .Lplace + 8
.endm
.pushsection .text.gpushared_gate_counting, "ax", @progbits
.set .Lplace, 0
.p2align 5
.globl gpushared_gate_counting_jumps
.hidden gpushared_gate_counting_jumps
gpushared_gate_counting_jumps:
)"
#define GPUSHARED_FUNCTION(name, version, symbol, stream, handler, hook) \
  "gpushared_gate_counting_jump\n"
#include "client_lib/drop_in/functions.inc"
#undef GPUSHARED_FUNCTION
    ".popsection\n");

namespace gpushared::drop_in {
namespace {

constexpr std::size_t kCountingJumpBytes = 32;

// Never destroyed, because programs call the driver from their last destructors.
struct Trace {
  int file = -1;
  pid_t process = 0;  // A forked child has a copy of its parent's counts and writes nothing.
  Mutex mutex;
  std::map<std::string, std::uint64_t> lookups GPUSHARED_GUARDED_BY(mutex);
};
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): BeginTrace alone sets it.
Trace* trace = nullptr;

std::string TraceText() {
  std::string text;
  for (std::size_t i = 0; i < kFunctionCount; ++i) {
    const std::uint64_t count = __atomic_load_n(&gpushared_gate_counts[i], __ATOMIC_RELAXED);
    if (count == 0) continue;
    text += "calls\t" + std::string(Functions()[i].symbol) + "\t" + std::to_string(count) + "\n";
  }
  const MutexLock lock(trace->mutex);
  for (const auto& [what, count] : trace->lookups) {
    text += what + "\t" + std::to_string(count) + "\n";
  }
  return text;
}

[[gnu::destructor]] void WriteTrace() {
  if (trace == nullptr || trace->process != ::getpid()) return;
  const std::string text = TraceText();
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t more = ::write(trace->file, text.data() + written, text.size() - written);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) return LogLine(std::string("the trace is not whole: ") + std::strerror(errno));
    written += static_cast<std::size_t>(more);
  }
}

}  // namespace

void BeginTrace() {
  const char* const name = ::secure_getenv("GPUSHARED_GATE_TRACE");
  if (name == nullptr || *name == '\0') return;
  const std::string path = std::string(name) + "." + std::to_string(::getpid());
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return LogLine("no trace: " + path + ": " + std::strerror(errno));
  trace = new Trace;
  trace->file = file;
  trace->process = ::getpid();
}

bool IsTracing() { return trace != nullptr; }

void TraceLookup(std::string_view name, int version, bool is_there, const Function* ours) {
  const std::string what = ours != nullptr ? "fetched\t" + std::string(ours->symbol)
                                           : (is_there ? "passed\t" : "absent\t") +
                                                 std::string(name) + "@" + std::to_string(version);
  const MutexLock lock(trace->mutex);
  ++trace->lookups[what];
}

const void* CountingJump(std::size_t index) {
  return gpushared_gate_counting_jumps + index * kCountingJumpBytes;
}

}  // namespace gpushared::drop_in
