// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/driver_graph.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <variant>

#include "server/device/cuda/cuda_module.h"

namespace gpushared::device::cuda {
namespace {

bool IsSame(const Dim3& a, const Dim3& b) { return a.x == b.x && a.y == b.y && a.z == b.z; }

bool IsSame(const LaunchWork& a, const LaunchWork& b) {
  return a.module == b.module && a.kernel == b.kernel && IsSame(a.grid, b.grid) &&
         IsSame(a.block, b.block) && a.dynamic_shared_bytes == b.dynamic_shared_bytes &&
         std::ranges::equal(a.parameters, b.parameters);
}

bool IsSame(const CopyWork& a, const CopyWork& b) {
  return a.direction == b.direction && a.host == b.host && a.destination == b.destination &&
         a.source == b.source && a.width_bytes == b.width_bytes && a.height == b.height &&
         a.destination_pitch_bytes == b.destination_pitch_bytes &&
         a.source_pitch_bytes == b.source_pitch_bytes;
}

bool IsSame(const FillWork& a, const FillWork& b) {
  return a.destination == b.destination && a.value == b.value &&
         a.element_bytes == b.element_bytes && a.width_bytes == b.width_bytes &&
         a.height == b.height && a.pitch_bytes == b.pitch_bytes;
}

// Parameters of a launch in the driver's form. Points into itself and into the launch.
class KernelFor {
 public:
  explicit KernelFor(const LaunchWork& work) : bytes_(work.parameters.size()) {
    const auto key = [](std::uintptr_t value) { return reinterpret_cast<void*>(value); };
    extra_ = {key(kLaunchBuffer), const_cast<std::byte*>(work.parameters.data()),
              key(kLaunchBufferBytes), &bytes_, key(kLaunchEnd)};
    const auto& module = static_cast<const CudaModule&>(*work.module);
    node_ = {.function = module.function(work.kernel),
             .grid_x = work.grid.x,
             .grid_y = work.grid.y,
             .grid_z = work.grid.z,
             .block_x = work.block.x,
             .block_y = work.block.y,
             .block_z = work.block.z,
             .shared_bytes = work.dynamic_shared_bytes,
             .extra = bytes_ == 0 ? nullptr : extra_.data()};
  }
  KernelFor(const KernelFor&) = delete;
  KernelFor& operator=(const KernelFor&) = delete;

  const KernelNode* node() const { return &node_; }

