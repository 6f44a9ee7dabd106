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

// Event of the program. Belongs to its context.
struct CudaEvent {
  std::shared_ptr<Context> context;
  Event event;
  bool has_timing = false;
  std::atomic<bool> is_recorded{false};
  // Whether the last record was in a captured stream, so that the event is at `captured` in a
  // graph.
  std::atomic<bool> is_captured{false};
  CapturePoint captured GPUSHARED_GUARDED_BY(GraphsMutex());
};

// Link of several images. Needs no context.
struct CudaLink {
  struct Parts {
    JitLog log;
    ImageLink link;
  };
  Mutex mutex;
  Parts parts GPUSHARED_GUARDED_BY(mutex);
};

// Source of stream-ordered memory of one location: the default pool, which always exists, or the
// pool that the program has set instead.
//
// Thread-safe.
class PoolChoice {
 public:
  // `ordinal` is that of the device, or MemoryPool::kHost.
  explicit PoolChoice(int ordinal) : ordinal_(ordinal) {}

  int ordinal() const { return ordinal_; }
  // Return the default pool and the current pool; null if no handle is left for the default pool.
  std::shared_ptr<MemoryPool> Default();
  std::shared_ptr<MemoryPool> Now();
  void Set(std::shared_ptr<MemoryPool> pool);
  // Restores the default pool if `pool`, which the program has destroyed, is the current one.
  void Forget(const std::shared_ptr<MemoryPool>& pool);

 private:
  const int ordinal_;
  Mutex mutex_;
  std::shared_ptr<MemoryPool> default_ GPUSHARED_GUARDED_BY(mutex_);
  std::shared_ptr<MemoryPool> set_ GPUSHARED_GUARDED_BY(mutex_);  // Null: the default pool.
};

// One device that the program may use, identified by its ordinal.
//
// Thread-safe.
class CudaDevice {
 public:
  CudaDevice(int ordinal, DeviceProperties properties)
      : pools(ordinal), ordinal_(ordinal), properties_(std::move(properties)) {}

  PoolChoice pools;

  int ordinal() const { return ordinal_; }
  const DeviceProperties& properties() const { return properties_; }

  // Creates a context that shares the session of the device's other contexts.
  Code NewContext(unsigned flags, std::shared_ptr<Context>& made);

  // Returns the session of the device's contexts; null if it has none.
  std::shared_ptr<Session> LiveSession();
  // Returns the session for objects that need no context, such as libraries. Opens one if
  // necessary; the next context then shares it.
  Code AnySession(std::shared_ptr<Session>& session);

  // The primary context: a permanent handle, whose current incarnation exists while it is retained.
  Code RetainPrimary(ContextHandle& handle);
  Code ReleasePrimary();
  Code ResetPrimary();
  void SetPrimaryFlags(unsigned flags);
  void PrimaryState(unsigned& flags, bool& is_active);
  bool IsPrimary(ContextHandle handle);

 private:
  // Returns a session without a fault: the existing one or a new one.
  Code Sound(std::shared_ptr<Session>& session) GPUSHARED_REQUIRES(session_mutex_);
  Code StartPrimary() GPUSHARED_REQUIRES(primary_mutex_);
  void EndPrimary() GPUSHARED_REQUIRES(primary_mutex_);

  const int ordinal_;
  const DeviceProperties properties_;

  Mutex session_mutex_;
  std::weak_ptr<Session> session_ GPUSHARED_GUARDED_BY(session_mutex_);
  // Keeps a session that was opened without a context until the device has a context.
  std::shared_ptr<Session> without_context_ GPUSHARED_GUARDED_BY(session_mutex_);

  Mutex primary_mutex_;
  ContextHandle primary_handle_ GPUSHARED_GUARDED_BY(primary_mutex_) = nullptr;
  std::shared_ptr<Context> primary_ GPUSHARED_GUARDED_BY(primary_mutex_);
  unsigned primary_flags_ GPUSHARED_GUARDED_BY(primary_mutex_) = 0;
  unsigned retained_ GPUSHARED_GUARDED_BY(primary_mutex_) = 0;
};

// State of the drop-in in this process. Never destroyed, because programs call the driver from
// their last destructors.
//
// Thread-safe.
class Driver {
 public:
  static Driver& Get();

  // Forwards all calls to the installed driver.
  using TakeOver = Result<NativeDriver> (*)();
  // Asks the server for its devices. May be repeated after a failure. If no server answers and the
  // environment allows it, the installed driver takes over for the rest of the process.
  Code Init(TakeOver take_over);
  // Returns success, or kNotInitialized if Init has not succeeded in this process. A forked child
  // has no driver.
  Code Ready() const {
    // Acquire: pairs with the release in Init, so that the devices are visible.
    return is_ready_.load(std::memory_order_acquire) && guard_->InOwner() ? Code::kSuccess
                                                                          : Code::kNotInitialized;
  }
  // The next two require Ready().
  int device_count() const { return static_cast<int>(devices_.size()); }
  CudaDevice* DeviceAt(int ordinal) {  // Null if there is none.
    return ordinal < 0 || ordinal >= device_count()
               ? nullptr
               : devices_[static_cast<std::size_t>(ordinal)].get();
  }

  // Ends a context and all objects that belong to it.
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

  // GraphsMutex guards the objects of these handles.
  HandleTable<Graph, GraphHandle, HandleKind::kGraph> graphs;
  HandleTable<GraphNode, GraphNodeHandle, HandleKind::kGraphNode> graph_nodes;
  HandleTable<GraphExec, GraphExecHandle, HandleKind::kGraphExec> graph_execs;
  HandleTable<UserReferences, UserObjectHandle, HandleKind::kUserObject> user_objects;
  Captures captures;

 private:
  Driver() = default;
  Code GoNative(TakeOver take_over) GPUSHARED_REQUIRES(init_mutex_);

  Mutex init_mutex_;
  // The installed driver, once it has taken over.
  std::optional<NativeDriver> native_ GPUSHARED_GUARDED_BY(init_mutex_);
  std::atomic<bool> is_ready_{false};
  // Constant once is_ready_ is set.
  std::optional<client::ForkGuard> guard_;
  std::vector<std::unique_ptr<CudaDevice>> devices_;
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_DRIVER_H_
