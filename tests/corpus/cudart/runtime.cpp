// SPDX-License-Identifier: Apache-2.0
#include "tests/corpus/cudart/runtime.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "common/ptx/text/fatbin.h"

namespace gpushared::cudart {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

// The structure that nvcc's host code registers: a pointer to the fatbin, which contains its own
// size.
struct FatbinWrapper {
  std::uint32_t magic, version;
  const std::byte* fatbin;
};

std::span<const std::byte> ToFatbin(const void* wrapper) {
  FatbinWrapper header{};
  std::memcpy(&header, wrapper, sizeof header);
  std::uint16_t header_bytes = 0;
  std::uint64_t content_bytes = 0;
  std::memcpy(&header_bytes, header.fatbin + 6, sizeof header_bytes);
  std::memcpy(&content_bytes, header.fatbin + 8, sizeof content_bytes);
  return {header.fatbin, static_cast<std::size_t>(header_bytes + content_bytes)};
}

// Kernels that are appended to modules with variables.
constexpr char kAddressKernel[] = "gpushared_cudart_addresses";
constexpr char kCopyKernel[] = "gpushared_cudart_copy";
constexpr std::uint32_t kCopyThreads = 256;

// Copies byte i of `from` to byte i of `to` in one block.
constexpr char kCopyPtx[] = R"(
.visible .entry gpushared_cudart_copy(.param .u64 to, .param .u64 from, .param .u64 bytes)
{
  .reg .pred %p<2>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<7>;
  ld.param.u64 %rd1, [to];
  ld.param.u64 %rd2, [from];
  ld.param.u64 %rd3, [bytes];
  mov.u32 %r1, %tid.x;
  cvt.u64.u32 %rd4, %r1;
again:
  setp.ge.u64 %p1, %rd4, %rd3;
  @%p1 ret;
  add.u64 %rd5, %rd2, %rd4;
  ld.u8 %r2, [%rd5];
  add.u64 %rd6, %rd1, %rd4;
  st.u8 [%rd6], %r2;
  add.u64 %rd4, %rd4, 256;
  bra again;
}
)";

cudaError_t GetError(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return cudaSuccess;
    case StatusCode::kInvalidArgument:
      return cudaErrorInvalidValue;
    case StatusCode::kNotFound:
      return cudaErrorInvalidDeviceFunction;
    case StatusCode::kOutOfMemory:
      return cudaErrorMemoryAllocation;
    case StatusCode::kUnsupported:
      return cudaErrorNotSupported;
    case StatusCode::kNotReady:
      return cudaErrorNotReady;
    case StatusCode::kKernelFault:
      return cudaErrorLaunchFailure;
    case StatusCode::kUnavailable:
    case StatusCode::kPermissionDenied:
    case StatusCode::kVersionMismatch:
      return cudaErrorInitializationError;
    default:
      return cudaErrorUnknown;
  }
}

Status NoStream() { return {StatusCode::kInvalidArgument, "no such stream, or no server"}; }

Status CopyRows(void* to, const void* from, const CopyShape& shape, cudaMemcpyKind kind,
                const Stream& stream) {
  const auto device_to = reinterpret_cast<DeviceAddress>(to);
  const auto device_from = reinterpret_cast<DeviceAddress>(from);
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return stream.CopyToDevice2d(device_to, from, shape);
    case cudaMemcpyDeviceToHost:
      return stream.CopyToHost2d(to, device_from, shape);
    case cudaMemcpyDeviceToDevice:
      return stream.CopyOnDevice2d(device_to, device_from, shape);
    default: {
      for (std::size_t row = 0; row < shape.height; ++row) {
        std::memcpy(static_cast<char*>(to) + row * shape.destination_pitch_bytes,
                    static_cast<const char*>(from) + row * shape.source_pitch_bytes,
                    shape.width_bytes);
      }
      return {};
    }
  }
}

// Whether the two ends of a copy are on the device.
struct Ends {
  bool to_device = false, from_device = false;

  cudaMemcpyKind Kind() const {
    if (!to_device) return from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
    return from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  }
};

}  // namespace

struct Runtime::Module {
  struct NamedVariable {
    std::string name;
    const void* host = nullptr;
    std::size_t bytes = 0;
    bool is_constant = false;
    DeviceAddress address = 0;
  };

  const void* wrapper = nullptr;
  std::vector<NamedVariable> variables;
  gpushared::Module loaded;  // Valid once a kernel or variable of the module has been needed.
  int target = 0;
};

