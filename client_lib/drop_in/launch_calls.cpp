// SPDX-License-Identifier: Apache-2.0
// Launches of kernels.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/child_kernels.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/graph_work.h"
#include "client_lib/drop_in/log.h"
#include "client_lib/drop_in/occupancy.h"
#include "client_lib/drop_in/stream_scope.h"

namespace gpushared::drop_in {
namespace {

// Limit of the parameters that the calls of CUDA 3 can prepare.
constexpr std::size_t kLegacyParameterBytesMax = 4096;

// Returns the argument buffer in `extra`, or kInvalidValue.
Code GetBuffer(void** extra, std::span<const std::byte>& packed) {
  const void* data = nullptr;
  const std::size_t* bytes = nullptr;
  for (; *extra != reinterpret_cast<void*>(device::cuda::kLaunchEnd); extra += 2) {
    if (*extra == reinterpret_cast<void*>(device::cuda::kLaunchBuffer)) {
      data = extra[1];
    } else if (*extra == reinterpret_cast<void*>(device::cuda::kLaunchBufferBytes)) {
      bytes = static_cast<const std::size_t*>(extra[1]);
    } else {
      return Code::kInvalidValue;
    }
  }
  // The buffer of a kernel without parameters is empty and may be null.
  if (bytes == nullptr || (data == nullptr && *bytes != 0)) return Code::kInvalidValue;
  packed = {static_cast<const std::byte*>(data), *bytes};
  return Code::kSuccess;
}

// Parameters of a launch in the kernel's layout. Small ones are stored on the stack, so that most
// launches allocate no memory.
class PackedParameters {
 public:
  // Zero-initialized, so that padding does not leak memory of the program.
  explicit PackedParameters(const Kernel& kernel) : bytes_(kernel.parameter_bytes()) {
    if (bytes_ > few_.size()) many_.resize(bytes_);
    std::memset(data(), 0, bytes_);
  }

  std::byte* data() { return many_.empty() ? few_.data() : many_.data(); }
  std::span<std::byte> span() { return {data(), bytes_}; }

