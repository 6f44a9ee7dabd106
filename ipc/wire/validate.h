// SPDX-License-Identifier: Apache-2.0
// The only place where a peer's ring records become typed values. (Control messages: Decode in
// control.h and channel.h.) Everything here works on private copies.

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

// True when [offset, offset + bytes) lies in [0, size), without overflow.
constexpr bool RangeInside(std::uint64_t offset, std::uint64_t bytes, std::uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

// What is wrong with a record; cheap to make and to pass, turned into a sentence only when
// there is something wrong.
struct [[nodiscard]] Violation {
  const char* field = nullptr;  // Null: nothing is wrong. Else a literal: "launch grid x".
  std::uint64_t value = 0;
  std::uint64_t minimum = 0, maximum = 0;  // The allowed range.

  bool ok() const { return field == nullptr; }
};

// kProtocolViolation with "command rejected: launch grid x is 0, allowed 1 to 2147483647
// [stream 2 command 1841]".
Status DescribeViolation(const Violation& violation, const RecordCopy& record);

// On success fills `command`; its inline_parameters then lie in `record`. On failure `command`
// is unspecified. Stateless: see StreamLog for what depends on earlier commands.
Violation ValidateCommand(const RecordCopy& record, Command& command);

// The same for the client's end of the completion ring.
Violation ValidateCompletion(const RecordCopy& record, CompletionNotice& notice);

// What a worker remembers of one client's ring to tell whether the next command can come from
// an honest client: sequences without gaps, streams that exist, waits that name earlier work,
// requests that end once per begin.
//
// Thread-compatible; belongs to the thread that takes the commands.
class StreamLog {
 public:
  StreamLog() { live_.set(0); }

  // Call once per validated command, in ring order; records the command when it is accepted.
  Violation Accept(const Command& command);

  // Sequence of the last command taken of this stream number, 0 when there was none.
  std::uint64_t last(std::uint32_t stream) const { return last_[stream]; }
  bool live(std::uint32_t stream) const { return live_[stream]; }
  // Whether a request of this stream has begun and its end was not taken yet.
  bool in_request(std::uint32_t stream) const { return in_request_[stream]; }

 private:
  std::array<std::uint64_t, kStreamsMax> last_ = {};
  std::bitset<kStreamsMax> live_;
  std::bitset<kStreamsMax> in_request_;
};

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_VALIDATE_H_
