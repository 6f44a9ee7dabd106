// SPDX-License-Identifier: Apache-2.0
// Compiled once per interposer with definitions from the build: GPUSHARED_EXPORTS names its table,
// GPUSHARED_RULES the header of its handlers, GPUSHARED_NAMES the library's names in all major
// versions.
#include "client_lib/drop_in/interposers/forwarder.h"

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <type_traits>

#include "client_lib/drop_in/interposers/real_library.h"
#include "client_lib/drop_in/log.h"
#include GPUSHARED_RULES

namespace gpushared::drop_in {
namespace {

// Handler of functions that the real library serves.
struct Forward {};
constexpr Forward kForward;

constexpr const char* kNames[] = {GPUSHARED_NAMES};
constexpr const char* kSymbols[] = {
#define GPUSHARED_EXPORT(symbol, handler) #symbol,
#include GPUSHARED_EXPORTS
#undef GPUSHARED_EXPORT
};

// Returns the real library. The first call loads it, because programs that never call it must not
// pay for loading it. It is never unloaded.
const RealLibrary& Real() {
  static const RealLibrary& real = *new RealLibrary([] {
    RealLibrary found = LoadReal(kNames, &kSymbols);
    if (found.handle == nullptr) LogLine(std::string(kNames[0]) + ": " + found.why_not);
    return found;
  }());
  return real;
}

int NotThere() { return kNoRealLibrary; }

// Initial target of a function. Exceptions of a handler do not reach the program.
template <auto kHandler, void (*kFirstCall)()>
struct Target {
  static_assert(std::is_same_v<std::remove_const_t<decltype(kHandler)>, Forward>);
  static constexpr auto kFunction = kFirstCall;
};
template <typename Answer, typename... Arguments, Answer (*kHandler)(Arguments...),
          void (*kFirstCall)()>
struct Target<kHandler, kFirstCall> {
  static Answer Run(Arguments... arguments) noexcept {
    try {
      return kHandler(arguments...);
    } catch (...) {
      if constexpr (std::is_same_v<Answer, int>) return kFailed;
      return Answer();
    }
  }
  static constexpr auto kFunction = &Run;
};

}  // namespace

void* RealFunction(const char* symbol) {
  if (Real().handle == nullptr) return nullptr;
  void* const function = ::dlsym(Real().handle, symbol);
  if (function == nullptr) {
    LogLine(std::string(symbol) + ": the " + kNames[0] + " of this machine has no such function");
  }
  return function;
}

const std::string& WhyNoRealLibrary() { return Real().why_not; }

int NoRealLibraryCode() { return kNoRealLibrary; }

}  // namespace gpushared::drop_in

extern "C" {

// First call of a function, before its target is known.
#define GPUSHARED_EXPORT(symbol, handler) \
  [[gnu::visibility("hidden")]] void gpushared_first_call_of_##symbol();
#include GPUSHARED_EXPORTS
#undef GPUSHARED_EXPORT

// Targets of the functions. A target is written only by first calls of its function, all of which
// write the same value.
[[gnu::visibility("hidden")]] extern const void* gpushared_targets[];
[[gnu::used]] const void* gpushared_targets[] = {
#define GPUSHARED_EXPORT(symbol, handler)                     \
  reinterpret_cast<const void*>(                              \
      gpushared::drop_in::Target<gpushared::drop_in::handler, \
                                 &gpushared_first_call_of_##symbol>::kFunction),
#include GPUSHARED_EXPORTS
#undef GPUSHARED_EXPORT
};

[[gnu::used, gnu::visibility("hidden")]] const void* gpushared_find_target(
    std::size_t index) noexcept {
  void* target = nullptr;
  try {
    target = gpushared::drop_in::RealFunction(gpushared::drop_in::kSymbols[index]);
  } catch (...) {
    // An exception for lack of memory is treated like a missing library.
  }
  if (target == nullptr) target = reinterpret_cast<void*>(&gpushared::drop_in::NotThere);
  // Relaxed: the target is code, which was loaded before and does not change.
  std::atomic_ref(gpushared_targets[index]).store(target, std::memory_order_relaxed);
  return target;
}

}  // extern "C"

// Preserves the registers of integer arguments during the first call; none of these functions has
// other arguments.
asm(R"(
.pushsection .text.gpushared_interposer, "ax", @progbits
gpushared_first_call:
  push %rdi
  push %rsi
  push %rdx
  push %rcx
  push %r8
  push %r9
  push %rax
  mov %r11, %rdi
  call gpushared_find_target
  mov %rax, %r11
  pop %rax
  pop %r9
  pop %r8
  pop %rcx
  pop %rdx
  pop %rsi
  pop %rdi
  jmp *%r11

.set .Lindex, 0
.macro gpushared_export symbol
  .p2align 4
  .globl \symbol
  .type \symbol, @function
\symbol:
  endbr64
  jmp *gpushared_targets + 8 * .Lindex(%rip)
  .size \symbol, . - \symbol
  .globl gpushared_first_call_of_\symbol
  .hidden gpushared_first_call_of_\symbol
gpushared_first_call_of_\symbol:
  endbr64
  mov $.Lindex, %r11d
  jmp gpushared_first_call
  .set .Lindex, .Lindex + 1
.endm
)"
#define GPUSHARED_EXPORT(symbol, handler) "gpushared_export " #symbol "\n"
#include GPUSHARED_EXPORTS
#undef GPUSHARED_EXPORT
    ".purgem gpushared_export\n.popsection\n");
