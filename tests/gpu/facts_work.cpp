// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/gpu/facts.h"

namespace gpushared::testing {
namespace {

using namespace device::cuda;  // NOLINT(google-build-using-namespace): this file is about it.

// Duration of a chain's kernel: longer than the calls for it, because otherwise the GPU would wait
// for calls.
constexpr double kChainKernelNs = 30'000;
constexpr int kLinks = 64;
constexpr int kTries = 7;

class WorkFacts : public Facts {
 public:
  using Facts::Facts;

  void EndOfWork() {
    Event event = nullptr, sleepy = nullptr;
    Do(driver_->EventCreate, &event, kEventDisableTiming);
    Do(driver_->EventCreate, &sleepy, kEventDisableTiming | kEventBlockingSync);
    const Samples polled = Repeat([&] {
      Launch(step_, 1, 1, 0, high_);
      Do(driver_->EventRecord, event, high_);
      SpinUntil([&] { return HasPassed(event); }, "an event behind a null kernel");
    });
    Row("null kernel, end seen by polling an event", polled);
    Row("null kernel, end seen by waiting for the stream", Repeat([&] {
          Launch(step_, 1, 1, 0, high_);
          Do(driver_->StreamSynchronize, high_);
        }));
    const Samples slept = Repeat([&] {
      Launch(step_, 1, 1, 0, high_);
      Do(driver_->EventRecord, sleepy, high_);
      Do(driver_->EventSynchronize, sleepy);
    });
    Row("null kernel, end seen by a thread that sleeps until an event", slept);
    Cost("wake", slept.Percentile(0.5) - polled.Percentile(0.5),
         "a thread that sleeps until an event, more than one that polls it, p50");
    Do(driver_->EventDestroy, event);
    Do(driver_->EventDestroy, sleepy);
    std::atomic<std::uint32_t> ends{0};
    std::uint32_t expected = 0;
    Row("null kernel, end seen by a host function", Repeat([&] {
          Launch(step_, 1, 1, 0, high_);
          Do(driver_->LaunchHostFunc, high_, kCount, static_cast<void*>(&ends));
          ++expected;
          // Acquire pairs with the host function's release.
          SpinUntil([&] { return ends.load(std::memory_order_acquire) == expected; },
                    "a host function behind a null kernel");
        }));
    if (!driver_->Has(Feature::kStreamMemoryOperations)) return;
    WrittenWord<std::uint32_t>("a word", [&](DeviceAddress address, std::uint32_t number) {
      Do(driver_->StreamWriteValue32, high_, address, number, kWriteValueDefault);
    });
    WrittenWord<std::uint64_t>("a double word", [&](DeviceAddress address, std::uint64_t number) {
      Do(driver_->StreamWriteValue64, high_, address, number, kWriteValueDefault);
    });
  }

