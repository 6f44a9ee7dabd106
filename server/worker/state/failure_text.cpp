// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/failure_text.h"

#include <fmt/format.h>

#include <string>
#include <variant>

#include "server/device/shown_name.h"

namespace gpushared::server {
namespace {

// Leaves space for the rest of the message in a text of at most 8 KiB on the wire.
constexpr std::size_t kShownReasonBytesMax = std::size_t{7} * 1024;

// Formats the message of a rejection.
class Describer {
 public:
  Describer(const ClientState& client, const device::DeviceInfo& info)
      : client_(client), info_(info) {}

  std::string operator()(const NoModule& why) const {
    return fmt::format("launch rejected: there is no module {}", why.module);
  }
  std::string operator()(const NoKernel& why) const {
    return fmt::format("launch rejected: module {} has {} kernels, asked for number {}", why.module,
                       why.kernels, why.kernel);
  }
  std::string operator()(const UnsupportedKernel& why) const {
    const device::KernelInfo* const kernel = FindKernel(why.kernel);
    if (kernel == nullptr) return DescribeUnloaded(why.kernel);
    return fmt::format("launch rejected: device {} can't run kernel '{}': {}", info_.id,
                       device::ShownName(kernel->name),
                       device::ShownName(kernel->unsupported, kShownReasonBytesMax));
  }
  std::string operator()(const BeyondLaunchLimits& why) const {
    const device::KernelInfo* const kernel = FindKernel(why.kernel);
    if (kernel == nullptr) return DescribeUnloaded(why.kernel);
    return why.excess.Message(device::ShownName(kernel->name), info_.id);
  }
  std::string operator()(const WrongParameterBytes& why) const {
    const device::KernelInfo* const kernel = FindKernel(why.kernel);
    if (kernel == nullptr) return DescribeUnloaded(why.kernel);
    return fmt::format("launch rejected: kernel '{}' takes {} bytes of parameters, got {}",
                       device::ShownName(kernel->name), why.expected, why.bytes);
  }
  std::string operator()(const NoStagingBuffer& why) const {
    return fmt::format("{} rejected: there is no staging buffer {}", why.what, why.staging_buffer);
  }
  std::string operator()(const OutsideStagingBuffer& why) const {
    return fmt::format(
        "{} rejected: {} bytes at offset {} are not inside the {} bytes of staging buffer {}",
        why.what, why.range.bytes, why.range.offset, why.buffer_bytes, why.range.staging_buffer);
  }
  std::string operator()(const NotMapped& why) const {
    return fmt::format("{} rejected: {} bytes at {:#x} are not inside the {} mapped bytes at {:#x}",
                       why.what, why.bytes, why.address, why.mapped_bytes, why.mapped_base);
  }
  std::string operator()(const BeyondDevice& why) const {
    const std::string message = fmt::format(
        "{} rejected: it may touch {} bytes of the client's memory, but the device can hold only "
        "{} of them at a time",
        why.what, why.bytes, why.bytes_max);
    const device::KernelInfo* const kernel = why.kernel ? FindKernel(*why.kernel) : nullptr;
    if (kernel == nullptr || kernel->why_reach_unknown.empty()) return message;
    return fmt::format("{}; the access set of kernel '{}' is unknown: {}", message,
                       device::ShownName(kernel->name),
                       device::ShownName(kernel->why_reach_unknown, kShownReasonBytesMax));
  }
  std::string operator()(const WaitFailed& why) const {
    return fmt::format("not run: it waits for command {} of stream {}, which failed",
                       why.command.sequence, why.command.stream);
  }
  std::string operator()(const GraphExists& why) const {
    return fmt::format("graph rejected: there is a graph {} already; destroy it first", why.graph);
  }
  std::string operator()(const NoGraph& why) const {
    return fmt::format("{} rejected: there is no graph {}", why.what, why.graph);
  }
  std::string operator()(const EmptyGraph& why) const {
    return fmt::format("launch rejected: graph {} has no nodes", why.graph);
  }
  std::string operator()(const NoNode& why) const {
    return fmt::format(
        "node rejected: graph {} has {} nodes, asked to set number {} (counted from 0)", why.graph,
        why.nodes, why.node);
  }
  std::string operator()(const BeyondGraphQuota& why) const {
    return fmt::format(
        "{} rejected: with it, the graphs of this client would take {} bytes, but at most {} are "
        "allowed; destroy graphs that are not needed",
        why.what, why.bytes, why.bytes_max);
  }
  std::string operator()(const BeyondGraphBudget& why) const {
    return fmt::format(
        "{} rejected: with it, the graphs of this client would take {} bytes, but other clients "
        "leave only {} of the device's {} bytes for graphs; destroy graphs that are not needed, or "
        "retry when other clients have left",
        why.what, why.bytes, why.available_bytes, why.total_bytes);
  }
  std::string operator()(const BufferOverlaps& why) const {
    return fmt::format("buffer rejected: {} bytes at {:#x} overlap the buffer at {:#x}", why.bytes,
                       why.address, why.other_address);
  }
  std::string operator()(const TooManyBuffers& why) const {
    return fmt::format("buffer rejected: it would be number {}, at most {} may be declared",
                       why.buffers, ipc::kBuffersMax);
  }
  std::string operator()(const NoBuffer& why) const {
    return fmt::format("buffer removal rejected: no declared buffer begins at {:#x}", why.address);
  }

 private:
  // Returns null if the module has been unloaded since.
  const device::KernelInfo* FindKernel(const NamedKernel& named) const {
    const ModuleEntry& entry = client_.scope.module(named.module);
    if (entry.module == nullptr || entry.serial != named.module_serial) return nullptr;
    return &entry.module->kernels()[named.kernel];
  }
  static std::string DescribeUnloaded(const NamedKernel& named) {
    return fmt::format("launch rejected: kernel {} of module {}, which has been unloaded since",
                       named.kernel, named.module);
  }

  const ClientState& client_;
  const device::DeviceInfo& info_;
};

}  // namespace

Status Describe(const CommandFailure& failure, const ClientState& client, std::uint32_t stream,
                std::uint64_t sequence, const device::DeviceInfo& info) {
  const auto* const rejection = std::get_if<Rejection>(&failure.cause);
  std::string message = rejection != nullptr ? std::visit(Describer(client, info), *rejection)
                                             : std::get<std::string>(failure.cause);
  if (failure.node) {
    message =
        fmt::format("node {} of graph {}: {}", failure.node->number, failure.node->graph, message);
  }
  return {failure.code, fmt::format("{} {}", message, client.Who(stream, sequence))};
}

}  // namespace gpushared::server
