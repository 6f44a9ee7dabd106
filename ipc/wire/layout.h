// SPDX-License-Identifier: Apache-2.0
// Sizes, limits and memory shared by two processes. Every number here is part of protocol version
// 11. docs/protocol.md lists each shared byte with its single writer and its check.

#ifndef GPUSHARED_IPC_WIRE_LAYOUT_H_
#define GPUSHARED_IPC_WIRE_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gpushared/limits.h"
#include "gpushared/scheduling_class.h"

namespace gpushared::ipc {

inline constexpr std::uint32_t kProtocolVersion = 11;

// Rings.
inline constexpr std::size_t kGranuleBytes = 64;
inline constexpr std::size_t kContinuationDataBytes = 60;
inline constexpr std::uint32_t kCommandGranules = 4096;     // Client to worker, 256 KiB.
inline constexpr std::uint32_t kCompletionGranules = 1024;  // Worker to client, 64 KiB.
// Limit for kernel parameters inside the record; larger ones travel in a staging buffer.
inline constexpr std::uint32_t kInlineParameterBytesMax = 4096;
inline constexpr std::uint32_t kContinuationsMax =
    (kInlineParameterBytesMax + kContinuationDataBytes - 1) / kContinuationDataBytes;

// Limits of the numbers that a client may use.
inline constexpr std::uint32_t kStreamsMax = 256;  // Numbers 0..255; stream 0 always exists.
inline constexpr std::uint32_t kModulesMax = 8192;
inline constexpr std::uint32_t kKernelsPerModuleMax = 4096;
inline constexpr std::uint32_t kParametersPerKernelMax = 4096;
inline constexpr std::uint32_t kStagingBuffersMax = 64;
inline constexpr std::uint32_t kStagingBufferBytesDefault = 16u << 20;
inline constexpr std::uint32_t kStagingBufferBytesMax = 1u << 30;
// Sizes of staging buffers are multiples of this number.
inline constexpr std::uint32_t kStagingBytesStep = 64u << 10;
inline constexpr std::uint64_t kModuleImageBytesMax = 256u << 20;
// Graphs: lists of commands that a client launches as one.
inline constexpr std::uint32_t kGraphsMax = 256;
inline constexpr std::uint32_t kGraphNodesMax = 4096;
// A node's record and its inline parameters. Larger parameters travel in a staging buffer.
inline constexpr std::uint32_t kGraphNodeBytesMax = kContinuationsMax * kContinuationDataBytes;
// Maximum number of buffers of one client that the worker tracks.
inline constexpr std::uint32_t kBuffersMax = 16384;
// Device memory that the client maps itself.
inline constexpr std::uint32_t kChunksMax = 256;
inline constexpr std::uint32_t kMappingsMax = 256;
inline constexpr std::uint64_t kChunkBytesMax = std::uint64_t{1} << 30;
// Addresses and sizes of chunks are multiples of this.
inline constexpr std::uint64_t kChunkBytesStep = kMapPageBytes;

// Launch geometry that no device exceeds; the limits of a device are at most these.
inline constexpr std::uint32_t kGridXMax = 0x7fffffff;
inline constexpr std::uint32_t kGridYzMax = 65535;
inline constexpr std::uint32_t kBlockXyMax = 1024;
inline constexpr std::uint32_t kBlockZMax = 64;
inline constexpr std::uint32_t kThreadsPerBlockMax = 1024;
inline constexpr std::uint32_t kClusterBlocksMax = 16;
inline constexpr std::uint32_t kDynamicSharedBytesMax = 1u << 20;

// Largest age of a request and largest time until an expected one: one hour.
inline constexpr std::uint64_t kRequestTimeNsMax = 3'600'000'000'000;

inline constexpr std::size_t kPageBytes = 4096;
// Distance between words with different writers; two cache lines, because prefetchers fetch pairs.
inline constexpr std::size_t kWriterSeparationBytes = 128;

static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
                  std::atomic<std::uint64_t>::is_always_lock_free,
              "a lock inside shared memory would die with the process that holds it");

// One cache line of a ring. The tag encodes the position of the bytes in the infinite sequence of
// granules, so old bytes and continuation bytes never look like a new header; see tag_ring.h.
struct alignas(kGranuleBytes) Granule {
  std::atomic<std::uint32_t> tag;
  std::byte data[kContinuationDataBytes];
};
static_assert(sizeof(Granule) == kGranuleBytes && std::is_standard_layout_v<Granule>);

// The gate of a gated client, that is, of a client that submits its work to the driver itself. The
// gate states which of the client's turns may submit, and how much. The worker writes every byte.
struct GateState {
  // Turn that may submit; 0: none. Turns are numbered by the sequence of their kTurn.
  std::atomic<std::uint64_t> open;
  std::atomic<std::uint64_t> last_opened;  // Largest turn that has ever been open.
  // Predicted device time that the client may have in flight; 0: no limit, so that no marks are
  // needed.
  std::atomic<std::uint32_t> window_ns;
  std::atomic<std::uint32_t> waits;  // 0: the client submits without waiting for the gate.
};

constexpr std::uint32_t kLongestNameBytes = 64;