  // Measures how long the GPU idles between two kernels of a stream, and how much longer with
  // another operation between them. These values can replace those of
  // tests/support/fake_cuda/costs.h.
  void Chains() {
    const unsigned iterations = ChainIterations();
    const double bare = ChainNs(iterations, kLinks, [] {});
    const double idle = IdleNs(iterations, bare);
    Row("between kernels of a stream: idle", idle / 1e3, "us", "");
    Cost("kernel_gap", idle, "idle between kernels of a stream");
    const auto more = [&](const std::string& with, const std::function<void()>& between) {
      const double ns = (ChainNs(iterations, kLinks, between) - bare) / kLinks;
      Row("between kernels of a stream: more with " + with, ns / 1e3, "us", "");
      return ns;
    };
    Event timed = nullptr, untimed = nullptr;
    void* host = nullptr;
    Do(driver_->EventCreate, &timed, 0u);
    Do(driver_->EventCreate, &untimed, kEventDisableTiming);
    Do(driver_->MemHostAlloc, &host, std::size_t{4096}, kHostPortable);
    const std::string note = "between kernels of a stream";
    Cost("untimed_event",
         more("an untimed event", [&] { Do(driver_->EventRecord, untimed, low_); }), note);
    Cost("timed_event", more("a timed event", [&] { Do(driver_->EventRecord, timed, low_); }),
         note);
    if (driver_->Has(Feature::kStreamMemoryOperations)) {
      Cost("write_value",
           more("a written word",
                [&] { Do(driver_->StreamWriteValue32, low_, out_ + 64, 1u, kWriteValueDefault); }),
           note);
    }
    Cost("fill_kernel",
         more("a memset of 4 bytes",
              [&] { Do(driver_->MemsetD32Async, out_ + 64, 1u, std::size_t{1}, low_); }) -
             idle,
         "more with a memset of 4 bytes, without one idle time");
    const auto copy = [&] { Do(driver_->MemcpyDtoHAsync, host, out_, std::size_t{32}, low_); };
    const double one = more("a copy of 32 bytes to the host", copy);
    const double second = more("two of them",
                               [&] {
                                 copy();
                                 copy();
                               }) -
                          one;
    Cost("copy_latency", second, "more with a second copy of 32 bytes to the host");
    Cost("engine_switch", (one - second) / 2, "half of what a first copy takes beyond a second");
    std::atomic<std::uint32_t> ends{0};
    Cost("host_function",
         more("a host function",
              [&] { Do(driver_->LaunchHostFunc, low_, kCount, static_cast<void*>(&ends)); }),
         note);
    Do(driver_->MemFreeHost, host);
    Do(driver_->EventDestroy, timed);
    Do(driver_->EventDestroy, untimed);
  }

  // Measures the time per call, in bursts that the driver accepts without waiting.
  void Calls() {
    constexpr int kBurst = 64;
    const auto row = [&](const std::string& call, const std::function<void()>& make,
                         const char* cost = nullptr) {
      Samples samples;
      const auto end = FactsClock::now() + limit_ / 8;
      do {
        samples.Add(Ns(GetTime([&] {
                      for (int i = 0; i < kBurst; ++i) make();
                    })) /
                    kBurst);
        Do(driver_->StreamSynchronize, low_);
      } while (FactsClock::now() < end);
      Row("call: " + call, samples.Percentile(0.5) / 1e3, "us", "mean of bursts, p50");
      if (cost != nullptr) Cost(cost, samples.Percentile(0.5), call);
    };
    Event timed = nullptr, later = nullptr, untimed = nullptr;
    void* host = nullptr;
    Do(driver_->EventCreate, &timed, 0u);
    Do(driver_->EventCreate, &later, 0u);
    Do(driver_->EventCreate, &untimed, kEventDisableTiming);
    Do(driver_->MemHostAlloc, &host, std::size_t{4096}, kHostPortable);
    Do(driver_->EventRecord, timed, low_);
    Do(driver_->EventRecord, later, low_);
    Do(driver_->StreamSynchronize, low_);
    float milliseconds = 0;
    row(
        "elapsed time of two events",
        [&] { Do(driver_->EventElapsedTime, &milliseconds, timed, later); }, "call_elapsed");
    row(
        "launch", [&] { Launch(step_, 1, 1, 1, low_); }, "call_launch");
    std::array<unsigned, 256> wide{};
    std::array<void*, 2> wide_parameters = {&out_, &wide};
    row("launch with 1 KiB of parameters", [&] {
      Do(driver_->LaunchKernel, wide_, 1u, 1u, 1u, 1u, 1u, 1u, 0u, low_, wide_parameters.data(),
         nullptr);
    });
    row("record a timed event", [&] { Do(driver_->EventRecord, timed, low_); });
    row(
        "record an untimed event", [&] { Do(driver_->EventRecord, untimed, low_); }, "call_record");
    row("wait for an event in a stream", [&] { Do(driver_->StreamWaitEvent, low_, untimed, 0u); });
    row(
        "query an event", [&] { Do(driver_->EventQuery, timed); }, "call_query");
    row("query a stream", [&] { Do(driver_->StreamQuery, low_); });
    row(
        "memset of 4 bytes",
        [&] { Do(driver_->MemsetD32Async, out_ + 64, 1u, std::size_t{1}, low_); }, "call_fill");
    row(
        "copy of 32 bytes to the host",
        [&] { Do(driver_->MemcpyDtoHAsync, host, out_, std::size_t{32}, low_); }, "call_copy");
    if (driver_->Has(Feature::kStreamMemoryOperations)) {
      row(
          "write a word",
          [&] { Do(driver_->StreamWriteValue32, low_, out_ + 64, 1u, kWriteValueDefault); },
          "call_write");
    }
    std::atomic<std::uint32_t> ends{0};
    row("launch of a host function",
        [&] { Do(driver_->LaunchHostFunc, low_, kCount, static_cast<void*>(&ends)); });
    Do(driver_->MemFreeHost, host);
    for (const Event event : {timed, later, untimed}) Do(driver_->EventDestroy, event);
  }

