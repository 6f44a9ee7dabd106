// SPDX-License-Identifier: Apache-2.0
#include "client_lib/session.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace gpushared::client {

namespace {

// Clamps the limits to those of the protocol, so that every accepted launch fits into a record.
DeviceProperties GetProperties(const ipc::DeviceDescription& device) {
  std::vector<DeviceAttribute> attributes;
  for (const ipc::DeviceAttribute& each : device.attributes) {
    attributes.push_back({.id = each.id, .value = each.value});
  }
  return {.name = device.name,
          .id = device.id,
          .kind = device.kind,
          .memory_bytes = device.memory_bytes,
          .multiprocessors = device.multiprocessors,
          .threads_per_block_max = std::min(device.threads_per_block_max, ipc::kThreadsPerBlockMax),
          .block_max = {std::min(device.block_max[0], ipc::kBlockXyMax),
                        std::min(device.block_max[1], ipc::kBlockXyMax),
                        std::min(device.block_max[2], ipc::kBlockZMax)},
          .grid_max = {std::min(device.grid_max[0], ipc::kGridXMax),
                       std::min(device.grid_max[1], ipc::kGridYzMax),
                       std::min(device.grid_max[2], ipc::kGridYzMax)},
          .shared_bytes_per_block_max =
              std::min(device.shared_bytes_per_block_max, ipc::kDynamicSharedBytesMax),
          .uuid = device.uuid,
          .attributes = std::move(attributes)};
}

Status WrongProcess() {
  return Status(StatusCode::kWrongProcess,
                "a forked child cannot use the session of its parent; connect again in the child");
}

std::chrono::nanoseconds GetSpin(const ClientOptions& options, const ipc::Welcome& welcome) {
  if (options.spin) return *options.spin;
  // Does not spin on a single core, because that would keep the worker from running.
  if (ipc::UsableCores() < 2) return std::chrono::nanoseconds(0);
  return std::chrono::nanoseconds(welcome.spin_ns);
}

}  // namespace

Result<std::shared_ptr<Session>> Session::Connect(const ClientOptions& options) {
  Result<Connection::Opened> opened = Connection::Open(options);
  if (!opened.ok()) return opened.status();
  auto data = std::make_unique<SharedData>();
  data->connection = std::move(opened->connection);
  Result<std::unique_ptr<DataPlane>> plane =
      DataPlane::Make(std::move(opened->fds), GetSpin(options, opened->welcome), *data->connection);
  if (!plane.ok()) return plane.status();
  data->plane = std::move(*plane);
  // Not make_shared, because the constructor is private.
  return std::shared_ptr<Session>(new Session(std::move(data), opened->welcome, options));
}

Result<std::vector<DeviceProperties>> Session::ListDevices(const ClientOptions& options) {
  const Result<ipc::DeviceList> list = Connection::ListDevices(options);
  if (!list.ok()) return list.status();
  std::vector<DeviceProperties> devices;
  for (const ipc::DeviceDescription& device : list->devices) {
    devices.push_back(GetProperties(device));
  }
  return devices;
}

Session::Session(std::unique_ptr<SharedData> data, const ipc::Welcome& welcome,
                 const ClientOptions& options)
    : data_(std::move(data)),
      device_(GetProperties(welcome.device)),
      id_(welcome.session),
      mapping_area_{.base = welcome.mapping_base, .bytes = welcome.mapping_bytes},
      takes_printed_(options.takes_printed),
      on_memory_wanted_(options.on_memory_wanted),
      default_stream_(std::make_shared<StreamRecord>(0, 0)),
      streams_(ipc::kStreamsMax),
      chunk_bytes_(ipc::kChunksMax, 0),
      module_used_(ipc::kModulesMax, false) {
  const auto wait = [this](const Fence& fence) { return data_->plane->Await(fence); };
  memory_ = std::make_unique<DeviceMemory>(
      welcome.space_base, welcome.quota_bytes, data_->plane->progress(),
      DeviceMemory::Surroundings{
          .resize = [this](std::uint64_t bytes) -> Result<std::uint64_t> {
            const Result<ipc::MemoryResized> resized =
                data_->connection->Ask<ipc::MemoryResized>(ipc::ResizeMemory{.bytes = bytes});
            if (!resized.ok()) return resized.status();
            return resized->mapped_bytes;
          },
          .wait = wait,
          .name_buffer = GetNamer(welcome),
          .forget_buffer =
              [this](std::uint64_t address) { ReportBuffer(ipc::Op::kForgetBuffer, address, 0); }});
  staging_buffers_ = std::make_unique<StagingBufferSet>(
      data_->plane->progress(),
      StagingBufferSet::Surroundings{
          .add = [this](std::uint64_t bytes) { return AddStagingBuffer(bytes); }, .wait = wait});
  streams_[0] = default_stream_;
  data_->plane->Register(default_stream_);
}

