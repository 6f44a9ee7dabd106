// SPDX-License-Identifier: Apache-2.0
// The C interface. Each function checks its pointers, calls the C++ function and converts the
// Status into a number and a message. Exceptions do not leave these functions.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpushared/client.h"
#include "gpushared/gpushared.h"
#include "gpushared/mutex.h"

struct gpushared_stream {
  gpushared::Stream stream;
};

namespace gpushared::client {

// Properties of a device and the arrays that their C form points to. A view is valid until this
// object is moved.
class DeviceInC {
 public:
  explicit DeviceInC(gpushared::DeviceProperties device) : device_(std::move(device)) {
    for (const gpushared::DeviceAttribute& each : device_.attributes) {
      attributes_.push_back({.id = each.id, .value = each.value});
    }
  }

  gpushared_device_properties view() const {
    gpushared_device_properties properties = {
        .name = device_.name.c_str(),
        .id = device_.id.c_str(),
        .kind = device_.kind.c_str(),
        .memory_bytes = device_.memory_bytes,
        .multiprocessors = device_.multiprocessors,
        .threads_per_block_max = device_.threads_per_block_max,
        .block_max = {device_.block_max[0], device_.block_max[1], device_.block_max[2]},
        .grid_max = {device_.grid_max[0], device_.grid_max[1], device_.grid_max[2]},
        .shared_bytes_per_block_max = device_.shared_bytes_per_block_max,
        .uuid = {},
        .attributes = attributes_.data(),
        .attribute_count = attributes_.size()};
    std::copy(device_.uuid.begin(), device_.uuid.end(), properties.uuid);
    return properties;
  }

 private:
  gpushared::DeviceProperties device_;
  std::vector<gpushared_device_attribute> attributes_;
};

}  // namespace gpushared::client

struct gpushared_client {
  gpushared::Client client;
  std::optional<gpushared::client::DeviceInC> device;
  gpushared_stream default_stream;
  gpushared::Mutex mutex;
  // Printed text that the program has not taken yet.
  std::string printed GPUSHARED_GUARDED_BY(mutex);
  std::unordered_map<gpushared_address, gpushared::DeviceBuffer> device_buffers
      GPUSHARED_GUARDED_BY(mutex);
  std::unordered_map<void*, gpushared::HostBuffer> host_buffers GPUSHARED_GUARDED_BY(mutex);
};

struct gpushared_device_list {
  std::vector<gpushared::client::DeviceInC> devices;
};

struct gpushared_module {
  gpushared::Module module;
};

struct gpushared_kernel {
  gpushared::Kernel kernel;
  std::vector<gpushared_kernel_parameter> parameters;
};

struct gpushared_event {
  gpushared::Event event;
};

struct gpushared_graph {
  gpushared::Graph graph;
};

