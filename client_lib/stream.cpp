// SPDX-License-Identifier: Apache-2.0
// Stream: turns calls into commands. Invalid calls are rejected here, because an invalid record in
// the ring would end the session.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "gpushared/client.h"
#include "gpushared/launch_limits.h"

#include "client_lib/copier.h"
#include "client_lib/session.h"

namespace gpushared {

using client::Copier;
using client::EventState;
using client::KernelState;
using client::Mark;
using client::Session;
using client::StagingBlock;
using client::StreamRecord;

namespace {

Status Invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

Status EmptyStream() { return Invalid("the stream is empty: it was moved from or never created"); }

std::uint8_t Code(ipc::Op op) { return static_cast<std::uint8_t>(op); }

// ---- launches

std::string Extent(const Dim3& extent) {
  return std::to_string(extent.x) + "x" + std::to_string(extent.y) + "x" + std::to_string(extent.z);
}

Status CheckCluster(const KernelState& kernel, const Dim3& cluster) {
  if ((cluster.x | cluster.y | cluster.z) == 0) [[likely]]
    return Status::Ok();
  const auto within = [](std::uint32_t value) { return value - 1 < ipc::kClusterBlocksMax; };
  if (within(cluster.x) && within(cluster.y) && within(cluster.z) &&
      cluster.x * cluster.y * cluster.z <= ipc::kClusterBlocksMax) {
    return Status::Ok();
  }
  return Invalid("launch rejected: kernel '" + kernel.name + "' asks for clusters of " +
                 Extent(cluster) + " blocks, allowed: 1 to " +
                 std::to_string(ipc::kClusterBlocksMax) + ", or 0 along all axes for none");
}

Status CheckShape(const DeviceProperties& device, const KernelState& kernel,
                  const LaunchShape& shape) {
  const LaunchExcess excess =
      CheckLaunchLimits({.grid = {shape.grid.x, shape.grid.y, shape.grid.z},
                         .block = {shape.block.x, shape.block.y, shape.block.z},
                         .cluster = {shape.cluster.x, shape.cluster.y, shape.cluster.z},
                         .static_shared_bytes = kernel.static_shared_bytes,
                         .dynamic_shared_bytes = shape.dynamic_shared_bytes},
                        {.grid_max = device.grid_max,
                         .block_max = device.block_max,
                         .threads_per_block_max =
                             std::min(device.threads_per_block_max, kernel.threads_per_block_max),
                         .shared_bytes_per_block_max = device.shared_bytes_per_block_max,
                         .required_block = kernel.required_block,
                         .required_cluster = kernel.required_cluster});
  if (!excess.ok()) [[unlikely]]
    return Invalid(excess.Message(kernel.name, device.id));
  return CheckCluster(kernel, shape.cluster);
}

Status RejectArguments(const KernelState& kernel, std::span<const LaunchArgument> arguments) {
  const std::string rejected = "launch rejected: kernel '" + kernel.name + "' ";
  if (arguments.size() != kernel.parameters.size()) {
    return Invalid(rejected + "takes " + std::to_string(kernel.parameters.size()) + " arguments, " +
                   std::to_string(arguments.size()) + " were given");
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].bytes != kernel.parameters[i].bytes) {
      return Invalid(rejected + "takes " + std::to_string(kernel.parameters[i].bytes) +
                     " bytes as argument " + std::to_string(i) + " (counted from 0), " +
                     std::to_string(arguments[i].bytes) + " were given");
    }
  }
  return Invalid(rejected + "was given an argument without data");
}

ipc::LaunchRecord GetRecord(const KernelState& kernel, const LaunchShape& shape) {
  const std::uint8_t flags = shape.is_cooperative ? ipc::kFlagCooperative : 0;
  return {.header = {.op = Code(ipc::Op::kLaunch), .flags = flags},
          .module = kernel.module_number,
          .kernel = kernel.index,
          .grid = {shape.grid.x, shape.grid.y, shape.grid.z},
          .block = {static_cast<std::uint16_t>(shape.block.x),
                    static_cast<std::uint16_t>(shape.block.y),
                    static_cast<std::uint16_t>(shape.block.z)},
          .parameter_bytes = static_cast<std::uint16_t>(kernel.parameter_bytes),
          .dynamic_shared_bytes = shape.dynamic_shared_bytes,
          .cluster = {static_cast<std::uint8_t>(shape.cluster.x),
                      static_cast<std::uint8_t>(shape.cluster.y),
                      static_cast<std::uint8_t>(shape.cluster.z)}};
}

