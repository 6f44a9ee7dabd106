// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/session.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

Status Nonsense(const char* variable, std::string_view value, const char* allowed) {
  return Status(StatusCode::kInvalidArgument, std::string(variable) + "='" + std::string(value) +
                                                  "' makes no sense: it takes " + allowed);
}

std::string_view Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <typename Number>
bool Parse(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

Status ReadClass(ClientOptions& options) {
  const std::string_view name = Variable("GPUSHARED_CLASS");
  if (name == "high") options.scheduling_class = SchedulingClass::kHigh;
  if (name == "low") options.scheduling_class = SchedulingClass::kLow;
  if (name.empty() || name == "high" || name == "normal" || name == "low") return Status::Ok();
  return Nonsense("GPUSHARED_CLASS", name, "high, normal or low");
}

Status ReadWeight(ClientOptions& options) {
  const std::string_view weight = Variable("GPUSHARED_WEIGHT");
  if (weight.empty() || Parse(weight, options.weight)) return Status::Ok();
  return Nonsense("GPUSHARED_WEIGHT", weight, "1 to 1000");
}

Status ReadPromise(ClientOptions& options) {
  const std::string_view promise = Variable("GPUSHARED_PROMISE");
  double milliseconds = 0;
  if (promise.empty()) return Status::Ok();
  if (!Parse(promise, milliseconds) || !(milliseconds > 0) || milliseconds > 3.6e6) {
    return Nonsense("GPUSHARED_PROMISE", promise, "milliseconds, at most one hour");
  }
  options.latency_promise = std::chrono::nanoseconds(static_cast<std::int64_t>(milliseconds * 1e6));
  return Status::Ok();
}

}  // namespace

Result<ClientOptions> OptionsFromEnvironment() {
  ClientOptions options;
  options.name = Variable("GPUSHARED_NAME");
  for (Status (*read)(ClientOptions&) : {&ReadClass, &ReadWeight, &ReadPromise}) {
    if (Status status = read(options); !status.ok()) return status;
  }
  return options;
}

Code ConnectCode(const Status& status) {
  switch (status.code()) {
    case StatusCode::kUnavailable:
      // The library's code for both; only the broker that drains sends this word.
      return Refuse(status.message().find("draining") == std::string::npos
                        ? Code::kMpsConnectionFailed
                        : Code::kMpsServerNotReady,
                    status.message());
    case StatusCode::kTimedOut:
    case StatusCode::kProtocolViolation:
      return Refuse(Code::kMpsRpcFailure, status.message());
    case StatusCode::kLimitExceeded:
      return Refuse(Code::kMpsMaxClientsReached, status.message());
    case StatusCode::kVersionMismatch:
      return Refuse(Code::kSystemDriverMismatch, status.message());
    case StatusCode::kPermissionDenied:
      return Refuse(Code::kNotPermitted, status.message());
    case StatusCode::kNotFound:
      return Refuse(Code::kInvalidDevice, status.message());
    case StatusCode::kOutOfMemory:
      return Refuse(Code::kOutOfMemory, status.message());
    case StatusCode::kInvalidArgument:
      return Refuse(Code::kInvalidValue, status.message());
    default:
      return Refuse(Code::kMpsConnectionFailed, status.message());
  }
}

Result<std::shared_ptr<Session>> Session::Open(const std::string& device) {
  Result<ClientOptions> options = OptionsFromEnvironment();
  if (!options.ok()) return options.status();
  options->device = device;
  options->takes_printed = true;
  Result<Client> client = Client::Connect(*options);
  if (!client.ok()) return client.status();
  return std::shared_ptr<Session>(new Session(std::move(*client)));
}

Code Session::Stick(Code code) {
  Code expected = Code::kSuccess;
  // Relaxed: only the number itself is read. The first one stays.
  sticky_.compare_exchange_strong(expected, code, std::memory_order_relaxed);
  return sticky();
}

Code Session::StickFault() {
  const FaultKind kind = client_.fault();
  return Stick(kind == FaultKind::kNone ? Code::kLaunchFailed : static_cast<Code>(kind));
}

Code Session::AfterWork(const Status& status) {
  const Result<std::string> printed = client_.TakePrinted();
  if (printed.ok() && !printed->empty()) {
    // As the driver does: into the program's own stream, behind what it has written there.
    std::fwrite(printed->data(), 1, printed->size(), stdout);
    std::fflush(stdout);
  }
  kept_memory_.GiveBack();
  return CodeOf(status.ok() ? mirrored_.ToHost() : status);
}

Code Session::CodeOf(const Status& status) {
  if (status.ok()) return Code::kSuccess;
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return Refuse(Code::kInvalidValue, status.message());
    case StatusCode::kNotFound:
      return Refuse(Code::kNotFound, status.message());
    case StatusCode::kOutOfMemory:
    case StatusCode::kLimitExceeded:
      return Refuse(Code::kOutOfMemory, status.message());
    case StatusCode::kPermissionDenied:
      return Refuse(Code::kNotPermitted, status.message());
    case StatusCode::kUnsupported:
      return Refuse(Code::kNotSupported, status.message());
    case StatusCode::kNotReady:
      return Code::kNotReady;
    case StatusCode::kWrongProcess:
      return Refuse(Code::kNotInitialized, status.message());
    case StatusCode::kKernelFault:
    case StatusCode::kCancelled:  // Earlier work of another stream failed.
      return Refuse(StickFault(), status.message());
    case StatusCode::kDeviceLost:
    case StatusCode::kDisconnected:
      return Refuse(Stick(Code::kMpsClientTerminated), status.message());
    case StatusCode::kTimedOut:
    case StatusCode::kProtocolViolation:
      return Refuse(Stick(Code::kMpsRpcFailure), status.message());
    default:
      return Refuse(Code::kUnknown, status.message());
  }
}

}  // namespace gpushared::drop_in
