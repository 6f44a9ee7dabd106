// SPDX-License-Identifier: Apache-2.0
#include "server/device/inventory/nvml.h"

#include <dlfcn.h>

#include <utility>

namespace gpushared::device::nvml {
namespace {

template <typename Function>
bool Find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<std::unique_ptr<const Nvml>> Nvml::Load(const std::string& library) {
  std::unique_ptr<Nvml> nvml(new Nvml());
  // The library is never unloaded, because its threads and handlers do not support that.
  nvml->library_ = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (nvml->library_ == nullptr) {
    const char* why = ::dlerror();
    return Status(StatusCode::kNotFound, "no NVIDIA driver on this machine: " +
                                             std::string(why != nullptr ? why : library.c_str()));
  }
  std::string missing;
#define GPUSHARED_NVML_FIND(name, suffix, required, signature)                     \
  if (!Find(nvml->library_, "nvml" #name #suffix, nvml->name) && (required)) {     \
    missing += (missing.empty() ? "nvml" : ", nvml") + std::string(#name #suffix); \
  }
  GPUSHARED_NVML_SYMBOLS(GPUSHARED_NVML_FIND)
#undef GPUSHARED_NVML_FIND
  Find(nvml->library_, "nvmlErrorString", nvml->error_string_);
  if (!missing.empty()) {
    return Status(StatusCode::kUnsupported,
                  "NVIDIA management library " + library + " rejected: it lacks " + missing);
  }
  if (const Code code = nvml->Init(); code != Code::kSuccess) {
    std::string why = "the NVIDIA driver cannot be used: " + nvml->Explain("nvmlInit", code);
    // After an update of the driver, this process still uses the old library.
    if (code == Code::kVersionMismatch) {
      why += "; if the driver was updated while this process ran, restart it";
    }
    return Status(StatusCode::kUnavailable, std::move(why));
  }
  nvml->initialized_ = true;
  return std::unique_ptr<const Nvml>(std::move(nvml));
}

Nvml::~Nvml() {
  if (initialized_) (void)Shutdown();
  if (library_ != nullptr) ::dlclose(library_);
}

std::string Nvml::Explain(std::string_view call, Code code) const {
  const char* text = error_string_ != nullptr ? error_string_(code) : nullptr;
  return std::string(call) + ": " + (text != nullptr ? text : "NVML error") + " (" +
         std::to_string(static_cast<int>(code)) + ")";
}

}  // namespace gpushared::device::nvml
