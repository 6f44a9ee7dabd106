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
  // Over all graphs: host and device memory of the driver, which nobody is charged for.
  std::size_t nodes = std::size_t{1} << 16;
  // Graphs of which something is remembered.
  std::size_t graphs = 1024;
};

// Clients' graphs that the driver has instantiated. A graph that is launched whole for the second
// time is instantiated in the background. Until then, and where there is no room, its nodes go to
// the driver one by one.
//
// Where there is no room, a graph of the client with the most nodes makes way, be it instantiated
// or waiting for that: the one that it launched longest ago. So a client can have all the room
// while nobody else wants it, and its even share at any time. Of its own graphs none makes way for
// one that is launched less often.
//
// FindUnknown, Has, Take and Return are the device thread's, all else is thread-safe.
class GraphStore : public KernelManager {
 public:
  // A shorter list costs about as much as one launch of a graph.
  static constexpr std::size_t kNodesLeast = 4;
  static constexpr std::size_t kNodesOfGraphMax = 8192;

  // `note`: what an operator may want to know; may be empty.
  static Result<std::shared_ptr<GraphStore>> Create(std::shared_ptr<CudaContext> context,
                                                    GraphStoreLimits limits,
                                                    std::function<void(const std::string&)> note);
  GraphStore(const GraphStore&) = delete;
  GraphStore& operator=(const GraphStore&) = delete;
  ~GraphStore() override;

  // Appends the nodes of a work that are not known to be allowed. Launches are, that are
  // instantiated as they are: they went to the driver before. False: none is known.
  bool FindUnknown(const GraphWork& work, std::vector<std::uint32_t>& nodes);
  // Whether it is instantiated as it is, so that all of its kernels are loaded.
  bool Has(const GraphWork& work);
  // What runs the work's nodes, for one launch that Return ends. Null: there is none, or none yet.
  InstantiatedGraph* Take(const GraphWork& work);
  void Return(const GraphWork& work);
  void Forget(const device::Module& module) override;
  void Forget(const Space& space) override;

 private:
  struct Client {
    std::size_t nodes = 0;            // Instantiated, or wanted to be.
    std::list<std::uint32_t> graphs;  // Their numbers, the one that was launched longest ago first.
  };
  struct Entry {
    std::uint64_t version = 0;  // `graph` runs it, or `wanted` is of it.
    // Of more changes than a launch may make; launched again, it is instantiated anew.
    std::uint64_t version_far_off = 0;
    std::uint64_t last_use = 0;
    std::list<std::uint32_t>::iterator place;  // Among its client's.
    std::uint32_t launches = 0;                // With the driver.
    bool makes_way = false;                    // For others, when its last launch has ended.
    std::unique_ptr<InstantiatedGraph> graph;
    std::set<const device::Module*> modules;  // Those of its launches, or of the wanted ones.
    // Until the thread takes them; then `is_being_made`.
    std::vector<NodeCopy> wanted;
    bool is_being_made = false;
    bool is_rejected = false;  // By the driver, whatever parameters its nodes have.

    bool is_waited_for() const { return is_being_made || !wanted.empty(); }
  };
  // Of a client: its space, and its number for the graph.
  using Key = std::pair<const Space*, std::uint32_t>;
  using Entries = std::map<Key, Entry>;

  GraphStore(std::shared_ptr<CudaContext> context, GraphStoreLimits limits,
             std::function<void(const std::string&)> note);
  static bool RunsAsItIs(const Entry& entry, const GraphWork& work) {
    return entry.graph != nullptr && work.version != 0 && entry.version == work.version;
  }
  // A first launch.
  void Remember(const Key& key) GPUSHARED_REQUIRES(mutex_);
  bool EraseOldest(const std::pair<const Space* const, Client>& of) GPUSHARED_REQUIRES(mutex_);
  // When it was launched before, and notes that it is launched now.
  std::uint64_t RecordUse(const Key& key, Entry& entry) GPUSHARED_REQUIRES(mutex_);
  void Want(const Key& key, Entry& entry, const GraphWork& work) GPUSHARED_REQUIRES(mutex_);
  // The client that has most, if `asking` had `more`.
  const Space* LargestByGraphs(const Space* asking) GPUSHARED_REQUIRES(mutex_);
  const Space* LargestByNodes(const Space* asking, std::size_t more) GPUSHARED_REQUIRES(mutex_);
  // `used_before`: when the entry was launched the time before this one.
  bool MakeRoom(const Key& key, std::size_t nodes, std::uint64_t used_before)
      GPUSHARED_REQUIRES(mutex_);
  bool DropOwn(const Key& key, std::uint64_t used_before) GPUSHARED_REQUIRES(mutex_);
  bool DropOf(const Space* client) GPUSHARED_REQUIRES(mutex_);
  // Drops what the entry has or waits for, unless the driver is at work on it.
  bool GivesRoom(const Key& key, Entry& entry) GPUSHARED_REQUIRES(mutex_);
  void Drop(const Key& key, Entry& entry) GPUSHARED_REQUIRES(mutex_);
  Entries::iterator Erase(Entries::iterator entry) GPUSHARED_REQUIRES(mutex_);
  // The nodes are instantiated or wanted, or no longer.
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
  std::vector<Key> queue_ GPUSHARED_GUARDED_BY(mutex_);  // With `wanted`, oldest first.
  // Destroyed by the thread: the device thread makes no slow call.
  std::vector<std::unique_ptr<InstantiatedGraph>> dropped_ GPUSHARED_GUARDED_BY(mutex_);
  bool is_destroying_ GPUSHARED_GUARDED_BY(mutex_) = false;
  bool is_ending_ GPUSHARED_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // The last member: it uses the others.
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_GRAPH_STORE_H_
