// SPDX-License-Identifier: Apache-2.0
// Modules of a session: loading, and unloading once no command needs them.
#include <string>
#include <utility>

#include "client_lib/session.h"
#include "ipc/shared_segment.h"

namespace gpushared::client {

namespace {

void FillModule(ModuleState& module, ipc::ModuleLoaded loaded) {
  module.kernels.reserve(loaded.kernels.size());
  for (ipc::KernelDescription& kernel : loaded.kernels) {
    KernelState& state = module.kernels.emplace_back();
    state.module_number = loaded.module;
    state.index = static_cast<std::uint32_t>(module.kernels.size() - 1);
    state.parameter_bytes = kernel.parameter_bytes;
    state.static_shared_bytes = kernel.static_shared_bytes;
    state.threads_per_block_max = kernel.threads_per_block_max;
    state.required_block = kernel.required_block;
    state.required_cluster = kernel.required_cluster;
    state.attributes = {.registers = kernel.attributes.registers,
                        .local_bytes = kernel.attributes.local_bytes,
                        .constant_bytes = kernel.attributes.constant_bytes,
                        .dynamic_shared_bytes_max = kernel.attributes.dynamic_shared_bytes_max,
                        .ptx_version = kernel.attributes.ptx_version,
                        .binary_version = kernel.attributes.binary_version};
    state.session = module.session.get();
    state.name = std::move(kernel.name);
    state.unsupported = std::move(kernel.unsupported);
    state.parameters.reserve(kernel.parameters.size());
    for (const ipc::ParameterDescription& parameter : kernel.parameters) {
      state.parameters.push_back({.offset = parameter.offset, .bytes = parameter.bytes});
    }
  }
  module.variables.reserve(loaded.variables.size());
  for (ipc::VariableDescription& variable : loaded.variables) {
    module.variables.push_back({.name = std::move(variable.name),
                                .address = variable.address,
                                .bytes = variable.bytes,
                                .is_constant = variable.space == ipc::VariableSpace::kConstant});
  }
}

// Launches copy arguments to these offsets, so the layout is checked once, here.
bool LayoutMakesSense(const ipc::ModuleLoaded& loaded) {
  for (const ipc::KernelDescription& kernel : loaded.kernels) {
    if (kernel.parameter_bytes > kParameterBytesMax) return false;
    for (const ipc::ParameterDescription& parameter : kernel.parameters) {
      if (parameter.offset > kernel.parameter_bytes ||
          parameter.bytes > kernel.parameter_bytes - parameter.offset) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

Result<std::uint32_t> Session::TakeModuleNumber() {
  const MutexLock lock(modules_mutex_);
  for (std::uint32_t number = 0; number < ipc::kModulesMax; ++number) {
    if (module_used_[number]) continue;
    module_used_[number] = true;
    return number;
  }
  return Status(StatusCode::kLimitExceeded,
                "module load rejected: " + std::to_string(ipc::kModulesMax) +
                    " modules are loaded, more are not allowed");
}

Result<ipc::ModuleLoaded> Session::AskToLoad(std::uint32_t number,
                                             std::span<const std::byte> image) {
  // Held until the server has answered the load, because it holds one image per session at a time.
  const MutexLock lock(image_mutex_);
  std::vector<ipc::UniqueFd> fds;
  const Result<ipc::ImageMade> made =
      data_->connection->Ask<ipc::ImageMade>(ipc::MakeImage{.bytes = image.size()}, {}, &fds);
  if (!made.ok()) return made.status();
  // The image is written instead of mapped, so that a lack of memory is an error and not a SIGBUS.
  if (Status written = ipc::WriteMemory(fds.front().get(), image); !written.ok()) return written;
  fds.clear();
  return data_->connection->Ask<ipc::ModuleLoaded>(
      ipc::LoadModule{.module = number, .bytes = image.size()});
}

Result<std::shared_ptr<const ModuleState>> Session::LoadModule(std::span<const std::byte> image) {
  if (Status status = Usable(); !status.ok()) return status;
  if (image.empty() || image.size() > ipc::kModuleImageBytesMax) {
    return Status(StatusCode::kInvalidArgument,
                  "module load rejected: the image has " + std::to_string(image.size()) +
                      " bytes, allowed: 1 to " + std::to_string(ipc::kModuleImageBytesMax));
  }
  // All unloads that are possible now are sent first, because modules that have not been unloaded
  // count against the limit of the server.
  while (!ReapModules()) {
    if (Status status = data_->connection->AwaitPosted(); !status.ok()) return status;
  }
  const Result<std::uint32_t> number = TakeModuleNumber();
  if (!number.ok()) return number.status();
  Result<ipc::ModuleLoaded> loaded = AskToLoad(*number, image);
  Status status = loaded.status();
  if (loaded.ok() && (loaded->module != *number || !LayoutMakesSense(*loaded))) {
    status = Status(StatusCode::kProtocolViolation, "session ended: the server described module " +
                                                        std::to_string(*number) +
                                                        " with an invalid layout");
    data_->connection->End(status);
  }
  if (!status.ok()) {
    const MutexLock lock(modules_mutex_);
    module_used_[*number] = false;
    return status;
  }
  auto module = std::make_shared<ModuleState>();
  module->number = *number;
  module->session = shared_from_this();
  FillModule(*module, std::move(*loaded));
  return std::shared_ptr<const ModuleState>(std::move(module));
}

void Session::UnloadModule(std::uint32_t number) {
  if (!InOwner()) return;
  {
    const MutexLock lock(modules_mutex_);
    retired_modules_.push_back({.fence = progress().Unfinished(), .number = number});
    has_retired_modules_.store(true, std::memory_order_relaxed);
  }
  ReapModules();
}

bool Session::ReapModules() {
  const MutexLock lock(modules_mutex_);
  bool may_post = true;
  std::erase_if(
      retired_modules_, [&](const RetiredModule& retired) GPUSHARED_REQUIRES(modules_mutex_) {
        if (!may_post || !progress().HasEnded(retired.fence)) return false;
        may_post = data_->connection->TryPost(ipc::UnloadModule{.module = retired.number});
        // The number is free immediately, because the socket preserves the order of this unload and
        // the next load.
        if (may_post) module_used_[retired.number] = false;
        return may_post;
      });
  has_retired_modules_.store(!retired_modules_.empty(), std::memory_order_relaxed);
  return may_post;
}

}  // namespace gpushared::client