namespace {

using gpushared::FaultKind;
using gpushared::Result;
using gpushared::Status;
using gpushared::StatusCode;

static_assert(GPUSHARED_OK == static_cast<int>(StatusCode::kOk));
static_assert(GPUSHARED_OUT_OF_MEMORY == static_cast<int>(StatusCode::kOutOfMemory));
static_assert(GPUSHARED_DEVICE_LOST == static_cast<int>(StatusCode::kDeviceLost));
static_assert(GPUSHARED_KERNEL_FAULT == static_cast<int>(StatusCode::kKernelFault));
static_assert(GPUSHARED_FAULT_ILLEGAL_ADDRESS == static_cast<int>(FaultKind::kIllegalAddress));
static_assert(GPUSHARED_FAULT_LAUNCH_TIMEOUT == static_cast<int>(FaultKind::kLaunchTimeout));
static_assert(GPUSHARED_FAULT_LAUNCH_FAILURE == static_cast<int>(FaultKind::kLaunchFailure));
static_assert(GPUSHARED_INTERNAL == static_cast<int>(StatusCode::kInternal));

// Message that gpushared_last_error_message returns on this thread.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
thread_local std::string last_error_message;

gpushared_status_t Report(const Status& status) {
  if (status.ok()) return GPUSHARED_OK;
  last_error_message = status.message();
  return static_cast<gpushared_status_t>(status.code());
}

gpushared_status_t Reject(const char* message) {
  return Report(Status(StatusCode::kInvalidArgument, message));
}

// Runs `body`, which returns a Status, and converts the Status and any exception into a number.
template <typename Body>
gpushared_status_t Guarded(Body&& body) noexcept {
  try {
    return Report(body());
  } catch (const std::bad_alloc&) {
    last_error_message.clear();  // Storing a message could run out of memory again.
    return GPUSHARED_OUT_OF_MEMORY;
  } catch (...) {
    last_error_message.clear();
    return GPUSHARED_INTERNAL;
  }
}

// Moves the value of `result` into a new handle.
template <typename Handle, typename T>
Status Wrap(Result<T> result, Handle** handle) {
  if (!result.ok()) return result.status();
  *handle = new Handle{std::move(*result)};
  return Status::Ok();
}

gpushared::LaunchShape GetShape(const gpushared_launch_shape& shape) {
  return {.grid = {shape.grid[0], shape.grid[1], shape.grid[2]},
          .block = {shape.block[0], shape.block[1], shape.block[2]},
          .dynamic_shared_bytes = shape.dynamic_shared_bytes,
          .cluster = {shape.cluster[0], shape.cluster[1], shape.cluster[2]},
          .is_cooperative = shape.is_cooperative != 0};
}

gpushared::CopyShape GetShape(const gpushared_copy_shape& shape) {
  return {.width_bytes = shape.width_bytes,
          .height = shape.height,
          .destination_pitch_bytes = shape.destination_pitch_bytes,
          .source_pitch_bytes = shape.source_pitch_bytes};
}

// Clamps values that the type cannot hold; they exceed every limit anyway.
std::chrono::nanoseconds GetTime(std::uint64_t ns) {
  return std::chrono::nanoseconds(std::min<std::uint64_t>(ns, INT64_MAX));
}

std::string GetText(const char* text) { return text == nullptr ? std::string() : text; }

// Size of the first version of the options, without the fields added later. Shorter structs are
// rejected.
constexpr std::size_t kOptionsBytesMin = offsetof(gpushared_client_options, memory_bytes);

Status ToOptions(const gpushared_client_options* given, gpushared::ClientOptions& options) {
  if (given == nullptr) return Status::Ok();
  if (given->struct_bytes < kOptionsBytesMin) {
    return Status(StatusCode::kInvalidArgument,
                  "connect rejected: options.struct_bytes is " +
                      std::to_string(given->struct_bytes) + ", at least " +
                      std::to_string(kOptionsBytesMin) +
                      " is needed; call gpushared_client_options_init first");
  }
  if (given->scheduling_class < GPUSHARED_CLASS_UNSAID ||
      given->scheduling_class > GPUSHARED_CLASS_LOW) {
    return Status(StatusCode::kInvalidArgument,
                  "connect rejected: scheduling class " +
                      std::to_string(static_cast<int>(given->scheduling_class)) +
                      " is invalid, allowed: -1 (unset), 0 (high), 1 (normal), 2 (low)");
  }
  options.name = GetText(given->name);
  if (given->scheduling_class != GPUSHARED_CLASS_UNSAID) {
    options.scheduling_class = static_cast<gpushared::SchedulingClass>(given->scheduling_class);
  }
  if (given->weight != 0) options.weight = given->weight;
  if (given->latency_target_ns != 0) {
    options.latency_target = std::chrono::nanoseconds(given->latency_target_ns);
  }
  options.device = GetText(given->device);
  options.socket = GetText(given->socket);
  if (given->spin_ns >= 0) options.spin = std::chrono::nanoseconds(given->spin_ns);
  options.control_timeout = std::chrono::nanoseconds(given->control_timeout_ns);
  options.takes_printed = given->takes_printed != 0;
  if (given->struct_bytes >= offsetof(gpushared_client_options, on_memory_wanted) &&
      given->memory_bytes != 0) {
    options.memory_bytes = given->memory_bytes;
  }
  if (given->struct_bytes >= sizeof *given && given->on_memory_wanted != nullptr) {
    options.on_memory_wanted = [call = given->on_memory_wanted,
                                context = given->on_memory_wanted_context](std::uint64_t bytes) {
      call(context, bytes);
    };
  }
  return Status::Ok();
}

// Calls `use` with the arguments and their sizes, which come from the kernel's layout.
template <typename Use>
Status WithArguments(const gpushared_kernel& kernel, const void* const* arguments,
                     size_t argument_count, Use use) {
  constexpr size_t kArgumentsOnStack = 64;
  const std::vector<gpushared_kernel_parameter>& parameters = kernel.parameters;
  if (argument_count != parameters.size()) {
    return Status(StatusCode::kInvalidArgument, "launch rejected: kernel '" + kernel.kernel.name() +
                                                    "' takes " + std::to_string(parameters.size()) +
                                                    " arguments, " +
                                                    std::to_string(argument_count) + " were given");
  }
  gpushared::LaunchArgument few[kArgumentsOnStack];
  std::vector<gpushared::LaunchArgument> many;
  if (argument_count > kArgumentsOnStack) many.resize(argument_count);
  gpushared::LaunchArgument* const list = many.empty() ? few : many.data();
  for (size_t i = 0; i < argument_count; ++i) {
    if (arguments[i] == nullptr) {
      return Status(StatusCode::kInvalidArgument, "launch rejected: argument " + std::to_string(i) +
                                                      " of kernel '" + kernel.kernel.name() +
                                                      "' is null");
    }
    list[i] = {.data = arguments[i], .bytes = parameters[i].bytes};
  }
  return use(std::span<const gpushared::LaunchArgument>(list, argument_count));
}

}  // namespace

