// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/gate/gate.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "client_lib/drop_in/default_stream.h"
#include "client_lib/drop_in/entry_points.h"
#include "client_lib/drop_in/function_index.h"
#include "client_lib/drop_in/gate/driver_functions.h"
#include "client_lib/drop_in/gate/hooks.h"
#include "client_lib/drop_in/gate/trace.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

#define GPUSHARED_FUNCTION(name, version, symbol, stream, handler, hook)              \
  static_assert(!std::is_same_v<decltype(gate::hook), const gate::Undecided>, #symbol \
                " has no decision for gate mode in functions.inc: kForwarded, or "    \
                "a hook of gate/hooks.h");
#include "client_lib/drop_in/functions.inc"
#undef GPUSHARED_FUNCTION

// Functions of the installed driver, for the hooks; null for a function that the driver lacks.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): written before the first
// call.
std::array<void*, kFunctionCount> native_functions;

struct PerThreadScope : DefaultStreamScope {
  PerThreadScope() : DefaultStreamScope(DefaultStream::kPerThread) {}
};
struct NoScope {
  NoScope() {}
};

// Wraps a hook, whose first argument is the driver's function, in a function with the signature
// that the caller expects.
template <auto kHook, FunctionIndex kIndex, DefaultStream kForm>
struct Hooked {
  static_assert(std::is_same_v<std::remove_const_t<decltype(kHook)>, gate::Forwarded>);
  static const void* Target() { return nullptr; }
};
template <typename... Arguments, Code (*kHook)(Code (*)(Arguments...), Arguments...),
          FunctionIndex kIndex, DefaultStream kForm>
struct Hooked<kHook, kIndex, kForm> {
  static Code Run(Arguments... arguments) noexcept {
    // The legacy form needs no scope, because it is the initial form of every thread.
    std::conditional_t<kForm == DefaultStream::kPerThread, PerThreadScope, NoScope> scope;
    return kHook(reinterpret_cast<Code (*)(Arguments...)>(native_functions[kIndex]), arguments...);
  }
  static const void* Target() { return reinterpret_cast<const void*>(&Run); }
};

// Returns null if the function is forwarded without a hook.
const void* GetHook(std::size_t index) {
  static const void* const kHooks[] = {
#define GPUSHARED_FUNCTION(name, version, symbol, stream, handler, hook) \
  Hooked<gate::hook, kIndexOf_##symbol, DefaultStream::stream>::Target(),
#include "client_lib/drop_in/functions.inc"
#undef GPUSHARED_FUNCTION
  };
  return kHooks[index];
}

// Target of functions that the installed driver is too old for.
Code SayUnknown() noexcept { return Code::kNotSupported; }
// Target of every function if no driver is installed.
Code SayNoDriver() noexcept { return Code::kStubLibrary; }

// Functions of the driver by address. Several functions may share an address.
struct Export {
  const void* address;
  std::size_t index;
};
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): as native_functions.
std::array<Export, kFunctionCount> exports;
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): as native_functions.
std::size_t export_count = 0;

template <typename Function>
void SetNative(Function& function, FunctionIndex index) {
  function = reinterpret_cast<Function>(native_functions[index]);
}

void SetTargets(void* library) {
  for (std::size_t i = 0; i < kFunctionCount; ++i) {
    // Symbols are literals, so they are null-terminated.
    void* const native = ::dlsym(library, Functions()[i].symbol.data());
    native_functions[i] = native;
    if (native == nullptr) {
      gpushared_gate_targets[i] = reinterpret_cast<const void*>(&SayUnknown);
      continue;
    }
    exports[export_count++] = {native, i};
    const void* const hook = GetHook(i);
    gpushared_gate_targets[i] = hook == nullptr ? native : hook;
  }
#define GPUSHARED_SET_NATIVE(member, symbol, parameters) \
  SetNative(gate::driver_functions.member, kIndexOf_##symbol);
  GPUSHARED_GATE_DRIVER_FUNCTIONS(GPUSHARED_SET_NATIVE)
#undef GPUSHARED_SET_NATIVE
  // Among functions with the same address, a hooked one comes first.
  std::ranges::sort(std::span(exports.data(), export_count), {}, [](const Export& one) {
    return std::tuple(one.address, GetHook(one.index) == nullptr, one.index);
  });
}

const void* JumpTo(std::size_t index) {
  return IsTracing() ? CountingJump(index) : gpushared_gate_targets[index];
}

// Loads the driver. Deferred to the first call, because programs that never use CUDA must not pay
// for loading the driver and may be unable to load it.
bool OpenGate() {
  const Result<NativeDriver> driver = ForwardToNativeDriver();
  if (driver.ok()) {
    if (IsLogging()) {
      LogLine("gate mode: " + driver->path + " serves this program");
    }
    return true;
  }
  const std::string sentence = "gate mode: " + std::string(driver.status().message());
  LogLine(sentence);
  static std::atomic<bool> has_told{false};
  ReportUser(sentence, has_told);
  std::fill_n(gpushared_gate_targets, kFunctionCount, reinterpret_cast<const void*>(&SayNoDriver));
  return RedirectCalls(JumpTo);
}

}  // namespace
}  // namespace gpushared::drop_in

