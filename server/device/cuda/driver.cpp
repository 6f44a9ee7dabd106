// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <utility>

namespace gpushared::device::cuda {
namespace {

constexpr std::array kSymbols{
#define GPUSHARED_CUDA_ROW(name, suffix, version, feature, signature) \
  SymbolRow{"cu" #name, "cu" #name #suffix, version, Feature::feature},
    GPUSHARED_CUDA_SYMBOLS(GPUSHARED_CUDA_ROW)
#undef GPUSHARED_CUDA_ROW
};

constexpr std::array<std::string_view, kFeatureCount> kFeatureNames = {
    "the driver interface",           "UUIDs of MIG instances", "registration of host memory",
    "virtual memory management",      "launch attributes",      "parameter layout from the driver",
    "function names from the driver", "eager loading",          "graphs of the driver",
    "memory operations on streams",   "green contexts",
};

// Errors after which the context is dead, with the evidence. "relaunch": the CUDA 13.0 header
// states for this error that the process must be terminated and relaunched. Errors whose
// description contains no such statement (701, 801, 912 and the rest) only concern the caller.
struct EndingCode {
  Code code;
  std::string_view source;
};
constexpr std::array kEndingCodes{
    EndingCode{Code::kContained, "relaunch"},
    EndingCode{Code::kIllegalAddress, "relaunch"},
    EndingCode{Code::kLaunchTimeout, "relaunch"},
    EndingCode{Code::kHardwareStackError, "relaunch"},
    EndingCode{Code::kIllegalInstruction, "relaunch"},
    EndingCode{Code::kMisalignedAddress, "relaunch"},
    EndingCode{Code::kInvalidAddressSpace, "relaunch"},
    EndingCode{Code::kInvalidPc, "relaunch"},
    EndingCode{Code::kLaunchFailed, "relaunch"},
    EndingCode{Code::kTensorMemoryLeak, "relaunch"},
    EndingCode{Code::kMpsClientTerminated, "relaunch"},
    EndingCode{Code::kExternalDevice, "relaunch"},
    EndingCode{Code::kAssert, "the context must be destroyed, its memory is invalid"},
    EndingCode{Code::kEccUncorrectable, "memory has lost its contents; no word of recovery"},
    EndingCode{Code::kNvlinkUncorrectable, "as ECC errors; no word of recovery"},
};

}  // namespace

std::span<const SymbolRow> Symbols() { return kSymbols; }

std::string_view FeatureName(Feature feature) {
  return kFeatureNames[static_cast<std::size_t>(feature)];
}

std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

StatusCode ToStatusCode(Code code) {
  if (EndsContext(code)) return StatusCode::kDeviceLost;
  switch (code) {
    case Code::kSuccess:
      return StatusCode::kOk;
    case Code::kOutOfMemory:
      return StatusCode::kOutOfMemory;
    case Code::kNotReady:
      return StatusCode::kNotReady;
    case Code::kNotFound:
      return StatusCode::kNotFound;
    case Code::kInvalidImage:
    case Code::kInvalidPtx:
    case Code::kLaunchOutOfResources:
    case Code::kCooperativeLaunchTooLarge:
    case Code::kInvalidClusterSize:
      return StatusCode::kInvalidArgument;
    case Code::kNoBinaryForGpu:
    case Code::kUnsupportedPtxVersion:
    case Code::kJitCompilerNotFound:
    case Code::kNotSupported:
      return StatusCode::kUnsupported;
    case Code::kNoDevice:
    case Code::kDeviceUnavailable:
    case Code::kSystemNotReady:
    case Code::kSystemDriverMismatch:
    case Code::kCompatNotSupportedOnDevice:
    case Code::kMpsConnectionFailed:
    case Code::kMpsRpcFailure:
    case Code::kMpsServerNotReady:
    case Code::kMpsMaxClientsReached:
    case Code::kMpsMaxConnectionsReached:
      return StatusCode::kUnavailable;
    case Code::kNotPermitted:
      return StatusCode::kPermissionDenied;
    default:
      return StatusCode::kInternal;
  }
}

bool EndsContext(Code code) {
  return std::ranges::find(kEndingCodes, code, &EndingCode::code) != kEndingCodes.end();
}

// Fills a Driver from a loaded library.
class Driver::Loader {
 public:
  Loader(void* library, Driver& driver) : library_(library), driver_(driver) {
    // The older of the two forms lacks the last argument; drivers before 11.3 have neither.
    newer_ = reinterpret_cast<NewerGet>(::dlsym(library, "cuGetProcAddress_v2"));
    if (newer_ == nullptr)
      older_ = reinterpret_cast<OlderGet>(::dlsym(library, "cuGetProcAddress"));
  }