extern "C" {

const char* gpushared_version(void) noexcept { return gpushared::LibraryVersion(); }

const char* gpushared_status_name(gpushared_status_t status) noexcept {
  // StatusCodeName returns views that refer to string literals, so they are null-terminated.
  return gpushared::StatusCodeName(static_cast<StatusCode>(status)).data();
}

const char* gpushared_last_error_message(void) noexcept { return last_error_message.c_str(); }

void gpushared_client_options_init(gpushared_client_options* options) noexcept {
  if (options == nullptr) return;
  const gpushared::ClientOptions defaults;
  *options = {};
  options->struct_bytes = sizeof(*options);
  options->scheduling_class = GPUSHARED_CLASS_UNSAID;
  options->spin_ns = -1;
  options->control_timeout_ns = static_cast<std::uint64_t>(defaults.control_timeout.count());
}

gpushared_status_t gpushared_connect(const gpushared_client_options* options,
                                     gpushared_client** client) noexcept {
  if (client == nullptr) return Reject("connect rejected: `client` is null");
  return Guarded([&]() -> Status {
    gpushared::ClientOptions converted;
    if (Status status = ToOptions(options, converted); !status.ok()) return status;
    Result<gpushared::Client> connected = gpushared::Client::Connect(converted);
    if (!connected.ok()) return connected.status();
    auto handle = std::make_unique<gpushared_client>();
    handle->client = std::move(*connected);
    handle->device.emplace(handle->client.device());
    handle->default_stream.stream = handle->client.default_stream();
    *client = handle.release();
    return Status::Ok();
  });
}

void gpushared_destroy_client(gpushared_client* client) noexcept { delete client; }

gpushared_status_t gpushared_close(gpushared_client* client) noexcept {
  if (client == nullptr) return Reject("close rejected: `client` is null");
  client->client.Close();
  return GPUSHARED_OK;
}

gpushared_status_t gpushared_client_status(gpushared_client* client) noexcept {
  if (client == nullptr) return Reject("status rejected: `client` is null");
  return Guarded([&] { return client->client.status(); });
}

gpushared_status_t gpushared_list_devices(const gpushared_client_options* options,
                                          gpushared_device_list** list) noexcept {
  if (list == nullptr) return Reject("device list rejected: `list` is null");
  return Guarded([&]() -> Status {
    gpushared::ClientOptions converted;
    if (Status status = ToOptions(options, converted); !status.ok()) return status;
    auto devices = gpushared::Client::ListDevices(converted);
    if (!devices.ok()) return devices.status();
    auto handle = std::make_unique<gpushared_device_list>();
    for (gpushared::DeviceProperties& device : *devices) {
      handle->devices.emplace_back(std::move(device));
    }
    *list = handle.release();
    return Status::Ok();
  });
}

size_t gpushared_get_device_count(const gpushared_device_list* list) noexcept {
  return list == nullptr ? 0 : list->devices.size();
}

gpushared_status_t gpushared_get_listed_device(const gpushared_device_list* list, size_t index,
                                               gpushared_device_properties* properties) noexcept {
  if (list == nullptr || properties == nullptr) {
    return Reject("device properties rejected: `list` or `properties` is null");
  }
  return Guarded([&]() -> Status {
    if (index >= list->devices.size()) {
      return Status(StatusCode::kNotFound, "device " + std::to_string(index) +
                                               " not found: the server has " +
                                               std::to_string(list->devices.size()));
    }
    *properties = list->devices[index].view();
    return Status::Ok();
  });
}

void gpushared_destroy_device_list(gpushared_device_list* list) noexcept { delete list; }

gpushared_status_t gpushared_get_device_properties(
    gpushared_client* client, gpushared_device_properties* properties) noexcept {
  if (client == nullptr || properties == nullptr) {
    return Reject("device properties rejected: `client` or `properties` is null");
  }
  *properties = client->device->view();
  return GPUSHARED_OK;
}

gpushared_status_t gpushared_take_printed(gpushared_client* client, char* text, size_t capacity,
                                          size_t* bytes) noexcept {
  if (client == nullptr || text == nullptr || bytes == nullptr || capacity == 0) {
    return Reject("printed text rejected: `client`, `text` or `bytes` is null, or `capacity` is 0");
  }
  return Guarded([&]() -> Status {
    const gpushared::MutexLock lock(client->mutex);
    if (client->printed.empty()) {
      Result<std::string> more = client->client.TakePrinted();
      if (!more.ok()) return more.status();
      client->printed = std::move(*more);
    }
    *bytes = client->printed.copy(text, capacity);
    client->printed.erase(0, *bytes);
    return Status::Ok();
  });
}

gpushared_status_t gpushared_get_memory_info(gpushared_client* client,
                                             gpushared_memory_info* info) noexcept {
  if (client == nullptr || info == nullptr) {
    return Reject("memory info rejected: `client` or `info` is null");
  }
  return Guarded([&] {
    const gpushared::MemoryInfo memory = client->client.memory_info();
    *info = {.total_bytes = memory.total_bytes,
             .mapped_bytes = memory.mapped_bytes,
             .used_bytes = memory.used_bytes};
    return Status::Ok();
  });
}

gpushared_status_t gpushared_get_memory_guarantee(gpushared_client* client,
                                                  gpushared_memory_guarantee* guarantee) noexcept {
  if (client == nullptr || guarantee == nullptr) {
    return Reject("memory guarantee rejected: `client` or `guarantee` is null");
  }
  return Guarded([&] {
    const gpushared::MemoryInfo memory = client->client.memory_info();
    *guarantee = {.guaranteed_bytes = memory.guaranteed_bytes,
                  .resident_bytes = memory.resident_bytes,
                  .wanted_bytes = memory.wanted_bytes};
    return Status::Ok();
  });
}

gpushared_status_t gpushared_trim_device(gpushared_client* client, uint64_t* bytes) noexcept {
  if (client == nullptr) return Reject("trim rejected: `client` is null");
  return Guarded([&] {
    const Result<std::uint64_t> trimmed = client->client.TrimDevice();
    if (trimmed.ok() && bytes != nullptr) *bytes = *trimmed;
    return trimmed.status();
  });
}

gpushared_status_t gpushared_get_session_id(gpushared_client* client,
                                            uint64_t* session_id) noexcept {
  if (client == nullptr || session_id == nullptr) {
    return Reject("session id rejected: `client` or `session_id` is null");
  }
  *session_id = client->client.session_id();
  return GPUSHARED_OK;
}

gpushared_status_t gpushared_synchronize(gpushared_client* client) noexcept {
  if (client == nullptr) return Reject("synchronize rejected: `client` is null");
  return Guarded([&] { return client->client.Synchronize(); });
}

gpushared_status_t gpushared_load_module(gpushared_client* client, const void* image, size_t bytes,
                                         gpushared_module** module) noexcept {
  if (client == nullptr || image == nullptr || module == nullptr) {
    return Reject("module load rejected: `client`, `image` or `module` is null");
  }
  return Guarded([&] {
    return Wrap(client->client.LoadModule(
                    std::span<const std::byte>(static_cast<const std::byte*>(image), bytes)),
                module);
  });
}

gpushared_status_t gpushared_load_module_file(gpushared_client* client, const char* path,
                                              gpushared_module** module) noexcept {
  if (client == nullptr || path == nullptr || module == nullptr) {
    return Reject("module load rejected: `client`, `path` or `module` is null");
  }
  return Guarded([&] { return Wrap(client->client.LoadModuleFile(path), module); });
}

void gpushared_destroy_module(gpushared_module* module) noexcept { delete module; }

gpushared_status_t gpushared_get_kernel_count(gpushared_module* module, size_t* count) noexcept {
  if (module == nullptr || count == nullptr) {
    return Reject("kernel count rejected: `module` or `count` is null");
  }
  *count = module->module.kernel_count();
  return GPUSHARED_OK;
}

static Status WrapKernel(Result<gpushared::Kernel> result, gpushared_kernel** kernel) {
  if (!result.ok()) return result.status();
  auto handle = std::make_unique<gpushared_kernel>();
  handle->kernel = std::move(*result);
  for (const gpushared::KernelParameter& parameter : handle->kernel.parameters()) {
    handle->parameters.push_back({.offset = parameter.offset, .bytes = parameter.bytes});
  }
  *kernel = handle.release();
  return Status::Ok();
}

gpushared_status_t gpushared_get_kernel(gpushared_module* module, const char* name,
                                        gpushared_kernel** kernel) noexcept {
  if (module == nullptr || name == nullptr || kernel == nullptr) {
    return Reject("kernel look-up rejected: `module`, `name` or `kernel` is null");
  }
  return Guarded([&] { return WrapKernel(module->module.GetKernel(name), kernel); });
}

gpushared_status_t gpushared_get_kernel_at(gpushared_module* module, size_t index,
                                           gpushared_kernel** kernel) noexcept {
  if (module == nullptr || kernel == nullptr) {
    return Reject("kernel look-up rejected: `module` or `kernel` is null");
  }
  return Guarded([&] { return WrapKernel(module->module.KernelAt(index), kernel); });
}

void gpushared_destroy_kernel(gpushared_kernel* kernel) noexcept { delete kernel; }

gpushared_status_t gpushared_get_kernel_info(gpushared_kernel* kernel,
                                             gpushared_kernel_info* info) noexcept {
  if (kernel == nullptr || info == nullptr) {
    return Reject("kernel info rejected: `kernel` or `info` is null");
  }
  *info = {.name = kernel->kernel.name().c_str(),
           .parameters = kernel->parameters.data(),
           .parameter_count = kernel->parameters.size(),
           .parameter_bytes = kernel->kernel.parameter_bytes(),
           .static_shared_bytes = kernel->kernel.static_shared_bytes(),
           .threads_per_block_max = kernel->kernel.threads_per_block_max(),
           .unsupported = kernel->kernel.unsupported().c_str()};
  return GPUSHARED_OK;
}

gpushared_status_t gpushared_get_kernel_attributes(
    gpushared_kernel* kernel, gpushared_kernel_attributes* attributes) noexcept {
  if (kernel == nullptr || attributes == nullptr) {
    return Reject("kernel attributes rejected: `kernel` or `attributes` is null");
  }
  const gpushared::KernelAttributes& of = kernel->kernel.attributes();
  *attributes = {.registers = of.registers,
                 .local_bytes = of.local_bytes,
                 .constant_bytes = of.constant_bytes,
                 .dynamic_shared_bytes_max = of.dynamic_shared_bytes_max,
                 .ptx_version = of.ptx_version,
                 .binary_version = of.binary_version};
  return GPUSHARED_OK;
}

gpushared_status_t gpushared_get_variable(gpushared_module* module, const char* name,
                                          gpushared_variable* variable) noexcept {
  if (module == nullptr || name == nullptr || variable == nullptr) {
    return Reject("variable look-up rejected: `module`, `name` or `variable` is null");
  }
  return Guarded([&]() -> Status {
    const std::string_view wanted(name);
    for (const gpushared::ModuleVariable& each : module->module.variables()) {
      if (each.name != wanted) continue;
      *variable = {.name = each.name.c_str(),
                   .address = each.address,
                   .bytes = each.bytes,
                   .is_constant = each.is_constant ? 1U : 0U};
      return Status::Ok();
    }
    return module->module.GetVariable(wanted).status();
  });
}

gpushared_status_t gpushared_allocate_device(gpushared_client* client, size_t bytes,
                                             gpushared_address* address) noexcept {
  if (client == nullptr || address == nullptr) {
    return Reject("allocation rejected: `client` or `address` is null");
  }
  return Guarded([&] {
    Result<gpushared::DeviceBuffer> buffer = client->client.AllocateDevice(bytes);
    if (!buffer.ok()) return buffer.status();
    const gpushared_address allocated = buffer->address();
    const gpushared::MutexLock lock(client->mutex);
    client->device_buffers.insert_or_assign(allocated, std::move(*buffer));
    *address = allocated;
    return Status::Ok();
  });
}

gpushared_status_t gpushared_free_device(gpushared_client* client,
                                         gpushared_address address) noexcept {
  if (client == nullptr) return Reject("free rejected: `client` is null");
  if (address == 0) return GPUSHARED_OK;
  return Guarded([&]() -> Status {
    const gpushared::MutexLock lock(client->mutex);
    if (client->device_buffers.erase(address) != 0) return Status::Ok();
    return Status(StatusCode::kInvalidArgument, "free rejected: device address " +
                                                    std::to_string(address) +
                                                    " was not allocated by this client");
  });
}

gpushared_status_t gpushared_allocate_host(gpushared_client* client, size_t bytes,
                                           void** memory) noexcept {
  if (client == nullptr || memory == nullptr) {
    return Reject("allocation rejected: `client` or `memory` is null");
  }
  return Guarded([&] {
    Result<gpushared::HostBuffer> buffer = client->client.AllocateHost(bytes);
    if (!buffer.ok()) return buffer.status();
    void* const allocated = buffer->data();
    const gpushared::MutexLock lock(client->mutex);
    client->host_buffers.insert_or_assign(allocated, std::move(*buffer));
    *memory = allocated;
    return Status::Ok();
  });
}

gpushared_status_t gpushared_free_host(gpushared_client* client, void* memory) noexcept {
  if (client == nullptr) return Reject("free rejected: `client` is null");
  if (memory == nullptr) return GPUSHARED_OK;
  return Guarded([&]() -> Status {
    const gpushared::MutexLock lock(client->mutex);
    if (client->host_buffers.erase(memory) != 0) return Status::Ok();
    return Status(StatusCode::kInvalidArgument,
                  "free rejected: this host memory was not allocated by this client");
  });
}

gpushared_status_t gpushared_create_stream(gpushared_client* client,
                                           gpushared_stream** stream) noexcept {
  if (client == nullptr || stream == nullptr) {
    return Reject("stream creation rejected: `client` or `stream` is null");
  }
  return Guarded([&] { return Wrap(client->client.CreateStream(), stream); });
}

gpushared_stream* gpushared_default_stream(gpushared_client* client) noexcept {
  return client == nullptr ? nullptr : &client->default_stream;
}

void gpushared_destroy_stream(gpushared_stream* stream) noexcept { delete stream; }

gpushared_status_t gpushared_synchronize_stream(gpushared_stream* stream) noexcept {
  if (stream == nullptr) return Reject("synchronize rejected: `stream` is null");
  return Guarded([&] { return stream->stream.Synchronize(); });
}

gpushared_status_t gpushared_begin_request(gpushared_stream* stream, uint64_t age_ns) noexcept {
  if (stream == nullptr) return Reject("begin of a request rejected: `stream` is null");
  return Guarded([&] { return stream->stream.BeginRequest(GetTime(age_ns)); });
}

gpushared_status_t gpushared_end_request(gpushared_stream* stream) noexcept {
  if (stream == nullptr) return Reject("end of a request rejected: `stream` is null");
  return Guarded([&] { return stream->stream.EndRequest(); });
}

gpushared_status_t gpushared_expect_request_in(gpushared_client* client, uint64_t in_ns) noexcept {
  if (client == nullptr) return Reject("hint rejected: `client` is null");
  return Guarded([&] { return client->client.ExpectRequestIn(GetTime(in_ns)); });
}

gpushared_fault_t gpushared_get_stream_fault(gpushared_stream* stream) noexcept {
  if (stream == nullptr) return GPUSHARED_FAULT_NONE;
  return static_cast<gpushared_fault_t>(stream->stream.fault());
}

gpushared_fault_t gpushared_get_client_fault(gpushared_client* client) noexcept {
  if (client == nullptr) return GPUSHARED_FAULT_NONE;
  return static_cast<gpushared_fault_t>(client->client.fault());
}

gpushared_status_t gpushared_query_stream(gpushared_stream* stream) noexcept {
  if (stream == nullptr) return Reject("query rejected: `stream` is null");
  return Guarded([&] { return stream->stream.Query(); });
}

gpushared_status_t gpushared_create_event(gpushared_client* client, int timing,
                                          gpushared_event** event) noexcept {
  if (client == nullptr || event == nullptr) {
    return Reject("event creation rejected: `client` or `event` is null");
  }
  return Guarded([&] {
    return Wrap(client->client.CreateEvent(timing != 0 ? gpushared::EventTiming::kOn
                                                       : gpushared::EventTiming::kOff),
                event);
  });
}

void gpushared_destroy_event(gpushared_event* event) noexcept { delete event; }

gpushared_status_t gpushared_record_event(gpushared_stream* stream,
                                          gpushared_event* event) noexcept {
  if (stream == nullptr || event == nullptr) {
    return Reject("record rejected: `stream` or `event` is null");
  }
  return Guarded([&] { return stream->stream.Record(event->event); });
}

gpushared_status_t gpushared_wait_event(gpushared_stream* stream, gpushared_event* event) noexcept {
  if (stream == nullptr || event == nullptr) {
    return Reject("wait rejected: `stream` or `event` is null");
  }
  return Guarded([&] { return stream->stream.Wait(event->event); });
}

gpushared_status_t gpushared_query_event(gpushared_event* event) noexcept {
  if (event == nullptr) return Reject("query rejected: `event` is null");
  return Guarded([&] { return event->event.Query(); });
}

gpushared_status_t gpushared_synchronize_event(gpushared_event* event) noexcept {
  if (event == nullptr) return Reject("synchronize rejected: `event` is null");
  return Guarded([&] { return event->event.Synchronize(); });
}

gpushared_status_t gpushared_get_elapsed_time(gpushared_event* start, gpushared_event* end,
                                              int64_t* elapsed_ns) noexcept {
  if (start == nullptr || end == nullptr || elapsed_ns == nullptr) {
    return Reject("elapsed time rejected: `start`, `end` or `elapsed_ns` is null");
  }
  return Guarded([&] {
    const Result<std::chrono::nanoseconds> elapsed =
        gpushared::Event::ElapsedTime(start->event, end->event);
    if (elapsed.ok()) *elapsed_ns = elapsed->count();
    return elapsed.status();
  });
}

gpushared_status_t gpushared_launch(gpushared_stream* stream, gpushared_kernel* kernel,
                                    const gpushared_launch_shape* shape,
                                    const void* const* arguments, size_t argument_count) noexcept {
  if (stream == nullptr || kernel == nullptr || shape == nullptr ||
      (arguments == nullptr && argument_count != 0)) {
    return Reject("launch rejected: `stream`, `kernel`, `shape` or `arguments` is null");
  }
  return Guarded([&] {
    return WithArguments(*kernel, arguments, argument_count, [&](auto list) {
      return stream->stream.LaunchWith(kernel->kernel, GetShape(*shape), list);
    });
  });
}

gpushared_status_t gpushared_launch_packed(gpushared_stream* stream, gpushared_kernel* kernel,
                                           const gpushared_launch_shape* shape,
                                           const void* parameters, size_t bytes) noexcept {
  if (stream == nullptr || kernel == nullptr || shape == nullptr ||
      (parameters == nullptr && bytes != 0)) {
    return Reject("launch rejected: `stream`, `kernel`, `shape` or `parameters` is null");
  }
  return Guarded([&] {
    return stream->stream.LaunchPacked(kernel->kernel, GetShape(*shape),
                                       {static_cast<const std::byte*>(parameters), bytes});
  });
}

gpushared_status_t gpushared_copy_to_device(gpushared_stream* stream, gpushared_address destination,
                                            const void* source, size_t bytes) noexcept {
  if (stream == nullptr) return Reject("copy rejected: `stream` is null");
  return Guarded([&] { return stream->stream.CopyToDevice(destination, source, bytes); });
}

gpushared_status_t gpushared_copy_to_host(gpushared_stream* stream, void* destination,
                                          gpushared_address source, size_t bytes) noexcept {
  if (stream == nullptr) return Reject("copy rejected: `stream` is null");
  return Guarded([&] { return stream->stream.CopyToHost(destination, source, bytes); });
}

gpushared_status_t gpushared_copy_on_device(gpushared_stream* stream, gpushared_address destination,
                                            gpushared_address source, size_t bytes) noexcept {
  if (stream == nullptr) return Reject("copy rejected: `stream` is null");
  return Guarded([&] { return stream->stream.CopyOnDevice(destination, source, bytes); });
}

gpushared_status_t gpushared_copy_to_device_2d(gpushared_stream* stream,
                                               gpushared_address destination, const void* source,
                                               const gpushared_copy_shape* shape) noexcept {
  if (stream == nullptr || shape == nullptr) {
    return Reject("copy rejected: `stream` or `shape` is null");
  }
  return Guarded(
      [&] { return stream->stream.CopyToDevice2d(destination, source, GetShape(*shape)); });
}

gpushared_status_t gpushared_copy_to_host_2d(gpushared_stream* stream, void* destination,
                                             gpushared_address source,
                                             const gpushared_copy_shape* shape) noexcept {
  if (stream == nullptr || shape == nullptr) {
    return Reject("copy rejected: `stream` or `shape` is null");
  }
  return Guarded(
      [&] { return stream->stream.CopyToHost2d(destination, source, GetShape(*shape)); });
}

gpushared_status_t gpushared_copy_on_device_2d(gpushared_stream* stream,
                                               gpushared_address destination,
                                               gpushared_address source,
                                               const gpushared_copy_shape* shape) noexcept {
  if (stream == nullptr || shape == nullptr) {
    return Reject("copy rejected: `stream` or `shape` is null");
  }
  return Guarded(
      [&] { return stream->stream.CopyOnDevice2d(destination, source, GetShape(*shape)); });
}

gpushared_status_t gpushared_fill(gpushared_stream* stream, gpushared_address destination,
                                  uint32_t value, uint32_t element_bytes, size_t count) noexcept {
  if (stream == nullptr) return Reject("fill rejected: `stream` is null");
  return Guarded([&] { return stream->stream.Fill(destination, {value, element_bytes}, count); });
}

gpushared_status_t gpushared_fill_2d(gpushared_stream* stream, gpushared_address destination,
                                     uint32_t value, uint32_t element_bytes,
                                     const gpushared_fill_shape* shape) noexcept {
  if (stream == nullptr || shape == nullptr) {
    return Reject("fill rejected: `stream` or `shape` is null");
  }
  return Guarded([&] {
    return stream->stream.Fill2d(destination, {value, element_bytes},
                                 {.width_elements = shape->width_elements,
                                  .height = shape->height,
                                  .pitch_bytes = shape->pitch_bytes});
  });
}

}  // extern "C"

