// SPDX-License-Identifier: Apache-2.0
#include "ipc/wire/validate.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <variant>

namespace gpushared::ipc {
namespace {

// Exclusive upper bound of every device's addresses, so that ends of ranges never overflow.
constexpr std::uint64_t kAddressEnd = std::uint64_t{1} << 63;
constexpr std::uint64_t kAny32 = 0xffffffff;

// Records the first violation. Later checks still run, on unsigned numbers that may be meaningless
// by then; the caller discards their results.
class Checks {
 public:
  // `first` receives the violation.
  explicit Checks(Violation& first) : first_(first) {}

  void Range(const char* field, std::uint64_t value, std::uint64_t minimum, std::uint64_t maximum) {
    if ((value < minimum || value > maximum) && first_.ok()) [[unlikely]] {
      first_ = {field, value, minimum, maximum};
    }
  }
  void Equal(const char* field, std::uint64_t value, std::uint64_t wanted) {
    Range(field, value, wanted, wanted);
  }
  template <std::size_t N>
  void Zero(const char* field, const std::uint64_t (&words)[N]) {
    for (const std::uint64_t word : words) Equal(field, word, 0);
  }

 private:
  Violation& first_;
};

// A record of the ring, or one nested in another record: its head and the bytes after it.
struct RecordView {
  explicit RecordView(const RecordCopy& record) : head(record.head.data()), tail(record.tail) {}
  RecordView(const std::byte* first, std::span<const std::byte> rest) : head(first), tail(rest) {}

  template <typename Record>
  Record As() const {
    static_assert(sizeof(Record) == kGranuleBytes && std::is_trivially_copyable_v<Record>);
    Record record;
    std::memcpy(&record, head, sizeof record);
    return record;
  }

