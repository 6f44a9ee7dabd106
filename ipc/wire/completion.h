// SPDX-License-Identifier: Apache-2.0
// Records of the worker-to-client ring. Success produces none, because the timeline word of the
// stream reports it; records exist only for the first error of a stream and for marks.

#ifndef GPUSHARED_IPC_WIRE_COMPLETION_H_
#define GPUSHARED_IPC_WIRE_COMPLETION_H_

#include <cstdint>

#include "gpushared/fault_kind.h"
#include "gpushared/status.h"

#include "ipc/wire/command.h"
#include "ipc/wire/layout.h"

namespace gpushared::ipc {

// RecordHeader::op of a completion.
enum class CompletionKind : std::uint8_t {
  kError = 1,  // First error of the stream. The reply to DescribeError has the error's message.
  // A kMark command was reached. Carries the command's times, and a code if the command was
  // skipped.
  kMark = 2,
};

// `header.sequence` and `stream` identify the command. Times are CLOCK_MONOTONIC nanoseconds of the
// host; 0 if the command never started.
struct CompletionRecord {
  RecordHeader header;
  std::uint32_t stream = 0;
  std::uint32_t code = 0;  // StatusCode.
  std::uint64_t started_ns = 0;
  std::uint64_t ended_ns = 0;
  std::uint32_t fault = 0;  // FaultKind; 0 unless `code` is kKernelFault.
  std::uint32_t reserved0 = 0;
  std::uint64_t reserved[2] = {};
};
static_assert(kFillsGranule<CompletionRecord>);

// Validated completion.
struct CompletionNotice {
  CommandId id;
  CompletionKind kind = CompletionKind::kMark;
  StatusCode code = StatusCode::kOk;
  FaultKind fault = FaultKind::kNone;
  std::uint64_t started_ns = 0;
  std::uint64_t ended_ns = 0;
};

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_COMPLETION_H_
