// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/interposers/nvrtc.h"

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/mutex.h"

#include "client_lib/drop_in/interposers/forwarder.h"

namespace gpushared::drop_in {
namespace {

constexpr std::string_view kRealArchitecture = "sm_";
constexpr std::string_view kVirtualArchitecture = "compute_";

// Programs that requested machine code.
class AskedForMachineCode {
 public:
  void Set(const void* program, bool has_asked) {
    const MutexLock lock(mutex_);
    if (has_asked) {
      programs_.insert(program);
    } else {
      programs_.erase(program);
    }
  }
  bool Has(const void* program) {
    const MutexLock lock(mutex_);
    return programs_.contains(program);
  }

 private:
  Mutex mutex_;
  std::set<const void*> programs_ GPUSHARED_GUARDED_BY(mutex_);
};

// Never destroyed, because programs call NVRTC from their last destructors.
AskedForMachineCode& Asked() {
  static AskedForMachineCode& asked = *new AskedForMachineCode;
  return asked;
}

// Changes "-arch=sm_80" to "-arch=compute_80", and likewise "sm_80" after "-arch". Returns whether
// an option has changed.
bool AskForPtx(std::vector<std::string>& options) {
  bool has_changed = false;
  bool is_value = false;  // Whether the current option is the value of the previous one.
  for (std::string& option : options) {
    const bool is_architecture =
        option.starts_with("-arch") || option.starts_with("--gpu-architecture");
    const std::size_t at = is_architecture ? option.find('=') + 1 : 0;
    const bool has_value = is_architecture ? at != 0 : is_value;
    if (has_value && std::string_view(option).substr(at).starts_with(kRealArchitecture)) {
      option.replace(at, kRealArchitecture.size(), kVirtualArchitecture);
      has_changed = true;
    }
    is_value = is_architecture && at == 0;
  }
  return has_changed;
}

// Link-time IR is not machine code, and its options require the real architecture.
bool AsksForLinkTimeCode(const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    if (option == "-dlto" || option == "--dlink-time-opt" || option == "-dlink-time-opt" ||
        option == "-ltoir") {
      return true;
    }
  }
  return false;
}

}  // namespace

int CompileProgram(void* program, int option_count, const char* const* options) {
  if (option_count < 0 || (option_count != 0 && options == nullptr)) return kInvalidInput;
  std::vector<std::string> asked;
  for (int i = 0; i < option_count; ++i) {
    if (options[i] == nullptr) return kInvalidInput;
    asked.emplace_back(options[i]);
  }
  const bool has_changed = !AsksForLinkTimeCode(asked) && AskForPtx(asked);
  std::vector<const char*> changed;
  changed.reserve(asked.size());
  for (const std::string& option : asked) changed.push_back(option.c_str());
  if (program != nullptr) Asked().Set(program, has_changed);
  return CallReal("nvrtcCompileProgram", program, option_count,
                  static_cast<const char* const*>(changed.data()));
}

int DestroyProgram(void** program) {
  if (program != nullptr && *program != nullptr) Asked().Set(*program, false);
  return CallReal("nvrtcDestroyProgram", program);
}

int GetCUBINSize(void* program, std::size_t* bytes) {
  return CallReal(Asked().Has(program) ? "nvrtcGetPTXSize" : "nvrtcGetCUBINSize", program, bytes);
}

int GetCUBIN(void* program, char* cubin) {
  return CallReal(Asked().Has(program) ? "nvrtcGetPTX" : "nvrtcGetCUBIN", program, cubin);
}

// Programs print this text, so it reports a missing real library.
const char* GetErrorString(int result) {
  void* const function = RealFunction("nvrtcGetErrorString");
  if (function == nullptr) return WhyNoRealLibrary().c_str();
  return reinterpret_cast<const char* (*)(int)>(function)(result);
}

}  // namespace gpushared::drop_in
