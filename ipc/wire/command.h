// SPDX-License-Identifier: Apache-2.0
// Commands: the records of the client-to-worker ring in shared memory, and their validated form.
// validate.h converts records into validated commands.

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
  kTurn = 19,
};
inline constexpr std::uint8_t kOpMax = 19;

// Bits of RecordHeader::flags in a launch. With kFlagParametersInStagingBuffer, the parameters are
// in a staging buffer instead of continuation granules.
inline constexpr std::uint8_t kFlagParametersInStagingBuffer = 1;
inline constexpr std::uint8_t kFlagCooperative = 2;  // All blocks run at the same time.

// Header of every record of either ring, followed by `continuations` granules of 60 data bytes. The
// ring writer sets `tag` and `continuations`.
//
// `sequence` counts the commands of a stream number from 1 without omissions. It never restarts
// within a session, even if the stream number is destroyed and created again, so (stream, sequence)
// identifies one command forever.
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
  std::uint32_t module = 0;  // Number that the client chose in LoadModule.
  std::uint32_t kernel = 0;  // Index in the kernel list of the module.
  std::uint32_t grid[3] = {};
  std::uint16_t block[3] = {};
  std::uint16_t parameter_bytes = 0;
  std::uint32_t dynamic_shared_bytes = 0;  // Dynamic shared memory per block.
  std::uint32_t staging_buffer = 0;        // 0 without kFlagParametersInStagingBuffer.
  std::uint32_t staging_offset = 0;        // 0 without kFlagParametersInStagingBuffer.
  std::uint8_t cluster[3] = {};            // Blocks per cluster; all zero: no clusters.
  std::uint8_t reserved = 0;
};

// kCopyToDevice and kCopyToHost: `height` rows of `width_bytes` between a staging buffer and the
// device. Pitches are at least the width, even if height is 1.
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

// kCopyOnDevice. Pitches are at least the width, even if height is 1.
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

// kFill: repeats the low `element_bytes` bytes of `value`. Address, pitch and width are multiples
// of element_bytes; the pitch is at least the width, even if height is 1.
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

// kWaitFor: later commands of `stream` start after command (wait_stream, wait_sequence). That
// command must precede this record in the ring, so waits cannot form a cycle.
struct WaitForRecord {
  RecordHeader header;
  std::uint32_t stream = 0;
  std::uint32_t wait_stream = 0;
  std::uint64_t wait_sequence = 0;
  std::uint64_t reserved[4] = {};
};

// kBeginRequest: begins a request that arrived `time_ns` ago. kExpectRequest: announces the next
// request in `time_ns`. Both take effect when the worker takes the record from the ring.
struct RequestRecord {
  RecordHeader header;
  std::uint32_t stream = 0;
  std::uint32_t reserved0 = 0;
  std::uint64_t time_ns = 0;  // At most kRequestTimeNsMax.
  std::uint64_t reserved[4] = {};
};

// A graph is a list of nodes, which run one after another when it is launched. kMakeGraph creates
// an empty graph. kSetGraphNode replaces a node or appends one: its continuation granules hold the
// record of the node, with sequence and stream 0, followed by the inline parameters of a launch.
// kMakeGraph, kSetGraphNode and kDestroyGraph take effect when the worker takes the record from the
// ring. A launch that the worker took earlier runs the graph as it was at that time.
struct GraphRecord {
  RecordHeader header;
  std::uint32_t stream = 0;
  std::uint32_t graph = 0;  // Number chosen by the client.
  std::uint32_t node = 0;   // This field and the next are 0 except with kSetGraphNode.
  std::uint32_t content_bytes = 0;
  std::uint64_t reserved[4] = {};
};

// kNameBuffer announces a buffer in the client's memory; kForgetBuffer withdraws the buffer that
// begins at the address. Both take effect when the worker takes the record from the ring: the
// access sets of launches later in the ring, on any stream, are computed from the buffers announced
// by then.
struct BufferRecord {
  RecordHeader header;
  std::uint32_t stream = 0;
  std::uint32_t reserved0 = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;  // Size of the buffer in kNameBuffer, else 0.
  std::uint64_t reserved[3] = {};
};

