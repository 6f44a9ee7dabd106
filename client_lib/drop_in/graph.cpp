// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/graph.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_set>

#include "client_lib/drop_in/host_calls.h"

namespace gpushared::drop_in {

// The mutex is never destroyed, like the driver.
Mutex& GraphsMutex() {
  static Mutex& mutex = *new Mutex;
  return mutex;
}
namespace {

std::uint64_t NextGraphId() {
  static std::uint64_t last = 0;
  return ++last;
}

std::uint64_t NextNodeId() {
  static std::uint64_t last = 0;
  return ++last;
}

const Graph* GetChild(const GraphNode& node) {
  const auto* const child = std::get_if<ChildWork>(node.work.get());
  return child == nullptr ? nullptr : child->graph.get();
}

void AddTo(GraphExec::Plan& plan, const Graph& graph) {
  const std::optional<std::vector<GraphNode*>> order = graph.Order();
  for (const GraphNode* node : *order) {
    if (!node->is_enabled) continue;
    if (const Graph* const child = GetChild(*node)) {
      AddTo(plan, *child);
    } else {
      plan.push_back(node->work);
    }
  }
}

}  // namespace

// Deferred to another thread, because the last reference may be released under locks that the
// function needs.
UserObject::~UserObject() {
  HostCalls::Get().AddLoose([destroy = destroy_, data = data_](Code) { destroy(data); });
}

int GetType(const Work& work) {
  const int index = static_cast<int>(work.index());
  return std::holds_alternative<AllocateWork>(work) || std::holds_alternative<FreeWork>(work)
             ? index + (kTypeAllocate - 8)
             : index;
}

Graph::Graph() : id_(NextGraphId()) {}

Graph::~Graph() {
  for (const auto& node : nodes_) node->graph = nullptr;
}

std::size_t Graph::depth() const {
  std::size_t deepest = 0;
  for (const auto& node : nodes_) {
    if (const Graph* const child = GetChild(*node)) deepest = std::max(deepest, child->depth());
  }
  return deepest + 1;
}

bool Graph::has_memory() const {
  return std::ranges::any_of(
      nodes_, [](const auto& node) { return GetType(*node->work) >= kTypeAllocate; });
}

bool Graph::Frees(DevicePointer address) const {
  return std::ranges::any_of(nodes_, [&](const auto& node) {
    const auto* const work = std::get_if<FreeWork>(node->work.get());
    return work != nullptr && work->address == address;
  });
}

std::shared_ptr<GraphNode> Graph::Add(Work work, std::vector<GraphNode*> needs) {
  auto node = std::make_shared<GraphNode>();
  node->id = NextNodeId();
  node->graph = this;
  node->work = std::make_shared<const Work>(std::move(work));
  node->needs = std::move(needs);
  nodes_.push_back(node);
  return node;
}

std::shared_ptr<GraphNode> Graph::Remove(GraphNode& node) {
  for (const auto& other : nodes_) std::erase(other->needs, &node);
  const auto found =
      std::ranges::find_if(nodes_, [&](const auto& it) { return it.get() == &node; });
  std::shared_ptr<GraphNode> removed = std::move(*found);
  nodes_.erase(found);
  removed->graph = nullptr;
  return removed;
}

std::shared_ptr<Graph> Graph::Clone() const {
  auto clone = std::make_shared<Graph>();
  clone->user_objects = user_objects;
  std::unordered_map<const GraphNode*, GraphNode*> copies;
  for (const auto& node : nodes_) {
    auto copy = std::make_shared<GraphNode>();
    copy->id = NextNodeId();
    copy->original_id = node->id;
    copy->graph = clone.get();
    copy->work = node->work;
    copy->is_enabled = node->is_enabled;
    if (const Graph* const child = GetChild(*node)) {
      std::shared_ptr<Graph> own = child->Clone();
      own->is_suspended = true;
      copy->work = std::make_shared<const Work>(ChildWork{std::move(own)});
    }
    copies[node.get()] = copy.get();
    clone->nodes_.push_back(std::move(copy));
  }
  for (const auto& node : nodes_) {
    for (const GraphNode* need : node->needs) copies[node.get()]->needs.push_back(copies[need]);
  }
  return clone;
}

GraphNode* Graph::FindOriginal(std::uint64_t id) const {
  for (const auto& node : nodes_) {
    if (node->original_id == id) return node.get();
    if (const Graph* const child = GetChild(*node)) {
      if (GraphNode* const found = child->FindOriginal(id)) return found;
    }
  }
  return nullptr;
}

bool Graph::Precedes(const GraphNode& early, const GraphNode& late) {
  std::vector<const GraphNode*> front = {&late};
  std::unordered_set<const GraphNode*> seen(front.begin(), front.end());
  while (!front.empty()) {
    const GraphNode* const node = front.back();
    front.pop_back();
    if (node == &early) return true;
    for (const GraphNode* need : node->needs) {
      if (seen.insert(need).second) front.push_back(need);
    }
  }
  return false;
}

std::optional<std::vector<GraphNode*>> Graph::Order() const {
  std::unordered_map<const GraphNode*, std::size_t> places;
  for (std::size_t i = 0; i < nodes_.size(); ++i) places[nodes_[i].get()] = i;
  std::vector<std::size_t> missing(nodes_.size());
  std::vector<std::vector<std::size_t>> followers(nodes_.size());
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    missing[i] = nodes_[i]->needs.size();
    for (const GraphNode* need : nodes_[i]->needs) followers[places[need]].push_back(i);
    if (missing[i] == 0) ready.push(i);
    const Graph* const child = GetChild(*nodes_[i]);
    if (child != nullptr && !child->Order()) return std::nullopt;
  }
  std::vector<GraphNode*> order;
  while (!ready.empty()) {
    const std::size_t next = ready.top();
    ready.pop();
    order.push_back(nodes_[next].get());
    for (const std::size_t follower : followers[next]) {
      if (--missing[follower] == 0) ready.push(follower);
    }
  }
  if (order.size() != nodes_.size()) return std::nullopt;
  return order;
}

