// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/failure_text.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "server/device/shown_name.h"

namespace gpushared::server {
namespace {

using Reason = Refusal::Reason;

// Leaves room for the rest in the 8 KiB of a text on the wire.
constexpr std::size_t kSaidReasonBytesMax = std::size_t{7} * 1024;

// Says what is wrong with a launch whose module is still there.
std::string SayOfKernel(const Refusal& why, const device::KernelInfo& kernel,
                        const device::DeviceInfo& info) {
  const std::string name = device::ShownName(kernel.name);
  switch (why.reason) {
    case Reason::kUnsupported:
      return fmt::format("launch refused: device {} can't run kernel '{}': {}", info.id, name,
                         device::ShownName(kernel.unsupported, kSaidReasonBytesMax));
    case Reason::kBeyondLimits:
      return why.excess.Sentence(name, info.id);
    default:
      return fmt::format("launch refused: kernel '{}' takes {} bytes of parameters, got {}", name,
                         why.allowed, why.asked);
  }
}

std::string SayBeyondDevice(const Refusal& why, const ClientState& client) {
  std::string sentence = fmt::format(
      "{} refused: it may touch {} bytes of the client's memory, and the device has {} for it",
      why.what, why.asked, why.allowed);
  if (std::string_view(why.what) != "launch") return sentence;
  const ModuleEntry& entry = client.scope.module(why.number);
  if (entry.module == nullptr || entry.serial != why.serial) return sentence;
  const device::KernelInfo& kernel = entry.module->kernels()[why.kernel];
  if (kernel.why_reach_unknown.empty()) return sentence;
  return fmt::format("{}; what kernel '{}' reaches is not known: {}", sentence,
                     device::ShownName(kernel.name),
                     device::ShownName(kernel.why_reach_unknown, kSaidReasonBytesMax));
}

std::string Say(const Refusal& why, const ClientState& client, const device::DeviceInfo& info) {
  switch (why.reason) {
    case Reason::kNone:
      return {};
    case Reason::kNoModule:
      return fmt::format("launch refused: there is no module {}", why.number);
    case Reason::kNoKernel:
      return fmt::format("launch refused: module {} has {} kernels, asked for number {}",
                         why.number, why.allowed, why.kernel);
    case Reason::kNoArena:
      return fmt::format("{} refused: there is no arena {}", why.what, why.number);
    case Reason::kOutsideArena:
      return fmt::format(
          "{} refused: {} bytes at offset {} are not inside the {} bytes of arena {}", why.what,
          why.asked, why.at, why.allowed, why.number);
    case Reason::kNotMapped:
      return fmt::format(
          "{} refused: {} bytes at {:#x} are not inside the {} mapped bytes at {:#x}", why.what,
          why.asked, why.at, why.allowed, why.base);
    case Reason::kGraphThere:
      return fmt::format("graph refused: there is a graph {} already; destroy it first",
                         why.number);
    case Reason::kNoGraph:
      return fmt::format("{} refused: there is no graph {}", why.what, why.number);
    case Reason::kNoNodes:
      return fmt::format("launch refused: graph {} has no nodes", why.number);
    case Reason::kNoNode:
      return fmt::format(
          "node refused: graph {} has {} nodes, asked to set number {} (counted from 0)",
          why.number, why.allowed, why.asked);
    case Reason::kGraphBytes:
      return fmt::format(
          "{} refused: the graphs of this client take {} bytes with it, at most {} are allowed; "
          "destroy graphs that are not needed",
          why.what, why.asked, why.allowed);
    case Reason::kGraphBytesOfAll:
      return fmt::format(
          "{} refused: the graphs of this client take {} bytes with it, and other clients leave it "
          "{} of the {} for graphs on this device; destroy graphs that are not needed, or ask "
          "again when others have left",
          why.what, why.asked, why.allowed, why.at);
    case Reason::kBufferThere:
      return fmt::format("buffer refused: {} bytes at {:#x} are in part the buffer's at {:#x}",
                         why.asked, why.at, why.base);
    case Reason::kBuffersFull:
      return fmt::format("buffer refused: it would be number {}, at most {} may be told", why.asked,
                         why.allowed);
    case Reason::kNoBuffer:
      return fmt::format("buffer refused: none begins at {:#x}", why.at);
    case Reason::kBeyondDevice:
      return SayBeyondDevice(why, client);
    case Reason::kWaitFailed:
      return fmt::format("not run: it waits for command {} of stream {}, which failed", why.at,
                         why.number);
    default:
      break;
  }
  const ModuleEntry& entry = client.scope.module(why.number);
  if (entry.module == nullptr || entry.serial != why.serial) {
    return fmt::format("launch refused: kernel {} of module {}, which is unloaded by now",
                       why.kernel, why.number);
  }
  return SayOfKernel(why, entry.module->kernels()[why.kernel], info);
}

}  // namespace

Status Describe(const CommandFailure& failure, const ClientState& client, std::uint32_t stream,
                std::uint64_t sequence, const device::DeviceInfo& info) {
  const Refusal& refusal = failure.refusal;
  std::string sentence = refusal.ok() ? failure.sentence : Say(refusal, client, info);
  if (refusal.node != Refusal::kNoNodeNumber) {
    sentence = fmt::format("node {} of graph {}: {}", refusal.node, refusal.graph, sentence);
  }
  return {failure.code, fmt::format("{} {}", sentence, client.Who(stream, sequence))};
}

}  // namespace gpushared::server
