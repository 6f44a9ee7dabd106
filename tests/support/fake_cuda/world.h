// SPDX-License-Identifier: Apache-2.0
// The state of the fake driver: its GPUs, their objects, and the calls made.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_WORLD_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_WORLD_H_

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/cuda_driver/driver_types.h"
#include "tests/support/fake_cuda/context_lock.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_cuda/memory.h"
#include "tests/support/fake_cuda/script.h"

namespace gpushared::testing::fake_cuda {

using Lock = std::unique_lock<std::mutex>;
using Clock = std::chrono::steady_clock;

struct Gpu;

struct FakeContext {
  Gpu* gpu = nullptr;
  bool green = false;
  unsigned multiprocessors = 0;  // Number of a green context's multiprocessors.
};

// Memory used by work that has not ended; freeing it in the meantime is a mistake.
struct Range {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  bool Meets(std::uint64_t other, std::uint64_t other_bytes) const {
    return address < other + other_bytes && other < address + bytes;
  }
};

enum class Engine : std::uint8_t { kCompute, kOther };

// The kinds of work that a costed GPU distinguishes.
enum class Kind : std::uint8_t {
  kNothing,
  kKernel,
  kCopyIn,
  kCopyOut,
  kCopyInside,
  kFill,
  kEvent,
  kTimedEvent,
  kWrite,
  kWait,
  kHostFunction,
};

// A kernel that a costed GPU runs block by block. All calls are made under the lock.
class BlockRun {
 public:
  virtual ~BlockRun() = default;
  virtual std::uint64_t count() const = 0;
  virtual std::uint64_t threads() const = 0;  // Threads of one block.
  virtual device::cuda::Code Begin() = 0;
  struct Ran {
    device::cuda::Code code = {};
    std::uint64_t blocks = 1;  // More than one if the block waits for later ones.
    double instructions = 0;   // Mean per warp.
  };
  virtual Ran Run(std::uint64_t block) = 0;
};

struct Work {
  const char* call = "";  // The call that submitted it.
  Engine engine = Engine::kOther;
  std::function<bool()> ready;              // Called under the lock; empty: ready at once.
  std::function<device::cuda::Code()> run;  // Called without the lock.
  std::function<void()> ended;              // Called under the lock.
  std::vector<Range> uses;
  std::uintptr_t module = 0;  // The module whose code the work runs.
  std::uintptr_t exec = 0;    // The instantiated graph that contains the work.
  std::uint64_t order = 0;
  // ---- on a costed GPU
  Kind kind = Kind::kNothing;
  std::uint64_t bytes = 0;
  std::shared_ptr<BlockRun> blocks;  // Set for a kernel, in place of `run`.
  Clock::time_point arrives;
  bool follows_in_graph = false;  // The node before it belongs to the same launch.
};

struct FakeStream {
  Gpu* gpu = nullptr;
  std::uintptr_t context = 0;
  int priority = 0;
  std::deque<Work> queue;
  std::optional<Work> running;  // Without costs, its `run` has been moved out.
  bool destroyed = false;
  // On a costed GPU: the time at which its last work ended, and the kind of that work.
  Clock::time_point free_at;
  Kind last = Kind::kNothing;
};

// The point of a cuEventRecord; a later record does not change the point that earlier waits wait
// for.
struct Mark {
  bool done = false;
  Clock::time_point at;       // When the GPU reached it, on the GPU's clock.
  Clock::time_point seen_at;  // When threads can observe it, on the host's clock.
};
struct FakeEvent {
  std::uintptr_t context = 0;
  bool timed = true;
  std::shared_ptr<Mark> mark;  // Null if the event was never recorded.
};

struct FakeGraph;     // graphs.h
struct FakeNode;      // graphs.h
struct FakeExec;      // graphs.h
struct FakeModule;    // modules.h
struct FakeFunction;  // modules.h
class Timeline;       // timeline.h

struct Gpu {
  explicit Gpu(World& world);
  ~Gpu();