  // Measures a graph like that of a language model's step: many kernels that one call launches.
  void AGraph() {
    if (!driver_->Has(Feature::kGraphs)) return;
    const unsigned iterations = ChainIterations();
    const GraphTimes few = TimesOfGraph(kFewNodes, iterations);
    const GraphTimes many = TimesOfGraph(kNodes, iterations);
    Row("a graph of 300 kernels: instantiating it", many.instantiation / 1e3, "us", "once");
    Row("a graph of 300 kernels: the call that launches it", many.calls);
    Row("a graph of 300 kernels: other parameters for one of them", many.changes);
    const double less =
        (ChainNs(iterations, kNodes, [] {}) - many.ends.Percentile(0)) / (kNodes - 1);
    Row("between kernels of a graph: less idle than in a stream", less / 1e3, "us",
        "negative: it idles for longer");
    const double idle = IdleNs(iterations, ChainNs(iterations, kLinks, [] {}));
    const auto each = [](double of_many, double of_few) {
      return (of_many - of_few) / (kNodes - kFewNodes);
    };
    const double call = few.calls.Percentile(0.5);
    const double node = each(many.calls.Percentile(0.5), call);
    Cost("graph_gap", idle - less, "idle between kernels of a graph");
    Cost("call_graph_launch", call - node * kFewNodes, "launch of a graph, without its nodes");
    Cost("graph_launched_node", node, "the same, for each node");
    Cost("call_graph_node", many.changes.Percentile(0.5), "other parameters for a kernel");
    Cost("graph_instantiated_node", each(many.instantiation, few.instantiation),
         "instantiation, for each node");
  }

  void PendingLaunches() {
    constexpr int kMost = 4096;
    for (int i = 0; i < 5; ++i) Launch(occupy_, LongBlocks(), 32, LongIterations(), low_);
    int pending = 0;
    for (auto begin = FactsClock::now(); pending < kMost; ++pending, begin = FactsClock::now()) {
      Launch(step_, 1, 1, 0, low_);
      if (FactsClock::now() - begin > std::chrono::milliseconds(1)) break;
    }
    Do(driver_->StreamSynchronize, low_);
    Row("launches that a stream takes behind a long kernel before a call blocks", pending, "-",
        "at most " + std::to_string(kMost) + " were tried");
  }

 private:
  static constexpr std::size_t kNodes = 300, kFewNodes = 20;
  struct GraphTimes {
    double instantiation = 0;
    Samples calls, ends, changes;
  };