 private:
  static constexpr std::size_t kBytesOnStack = 512;
  const std::size_t bytes_;
  std::array<std::byte, kBytesOnStack> few_;  // Only the bytes in use are initialized.
  std::vector<std::byte> many_;
};

// A buffer may have excess padding at its end, or lack the final padding of the kernel's layout.
Code CopyBuffer(const Kernel& kernel, void** extra, std::span<std::byte> packed) {
  std::span<const std::byte> given;
  if (const Code code = GetBuffer(extra, given); code != Code::kSuccess) return code;
  const std::span<const KernelParameter> parameters = kernel.parameters();
  if (!parameters.empty() && given.size() < parameters.back().offset + parameters.back().bytes) {
    return Reject(Code::kInvalidValue, "launch rejected: kernel '" + kernel.name() + "' takes " +
                                           std::to_string(packed.size()) +
                                           " bytes of parameters, " + std::to_string(given.size()) +
                                           " were given");
  }
  std::copy_n(given.begin(), std::min(given.size(), packed.size()), packed.begin());
  return Code::kSuccess;
}

// `packed` is zero-initialized and has exactly the parameter bytes of the kernel.
Code Pack(const Kernel& kernel, void** values, void** extra, std::span<std::byte> packed) {
  if (values != nullptr && extra != nullptr) {
    return Reject(Code::kInvalidValue, "launch rejected: kernel '" + kernel.name() +
                                           "' was given parameters both as kernelParams and as "
                                           "extra; only one of them is allowed");
  }
  if (extra != nullptr) return CopyBuffer(kernel, extra, packed);
  if (values == nullptr && !kernel.parameters().empty()) {
    return Reject(Code::kInvalidValue, "launch rejected: kernel '" + kernel.name() + "' takes " +
                                           std::to_string(kernel.parameters().size()) +
                                           " parameters, none were given");
  }
  for (const KernelParameter& parameter : kernel.parameters()) {
    const void* const value = *values++;
    if (value == nullptr) {
      return Reject(Code::kInvalidValue, "launch rejected: kernel '" + kernel.name() +
                                             "' was given a parameter without data");
    }
    std::memcpy(packed.data() + parameter.offset, value, parameter.bytes);
  }
  return Code::kSuccess;
}

std::uint64_t GetCount(const Dim3& extent) { return std::uint64_t{extent.x} * extent.y * extent.z; }

std::string ShownExtent(const Dim3& extent) {
  return std::to_string(extent.x) + "x" + std::to_string(extent.y) + "x" + std::to_string(extent.z);
}

Code CheckCluster(const Kernel& kernel, const LaunchShape& shape) {
  const Dim3 required = kernel.required_cluster();
  const Dim3 given = shape.cluster;
  if (given.x != 0 && (given.x != required.x || given.y != required.y || given.z != required.z)) {
    return Reject(Code::kInvalidClusterSize, "launch rejected: kernel '" + kernel.name() +
                                                 "' asks for clusters of " + ShownExtent(given) +
                                                 " blocks, it was compiled for exactly " +
                                                 ShownExtent(required) + " (.reqnctapercluster)");
  }
  const Dim3& grid = shape.grid;
  if (grid.x % required.x == 0 && grid.y % required.y == 0 && grid.z % required.z == 0) {
    return Code::kSuccess;
  }
  return Reject(Code::kInvalidClusterSize, "launch rejected: kernel '" + kernel.name() +
                                               "' asks for a grid of " + ShownExtent(grid) +
                                               " blocks, which is not made of whole clusters of " +
                                               ShownExtent(required) + " (.reqnctapercluster)");
}

// All blocks of a cooperative launch must be on the device at the same time.
Code CheckCooperative(const DeviceProperties& device, const Kernel& kernel,
                      const LaunchShape& shape) {
  const std::uint64_t threads = GetCount(shape.block);
  // The client library rejects such blocks with a message about the limit.
  if (threads == 0 || threads > kernel.threads_per_block_max()) return Code::kSuccess;
  const OccupancyLimits limits = GetOccupancyLimits(device, kernel);
  const int fitting = BlocksFitting(limits, static_cast<int>(threads), shape.dynamic_shared_bytes);
  const auto most =
      static_cast<std::uint64_t>(fitting) * static_cast<std::uint64_t>(limits.multiprocessors);
  if (GetCount(shape.grid) <= most) return Code::kSuccess;
  return Reject(Code::kCooperativeLaunchTooLarge,
                "launch rejected: kernel '" + kernel.name() + "' asks for a cooperative grid of " +
                    ShownExtent(shape.grid) + " blocks, device " + device.id + " allows " +
                    std::to_string(most) + ": " + std::to_string(fitting) + " on each of " +
                    std::to_string(limits.multiprocessors) + " multiprocessors");
}

// Checks the rules that the driver enforces but the server does not, because it does not have the
// function attributes. Clusters of one block are treated as none, because devices without clusters
// accept them.
Code CheckLaunchShape(const DeviceProperties& device, const CudaKernel& kernel,
                      const Kernel& loaded, LaunchShape& shape) {
  if (shape.dynamic_shared_bytes != 0) {
    const auto most = static_cast<std::uint32_t>(DynamicSharedMax(device, kernel, loaded));
    if (shape.dynamic_shared_bytes > most) {
      return Reject(Code::kInvalidValue,
                    "launch rejected: kernel '" + loaded.name() + "' asks for " +
                        std::to_string(shape.dynamic_shared_bytes) +
                        " bytes of dynamic shared memory, its attribute "
                        "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES allows " +
                        std::to_string(most));
    }
  }
  if (loaded.required_cluster().x != 0) [[unlikely]] {
    if (const Code code = CheckCluster(loaded, shape); code != Code::kSuccess) return code;
  }
  if (GetCount(shape.cluster) == 1) shape.cluster = {0, 0, 0};
  return shape.is_cooperative ? CheckCooperative(device, loaded, shape) : Code::kSuccess;
}

// Sets `on_device` to the device address of a byte of page-locked memory and adds the memory to
// `use`; sets it to 0 if the address is not in page-locked memory.
Code ReachHost(Session& session, std::uint64_t address, MirrorUse& use, std::uint64_t& on_device) {
  on_device = 0;
  AddressBook& addresses = session.addresses();
  const std::optional<Block> block = addresses.Find(address);
  if (!block || !block->is_reached_on_demand()) return Code::kSuccess;
  std::shared_ptr<Mirror> twin = addresses.Twin(block->address);
  if (twin == nullptr) {
    void* const host = reinterpret_cast<void*>(block->address);
    Result<std::shared_ptr<Mirror>> made =
        Mirror::Of(session.client(), host, block->bytes, Sharing::kOnDemand);
    if (!made.ok()) return session.GetCode(made.status());
    // Adds the mirror here, before SetTwin lets other threads find it.
    session.mirrored().Add(*made);
    twin = addresses.SetTwin(block->address, *made);
    if (twin == nullptr) return Code::kSuccess;
  }
  on_device = twin->address() + (address - block->address);
  use.named.push_back({std::move(twin)});
  return Code::kSuccess;
}

// With CUDA's unified addressing, kernels can access all page-locked memory at the program's
// address. Replaces each aligned 8-byte word of the parameters that is an address in page-locked
// memory by the device address.
Code ReachHostOf(Session& session, std::span<std::byte> packed, MirrorUse& use) {
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= packed.size();
       at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0, on_device = 0;
    std::memcpy(&word, packed.data() + at, sizeof word);
    const Code code = ReachHost(session, word, use, on_device);
    if (code != Code::kSuccess) return code;
    if (on_device == 0) continue;
    std::memcpy(packed.data() + at, &on_device, sizeof on_device);
  }
  return Code::kSuccess;
}

Code CaptureLaunch(const StreamChoice& stream, FunctionHandle function, const LaunchShape& shape,
                   void** parameters, void** extra) {
  KernelWork work;
  const Code code = MakeKernelWork(function, shape, parameters, extra, work);
  return code == Code::kSuccess ? stream.Capture(std::move(work)) : code;
}

// `use` is an output.
Code SubmitLoaded(const StreamChoice& stream, const Kernel& kernel, const LaunchShape& shape,
                  void** parameters, void** extra, MirrorUse& use) {
  PackedParameters packed(kernel);
  if (const Code code = Pack(kernel, parameters, extra, packed.span()); code != Code::kSuccess) {
    return code;
  }
  Session& session = stream->context().session();
  if (session.addresses().has_had_host()) [[unlikely]] {
    const Code code = ReachHostOf(session, packed.span(), use);
    if (code != Code::kSuccess) return code;
  }
  use.is_kernel = true;
  return stream.Run(
      [&](const Stream& queue) { return queue.LaunchPacked(kernel, shape, packed.span()); }, use);
}

// The launch ends only when all kernels that its kernel launched have ended.
Code SubmitParent(const StreamChoice& stream, CudaModule& module, const Kernel& kernel,
                  const LaunchShape& shape, void** parameters, void** extra) {
  const Result<Module> loaded = module.In(stream->context().shared_session());
  if (!loaded.ok()) return stream->context().session().GetCode(loaded.status());
  const MutexLock lock(module.children_mutex);
  MirrorUse use;
  const Code code = SubmitLoaded(stream, kernel, shape, parameters, extra, use);
  return code == Code::kSuccess ? LaunchChildren(stream, *loaded, use) : code;
}

Code Submit(FunctionHandle function, LaunchShape shape, StreamHandle handle, void** parameters,
            void** extra) {
  const Current current;
  const StreamChoice stream(current, handle);
  if (!stream.ok()) return stream.code();
  if (stream.is_captured()) [[unlikely]]
    return CaptureLaunch(stream, function, shape, parameters, extra);
  const std::shared_ptr<CudaKernel> kernel = Driver::Get().kernels.Find(function);
  if (kernel == nullptr) return Code::kInvalidHandle;
  const Result<Kernel> loaded = kernel->In(*current);
  if (!loaded.ok()) return current.GetCode(loaded.status());
  const DeviceProperties& device = current->session().client().device();
  if (const Code code = CheckLaunchShape(device, *kernel, *loaded, shape); code != Code::kSuccess) {
    return code;
  }
  if (kernel->module->starts_kernels()) [[unlikely]]
    return SubmitParent(stream, *kernel->module, *loaded, shape, parameters, extra);
  MirrorUse use;
  return SubmitLoaded(stream, *loaded, shape, parameters, extra, use);
}

// Applies launch attributes. Hints are ignored; attributes that are neither hints nor supported are
// kNotSupported.
Code ApplyAttributes(const LaunchConfig& config, LaunchShape& shape) {
  if (config.attribute_count != 0 && config.attributes == nullptr) return Code::kInvalidValue;
  for (unsigned i = 0; i < config.attribute_count; ++i) {
    const LaunchAttribute& attribute = config.attributes[i];
    switch (static_cast<int>(attribute.id)) {
      case 0:   // Ignore.
      case 1:   // Access policy window.
      case 3:   // Synchronization policy of waits.
      case 5:   // Cluster scheduling preference.
      case 6:   // Programmatic overlap with the previous launch.
      case 8:   // Priority among the streams of one program.
      case 9:   // Map of memory synchronization domains.
      case 10:  // Memory synchronization domain.
      case 14:  // Preferred shared memory carveout.
        break;
      case 2:
        shape.is_cooperative = attribute.value.cooperative != 0;
        break;
      case 4:
        shape.cluster = {attribute.value.cluster.x, attribute.value.cluster.y,
                         attribute.value.cluster.z};
        break;
      default:
        return Reject(Code::kNotSupported, "launch rejected: attribute " +
                                               std::to_string(static_cast<int>(attribute.id)) +
                                               " is not supported");
    }
  }
  return Code::kSuccess;
}

// Calls `change` with the launch that the CUDA 3 calls prepare.
template <typename Change>
Code Prepare(FunctionHandle function, const Change& change) {
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  const std::shared_ptr<CudaKernel> kernel = Driver::Get().kernels.Find(function);
  if (kernel == nullptr) return Code::kInvalidHandle;
  const MutexLock lock(kernel->legacy_mutex);
  return change(kernel->legacy);
}

Code LaunchPrepared(FunctionHandle function, int width, int height, StreamHandle stream) {
  CudaKernel::LegacyLaunch launch;
  const Code code = Prepare(function, [&](const CudaKernel::LegacyLaunch& prepared) {
    launch = prepared;
    return Code::kSuccess;
  });
  if (code != Code::kSuccess) return code;
  if (width <= 0 || height <= 0) return Code::kInvalidValue;
  std::size_t bytes = launch.parameters.size();
  void* extra[] = {reinterpret_cast<void*>(device::cuda::kLaunchBuffer), launch.parameters.data(),
                   reinterpret_cast<void*>(device::cuda::kLaunchBufferBytes), &bytes,
                   reinterpret_cast<void*>(device::cuda::kLaunchEnd)};
  const auto as_unsigned = [](int value) { return static_cast<std::uint32_t>(value); };
  const LaunchShape shape{.grid = {as_unsigned(width), as_unsigned(height), 1},
                          .block = {as_unsigned(launch.block[0]), as_unsigned(launch.block[1]),
                                    as_unsigned(launch.block[2])},
                          .dynamic_shared_bytes = launch.shared_bytes};
  return Submit(function, shape, stream, nullptr, launch.parameters.empty() ? nullptr : extra);
}

}  // namespace