  int number = 0;
  std::string uuid;
  std::uintptr_t primary = 0;  // The primary context while it is retained.
  unsigned retained = 0;
  unsigned flags = 0;
  // Includes destroyed ones with unfinished work.
  std::vector<std::shared_ptr<FakeStream>> streams;
  std::array<std::thread, 2> engines;
  std::unique_ptr<Timeline> timeline;  // Only for a costed GPU; engines[0] advances it.
  ContextLock context_lock;
};

// Objects of a kind by handle. Handles are never reused, so a stale one is recognised.
template <typename T>
class Table {
 public:
  explicit Table(const char* kind) : kind_(kind) {}
  std::uintptr_t Add(std::shared_ptr<T> object) {
    static std::uintptr_t last = 0x10000;
    last += 16;
    live_.emplace(last, std::move(object));
    return last;
  }
  std::shared_ptr<T> Find(std::uintptr_t handle) const {
    const auto found = live_.find(handle);
    return found == live_.end() ? nullptr : found->second;
  }
  void Remove(std::uintptr_t handle) { live_.erase(handle); }
  std::map<std::uintptr_t, std::shared_ptr<T>>& live() { return live_; }
  const char* kind() const { return kind_; }

 private:
  const char* kind_;
  std::map<std::uintptr_t, std::shared_ptr<T>> live_;
};

struct LoggedCall {
  const char* name;
  device::cuda::Code result;
  std::uint64_t thread = 0;
  std::uintptr_t handle = 0;
};

// Initial limits of a context.
inline constexpr std::array<std::size_t, 3> kLimits = {1024, 1 << 20, 8 << 20};

// The whole state, guarded by one mutex. The engines run kernels and copies without holding it.
class World {
 public:
  static World& Get();
  World();
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void Reset(Lock& lock);
  // Applies the statements up to the first invalid one; returns a message about that one, or "".
  std::string Run(std::string_view statements);
  // Executes statements that were appended to the control file.
  void ObeyControl();

  void Mistake(const std::string& what);
  std::string TakeMistakes();
  // Returns the object, or reports a mistake.
  template <typename T>
  std::shared_ptr<T> Get(const Table<T>& table, std::uintptr_t handle, const char* call) {
    std::shared_ptr<T> found = table.Find(handle);
    if (found == nullptr) MissingHandle(table.kind(), handle, call);
    return found;
  }
  // Returns the GPUs that CUDA_VISIBLE_DEVICES makes visible.
  std::vector<Gpu*> Visible();
  Gpu* VisibleGpu(int ordinal);
  // Returns the calling thread's current context; null if it has none.
  std::shared_ptr<FakeContext> CurrentContext() { return contexts.Find(current); }
  void Submit(FakeStream& stream, Work work);
  // Returns the host's time: the virtual time if a thread of the program is in virtual time.
  static Clock::time_point Now();
  // Spins for this long, or advances virtual time by it. A call elsewhere only adds it to `spent`.
  static void Spend(std::chrono::nanoseconds time);
  // Time spent by this thread since its last long call began.
  static thread_local std::chrono::nanoseconds spent;
  // Set while the calling thread acts as another one: see fake_cuda_elsewhere.
  static thread_local bool is_elsewhere;
  // Returns whether the calling thread is in virtual time, which passes only when the thread spends
  // it.
  static bool PassesTime();
  std::uint64_t last_order() const { return last_order_; }  // Order of the latest submission.
  // Processes all events of costed GPUs that are due.
  void CatchUp();
  // Waits until `due` returns a time that is not in the future, or the context is dead. `due`
  // returns kNotDue while the time is unknown. On a costed GPU, the wait also takes the time of a
  // wake-up if the context has kContextBlockingSync.
  static constexpr Clock::time_point kNotDue = Clock::time_point::max();
  void Await(Lock& lock, const std::function<Clock::time_point()>& due);
  // Returns the time at which a thread can observe that the stream's work has ended, or that the
  // mark was reached.
  Clock::time_point SeenAt(const FakeStream& stream) const;
  Clock::time_point SeenAt(const Mark& mark) const;
  // Returns the time of the GPUs, which differs from the host's.
  Clock::time_point GpuNow() const;
  // Returns the pending work that uses the range, or null.
  const Work* PendingUse(std::uint64_t address, std::uint64_t bytes);
  const Work* PendingModule(std::uintptr_t module);
  const Work* PendingExec(std::uintptr_t exec);
  bool Idle(const FakeStream& stream) const { return stream.queue.empty() && !stream.running; }
  // Returns the number of live objects of a kind, as in fake_cuda_live.
  std::size_t Live(std::string_view kind);
  // Allocates as much local memory as the limit grants each thread, unless that is done already.
  // Returns false if memory is exhausted.
  bool TakeLocalMemory();
  // Spends the time of compiling the text, unless the text was compiled before.
  void CompileText(std::string_view text);
  // Destroys a context with all its objects, and reports objects that still existed as a mistake.
  void EndContext(std::uintptr_t context, const char* call);
  void ReportLeaks(const char* when);

