// SPDX-License-Identifier: Apache-2.0
// Which calls wait for a running kernel, and which block other threads in the meantime. A call that
// waits with the context's lock held prevents the device thread from launching, from detecting the
// end of work, and from stopping the very kernel that the call waits for.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/facts.h"

namespace gpushared::testing {
namespace {

using namespace device::cuda;  // NOLINT(google-build-using-namespace): this file is about it.

constexpr std::chrono::milliseconds kKernel{20};
constexpr std::size_t kBytes = std::size_t{16} << 20;
constexpr std::size_t kGraphNodes = 50;
// A call of the polling thread that takes longer is considered blocked. An unhindered call is far
// shorter, and a stop must not be delayed for this long.
constexpr double kHeldUpNs = 1e6;
// A try is used only if the call began with at least this part of the kernel's time left.
constexpr double kLeftLeast = 0.25;
constexpr int kTriesMax = 8;
// Indices into the shared words.
constexpr std::size_t kBegun = 0, kEnded = 1, kPolled = 2;

std::int64_t NowNs() { return FactsClock::now().time_since_epoch().count(); }

// Imitates the worker's device thread: polls an event, writes words as stops do, and times its own
// calls. It never waits for the thread whose call is measured.
class Poller {
 public:
  Poller(const Driver& driver, Context context, Event event, Stream stream,
         std::atomic_ref<std::uint32_t> word, DeviceAddress address)
      : driver_(driver),
        context_(context),
        event_(event),
        stream_(stream),
        word_(word),
        address_(address),
        thread_([this] { Loop(); }) {}
  ~Poller() { Stop(); }
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  std::uint64_t rounds() const { return rounds_.load(std::memory_order_acquire); }
  // Ignores calls that end before this time.
  void CountFrom(std::int64_t ns) { counts_from_.store(ns, std::memory_order_relaxed); }
  void Stop() {
    is_over_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) thread_.join();
  }
  // Valid after Stop.
  double longest_ns() const { return static_cast<double>(longest_ns_); }
  const char* longest_call() const { return longest_call_; }
  Code code() const { return code_; }

 private:
  void Loop() {
    code_ = driver_.CtxSetCurrent(context_);
    std::uint32_t number = word_.load(std::memory_order_relaxed);
    while (code_ == Code::kSuccess && !is_over_.load(std::memory_order_relaxed)) {
      code_ = Timed(driver_.EventQuery, event_);
      if (code_ == Code::kNotReady) code_ = Code::kSuccess;
      // Keeps at most one word pending, because the call would also wait for a full queue.
      if (code_ == Code::kSuccess && word_.load(std::memory_order_acquire) == number)
        code_ = Timed(driver_.StreamWriteValue32, stream_, address_, ++number, kWriteValueDefault);
      rounds_.fetch_add(1, std::memory_order_release);
      // Pauses, because the driver's locks need not be fair to the other thread.
      for (const auto end = FactsClock::now() + kPause; FactsClock::now() < end;) {
      }
    }
  }
  template <typename... Parameters, typename... Arguments>
  Code Timed(const DriverCall<Code(Parameters...)>& call, Arguments... arguments) {
    const std::int64_t begin = NowNs();
    const Code code = call(arguments...);
    const std::int64_t end = NowNs();
    if (end >= counts_from_.load(std::memory_order_relaxed) && end - begin > longest_ns_) {
      longest_ns_ = end - begin;
      longest_call_ = call.name();
    }
    return code;
  }

