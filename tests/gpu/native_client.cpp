// SPDX-License-Identifier: Apache-2.0
// gpushared/client.h implemented with the driver's own calls on GPU 0, without a server, to measure
// the native cost of the same program. It is linked in place of the client library. It implements
// the part of the interface that the samples, gpu_ops and gpu_hog use. It adds no check that the
// driver makes itself, and a session is for one thread. Scheduling class, weight and
// socket are ignored. Streams have the priority in NATIVE_PRIORITY, a whole number in CUDA's
// numbering, or 0. Device memory comes from blocks of at least 64 MiB, as in many programs.

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpushared/client.h"

#include "server/device/cuda/driver.h"
#include "tests/gpu/native_priority.h"

namespace gpushared {

namespace cuda = device::cuda;

namespace client {

constexpr std::size_t kBlockBytes = std::size_t{64} << 20;
constexpr std::size_t kAlignment = 256;  // As client.h guarantees.
constexpr const char* kPriorityVariable = "NATIVE_PRIORITY";
// Variables that affect clients of MPS. Only whether they were set is visible here, not their
// effect.
constexpr const char* kMpsVariables[] = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
                                         "CUDA_MPS_CLIENT_PRIORITY"};

// Set by SetNativePriority.
thread_local std::optional<int> thread_priority;

// Returns the priority requested for streams, if any.
Result<std::optional<int>> WantedPriority() {
  if (thread_priority) return thread_priority;
  const char* const text = std::getenv(kPriorityVariable);
  if (text == nullptr) return std::optional<int>();
  const std::string_view digits(text);
  int priority = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), priority);
  if (error != std::errc() || end != digits.end()) {
    return Status(StatusCode::kInvalidArgument,
                  std::string(kPriorityVariable) + " is '" + text + "', allowed: a whole number");
  }
  return std::optional<int>(priority);
}

// The primary context, the initial stream, and device memory.
class Session {
 public:
  ~Session() {
    if (stream != nullptr) (void)driver->StreamDestroy(stream);
    if (context == nullptr) return;
    (void)driver->CtxSetCurrent(nullptr);
    (void)driver->DevicePrimaryCtxRelease(number);
  }

  Status Open() {
    Status status = driver->Try(driver->DeviceGet, &number, 0);
    if (status.ok()) status = driver->Try(driver->DevicePrimaryCtxRetain, &context, number);
    if (status.ok()) status = driver->Try(driver->CtxSetCurrent, context);
    if (status.ok()) status = ChoosePriority();
    if (status.ok()) status = NewStream(&stream);
    return status.ok() ? Describe() : status;
  }

  Status NewStream(cuda::Stream* fresh) const {
    return driver->Try(driver->StreamCreateWithPriority, fresh, cuda::kStreamNonBlocking,
                       priority_.value_or(0));
  }

  Status Allocate(std::size_t bytes, DeviceAddress* address) {
    auto block = std::ranges::find_if(
        blocks_, [&](const Block& each) { return each.bytes - each.used >= bytes; });
    if (block == blocks_.end()) {
      Block fresh{.bytes = std::max(bytes, kBlockBytes)};
      if (Status status = driver->Try(driver->MemAlloc, &fresh.address, fresh.bytes);
          !status.ok()) {
        return status;
      }
      block = blocks_.insert(blocks_.end(), fresh);
    }
    *address = block->address + block->used;
    block->used +=
        std::min((bytes + kAlignment - 1) / kAlignment * kAlignment, block->bytes - block->used);
    ++block->live;
    return {};
  }
  // A block is returned to the driver with its last buffer.
  void Free(DeviceAddress address) {
    const auto block = std::ranges::find_if(
        blocks_, [&](const Block& each) { return address - each.address < each.bytes; });
    if (block == blocks_.end() || --block->live > 0) return;
    (void)driver->MemFree(block->address);
    blocks_.erase(block);
  }

  std::shared_ptr<const cuda::Driver> driver;
  cuda::DeviceNumber number = 0;
  cuda::Context context = nullptr;
  cuda::Stream stream = nullptr;
  DeviceProperties properties;

 private:
  Status ChoosePriority() {
    const Result<std::optional<int>> wanted = WantedPriority();
    if (!wanted.ok()) return wanted.status();
    if (!*wanted) return {};
    int least = 0, greatest = 0;  // `least`: the lowest priority, which is the largest number.
    Status status = driver->Try(driver->CtxGetStreamPriorityRange, &least, &greatest);
    if (status.ok()) priority_ = std::clamp(**wanted, greatest, least);
    return status;
  }

  // Returns the name of the native contender for its results.
  std::string Contender(bool is_under_mps) const {
    std::string text = "native cuda:0";
    if (priority_) text += " at stream priority " + std::to_string(*priority_);
    for (const char* variable : kMpsVariables) {
      const char* const value = std::getenv(variable);
      if (value != nullptr) text += std::string(" with ") + variable + '=' + value;
    }
    return is_under_mps ? text + " under MPS" : text;
  }