// Submits a launch whose parameters do not fit into a record of the ring, so they are passed in
// staging memory.
Status SubmitLargeLaunch(Session& session, const std::shared_ptr<StreamRecord>& stream,
                         ipc::LaunchRecord record, std::span<const std::byte> parameters) {
  const Result<StagingBlock> block = session.AllocateStaging(parameters.size());
  if (!block.ok()) return block.status();
  std::memcpy(block->data, parameters.data(), parameters.size());
  record.header.flags |= ipc::kFlagParametersInStagingBuffer;
  record.staging_buffer = block->place.staging_buffer;
  record.staging_offset = block->place.offset;
  const Result<std::uint64_t> sequence = session.Submit(stream, record);
  if (!sequence.ok()) {
    session.staging_buffers().Free(block->data);
    return sequence.status();
  }
  session.staging_buffers().Retire(block->data, {{stream->number(), *sequence}});
  return Status::Ok();
}

Status CheckKernel(const Session& session, const KernelState* kernel) {
  if (kernel == nullptr) return Invalid("launch rejected: the kernel is empty");
  if (kernel->session != &session) {
    return Invalid("launch rejected: kernel '" + kernel->name + "' belongs to another client");
  }
  if (!kernel->unsupported.empty()) {
    return Status(StatusCode::kUnsupported, "launch rejected: kernel '" + kernel->name +
                                                "' cannot run on device " + session.device().id +
                                                ": " + kernel->unsupported);
  }
  return Status::Ok();
}

// ---- copies and fills

// Exclusive upper bound of every device's addresses; it also keeps the sums below from overflowing.
constexpr std::uint64_t kSpanMax = std::uint64_t{1} << 63;

// Checks `height` rows of `width` bytes that begin at `start`.
Status CheckRows(const char* what, std::uint64_t start, std::uint64_t pitch, std::uint64_t width,
                 std::uint64_t height) {
  if (pitch < width) {
    return Invalid(std::string(what) + " pitch is " + std::to_string(pitch) +
                   " bytes, at least the width of " + std::to_string(width) + " bytes is needed");
  }
  const bool fits = start <= kSpanMax && width <= kSpanMax - start &&
                    (height == 1 || pitch <= (kSpanMax - start - width) / (height - 1));
  if (fits) return Status::Ok();
  return Invalid(std::string(what) + " of " + std::to_string(height) + " rows of " +
                 std::to_string(width) + " bytes from address " + std::to_string(start) +
                 " does not fit into an address space");
}

bool IsEmpty(const CopyShape& shape) { return shape.width_bytes == 0 || shape.height == 0; }

// Replaces the pitches of a single row, which are ignored, by valid ones.
CopyShape Normalised(CopyShape shape) {
  if (shape.height == 1) {
    shape.destination_pitch_bytes = shape.source_pitch_bytes = shape.width_bytes;
  }
  return shape;
}

Status CheckCopy(std::uint64_t destination, std::uint64_t source, const CopyShape& shape) {
  if (Status status = CheckRows("copy rejected: destination", destination,
                                shape.destination_pitch_bytes, shape.width_bytes, shape.height);
      !status.ok()) {
    return status;
  }
  return CheckRows("copy rejected: source", source, shape.source_pitch_bytes, shape.width_bytes,
                   shape.height);
}

Status CheckHeight(const char* what, std::size_t height) {
  constexpr std::size_t kRowsMax = std::numeric_limits<std::uint32_t>::max();
  if (height <= kRowsMax) return Status::Ok();
  return Invalid(std::string(what) + " has " + std::to_string(height) + " rows, at most " +
                 std::to_string(kRowsMax) + " are allowed");
}

