// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/graph_store.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <variant>

namespace gpushared::device::cuda {
namespace {

bool MayInstantiate(const GraphWork& work) {
  const auto is_launch = [](const GraphNode* node) {
    return std::holds_alternative<LaunchWork>(*node);
  };
  // Requires a launch, because a graph without launches would outlive all modules of its client and
  // never be dropped.
  return work.version != 0 && work.node_versions.size() == work.nodes.size() &&
         work.first_unit == 0 && work.nodes.size() >= GraphStore::kNodesLeast &&
         work.nodes.size() <= GraphStore::kNodesOfGraphMax &&
         std::ranges::any_of(work.nodes, is_launch) &&
         std::ranges::all_of(work.nodes,
                             [](const GraphNode* node) { return InstantiatedGraph::Takes(*node); });
}

}  // namespace

Result<std::shared_ptr<GraphStore>> GraphStore::Create(
    std::shared_ptr<CudaContext> context, GraphStoreLimits limits,
    std::function<void(const std::string&)> note) {
  std::shared_ptr<GraphStore> store(new GraphStore(std::move(context), limits, std::move(note)));
  CudaContext& used = *store->context_;
  Status status = used.Try("making a stream", used.driver().StreamCreateWithPriority,
                           &store->upload_, kStreamNonBlocking, 0);
  if (!status.ok()) return status;
  store->thread_ = std::thread([store = store.get()] { store->Run(); });
  return store;
}

GraphStore::GraphStore(std::shared_ptr<CudaContext> context, GraphStoreLimits limits,
                       std::function<void(const std::string&)> note)
    : context_(std::move(context)), limits_(limits), note_(std::move(note)) {}

GraphStore::~GraphStore() {
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (context_->is_dead() || !context_->Bind().ok()) return;
  if (upload_ != nullptr) (void)context_->Call(context_->driver().StreamDestroy, upload_);
}

// ---- device thread

bool GraphStore::FindUnknown(const GraphWork& work, std::vector<std::uint32_t>& nodes) {
  if (work.version == 0) return false;
  const MutexLock lock(mutex_);
  const auto found = entries_.find(Key{work.space, work.number});
  return found != entries_.end() && found->second.graph != nullptr &&
         found->second.graph->FindOthers(work, nodes);
}

bool GraphStore::Has(const GraphWork& work) {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(Key{work.space, work.number});
  return found != entries_.end() && RunsAsItIs(found->second, work);
}

InstantiatedGraph* GraphStore::Take(const GraphWork& work) {
  const MutexLock lock(mutex_);
  const Key key{work.space, work.number};
  const auto found = entries_.find(key);
  // A graph that is instantiated unchanged needs no further checks.
  const bool is_known = found != entries_.end() && RunsAsItIs(found->second, work);
  if (!(is_known && work.first_unit == 0) && !MayInstantiate(work)) return nullptr;
  if (found == entries_.end()) {
    Remember(key);
    return nullptr;
  }
  Entry& entry = found->second;
  const std::uint64_t used_before = RecordUse(key, entry);
  if (entry.is_rejected || entry.is_evicted_when_idle || entry.is_waited_for()) return nullptr;
  if (entry.graph != nullptr) {
    using enum InstantiatedGraph::Change;
    const auto change = entry.version == work.version ? kDone : entry.graph->Become(work);
    if (change == kDone) {
      entry.version = work.version;
      ++entry.launches;
      return entry.graph.get();
    }
    entry.version = 0;  // Matches no launch, because some nodes may have been replaced.
    const bool is_again = std::exchange(entry.version_far_off, work.version) == work.version;
    if ((change == kTooMany && !is_again) || entry.launches > 0) return nullptr;
    Drop(key, entry);
  }
  if (MakeSpace(key, work.nodes.size(), used_before)) Want(key, entry, work);
  return nullptr;
}

void GraphStore::Return(const GraphWork& work) {
  const MutexLock lock(mutex_);
  const Key key{work.space, work.number};
  Entry& entry = entries_.find(key)->second;
  if (--entry.launches > 0 || !std::exchange(entry.is_evicted_when_idle, false)) return;
  Drop(key, entry);
}

void GraphStore::Remember(const Key& key) {
  if (entries_.size() >= limits_.graphs) {
    const auto largest = clients_.find(LargestByGraphs(key.first));
    if (largest == clients_.end() || !EraseOldest(*largest)) return;
  }
  Entry& entry = entries_[key];
  std::list<std::uint32_t>& graphs = clients_[key.first].graphs;
  entry.place = graphs.insert(graphs.end(), key.second);
  (void)RecordUse(key, entry);
}

bool GraphStore::EraseOldest(const std::pair<const Space* const, Client>& of) {
  for (const std::uint32_t number : of.second.graphs) {
    const auto entry = entries_.find(Key{of.first, number});
    if (entry->second.launches > 0 || entry->second.is_waited_for()) continue;
    Erase(entry);
    return true;
  }
  return false;
}

std::uint64_t GraphStore::RecordUse(const Key& key, Entry& entry) {
  std::list<std::uint32_t>& graphs = clients_[key.first].graphs;
  graphs.splice(graphs.end(), graphs, entry.place);
  return std::exchange(entry.last_use, ++uses_);
}

void GraphStore::Want(const Key& key, Entry& entry, const GraphWork& work) {
  entry.modules.clear();
  for (std::size_t i = 0; i < work.nodes.size(); ++i) {
    entry.wanted.emplace_back(*work.nodes[i], work.node_versions[i]);
    if (const auto* const launch = std::get_if<LaunchWork>(work.nodes[i])) {
      entry.modules.insert(launch->module);
    }
  }
  entry.version = work.version;
  Count(key.first, entry.wanted.size());
  queue_.push_back(key);
  changed_.notify_all();
}

const Space* GraphStore::LargestByGraphs(const Space* asking) {
  const auto own = clients_.find(asking);
  const Space* largest = asking;
  std::size_t most = own == clients_.end() ? 1 : own->second.graphs.size() + 1;
  for (const auto& [space, client] : clients_) {
    if (space == asking || client.graphs.size() <= most) continue;
    largest = space;
    most = client.graphs.size();
  }
  return largest;
}

const Space* GraphStore::LargestByNodes(const Space* asking, std::size_t more) {
  const Space* largest = asking;
  std::size_t most = clients_[asking].nodes + more;
  for (const auto& [space, client] : clients_) {
    if (space == asking || client.nodes <= most) continue;
    largest = space;
    most = client.nodes;
  }
  return largest;
}

bool GraphStore::MakeSpace(const Key& key, std::size_t nodes, std::uint64_t used_before) {
  while (nodes_ + nodes > limits_.nodes) {
    const Space* const largest = LargestByNodes(key.first, nodes);
    if (!(largest == key.first ? DropOwn(key, used_before) : DropOf(largest))) return false;
  }
  return true;
}

// Evicts one of the client's graphs that was last launched before `used_before`. Newer ones are not
// evicted, because a client that launches more graphs in rotation than fit would have each of them
// instantiated repeatedly.
bool GraphStore::DropOwn(const Key& key, std::uint64_t used_before) {
  for (const std::uint32_t number : clients_[key.first].graphs) {
    const Key one{key.first, number};
    Entry& entry = entries_.find(one)->second;
    if (entry.last_use > used_before) return false;
    if (TryEvict(one, entry)) return true;
  }
  return false;
}

// A graph with launches in flight is evicted when they have ended and is launched node by node
// until then, because otherwise a client could keep the whole store by being busy.
bool GraphStore::DropOf(const Space* client) {
  Key busy{nullptr, 0};
  for (const std::uint32_t number : clients_[client].graphs) {
    const Key one{client, number};
    Entry& entry = entries_.find(one)->second;
    if (entry.is_evicted_when_idle) return false;
    if (TryEvict(one, entry)) return true;
    if (entry.launches > 0 && busy.first == nullptr) busy = one;
  }
  if (busy.first != nullptr) entries_.find(busy)->second.is_evicted_when_idle = true;
  return false;
}

bool GraphStore::TryEvict(const Key& key, Entry& entry) {
  if (!entry.wanted.empty()) {
    std::erase(queue_, key);
    Uncount(key.first, entry.wanted.size());
    entry.wanted.clear();
    return true;
  }
  if (entry.graph == nullptr || entry.launches > 0) return false;
  Drop(key, entry);
  return true;
}

void GraphStore::Drop(const Key& key, Entry& entry) {
  if (entry.graph == nullptr) return;
  Uncount(key.first, entry.graph->size());
  dropped_.push_back(std::move(entry.graph));
  changed_.notify_all();
}

GraphStore::Entries::iterator GraphStore::Erase(Entries::iterator entry) {
  Drop(entry->first, entry->second);
  Uncount(entry->first.first, entry->second.wanted.size());
  const auto client = clients_.find(entry->first.first);
  client->second.graphs.erase(entry->second.place);
  if (client->second.graphs.empty()) clients_.erase(client);
  return entries_.erase(entry);
}

void GraphStore::Count(const Space* client, std::size_t nodes) {
  nodes_ += nodes;
  clients_[client].nodes += nodes;
}

void GraphStore::Uncount(const Space* client, std::size_t nodes) {
  nodes_ -= nodes;
  clients_[client].nodes -= nodes;
}

// ---- other threads

void GraphStore::Forget(const device::Module& module) {
  std::vector<std::unique_ptr<InstantiatedGraph>> dropped;  // Destroyed after the lock is released.
  MutexLock lock(mutex_);
  const auto is_busy = [&]() GPUSHARED_REQUIRES(mutex_) {
    return is_destroying_ || std::ranges::any_of(entries_, [&](const auto& each) {
             return each.second.is_being_made && each.second.modules.contains(&module);
           });
  };
  while (is_busy()) changed_.wait(lock.waitable());
  std::erase_if(queue_, [&](const Key& key) GPUSHARED_REQUIRES(mutex_) {
    return entries_[key].modules.contains(&module);
  });
  for (auto each = entries_.begin(); each != entries_.end();) {
    each = each->second.modules.contains(&module) ? Erase(each) : std::next(each);
  }
  const auto users =
      std::ranges::partition(dropped_, [&](const auto& graph) { return !graph->Uses(module); });
  std::ranges::move(users, std::back_inserter(dropped));
  dropped_.erase(users.begin(), users.end());
}

void GraphStore::Forget(const Space& space) {
  const MutexLock lock(mutex_);
  std::erase_if(queue_, [&](const Key& key) { return key.first == &space; });
  auto each = entries_.lower_bound(Key{&space, 0});
  while (each != entries_.end() && each->first.first == &space) {
    // A graph that is being made is left to Forget of one of its modules, which waits for it.
    each = each->second.is_being_made ? std::next(each) : Erase(each);
  }
}

void GraphStore::Run() {
  bool is_bound = false;
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(lock.waitable(), [this]() GPUSHARED_REQUIRES(mutex_) {
      return is_ending_ || !queue_.empty() || !dropped_.empty();
    });
    if (is_ending_) return;
    if (!is_bound) {
      const Status bound = context_->Bind();
      if (!bound.ok()) {
        if (note_) note_("graphs go to the driver node by node: " + bound.message());
        return;
      }
      is_bound = true;
    }
    if (dropped_.empty()) {
      MakeNext(lock);
    } else {
      DestroyDropped(lock);
    }
    changed_.notify_all();
  }
}