  Status Describe() {
    std::array<char, 256> name{};
    int multiprocessors = 0;
    std::size_t bytes = 0;
    Status status =
        driver->Try(driver->DeviceGetName, name.data(), static_cast<int>(name.size()), number);
    if (status.ok()) status = driver->Try(driver->DeviceTotalMem, &bytes, number);
    if (status.ok()) {
      status = driver->Try(driver->DeviceGetAttribute, &multiprocessors,
                           cuda::DeviceAttribute::kMultiprocessors, number);
    }
    int mps = 0;
    // Older drivers lack this attribute.
    if (status.ok() && driver->DeviceGetAttribute(&mps, cuda::DeviceAttribute::kMpsEnabled,
                                                  number) != cuda::Code::kSuccess) {
      mps = 0;
    }
    properties.name = name.data();
    properties.id = Contender(mps != 0);
    properties.kind = "cuda";
    properties.memory_bytes = bytes;
    properties.multiprocessors = static_cast<std::uint32_t>(multiprocessors);
    return status;
  }

  struct Block {
    DeviceAddress address = 0;
    std::size_t bytes = 0, used = 0, live = 0;
  };
  std::vector<Block> blocks_;
  std::optional<int> priority_;
};

class StreamState {
 public:
  StreamState(std::shared_ptr<Session> of, cuda::Stream stream, bool is_owned)
      : session(std::move(of)), handle(stream), is_owned_(is_owned) {}
  ~StreamState() {
    if (is_owned_) (void)session->driver->StreamDestroy(handle);
  }
  StreamState(const StreamState&) = delete;
  StreamState& operator=(const StreamState&) = delete;

  const std::shared_ptr<Session> session;
  const cuda::Stream handle;

 private:
  const bool is_owned_;
};

struct ModuleState {
  ModuleState(std::shared_ptr<Session> of, cuda::Module module)
      : session(std::move(of)), handle(module) {}
  ~ModuleState() { (void)session->driver->ModuleUnload(handle); }
  ModuleState(const ModuleState&) = delete;
  ModuleState& operator=(const ModuleState&) = delete;

  const std::shared_ptr<Session> session;
  const cuda::Module handle;
};

struct KernelState {
  std::shared_ptr<const ModuleState> module;
  cuda::Function handle = nullptr;
};

class EventState {
 public:
  EventState(std::shared_ptr<Session> of, cuda::Event event)
      : session(std::move(of)), handle(event) {}
  ~EventState() { (void)session->driver->EventDestroy(handle); }
  EventState(const EventState&) = delete;
  EventState& operator=(const EventState&) = delete;

  const std::shared_ptr<Session> session;
  const cuda::Event handle;
};

}  // namespace client

namespace testing {

void SetNativePriority(int priority) { client::thread_priority = priority; }

}  // namespace testing

namespace {

constexpr std::size_t kArgumentsMax = 16;

}  // namespace

DeviceBuffer::DeviceBuffer(std::shared_ptr<client::Session> session, DeviceAddress address,
                           std::size_t bytes, std::size_t used_bytes)
    : session_(std::move(session)), address_(address), bytes_(bytes), used_bytes_(used_bytes) {}
DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(session_, other.session_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  std::swap(used_bytes_, other.used_bytes_);
  return *this;
}
DeviceBuffer::~DeviceBuffer() { Reset(); }
void DeviceBuffer::Reset() noexcept {
  if (session_ != nullptr) session_->Free(address_);
  session_.reset();
  address_ = 0;
  bytes_ = used_bytes_ = 0;
}

HostBuffer::HostBuffer(std::shared_ptr<client::Session> session, std::span<std::byte> bytes)
    : session_(std::move(session)), bytes_(bytes) {}