  std::mutex mutex;
  std::condition_variable changed;  // Work was submitted or ended, or the settings changed.
  Settings settings;
  bool initialized = false;
  std::optional<device::cuda::Code> sticky;
  std::optional<Clock::time_point> work_time;  // Time of a costed GPU's current event.
  std::vector<std::unique_ptr<Gpu>> gpus;
  Table<FakeContext> contexts{"context"};
  Table<FakeStream> streams{"stream"};
  Table<FakeEvent> events{"event"};
  Table<FakeGraph> graphs{"graph"};
  Table<FakeNode> nodes{"node of a graph"};
  Table<FakeExec> execs{"instantiated graph"};
  Table<FakeModule> modules{"module"};
  Table<FakeFunction> functions{"function"};
  Memory memory;
  std::vector<LoggedCall> log;
  std::map<std::string, std::size_t, std::less<>> call_counts;
  std::size_t pageable_copies = 0;
  std::set<std::size_t> compiled_texts;         // By their hash.
  std::array<std::size_t, 3> limits = kLimits;  // Indexed by Limit.
  std::uint64_t local_bytes = 0;                // Allocated for local memory.
  std::string last_attributes;                  // Attributes of the latest launch.
  std::atomic<bool> kill_kernels{false};        // Set while engines stop, so that kernels end.
  static thread_local std::uintptr_t current;

 private:
  // Returns the first matching work, running or waiting, or null.
  const Work* Pending(const std::function<bool(const Work&)>& is_it);
  void MissingHandle(const char* kind, std::uintptr_t handle, const char* call);
  void MakeGpus();
  void StopEngines(Lock& lock);
  void Engines(Gpu& gpu, Engine engine);
  void Tick(Gpu& gpu);
  std::shared_ptr<FakeStream> NextStream(Gpu& gpu, Engine engine);

  bool stopping_ = false;
  std::uint64_t obeyed_bytes_ = 0;  // Part of the control file that has been read.
  std::uint64_t last_order_ = 0;
  const Clock::time_point made_ = Clock::now();
  std::vector<std::string> mistakes_;
};

// The state that a call requires.
enum class Needs : std::uint8_t { kNothing, kInit, kContext };

// The frame around every call: the required state, injected failures, the log.
class CallFrame {
 public:
  CallFrame(const char* name, Needs needs, std::uintptr_t handle);
  // Returns the code with which the call must return without doing its work, if any.
  std::optional<device::cuda::Code> rejected() const { return rejected_; }
  device::cuda::Code Finish(device::cuda::Code code);
  // Takes the context's lock for the rest of this thread's current call, and waits for the GPU. A
  // no-op without "lock on".
  static void WaitForGpu();

  Lock lock;
  World& world;

 private:
  void HoldLock(LockUse use);

  static thread_local CallFrame* here_;
  ContextLock* context_lock_ = nullptr;  // Null: "lock" is off, or the call needs no context.
  bool holds_context_lock_ = false;
  const char* name_;
  std::uintptr_t handle_;
  std::optional<device::cuda::Code> rejected_;
  std::optional<device::cuda::Code> late_;
  // Time at which a long call ends, including the time of its own work.
  std::optional<Clock::time_point> ends_;
};

// Runs a call. `Body` has the type Code(World&, Lock&) and is called with the lock held.
template <typename Body>
device::cuda::Code Call(const char* name, Needs needs, std::uintptr_t handle, Body&& body) {
  CallFrame frame(name, needs, handle);
  if (frame.rejected()) return frame.Finish(*frame.rejected());
  return frame.Finish(body(frame.world, frame.lock));
}

template <typename Handle>
std::uintptr_t Number(Handle handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

}  // namespace gpushared::testing::fake_cuda

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_WORLD_H_