extern "C" {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): as native_functions.
[[gnu::used]] const void* gpushared_gate_targets[gpushared::drop_in::kFunctionCount];

// NOLINTNEXTLINE(readability-identifier-naming): the assembly below defines it.
[[gnu::visibility("hidden")]] extern const char gpushared_gate_first_calls[];

// Target of the first call of a process. The jump of each symbol leads here until OpenGate has
// redirected it, so calls of several threads may arrive.
[[gnu::used, gnu::visibility("hidden")]] const void* gpushared_gate_first_call(
    std::size_t index) noexcept {
  [[maybe_unused]] static const bool kIsWritten = gpushared::drop_in::OpenGate();
  return gpushared::drop_in::JumpTo(index);
}

}  // extern "C"

// Preserves the registers of integer and floating-point arguments during the first call.
asm(R"(
.pushsection .text.gpushared_gate, "ax", @progbits
gpushared_gate_open:
  push %rdi
  push %rsi
  push %rdx
  push %rcx
  push %r8
  push %r9
  sub $136, %rsp
  movups %xmm0, (%rsp)
  movups %xmm1, 16(%rsp)
  movups %xmm2, 32(%rsp)
  movups %xmm3, 48(%rsp)
  movups %xmm4, 64(%rsp)
  movups %xmm5, 80(%rsp)
  movups %xmm6, 96(%rsp)
  movups %xmm7, 112(%rsp)
  mov %r11d, %edi
  call gpushared_gate_first_call
  movups (%rsp), %xmm0
  movups 16(%rsp), %xmm1
  movups 32(%rsp), %xmm2
  movups 48(%rsp), %xmm3
  movups 64(%rsp), %xmm4
  movups 80(%rsp), %xmm5
  movups 96(%rsp), %xmm6
  movups 112(%rsp), %xmm7
  add $136, %rsp
  pop %r9
  pop %r8
  pop %rcx
  pop %rdx
  pop %rsi
  pop %rdi
  jmp *%rax

.macro gpushared_gate_first
  .p2align 4
  endbr64
  mov $.Lplace, %r11d
  jmp gpushared_gate_open
  .set .Lplace, .Lplace + 1
.endm
.set .Lplace, 0
.p2align 4
.globl gpushared_gate_first_calls
.hidden gpushared_gate_first_calls
gpushared_gate_first_calls:
)"
#define GPUSHARED_FUNCTION(name, version, symbol, stream, handler, hook) "gpushared_gate_first\n"
#include "client_lib/drop_in/functions.inc"
#undef GPUSHARED_FUNCTION
    ".popsection\n");

namespace gpushared::drop_in {
namespace {

constexpr std::size_t kFirstCallBytes = 16;

// Does not load the driver, because a preloaded library is loaded into every process, including
// those that never call the driver. If the table cannot be written, Driver::Init fails.
[[gnu::constructor]] void WaitForFirstCall() {
  const Result<Mode> mode = ModeFromEnvironment();
  if (!mode.ok() || *mode != Mode::kGate) return;
  (void)RedirectCalls([](std::size_t index) -> const void* {
    return gpushared_gate_first_calls + index * kFirstCallBytes;
  });
}

}  // namespace

Result<NativeDriver> ForwardToNativeDriver() {
  Result<NativeDriver> driver = LoadNativeDriver();
  if (!driver.ok()) return driver;
  SetTargets(driver->library);
  BeginTrace();
  if (!RedirectCalls(JumpTo)) {
    return Status(StatusCode::kInternal, "the table of calls cannot be written");
  }
  return driver;
}

namespace gate {
namespace {

// Returns the function that the installed driver exports at this address; null if functions.inc
// does not have it.
const Function* FunctionAt(const void* native_address) {
  const std::span<const Export> known(exports.data(), export_count);
  const auto found = std::ranges::lower_bound(known, native_address, {}, &Export::address);
  if (found == known.end() || found->address != native_address) return nullptr;
  return &Functions()[found->index];
}

void HandOutOurs(const char* name, int version, void*& function) {
  const Function* const ours = function == nullptr ? nullptr : FunctionAt(function);
  if (IsTracing()) [[unlikely]]
    TraceLookup(name, version, function != nullptr, ours);
  if (ours != nullptr) function = ours->address;
}

}  // namespace

Code GetProcAddress(Code (*native)(const char*, void**, int, std::uint64_t), const char* name,
                    void** function, int version, std::uint64_t flags) {
  const Code code = native(name, function, version, flags);
  if (code == Code::kSuccess) HandOutOurs(name, version, *function);
  return code;
}

Code GetProcAddressV2(Code (*native)(const char*, void**, int, std::uint64_t, ProcAddressResult*),
                      const char* name, void** function, int version, std::uint64_t flags,
                      ProcAddressResult* result) {
  const Code code = native(name, function, version, flags, result);
  if (code == Code::kSuccess) HandOutOurs(name, version, *function);
  return code;
}

}  // namespace gate

}  // namespace gpushared::drop_in