// kMark requests a completion record with device times. kCreateStream and kDestroyStream name a
// stream other than 0. kEndRequest ends the stream's request once everything before it has ended,
// as does destroying the stream. kTurn, on stream 0, requests a turn of a gated client.
struct PlainRecord {
  RecordHeader header;
  std::uint32_t stream = 0;
  std::uint32_t reserved0 = 0;
  std::uint64_t reserved[5] = {};
};

// Whether a record has no padding, which would leak old memory to the peer.
template <typename Record>
inline constexpr bool kFillsGranule =
    sizeof(Record) == kGranuleBytes&& std::has_unique_object_representations_v<Record>;
static_assert(kFillsGranule<LaunchRecord> && kFillsGranule<CopyRecord> &&
              kFillsGranule<CopyOnDeviceRecord> && kFillsGranule<FillRecord> &&
              kFillsGranule<WaitForRecord> && kFillsGranule<RequestRecord> &&
              kFillsGranule<GraphRecord> && kFillsGranule<BufferRecord> &&
              kFillsGranule<PlainRecord>);

// Record in private memory, as read from a ring. Reused for each record, so bytes of `tail` beyond
// tail_bytes() are left over from earlier ones.
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

// Validated commands. Every number is within the limits of layout.h, and sums and products of sizes
// do not overflow. The worker checks what depends on the session: whether the module exists, the
// address is mapped, and the staging buffer contains the bytes.

struct CommandId {
  std::uint32_t stream = 0;
  std::uint64_t sequence = 0;
  friend bool operator==(const CommandId&, const CommandId&) = default;
};

// Bytes of a staging buffer. The worker checks RangeInside(offset, bytes, size of the buffer).
struct StagingRange {
  std::uint32_t staging_buffer = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // From the first to the last byte accessed.
};

struct LaunchCommand {
  std::uint32_t module = 0;
  std::uint32_t kernel = 0;
  std::array<std::uint32_t, 3> grid = {};
  std::array<std::uint32_t, 3> block = {};
  // All zero means no clusters. The worker checks that the grid consists of whole clusters.
  std::array<std::uint32_t, 3> cluster = {};
  bool is_cooperative = false;
  std::uint32_t dynamic_shared_bytes = 0;
  std::uint32_t parameter_bytes = 0;
  bool parameters_in_staging_buffer = false;
  // The first is used if parameters_in_staging_buffer, else the second, which refers to the
  // RecordCopy.
  StagingRange staging_parameters;
  std::span<const std::byte> inline_parameters;
};

struct CopyCommand {
  StagingRange staging_buffer;
  std::uint64_t staging_pitch_bytes = 0;
  std::uint64_t device_address = 0;
  std::uint64_t device_pitch_bytes = 0;
  std::uint64_t device_bytes = 0;  // From the first to the last device byte accessed.
  std::uint64_t width_bytes = 0;
  std::uint64_t height = 0;
};
struct CopyToDeviceCommand : CopyCommand {};
struct CopyToHostCommand : CopyCommand {};

struct CopyOnDeviceCommand {
  std::uint64_t destination = 0, source = 0;
  std::uint64_t destination_pitch_bytes = 0, source_pitch_bytes = 0;
  // From the first to the last byte accessed.
  std::uint64_t destination_bytes = 0, source_bytes = 0;
  std::uint64_t width_bytes = 0;
  std::uint64_t height = 0;
};

struct FillCommand {
  std::uint64_t destination = 0;
  std::uint64_t destination_bytes = 0;  // From the first to the last byte accessed.
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

// A turn of a gated client: it lasts while the client has work on the device.
struct TurnCommand {};

struct Command {
  CommandId id;
  std::variant<MarkCommand, LaunchCommand, CopyToDeviceCommand, CopyToHostCommand,
               CopyOnDeviceCommand, FillCommand, WaitForCommand, CreateStreamCommand,
               DestroyStreamCommand, BeginRequestCommand, EndRequestCommand, ExpectRequestCommand,
               MakeGraphCommand, SetGraphNodeCommand, LaunchGraphCommand, DestroyGraphCommand,
               NameBufferCommand, ForgetBufferCommand, TurnCommand>
      body;
};

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_COMMAND_H_