// ---- graphs

gpushared_status_t gpushared_create_recorder(gpushared_client* client,
                                             gpushared_stream** recorder) noexcept {
  if (client == nullptr || recorder == nullptr) {
    return Reject("recorder rejected: `client` or `recorder` is null");
  }
  return Guarded([&] { return Wrap(client->client.CreateRecorder(), recorder); });
}

gpushared_status_t gpushared_make_graph(gpushared_stream* recorder,
                                        gpushared_graph** graph) noexcept {
  if (recorder == nullptr || graph == nullptr) {
    return Reject("graph rejected: `recorder` or `graph` is null");
  }
  return Guarded([&] { return Wrap(recorder->stream.MakeGraph(), graph); });
}

void gpushared_destroy_graph(gpushared_graph* graph) noexcept { delete graph; }

size_t gpushared_get_node_count(gpushared_graph* graph) noexcept {
  return graph == nullptr ? 0 : graph->graph.node_count();
}

gpushared_status_t gpushared_launch_graph(gpushared_graph* graph,
                                          gpushared_stream* stream) noexcept {
  if (graph == nullptr || stream == nullptr) {
    return Reject("launch rejected: `graph` or `stream` is null");
  }
  return Guarded([&] { return graph->graph.Launch(stream->stream); });
}

gpushared_status_t gpushared_set_node_launch(gpushared_graph* graph, size_t node,
                                             gpushared_kernel* kernel,
                                             const gpushared_launch_shape* shape,
                                             const void* const* arguments,
                                             size_t argument_count) noexcept {
  if (graph == nullptr || kernel == nullptr || shape == nullptr ||
      (arguments == nullptr && argument_count != 0)) {
    return Reject("node rejected: `graph`, `kernel`, `shape` or `arguments` is null");
  }
  return Guarded([&] {
    return WithArguments(*kernel, arguments, argument_count, [&](auto list) {
      return graph->graph.SetLaunchWith(node, kernel->kernel, GetShape(*shape), list);
    });
  });
}
