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

// Functions of the program that run in the order of streams, on threads of this library. What is
// submitted to a stream behind such a function waits in its own call until the function has run.
// So a function never waits for work behind another one.
//
// Thread-safe. Never destroyed, as the driver.
class HostCalls {
 public:
  // Streams that are served at one time; more wait for one of them.
  static constexpr std::size_t kThreadsMax = 16;

  static HostCalls& Get();
  // Whether the calling thread is one of these: no call of the driver is allowed there.
  static bool IsInside();

  // Whether any function waits or runs. Cheap: every command asks.
  bool has_any() const { return count_.load(std::memory_order_acquire) != 0; }

  // `call` gets the code of the work in front. False: nothing of the stream's functions waits, so
  // whoever calls must say, by Add, where the work in front ends.
  bool AddBehindOthers(const std::shared_ptr<CudaStream>& stream,
                       const std::function<void(Code)>& call);
  // False: the system gives no thread.
  bool Add(const std::shared_ptr<CudaStream>& stream, Event front,
           const std::function<void(Code)>& call);
  // A call behind nothing; it gets kSuccess. Where the system gives no thread, it never runs.
  void AddLoose(const std::function<void(Code)>& call);
  // Waits for all functions that were added before, of one stream or of a context's streams.
  void Await(const CudaStream& stream);
  void Await(const Context& context);
  // The same for all that come before the next command of the stream.
  void AwaitBefore(const CudaStream& stream);

 private:
  struct Call {
    std::shared_ptr<CudaStream> stream;  // Null: behind nothing.
    std::optional<Event> front;          // None: the function before it has ended.
    std::function<void(Code)> call;
    std::uint64_t number = 0;
  };

  HostCalls() = default;
  void Append(Call call) GPUSHARED_REQUIRES(mutex_);
  bool HaveThreadFor(const CudaStream* stream) GPUSHARED_REQUIRES(mutex_);
  bool StartThread() GPUSHARED_REQUIRES(mutex_);
  void Serve();
  static void Run(const Call& call);
  // Waits until no call that `condition` holds for has a number up to the last one now.
  void AwaitCalls(const std::function<bool(const Call&)>& condition);

  std::atomic<std::size_t> count_{0};  // Size of calls_.
  Mutex mutex_;
  std::condition_variable added_, ended_;
  std::list<Call> calls_ GPUSHARED_GUARDED_BY(mutex_);          // Those that run are among them.
  std::set<const Call*> running_ GPUSHARED_GUARDED_BY(mutex_);  // By threads of ours.
  std::uint64_t last_number_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  std::size_t threads_ GPUSHARED_GUARDED_BY(mutex_) = 0;
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_HOST_CALLS_H_