Code MakeKernelWork(FunctionHandle function, const LaunchShape& shape, void** parameters,
                    void** extra, KernelWork& work) {
  const Current current;
  if (!current.ok()) return current.code();
  const std::shared_ptr<CudaKernel> kernel = Driver::Get().kernels.Find(function);
  if (kernel == nullptr) return Code::kInvalidHandle;
  const Result<Kernel> loaded = kernel->In(*current);
  if (!loaded.ok()) return current.GetCode(loaded.status());
  for (const Dim3& size : {shape.grid, shape.block}) {
    if (size.x == 0 || size.y == 0 || size.z == 0) return Code::kInvalidValue;
  }
  work.function = function;
  work.shape = shape;
  const DeviceProperties& device = current->session().client().device();
  if (const Code code = CheckLaunchShape(device, *kernel, *loaded, work.shape);
      code != Code::kSuccess) {
    return code;
  }
  work.layout.assign(loaded->parameters().begin(), loaded->parameters().end());
  work.packed.assign(loaded->parameter_bytes(), std::byte{0});
  return Pack(*loaded, parameters, extra, work.packed);
}

Code Replay(const KernelWork& work, StreamHandle stream) {
  std::size_t bytes = work.packed.size();
  void* extra[] = {reinterpret_cast<void*>(device::cuda::kLaunchBuffer),
                   const_cast<std::byte*>(work.packed.data()),
                   reinterpret_cast<void*>(device::cuda::kLaunchBufferBytes), &bytes,
                   reinterpret_cast<void*>(device::cuda::kLaunchEnd)};
  return Submit(work.function, work.shape, stream, nullptr, bytes == 0 ? nullptr : extra);
}