CopyShape OneRow(std::size_t bytes) {
  return {.width_bytes = bytes,
          .height = 1,
          .destination_pitch_bytes = bytes,
          .source_pitch_bytes = bytes};
}

std::uint64_t GetAddress(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

// Called by copies, fills, Record and Wait before they submit anything, even for an empty copy or
// fill.
Status CheckStream(client::StreamState& state) {
  Session& session = state.session();
  if (Status status = session.Usable(); !status.ok()) return status;
  if (state.record()->failed()) return session.GetError(*state.record());
  return Status::Ok();
}

// Rejects the call `what` if the stream is a recorder, because the commands of a recorder do not
// run.
Status CheckRuns(const client::StreamState& state, const char* what) {
  if (state.record()->recorder() == nullptr) [[likely]]
    return Status::Ok();
  return Invalid(std::string(what) +
                 " rejected: the stream records a graph; waits, events and requests belong before "
                 "or after the graph's launch");
}

}  // namespace

Status Stream::LaunchWith(const Kernel& kernel, const LaunchShape& shape,
                          std::span<const LaunchArgument> arguments) const {
  if (!valid()) return EmptyStream();
  const KernelState* const state = kernel.state_.get();
  if (Status status = CheckKernel(state_->session(), state); !status.ok()) return status;
  const std::vector<KernelParameter>& parameters = state->parameters;

  // LoadModule has checked that all parameters lie inside parameter_bytes, and that parameter_bytes
  // does not exceed kParameterBytesMax.
  std::array<std::byte, ipc::kInlineParameterBytesMax> inline_buffer;
  std::vector<std::byte> large_buffer;
  std::byte* buffer = inline_buffer.data();
  if (state->parameter_bytes > inline_buffer.size()) {
    large_buffer.resize(state->parameter_bytes);
    buffer = large_buffer.data();
  }
  bool fits = arguments.size() == parameters.size();
  // Cleared first, because padding between arguments is sent as well and must not leak the contents
  // of the stack.
  std::memset(buffer, 0, state->parameter_bytes);
  for (std::size_t i = 0; fits && i < parameters.size(); ++i) {
    fits = arguments[i].bytes == parameters[i].bytes && arguments[i].data != nullptr;
    if (fits) std::memcpy(buffer + parameters[i].offset, arguments[i].data, parameters[i].bytes);
  }
  if (!fits) return RejectArguments(*state, arguments);
  return LaunchPacked(kernel, shape, {buffer, state->parameter_bytes});
}

Status Stream::LaunchPacked(const Kernel& kernel, const LaunchShape& shape,
                            std::span<const std::byte> parameters) const {
  if (!valid()) return EmptyStream();
  Session& session = state_->session();
  const KernelState* const state = kernel.state_.get();
  if (Status status = CheckKernel(session, state); !status.ok()) return status;
  if (parameters.size() != state->parameter_bytes) {
    return Invalid("launch rejected: kernel '" + state->name + "' takes an argument buffer of " +
                   std::to_string(state->parameter_bytes) + " bytes, " +
                   std::to_string(parameters.size()) + " were given");
  }
  if (Status status = CheckShape(session.device(), *state, shape); !status.ok()) return status;
  const ipc::LaunchRecord record = GetRecord(*state, shape);
  if (client::GraphRecorder* const recorder = state_->record()->recorder().get()) [[unlikely]] {
    recorder->RecordKernel(kernel.state_);
  } else if (parameters.size() > ipc::kInlineParameterBytesMax) {
    return SubmitLargeLaunch(session, state_->record(), record, parameters);
  }
  Status status = session.Submit(state_->record(), record, parameters).status();
  session.ReportWanted();
  return status;
}

Status Stream::CopyToDevice(DeviceAddress destination, const void* source,
                            std::size_t bytes) const {
  return CopyToDevice2d(destination, source, OneRow(bytes));
}

