// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_DRIVER_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_DRIVER_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpushared/client.h"
#include "gpushared/mutex.h"

#include "client_lib/drop_in/capture.h"
#include "client_lib/drop_in/context.h"
#include "client_lib/drop_in/cuda_array.h"
#include "client_lib/drop_in/cuda_module.h"
#include "client_lib/drop_in/driver_types.h"
#include "client_lib/drop_in/graph.h"
#include "client_lib/drop_in/handle_table.h"
#include "client_lib/drop_in/image_link.h"
#include "client_lib/drop_in/jit_log.h"
#include "client_lib/drop_in/memory_pool.h"
#include "client_lib/drop_in/native_driver.h"
#include "client_lib/fork_guard.h"

namespace gpushared::drop_in {

// An event as the program sees it. Belongs to its context.
struct CudaEvent {
  std::shared_ptr<Context> context;
  Event event;
  bool has_timing = false;
  std::atomic<bool> is_recorded{false};
  // Recorded last in a stream that was captured: it stands in a graph, at `captured`.
  std::atomic<bool> is_captured{false};
  CapturePoint captured GPUSHARED_GUARDED_BY(GraphsMutex());
};

// A link of images. Needs no context.
struct CudaLink {
  struct Parts {
    JitLog log;
    ImageLink link;
  };
  Mutex mutex;
  Parts parts GPUSHARED_GUARDED_BY(mutex);
};

// Where memory comes from that is allocated in the order of a stream: the default pool, which is
// there for ever, or the one that the program has put in its place.
//
// Thread-safe.
class PoolChoice {
 public:
  // `ordinal`: of the device, or MemoryPool::kHost.
  explicit PoolChoice(int ordinal) : ordinal_(ordinal) {}

  int ordinal() const { return ordinal_; }
  // The next two are null when there is no room for the default one.
  std::shared_ptr<MemoryPool> Default();
  std::shared_ptr<MemoryPool> Now();
  void Set(std::shared_ptr<MemoryPool> pool);
  // The program has let go of a pool that may be the one in its place.
  void Forget(const std::shared_ptr<MemoryPool>& pool);

 private:
  const int ordinal_;
  Mutex mutex_;
  std::shared_ptr<MemoryPool> default_ GPUSHARED_GUARDED_BY(mutex_);
  std::shared_ptr<MemoryPool> set_ GPUSHARED_GUARDED_BY(mutex_);  // Null: the default one.
};

// One device that the program may use, by its ordinal.
//
// Thread-safe.
class CudaDevice {
 public:
  CudaDevice(int ordinal, DeviceProperties properties)
      : pools(ordinal), ordinal_(ordinal), properties_(std::move(properties)) {}

  PoolChoice pools;

  int ordinal() const { return ordinal_; }
  const DeviceProperties& properties() const { return properties_; }

  // A new context over the session that the device's other contexts share.
  Code NewContext(unsigned flags, std::shared_ptr<Context>& made);

  // The session of the device's contexts; null when it has none.
  std::shared_ptr<Session> LiveSession();
  // The same for what needs a session and no context, such as a library. It begins now if there is
  // none; the next context shares it.
  Code AnySession(std::shared_ptr<Session>& session);

  // The primary context: one handle for ever, behind which an incarnation lives while it is
  // retained.
  Code RetainPrimary(ContextHandle& handle);
  Code ReleasePrimary();
  Code ResetPrimary();
  void SetPrimaryFlags(unsigned flags);
  void PrimaryState(unsigned& flags, bool& is_active);
  bool IsPrimary(ContextHandle handle);

 private:
  // A session that has met no fault: the one there is, or a new one.
  Code Sound(std::shared_ptr<Session>& session) GPUSHARED_REQUIRES(session_mutex_);
  Code StartPrimary() GPUSHARED_REQUIRES(primary_mutex_);
  void EndPrimary() GPUSHARED_REQUIRES(primary_mutex_);

  const int ordinal_;
  const DeviceProperties properties_;

  Mutex session_mutex_;
  std::weak_ptr<Session> session_ GPUSHARED_GUARDED_BY(session_mutex_);
  // Keeps a session that began without a context until there is one.
  std::shared_ptr<Session> without_context_ GPUSHARED_GUARDED_BY(session_mutex_);

  Mutex primary_mutex_;
  ContextHandle primary_handle_ GPUSHARED_GUARDED_BY(primary_mutex_) = nullptr;
  std::shared_ptr<Context> primary_ GPUSHARED_GUARDED_BY(primary_mutex_);
  unsigned primary_flags_ GPUSHARED_GUARDED_BY(primary_mutex_) = 0;
  unsigned retained_ GPUSHARED_GUARDED_BY(primary_mutex_) = 0;
};

// The drop-in's state in this process. It is never destroyed: programs call the driver from their
// own last destructors.
//
// Thread-safe.
class Driver {
 public:
  static Driver& Get();

  // Forwards all calls to the installed driver.
  using TakeOver = Result<NativeDriver> (*)();
  // Asks the server for its devices; a failed attempt may be repeated. Where no server answers and
  // the environment says so, the installed driver takes over for good.
  Code Init(TakeOver take_over);
  // Success, or that Init has not succeeded in this process: a forked child's driver is not there.
  Code Ready() const {
    // Acquire, pairs with Init: the devices are there.
    return is_ready_.load(std::memory_order_acquire) && guard_->InOwner() ? Code::kSuccess
                                                                          : Code::kNotInitialized;
  }
  // The next two require Ready().
  int device_count() const { return static_cast<int>(devices_.size()); }
  CudaDevice* DeviceAt(int ordinal) {  // Null: there is none.
    return ordinal < 0 || ordinal >= device_count()
               ? nullptr
               : devices_[static_cast<std::size_t>(ordinal)].get();
  }

  // Ends a context and everything that belongs to it.
  void EndContext(const std::shared_ptr<Context>& context);

  HandleTable<Context, ContextHandle, HandleKind::kContext> contexts;
  HandleTable<CudaStream, StreamHandle, HandleKind::kStream> streams;
  HandleTable<CudaEvent, EventHandle, HandleKind::kEvent> events;
  HandleTable<CudaModule, ModuleHandle, HandleKind::kModule> modules;
  HandleTable<CudaKernel, FunctionHandle, HandleKind::kKernel> kernels;
  HandleTable<CudaLink, LinkHandle, HandleKind::kLink> links;
  HandleTable<CudaArray, ArrayHandle, HandleKind::kArray> arrays;
  HandleTable<MemoryPool, PoolHandle, HandleKind::kPool> pools;
  PoolChoice host_pools{MemoryPool::kHost};

  // GraphsMutex guards what these handles stand for.
  HandleTable<Graph, GraphHandle, HandleKind::kGraph> graphs;
  HandleTable<GraphNode, GraphNodeHandle, HandleKind::kGraphNode> graph_nodes;
  HandleTable<GraphExec, GraphExecHandle, HandleKind::kGraphExec> graph_execs;
  HandleTable<UserReferences, UserObjectHandle, HandleKind::kUserObject> user_objects;
  Captures captures;

 private:
  Driver() = default;
  Code GoNative(TakeOver take_over) GPUSHARED_REQUIRES(init_mutex_);

  Mutex init_mutex_;
  std::optional<NativeDriver> native_ GPUSHARED_GUARDED_BY(init_mutex_);  // It has taken over.
  std::atomic<bool> is_ready_{false};
  // Constant once is_ready_ says so.
  std::optional<client::ForkGuard> guard_;
  std::vector<std::unique_ptr<CudaDevice>> devices_;
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_DRIVER_H_
