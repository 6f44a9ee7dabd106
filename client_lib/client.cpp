// SPDX-License-Identifier: Apache-2.0
// Client, its buffers and its events.
#include "gpushared/client.h"

#include <errno.h>
#include <stdio.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "client_lib/session.h"

namespace gpushared {

using client::EventState;
using client::ModuleState;
using client::Session;
using client::StreamRecord;
using client::StreamState;

namespace {

Status Invalid(const char* message) { return Status(StatusCode::kInvalidArgument, message); }

constexpr const char* kEmptyClient = "the client is empty: it was moved from or never connected";
constexpr const char* kEmptyEvent = "the event is empty: it was moved from or never created";

}  // namespace

const char* LibraryVersion() noexcept { return GPUSHARED_VERSION_STRING; }

// ---- buffers

DeviceBuffer::DeviceBuffer(std::shared_ptr<Session> session, DeviceAddress address,
                           std::size_t bytes, std::size_t used_bytes)
    : session_(std::move(session)),
      address_(address),
      bytes_(bytes),
      used_bytes_(std::min(used_bytes, bytes)) {}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : session_(std::move(other.session_)),
      address_(std::exchange(other.address_, 0)),
      bytes_(std::exchange(other.bytes_, 0)),
      used_bytes_(std::exchange(other.used_bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this != &other) {
    Reset();
    session_ = std::move(other.session_);
    address_ = std::exchange(other.address_, 0);
    bytes_ = std::exchange(other.bytes_, 0);
    used_bytes_ = std::exchange(other.used_bytes_, 0);
  }
  return *this;
}

DeviceBuffer::~DeviceBuffer() { Reset(); }

void DeviceBuffer::Reset() noexcept {
  if (session_ != nullptr) session_->FreeDevice(address_);
  session_.reset();
  address_ = 0;
  bytes_ = used_bytes_ = 0;
}

HostBuffer::HostBuffer(std::shared_ptr<Session> session, std::span<std::byte> bytes)
    : session_(std::move(session)), bytes_(bytes) {}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : session_(std::move(other.session_)), bytes_(std::exchange(other.bytes_, {})) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  if (this != &other) {
    Reset();
    session_ = std::move(other.session_);
    bytes_ = std::exchange(other.bytes_, {});
  }
  return *this;
}

HostBuffer::~HostBuffer() { Reset(); }

void HostBuffer::Reset() noexcept {
  if (session_ != nullptr) session_->FreeHost(bytes_.data());
  session_.reset();
  bytes_ = {};
}

DeviceChunk::DeviceChunk(std::shared_ptr<Session> session, std::uint32_t number, std::size_t bytes)
    : session_(std::move(session)), number_(number), bytes_(bytes) {}