Status Stream::CopyToDevice2d(DeviceAddress destination, const void* source,
                              const CopyShape& shape) const {
  if (!valid()) return EmptyStream();
  if (Status status = CheckStream(*state_); !status.ok() || IsEmpty(shape)) return status;
  if (source == nullptr) return Invalid("copy rejected: the source is null");
  const CopyShape rows = Normalised(shape);
  if (Status status = CheckCopy(destination, GetAddress(source), rows); !status.ok()) return status;
  return Copier(state_->session(), state_->record())
      .ToDevice(destination, static_cast<const std::byte*>(source), rows);
}

Status Stream::CopyToHost(void* destination, DeviceAddress source, std::size_t bytes) const {
  return CopyToHost2d(destination, source, OneRow(bytes));
}

Status Stream::CopyToHost2d(void* destination, DeviceAddress source, const CopyShape& shape) const {
  if (!valid()) return EmptyStream();
  if (Status status = CheckStream(*state_); !status.ok() || IsEmpty(shape)) return status;
  if (destination == nullptr) return Invalid("copy rejected: the destination is null");
  const CopyShape rows = Normalised(shape);
  if (Status status = CheckCopy(GetAddress(destination), source, rows); !status.ok()) return status;
  return Copier(state_->session(), state_->record())
      .ToHost(static_cast<std::byte*>(destination), source, rows);
}

Status Stream::CopyOnDevice(DeviceAddress destination, DeviceAddress source,
                            std::size_t bytes) const {
  return CopyOnDevice2d(destination, source, OneRow(bytes));
}

Status Stream::CopyOnDevice2d(DeviceAddress destination, DeviceAddress source,
                              const CopyShape& shape) const {
  if (!valid()) return EmptyStream();
  if (Status status = CheckStream(*state_); !status.ok() || IsEmpty(shape)) return status;
  if (Status status = CheckHeight("copy rejected: it", shape.height); !status.ok()) return status;
  const CopyShape rows = Normalised(shape);
  if (Status status = CheckCopy(destination, source, rows); !status.ok()) return status;
  return state_->session()
      .Submit(state_->record(),
              ipc::CopyOnDeviceRecord{.header = {.op = Code(ipc::Op::kCopyOnDevice)},
                                      .height = static_cast<std::uint32_t>(rows.height),
                                      .destination = destination,
                                      .destination_pitch_bytes = rows.destination_pitch_bytes,
                                      .source = source,
                                      .source_pitch_bytes = rows.source_pitch_bytes,
                                      .width_bytes = rows.width_bytes})
      .status();
}

Status Stream::Fill(DeviceAddress destination, FillElement element, std::size_t count) const {
  return Fill2d(destination, element, {.width_elements = count, .height = 1});
}

Status Stream::Fill2d(DeviceAddress destination, FillElement element,
                      const FillShape& shape) const {
  if (!valid()) return EmptyStream();
  if (Status status = CheckStream(*state_); !status.ok()) return status;
  const std::uint32_t bytes = element.element_bytes;
  if (bytes != 1 && bytes != 2 && bytes != 4) {
    return Invalid("fill rejected: an element of " + std::to_string(bytes) +
                   " bytes, allowed: 1, 2 and 4");
  }
  if (shape.width_elements == 0 || shape.height == 0) return Status::Ok();
  if (Status status = CheckHeight("fill rejected: it", shape.height); !status.ok()) return status;
  if (shape.width_elements > kSpanMax / bytes) {
    return Invalid("fill rejected: " + std::to_string(shape.width_elements) + " elements of " +
                   std::to_string(bytes) + " bytes do not fit into an address space");
  }
  const std::uint64_t width_bytes = shape.width_elements * bytes;
  const std::uint64_t pitch_bytes = shape.height == 1 ? width_bytes : shape.pitch_bytes;
  if (Status status = CheckRows("fill rejected: destination", destination, pitch_bytes, width_bytes,
                                shape.height);
      !status.ok()) {
    return status;
  }
  if (destination % bytes != 0 || pitch_bytes % bytes != 0) {
    return Invalid("fill rejected: address " + std::to_string(destination) + " and pitch " +
                   std::to_string(pitch_bytes) + " must be multiples of the element's " +
                   std::to_string(bytes) + " bytes");
  }
  return state_->session()
      .Submit(state_->record(), ipc::FillRecord{.header = {.op = Code(ipc::Op::kFill)},
                                                .height = static_cast<std::uint32_t>(shape.height),
                                                .destination = destination,
                                                .pitch_bytes = pitch_bytes,
                                                .width_bytes = width_bytes,
                                                .value = element.value,
                                                .element_bytes = bytes})
      .status();
}

