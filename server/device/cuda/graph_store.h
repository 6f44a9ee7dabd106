// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_GRAPH_STORE_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_GRAPH_STORE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"

#include "server/device/cuda/cuda_context.h"
#include "server/device/cuda/cuda_module.h"
#include "server/device/cuda/driver_graph.h"
#include "server/device/device.h"

namespace gpushared::device::cuda {

struct GraphStoreLimits {
  // Limit for all graphs, because they use host and device memory of the driver that is not charged
  // to clients.
  std::size_t nodes = std::size_t{1} << 16;
  // Limit for the graphs that are tracked, instantiated or not.
  std::size_t graphs = 1024;
};

// Clients' graphs that the driver has instantiated. A graph that is launched as a whole for the
// second time is instantiated in the background. Until then, and while the store is full, its nodes
// are issued one by one.
//
// If the store is full, it evicts the least recently launched graph, instantiated or waiting for
// that, of the client with the most nodes. So a client can use the whole store while no other
// client needs it, and its even share at any time. A client's graph is not evicted in favour of
// another graph of the client whose previous launch was earlier.
//
// FindUnknown, Has, Take and Return are called by the device thread; everything else is
// thread-safe.
class GraphStore : public KernelManager {
 public:
  // Launching fewer nodes one by one costs about as much as one launch of a graph.
  static constexpr std::size_t kNodesLeast = 4;
  static constexpr std::size_t kNodesOfGraphMax = 8192;

  // `note`: reports messages for operators; may be empty.
  static Result<std::shared_ptr<GraphStore>> Create(std::shared_ptr<CudaContext> context,
                                                    GraphStoreLimits limits,
                                                    std::function<void(const std::string&)> note);
  GraphStore(const GraphStore&) = delete;
  GraphStore& operator=(const GraphStore&) = delete;
  ~GraphStore() override;

  // Appends the nodes of the work that are not known to be valid. Launches that are instantiated
  // unchanged are valid, because they were passed to the driver before. Returns false if no node is
  // known.
  bool FindUnknown(const GraphWork& work, std::vector<std::uint32_t>& nodes);
  // Whether the work is instantiated unchanged, so that all of its kernels are loaded.
  bool Has(const GraphWork& work);
  // Returns a graph for one launch of the work; null if the work is not instantiated (yet). The
  // caller calls Return when the launch has ended.
  InstantiatedGraph* Take(const GraphWork& work);
  void Return(const GraphWork& work);
  void Forget(const device::Module& module) override;
  void Forget(const Space& space) override;

 private:
  struct Client {
    std::size_t nodes = 0;            // Nodes that are instantiated or wait to be instantiated.
    std::list<std::uint32_t> graphs;  // Graph numbers, the least recently launched first.
  };
  struct Entry {
    std::uint64_t version = 0;  // Version that `graph` or `wanted` contains.
    // Last version with more changes than a launch may make. If the graph is launched with this
    // version again, it is instantiated anew.
    std::uint64_t version_far_off = 0;
    std::uint64_t last_use = 0;
    std::list<std::uint32_t>::iterator place;  // Position among the client's graphs.
    std::uint32_t launches = 0;                // Number of launches in flight.
    bool is_evicted_when_idle = false;         // Evicted when its last launch has ended.
    std::unique_ptr<InstantiatedGraph> graph;
    std::set<const device::Module*> modules;  // Modules of the kernels in `graph` or `wanted`.
    // Nodes to instantiate. Empty once the thread has taken them, when it sets `is_being_made`.
    std::vector<NodeCopy> wanted;
    bool is_being_made = false;
    bool is_rejected = false;  // Rejected by the driver, regardless of the parameters of its nodes.

    bool is_waited_for() const { return is_being_made || !wanted.empty(); }
  };
  // A client's space and its number for the graph.
  using Key = std::pair<const Space*, std::uint32_t>;
  using Entries = std::map<Key, Entry>;

  GraphStore(std::shared_ptr<CudaContext> context, GraphStoreLimits limits,
             std::function<void(const std::string&)> note);
  static bool RunsAsItIs(const Entry& entry, const GraphWork& work) {
    return entry.graph != nullptr && work.version != 0 && entry.version == work.version;
  }
  // Called when a graph is first launched.
  void Remember(const Key& key) GPUSHARED_REQUIRES(mutex_);
  bool EraseOldest(const std::pair<const Space* const, Client>& of) GPUSHARED_REQUIRES(mutex_);
  // Returns the time of the previous launch and records the current one.
  std::uint64_t RecordUse(const Key& key, Entry& entry) GPUSHARED_REQUIRES(mutex_);
  void Want(const Key& key, Entry& entry, const GraphWork& work) GPUSHARED_REQUIRES(mutex_);
  // Return the client with the most graphs or nodes, assuming that `asking` had one more graph, or
  // `more` nodes in addition.
  const Space* LargestByGraphs(const Space* asking) GPUSHARED_REQUIRES(mutex_);
  const Space* LargestByNodes(const Space* asking, std::size_t more) GPUSHARED_REQUIRES(mutex_);
  // `used_before`: time of the launch before the current one.
  bool MakeSpace(const Key& key, std::size_t nodes, std::uint64_t used_before)
      GPUSHARED_REQUIRES(mutex_);
  bool DropOwn(const Key& key, std::uint64_t used_before) GPUSHARED_REQUIRES(mutex_);
  bool DropOf(const Space* client) GPUSHARED_REQUIRES(mutex_);
  // Drops the entry's graph or request, unless the driver is working on it.
  bool TryEvict(const Key& key, Entry& entry) GPUSHARED_REQUIRES(mutex_);
  void Drop(const Key& key, Entry& entry) GPUSHARED_REQUIRES(mutex_);
  Entries::iterator Erase(Entries::iterator entry) GPUSHARED_REQUIRES(mutex_);
  // Adjusts the number of nodes that are instantiated or wanted.
  void Count(const Space* client, std::size_t nodes) GPUSHARED_REQUIRES(mutex_);
  void Uncount(const Space* client, std::size_t nodes) GPUSHARED_REQUIRES(mutex_);
  void Run();
  void DestroyDropped(MutexLock& lock) GPUSHARED_REQUIRES(mutex_);
  void MakeNext(MutexLock& lock) GPUSHARED_REQUIRES(mutex_);

  const std::shared_ptr<CudaContext> context_;
  const GraphStoreLimits limits_;
  const std::function<void(const std::string&)> note_;
  Stream upload_ = nullptr;
  Mutex mutex_;
  std::condition_variable changed_;
  Entries entries_ GPUSHARED_GUARDED_BY(mutex_);
  std::map<const Space*, Client> clients_ GPUSHARED_GUARDED_BY(mutex_);
  std::size_t nodes_ GPUSHARED_GUARDED_BY(mutex_) = 0;  // Nodes of all clients.
  std::uint64_t uses_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  std::vector<Key> queue_ GPUSHARED_GUARDED_BY(mutex_);  // Entries with `wanted`, oldest first.
  // Destroyed by the thread, because the device thread makes no slow calls.
  std::vector<std::unique_ptr<InstantiatedGraph>> dropped_ GPUSHARED_GUARDED_BY(mutex_);
  bool is_destroying_ GPUSHARED_GUARDED_BY(mutex_) = false;
  bool is_ending_ GPUSHARED_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last member, because it uses the others.
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_GRAPH_STORE_H_