  static constexpr std::chrono::microseconds kPause{3};
  const Driver& driver_;
  const Context context_;
  const Event event_;
  const Stream stream_;
  const std::atomic_ref<std::uint32_t> word_;
  const DeviceAddress address_;
  std::atomic<bool> is_over_{false};
  std::atomic<std::uint64_t> rounds_{0};
  std::atomic<std::int64_t> counts_from_{std::numeric_limits<std::int64_t>::max()};
  std::int64_t longest_ns_ = 0;
  const char* longest_call_ = "";
  Code code_ = Code::kSuccess;
  std::thread thread_;  // Last, because it uses the other members.
};

// Makes one call on a separate thread when Go() is called.
class Caller {
 public:
  Caller(const Driver& driver, Context context, const std::function<Code()>& make)
      : thread_([this, &driver, context, &make] {
          code_ = driver.CtxSetCurrent(context);
          is_ready_.store(true, std::memory_order_release);
          while (!may_go_.load(std::memory_order_acquire)) std::this_thread::yield();
          begin_ns_ = NowNs();
          if (code_ == Code::kSuccess) code_ = make();
          end_ns_ = NowNs();
          is_done_.store(true, std::memory_order_release);
        }) {}
  ~Caller() {
    Go();
    thread_.join();
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  bool is_ready() const { return is_ready_.load(std::memory_order_acquire); }
  void Go() { may_go_.store(true, std::memory_order_release); }
  bool is_done() const { return is_done_.load(std::memory_order_acquire); }
  // Valid once is_done().
  std::int64_t begin_ns() const { return begin_ns_; }
  double took_ns() const { return static_cast<double>(end_ns_ - begin_ns_); }
  Code code() const { return code_; }

 private:
  std::atomic<bool> is_ready_{false}, may_go_{false}, is_done_{false};
  std::int64_t begin_ns_ = 0, end_ns_ = 0;
  Code code_ = Code::kSuccess;
  std::thread thread_;  // Last, because it uses the other members.
};

class CallFacts : public Facts {
 public:
  // `loading` is the value of CUDA_MODULE_LOADING in this process.
  CallFacts(const FactsOptions& options, std::string loading)
      : Facts(options), loading_(std::move(loading)), tries_wanted_(options.ms < 100 ? 1 : 2) {}

  void BesideAKernel() {
    if (!driver_->Has(Feature::kStreamMemoryOperations)) {
      return NoRow("calls beside a 20 ms kernel, " + loading_, "ms",
                   "this driver has no words that streams write");
    }
    stack_bytes_ = ServersStackBytes();
    words_.emplace(*this);
    pinned_.emplace(kBytes);
    std::fill_n(pinned_->bytes(), kBytes, std::byte{1});  // Allocates its pages.
    Do(driver_->EventCreate, &event_, kEventDisableTiming);
    Do(driver_->StreamCreateWithPriority, &third_, kStreamNonBlocking, least_);
    if (driver_->Has(Feature::kVirtualMemory))
      Do(driver_->MemAddressReserve, &window_, kBytes, std::size_t{0}, DeviceAddress{0}, 0ULL);
    Do(driver_->CtxSetLimit, Limit::kStackBytes, stack_bytes_);
    spin_ = CalibratedSpin(WaveBlocks(), kKernel, *words_);
    for (const Call& call : Calls()) Measure(call);
    Summarise();
    if (window_ != 0) Do(driver_->MemAddressFree, window_, kBytes);
    Do(driver_->StreamDestroy, third_);
    Do(driver_->EventDestroy, event_);
    words_.reset();
  }

 private:
  struct Call {
    std::string name;
    Feature needs;
    std::function<void()> prepare;
    std::function<Code()> make;
    const char* cost = nullptr;  // Name of its cost in the fake driver.
  };
  // Times of one call alongside the kernel.
  struct Times {
    double took_ns = 0;
    double left_ns = 0;  // Time that the kernel had left when the call began.
    double longest_ns = 0;
    const char* longest_call = "";
    Code code = Code::kSuccess;
  };
  // All objects made by a call and its preparation.
  struct Made {
    Module module = nullptr;
    Function function = nullptr;
    DeviceAddress memory = 0;
    void* host = nullptr;
    bool is_registered = false;
    MemoryHandle handle = 0;
    bool is_mapped = false;
    Stream stream = nullptr;
    DriverGraph graph = nullptr;
    DriverExec exec = nullptr;
  };

  std::vector<Call> Calls() {
    std::vector<Call> calls = {{"no call", Feature::kBase, {}, [] { return Code::kSuccess; }}};
    for (const auto& list : {ModuleCalls(), MemoryCalls(), MappingCalls(), OtherCalls()})
      calls.insert(calls.end(), list.begin(), list.end());
    return calls;
  }

  // Returns a text with a kernel that no text had before, because a driver caches compiled code
  // even between runs.
  static std::string NewText() {
    return std::string(FactText()) + ".visible .entry new_" + std::to_string(NowNs()) +
           "()\n{\nret;\n}\n";
  }