 private:
  std::size_t bytes_;
  std::array<void*, 5> extra_{};
  KernelNode node_;
};

CopyNode GetCopy(const CopyWork& work) {
  const auto on_device = [&](std::uint64_t address, std::uint64_t pitch) {
    return CopyNodeSide{.type = MemoryType::kDevice, .device = address, .pitch = pitch};
  };
  const auto on_host = [&](std::uint64_t pitch) {
    return CopyNodeSide{.type = MemoryType::kHost, .host = work.host, .pitch = pitch};
  };
  CopyNode node;
  node.source = work.direction == CopyWork::Direction::kHostToDevice
                    ? on_host(work.source_pitch_bytes)
                    : on_device(work.source, work.source_pitch_bytes);
  node.destination = work.direction == CopyWork::Direction::kDeviceToHost
                         ? on_host(work.destination_pitch_bytes)
                         : on_device(work.destination, work.destination_pitch_bytes);
  node.width_bytes = work.width_bytes;
  node.height = work.height;
  return node;
}

FillNode GetFill(const FillWork& work) {
  return {.destination = work.destination,
          .pitch_bytes = work.pitch_bytes,
          .value = work.value,
          .element_bytes = work.element_bytes,
          .width_elements = work.width_bytes / work.element_bytes,
          .height = work.height};
}

}  // namespace

NodeCopy::NodeCopy(const GraphNode& node, std::uint64_t of_version)
    : work(node), version(of_version) {
  if (auto* const launch = std::get_if<LaunchWork>(&work)) {
    parameters.assign(launch->parameters.begin(), launch->parameters.end());
    launch->parameters = parameters;
  }
}

bool InstantiatedGraph::Takes(const GraphNode& node) {
  if (const auto* const launch = std::get_if<LaunchWork>(&node)) {
    return !launch->is_cooperative && launch->cluster.x == 0;
  }
  // Larger pitches require row-by-row copies (issue.cpp).
  constexpr std::uint64_t kPitchMax = std::uint64_t{1} << 30;
  if (const auto* const copy = std::get_if<CopyWork>(&node)) {
    return copy->source_pitch_bytes <= kPitchMax && copy->destination_pitch_bytes <= kPitchMax;
  }
  return std::get<FillWork>(node).pitch_bytes <= kPitchMax;
}

Result<std::unique_ptr<InstantiatedGraph>> InstantiatedGraph::Make(CudaContext& context,
                                                                   std::vector<NodeCopy> nodes,
                                                                   Stream upload) {
  std::unique_ptr<InstantiatedGraph> made(new InstantiatedGraph(context));
  made->nodes_ = std::move(nodes);
  for (const NodeCopy& node : made->nodes_) {
    if (!std::holds_alternative<LaunchWork>(node.work)) {
      made->no_launches_.push_back(static_cast<std::uint32_t>(made->versions_.size()));
    }
    made->versions_.push_back(node.version);
  }
  Status status = made->AddNodes();
  if (status.ok()) status = made->Instantiate(upload);
  if (!status.ok()) return status;
  return made;
}

InstantiatedGraph::~InstantiatedGraph() {
  if (context_.is_dead()) return;
  const Driver& driver = context_.driver();
  if (exec_ != nullptr) (void)context_.Call(driver.GraphExecDestroy, exec_);
  if (graph_ != nullptr) (void)context_.Call(driver.GraphDestroy, graph_);
}

Status InstantiatedGraph::AddNodes() {
  const Driver& driver = context_.driver();
  Context current = nullptr;
  Status status = context_.Try("making a graph", driver.GraphCreate, &graph_, 0U);
  if (status.ok()) status = context_.Try("making a graph", driver.CtxGetCurrent, &current);
  for (const NodeCopy& node : nodes_) {
    if (!status.ok()) return status;
    DriverNode handle = nullptr;
    const DriverNode* const after = handles_.empty() ? nullptr : &handles_.back();
    const std::size_t count = handles_.empty() ? 0 : 1;
    if (const auto* const launch = std::get_if<LaunchWork>(&node.work)) {
      const KernelFor kernel(*launch);
      status = context_.Try("adding a launch to a graph", driver.GraphAddKernelNode, &handle,
                            graph_, after, count, kernel.node());
    } else if (const auto* const copy = std::get_if<CopyWork>(&node.work)) {
      const CopyNode what = GetCopy(*copy);
      status = context_.Try("adding a copy to a graph", driver.GraphAddMemcpyNode, &handle, graph_,
                            after, count, &what, current);
    } else {
      const FillNode what = GetFill(std::get<FillWork>(node.work));
      status = context_.Try("adding a fill to a graph", driver.GraphAddMemsetNode, &handle, graph_,
                            after, count, &what, current);
    }
    handles_.push_back(handle);
  }
  return status;
}

Status InstantiatedGraph::Instantiate(Stream upload) {
  const Driver& driver = context_.driver();
  Status status =
      context_.Try("instantiating a graph", driver.GraphInstantiateWithFlags, &exec_, graph_, 0ULL);
  if (status.ok()) status = context_.Try("uploading a graph", driver.GraphUpload, exec_, upload);
  if (!status.ok()) return status;
  return context_.Try("uploading a graph", driver.StreamSynchronize, upload);
}

InstantiatedGraph::Change InstantiatedGraph::FindChanges(const GraphWork& work,
                                                         std::vector<std::size_t>& changed) const {
  if (work.nodes.size() != nodes_.size()) return Change::kOther;
  for (std::size_t i = 0; i < versions_.size(); ++i) {
    if (work.node_versions[i] == versions_[i]) continue;
    if (changed.size() == kChangesMax) return Change::kTooMany;
    changed.push_back(i);
  }
  return Change::kDone;
}

InstantiatedGraph::Change InstantiatedGraph::ChangeNode(std::size_t number, const GraphNode& now) {
  const GraphNode& before = nodes_[number].work;
  if (now.index() != before.index()) return Change::kOther;
  const bool is_same = std::visit(
      [&](const auto& work) {
        return IsSame(work, std::get<std::decay_t<decltype(work)>>(before));
      },
      now);
  if (is_same) return Change::kDone;
  const auto* const launch = std::get_if<LaunchWork>(&now);
  // GraphStore tracks only the modules that the graph was instantiated with.
  if (launch == nullptr || launch->module != std::get<LaunchWork>(before).module) {
    return Change::kOther;
  }
  const KernelFor kernel(*launch);
  const Code code = context_.Call(context_.driver().GraphExecKernelNodeSetParams, exec_,
                                  handles_[number], kernel.node());
  if (code != Code::kSuccess) return Change::kOther;
  nodes_[number] = NodeCopy(now, 0);
  return Change::kDone;
}

InstantiatedGraph::Change InstantiatedGraph::Become(const GraphWork& work) {
  std::vector<std::size_t> changed;
  if (const Change change = FindChanges(work, changed); change != Change::kDone) return change;
  for (const std::size_t i : changed) {
    if (const Change change = ChangeNode(i, *work.nodes[i]); change != Change::kDone) return change;
    versions_[i] = work.node_versions[i];
  }
  return Change::kDone;
}

bool InstantiatedGraph::FindOthers(const GraphWork& work,
                                   std::vector<std::uint32_t>& others) const {
  if (work.nodes.size() != versions_.size() || work.node_versions.size() != versions_.size()) {
    return false;
  }
  others.insert(others.end(), no_launches_.begin(), no_launches_.end());
  for (std::uint32_t i = 0; i < versions_.size(); ++i) {
    if (work.node_versions[i] != versions_[i]) others.push_back(i);
  }
  return true;
}

Status InstantiatedGraph::Launch(Stream stream) {
  return context_.Try("launch of a graph", context_.driver().GraphLaunch, exec_, stream);
}

bool InstantiatedGraph::Uses(const device::Module& module) const {
  return std::ranges::any_of(nodes_, [&](const NodeCopy& node) {
    const auto* const launch = std::get_if<LaunchWork>(&node.work);
    return launch != nullptr && launch->module == &module;
  });
}

}  // namespace gpushared::device::cuda