struct Runtime::OrderedStream {
  Stream stream;
  Event order;
  bool is_blocking = true;
  bool is_ahead = false;  // Has commands that the default stream has not waited for.
  // Value of default_commands_ when this stream last waited for the default stream.
  std::uint64_t waited_for_commands = 0;
};

cudaError_t Noted(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

cudaError_t Noted(const Status& status) {
  static std::atomic<int> messages{0};
  if (!status.ok() && status.code() != StatusCode::kNotReady && messages++ < kMessagesMax)
    std::fprintf(stderr, "cudart: %s\n", status.ToString().c_str());
  return Noted(GetError(status.code()));
}

cudaError_t LastError(bool takes) {
  return takes ? std::exchange(last_error, cudaSuccess) : last_error;
}

Runtime& Runtime::Instance() {
  static Runtime* const runtime = new Runtime;
  return *runtime;
}

// ---- modules

void* Runtime::RegisterFatbin(const void* wrapper) {
  modules_.push_back(std::make_unique<Module>());
  modules_.back()->wrapper = wrapper;
  return modules_.back().get();
}

void Runtime::RegisterFunction(void* module, const void* host_function, const char* name) {
  functions_[host_function] = {static_cast<Module*>(module), name, {}};
}

void Runtime::RegisterVariable(void* module, const void* host_variable, const char* name,
                               std::size_t bytes, bool is_constant) {
  Module* const owner = static_cast<Module*>(module);
  owner->variables.push_back({name, host_variable, bytes, is_constant, 0});
  variables_[host_variable] = owner;
}

const Client* Runtime::Connected() {
  const std::lock_guard lock(mutex_);
  if (!client_) {
    Result<Client> client = Client::Connect({});
    if (!client.ok()) {
      Noted(client.status());
      return nullptr;
    }
    Result<Event> order = client->CreateEvent();
    if (!order.ok()) {
      Noted(order.status());
      return nullptr;
    }
    default_stream_ = client->default_stream();
    default_order_ = *std::move(order);
    client_ = *std::move(client);
  }
  return &*client_;
}

Status Runtime::Load(Module& module) {
  if (module.loaded.valid()) return {};
  const Client* const client = Connected();
  if (client == nullptr) return {StatusCode::kUnavailable, "no server"};
  Result<std::string> text = ptx::ExtractPtx(ToFatbin(module.wrapper));
  if (!text.ok()) return text.status();
  const std::size_t target = text->find(".target sm_");
  if (target != std::string::npos) module.target = std::atoi(text->c_str() + target + 11);
  // Some versions terminate the text with a zero.
  text->resize(std::strlen(text->c_str()));
  if (!module.variables.empty()) {
    *text += "\n.visible .entry " + std::string(kAddressKernel) +
             "(.param .u64 out)\n{\n.reg .b64 %rd<4>;\nld.param.u64 %rd1, [out];\n";
    for (std::size_t i = 0; i < module.variables.size(); ++i) {
      const Module::NamedVariable& variable = module.variables[i];
      *text += "mov.u64 %rd2, " + variable.name + ";\ncvta." +
               (variable.is_constant ? "const" : "global") + ".u64 %rd3, %rd2;\nst.u64 [%rd1+" +
               std::to_string(8 * i) + "], %rd3;\n";
    }
    *text += "ret;\n}\n" + std::string(kCopyPtx);
  }
  Result<gpushared::Module> loaded = client->LoadModule(std::string_view(*text));
  if (!loaded.ok()) return loaded.status();
  module.loaded = *std::move(loaded);
  return FindAddresses(module);
}

Status Runtime::FindAddresses(Module& module) {
  if (module.variables.empty()) return {};
  std::vector<std::uint64_t> addresses(module.variables.size());
  const Result<Kernel> kernel = module.loaded.GetKernel(kAddressKernel);
  const Result<DeviceBuffer> out = client_->AllocateDevice(addresses.size() * sizeof addresses[0]);
  if (!kernel.ok()) return kernel.status();
  if (!out.ok()) return out.status();
  Status status = default_stream_.Launch(*kernel, {}, *out);
  if (status.ok()) status = default_stream_.CopyToHost(addresses.data(), *out, out->size());
  for (std::size_t i = 0; i < addresses.size(); ++i) module.variables[i].address = addresses[i];
  return status;
}

int Runtime::TargetVersion() {
  const std::lock_guard lock(mutex_);
  int target = 0;
  for (const auto& module : modules_) {
    if (Load(*module).ok()) target = std::max(target, module->target);
  }
  return target == 0 ? 75 : target;
}

Result<Kernel> Runtime::FindKernel(const void* host_function) {
  const std::lock_guard lock(mutex_);
  const auto found = functions_.find(host_function);
  if (found == functions_.end())
    return Status(StatusCode::kNotFound, "this function was never registered as a kernel");
  Function& function = found->second;
  if (!function.kernel.valid()) {
    if (Status status = Load(*function.module); !status.ok()) return status;
    Result<Kernel> kernel = function.module->loaded.GetKernel(function.name);
    if (!kernel.ok()) return kernel.status();
    function.kernel = *std::move(kernel);
  }
  return function.kernel;
}

Result<Runtime::Variable> Runtime::FindVariable(const void* host_variable) {
  const std::lock_guard lock(mutex_);
  const auto found = variables_.find(host_variable);
  if (found == variables_.end())
    return Status(StatusCode::kNotFound, "this variable was never registered");
  if (Status status = Load(*found->second); !status.ok()) return status;
  for (const Module::NamedVariable& variable : found->second->variables) {
    if (variable.host == host_variable) return Variable{variable.address, variable.bytes};
  }
  return Status(StatusCode::kNotFound, "this variable is in no module");
}

Status Runtime::Launch(const void* host_function, const LaunchSpec& spec) {
  const Result<Kernel> kernel = FindKernel(host_function);
  if (!kernel.ok()) return kernel.status();
  const Stream* const stream = Ordered(spec.stream);
  if (stream == nullptr) return NoStream();
  std::vector<LaunchArgument> arguments;
  for (const KernelParameter& parameter : kernel->parameters())
    arguments.push_back({spec.arguments[arguments.size()], parameter.bytes});
  return stream->LaunchWith(*kernel, spec.shape, arguments);
}

// ---- memory

Result<void*> Runtime::Allocate(std::size_t bytes) {
  const Client* const client = Connected();
  if (client == nullptr) return Status(StatusCode::kUnavailable, "no server");
  Result<DeviceBuffer> buffer = client->AllocateDevice(std::max<std::size_t>(1, bytes));
  if (!buffer.ok()) return buffer.status();
  const std::lock_guard lock(mutex_);
  const DeviceAddress address = buffer->address();
  memory_[address] = *std::move(buffer);
  return reinterpret_cast<void*>(address);
}

Status Runtime::Free(void* memory) {
  if (memory == nullptr) return {};
  const std::lock_guard lock(mutex_);
  if (memory_.erase(reinterpret_cast<std::uint64_t>(memory)) == 1) return {};
  return {StatusCode::kInvalidArgument, "free of what was never allocated"};
}

void* Runtime::AllocateHost(std::size_t bytes) {
  const Client* const client = Connected();
  if (client != nullptr) {
    Result<HostBuffer> buffer = client->AllocateHost(std::max<std::size_t>(1, bytes));
    if (buffer.ok()) {
      const std::lock_guard lock(mutex_);
      void* const address = buffer->data();
      host_memory_[address] = *std::move(buffer);
      return address;
    }
  }
  return std::malloc(bytes);
}

void Runtime::FreeHost(void* memory) {
  const std::lock_guard lock(mutex_);
  if (host_memory_.erase(memory) == 0) std::free(memory);
}

bool Runtime::IsOnDevice(const void* memory) {
  const std::lock_guard lock(mutex_);
  const DeviceAddress address = reinterpret_cast<std::uint64_t>(memory);
  if (ModuleAt(address) != nullptr) return true;
  const auto after = memory_.upper_bound(address);
  if (after == memory_.begin()) return false;
  const DeviceBuffer& buffer = std::prev(after)->second;
  return address - buffer.address() < buffer.size();
}

Runtime::Module* Runtime::ModuleAt(DeviceAddress address) {
  for (const auto& module : modules_) {
    for (const Module::NamedVariable& variable : module->variables) {
      if (variable.address != 0 && address - variable.address < variable.bytes) return module.get();
    }
  }
  return nullptr;
}

Status Runtime::CopyByKernel(DeviceAddress to, DeviceAddress from, std::size_t bytes,
                             const Stream& stream) {
  Result<Kernel> kernel = Status(StatusCode::kNotFound, "no variable is there");
  {
    const std::lock_guard lock(mutex_);
    Module* module = ModuleAt(to);
    if (module == nullptr) module = ModuleAt(from);
    if (module != nullptr) kernel = module->loaded.GetKernel(kCopyKernel);
  }
  if (!kernel.ok()) return kernel.status();
  return stream.Launch(*kernel, {.block = {kCopyThreads, 1, 1}}, to, from, std::uint64_t{bytes});
}

Status Runtime::Copy(void* to, const void* from, const CopyShape& shape, cudaMemcpyKind kind,
                     cudaStream_t stream_handle) {
  if (shape.width_bytes == 0 || shape.height == 0) return {};
  const bool is_default = kind == cudaMemcpyDefault;
  const bool within_device = kind == cudaMemcpyDeviceToDevice;
  const Ends ends = {
      is_default ? IsOnDevice(to) : within_device || kind == cudaMemcpyHostToDevice,
      is_default ? IsOnDevice(from) : within_device || kind == cudaMemcpyDeviceToHost};
  const Stream* const stream = Ordered(stream_handle);
  if (stream == nullptr) return NoStream();
  const auto device_to = reinterpret_cast<DeviceAddress>(to);
  const auto device_from = reinterpret_cast<DeviceAddress>(from);
  const auto is_variable = [this](DeviceAddress address) {
    const std::lock_guard lock(mutex_);
    return ModuleAt(address) != nullptr;
  };
  const bool reaches_variable =
      (ends.to_device && is_variable(device_to)) || (ends.from_device && is_variable(device_from));
  if (!reaches_variable) return CopyRows(to, from, shape, ends.Kind(), *stream);
  if (shape.height != 1)
    return {StatusCode::kUnsupported, "copies of several rows to or from module variables"};
  const std::size_t bytes = shape.width_bytes;
  if (ends.to_device && ends.from_device)
    return CopyByKernel(device_to, device_from, bytes, *stream);
  // Copies through a temporary buffer, because copy commands cannot access module variables.
  const Result<DeviceBuffer> between = client_->AllocateDevice(bytes);
  if (!between.ok()) return between.status();
  if (ends.to_device) {
    const Status copied = stream->CopyToDevice(*between, from, bytes);
    return copied.ok() ? CopyByKernel(device_to, *between, bytes, *stream) : copied;
  }
  const Status copied = CopyByKernel(*between, device_from, bytes, *stream);
  return copied.ok() ? stream->CopyToHost(to, *between, bytes) : copied;
}

// ---- order

const Stream* Runtime::Ordered(cudaStream_t handle) {
  const std::lock_guard lock(mutex_);
  if (Connected() == nullptr) return nullptr;
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
    for (const auto& [key, other] : streams_) {
      if (!other->is_blocking || !other->is_ahead) continue;
      if (other->stream.Record(other->order).ok()) (void)default_stream_.Wait(other->order);
      other->is_ahead = false;
    }
    ++default_commands_;
    return &default_stream_;
  }
  const auto found = streams_.find(handle);
  if (found == streams_.end()) return nullptr;
  OrderedStream& ordered = *found->second;
  if (ordered.is_blocking && ordered.waited_for_commands != default_commands_) {
    if (default_stream_.Record(default_order_).ok()) (void)ordered.stream.Wait(default_order_);
    ordered.waited_for_commands = default_commands_;
  }
  ordered.is_ahead = true;
  return &ordered.stream;
}

