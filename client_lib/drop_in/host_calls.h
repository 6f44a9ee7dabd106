// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_HOST_CALLS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_HOST_CALLS_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>

#include "gpushared/client.h"
#include "gpushared/mutex.h"

#include "client_lib/drop_in/context.h"
#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// Host functions of the program, run in stream order on threads of this library. A call that
// submits a command to a stream blocks until all earlier host functions of the stream have run. A
// host function therefore never has to wait for work that follows another host function.
//
// Thread-safe. Never destroyed, like the driver.
class HostCalls {
 public:
  // Limit of threads, and thus of the streams that are served concurrently; other streams wait.
  static constexpr std::size_t kThreadsMax = 16;

  static HostCalls& Get();
  // Returns whether the calling thread is a thread of this object. Host functions on such a thread
  // may not call the driver.
  static bool IsInside();

  // Returns whether any function is queued or running. Takes no lock, so that every command can
  // call it.
  bool has_any() const { return count_.load(std::memory_order_acquire) != 0; }

  // Queues `call` after the stream's queued functions; `call` receives the code of the preceding
  // work. Returns false if no function is queued; the caller must then use Add with the end of the
  // preceding work.
  bool AddAfterOthers(const std::shared_ptr<CudaStream>& stream,
                      const std::function<void(Code)>& call);
  // Queues `call` after `front`. Returns false if the system cannot create a thread.
  bool Add(const std::shared_ptr<CudaStream>& stream, Event front,
           const std::function<void(Code)>& call);
  // Queues a call without predecessor, which receives kSuccess. It never runs if the system cannot
  // create a thread.
  void AddLoose(const std::function<void(Code)>& call);
  // Waits for all functions added before, of one stream or of the streams of a context.
  void Await(const CudaStream& stream);
  void Await(const Context& context);
  // Waits for all functions that precede the next command of the stream.
  void AwaitBefore(const CudaStream& stream);

 private:
  struct Call {
    std::shared_ptr<CudaStream> stream;  // Null: no predecessor.
    std::optional<Event> front;          // No value: follows the stream's previous function.
    std::function<void(Code)> call;
    std::uint64_t number = 0;
  };

  HostCalls() = default;
  void Append(Call call) GPUSHARED_REQUIRES(mutex_);
  bool HaveThreadFor(const CudaStream* stream) GPUSHARED_REQUIRES(mutex_);
  bool StartThread() GPUSHARED_REQUIRES(mutex_);
  void Serve();
  static void Run(const Call& call);
  // Waits until all present calls that meet `condition` have ended.
  void AwaitCalls(const std::function<bool(const Call&)>& condition);

  std::atomic<std::size_t> count_{0};  // Size of calls_.
  Mutex mutex_;
  std::condition_variable added_, ended_;
  std::list<Call> calls_ GPUSHARED_GUARDED_BY(mutex_);          // Queued and running calls.
  std::set<const Call*> running_ GPUSHARED_GUARDED_BY(mutex_);  // Elements of calls_ that run now.
  std::uint64_t last_number_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  std::size_t threads_ GPUSHARED_GUARDED_BY(mutex_) = 0;
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_HOST_CALLS_H_
