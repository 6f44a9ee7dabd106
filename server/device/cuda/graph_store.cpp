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
  // One without launches would outlive all modules of its client, and nobody would drop it.
  return work.version != 0 && work.first_unit == 0 &&
         work.nodes.size() >= GraphStore::kNodesLeast &&
         work.nodes.size() <= GraphStore::kNodesOfGraphMax &&
         std::ranges::any_of(work.nodes, is_launch) &&
         std::ranges::all_of(work.nodes,
                             [](const GraphNode* node) { return InstantiatedGraph::Takes(*node); });
}

}  // namespace

Result<std::shared_ptr<GraphStore>> GraphStore::Create(std::shared_ptr<CudaContext> context,
                                                       std::function<void(const std::string&)> note,
                                                       std::function<void()> await_quiet) {
  std::shared_ptr<GraphStore> store(
      new GraphStore(std::move(context), std::move(note), std::move(await_quiet)));
  CudaContext& used = *store->context_;
  Status status = used.Try("making a stream", used.driver().StreamCreateWithPriority,
                           &store->upload_, kStreamNonBlocking, 0);
  if (!status.ok()) return status;
  store->thread_ = std::thread([store = store.get()] { store->Run(); });
  return store;
}

GraphStore::GraphStore(std::shared_ptr<CudaContext> context,
                       std::function<void(const std::string&)> note,
                       std::function<void()> await_quiet)
    : context_(std::move(context)), note_(std::move(note)), await_quiet_(std::move(await_quiet)) {}

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

// ---- the device thread's

InstantiatedGraph* GraphStore::Take(const GraphWork& work) {
  if (!MayInstantiate(work)) return nullptr;
  const MutexLock lock(mutex_);
  const Key key{work.space, work.number};
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    Remember(key);
    return nullptr;
  }
  Entry& entry = found->second;
  entry.last_use = ++uses_;
  if (entry.is_refused || entry.is_being_made || !entry.wanted.empty()) return nullptr;
  if (entry.graph != nullptr) {
    using enum InstantiatedGraph::Change;
    const auto change = entry.version == work.version ? kDone : entry.graph->Become(work.nodes);
    if (change == kDone) {
      entry.version = work.version;
      ++entry.launches;
      return entry.graph.get();
    }
    entry.version = 0;  // Of no launch: some of its nodes may be new ones.
    if (change == kTooMany || entry.launches > 0) return nullptr;
    Drop(entry);
  }
  if (MakeRoom(work.nodes.size(), entry)) Want(key, entry, work);
  return nullptr;
}

void GraphStore::Return(const GraphWork& work) {
  const MutexLock lock(mutex_);
  --entries_.find(Key{work.space, work.number})->second.launches;
}

void GraphStore::Remember(const Key& key) {
  if (entries_.size() >= kGraphsMax) {
    const auto oldest = OldestIdle();
    if (oldest == entries_.end()) return;
    Drop(oldest->second);
    entries_.erase(oldest);
  }
  entries_[key].last_use = ++uses_;
}

void GraphStore::Want(const Key& key, Entry& entry, const GraphWork& work) {
  entry.modules.clear();
  for (const GraphNode* const node : work.nodes) {
    entry.wanted.emplace_back(*node);
    if (const auto* const launch = std::get_if<LaunchWork>(node)) {
      entry.modules.insert(launch->module);
    }
  }
  entry.version = work.version;
  nodes_ += entry.wanted.size();
  queue_.push_back(key);
  changed_.notify_all();
}

GraphStore::Entries::iterator GraphStore::OldestIdle() {
  auto oldest = entries_.end();
  for (auto each = entries_.begin(); each != entries_.end(); ++each) {
    const Entry& entry = each->second;
    if (entry.launches > 0 || entry.is_being_made || !entry.wanted.empty()) continue;
    if (oldest == entries_.end() || entry.last_use < oldest->second.last_use) oldest = each;
  }
  return oldest;
}

bool GraphStore::MakeRoom(std::size_t nodes, const Entry& for_whom) {
  while (nodes_ + nodes > kNodesMax) {
    const auto oldest = OldestIdle();
    if (oldest == entries_.end() || &oldest->second == &for_whom) return false;
    Drop(oldest->second);
    entries_.erase(oldest);
  }
  return true;
}

void GraphStore::Drop(Entry& entry) {
  if (entry.graph == nullptr) return;
  nodes_ -= entry.graph->size();
  dropped_.push_back(std::move(entry.graph));
  changed_.notify_all();
}

// ---- others'

void GraphStore::Forget(const device::Module& module) {
  std::vector<std::unique_ptr<InstantiatedGraph>> dropped;  // Goes after the lock.
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
    Entry& entry = each->second;
    if (!entry.modules.contains(&module)) {
      ++each;
      continue;
    }
    nodes_ -= entry.wanted.size();
    Drop(entry);
    each = entries_.erase(each);
  }
  const auto users =
      std::ranges::partition(dropped_, [&](const auto& graph) { return !graph->Uses(module); });
  std::ranges::move(users, std::back_inserter(dropped));
  dropped_.erase(users.begin(), users.end());
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
  const Key key = queue_.front();
  queue_.erase(queue_.begin());
  std::vector<NodeCopy> nodes = std::exchange(entries_[key].wanted, {});
  const std::size_t count = nodes.size();
  entries_[key].is_being_made = true;
  lock.Unlock();
  if (await_quiet_) await_quiet_();
  auto made = InstantiatedGraph::Make(*context_, std::move(nodes), upload_);
  if (!made.ok() && !context_->is_dead() && note_) {
    note_("a graph of " + std::to_string(count) +
          " nodes goes to the driver node by node: " + made.status().message());
  }
  lock.Lock();
  Entry& entry = entries_[key];  // Nobody drops what is being made.
  entry.is_being_made = false;
  if (made.ok()) {
    entry.graph = *std::move(made);
  } else {
    entry.is_refused = true;
    nodes_ -= count;
  }
}

}  // namespace gpushared::device::cuda