HostBuffer::HostBuffer(HostBuffer&& other) noexcept { *this = std::move(other); }
HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  std::swap(session_, other.session_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
HostBuffer::~HostBuffer() { Reset(); }
void HostBuffer::Reset() noexcept {
  if (session_ != nullptr) (void)session_->driver->MemFreeHost(bytes_.data());
  session_.reset();
  bytes_ = {};
}

Result<Kernel> Module::GetKernel(std::string_view name) const {
  const cuda::Driver& driver = *state_->session->driver;
  client::KernelState kernel{.module = state_};
  if (Status status = driver.Try(driver.ModuleGetFunction, &kernel.handle, state_->handle,
                                 std::string(name).c_str());
      !status.ok()) {
    return status;
  }
  return Kernel(std::make_shared<const client::KernelState>(std::move(kernel)));
}

Status Stream::LaunchWith(const Kernel& kernel, const LaunchShape& shape,
                          std::span<const LaunchArgument> arguments) const {
  if (arguments.size() > kArgumentsMax) {
    return {
        StatusCode::kInvalidArgument,
        std::to_string(arguments.size()) + " arguments, allowed: " + std::to_string(kArgumentsMax)};
  }
  std::array<void*, kArgumentsMax> parameters;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    parameters[i] = const_cast<void*>(arguments[i].data);
  const cuda::Driver& driver = *state_->session->driver;
  const cuda::Code code = driver.LaunchKernel(
      kernel.state_->handle, shape.grid.x, shape.grid.y, shape.grid.z, shape.block.x, shape.block.y,
      shape.block.z, shape.dynamic_shared_bytes, state_->handle, parameters.data(), nullptr);
  if (code == cuda::Code::kSuccess) [[likely]]
    return {};
  return driver.ToStatus(driver.LaunchKernel.name(), code);
}

// For pageable memory, the driver returns once it has read the bytes, as our interface guarantees.
Status Stream::CopyToDevice(DeviceAddress destination, const void* source,
                            std::size_t bytes) const {
  const cuda::Driver& driver = *state_->session->driver;
  return driver.Try(driver.MemcpyHtoDAsync, destination, source, bytes, state_->handle);
}

// For pageable memory, the driver returns once the bytes have arrived.
Status Stream::CopyToHost(void* destination, DeviceAddress source, std::size_t bytes) const {
  const cuda::Driver& driver = *state_->session->driver;
  return driver.Try(driver.MemcpyDtoHAsync, destination, source, bytes, state_->handle);
}

Status Stream::Synchronize() const {
  const cuda::Driver& driver = *state_->session->driver;
  return driver.Try(driver.StreamSynchronize, state_->handle);
}

Status Stream::Record(const Event& event) const {
  const cuda::Driver& driver = *state_->session->driver;
  return driver.Try(driver.EventRecord, event.state_->handle, state_->handle);
}

// Does nothing, because no server needs the announcement.
Status Stream::BeginRequest(std::chrono::nanoseconds) const { return {}; }
Status Stream::EndRequest() const { return {}; }
Status Client::ExpectRequestIn(std::chrono::nanoseconds) const { return {}; }

Status Event::Synchronize() const {
  const cuda::Driver& driver = *state_->session->driver;
  return driver.Try(driver.EventSynchronize, state_->handle);
}

Result<std::chrono::nanoseconds> Event::ElapsedTime(const Event& start, const Event& end) {
  const cuda::Driver& driver = *start.state_->session->driver;
  float milliseconds = 0;
  if (Status status = driver.Try(driver.EventElapsedTime, &milliseconds, start.state_->handle,
                                 end.state_->handle);
      !status.ok()) {
    return status;
  }
  return std::chrono::round<std::chrono::nanoseconds>(
      std::chrono::duration<double, std::milli>(milliseconds));
}

Result<Client> Client::Connect(const ClientOptions& options) {
  if (!options.device.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  "device '" + options.device +
                      "' was asked for, a native program uses the first GPU it sees");
  }
  auto driver = cuda::Driver::Load();
  if (!driver.ok()) return driver.status();
  auto session = std::make_shared<client::Session>();
  session->driver = *std::move(driver);
  if (Status status = session->Open(); !status.ok()) return status;
  return Client(std::move(session));
}

const DeviceProperties& Client::device() const noexcept { return session_->properties; }

Result<Module> Client::LoadModule(std::span<const std::byte> image) const {
  // The driver takes PTX as a string, which must be terminated.
  const std::string text(reinterpret_cast<const char*>(image.data()), image.size());
  const cuda::Driver& driver = *session_->driver;
  cuda::Module module = nullptr;
  if (Status status =
          driver.Try(driver.ModuleLoadDataEx, &module, text.c_str(), 0u, nullptr, nullptr);
      !status.ok()) {
    return status;
  }
  return Module(std::make_shared<const client::ModuleState>(session_, module));
}

Result<DeviceBuffer> Client::AllocateDevice(std::size_t bytes) const {
  DeviceAddress address = 0;
  if (Status status = session_->Allocate(bytes, &address); !status.ok()) return status;
  // The driver does not clear memory.
  return DeviceBuffer(session_, address, bytes, bytes);
}

Result<HostBuffer> Client::AllocateHost(std::size_t bytes) const {
  void* address = nullptr;
  if (Status status = session_->driver->Try(session_->driver->MemHostAlloc, &address, bytes, 0u);
      !status.ok()) {
    return status;
  }
  return HostBuffer(session_, {static_cast<std::byte*>(address), bytes});
}

Result<Stream> Client::CreateStream() const {
  cuda::Stream stream = nullptr;
  if (Status status = session_->NewStream(&stream); !status.ok()) return status;
  return Stream(std::make_shared<client::StreamState>(session_, stream, true));
}

Result<Event> Client::CreateEvent(EventTiming timing) const {
  cuda::Event event = nullptr;
  if (Status status =
          session_->driver->Try(session_->driver->EventCreate, &event,
                                timing == EventTiming::kOn ? 0u : cuda::kEventDisableTiming);
      !status.ok()) {
    return status;
  }
  return Event(std::make_shared<client::EventState>(session_, event));
}

Stream Client::default_stream() const {
  return Stream(std::make_shared<client::StreamState>(session_, session_->stream, false));
}

}  // namespace gpushared
