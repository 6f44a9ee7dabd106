// SPDX-License-Identifier: Apache-2.0
// The driver as a whole: initialization, version, function lookup, error texts, profiler.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/driver.h"
#include "client_lib/drop_in/entry_points.h"
#include "client_lib/drop_in/gate/gate.h"
#include "client_lib/drop_in/log.h"
#include "common/cuda_driver/error_text.h"

namespace gpushared::drop_in {
namespace {

// Flags of cuGetProcAddress.
constexpr std::uint64_t kProcDefault = 0;
constexpr std::uint64_t kProcLegacyStream = 1;
constexpr std::uint64_t kProcPerThreadStream = 2;

// First halves of the ids of two tables. NVIDIA's runtime fails without the table
// 6bd5fb6c-5bf4-e74a; cuFFT, which does not contain the runtime, fails without 21318c60-9714-3248.
// The ids are deliberately incomplete, because `gpusharedctl doctor` searches files for complete
// ids to find those that request these tables.
constexpr std::array<std::uint64_t, 2> kNeededTables = {0x4ae7f45b6cfbd56b, 0x48321497608c3121};

// Returns the newest form of the function that a program written for `version` can call. Functions
// that use no default stream have only forms with kLegacy.
const Function* FindFunction(std::string_view name, int version, DefaultStream stream,
                             bool& is_known) {
  const Function* best = nullptr;
  is_known = false;
  for (const Function& function : Functions()) {
    if (function.name != name) continue;
    is_known = true;
    if (function.version > version) continue;
    if (function.default_stream == DefaultStream::kPerThread && stream == DefaultStream::kLegacy) {
      continue;
    }
    const bool fits_better =
        best == nullptr || (function.default_stream == stream && best->default_stream != stream) ||
        (function.default_stream == best->default_stream && function.version > best->version);
    if (fits_better) best = &function;
  }
  return best;
}

}  // namespace

Code Init(unsigned flags) {
  return flags == 0 ? Driver::Get().Init(ForwardToNativeDriver) : Code::kInvalidValue;
}

Code DriverGetVersion(int* version) {
  if (AnyNull(version)) return Code::kInvalidValue;
  *version = kDriverVersion;
  return Code::kSuccess;
}

Code GetProcAddressV2(const char* name, void** function, int version, std::uint64_t flags,
                      ProcAddressResult* result) {
  if (AnyNull(name, function) || *name == '\0') return Code::kInvalidValue;
  if (flags != kProcDefault && flags != kProcLegacyStream && flags != kProcPerThreadStream) {
    return Code::kInvalidValue;
  }
  const DefaultStream stream =
      flags == kProcPerThreadStream ? DefaultStream::kPerThread : DefaultStream::kLegacy;
  bool is_known = false;
  const Function* const found = FindFunction(name, version, stream, is_known);
  *function = found == nullptr ? nullptr : found->address;
  // A missing function is a valid result: programs then use dlsym or do without it.
  if (result == nullptr) return Code::kSuccess;
  *result = found != nullptr ? ProcAddressResult::kFound
            : is_known       ? ProcAddressResult::kVersionNotSufficient
                             : ProcAddressResult::kNotFound;
  return Code::kSuccess;
}

Code GetProcAddress(const char* name, void** function, int version, std::uint64_t flags) {
  const Code code = GetProcAddressV2(name, function, version, flags, nullptr);
  return code == Code::kSuccess && *function == nullptr ? Code::kNotFound : code;
}

// NVIDIA's libraries use these tables to verify that the driver is NVIDIA's. This library does not
// claim to be NVIDIA's driver and has no such tables; some programs that request a table also work
// without it.
Code GetExportTable(const void** table, const Uuid* id) {
  if (AnyNull(table, id)) return Code::kInvalidValue;
  *table = nullptr;
  std::uint64_t first_half = 0;
  std::memcpy(&first_half, id->bytes, sizeof first_half);
  if (std::ranges::find(kNeededTables, first_half) == kNeededTables.end()) return Code::kNotFound;
  constexpr std::string_view kMessage =
      "this program contains or loads NVIDIA's CUDA runtime, or a library built on the runtime "
      "(cuBLAS, cuFFT, cuSPARSE, ...), which works only with NVIDIA's driver, so its calls fail. "
      "gpusharedctl doctor -- PROGRAM shows where it is";
  static std::atomic<bool> has_reported{false};
  ReportUser(kMessage, has_reported);
  return Reject(Code::kNotFound, kMessage);
}

Code GetErrorName(Code code, const char** name) {
  if (AnyNull(name)) return Code::kInvalidValue;
  return device::cuda::ReportText(code, &device::cuda::ErrorText::name, name);
}

Code GetErrorString(Code code, const char** text) {
  if (AnyNull(text)) return Code::kInvalidValue;
  return device::cuda::ReportText(code, &device::cuda::ErrorText::text, text);
}

// Do nothing: programs use these calls only to mark the work that a profiler should record.
Code ProfilerInitialize(const char*, const char*, int) { return Code::kSuccess; }
Code ProfilerStart() { return Code::kSuccess; }
Code ProfilerStop() { return Code::kSuccess; }

}  // namespace gpushared::drop_in
