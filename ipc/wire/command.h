// SPDX-License-Identifier: Apache-2.0
// Commands: the records of the client-to-worker ring as they lie in shared memory, and as
// validated values. validate.h turns the first into the second.

#ifndef GPUSHARED_IPC_WIRE_COMMAND_H_
#define GPUSHARED_IPC_WIRE_COMMAND_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <variant>

#include "ipc/wire/layout.h"

namespace gpushared::ipc {

enum class Op : std::uint8_t {
  kLaunch = 1,
  kCopyToDevice = 2,
  kCopyToHost = 3,
  kCopyOnDevice = 4,
  kFill = 5,
  kWaitFor = 6,
  kMark = 7,
  kCreateStream = 8,
  kDestroyStream = 9,
  kBeginRequest = 10,
  kEndRequest = 11,
  kExpectRequest = 12,
  kMakeGraph = 13,
  kSetGraphNode = 14,
  kLaunchGraph = 15,
  kDestroyGraph = 16,
  kNameBuffer = 17,
  kForgetBuffer = 18,
};
inline constexpr std::uint8_t kOpMax = 18;

// LaunchRecord::flags.
inline constexpr std::uint8_t kFlagParametersInStagingBuffer = 1;  // Not in continuation granules.
inline constexpr std::uint8_t kFlagCooperative = 2;  // All blocks run at the same time.

// Every record of either ring is one header granule of this shape plus `continuations`
// granules of 60 data bytes. The writer's ring sets `tag` and `continuations`.
//
// `sequence` counts the commands of a stream number from 1, each exactly one more than the last.
// It never restarts within a session, not even when the stream number is destroyed and created
// again. So (stream, sequence) names one command for ever.
struct RecordHeader {
  std::uint32_t tag = 0;
  std::uint8_t op = 0;
  std::uint8_t flags = 0;
  std::uint16_t continuations = 0;
  std::uint64_t sequence = 0;
};
static_assert(sizeof(RecordHeader) == 16);

// Starts a kernel. Inline parameters fill ceil(parameter_bytes / 60) continuation granules.
struct LaunchRecord {
  RecordHeader header;
  std::uint32_t stream = 0;
  std::uint32_t module = 0;  // Number the client chose in LoadModule.
  std::uint32_t kernel = 0;  // Index in the module's kernel list.
  std::uint32_t grid[3] = {};
  std::uint16_t block[3] = {};
  std::uint16_t parameter_bytes = 0;
  std::uint32_t dynamic_shared_bytes = 0;  // Per block.
  std::uint32_t staging_buffer = 0;        // With kFlagParametersInStagingBuffer, else 0.
  std::uint32_t staging_offset = 0;        // With kFlagParametersInStagingBuffer, else 0.
  std::uint8_t cluster[3] = {};            // Blocks of one cluster; all zero: no clusters.
  std::uint8_t reserved = 0;
};

// kCopyToDevice and kCopyToHost: `height` rows of `width_bytes` between a staging buffer and the
// device. Pitches are at least the width, also when height is 1.
struct CopyRecord {
  RecordHeader header;
  std::uint32_t stream = 0;
  std::uint32_t staging_buffer = 0;
  std::uint64_t device_address = 0;
  std::uint64_t device_pitch_bytes = 0;
  std::uint32_t staging_offset = 0;
  std::uint32_t staging_pitch_bytes = 0;
  std::uint32_t width_bytes = 0;
  std::uint32_t height = 0;
  std::uint64_t reserved = 0;
};

// kCopyOnDevice. Pitches are at least the width, also when height is 1.
struct CopyOnDeviceRecord {
  RecordHeader header;
  std::uint32_t stream = 0;
  std::uint32_t height = 0;
  std::uint64_t destination = 0;
  std::uint64_t destination_pitch_bytes = 0;
  std::uint64_t source = 0;
  std::uint64_t source_pitch_bytes = 0;
  std::uint64_t width_bytes = 0;
};

// kFill: repeats the low `element_bytes` bytes of `value`. Address, pitch and width are
// multiples of element_bytes; the pitch is at least the width, also when height is 1.
struct FillRecord {
  RecordHeader header;
  std::uint32_t stream = 0;
  std::uint32_t height = 0;
  std::uint64_t destination = 0;
  std::uint64_t pitch_bytes = 0;
  std::uint64_t width_bytes = 0;
  std::uint32_t value = 0;
  std::uint32_t element_bytes = 0;  // 1, 2 or 4.
  std::uint64_t reserved = 0;
};

// kWaitFor: later commands of `stream` start after command (wait_stream, wait_sequence), which
// must lie before this record in the ring. So no set of waits can be circular.
struct WaitForRecord {
  RecordHeader header;
  std::uint32_t stream = 0;
  std::uint32_t wait_stream = 0;
  std::uint64_t wait_sequence = 0;
  std::uint64_t reserved[4] = {};
};

// kBeginRequest: a request of the client begins, which arrived `time_ns` ago; takes effect when
// it is taken. kExpectRequest: the client expects its next request in `time_ns`; the same.
struct RequestRecord {
  RecordHeader header;
  std::uint32_t stream = 0;
  std::uint32_t reserved0 = 0;
  std::uint64_t time_ns = 0;  // At most kRequestTimeNsMax.
  std::uint64_t reserved[4] = {};
};

// A graph is a list of nodes, which run one after the other when it is launched. kMakeGraph makes
// an empty one. kSetGraphNode replaces a node, or adds one behind all others: its continuation
// granules hold the node's own record, whose sequence and stream are 0, and then a launch's inline
// parameters. Both take effect when they are taken, and so does kDestroyGraph: launches that were
// taken before run as the graph was then.
struct GraphRecord {
  RecordHeader header;
  std::uint32_t stream = 0;
  std::uint32_t graph = 0;  // Number that the client chose.
  std::uint32_t node = 0;   // Of kSetGraphNode, else 0; so is the next.
  std::uint32_t content_bytes = 0;
  std::uint64_t reserved[4] = {};
};

// kNameBuffer: the client has made a buffer in its memory. kForgetBuffer: the one that begins there
// is none any more. Both take effect when they are taken: launches behind them in the ring, on any
// stream, are looked at with the buffers that there are then.
struct BufferRecord {
  RecordHeader header;
  std::uint32_t stream = 0;
  std::uint32_t reserved0 = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;  // The buffer's size in kNameBuffer, else 0.
  std::uint64_t reserved[3] = {};
};

// kMark asks for a completion record with device times; kCreateStream and kDestroyStream name
// a stream other than 0. kEndRequest ends the stream's request when all before it has ended;
// destroying the stream does the same.
struct PlainRecord {
  RecordHeader header;
  std::uint32_t stream = 0;
  std::uint32_t reserved0 = 0;
  std::uint64_t reserved[5] = {};
};

// Without padding, which would carry old memory to a peer.
template <typename Record>
inline constexpr bool kFillsGranule =
    sizeof(Record) == kGranuleBytes&& std::has_unique_object_representations_v<Record>;
static_assert(kFillsGranule<LaunchRecord> && kFillsGranule<CopyRecord> &&
              kFillsGranule<CopyOnDeviceRecord> && kFillsGranule<FillRecord> &&
              kFillsGranule<WaitForRecord> && kFillsGranule<RequestRecord> &&
              kFillsGranule<GraphRecord> && kFillsGranule<BufferRecord> &&
              kFillsGranule<PlainRecord>);

// A record in private memory: what a reader of a ring gets. Reused from record to record, so
// bytes of `tail` beyond tail_bytes() are left over from earlier ones.
struct RecordCopy {
  alignas(8) std::array<std::byte, kGranuleBytes> head;
  alignas(8) std::array<std::byte, kContinuationsMax * kContinuationDataBytes> tail;