  // Fails unless every call of kBase is available.
  Status Resolve(const std::string& name) {
    driver_.has_.fill(true);
    std::size_t row = 0;
#define GPUSHARED_CUDA_FIND(name, suffix, version, feature, signature) \
  Take(kSymbols[row++], driver_.name);
    GPUSHARED_CUDA_SYMBOLS(GPUSHARED_CUDA_FIND)
#undef GPUSHARED_CUDA_FIND
    if (driver_.DriverGetVersion(&driver_.version_) != Code::kSuccess) driver_.version_ = 0;
    if (driver_.Has(Feature::kBase)) return {};
    return {StatusCode::kUnsupported,
            "CUDA driver " + name + " rejected: it serves CUDA " +
                (driver_.version_ == 0 ? "of an unknown version" : VersionText(driver_.version_)) +
                " and lacks " + base_missing_ + ", at least " + VersionText(base_version_) +
                " is needed"};
  }

 private:
  using OlderGet = Code (*)(const char*, void**, int, std::uint64_t);
  using NewerGet = Code (*)(const char*, void**, int, std::uint64_t, ProcAddressResult*);
  // Older meaning of the default stream; we always name a stream explicitly.
  static constexpr std::uint64_t kLegacyStream = 1;

  void* Find(const SymbolRow& row) const {
    void* found = nullptr;
    Code code = Code::kSuccess;
    if (newer_ != nullptr) {
      ProcAddressResult how = ProcAddressResult::kFound;
      code = newer_(row.name, &found, row.version, kLegacyStream, &how);
    } else if (older_ != nullptr) {
      code = older_(row.name, &found, row.version, kLegacyStream);
    } else {
      found = ::dlsym(library_, row.exported);
    }
    return code == Code::kSuccess ? found : nullptr;
  }

  template <typename... Arguments>
  void Take(const SymbolRow& row, DriverCall<Code(Arguments...)>& call) {
    if (void* found = Find(row); found != nullptr) {
      call.function_ = reinterpret_cast<Code (*)(Arguments...)>(found);
      return;
    }
    bool& has = driver_.has_[static_cast<std::size_t>(row.feature)];
    if (row.feature == Feature::kBase) {
      base_version_ = std::max(base_version_, row.version);
      if (has) base_missing_ = row.name;
    } else if (has) {
      driver_.missing_.push_back({row.feature, std::string(FeatureName(row.feature)) +
                                                   " off: the driver lacks " + row.name +
                                                   " (CUDA " + VersionText(row.version) + ")"});
    }
    has = false;
  }

  void* library_;
  Driver& driver_;
  OlderGet older_ = nullptr;
  NewerGet newer_ = nullptr;
  std::string base_missing_;
  int base_version_ = 0;
};

Result<std::shared_ptr<const Driver>> Driver::Load(const std::string& library) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return Status(StatusCode::kNotFound, "no CUDA driver on this machine: " +
                                             std::string(why != nullptr ? why : library.c_str()));
  }
  std::shared_ptr<Driver> driver(new Driver());
  if (Status resolved = Loader(handle, *driver).Resolve(library); !resolved.ok()) return resolved;
  if (const Code code = driver->Init(0); code != Code::kSuccess) {
    return Status(StatusCode::kUnavailable,
                  "CUDA driver of version " + VersionText(driver->version_) +
                      " cannot be used: " + driver->Explain(driver->Init.name(), code));
  }
  return std::shared_ptr<const Driver>(std::move(driver));
}

std::string Driver::Explain(std::string_view call, Code code) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (GetErrorName(code, &name) != Code::kSuccess || name == nullptr) name = "CUDA error";
  if (GetErrorString(code, &text) != Code::kSuccess) text = nullptr;
  std::string message =
      std::string(call) + ": " + name + " (" + std::to_string(static_cast<int>(code)) + ")";
  if (text != nullptr) message += ": " + std::string(text);
  return message;
}

Status Driver::ToStatus(std::string_view call, Code code) const {
  if (code == Code::kSuccess) return {};
  return {ToStatusCode(code), Explain(call, code)};
}

}  // namespace gpushared::device::cuda