  std::vector<Call> ModuleCalls() {
    const auto load = [this](const char* image) {
      return driver_->ModuleLoadDataEx(&made_.module, image, 0, nullptr, nullptr);
    };
    const auto loaded = [this] {
      Do(driver_->ModuleLoadDataEx, &made_.module, FactFatbin(), 0u, nullptr, nullptr);
    };
    const auto get = [this] {
      return driver_->ModuleGetFunction(&made_.function, made_.module, "spin");
    };
    return {{"cuModuleLoadDataEx of PTX in the cache",
             Feature::kBase,
             {},
             [load] { return load(FactText()); }},
            {"cuModuleLoadDataEx of PTX that is new",
             Feature::kBase,
             {},
             [load] { return load(NewText().c_str()); },
             "compile_text"},
            {"cuModuleLoadDataEx of machine code", Feature::kBase,
             [this] {
               if (Attribute(DeviceAttribute::kComputeCapabilityMajor) != 9 ||
                   Attribute(DeviceAttribute::kComputeCapabilityMinor) != 0) {
                 throw std::runtime_error("it is for GPUs of compute capability 9.0");
               }
             },
             [load] { return load(FactFatbin()); }},
            {"cuModuleGetFunction", Feature::kBase, loaded, get},
            {"cuFuncLoad", Feature::kEagerLoading,
             [this, loaded] {
               loaded();
               Do(driver_->ModuleEnumerateFunctions, &made_.function, 1u, made_.module);
             },
             [this] { return driver_->FuncLoad(made_.function); }, "kernel_load"},
            {"cuModuleUnload", Feature::kBase,
             [this, loaded, get] {
               loaded();
               Check("cuModuleGetFunction", get());
             },
             [this] { return Take(made_.module, driver_->ModuleUnload(made_.module)); }}};
  }

  std::vector<Call> MemoryCalls() {
    const auto allocate = [this] { return driver_->MemAlloc(&made_.memory, kBytes); };
    const auto enter = [this] {
      const Code code = driver_->MemHostRegister(pinned_->bytes(), kBytes, kHostPortable);
      made_.is_registered = code == Code::kSuccess;
      return code;
    };
    return {{"cuMemAlloc of 16 MiB", Feature::kBase, {}, allocate},
            {"cuMemFree of 16 MiB", Feature::kBase,
             [this, allocate] { Check("cuMemAlloc", allocate()); },
             [this] { return Take(made_.memory, driver_->MemFree(made_.memory)); }},
            {"cuMemHostAlloc of 16 MiB",
             Feature::kBase,
             {},
             [this] { return driver_->MemHostAlloc(&made_.host, kBytes, kHostPortable); }},
            {"cuMemHostRegister of 16 MiB", Feature::kHostRegister, {}, enter},
            {"cuMemHostUnregister of 16 MiB", Feature::kHostRegister,
             [this, enter] { Check("cuMemHostRegister", enter()); },
             [this] {
               return Take(made_.is_registered, driver_->MemHostUnregister(pinned_->bytes()));
             }}};
  }

  std::vector<Call> MappingCalls() {
    const auto create = [this] {
      AllocationProperties properties;
      properties.location.id = number_;
      return driver_->MemCreate(&made_.handle, kBytes, &properties, 0);
    };
    const auto map = [this] {
      const Code code = driver_->MemMap(window_, kBytes, 0, made_.handle, 0);
      made_.is_mapped = code == Code::kSuccess;
      return code;
    };
    const auto open = [this] {
      AccessDescription access;
      access.location.id = number_;
      return driver_->MemSetAccess(window_, kBytes, &access, 1);
    };
    const auto created = [this, create] { Check("cuMemCreate", create()); };
    const auto mapped = [this, created, map] {
      created();
      Check("cuMemMap", map());
    };
    return {{"cuMemCreate of 16 MiB", Feature::kVirtualMemory, {}, create},
            {"cuMemMap of 16 MiB", Feature::kVirtualMemory, created, map},
            {"cuMemSetAccess of 16 MiB", Feature::kVirtualMemory, mapped, open},
            {"cuMemUnmap of 16 MiB", Feature::kVirtualMemory,
             [this, mapped, open] {
               mapped();
               Check("cuMemSetAccess", open());
             },
             [this] { return Take(made_.is_mapped, driver_->MemUnmap(window_, kBytes)); }}};
  }

  std::vector<Call> OtherCalls() {
    const auto new_stream = [this] {
      return driver_->StreamCreateWithPriority(&made_.stream, kStreamNonBlocking, greatest_);
    };
    const auto graph = [this] { MakeGraph(); };
    const auto instantiate = [this] {
      return driver_->GraphInstantiateWithFlags(&made_.exec, made_.graph, 0);
    };
    return {{"cuStreamCreateWithPriority", Feature::kBase, {}, new_stream},
            {"cuStreamDestroy", Feature::kBase,
             [this, new_stream] { Check("cuStreamCreateWithPriority", new_stream()); },
             [this] { return Take(made_.stream, driver_->StreamDestroy(made_.stream)); }},
            {"cuGraphInstantiate of 50 kernels", Feature::kGraphs, graph, instantiate},
            {"cuGraphUpload of 50 kernels", Feature::kGraphs,
             [this, graph, instantiate] {
               graph();
               Check("cuGraphInstantiateWithFlags", instantiate());
             },
             [this] { return driver_->GraphUpload(made_.exec, third_); }},
            // Requests more each time, because local memory never shrinks.
            {"cuCtxSetLimit of the stack", Feature::kBase, {}, [this] {
               return driver_->CtxSetLimit(Limit::kStackBytes, stack_bytes_ += 1024);
             }}};
  }