std::function<void(std::uint64_t, std::uint64_t)> Session::GetNamer(const ipc::Welcome& welcome) {
  // The server needs the buffers that a launch accesses only if it can swap out memory, which it
  // does only with memory beyond the guarantee.
  const std::uint64_t guaranteed = data_->plane->guaranteed_bytes();
  if (guaranteed == 0 || guaranteed >= welcome.quota_bytes) return {};
  return [this](std::uint64_t address, std::uint64_t bytes) {
    ReportBuffer(ipc::Op::kNameBuffer, address, bytes);
  };
}

void Session::ReportBuffer(ipc::Op op, std::uint64_t address, std::uint64_t bytes) {
  // Fails only if the session has ended, and then its memory no longer exists.
  (void)data_->plane->Submit(
      *default_stream_,
      ipc::BufferRecord{
          .header = {.op = static_cast<std::uint8_t>(op)}, .address = address, .bytes = bytes});
}

Session::~Session() {
  if (InOwner()) return;
  // The mappings are abandoned instead of unmapped, because the child may have reused their
  // addresses.
  staging_buffers_->Abandon();
  static_cast<void>(data_->plane.release());
}

Status Session::Usable() const {
  if (!InOwner()) return WrongProcess();
  // Lock-free while the session is alive, because most calls use it.
  return data_->connection->ended() ? data_->connection->end_status() : Status::Ok();
}

Status Session::CheckAlive() {
  if (!InOwner()) return WrongProcess();
  data_->connection->CheckAlive();
  return data_->connection->end_status();
}

void Session::Close() {
  if (!InOwner()) return;
  data_->connection->End(
      Status(StatusCode::kDisconnected,
             "session " + std::to_string(id_) + " ended: it was closed by this program"));
  data_->plane->WakeWaiters();
}

Status Session::CloseAndWait() {
  if (!InOwner()) return WrongProcess();
  Close();
  return data_->connection->AwaitEnd();
}

// ---- memory

Result<DeviceAddress> Session::AllocateDevice(std::size_t bytes, std::uint64_t& used_bytes) {
  if (Status status = Usable(); !status.ok()) return status;
  ReportWanted();
  ReapModules();
  return memory_->Allocate(bytes, &used_bytes);
}

void Session::FreeDevice(DeviceAddress address) {
  if (InOwner()) memory_->Free(address);
}

Result<std::byte*> Session::AllocateHost(std::size_t bytes) {
  if (Status status = Usable(); !status.ok()) return status;
  const Result<StagingBlock> block = staging_buffers_->Allocate(bytes);
  if (!block.ok()) return block.status();
  return block->data;
}

void Session::FreeHost(std::byte* block) {
  if (InOwner()) staging_buffers_->Retire(block, progress().Unfinished());
}

MemoryInfo Session::memory_info() {
  if (!InOwner()) return {};
  MemoryInfo info = memory_->Info();
  const std::uint64_t chunks = chunk_bytes();
  info.mapped_bytes += chunks;
  info.used_bytes += chunks;
  const DataPlane& plane = *data_->plane;
  const std::uint64_t guaranteed = plane.guaranteed_bytes();
  // 0 means that all memory is guaranteed and nothing is swapped out.
  info.guaranteed_bytes =
      guaranteed == 0 ? info.total_bytes : std::min(guaranteed, info.total_bytes);
  info.resident_bytes =
      guaranteed == 0 ? info.mapped_bytes : std::min(plane.resident_bytes(), info.mapped_bytes);
  info.wanted_bytes = std::min(plane.wanted_bytes(), info.resident_bytes);
  return info;
}

