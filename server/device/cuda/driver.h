// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, found and loaded at run time: this program builds, starts and serves its cpu
// device where there is none.

#ifndef GPUSHARED_SERVER_DEVICE_CUDA_DRIVER_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_DRIVER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "common/cuda_driver/driver_types.h"
#include "server/device/cuda/driver_symbols.h"

namespace gpushared::device::cuda {

// What may be missing from a driver. Each is there whole or not at all.
enum class Feature : std::uint8_t {
  kBase,  // Never missing from a loaded driver.
  kInstanceUuid,
  kHostRegister,
  kVirtualMemory,
  kLaunchAttributes,
  kParameterInfo,
  kFunctionNames,
  kEagerLoading,
  kGraphs,
  kStreamMemoryOperations,
  kGreenContexts,
};
inline constexpr std::size_t kFeatureCount = 11;
std::string_view FeatureName(Feature feature);  // "green contexts"

// One call of the driver. Where the driver lacks it, calling it returns kNotSupported.
template <typename Signature>
class DriverCall;
template <typename... Arguments>
class DriverCall<Code(Arguments...)> {
 public:
  constexpr explicit DriverCall(const char* call_name) : name_(call_name) {}
  Code operator()(Arguments... arguments) const { return function_(arguments...); }
  const char* name() const { return name_; }  // "cuLaunchKernel"

 private:
  friend class Driver;
  static Code Missing(Arguments...) { return Code::kNotSupported; }
  const char* name_;
  Code (*function_)(Arguments...) = &Missing;
};

// A row of the list of calls, for whoever walks it.
struct SymbolRow {
  const char* name;      // "cuStreamDestroy": what cuGetProcAddress is asked for.
  const char* exported;  // "cuStreamDestroy_v2": what older drivers export it as.
  int version;
  Feature feature;
};
std::span<const SymbolRow> Symbols();

struct MissingFeature {
  Feature feature = Feature::kBase;
  std::string why;  // "green contexts are off: the driver lacks cuGreenCtxCreate (CUDA 12.4)"
};

// The loaded and initialised driver. Stays loaded until the process ends: its threads cannot be
// unloaded under it.
//
// Immutable; thread-safe as far as the driver's calls are. A call works on the context that is
// current on the calling thread.
class Driver {
 public:
  static constexpr const char* kLibrary = "libcuda.so.1";

  // Loads `library` (a name that the dynamic linker finds, or a path) and initialises it. Errors:
  // kNotFound without such a library. kUnsupported for a driver that is too old, with its version
  // and the one needed. kUnavailable if it does not initialise (no device, a kernel module of
  // another version, ...).
  static Result<std::shared_ptr<const Driver>> Load(const std::string& library = kLibrary);

  // The driver's calls: driver.LaunchKernel(function, ...).
#define GPUSHARED_CUDA_MEMBER(name, suffix, version, feature, signature) \
  DriverCall<Code signature> name{"cu" #name};
  GPUSHARED_CUDA_SYMBOLS(GPUSHARED_CUDA_MEMBER)
#undef GPUSHARED_CUDA_MEMBER

  int version() const { return version_; }  // 12040: the newest CUDA that it serves.
  bool Has(Feature feature) const { return has_[static_cast<std::size_t>(feature)]; }
  const std::vector<MissingFeature>& missing_features() const { return missing_; }

  // "cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered"
  std::string Explain(std::string_view call, Code code) const;
  // Ok for kSuccess, else what ToStatusCode and Explain say.
  Status ToStatus(std::string_view call, Code code) const;
  // Calls and says what came of it: driver.Try(driver.MemRelease, handle).
  template <typename... Parameters, typename... Arguments>
  Status Try(const DriverCall<Code(Parameters...)>& call, Arguments... arguments) const {
    return ToStatus(call.name(), call(arguments...));
  }

 private:
  class Loader;
  Driver() = default;

  int version_ = 0;
  std::array<bool, kFeatureCount> has_{};
  std::vector<MissingFeature> missing_;
};

std::string VersionText(int version);  // 12040: "12.4"

// The kind of failure that a code is to a client.
StatusCode ToStatusCode(Code code);

// Whether the context is dead after this code, with everything in it: from then on every call
// returns the same code, until the process ends. Such a code may come from any later call, not
// only from the one that caused it.
bool EndsContext(Code code);

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_DRIVER_H_