  // Measures a graph that is a chain of kernels.
  GraphTimes TimesOfGraph(std::size_t count, unsigned iterations) {
    std::array<void*, 2> parameters = {&out_, &iterations};
    const KernelNode kernel{.function = step_, .parameters = parameters.data()};
    DriverGraph graph = nullptr;
    DriverExec exec = nullptr;
    std::vector<DriverNode> nodes(count);
    Do(driver_->GraphCreate, &graph, 0u);
    for (std::size_t i = 0; i < count; ++i) {
      const DriverNode* const after = i == 0 ? nullptr : &nodes[i - 1];
      Do(driver_->GraphAddKernelNode, &nodes[i], graph, after, std::size_t{i == 0 ? 0U : 1U},
         &kernel);
    }
    GraphTimes times;
    times.instantiation =
        Ns(GetTime([&] { Do(driver_->GraphInstantiateWithFlags, &exec, graph, 0ULL); }));
    Do(driver_->GraphUpload, exec, low_);
    Do(driver_->StreamSynchronize, low_);
    for (int i = 0; i < kTries; ++i) {
      times.ends.Add(GetTime([&] {
        times.calls.Add(GetTime([&] { Do(driver_->GraphLaunch, exec, low_); }));
        Do(driver_->StreamSynchronize, low_);
      }));
      times.changes.Add(GetTime(
          [&] { Do(driver_->GraphExecKernelNodeSetParams, exec, nodes[count / 2], &kernel); }));
    }
    Do(driver_->GraphExecDestroy, exec);
    Do(driver_->GraphDestroy, graph);
    return times;
  }

  static constexpr HostFunction kCount = [](void* data) {
    static_cast<std::atomic<std::uint32_t>*>(data)->fetch_add(1, std::memory_order_release);
  };

  bool HasPassed(Event event) const {
    const Code code = driver_->EventQuery(event);
    if (code != Code::kSuccess && code != Code::kNotReady) Do(driver_->EventQuery, event);
    return code == Code::kSuccess;
  }

  template <typename Number>
  void WrittenWord(const std::string& what,
                   const std::function<void(DeviceAddress, Number)>& write) {
    const Memfd memory(4096);
    Do(driver_->MemHostRegister, memory.bytes(), memory.size(), kHostPortable | kHostDeviceMap);
    DeviceAddress address = 0;
    Do(driver_->MemHostGetDevicePointer, &address, memory.bytes(), 0u);
    const std::atomic_ref<Number> word(*reinterpret_cast<Number*>(memory.bytes()));
    Number number = 0;
    Row("null kernel, end seen in " + what + " of a memfd that the stream writes", Repeat([&] {
          Launch(step_, 1, 1, 0, high_);
          write(address, ++number);
          // Acquire pairs with the stream's write, which is ordered after the kernel.
          SpinUntil([&] { return word.load(std::memory_order_acquire) == number; },
                    "a word that a stream writes");
        }));
    Do(driver_->StreamSynchronize, high_);
    Do(driver_->MemHostUnregister, memory.bytes());
  }

  // Returns the time from the first launch of a chain until its end is known; the fastest of
  // several tries.
  double ChainNs(unsigned iterations, std::size_t kernels, const std::function<void()>& between) {
    Samples samples;
    for (int i = 0; i < kTries; ++i) {
      samples.Add(GetTime([&] {
        for (std::size_t k = 0; k < kernels; ++k) {
          Launch(step_, 1, 1, iterations, low_);
          between();
        }
        Do(driver_->StreamSynchronize, low_);
      }));
    }
    return samples.Percentile(0);
  }
  // Returns the idle time between two kernels of a chain, whose time without operations between
  // them is `bare`.
  double IdleNs(unsigned iterations, double bare) {
    // Subtracts a chain of half as many kernels that are twice as long, so that only idle time
    // remains.
    return (bare - ChainNs(2 * iterations, kLinks / 2, [] {})) / (kLinks / 2.0);
  }
  unsigned ChainIterations() {
    unsigned iterations = 1000;
    while (iterations < (1u << 24) &&
           ChainNs(iterations, kLinks, [] {}) < kLinks * kChainKernelNs) {
      iterations *= 2;
    }
    return iterations;
  }
};

}  // namespace

std::vector<Question> WorkQuestions() {
  return {GetQuestion("end of work", &WorkFacts::EndOfWork),
          GetQuestion("chains of kernels", &WorkFacts::Chains),
          GetQuestion("costs of calls", &WorkFacts::Calls),
          GetQuestion("a graph", &WorkFacts::AGraph),
          GetQuestion("pending launches", &WorkFacts::PendingLaunches)};
}

}  // namespace gpushared::testing