Result<std::uint64_t> Session::TrimDevice() {
  if (Status status = Usable(); !status.ok()) return status;
  return memory_->Trim();
}

void Session::ReportWantedNow() {
  if (is_reporting_.exchange(true)) return;
  const std::uint64_t wanted = data_->plane->wanted_bytes();
  const bool has_changed = wanted_reported_.exchange(wanted) != wanted && wanted != 0;
  if (has_changed) on_memory_wanted_(wanted);
  // Freed memory helps other clients only once it has been returned to the device, hence the trim.
  // Memory that cannot be returned is swapped out instead.
  if (has_changed || trim_is_due_) {
    (void)TrimDevice();
    trim_is_due_ = wanted != 0 && memory_->HasRetired();
  }
  is_reporting_.store(false);
}

Result<StagingBlock> Session::AllocateStaging(std::size_t bytes) {
  if (Status status = Usable(); !status.ok()) return status;
  for (;;) {
    const Result<std::optional<StagingBlock>> block = staging_buffers_->TryAllocateStaging(bytes);
    if (!block.ok()) return block.status();
    if (*block) return **block;
    if (Status status = staging_buffers_->WaitForOldest(); !status.ok()) return status;
  }
}

Result<std::unique_ptr<StagingBuffer>> Session::AddStagingBuffer(std::uint64_t bytes) {
  std::vector<ipc::UniqueFd> fds;
  const Result<ipc::StagingBufferAdded> added = data_->connection->Ask<ipc::StagingBufferAdded>(
      ipc::AddStagingBuffer{.bytes = bytes}, {}, &fds);
  if (!added.ok()) return added.status();
  if (fds.size() != 1) {
    return Status(StatusCode::kProtocolViolation,
                  "host allocation failed: the server sent no descriptor");
  }
  Result<ipc::SharedSegment> segment =
      ipc::SharedSegment::Map(std::move(fds[0]), {.bytes = added->bytes,
                                                  .access = ipc::SharedSegment::Access::kReadWrite,
                                                  .what = "staging buffer"});
  if (!segment.ok()) return segment.status();
  segment->CloseFd();
  return std::make_unique<StagingBuffer>(added->staging_buffer, std::move(*segment));
}

// ---- streams

Result<std::uint32_t> Session::TakeStreamNumber() {
  for (;;) {
    StreamPoint oldest;
    {
      const MutexLock lock(streams_mutex_);
      for (auto it = destroyed_.begin(); it != destroyed_.end(); ++it) {
        if (!progress().HasEnded(*it)) continue;
        const std::uint32_t number = it->stream;
        destroyed_.erase(it);
        return number;
      }
      for (std::uint32_t number = 1; number < ipc::kStreamsMax; ++number) {
        if (streams_[number] != nullptr || progress().submitted(number) != 0) continue;
        // Placeholder that marks the number as taken, until CreateStream stores the record.
        streams_[number] = default_stream_;
        return number;
      }
      if (destroyed_.empty()) {
        return Status(StatusCode::kLimitExceeded,
                      "stream creation rejected: " + std::to_string(ipc::kStreamsMax - 1) +
                          " streams exist besides the default one, more are not allowed");
      }
      oldest = destroyed_.front();
    }
    if (Status status = data_->plane->Await(oldest); !status.ok()) return status;
  }
}

Result<std::shared_ptr<StreamRecord>> Session::CreateStream() {
  if (Status status = Usable(); !status.ok()) return status;
  const Result<std::uint32_t> number = TakeStreamNumber();
  if (!number.ok()) return number.status();
  auto stream = std::make_shared<StreamRecord>(*number, progress().submitted(*number));
  // Processes pending completions for the previous stream of this number first.
  data_->plane->Register(stream);
  const Result<std::uint64_t> created = data_->plane->Submit(
      *stream,
      ipc::PlainRecord{.header = {.op = static_cast<std::uint8_t>(ipc::Op::kCreateStream)}});
  if (!created.ok()) return created.status();
  const MutexLock lock(streams_mutex_);
  streams_[*number] = stream;
  return stream;
}

