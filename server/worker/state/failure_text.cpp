// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/failure_text.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "server/device/shown_name.h"

namespace gpushared::server {
namespace {

using Reason = Rejection::Reason;

// Leaves space for the rest of the message in a text of at most 8 KiB on the wire.
constexpr std::size_t kShownReasonBytesMax = std::size_t{7} * 1024;

// Describes a rejected launch whose module is still loaded.
std::string DescribeForKernel(const Rejection& why, const device::KernelInfo& kernel,
                              const device::DeviceInfo& info) {
  const std::string name = device::ShownName(kernel.name);
  switch (why.reason) {
    case Reason::kUnsupported:
      return fmt::format("launch rejected: device {} can't run kernel '{}': {}", info.id, name,
                         device::ShownName(kernel.unsupported, kShownReasonBytesMax));
    case Reason::kBeyondLimits:
      return why.excess.Message(name, info.id);
    default:
      return fmt::format("launch rejected: kernel '{}' takes {} bytes of parameters, got {}", name,
                         why.allowed, why.asked);
  }
}

std::string DescribeBeyondDevice(const Rejection& why, const ClientState& client) {
  std::string message = fmt::format(
      "{} rejected: it may touch {} bytes of the client's memory, and the device has {} for it",
      why.what, why.asked, why.allowed);
  if (std::string_view(why.what) != "launch") return message;
  const ModuleEntry& entry = client.scope.module(why.number);
  if (entry.module == nullptr || entry.serial != why.serial) return message;
  const device::KernelInfo& kernel = entry.module->kernels()[why.kernel];
  if (kernel.why_reach_unknown.empty()) return message;
  return fmt::format("{}; the access set of kernel '{}' is unknown: {}", message,
                     device::ShownName(kernel.name),
                     device::ShownName(kernel.why_reach_unknown, kShownReasonBytesMax));
}

std::string Describe(const Rejection& why, const ClientState& client,
                     const device::DeviceInfo& info) {
  switch (why.reason) {
    case Reason::kNone:
      return {};
    case Reason::kNoModule:
      return fmt::format("launch rejected: there is no module {}", why.number);
    case Reason::kNoKernel:
      return fmt::format("launch rejected: module {} has {} kernels, asked for number {}",
                         why.number, why.allowed, why.kernel);
    case Reason::kNoStagingBuffer:
      return fmt::format("{} rejected: there is no staging buffer {}", why.what, why.number);
    case Reason::kOutsideStagingBuffer:
      return fmt::format(
          "{} rejected: {} bytes at offset {} are not inside the {} bytes of staging buffer {}",
          why.what, why.asked, why.at, why.allowed, why.number);
    case Reason::kNotMapped:
      return fmt::format(
          "{} rejected: {} bytes at {:#x} are not inside the {} mapped bytes at {:#x}", why.what,
          why.asked, why.at, why.allowed, why.base);
    case Reason::kGraphExists:
      return fmt::format("graph rejected: there is a graph {} already; destroy it first",
                         why.number);
    case Reason::kNoGraph:
      return fmt::format("{} rejected: there is no graph {}", why.what, why.number);
    case Reason::kNoNodes:
      return fmt::format("launch rejected: graph {} has no nodes", why.number);
    case Reason::kNoNode:
      return fmt::format(
          "node rejected: graph {} has {} nodes, asked to set number {} (counted from 0)",
          why.number, why.allowed, why.asked);
    case Reason::kGraphBytes:
      return fmt::format(
          "{} rejected: the graphs of this client take {} bytes with it, at most {} are allowed; "
          "destroy graphs that are not needed",
          why.what, why.asked, why.allowed);
    case Reason::kGraphBytesOfAll:
      return fmt::format(
          "{} rejected: the graphs of this client take {} bytes with it, and other clients leave "
          "it "
          "{} of the {} for graphs on this device; destroy graphs that are not needed, or ask "
          "again when others have left",
          why.what, why.asked, why.allowed, why.at);
    case Reason::kBufferExists:
      return fmt::format("buffer rejected: {} bytes at {:#x} overlap the buffer at {:#x}",
                         why.asked, why.at, why.base);
    case Reason::kBuffersFull:
      return fmt::format("buffer rejected: it would be number {}, at most {} may be declared",
                         why.asked, why.allowed);
    case Reason::kNoBuffer:
      return fmt::format("buffer rejected: none begins at {:#x}", why.at);
    case Reason::kBeyondDevice:
      return DescribeBeyondDevice(why, client);
    case Reason::kWaitFailed:
      return fmt::format("not run: it waits for command {} of stream {}, which failed", why.at,
                         why.number);
    default:
      break;
  }
  const ModuleEntry& entry = client.scope.module(why.number);
  if (entry.module == nullptr || entry.serial != why.serial) {
    return fmt::format("launch rejected: kernel {} of module {}, which is unloaded by now",
                       why.kernel, why.number);
  }
  return DescribeForKernel(why, entry.module->kernels()[why.kernel], info);
}

}  // namespace

Status Describe(const CommandFailure& failure, const ClientState& client, std::uint32_t stream,
                std::uint64_t sequence, const device::DeviceInfo& info) {
  const Rejection& rejection = failure.rejection;
  std::string message = rejection.ok() ? failure.message : Describe(rejection, client, info);
  if (rejection.node != Rejection::kNoNodeNumber) {
    message = fmt::format("node {} of graph {}: {}", rejection.node, rejection.graph, message);
  }
  return {failure.code, fmt::format("{} {}", message, client.Who(stream, sequence))};
}

}  // namespace gpushared::server