void GraphStore::DestroyDropped(MutexLock& lock) {
  std::vector<std::unique_ptr<InstantiatedGraph>> dropped = std::exchange(dropped_, {});
  is_destroying_ = true;
  lock.Unlock();
  dropped.clear();
  lock.Lock();
  is_destroying_ = false;
}

void GraphStore::MakeNext(MutexLock& lock) {
  // Waits for the idle window without the lock, so that graphs can be forgotten in the meantime.
  lock.Unlock();
  const IdleWindow window(context_->idle_windows(), Urgency::kUnhurried);
  lock.Lock();
  if (is_ending_ || queue_.empty()) return;
  const Key key = queue_.front();
  queue_.erase(queue_.begin());
  std::vector<NodeCopy> nodes = std::exchange(entries_[key].wanted, {});
  const std::size_t count = nodes.size();
  entries_[key].is_being_made = true;
  lock.Unlock();
  auto made = InstantiatedGraph::Make(*context_, std::move(nodes), upload_);
  if (!made.ok() && !context_->is_dead() && note_) {
    note_("a graph of " + std::to_string(count) +
          " nodes goes to the driver node by node: " + made.status().message());
  }
  lock.Lock();
  Entry& entry = entries_[key];  // Entries are not dropped while being made.
  entry.is_being_made = false;
  if (made.ok()) {
    entry.graph = *std::move(made);
  } else {
    entry.is_rejected = true;
    Uncount(key.first, count);
  }
}

}  // namespace gpushared::device::cuda