  void MakeGraph() {
    unsigned iterations = 1;
    std::array<void*, 2> parameters = {&out_, &iterations};
    const KernelNode kernel{.function = step_, .parameters = parameters.data()};
    Do(driver_->GraphCreate, &made_.graph, 0u);
    DriverNode last = nullptr;
    for (std::size_t i = 0; i < kGraphNodes; ++i) {
      const DriverNode ahead = last;
      Do(driver_->GraphAddKernelNode, &last, made_.graph, i == 0 ? nullptr : &ahead,
         std::size_t{i == 0 ? 0U : 1U}, &kernel);
    }
  }

  // Forgets an object that a successful call has released.
  template <typename T>
  static Code Take(T& made, Code code) {
    if (code == Code::kSuccess) made = {};
    return code;
  }

  void GiveBack() {
    if (made_.exec != nullptr) {
      Do(driver_->StreamSynchronize, third_);
      Do(driver_->GraphExecDestroy, made_.exec);
    }
    if (made_.graph != nullptr) Do(driver_->GraphDestroy, made_.graph);
    if (made_.stream != nullptr) Do(driver_->StreamDestroy, made_.stream);
    if (made_.is_mapped) Do(driver_->MemUnmap, window_, kBytes);
    if (made_.handle != 0) Do(driver_->MemRelease, made_.handle);
    if (made_.is_registered) Do(driver_->MemHostUnregister, pinned_->bytes());
    if (made_.host != nullptr) Do(driver_->MemFreeHost, made_.host);
    if (made_.memory != 0) Do(driver_->MemFree, made_.memory);
    if (made_.module != nullptr) Do(driver_->ModuleUnload, made_.module);
    made_ = {};
  }

  std::string Beside(const Call& call) const {
    return call.name + " beside a 20 ms kernel, " + loading_ + ": ";
  }

  void Measure(const Call& call) {
    if (!driver_->Has(call.needs) ||
        (call.needs == Feature::kEagerLoading && !driver_->Has(Feature::kFunctionNames))) {
      return NoRow(Beside(call) + "takes", "ms", "not in this driver");
    }
    double alone_ns = std::numeric_limits<double>::max();
    try {
      // Takes the faster of two calls, because the first one fills caches, such as that of compiled
      // code.
      for (int i = 0; i < 2; ++i) alone_ns = std::min(alone_ns, Alone(call));
    } catch (const std::exception& error) {
      GiveBack();
      return NoRow(Beside(call) + "takes", "ms", error.what());
    }
    // With eager loading the kernel is already loaded, so the cost would be too low.
    if (call.cost != nullptr && loading_ == "LAZY") Cost(call.cost, alone_ns, call.name);
    // Tries twice, because another process may delay one of the tries.
    std::vector<Times> tries;
    for (int i = 0; i < kTriesMax && tries.size() < tries_wanted_; ++i) {
      const Times one = Try(call);
      if (one.code != Code::kSuccess)
        return NoRow(Beside(call) + "takes", "ms", driver_->Explain(call.name, one.code));
      if (one.left_ns >= kLeftLeast * Ns(kKernel)) tries.push_back(one);
    }
    if (tries.empty())
      return NoRow(Beside(call) + "takes", "ms", "the kernel had all but ended when it began");
    Report(call, *std::ranges::min_element(tries, {}, &Times::took_ns),
           *std::ranges::min_element(tries, {}, &Times::longest_ns), alone_ns);
  }

  double Alone(const Call& call) {
    if (call.prepare) call.prepare();
    Code code = Code::kSuccess;
    const auto took = GetTime([&] { code = call.make(); });
    Check(call.name.c_str(), code);
    GiveBack();
    return Ns(took);
  }