// Progress of a gated client's work. The client writes every byte, except for `passed`, which the
// client's GPU writes.
struct GateUse {
  std::atomic<std::uint64_t> submitted;   // Launches so far.
  std::atomic<std::uint64_t> held_bytes;  // Device memory that the client holds.
  std::atomic<std::uint64_t> passes;      // Launches so far that did not wait for the gate to open.
  std::atomic<std::uint32_t> slots;       // Used entries of the arrays; each belongs to a stream.
  // Predicted time of the turn's longest launch, and the name of what it launched: UTF-8,
  // zero-terminated unless it fills the array. Stored in words, which are written without tearing.
  std::atomic<std::uint32_t> longest_ns;
  std::atomic<std::uint64_t> longest_name[kLongestNameBytes / sizeof(std::uint64_t)];
  // Number of the last mark that was placed on the slot's stream.
  alignas(kWriterSeparationBytes) std::atomic<std::uint32_t> marked[kStreamsMax];
  // Predicted device time of all launches of the stream so far, and of those before the last mark.
  std::atomic<std::uint64_t> launched_ns[kStreamsMax];
  std::atomic<std::uint64_t> marked_ns[kStreamsMax];
  // The last mark that the GPU has passed. On a separate page, which the client registers with its
  // driver.
  alignas(kPageBytes) std::atomic<std::uint32_t> passed[kStreamsMax];
};

// Client to worker. Mapped read-write by the client and read-only by the worker. The client writes
// every byte, except for gate.passed, which the client's GPU writes.
struct CommandSegment {
  // Position up to which the client has taken granules of the completion ring.
  alignas(kWriterSeparationBytes) std::atomic<std::uint64_t> completions_taken;
  // Number of client threads that sleep, or are about to, on CompletionSegment::event.
  alignas(kWriterSeparationBytes) std::atomic<std::uint32_t> waiting;
  alignas(kWriterSeparationBytes) Granule granules[kCommandGranules];
  GateUse gate;
};

// Worker to client. The worker maps it read-write before sealing it against further writable
// mappings, so the client can only read it. The worker writes every byte.
struct CompletionSegment {
  // Position up to which the worker has taken granules of the command ring.
  alignas(kWriterSeparationBytes) std::atomic<std::uint64_t> granules_taken;
  // Number of publications (timelines, completions, credit); futex word of waiting clients.
  alignas(kWriterSeparationBytes) std::atomic<std::uint32_t> event;
  // Bytes that the client's kernels have printed so far; always 0 unless the client's hello
  // requested the text. Stored before the timelines of the commands that printed.
  std::atomic<std::uint64_t> printed;
  // Guaranteed memory, resident memory, and the part of the resident memory that other clients wait
  // for. All 0 unless the client may hold more device memory than its guarantee.
  std::atomic<std::uint64_t> guaranteed;
  std::atomic<std::uint64_t> resident;
  std::atomic<std::uint64_t> wanted;
  alignas(kWriterSeparationBytes) GateState gate;
  // Per stream: sequence of the last command that has ended, with or without success.
  alignas(kWriterSeparationBytes) std::atomic<std::uint64_t> timeline[kStreamsMax];
  alignas(kWriterSeparationBytes) Granule granules[kCompletionGranules];
};

// One per session, mapped read-only by the client. The worker writes every byte.
struct WorkerPage {
  // Number of the current sleep while the worker sleeps, or is about to, on its clients' eventfds;
  // 0 while it is awake. Numbers are never reused.
  alignas(kWriterSeparationBytes) std::atomic<std::uint64_t> sleeping;
};

static_assert(offsetof(CommandSegment, waiting) == 128);
static_assert(offsetof(CommandSegment, granules) == 256);
static_assert(offsetof(CommandSegment, gate) == 266240);
static_assert(offsetof(GateUse, marked) == 128 && offsetof(GateUse, launched_ns) == 1152 &&
              offsetof(GateUse, marked_ns) == 3200 && offsetof(GateUse, passed) == 8192);
static_assert(offsetof(GateUse, longest_name) == 32 && sizeof(GateUse) == 12288);
static_assert(sizeof(CommandSegment) == offsetof(CommandSegment, gate) + sizeof(GateUse));
static_assert(offsetof(CompletionSegment, event) == 128);
static_assert(offsetof(CompletionSegment, printed) == 136);
static_assert(offsetof(CompletionSegment, guaranteed) == 144);
static_assert(offsetof(CompletionSegment, resident) == 152);
static_assert(offsetof(CompletionSegment, wanted) == 160);
static_assert(offsetof(CompletionSegment, gate) == 256);
static_assert(offsetof(CompletionSegment, timeline) == 384);
static_assert(offsetof(CompletionSegment, granules) == 384 + 8 * std::size_t{kStreamsMax});
static_assert(sizeof(CompletionSegment) ==
              offsetof(CompletionSegment, granules) + 64 * std::size_t{kCompletionGranules});
static_assert(sizeof(WorkerPage) == 128);

// Sizes of the memfds, in whole pages.
constexpr std::size_t WholePages(std::size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}
inline constexpr std::size_t kCommandSegmentBytes = WholePages(sizeof(CommandSegment));
inline constexpr std::size_t kCompletionSegmentBytes = WholePages(sizeof(CompletionSegment));
inline constexpr std::size_t kWorkerPageBytes = WholePages(sizeof(WorkerPage));

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_LAYOUT_H_