void Session::DestroyStream(const std::shared_ptr<StreamRecord>& stream) {
  if (!InOwner() || data_->connection->ended()) return;
  // The command is submitted for a failed stream too, because the number of the stream becomes free
  // and an open request ends with the stream.
  const MutexLock requests_lock(requests_mutex_);
  const Result<std::uint64_t> destroyed = data_->plane->Submit(
      *stream,
      ipc::PlainRecord{.header = {.op = static_cast<std::uint8_t>(ipc::Op::kDestroyStream)}});
  if (!destroyed.ok()) return;
  const StreamPoint end{.stream = stream->number(), .sequence = *destroyed};
  if (requests_.IsOpen(end.stream)) requests_.End(end);
  const MutexLock lock(streams_mutex_);
  streams_[stream->number()] = nullptr;
  destroyed_.push_back(end);
}

Result<std::uint32_t> Session::TakeGraphNumber() {
  const MutexLock lock(graphs_mutex_);
  const auto free = std::find(graph_used_.begin(), graph_used_.end(), false);
  const auto number = static_cast<std::uint32_t>(free - graph_used_.begin());
  if (free != graph_used_.end()) {
    *free = true;
    return number;
  }
  if (number >= ipc::kGraphsMax) {
    return Status(StatusCode::kLimitExceeded,
                  "graph rejected: " + std::to_string(number) +
                      " graphs exist, more are not allowed; destroy one that is not needed");
  }
  graph_used_.push_back(true);
  return number;
}

void Session::ReturnGraphNumber(std::uint32_t number) {
  const MutexLock lock(graphs_mutex_);
  graph_used_[number] = false;
}

void Session::DestroyGraph(std::uint32_t number) {
  if (!InOwner() || data_->connection->ended()) return;
  // Submitted even on a failed stream, because the command takes effect when the server receives
  // it.
  const Result<std::uint64_t> destroyed = data_->plane->Submit(
      *default_stream_,
      ipc::GraphRecord{.header = {.op = static_cast<std::uint8_t>(ipc::Op::kDestroyGraph)},
                       .graph = number});
  if (destroyed.ok()) ReturnGraphNumber(number);
}

std::vector<std::shared_ptr<StreamRecord>> Session::LiveStreams() const {
  const MutexLock lock(streams_mutex_);
  std::vector<std::shared_ptr<StreamRecord>> live;
  for (std::uint32_t number = 0; number < ipc::kStreamsMax; ++number) {
    // Skips numbers that are being taken, which hold the default stream; see TakeStreamNumber.
    if (streams_[number] != nullptr && streams_[number]->number() == number) {
      live.push_back(streams_[number]);
    }
  }
  return live;
}

// ---- kernel memory

Status Session::SetKernelMemory(const Client::KernelMemory& memory) {
  if (!InOwner()) return WrongProcess();
  if (memory.stack_bytes > ipc::kStackBytesMax || memory.printed_bytes > ipc::kPrintedBytesMax ||
      memory.heap_bytes > ipc::kResizeBytesMax) {
    return {StatusCode::kInvalidArgument,
            "limit rejected: asked for a stack of " + std::to_string(memory.stack_bytes) +
                " bytes, printed text of " + std::to_string(memory.printed_bytes) +
                " and a heap of " + std::to_string(memory.heap_bytes) + ", allowed: " +
                std::to_string(ipc::kStackBytesMax) + ", " + std::to_string(ipc::kPrintedBytesMax) +
                " and " + std::to_string(ipc::kResizeBytesMax)};
  }
  return data_->connection
      ->Ask<ipc::Done>(ipc::SetKernelMemory{.stack_bytes = memory.stack_bytes,
                                            .printed_bytes = memory.printed_bytes,
                                            .heap_bytes = memory.heap_bytes})
      .status();
}

// ---- printed text