  Times Try(const Call& call) {
    if (call.prepare) call.prepare();
    for (const std::size_t word : {kBegun, kEnded}) (*words_)[word].store(0);
    Times times;
    {
      Caller caller(*driver_, context_, call.make);
      Poller poller(*driver_, context_, event_, high_, (*words_)[kPolled],
                    words_->GetAddress(kPolled));
      try {
        Await([&] { return caller.is_ready() && poller.rounds() > 0; }, "two threads");
        times = BesideTheKernel(caller, poller);
      } catch (const std::exception& error) {
        // Reported before the threads are joined, because a call may never return.
        NoRow(Beside(call) + "takes", "ms", error.what());
        Summarise();
        throw;
      }
    }
    for (const Stream stream : {low_, high_}) Do(driver_->StreamSynchronize, stream);
    GiveBack();
    return times;
  }
  // This thread makes no driver call while the kernel runs, but polls words in host memory.
  Times BesideTheKernel(Caller& caller, Poller& poller) {
    LaunchSpin(spin_, *words_, kBegun, low_);
    Do(driver_->EventRecord, event_, low_);
    Do(driver_->StreamWriteValue32, low_, words_->GetAddress(kEnded), 1u, kWriteValueDefault);
    Await([&] { return (*words_)[kBegun].load(std::memory_order_acquire) != 0; },
          "the beginning of a kernel");
    const std::uint64_t rounds = poller.rounds();
    Await([&] { return poller.rounds() > rounds + 1; }, "a round of the thread that polls");
    poller.CountFrom(NowNs());
    caller.Go();
    Await([&] { return (*words_)[kEnded].load(std::memory_order_acquire) != 0; },
          "the end of a kernel");
    const std::int64_t ended = NowNs();
    Await([&] { return caller.is_done(); }, "the return of the call");
    poller.Stop();
    Check("the thread that polls", poller.code());
    return {.took_ns = caller.took_ns(),
            .left_ns = static_cast<double>(ended - caller.begin_ns()),
            .longest_ns = poller.longest_ns(),
            .longest_call = poller.longest_call(),
            .code = caller.code()};
  }
  template <typename Polls>
  static void Await(const Polls& is_seen, const char* what) {
    SpinUntil(
        [&] {
          if (is_seen()) return true;
          std::this_thread::sleep_for(std::chrono::microseconds(10));
          return false;
        },
        what);
  }

  // `polled`: the times of the try in which the polling thread was delayed the least.
  void Report(const Call& call, const Times& times, const Times& polled, double alone_ns) {
    char note[128];
    std::snprintf(note, sizeof note, "%.3f alone, %.1f of the kernel were left", alone_ns / 1e6,
                  times.left_ns / 1e6);
    Row(Beside(call) + "takes", times.took_ns / 1e6, "ms", note);
    Row(Beside(call) + "another thread's longest call", polled.longest_ns / 1e6, "ms",
        polled.longest_call);
    const auto add = [&](std::string& list, double ns) {
      std::snprintf(note, sizeof note, "%s (%.1f ms)", call.name.c_str(), ns / 1e6);
      list += (list.empty() ? "" : ", ") + std::string(note);
    };
    if (times.took_ns - alone_ns > times.left_ns / 2) add(waited_, times.took_ns);
    if (polled.longest_ns >= kHeldUpNs) add(held_up_, polled.longest_ns);
  }
  void Summarise() {
    const auto row = [this](const std::string& what, const std::string& calls) {
      Row("calls beside a 20 ms kernel, " + loading_ + ", that " + what,
          static_cast<double>(std::ranges::count(calls, '(')), "-", calls.empty() ? "none" : calls);
    };
    row("waited for it", waited_);
    row("held up another thread for 1 ms or more", held_up_);
  }

  const std::string loading_;
  const std::size_t tries_wanted_;
  std::optional<Words> words_;
  std::optional<Memfd> pinned_;
  Event event_ = nullptr;
  Stream third_ = nullptr;
  DeviceAddress window_ = 0;
  std::size_t stack_bytes_ = 0;
  Spin spin_;
  Made made_;
  std::string waited_, held_up_;
};

Question Loading(const char* name, const char* loading) {
  return {name, [loading](const Question& self, const FactsOptions& options) {
            // Takes effect, because the driver reads the variable when it is loaded, and this
            // process has not loaded it yet.
            ::setenv("CUDA_MODULE_LOADING", loading, 1);
            CallFacts facts(options, loading);
            return facts.Ask(self.name, [&] { facts.BesideAKernel(); });
          }};
}

}  // namespace

std::vector<Question> CallQuestions() {
  return {Loading("calls beside a kernel, lazy loading", "LAZY"),
          Loading("calls beside a kernel, eager loading", "EAGER")};
}

}  // namespace gpushared::testing