Graph::Updated Graph::Compare(const Graph& other) const {
  if (other.nodes_.size() != nodes_.size()) return {UpdateOutcome::kTopologyChanged};
  std::unordered_map<const GraphNode*, const GraphNode*> counterparts;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    counterparts[nodes_[i].get()] = other.nodes_[i].get();
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const GraphNode& own = *nodes_[i];
    GraphNode& theirs = *other.nodes_[i];
    if (own.work->index() != theirs.work->index()) {
      return {UpdateOutcome::kNodeTypeChanged, &theirs};
    }
    const bool needs_the_same =
        own.needs.size() == theirs.needs.size() &&
        std::ranges::all_of(own.needs, [&](const GraphNode* need) {
          return std::ranges::find(theirs.needs, counterparts[need]) != theirs.needs.end();
        });
    if (!needs_the_same) return {UpdateOutcome::kTopologyChanged, &theirs};
    if (const auto* const launch = std::get_if<KernelWork>(own.work.get())) {
      const bool is_cooperative = std::get<KernelWork>(*theirs.work).shape.is_cooperative;
      if (launch->shape.is_cooperative != is_cooperative) {
        return {UpdateOutcome::kAttributesChanged, &theirs};
      }
    }
    // The address of the memory must not change.
    if (GetType(*own.work) >= kTypeAllocate && own.work != theirs.work) {
      return {UpdateOutcome::kParametersChanged, &theirs};
    }
    if (const Graph* const child = GetChild(own)) {
      const Updated inside = child->Compare(*GetChild(theirs));
      if (inside.outcome != UpdateOutcome::kSuccess) return {inside.outcome, &theirs};
    }
  }
  return {};
}

void Graph::Take(const Graph& from) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Work& work = *from.nodes_[i]->work;
    if (const auto* const child = std::get_if<ChildWork>(&work)) {
      std::get<ChildWork>(*nodes_[i]->work).graph->Take(*child->graph);
    } else {
      nodes_[i]->work = from.nodes_[i]->work;
    }
  }
}

Graph::Updated Graph::Update(const Graph& from) {
  const Updated compared = Compare(from);
  if (compared.outcome == UpdateOutcome::kSuccess) Take(from);
  return compared;
}

std::unique_ptr<GraphExec> GraphExec::Make(const Graph& graph, std::uint64_t flags) {
  if (!graph.Order()) return nullptr;
  return std::unique_ptr<GraphExec>(new GraphExec(graph.Clone(), flags));
}

std::shared_ptr<const GraphExec::Plan> GraphExec::plan() {
  if (plan_ == nullptr) {
    auto made = std::make_shared<Plan>();
    AddTo(*made, *graph_);
    plan_ = std::move(made);
  }
  return plan_;
}

}  // namespace gpushared::drop_in