  const std::byte* head;  // The first granule.
  std::span<const std::byte> tail;
};

struct RectangleFields {
  const char* start;
  const char* pitch;
};

// Checks rows of `width` bytes in [0, end). Width and height have been checked. Returns the number
// of bytes from the first to the last one accessed. If there is no violation, the result cannot
// overflow, because the largest allowed pitch is computed by division.
std::uint64_t Rectangle(Checks& checks, const RectangleFields& fields, std::uint64_t start,
                        std::uint64_t pitch, std::uint64_t width, std::uint64_t height,
                        std::uint64_t end) {
  checks.Range(fields.start, start, 0, end - width);
  const std::uint64_t pitch_max = height > 1 ? (end - start - width) / (height - 1) : end;
  checks.Range(fields.pitch, pitch, width, pitch_max);
  return (height - 1) * pitch + width;
}

void CheckCluster(Checks& checks, const LaunchRecord& record, LaunchCommand& out) {
  const auto& cluster = record.cluster;
  const std::uint32_t least = (cluster[0] | cluster[1] | cluster[2]) != 0 ? 1 : 0;
  checks.Range("launch cluster x", cluster[0], least, kClusterBlocksMax);
  checks.Range("launch cluster y", cluster[1], least, kClusterBlocksMax);
  checks.Range("launch cluster z", cluster[2], least, kClusterBlocksMax);
  const std::uint32_t blocks = std::uint32_t{cluster[0]} * cluster[1] * cluster[2];
  checks.Range("launch blocks per cluster", blocks, least, kClusterBlocksMax);
  checks.Equal("launch reserved", record.reserved, 0);
  out.cluster = {cluster[0], cluster[1], cluster[2]};
}

void CheckLaunch(Checks& checks, const RecordView& copy, LaunchCommand& out) {
  const auto record = copy.As<LaunchRecord>();
  checks.Range("launch flags", record.header.flags, 0,
               kFlagParametersInStagingBuffer | kFlagCooperative);
  checks.Range("launch module", record.module, 0, kModulesMax - 1);
  checks.Range("launch kernel", record.kernel, 0, kKernelsPerModuleMax - 1);
  checks.Range("launch grid x", record.grid[0], 1, kGridXMax);
  checks.Range("launch grid y", record.grid[1], 1, kGridYzMax);
  checks.Range("launch grid z", record.grid[2], 1, kGridYzMax);
  checks.Range("launch block x", record.block[0], 1, kBlockXyMax);
  checks.Range("launch block y", record.block[1], 1, kBlockXyMax);
  checks.Range("launch block z", record.block[2], 1, kBlockZMax);
  const std::uint64_t threads = std::uint64_t{record.block[0]} * record.block[1] * record.block[2];
  checks.Range("launch threads per block", threads, 1, kThreadsPerBlockMax);
  checks.Range("launch dynamic shared bytes", record.dynamic_shared_bytes, 0,
               kDynamicSharedBytesMax);
  CheckCluster(checks, record, out);

  const std::uint32_t bytes = record.parameter_bytes;
  out.is_cooperative = (record.header.flags & kFlagCooperative) != 0;
  out.parameters_in_staging_buffer = (record.header.flags & kFlagParametersInStagingBuffer) != 0;
  if (out.parameters_in_staging_buffer) {
    checks.Range("launch parameter bytes", bytes, 1, kParameterBytesMax);
    checks.Range("launch staging buffer", record.staging_buffer, 0, kStagingBuffersMax - 1);
    checks.Range("launch staging buffer offset", record.staging_offset, 0,
                 kStagingBufferBytesMax - bytes);
    checks.Equal("launch continuations", record.header.continuations, 0);
    out.staging_parameters = {record.staging_buffer, record.staging_offset, bytes};
    out.inline_parameters = {};
  } else {
    checks.Range("launch parameter bytes", bytes, 0, kInlineParameterBytesMax);
    checks.Equal("launch staging buffer", record.staging_buffer, 0);
    checks.Equal("launch staging buffer offset", record.staging_offset, 0);
    checks.Equal("launch continuations", record.header.continuations,
                 (bytes + kContinuationDataBytes - 1) / kContinuationDataBytes);
    out.staging_parameters = {};
    out.inline_parameters = {copy.tail.data(), std::min<std::size_t>(bytes, copy.tail.size())};
  }
  out.module = record.module;
  out.kernel = record.kernel;
  out.grid = {record.grid[0], record.grid[1], record.grid[2]};
  out.block = {record.block[0], record.block[1], record.block[2]};
  out.dynamic_shared_bytes = record.dynamic_shared_bytes;
  out.parameter_bytes = bytes;
}

// Checks the header of a record that has neither flags nor continuations.
void CheckSingleGranule(Checks& checks, const RecordHeader& header) {
  checks.Equal("flags", header.flags, 0);
  checks.Equal("continuations", header.continuations, 0);
}

void CheckCopy(Checks& checks, const RecordView& copy, CopyCommand& out) {
  const auto record = copy.As<CopyRecord>();
  CheckSingleGranule(checks, record.header);
  checks.Range("copy staging buffer", record.staging_buffer, 0, kStagingBuffersMax - 1);
  checks.Range("copy width", record.width_bytes, 1, kStagingBufferBytesMax);
  checks.Range("copy height", record.height, 1, kStagingBufferBytesMax);
  out.staging_buffer.staging_buffer = record.staging_buffer;
  out.staging_buffer.offset = record.staging_offset;
  out.staging_buffer.bytes = Rectangle(
      checks, {"copy staging buffer offset", "copy staging buffer pitch"}, record.staging_offset,
      record.staging_pitch_bytes, record.width_bytes, record.height, kStagingBufferBytesMax);
  out.device_bytes =
      Rectangle(checks, {"copy device address", "copy device pitch"}, record.device_address,
                record.device_pitch_bytes, record.width_bytes, record.height, kAddressEnd);
  checks.Equal("copy reserved", record.reserved, 0);
  out.staging_pitch_bytes = record.staging_pitch_bytes;
  out.device_address = record.device_address;
  out.device_pitch_bytes = record.device_pitch_bytes;
  out.width_bytes = record.width_bytes;
  out.height = record.height;
}

void CheckCopyOnDevice(Checks& checks, const RecordView& copy, CopyOnDeviceCommand& out) {
  const auto record = copy.As<CopyOnDeviceRecord>();
  CheckSingleGranule(checks, record.header);
  checks.Range("copy width", record.width_bytes, 1, kAddressEnd);
  checks.Range("copy height", record.height, 1, kAny32);
  out.destination_bytes =
      Rectangle(checks, {"copy destination", "copy destination pitch"}, record.destination,
                record.destination_pitch_bytes, record.width_bytes, record.height, kAddressEnd);
  out.source_bytes =
      Rectangle(checks, {"copy source", "copy source pitch"}, record.source,
                record.source_pitch_bytes, record.width_bytes, record.height, kAddressEnd);
  out.destination = record.destination;
  out.source = record.source;
  out.destination_pitch_bytes = record.destination_pitch_bytes;
  out.source_pitch_bytes = record.source_pitch_bytes;
  out.width_bytes = record.width_bytes;
  out.height = record.height;
}

void CheckFill(Checks& checks, const RecordView& copy, FillCommand& out) {
  const auto record = copy.As<FillRecord>();
  CheckSingleGranule(checks, record.header);
  // 3 is the only number from 1 to 4 that is not an element size.
  checks.Range("fill element bytes", record.element_bytes, 1, record.element_bytes == 3 ? 2 : 4);
  checks.Range("fill width", record.width_bytes, 1, kAddressEnd);
  checks.Range("fill height", record.height, 1, kAny32);
  out.destination_bytes =
      Rectangle(checks, {"fill destination", "fill pitch"}, record.destination, record.pitch_bytes,
                record.width_bytes, record.height, kAddressEnd);
  // Element sizes other than 1, 2 and 4 have been rejected, so masking yields the remainder.
  const std::uint64_t mask = record.element_bytes - std::uint64_t{1};
  checks.Equal("fill destination modulo element", record.destination & mask, 0);
  checks.Equal("fill pitch modulo element", record.pitch_bytes & mask, 0);
  checks.Equal("fill width modulo element", record.width_bytes & mask, 0);
  checks.Equal("fill reserved", record.reserved, 0);
  out.destination = record.destination;
  out.pitch_bytes = record.pitch_bytes;
  out.width_bytes = record.width_bytes;
  out.height = record.height;
  out.value = record.value;
  out.element_bytes = record.element_bytes;
}

void CheckWaitFor(Checks& checks, const RecordView& copy, WaitForCommand& out) {
  const auto record = copy.As<WaitForRecord>();
  CheckSingleGranule(checks, record.header);
  checks.Range("wait stream", record.wait_stream, 0, kStreamsMax - 1);
  checks.Range("wait sequence", record.wait_sequence, 1, ~std::uint64_t{0});
  checks.Zero("wait reserved", record.reserved);
  out.target = {record.wait_stream, record.wait_sequence};
}

// Checks a request record and returns its time.
std::uint64_t CheckRequest(Checks& checks, const RecordView& copy) {
  const auto record = copy.As<RequestRecord>();
  CheckSingleGranule(checks, record.header);
  checks.Range("request time", record.time_ns, 0, kRequestTimeNsMax);
  checks.Equal("request reserved", record.reserved0, 0);
  checks.Zero("request reserved", record.reserved);
  return record.time_ns;
}

void CheckPlain(Checks& checks, const RecordView& copy, std::uint32_t stream_minimum) {
  const auto record = copy.As<PlainRecord>();
  CheckSingleGranule(checks, record.header);
  checks.Range("stream", record.stream, stream_minimum, kStreamsMax - 1);
  checks.Equal("reserved", record.reserved0, 0);
  checks.Zero("reserved", record.reserved);
}

// Checks a command that a graph may contain. Returns false if `op` is not the number of such a
// command.
template <typename Body>
bool CheckWork(Checks& checks, Op op, const RecordView& record, Body& body) {
  switch (op) {
    case Op::kLaunch:
      CheckLaunch(checks, record, body.template emplace<LaunchCommand>());
      return true;
    case Op::kCopyToDevice:
      CheckCopy(checks, record, body.template emplace<CopyToDeviceCommand>());
      return true;
    case Op::kCopyToHost:
      CheckCopy(checks, record, body.template emplace<CopyToHostCommand>());
      return true;
    case Op::kCopyOnDevice:
      CheckCopyOnDevice(checks, record, body.template emplace<CopyOnDeviceCommand>());
      return true;
    case Op::kFill:
      CheckFill(checks, record, body.template emplace<FillCommand>());
      return true;
    default:
      return false;
  }
}

// Checks a graph record and returns the number of its graph.
std::uint32_t CheckGraph(Checks& checks, const RecordView& copy) {
  const auto record = copy.As<GraphRecord>();
  CheckSingleGranule(checks, record.header);
  checks.Range("graph", record.graph, 0, kGraphsMax - 1);
  checks.Equal("graph node", record.node, 0);
  checks.Equal("graph content bytes", record.content_bytes, 0);
  checks.Zero("graph reserved", record.reserved);
  return record.graph;
}

void CheckGraphNode(Checks& checks, const RecordView& copy, SetGraphNodeCommand& out) {
  const auto record = copy.As<GraphRecord>();
  checks.Equal("flags", record.header.flags, 0);
  checks.Range("graph", record.graph, 0, kGraphsMax - 1);
  checks.Range("graph node", record.node, 0, kGraphNodesMax - 1);
  checks.Range("graph content bytes", record.content_bytes, kGranuleBytes, kGraphNodeBytesMax);
  checks.Equal("graph continuations", record.header.continuations,
               (record.content_bytes + kContinuationDataBytes - 1) / kContinuationDataBytes);
  checks.Zero("graph reserved", record.reserved);
  out.graph = record.graph;
  out.node = record.node;
  // The clamp leaves a valid number of bytes unchanged. With any other number, the record has been
  // rejected already, and its contents do not matter.
  const std::size_t bytes =
      std::clamp<std::size_t>(record.content_bytes, kGranuleBytes, kGraphNodeBytesMax);
  const RecordView content(copy.tail.data(),
                           copy.tail.subspan(kGranuleBytes, bytes - kGranuleBytes));
  const auto plain = content.As<PlainRecord>();  // All records share the first 20 bytes.
  checks.Equal("node tag", plain.header.tag, 0);
  checks.Equal("node sequence", plain.header.sequence, 0);
  checks.Equal("node stream", plain.stream, 0);
  if (!CheckWork(checks, static_cast<Op>(plain.header.op), content, out.content)) {
    checks.Range("node op", plain.header.op, static_cast<std::uint64_t>(Op::kLaunch),
                 static_cast<std::uint64_t>(Op::kFill));
  }
  std::size_t parameter_bytes = 0;
  if (const auto* launch = std::get_if<LaunchCommand>(&out.content)) {
    parameter_bytes = launch->parameters_in_staging_buffer ? 0 : launch->parameter_bytes;
  }
  checks.Equal("node parameter bytes", bytes - kGranuleBytes, parameter_bytes);
}

void CheckBuffer(Checks& checks, const RecordView& copy, NameBufferCommand& out) {
  const auto record = copy.As<BufferRecord>();
  CheckSingleGranule(checks, record.header);
  checks.Range("buffer bytes", record.bytes, 1, kAddressEnd);
  checks.Range("buffer address", record.address, 0,
               kAddressEnd - std::min(record.bytes, kAddressEnd));
  checks.Equal("buffer reserved", record.reserved0, 0);
  checks.Zero("buffer reserved", record.reserved);
  out = {.address = record.address, .bytes = record.bytes};
}

void CheckForgotten(Checks& checks, const RecordView& copy, ForgetBufferCommand& out) {
  const auto record = copy.As<BufferRecord>();
  CheckSingleGranule(checks, record.header);
  checks.Range("buffer address", record.address, 0, kAddressEnd);
  checks.Equal("buffer bytes", record.bytes, 0);
  checks.Equal("buffer reserved", record.reserved0, 0);
  checks.Zero("buffer reserved", record.reserved);
  out = {.address = record.address};
}

}  // namespace

Violation ValidateCommand(const RecordCopy& copy, Command& command) {
  const RecordView record(copy);
  const auto plain = record.As<PlainRecord>();  // All records share the first 20 bytes.
  Violation first;
  Checks checks(first);
  checks.Range("sequence", plain.header.sequence, 1, ~std::uint64_t{0});
  checks.Range("stream", plain.stream, 0, kStreamsMax - 1);
  command.id = {plain.stream, plain.header.sequence};
  const auto op = static_cast<Op>(plain.header.op);
  if (CheckWork(checks, op, record, command.body)) return first;
  switch (op) {
    case Op::kWaitFor:
      CheckWaitFor(checks, record, command.body.emplace<WaitForCommand>());
      break;
    case Op::kMark:
      CheckPlain(checks, record, 0);
      command.body.emplace<MarkCommand>();
      break;
    case Op::kCreateStream:
      CheckPlain(checks, record, 1);
      command.body.emplace<CreateStreamCommand>();
      break;
    case Op::kDestroyStream:
      CheckPlain(checks, record, 1);
      command.body.emplace<DestroyStreamCommand>();
      break;
    case Op::kBeginRequest:
      command.body.emplace<BeginRequestCommand>().age_ns = CheckRequest(checks, record);
      break;
    case Op::kEndRequest:
      CheckPlain(checks, record, 0);
      command.body.emplace<EndRequestCommand>();
      break;
    case Op::kExpectRequest:
      command.body.emplace<ExpectRequestCommand>().in_ns = CheckRequest(checks, record);
      break;
    case Op::kMakeGraph:
      command.body.emplace<MakeGraphCommand>().graph = CheckGraph(checks, record);
      break;
    case Op::kSetGraphNode:
      CheckGraphNode(checks, record, command.body.emplace<SetGraphNodeCommand>());
      break;
    case Op::kLaunchGraph:
      command.body.emplace<LaunchGraphCommand>().graph = CheckGraph(checks, record);
      break;
    case Op::kDestroyGraph:
      command.body.emplace<DestroyGraphCommand>().graph = CheckGraph(checks, record);
      break;
    case Op::kNameBuffer:
      CheckBuffer(checks, record, command.body.emplace<NameBufferCommand>());
      break;
    case Op::kForgetBuffer:
      CheckForgotten(checks, record, command.body.emplace<ForgetBufferCommand>());
      break;
    case Op::kTurn:
      CheckPlain(checks, record, 0);
      checks.Range("stream", record.As<PlainRecord>().stream, 0, 0);
      command.body.emplace<TurnCommand>();
      break;
    default:
      checks.Range("op", plain.header.op, 1, kOpMax);
  }
  return first;
}

Violation ValidateCompletion(const RecordCopy& copy, CompletionNotice& notice) {
  const auto record = copy.As<CompletionRecord>();
  constexpr auto kCodeMax = static_cast<std::uint64_t>(StatusCode::kInternal);
  Violation first;
  Checks checks(first);
  checks.Range("sequence", record.header.sequence, 1, ~std::uint64_t{0});
  checks.Range("stream", record.stream, 0, kStreamsMax - 1);
  checks.Range("completion kind", record.header.op, 1, 2);
  CheckSingleGranule(checks, record.header);
  const auto kind = static_cast<CompletionKind>(record.header.op);
  checks.Range("completion code", record.code, kind == CompletionKind::kError ? 1 : 0, kCodeMax);
  checks.Range("completion end", record.ended_ns, record.started_ns, ~std::uint64_t{0});
  const auto fault = static_cast<FaultKind>(record.fault);
  const bool is_fault = record.code == static_cast<std::uint32_t>(StatusCode::kKernelFault);
  const bool is_known =
      static_cast<std::uint32_t>(fault) == record.fault && FaultKindName(fault) != "Unknown";
  const bool is_kind = record.fault == 0 || (is_fault && is_known);
  checks.Range("completion fault", record.fault, 0, is_kind ? record.fault : 0);
  checks.Range("completion reserved", record.reserved0, 0, 0);
  checks.Zero("completion reserved", record.reserved);
  notice.id = {record.stream, record.header.sequence};
  notice.kind = kind;
  notice.code = static_cast<StatusCode>(record.code);
  notice.fault = fault;
  notice.started_ns = record.started_ns;
  notice.ended_ns = record.ended_ns;
  return first;
}

Status DescribeViolation(const Violation& violation, const RecordCopy& record) {
  const auto plain = record.As<PlainRecord>();
  std::string allowed = std::to_string(violation.minimum);
  if (violation.maximum > violation.minimum) allowed += " to " + std::to_string(violation.maximum);
  if (violation.maximum < violation.minimum) allowed = "none";
  return Status(StatusCode::kProtocolViolation, std::string("record rejected: ") + violation.field +
                                                    " is " + std::to_string(violation.value) +
                                                    ", allowed: " + allowed + " [stream " +
                                                    std::to_string(plain.stream) + " command " +
                                                    std::to_string(plain.header.sequence) + "]");
}

Violation StreamLog::Accept(const Command& command) {
  const auto [stream, sequence] = command.id;
  const bool creates = std::holds_alternative<CreateStreamCommand>(command.body);
  Violation first;
  Checks checks(first);
  checks.Equal("number of live streams of this number", live_[stream], creates ? 0 : 1);
  checks.Equal("sequence", sequence, last_[stream] + 1);
  if (const auto* wait = std::get_if<WaitForCommand>(&command.body)) {
    checks.Range("wait sequence", wait->target.sequence, 1, last_[wait->target.stream]);
  }
  const bool begins = std::holds_alternative<BeginRequestCommand>(command.body);
  const bool ends = std::holds_alternative<EndRequestCommand>(command.body);
  if (begins || ends) {
    checks.Equal("number of open requests of this stream", in_request_[stream], begins ? 0 : 1);
  }
  if (!first.ok()) return first;
  last_[stream] = sequence;
  if (creates) live_.set(stream);
  if (begins) in_request_.set(stream);
  if (ends) in_request_.reset(stream);
  if (std::holds_alternative<DestroyStreamCommand>(command.body)) {
    live_.reset(stream);
    in_request_.reset(stream);
  }
  return first;
}

}  // namespace gpushared::ipc
