// SPDX-License-Identifier: Apache-2.0
#include "gpushared/status.h"

#include "gpushared/fault_kind.h"

namespace gpushared {

std::string_view StatusCodeName(StatusCode code) noexcept {
  switch (code) {
    case StatusCode::kOk:
      return "Ok";
    case StatusCode::kInvalidArgument:
      return "InvalidArgument";
    case StatusCode::kNotFound:
      return "NotFound";
    case StatusCode::kOutOfMemory:
      return "OutOfMemory";
    case StatusCode::kLimitExceeded:
      return "LimitExceeded";
    case StatusCode::kPermissionDenied:
      return "PermissionDenied";
    case StatusCode::kUnavailable:
      return "Unavailable";
    case StatusCode::kVersionMismatch:
      return "VersionMismatch";
    case StatusCode::kDeviceLost:
      return "DeviceLost";
    case StatusCode::kDisconnected:
      return "Disconnected";
    case StatusCode::kUnsupported:
      return "Unsupported";
    case StatusCode::kWrongProcess:
      return "WrongProcess";
    case StatusCode::kKernelFault:
      return "KernelFault";
    case StatusCode::kCancelled:
      return "Cancelled";
    case StatusCode::kNotReady:
      return "NotReady";
    case StatusCode::kTimedOut:
      return "TimedOut";
    case StatusCode::kProtocolViolation:
      return "ProtocolViolation";
    case StatusCode::kInternal:
      return "Internal";
  }
  return "Unknown";
}

std::string_view FaultKindName(FaultKind kind) noexcept {
  switch (kind) {
    case FaultKind::kNone:
      return "None";
    case FaultKind::kIllegalAddress:
      return "IllegalAddress";
    case FaultKind::kLaunchTimeout:
      return "LaunchTimeout";
    case FaultKind::kAssert:
      return "Assert";
    case FaultKind::kHardwareStackError:
      return "HardwareStackError";
    case FaultKind::kIllegalInstruction:
      return "IllegalInstruction";
    case FaultKind::kMisalignedAddress:
      return "MisalignedAddress";
    case FaultKind::kInvalidAddressSpace:
      return "InvalidAddressSpace";
    case FaultKind::kInvalidPc:
      return "InvalidPc";
    case FaultKind::kLaunchFailure:
      return "LaunchFailure";
  }
  return "Unknown";
}

std::string Status::ToString() const {
  std::string text(StatusCodeName(code_));
  if (!ok()) text += ": " + message_;
  return text;
}

}  // namespace gpushared