  template <typename Record>
  Record As() const {
    static_assert(sizeof(Record) == kGranuleBytes && std::is_trivially_copyable_v<Record>);
    Record record;
    std::memcpy(&record, head.data(), sizeof record);
    return record;
  }
  std::size_t tail_bytes() const { return Header().continuations * kContinuationDataBytes; }

 private:
  RecordHeader Header() const {
    RecordHeader header;
    std::memcpy(&header, head.data(), sizeof header);
    return header;
  }
};

// Below: validated commands. Every number is inside the named limits of layout.h, sums and
// products of sizes do not overflow. What depends on the session (is there such a module, is
// the address mapped, does the staging buffer have these bytes) is the worker's to check.

struct CommandId {
  std::uint32_t stream = 0;
  std::uint64_t sequence = 0;
  friend bool operator==(const CommandId&, const CommandId&) = default;
};

// Bytes of a staging staging buffer. The worker checks RangeInside(offset, bytes, size of the
// staging buffer).
struct StagingRange {
  std::uint32_t staging_buffer = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // From the first byte touched to the last.
};

struct LaunchCommand {
  std::uint32_t module = 0;
  std::uint32_t kernel = 0;
  std::array<std::uint32_t, 3> grid = {};
  std::array<std::uint32_t, 3> block = {};
  std::array<std::uint32_t, 3> cluster = {};  // All zero: none. The worker checks that the grid is
                                              // made of whole ones.
  bool is_cooperative = false;
  std::uint32_t dynamic_shared_bytes = 0;
  std::uint32_t parameter_bytes = 0;
  bool parameters_in_staging_buffer = false;
  StagingRange staging_parameters;               // When parameters_in_staging_buffer.
  std::span<const std::byte> inline_parameters;  // Else; lies in the RecordCopy.
};

struct CopyCommand {
  StagingRange staging_buffer;
  std::uint64_t staging_pitch_bytes = 0;
  std::uint64_t device_address = 0;
  std::uint64_t device_pitch_bytes = 0;
  std::uint64_t device_bytes = 0;  // From the first device byte touched to the last.
  std::uint64_t width_bytes = 0;
  std::uint64_t height = 0;
};
struct CopyToDeviceCommand : CopyCommand {};
struct CopyToHostCommand : CopyCommand {};

struct CopyOnDeviceCommand {
  std::uint64_t destination = 0, source = 0;
  std::uint64_t destination_pitch_bytes = 0, source_pitch_bytes = 0;
  std::uint64_t destination_bytes = 0, source_bytes = 0;  // First byte touched to last.
  std::uint64_t width_bytes = 0;
  std::uint64_t height = 0;
};

struct FillCommand {
  std::uint64_t destination = 0;
  std::uint64_t destination_bytes = 0;  // First byte touched to last.
  std::uint64_t pitch_bytes = 0;
  std::uint64_t width_bytes = 0;
  std::uint64_t height = 0;
  std::uint32_t value = 0;
  std::uint32_t element_bytes = 1;
};

struct WaitForCommand {
  CommandId target;
};
struct MarkCommand {};
struct CreateStreamCommand {};
struct DestroyStreamCommand {};
struct BeginRequestCommand {
  std::uint64_t age_ns = 0;
};
struct EndRequestCommand {};
struct ExpectRequestCommand {
  std::uint64_t in_ns = 0;
};
struct MakeGraphCommand {
  std::uint32_t graph = 0;
};
struct SetGraphNodeCommand {
  std::uint32_t graph = 0;
  std::uint32_t node = 0;
  std::variant<LaunchCommand, CopyToDeviceCommand, CopyToHostCommand, CopyOnDeviceCommand,
               FillCommand>
      content;
};
struct LaunchGraphCommand {
  std::uint32_t graph = 0;
};
struct DestroyGraphCommand {
  std::uint32_t graph = 0;
};

struct NameBufferCommand {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};
struct ForgetBufferCommand {
  std::uint64_t address = 0;
};

struct Command {
  CommandId id;
  std::variant<MarkCommand, LaunchCommand, CopyToDeviceCommand, CopyToHostCommand,
               CopyOnDeviceCommand, FillCommand, WaitForCommand, CreateStreamCommand,
               DestroyStreamCommand, BeginRequestCommand, EndRequestCommand, ExpectRequestCommand,
               MakeGraphCommand, SetGraphNodeCommand, LaunchGraphCommand, DestroyGraphCommand,
               NameBufferCommand, ForgetBufferCommand>
      body;
};

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_COMMAND_H_