DeviceChunk::DeviceChunk(DeviceChunk&& other) noexcept
    : session_(std::move(other.session_)),
      number_(other.number_),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceChunk& DeviceChunk::operator=(DeviceChunk&& other) noexcept {
  if (this != &other) {
    Reset();
    session_ = std::move(other.session_);
    number_ = other.number_;
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

DeviceChunk::~DeviceChunk() { Reset(); }

void DeviceChunk::Reset() noexcept {
  if (session_ != nullptr) session_->FreeChunk(number_);
  session_.reset();
  bytes_ = 0;
}

// ---- client

Result<Client> Client::Connect(const ClientOptions& options) {
  Result<std::shared_ptr<Session>> session = Session::Connect(options);
  if (!session.ok()) return session.status();
  return Client(std::move(*session));
}

Result<std::vector<DeviceProperties>> Client::ListDevices(const ClientOptions& options) {
  return Session::ListDevices(options);
}

std::optional<std::int32_t> DeviceProperties::Attribute(std::uint32_t wanted) const {
  const auto found = std::ranges::lower_bound(attributes, wanted, {}, &DeviceAttribute::id);
  if (found == attributes.end() || found->id != wanted) return std::nullopt;
  return found->value;
}

const DeviceProperties& Client::device() const noexcept { return session_->device(); }

std::uint64_t Client::session_id() const noexcept { return session_->id(); }

Result<Module> Client::LoadModule(std::span<const std::byte> image) const {
  if (!valid()) return Invalid(kEmptyClient);
  Result<std::shared_ptr<const ModuleState>> module = session_->LoadModule(image);
  if (!module.ok()) return module.status();
  return Module(std::move(*module));
}

Result<Module> Client::LoadModule(std::string_view ptx) const {
  return LoadModule(std::as_bytes(std::span(ptx.data(), ptx.size())));
}

Result<Module> Client::LoadModuleFile(const std::string& path) const {
  const auto cannot_read = [&] {
    return Status(StatusCode::kNotFound,
                  "module load rejected: cannot read '" + path + "': " + std::strerror(errno));
  };
  const std::unique_ptr<FILE, int (*)(FILE*)> file(::fopen(path.c_str(), "rbe"), &::fclose);
  if (file == nullptr) return cannot_read();
  std::vector<std::byte> image;
  std::array<std::byte, std::size_t{64} * 1024> piece;
  while (const std::size_t got = ::fread(piece.data(), 1, piece.size(), file.get())) {
    // Stops early: images that are too large are rejected below, so there is no need to read the
    // rest.
    if (image.size() > ipc::kModuleImageBytesMax) break;
    image.insert(image.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(got));
  }
  if (::ferror(file.get()) != 0) return cannot_read();
  return LoadModule(image);
}

Result<DeviceBuffer> Client::AllocateDevice(std::size_t bytes) const {
  if (!valid()) return Invalid(kEmptyClient);
  std::uint64_t used_bytes = 0;
  const Result<DeviceAddress> address = session_->AllocateDevice(bytes, used_bytes);
  if (!address.ok()) return address.status();
  return DeviceBuffer(session_, *address, bytes, used_bytes);
}

Result<HostBuffer> Client::AllocateHost(std::size_t bytes) const {
  if (!valid()) return Invalid(kEmptyClient);
  const Result<std::byte*> data = session_->AllocateHost(bytes);
  if (!data.ok()) return data.status();
  return HostBuffer(session_, {*data, bytes});
}

Result<std::uint64_t> Client::TrimDevice() const {
  if (!valid()) return Invalid(kEmptyClient);
  return session_->TrimDevice();
}

MemoryInfo Client::memory_info() const { return valid() ? session_->memory_info() : MemoryInfo{}; }

AddressArea Client::mapping_area() const noexcept {
  return valid() ? session_->mapping_area() : AddressArea{};
}

Result<DeviceChunk> Client::CreateChunk(std::size_t bytes) const {
  if (!valid()) return Invalid(kEmptyClient);
  const Result<std::uint32_t> number = session_->MakeChunk(bytes);
  if (!number.ok()) return number.status();
  return DeviceChunk(session_, *number, bytes);
}

Status Client::MapChunk(const DeviceChunk& chunk, DeviceAddress address) const {
  if (!valid()) return Invalid(kEmptyClient);
  if (chunk.session_ != session_)
    return Invalid("mapping rejected: the chunk is of another client");
  return session_->MapChunk(chunk.number_, address);
}

Status Client::UnmapChunk(DeviceAddress address) const {
  if (!valid()) return Invalid(kEmptyClient);
  return session_->UnmapChunk(address);
}

Result<Stream> Client::CreateStream() const {
  if (!valid()) return Invalid(kEmptyClient);
  Result<std::shared_ptr<StreamRecord>> record = session_->CreateStream();
  if (!record.ok()) return record.status();
  return Stream(std::make_shared<StreamState>(session_, std::move(*record)));
}

Stream Client::default_stream() const {
  if (!valid()) return Stream();
  return Stream(std::make_shared<StreamState>(session_, session_->default_stream()));
}

Result<Event> Client::CreateEvent(EventTiming timing) const {
  if (!valid()) return Invalid(kEmptyClient);
  return Event(std::make_shared<EventState>(session_, timing));
}

Status Client::Synchronize() const {
  return valid() ? session_->Synchronize() : Invalid(kEmptyClient);
}

Status Client::ExpectRequestIn(std::chrono::nanoseconds in) const {
  return valid() ? session_->ExpectRequestIn(in) : Invalid(kEmptyClient);
}

Result<std::string> Client::TakePrinted() const {
  if (!valid()) return Invalid(kEmptyClient);
  return session_->TakePrinted();
}

Status Client::SetKernelMemory(const KernelMemory& memory) const {
  return valid() ? session_->SetKernelMemory(memory) : Invalid(kEmptyClient);
}

FaultKind Client::fault() const noexcept {
  return valid() ? session_->first_fault() : FaultKind::kNone;
}

Status Client::status() const { return valid() ? session_->CheckAlive() : Invalid(kEmptyClient); }

void Client::Close() noexcept {
  if (valid()) session_->Close();
}

Status Client::CloseAndWait() { return valid() ? session_->CloseAndWait() : Invalid(kEmptyClient); }

// ---- events

Status Event::Query() const {
  if (!valid()) return Invalid(kEmptyEvent);
  const EventState::Point point = state_->point();
  if (point.stream == nullptr) return Status::Ok();
  return state_->session().Poll(*point.stream, point.sequence);
}

Status Event::Synchronize() const {
  if (!valid()) return Invalid(kEmptyEvent);
  const EventState::Point point = state_->point();
  if (point.stream == nullptr) return Status::Ok();
  Status status = state_->session().Await(*point.stream, point.sequence);
  state_->session().ReportWanted();
  return status;
}

Result<std::chrono::nanoseconds> Event::ElapsedTime(const Event& start, const Event& end) {
  if (!start.valid() || !end.valid()) return Invalid(kEmptyEvent);
  std::uint64_t times_ns[2] = {};
  const Event* const events[2] = {&start, &end};
  for (int i = 0; i < 2; ++i) {
    const EventState& state = *events[i]->state_;
    const EventState::Point point = state.point();
    if (state.timing() != EventTiming::kOn || point.mark == nullptr) {
      return Invalid("elapsed time rejected: both events need EventTiming::kOn and a Record");
    }
    if (Status status = state.session().Poll(*point.stream, point.sequence); !status.ok()) {
      return status;
    }
    // The mark was stored before the timeline word, so it is visible here unless the server sent
    // none.
    if (!point.mark->done.load(std::memory_order_acquire)) {
      return Status(StatusCode::kInternal, "elapsed time failed: the server sent no time");
    }
    if (point.mark->code != StatusCode::kOk) {
      return Status(point.mark->code, "elapsed time failed: an event's stream had failed");
    }
    times_ns[i] = point.mark->ended_ns;
  }
  return std::chrono::nanoseconds(static_cast<std::int64_t>(times_ns[1] - times_ns[0]));
}

}  // namespace gpushared
