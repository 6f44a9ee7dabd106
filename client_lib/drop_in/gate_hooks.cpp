// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/gate_hooks.h"

#include "client_lib/drop_in/gate.h"
#include "client_lib/drop_in/gate_trace.h"

namespace gpushared::drop_in::gate {
namespace {

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

}  // namespace gpushared::drop_in::gate