Status Stream::Record(const Event& event) const {
  if (!valid()) return EmptyStream();
  if (Status status = CheckRuns(*state_, "record"); !status.ok()) return status;
  if (Status status = CheckStream(*state_); !status.ok()) return status;
  if (!event.valid() || &event.state_->session() != &state_->session()) {
    return Invalid("record rejected: the event is empty or belongs to another client");
  }
  const std::shared_ptr<StreamRecord>& stream = state_->record();
  EventState::Point point{.stream = stream, .sequence = state_->session().submitted(*stream)};
  if (event.state_->timing() == EventTiming::kOn) {
    point.mark = std::make_shared<Mark>();
    const Result<std::uint64_t> sequence = state_->session().Submit(
        stream, ipc::PlainRecord{.header = {.op = Code(ipc::Op::kMark)}}, {}, point.mark);
    if (!sequence.ok()) return sequence.status();
    point.sequence = *sequence;
  }
  event.state_->set_point(std::move(point));
  return Status::Ok();
}

Status Stream::Wait(const Event& event) const {
  if (!valid()) return EmptyStream();
  if (Status status = CheckRuns(*state_, "wait"); !status.ok()) return status;
  Session& session = state_->session();
  if (Status status = CheckStream(*state_); !status.ok()) return status;
  if (!event.valid() || &event.state_->session() != &session) {
    return Invalid("wait rejected: the event is empty or belongs to another client");
  }
  const EventState::Point point = event.state_->point();
  // No wait is needed for a point of the same stream, or for an event that was never recorded.
  if (point.stream == nullptr || point.sequence == 0 || point.stream == state_->record()) {
    return Status::Ok();
  }
  return session
      .Submit(state_->record(), ipc::WaitForRecord{.header = {.op = Code(ipc::Op::kWaitFor)},
                                                   .wait_stream = point.stream->number(),
                                                   .wait_sequence = point.sequence})
      .status();
}

Status Stream::BeginRequest(std::chrono::nanoseconds age) const {
  if (!valid()) return EmptyStream();
  if (Status status = CheckRuns(*state_, "begin of a request"); !status.ok()) return status;
  return state_->session().BeginRequest(state_->record(), age);
}

Status Stream::EndRequest() const {
  if (!valid()) return EmptyStream();
  if (Status status = CheckRuns(*state_, "end of a request"); !status.ok()) return status;
  return state_->session().EndRequest(state_->record());
}

Status Stream::Synchronize() const {
  if (!valid()) return EmptyStream();
  if (Status status = CheckRuns(*state_, "synchronisation"); !status.ok()) return status;
  StreamRecord& stream = *state_->record();
  const Status status = state_->session().Await(stream, state_->session().submitted(stream));
  state_->session().ReportWanted();
  // Without an error of the stream, the session may still have ended and earlier calls have failed.
  return status.ok() ? state_->session().Usable() : status;
}

Status Stream::Query() const {
  if (!valid()) return EmptyStream();
  if (Status status = CheckRuns(*state_, "query"); !status.ok()) return status;
  StreamRecord& stream = *state_->record();
  std::uint64_t last = state_->session().submitted(stream);
  // Ignores the first command of a stream, which creates it and is not work of the program.
  if (stream.number() != 0 && last == stream.created_at() + 1) last = stream.created_at();
  const Status status = state_->session().Poll(stream, last);
  return status.ok() ? state_->session().Usable() : status;
}

FaultKind Stream::fault() const noexcept {
  if (!valid()) return FaultKind::kNone;
  const StreamRecord& stream = *state_->record();
  return stream.failed() ? stream.fault() : FaultKind::kNone;
}

}  // namespace gpushared