Result<cudaStream_t> Runtime::AddStream(bool is_blocking) {
  const std::lock_guard lock(mutex_);
  if (Connected() == nullptr) return NoStream();
  Result<Stream> stream = client_->CreateStream();
  if (!stream.ok()) return stream.status();
  Result<Event> order = client_->CreateEvent();
  if (!order.ok()) return order.status();
  auto ordered = std::make_unique<OrderedStream>();
  ordered->stream = *std::move(stream);
  ordered->order = *std::move(order);
  ordered->is_blocking = is_blocking;
  const auto handle = reinterpret_cast<cudaStream_t>(ordered.get());
  streams_[handle] = std::move(ordered);
  return handle;
}

Status Runtime::RemoveStream(cudaStream_t handle) {
  const std::lock_guard lock(mutex_);
  return streams_.erase(handle) == 1 ? Status() : NoStream();
}

Result<cudaEvent_t> Runtime::AddEvent(EventTiming timing) {
  const std::lock_guard lock(mutex_);
  if (Connected() == nullptr) return NoStream();
  Result<Event> event = client_->CreateEvent(timing);
  if (!event.ok()) return event.status();
  auto owned = std::make_unique<Event>(*std::move(event));
  const auto handle = reinterpret_cast<cudaEvent_t>(owned.get());
  events_[handle] = std::move(owned);
  return handle;
}

Status Runtime::RemoveEvent(cudaEvent_t handle) {
  const std::lock_guard lock(mutex_);
  if (events_.erase(handle) == 1) return {};
  return {StatusCode::kInvalidArgument, "no such event"};
}

Event Runtime::FindEvent(cudaEvent_t handle) {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(handle);
  return found == events_.end() ? Event() : *found->second;
}

}  // namespace gpushared::cudart
