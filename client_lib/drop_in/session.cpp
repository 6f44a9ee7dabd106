// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/session.h"

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
Code ConnectCode(const Status& status) {
  switch (status.code()) {
    case StatusCode::kUnavailable:
      // An absent and a draining broker have the same status code; only the message of a draining
      // broker contains this word.
      return Reject(status.message().find("draining") == std::string::npos
                        ? Code::kMpsConnectionFailed
                        : Code::kMpsServerNotReady,
                    status.message());
    case StatusCode::kTimedOut:
    case StatusCode::kProtocolViolation:
      return Reject(Code::kMpsRpcFailure, status.message());
    case StatusCode::kLimitExceeded:
      return Reject(Code::kMpsMaxClientsReached, status.message());
    case StatusCode::kVersionMismatch:
      return Reject(Code::kSystemDriverMismatch, status.message());
    case StatusCode::kPermissionDenied:
      return Reject(Code::kNotPermitted, status.message());
    case StatusCode::kNotFound:
      return Reject(Code::kInvalidDevice, status.message());
    case StatusCode::kOutOfMemory:
      return Reject(Code::kOutOfMemory, status.message());
    case StatusCode::kInvalidArgument:
      return Reject(Code::kInvalidValue, status.message());
    default:
      return Reject(Code::kMpsConnectionFailed, status.message());
  }
}

namespace {

// Memory that kernels have by default: the stack of each thread (for recursive calls), the printed
// text of each launch, and the heap. On a GPU, a thread has at least half of this stack.
constexpr std::size_t kStackBytes = std::size_t{8} << 10;
constexpr std::size_t kPrintfBytes = std::size_t{1} << 20;
constexpr std::size_t kHeapBytes = std::size_t{8} << 20;

}  // namespace

Session::Session(Client client)
    : client_(std::move(client)),
      mirrored_(client_),
      kept_memory_(client_),
      virtual_memory_(client_, addresses_),
      kernel_limits_{client_.device().kind == "cpu" ? kStackBytes : kStackBytes / 2, kPrintfBytes,
                     kHeapBytes} {}

std::size_t Session::KernelLimit(int limit) const {
  const MutexLock lock(limits_mutex_);
  return kernel_limits_.at(static_cast<std::size_t>(limit));
}

Code Session::SetKernelLimit(int limit, std::size_t value) {
  const MutexLock lock(limits_mutex_);
  std::size_t& is = kernel_limits_.at(static_cast<std::size_t>(limit));
  // CUDA: "the driver is free to modify the requested value"; GetLimit returns the actual one.
  if (value <= is) return Code::kSuccess;
  Client::KernelMemory memory;
  (limit == 0 ? memory.stack_bytes : limit == 1 ? memory.printed_bytes : memory.heap_bytes) = value;
  const Status set = client_.SetKernelMemory(memory);
  if (set.code() == StatusCode::kUnsupported) return Reject(Code::kInvalidValue, set.message());
  if (!set.ok()) return GetCode(set);
  is = value;
  return Code::kSuccess;
}

Result<std::shared_ptr<Session>> Session::Open(const std::string& device) {
  Result<Client> client = Client::Connect({.device = device, .takes_printed = true});
  if (!client.ok()) return client.status();
  return std::shared_ptr<Session>(new Session(std::move(*client)));
}

namespace {

// Returns CUDA's line about an assertion from the server's message; empty if there is none.
std::string_view AssertionIn(std::string_view message) {
  constexpr std::string_view kBefore = "the kernel stopped itself, ", kEnd = "` failed.";
  const std::size_t begin = message.find(kBefore), end = message.rfind(kEnd);
  if (begin == std::string_view::npos || end == std::string_view::npos) return {};
  const std::string_view line = message.substr(0, end + kEnd.size());
  return begin + kBefore.size() < line.size() ? line.substr(begin + kBefore.size())
                                              : std::string_view();
}

}  // namespace

Code Session::MakeSticky(Code code) {
  Code expected = Code::kSuccess;
  // Relaxed: only the value itself is read. The first code is kept.
  sticky_.compare_exchange_strong(expected, code, std::memory_order_relaxed);
  return sticky();
}

// The call that observes an assertion prints it, as in NVIDIA's driver.
void Session::PrintAssertion(const std::string& message) {
  const std::string line(AssertionIn(message));
  if (line.empty() || has_printed_assertion_.exchange(true, std::memory_order_relaxed)) return;
  std::fprintf(stderr, "%s\n", line.c_str());
}

Code Session::StickFault() {
  const FaultKind kind = client_.fault();
  return MakeSticky(kind == FaultKind::kNone ? Code::kLaunchFailed : static_cast<Code>(kind));
}

Code Session::AfterWork(const Status& status) {
  const Result<std::string> printed = client_.TakePrinted();
  if (printed.ok() && !printed->empty()) {
    // Writes to stdout, after the output of the program, as NVIDIA's driver does.
    std::fwrite(printed->data(), 1, printed->size(), stdout);
    std::fflush(stdout);
  }
  kept_memory_.GiveBack();
  if (!status.ok() || !mirrored_.has_any()) return GetCode(status);
  return GetCode(mirrored_.ToHost());
}

Code Session::TakeBack(std::uint64_t address) {
  if (!mirrored_.has_any()) return Code::kSuccess;
  const std::optional<Block> block = addresses_.Find(address);
  if (!block || !block->is_reached_on_demand()) return Code::kSuccess;
  const std::shared_ptr<Mirror> twin = addresses_.Twin(block->address);
  return twin == nullptr ? Code::kSuccess : GetCode(mirrored_.AwaitToHost(*twin));
}

Code Session::GetCode(const Status& status) {
  if (status.ok()) return Code::kSuccess;
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return Reject(Code::kInvalidValue, status.message());
    case StatusCode::kNotFound:
      return Reject(Code::kNotFound, status.message());
    case StatusCode::kOutOfMemory:
    case StatusCode::kLimitExceeded:
      return Reject(Code::kOutOfMemory, status.message());
    case StatusCode::kPermissionDenied:
      return Reject(Code::kNotPermitted, status.message());
    case StatusCode::kUnsupported:
      return Reject(Code::kNotSupported, status.message());
    case StatusCode::kNotReady:
      return Code::kNotReady;
    case StatusCode::kWrongProcess:
      return Reject(Code::kNotInitialized, status.message());
    case StatusCode::kKernelFault:
      PrintAssertion(status.message());
      return Reject(StickFault(), status.message());
    case StatusCode::kCancelled:  // Earlier work of another stream failed.
      return Reject(StickFault(), status.message());
    case StatusCode::kDeviceLost:
    case StatusCode::kDisconnected:
      // The driver's error code does not express the reason, so the message is reported to the
      // user.
      ReportUser(status.message(), has_reported_end_);
      return Reject(MakeSticky(Code::kMpsClientTerminated), status.message());
    case StatusCode::kTimedOut:
    case StatusCode::kProtocolViolation:
      return Reject(MakeSticky(Code::kMpsRpcFailure), status.message());
    default:
      return Reject(Code::kUnknown, status.message());
  }
}

}  // namespace gpushared::drop_in