Code LaunchKernel(FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                  StreamHandle stream, void** parameters, void** extra) {
  return Submit(function,
                {.grid = {grid_x, grid_y, grid_z},
                 .block = {block_x, block_y, block_z},
                 .dynamic_shared_bytes = shared_bytes},
                stream, parameters, extra);
}

Code LaunchCooperativeKernel(FunctionHandle function, unsigned grid_x, unsigned grid_y,
                             unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned shared_bytes, StreamHandle stream, void** parameters) {
  return Submit(function,
                {.grid = {grid_x, grid_y, grid_z},
                 .block = {block_x, block_y, block_z},
                 .dynamic_shared_bytes = shared_bytes,
                 .is_cooperative = true},
                stream, parameters, nullptr);
}

Code LaunchKernelEx(const LaunchConfig* config, FunctionHandle function, void** parameters,
                    void** extra) {
  if (AnyNull(config)) return Code::kInvalidValue;
  LaunchShape shape{.grid = {config->grid_x, config->grid_y, config->grid_z},
                    .block = {config->block_x, config->block_y, config->block_z},
                    .dynamic_shared_bytes = config->shared_bytes};
  if (const Code code = ApplyAttributes(*config, shape); code != Code::kSuccess) return code;
  const StreamScope scope(config->stream);
  return Submit(function, shape, config->stream, parameters, extra);
}

