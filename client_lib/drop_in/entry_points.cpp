// SPDX-License-Identifier: Apache-2.0
// Every exported symbol is one jump through a table of calls. A call runs the handler named by
// functions.inc. During the call, the default stream is that of the symbol's form (legacy or
// per-thread), and a stream argument other than a default stream determines the context. No
// exception leaves the call.
#include "client_lib/drop_in/entry_points.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <new>
#include <string>
#include <type_traits>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/function_index.h"
#include "client_lib/drop_in/log.h"
#include "client_lib/drop_in/missing_functions.h"
#include "client_lib/drop_in/stream_scope.h"

namespace gpushared::drop_in {
namespace {

// Handler of functions that are exported but not implemented.
struct Missing {};
constexpr Missing kMissing;
constexpr DefaultStream kLegacy = DefaultStream::kLegacy;
constexpr DefaultStream kPerThread = DefaultStream::kPerThread;

constexpr std::string_view kSymbols[] = {
#define GPUSHARED_FUNCTION(name, version, symbol, stream, handler, hook) #symbol,
#include "client_lib/drop_in/functions.inc"
#undef GPUSHARED_FUNCTION
};

// Logs once per function, because programs may call it in a loop.
Code LogMissing(FunctionIndex index) {
  static std::array<std::atomic<bool>, kFunctionCount> logged;
  if (IsLogging() && !logged[index].exchange(true, std::memory_order_relaxed)) {
    LogLine(std::string(kSymbols[index]) +
            ": not supported by this library: " + std::string(WhyMissing(kSymbols[index])));
  }
  return Code::kNotSupported;
}

// Not ready is not a failure: waiting programs query repeatedly.
void LogFailed(FunctionIndex index, Code code) {
  const std::string message = TakeMessage();
  if (code == Code::kNotReady) return;
  LogLine(std::string(kSymbols[index]) + ": error " + std::to_string(static_cast<int>(code)) +
          (message.empty() ? "" : ": ") + message);
}

// Returns the first stream among the arguments of a call; null if there is none.
constexpr StreamHandle StreamAmong() { return nullptr; }
template <typename First, typename... Rest>
StreamHandle StreamAmong(First first, Rest... rest) {
  if constexpr (std::is_same_v<First, StreamHandle>) {
    return first;
  } else {
    return StreamAmong(rest...);
  }
}

template <auto kHandler, DefaultStream kStream, FunctionIndex kIndex>
struct Call {
  static_assert(std::is_same_v<std::remove_const_t<decltype(kHandler)>, Missing>);
  static Code Run() noexcept { return LogMissing(kIndex); }
};

template <typename... Arguments, Code (*kHandler)(Arguments...), DefaultStream kStream,
          FunctionIndex kIndex>
struct Call<kHandler, kStream, kIndex> {
  static Code Run(Arguments... arguments) noexcept {
    const DefaultStreamScope scope(kStream);
    Code code = Code::kUnknown;
    try {
      const StreamScope of_stream(StreamAmong(arguments...));
      code = kHandler(arguments...);
    } catch (const std::bad_alloc&) {
      code = Code::kOutOfMemory;
    } catch (...) {
      code = Code::kUnknown;
    }
    if (code != Code::kSuccess && IsLogging()) [[unlikely]]
      LogFailed(kIndex, code);
    return code;
  }
};

}  // namespace
}  // namespace gpushared::drop_in

extern "C" {

// The table that the jumps below read. It is hidden, so that no other library can replace it. Its
// pages are read-only once the loader has finished; only RedirectCalls makes them writable.
[[gnu::visibility("hidden")]] extern const void* gpushared_drop_in_calls[];
[[gnu::used,
  gnu::section(".data.rel.ro.gpushared_drop_in_calls")]] const void* gpushared_drop_in_calls[] = {
#define GPUSHARED_FUNCTION(name, version, symbol, stream, handler, hook)                 \
  reinterpret_cast<const void*>(                                                         \
      &gpushared::drop_in::Call<gpushared::drop_in::handler, gpushared::drop_in::stream, \
                                gpushared::drop_in::kIndexOf_##symbol>::Run),
#include "client_lib/drop_in/functions.inc"
#undef GPUSHARED_FUNCTION
};

#define GPUSHARED_FUNCTION(name, version, symbol, stream, handler, hook) \
  [[gnu::visibility("default")]] void symbol();
#include "client_lib/drop_in/functions.inc"
#undef GPUSHARED_FUNCTION

}  // extern "C"

// A single asm statement, because the compiler may reorder several. The macro keeps it below the
// 65,536 characters that every compiler accepts.
asm(R"(
.macro gpushared_entry name
  .p2align 4
  .globl \name
  .type \name, @function
\name:
  endbr64
  jmp *gpushared_drop_in_calls + .Lcall(%rip)
  .size \name, . - \name
  .set .Lcall, .Lcall + 8
.endm
.pushsection .text.gpushared_drop_in, "ax", @progbits
.set .Lcall, 0
)"
#define GPUSHARED_FUNCTION(name, version, symbol, stream, handler, hook) \
  "gpushared_entry " #symbol "\n"
#include "client_lib/drop_in/functions.inc"
#undef GPUSHARED_FUNCTION
    ".popsection\n");

namespace gpushared::drop_in {

bool RedirectCalls(const std::function<const void*(std::size_t index)>& target) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(gpushared_drop_in_calls) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(gpushared_drop_in_calls + kFunctionCount);
  void* const pages = reinterpret_cast<void*>(begin);
  if (::mprotect(pages, end - begin, PROT_READ | PROT_WRITE) != 0) return false;
  for (std::size_t i = 0; i < kFunctionCount; ++i) {
    // Other threads may jump in the meantime and find either target. Release: a thread that reads
    // the new target also sees the data that the caller wrote for it.
    __atomic_store_n(&gpushared_drop_in_calls[i], target(i), __ATOMIC_RELEASE);
  }
  ::mprotect(pages, end - begin, PROT_READ);
  return true;
}

std::span<const Function> Functions() {
  static const Function kFunctions[] = {
#define GPUSHARED_FUNCTION(name, version, symbol, stream, handler, hook) \
  {#name,                                                                \
   version,                                                              \
   #symbol,                                                              \
   stream,                                                               \
   !std::is_same_v<decltype(handler), const Missing>,                    \
   reinterpret_cast<void*>(&::symbol)},
#include "client_lib/drop_in/functions.inc"
#undef GPUSHARED_FUNCTION
  };
  return kFunctions;
}

}  // namespace gpushared::drop_in
