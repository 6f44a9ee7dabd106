// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_REJECTION_H_
#define GPUSHARED_SERVER_WORKER_STATE_REJECTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "gpushared/fault_kind.h"
#include "gpushared/launch_limits.h"
#include "gpushared/status.h"

#include "ipc/wire/command.h"

namespace gpushared::server {

// Reasons for rejecting a command, as numbers. The message is formatted only on demand, so that a
// rejected command costs the device thread no more than an accepted one, regardless of the names
// and reasons in its module. `what` names the rejected command, such as "launch" or "node".

struct NoModule {
  static constexpr StatusCode kCode = StatusCode::kNotFound;
  std::uint32_t module = 0;
};

// Kernel that a rejected launch names.
struct NamedKernel {
  std::uint32_t module = 0;
  std::uint64_t module_serial = 0;  // Identifies the module, because its number may be reused.
  std::uint32_t kernel = 0;
};

struct NoKernel {
  static constexpr StatusCode kCode = StatusCode::kNotFound;
  std::uint32_t module = 0;
  std::uint32_t kernel = 0;
  std::size_t kernels = 0;  // Number of kernels of the module.
};

struct UnsupportedKernel {
  static constexpr StatusCode kCode = StatusCode::kUnsupported;
  NamedKernel kernel;
};

struct BeyondLaunchLimits {
  static constexpr StatusCode kCode = StatusCode::kInvalidArgument;
  NamedKernel kernel;
  LaunchExcess excess;
};

struct WrongParameterBytes {
  static constexpr StatusCode kCode = StatusCode::kInvalidArgument;
  NamedKernel kernel;
  std::uint32_t bytes = 0;
  std::uint32_t expected = 0;
};

struct NoStagingBuffer {
  static constexpr StatusCode kCode = StatusCode::kNotFound;
  const char* what = "";
  std::uint32_t staging_buffer = 0;
};

struct OutsideStagingBuffer {
  static constexpr StatusCode kCode = StatusCode::kInvalidArgument;
  const char* what = "";
  ipc::StagingRange range;
  std::uint64_t buffer_bytes = 0;
};

struct NotMapped {
  static constexpr StatusCode kCode = StatusCode::kInvalidArgument;
  const char* what = "";
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t mapped_base = 0;
  std::uint64_t mapped_bytes = 0;
};

// The access set of a command exceeds the memory that its client can have resident.
struct BeyondDevice {
  static constexpr StatusCode kCode = StatusCode::kOutOfMemory;
  const char* what = "";
  std::optional<NamedKernel> kernel;  // Set for a launch outside a graph.
  std::uint64_t bytes = 0;
  std::uint64_t bytes_max = 0;
};

struct WaitFailed {
  static constexpr StatusCode kCode = StatusCode::kCancelled;
  ipc::CommandId command;  // The command that was waited for.
};

struct GraphExists {
  static constexpr StatusCode kCode = StatusCode::kInvalidArgument;
  std::uint32_t graph = 0;
};

struct NoGraph {
  static constexpr StatusCode kCode = StatusCode::kNotFound;
  const char* what = "";
  std::uint32_t graph = 0;
};

struct EmptyGraph {
  static constexpr StatusCode kCode = StatusCode::kInvalidArgument;
  std::uint32_t graph = 0;
};

struct NoNode {
  static constexpr StatusCode kCode = StatusCode::kNotFound;
  std::uint32_t graph = 0;
  std::uint32_t node = 0;
  std::uint32_t nodes = 0;  // Number of nodes of the graph.
};

struct BeyondGraphQuota {
  static constexpr StatusCode kCode = StatusCode::kLimitExceeded;
  const char* what = "";
  std::uint64_t bytes = 0;  // Size of all graphs of the client, including the rejected change.
  std::uint64_t bytes_max = 0;
};

// The graphs of other clients leave too little of the device's budget.
struct BeyondGraphBudget {
  static constexpr StatusCode kCode = StatusCode::kLimitExceeded;
  const char* what = "";
  std::uint64_t bytes = 0;  // Size of all graphs of the client, including the rejected change.
  std::uint64_t available_bytes = 0;
  std::uint64_t total_bytes = 0;
};

struct BufferOverlaps {
  static constexpr StatusCode kCode = StatusCode::kInvalidArgument;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t other_address = 0;
};

struct TooManyBuffers {
  static constexpr StatusCode kCode = StatusCode::kLimitExceeded;
  std::size_t buffers = 0;  // Including the rejected one.
};

struct NoBuffer {
  static constexpr StatusCode kCode = StatusCode::kNotFound;
  std::uint64_t address = 0;
};

using Rejection =
    std::variant<NoModule, NoKernel, UnsupportedKernel, BeyondLaunchLimits, WrongParameterBytes,
                 NoStagingBuffer, OutsideStagingBuffer, NotMapped, BeyondDevice, WaitFailed,
                 GraphExists, NoGraph, EmptyGraph, NoNode, BeyondGraphQuota, BeyondGraphBudget,
                 BufferOverlaps, TooManyBuffers, NoBuffer>;

// Why a command failed: it was rejected, or the device reported an error.
struct CommandFailure {
  // Rejected node, if the command sets a node or launches a graph.
  struct Node {
    std::uint32_t graph = 0;
    std::uint32_t number = 0;
  };

  explicit CommandFailure(const Rejection& why)
      : code(std::visit([](const auto& any) { return any.kCode; }, why)), cause(why) {}
  CommandFailure(StatusCode of, std::string message, FaultKind kind = FaultKind::kNone)
      : code(of), fault(kind), cause(std::move(message)) {}

  StatusCode code;
  FaultKind fault = FaultKind::kNone;  // Set only with code kKernelFault.
  std::variant<Rejection, std::string> cause;
  std::optional<Node> node;
};

// Null unless the command was rejected. Fits one word, because it is returned for every command.
using MaybeRejected = std::unique_ptr<CommandFailure>;
// Out of line to keep the code for valid commands compact.
[[gnu::cold]] MaybeRejected Reject(const Rejection& why);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_REJECTION_H_