// ---- calls of CUDA 3, which prepare a launch step by step

Code FuncSetBlockShape(FunctionHandle function, int x, int y, int z) {
  if (x <= 0 || y <= 0 || z <= 0) return Code::kInvalidValue;
  return Prepare(function, [&](CudaKernel::LegacyLaunch& launch) {
    launch.block[0] = x;
    launch.block[1] = y;
    launch.block[2] = z;
    return Code::kSuccess;
  });
}

Code FuncSetSharedSize(FunctionHandle function, unsigned bytes) {
  return Prepare(function, [&](CudaKernel::LegacyLaunch& launch) {
    launch.shared_bytes = bytes;
    return Code::kSuccess;
  });
}

Code ParamSetSize(FunctionHandle function, unsigned bytes) {
  if (bytes > kLegacyParameterBytesMax) return Code::kInvalidValue;
  return Prepare(function, [&](CudaKernel::LegacyLaunch& launch) {
    launch.parameters.resize(bytes);
    return Code::kSuccess;
  });
}

Code ParamSetv(FunctionHandle function, int offset, void* value, unsigned bytes) {
  if (AnyNull(value) || offset < 0 || bytes > kLegacyParameterBytesMax ||
      static_cast<std::size_t>(offset) > kLegacyParameterBytesMax - bytes) {
    return Code::kInvalidValue;
  }
  return Prepare(function, [&](CudaKernel::LegacyLaunch& launch) {
    const std::size_t end = static_cast<std::size_t>(offset) + bytes;
    if (launch.parameters.size() < end) launch.parameters.resize(end);
    if (bytes > 0) std::memcpy(launch.parameters.data() + offset, value, bytes);
    return Code::kSuccess;
  });
}

Code ParamSeti(FunctionHandle function, int offset, unsigned value) {
  return ParamSetv(function, offset, &value, sizeof value);
}

Code ParamSetf(FunctionHandle function, int offset, float value) {
  return ParamSetv(function, offset, &value, sizeof value);
}

Code Launch(FunctionHandle function) { return LaunchPrepared(function, 1, 1, nullptr); }
Code LaunchGrid(FunctionHandle function, int width, int height) {
  return LaunchPrepared(function, width, height, nullptr);
}
Code LaunchGridAsync(FunctionHandle function, int width, int height, StreamHandle stream) {
  return LaunchPrepared(function, width, height, stream);
}

}  // namespace gpushared::drop_in
