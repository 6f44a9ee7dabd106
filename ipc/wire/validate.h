// SPDX-License-Identifier: Apache-2.0
// Validation of ring records. The only place where a peer's records become typed values; Decode of
// fields.h does so for control messages. Works on private copies only.

#ifndef GPUSHARED_IPC_WIRE_VALIDATE_H_
#define GPUSHARED_IPC_WIRE_VALIDATE_H_

#include <array>
#include <bitset>
#include <cstdint>
#include <string>

#include "gpushared/status.h"

#include "ipc/wire/command.h"
#include "ipc/wire/completion.h"

namespace gpushared::ipc {

// Returns whether [offset, offset + bytes) is inside [0, size), without overflow.
constexpr bool RangeInside(std::uint64_t offset, std::uint64_t bytes, std::uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

// Error in a record. Cheap to create and to pass; converted to a message only if needed.
struct [[nodiscard]] Violation {
  const char* field = nullptr;  // Null: no error. Otherwise a literal such as "launch grid x".
  std::uint64_t value = 0;
  std::uint64_t minimum = 0, maximum = 0;  // Allowed range of the field.

  bool ok() const { return field == nullptr; }
};

// Returns kProtocolViolation with a message such as "record rejected: launch grid x is 0, allowed:
// 1 to 2147483647 [stream 2 command 1841]".
Status DescribeViolation(const Violation& violation, const RecordCopy& record);

// Validates `record` and fills in `command`, whose inline_parameters then refer to `record`. On
// failure `command` is unspecified. Stateless: StreamLog checks the dependencies on earlier
// commands.
Violation ValidateCommand(const RecordCopy& record, Command& command);

// Validates `record` and fills in `notice`, at the client's end of the completion ring. On failure
// `notice` is unspecified.
Violation ValidateCompletion(const RecordCopy& record, CompletionNotice& notice);

// State of one client's ring, with which the worker checks that sequences have no gaps, that
// streams exist, that waits refer to earlier commands, and that the requests of a stream neither
// overlap nor end twice.
//
// Thread-compatible; belongs to the thread that takes the commands.
class StreamLog {
 public:
  StreamLog() { live_.set(0); }

  // Checks a validated command and records it if it is accepted. Called once per command, in ring
  // order.
  Violation Accept(const Command& command);

  // Returns the sequence of the last command of this stream number; 0 if it had none.
  std::uint64_t last(std::uint32_t stream) const { return last_[stream]; }
  bool live(std::uint32_t stream) const { return live_[stream]; }
  // Returns whether a request of this stream has begun and its end has not been accepted yet.
  bool in_request(std::uint32_t stream) const { return in_request_[stream]; }
  bool has_request() const { return in_request_.any(); }
  // Continues a stream whose commands were recorded by another process.
  void Resume(std::uint32_t stream, std::uint64_t last, bool is_live) {
    last_[stream] = last;
    live_.set(stream, is_live);
  }

 private:
  std::array<std::uint64_t, kStreamsMax> last_ = {};
  std::bitset<kStreamsMax> live_;
  std::bitset<kStreamsMax> in_request_;
};

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_VALIDATE_H_
