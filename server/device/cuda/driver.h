// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, loaded at run time, so that this program builds, starts and serves its cpu
// device on machines without a driver.

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

// Optional features of a driver. All calls of a feature are available, or none.
enum class Feature : std::uint8_t {
  kBase,  // Always available in a loaded driver.
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

// A call of the driver. Returns kNotSupported if the driver lacks it.
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

// A row of the list of calls, for iteration.
struct SymbolRow {
  const char* name;      // "cuStreamDestroy": name for cuGetProcAddress.
  const char* exported;  // "cuStreamDestroy_v2": name exported by older drivers.
  int version;
  Feature feature;
};
std::span<const SymbolRow> Symbols();

struct MissingFeature {
  Feature feature = Feature::kBase;
  std::string why;  // "green contexts are off: the driver lacks cuGreenCtxCreate (CUDA 12.4)"
};

// The loaded and initialized driver. It is never unloaded, because its threads may still run.
//
// Immutable; as thread-safe as the driver's calls. A call uses the context that is current on the
// calling thread.
class Driver {
 public:
  static constexpr const char* kLibrary = "libcuda.so.1";

  // Loads `library` (a name that the dynamic linker finds, or a path) and initializes it. Fails
  // with kNotFound if there is no such library, kUnsupported for a driver that is too old, with its
  // version and the required one, and kUnavailable if it cannot be initialized (no device, a kernel
  // module of another version, ...).
  static Result<std::shared_ptr<const Driver>> Load(const std::string& library = kLibrary);

  // Driver calls: driver.LaunchKernel(function, ...).
#define GPUSHARED_CUDA_MEMBER(name, suffix, version, feature, signature) \
  DriverCall<Code signature> name{"cu" #name};
  GPUSHARED_CUDA_SYMBOLS(GPUSHARED_CUDA_MEMBER)
#undef GPUSHARED_CUDA_MEMBER

  // The newest CUDA version that the driver supports, such as 12040 for 12.4.
  int version() const { return version_; }
  bool Has(Feature feature) const { return has_[static_cast<std::size_t>(feature)]; }
  const std::vector<MissingFeature>& missing_features() const { return missing_; }

  // "cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered"
  std::string Explain(std::string_view call, Code code) const;
  // Ok for kSuccess, otherwise the results of ToStatusCode and Explain.
  Status ToStatus(std::string_view call, Code code) const;
  // Makes a call and returns its status: driver.Try(driver.MemRelease, handle).
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

// Maps a driver error to the kind of failure reported to clients.
StatusCode ToStatusCode(Code code);

// Whether the context and everything in it is dead after this error: from then on every call
// returns the same error until the process exits. The first call to return it may be a later one
// than the call that caused it.
bool EndsContext(Code code);

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_DRIVER_H_
