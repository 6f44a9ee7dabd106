// SPDX-License-Identifier: Apache-2.0
// Graphs: built node by node, instantiated, updated, launched.
//
// Not modelled: nodes that run concurrently. A GPU runs launches of one instantiation on several
// streams one after the other; here only launches on the same stream are ordered.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/entry_points.h"
#include "tests/support/fake_cuda/graphs.h"
#include "tests/support/fake_cuda/modules.h"
#include "tests/support/fake_cuda/transfers.h"
#include "tests/support/fake_cuda/world.h"

namespace gpushared::device::cuda {

using testing::fake_cuda::Call;
using testing::fake_cuda::FakeExec;
using testing::fake_cuda::FakeGraph;
using testing::fake_cuda::FakeNode;
using testing::fake_cuda::LaunchShape;
using testing::fake_cuda::Lock;
using testing::fake_cuda::Needs;
using testing::fake_cuda::Number;
using testing::fake_cuda::OnDevice;
using testing::fake_cuda::OnHost;
using testing::fake_cuda::Side;
using testing::fake_cuda::Work;
using testing::fake_cuda::World;

namespace {

// Validates a kernel node like a driver; `node` receives module and factory.
Code MakeKernel(World& world, const char* call, const KernelNode* what, auto& node) {
  if (what == nullptr || what->function == nullptr) return Code::kInvalidValue;
  const auto function = world.Get(world.functions, Number(what->function), call);
  if (function == nullptr) return Code::kInvalidHandle;
  const LaunchShape shape = {.grid = {what->grid_x, what->grid_y, what->grid_z},
                             .block = {what->block_x, what->block_y, what->block_z},
                             .dynamic_shared_bytes = what->shared_bytes};
  // The arguments are copied now, because the caller may reuse their memory at once.
  std::vector<std::byte> gathered;
  const Code code = testing::fake_cuda::CheckLaunch(
      world, *function, shape, {what->parameters, what->extra}, call, gathered);
  if (code != Code::kSuccess) return code;
  node.module = function->module_handle;
  node.make = [&world, function, shape, gathered] {
    return testing::fake_cuda::MakeLaunch(world, function, shape, gathered, "cuGraphLaunch");
  };
  return Code::kSuccess;
}

// Adds a node. `fill` has the type Code(World&, FakeNode&).
Code AddNode(const char* name, DriverNode* out, DriverGraph handle, const DriverNode* after,
             std::size_t count, auto&& fill) {
  return Call(name, Needs::kContext, Number(handle), [&](World& world, Lock&) {
    const auto graph = world.Get(world.graphs, Number(handle), name);
    if (graph == nullptr || out == nullptr) return Code::kInvalidValue;
    auto node = std::make_shared<FakeNode>();
    node->graph = Number(handle);
    if (count > 1) return Code::kNotSupported;
    if (count == 1) {
      const auto ahead = world.Get(world.nodes, Number(*after), name);
      if (ahead == nullptr || ahead->graph != node->graph) return Code::kInvalidValue;
      node->after = Number(*after);
    }
    const Code code = fill(world, *node);
    if (code != Code::kSuccess) return code;
    graph->nodes.push_back(world.nodes.Add(node));
    *out = reinterpret_cast<DriverNode>(graph->nodes.back());
    return code;
  });
}

Side GetSide(const CopyNodeSide& side) {
  const std::size_t skipped = side.y * side.pitch + side.x_bytes;
  Side made = side.type == MemoryType::kHost ? OnHost(side.host, side.pitch)
                                             : OnDevice(side.device, side.pitch);
  made.start += skipped;
  return made;
}

// Returns the nodes in execution order; empty if they do not form a single chain.
std::vector<FakeExec::Node> Line(World& world, const FakeGraph& graph) {
  std::vector<FakeExec::Node> line;
  std::uintptr_t ahead = 0;
  while (line.size() < graph.nodes.size()) {
    const auto next = std::ranges::find_if(graph.nodes, [&](std::uintptr_t handle) {
      return world.nodes.Find(handle)->after == ahead;
    });
    if (next == graph.nodes.end()) return {};
    const auto node = world.nodes.Find(*next);
    line.push_back({.node = *next, .module = node->module, .make = node->make});
    ahead = *next;
  }
  return line;
}

void SpendPerNode(World& world, std::size_t nodes, std::uint64_t testing::fake_cuda::Costs::*cost) {
  if (!world.settings.costs) return;
  World::Spend(std::chrono::nanoseconds(nodes * (*world.settings.costs).*cost));
  world.CatchUp();
}

}  // namespace

extern "C" {

Code cuGraphCreate(DriverGraph* graph, unsigned flags) {
  return Call("cuGraphCreate", Needs::kContext, 0, [&](World& world, Lock&) {
    if (flags != 0) return Code::kInvalidValue;
    auto made = std::make_shared<FakeGraph>();
    made->context = World::current;
    *graph = reinterpret_cast<DriverGraph>(world.graphs.Add(std::move(made)));
    return Code::kSuccess;
  });
}

Code cuGraphAddKernelNode_v2(DriverNode* node, DriverGraph graph, const DriverNode* after,
                             std::size_t count, const KernelNode* what) {
  constexpr const char* kName = "cuGraphAddKernelNode";
  return AddNode(kName, node, graph, after, count, [&](World& world, FakeNode& made) {
    return MakeKernel(world, kName, what, made);
  });
}

Code cuGraphAddMemcpyNode(DriverNode* node, DriverGraph graph, const DriverNode* after,
                          std::size_t count, const CopyNode* what, Context context) {
  constexpr const char* kName = "cuGraphAddMemcpyNode";
  return AddNode(kName, node, graph, after, count, [&](World& world, FakeNode& made) {
    if (what->depth != 1 || context == nullptr) return Code::kInvalidValue;
    Work checked;
    bool is_pageable = false;
    const auto make = [&world, what = *what](Work& work, bool& pageable) {
      return testing::fake_cuda::MakeCopy(world, "cuGraphLaunch", GetSide(what.destination),
                                          GetSide(what.source), {what.width_bytes, what.height},
                                          work, pageable);
    };
    const Code code = make(checked, is_pageable);
    if (is_pageable) world.Mistake(std::string(kName) + ": a copy of memory that is not pinned");
    made.make = [make] {
      Work work;
      bool pageable = false;
      (void)make(work, pageable);
      return work;
    };
    return code;
  });
}

Code cuGraphAddMemsetNode(DriverNode* node, DriverGraph graph, const DriverNode* after,
                          std::size_t count, const FillNode* what, Context context) {
  return AddNode("cuGraphAddMemsetNode", node, graph, after, count,
                 [&](World& world, FakeNode& made) {
                   if (context == nullptr) return Code::kInvalidValue;
                   const auto make = [&world, what = *what](Work& work) {
                     return testing::fake_cuda::MakeFill(
                         world, "cuGraphLaunch", OnDevice(what.destination, what.pitch_bytes),
                         {.value = what.value, .element_bytes = what.element_bytes},
                         {what.width_elements, what.height}, work);
                   };
                   made.make = [make] {
                     Work work;
                     (void)make(work);
                     return work;
                   };
                   Work checked;
                   return make(checked);
                 });
}

Code cuGraphInstantiateWithFlags(DriverExec* exec, DriverGraph handle, unsigned long long flags) {
  constexpr const char* kName = "cuGraphInstantiateWithFlags";
  return Call(kName, Needs::kContext, Number(handle), [&](World& world, Lock&) {
    const auto graph = world.Get(world.graphs, Number(handle), kName);
    if (graph == nullptr || flags != 0) return Code::kInvalidValue;
    auto made = std::make_shared<FakeExec>();
    made->context = World::current;
    made->graph = Number(handle);
    made->nodes = Line(world, *graph);
    if (made->nodes.size() != graph->nodes.size()) return Code::kNotSupported;
    SpendPerNode(world, made->nodes.size(), &testing::fake_cuda::Costs::graph_instantiated_node);
    *exec = reinterpret_cast<DriverExec>(world.execs.Add(std::move(made)));
    return Code::kSuccess;
  });
}

Code cuGraphExecKernelNodeSetParams_v2(DriverExec handle, DriverNode node, const KernelNode* what) {
  constexpr const char* kName = "cuGraphExecKernelNodeSetParams";
  return Call(kName, Needs::kContext, Number(handle), [&](World& world, Lock&) {
    const auto exec = world.Get(world.execs, Number(handle), kName);
    if (exec == nullptr) return Code::kInvalidHandle;
    // The call identifies the kernel by the graph's node, which must therefore still exist.
    if (world.Get(world.nodes, Number(node), kName) == nullptr) return Code::kInvalidValue;
    const auto found = std::ranges::find(exec->nodes, Number(node), &FakeExec::Node::node);
    // A kernel node must remain a kernel node.
    if (found == exec->nodes.end() || found->module == 0) return Code::kInvalidValue;
    return MakeKernel(world, kName, what, *found);
  });
}

Code cuGraphUpload(DriverExec handle, Stream stream) {
  constexpr const char* kName = "cuGraphUpload";
  return Call(kName, Needs::kContext, Number(handle), [&](World& world, Lock&) {
    const bool is_there = world.Get(world.execs, Number(handle), kName) != nullptr &&
                          world.Get(world.streams, Number(stream), kName) != nullptr;
    return is_there ? Code::kSuccess : Code::kInvalidHandle;
  });
}

Code cuGraphLaunch(DriverExec handle, Stream on) {
  constexpr const char* kName = "cuGraphLaunch";
  return Call(kName, Needs::kContext, Number(handle), [&](World& world, Lock&) {
    const auto exec = world.Get(world.execs, Number(handle), kName);
    if (on == nullptr) world.Mistake(std::string(kName) + ": on the default stream");
    const auto stream = on == nullptr ? nullptr : world.Get(world.streams, Number(on), kName);
    if (exec == nullptr || stream == nullptr) return Code::kInvalidHandle;
    SpendPerNode(world, exec->nodes.size(), &testing::fake_cuda::Costs::graph_launched_node);
    bool is_first = true;
    for (const FakeExec::Node& node : exec->nodes) {
      Work work = node.make();
      work.exec = Number(handle);
      work.follows_in_graph = !std::exchange(is_first, false);
      world.Submit(*stream, std::move(work));
    }
    return Code::kSuccess;
  });
}

Code cuGraphExecDestroy(DriverExec handle) {
  constexpr const char* kName = "cuGraphExecDestroy";
  return Call(kName, Needs::kContext, Number(handle), [&](World& world, Lock&) {
    if (world.Get(world.execs, Number(handle), kName) == nullptr) return Code::kInvalidHandle;
    if (world.PendingExec(Number(handle)) != nullptr && !world.sticky) {
      world.Mistake(std::string(kName) + ": a launch of it is pending");
    }
    world.execs.Remove(Number(handle));
    return Code::kSuccess;
  });
}

Code cuGraphDestroy(DriverGraph handle) {
  constexpr const char* kName = "cuGraphDestroy";
  return Call(kName, Needs::kContext, Number(handle), [&](World& world, Lock&) {
    const auto graph = world.Get(world.graphs, Number(handle), kName);
    if (graph == nullptr) return Code::kInvalidHandle;
    for (const std::uintptr_t node : graph->nodes) world.nodes.Remove(node);
    world.graphs.Remove(Number(handle));
    return Code::kSuccess;
  });
}

}  // extern "C"
}  // namespace gpushared::device::cuda

namespace gpushared::testing::fake_cuda {

bool HasKernelsOf(World& world, std::uintptr_t module) {
  return std::ranges::any_of(world.execs.live(), [&](const auto& one) {
    return std::ranges::find(one.second->nodes, module, &FakeExec::Node::module) !=
           one.second->nodes.end();
  });
}

}  // namespace gpushared::testing::fake_cuda