Result<std::string> Session::TakePrinted() {
  if (!takes_printed_) {
    return Status(StatusCode::kInvalidArgument,
                  "printed text rejected: the client was connected without takes_printed");
  }
  if (!InOwner()) return WrongProcess();
  const std::uint64_t wanted = data_->plane->printed();
  // Relaxed: no other data depends on the number. Usually nothing was printed, and no lock is
  // needed.
  if (printed_taken_.load(std::memory_order_relaxed) >= wanted) [[likely]]
    return std::string();
  const MutexLock lock(printed_mutex_);
  std::string text;
  std::uint64_t taken = printed_taken_.load(std::memory_order_relaxed);
  while (taken < wanted) {
    const Result<ipc::Printed> part = data_->connection->Ask<ipc::Printed>(ipc::TakePrinted{});
    if (!part.ok()) return part.status();
    if (part->end <= taken || part->dropped < printed_dropped_) {
      Status status(StatusCode::kProtocolViolation,
                    "session ended: the server sent printed text twice");
      data_->connection->End(status);
      return status;
    }
    text += part->text;
    taken = part->end;
    printed_taken_.store(taken, std::memory_order_relaxed);
    if (const std::uint64_t lost = part->dropped - std::exchange(printed_dropped_, part->dropped)) {
      text += "\n[" + std::to_string(lost) + " bytes of printed text were lost]\n";
    }
  }
  return text;
}

// ---- waiting and errors

Status Session::WhyRejected(StreamRecord& stream) {
  if (Status status = Usable(); !status.ok()) return status;
  return GetError(stream);
}

Status Session::Await(StreamRecord& stream, std::uint64_t sequence) {
  if (!InOwner()) return WrongProcess();
  Status status = data_->plane->Await(StreamPoint{stream.number(), sequence});
  if (has_retired_modules_.load(std::memory_order_relaxed)) ReapModules();
  if (stream.FailedAt(sequence)) return GetError(stream);
  return status;
}

Status Session::Poll(StreamRecord& stream, std::uint64_t sequence) {
  if (!InOwner()) return WrongProcess();
  const bool has_ended = progress().HasEnded(StreamPoint{stream.number(), sequence});
  data_->plane->TakeCompletions();
  if (stream.FailedAt(sequence)) return GetError(stream);
  if (has_ended) return Status::Ok();
  constexpr std::int64_t kPollEveryNs = 50'000'000;
  const std::int64_t now_ns = std::chrono::steady_clock::now().time_since_epoch().count();
  if (now_ns - last_poll_ns_.load(std::memory_order_relaxed) > kPollEveryNs) {
    last_poll_ns_.store(now_ns, std::memory_order_relaxed);
    data_->connection->CheckAlive();
  }
  if (data_->connection->ended()) return data_->connection->end_status();
  return Status(StatusCode::kNotReady, "commands are still queued or running");
}

Status Session::Synchronize() {
  if (!InOwner()) return WrongProcess();
  const std::vector<std::shared_ptr<StreamRecord>> streams = LiveStreams();
  const Status status = data_->plane->Await(progress().Unfinished());
  ReportWanted();
  if (has_retired_modules_.load(std::memory_order_relaxed)) ReapModules();
  for (const std::shared_ptr<StreamRecord>& stream : streams) {
    if (stream->failed()) return GetError(*stream);
  }
  return status.ok() ? data_->connection->end_status() : status;
}

Status Session::GetError(StreamRecord& stream) {
  if (const std::optional<Status> text = stream.error_text()) return *text;
  const Result<ipc::ErrorText> description =
      data_->connection->Ask<ipc::ErrorText>(ipc::DescribeError{.stream = stream.number()});
  // Compares the sequence, because the server may describe a later stream with the same number.
  if (description.ok() && !description->status.ok() &&
      description->sequence == stream.error_sequence()) {
    stream.set_error_text(description->status);
    return description->status;
  }
  // The loss of the device ends both the running commands and the session with the same code.
  // Returns the status of the session, which has a message.
  Status end = data_->connection->end_status();
  if (!end.ok() && end.code() == stream.error_code()) {
    stream.set_error_text(end);
    return end;
  }
  return Status(stream.error_code(), "command " + std::to_string(stream.error_sequence()) +
                                         " of stream " + std::to_string(stream.number()) +
                                         " failed; the server's message is no longer available");
}

}  // namespace gpushared::client
