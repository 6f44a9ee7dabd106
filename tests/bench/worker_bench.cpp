// SPDX-License-Identifier: Apache-2.0
// The cost of the worker itself: its device thread with real rings on one side and a device that
// takes no time on the other. One producer thread acts for all clients in turn, so that with many
// clients the figures show the device thread, not the scaling of clients.
//
// Allocations of both threads are counted by a replaced operator new.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "ipc/doorbell.h"
#include "ipc/shared_segment.h"
#include "ipc/tag_ring.h"
#include "scheduler/policy_catalog.h"
#include "server/telemetry/trace/reader.h"
#include "server/telemetry/trace/writer.h"
#include "server/worker/loop/device_thread.h"
#include "tests/bench/report.h"
#include "tests/support/allocation_count.h"
#include "tests/support/null_device.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

template <typename T>
T Must(Result<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "worker_bench: %s\n", result.status().ToString().c_str());
  std::exit(1);
}

// A client's shared memory and its end of the rings.
class BenchClient {
 public:
  BenchClient(std::uint64_t session, device::Device& device, std::uint32_t parameter_bytes)
      : session_(session),
        commands_(Must(
            ipc::SharedSegment::Create({.name = "bench", .bytes = ipc::kCommandSegmentBytes}))),
        completions_(Must(
            ipc::SharedSegment::Create({.name = "bench", .bytes = ipc::kCompletionSegmentBytes}))),
        doorbell_(Must(ipc::MakeDoorbell())),
        space_(Must(device.CreateSpace({.quota_bytes = 1 << 20}))),
        module_(parameter_bytes),
        parameters_(parameter_bytes),
        ring_(in().granules, out().granules_taken) {
    record_.header.op = static_cast<std::uint8_t>(ipc::Op::kLaunch);
    for (auto& blocks : record_.grid) blocks = 1;
    for (auto& threads : record_.block) threads = 1;
    record_.parameter_bytes = static_cast<std::uint16_t>(parameter_bytes);
  }

  std::unique_ptr<server::ClientState> MakeState(scheduler::SchedulingClass of_class) {
    server::ClientState::Setup setup;
    setup.session = session_;
    setup.who = "client of the benchmark";
    setup.spec.scheduling_class = of_class;
    setup.commands = &in();
    setup.completions = &out();
    setup.doorbell = doorbell_.get();
    setup.space = space_.get();
    setup.graphs = std::make_shared<server::GraphBudget>(setup.limits.graphs_bytes, 1);
    return std::make_unique<server::ClientState>(setup);
  }

  // Launches the kernel, or the graph that UseGraph made.
  bool TryLaunch() { return nodes_ == 0 ? TryWrite(record_, parameters_) : TryWrite(graph_, {}); }
  // From now on, each launch is a graph of this many of the former launches.
  void UseGraph(std::uint32_t nodes, const ipc::WorkerPage& page) {
    const auto write = [&](const ipc::GraphRecord& record, std::span<const std::byte> content) {
      while (!TryWrite(record, content)) Ring(page);
      Ring(page);
    };
    graph_.header.op = static_cast<std::uint8_t>(ipc::Op::kMakeGraph);
    write(graph_, {});
    ipc::LaunchRecord node = record_;
    node.header.sequence = 0;
    node.header.continuations = static_cast<std::uint16_t>(
        (parameters_.size() + ipc::kContinuationDataBytes - 1) / ipc::kContinuationDataBytes);
    const auto head = std::as_bytes(std::span(&node, 1));
    std::vector<std::byte> content(head.begin(), head.end());
    content.insert(content.end(), parameters_.begin(), parameters_.end());
    ipc::GraphRecord set = graph_;
    set.header.op = static_cast<std::uint8_t>(ipc::Op::kSetGraphNode);
    set.content_bytes = static_cast<std::uint32_t>(content.size());
    for (; set.node < nodes; ++set.node) write(set, content);
    graph_.header.op = static_cast<std::uint8_t>(ipc::Op::kLaunchGraph);
    AwaitDone();
    nodes_ = nodes;
  }
  void Ring(const ipc::WorkerPage& page) { ipc::ClientDoorbell(page, doorbell_.get()).Ring(); }
  bool IsDone() { return out().timeline[0].load(std::memory_order_acquire) == sequence_; }
  void AwaitDone() {
    while (!IsDone()) ipc::SpinPause();
  }

  std::uint64_t session() const { return session_; }
  const device::Module* module() const { return &module_; }

 private:
  template <typename Record>
  bool TryWrite(Record record, std::span<const std::byte> tail) {
    record.header.sequence = sequence_ + 1;
    if (ring_.TryWrite(record, tail) != ipc::WriteResult::kWritten) return false;
    ++sequence_;
    return true;
  }
  ipc::CommandSegment& in() { return commands_.As<ipc::CommandSegment>(); }
  ipc::CompletionSegment& out() { return completions_.As<ipc::CompletionSegment>(); }

  const std::uint64_t session_;
  ipc::SharedSegment commands_, completions_;
  ipc::UniqueFd doorbell_;
  std::unique_ptr<device::Space> space_;
  NullModule module_;
  std::vector<std::byte> parameters_;
  ipc::TagRingWriter ring_;
  ipc::LaunchRecord record_;
  ipc::GraphRecord graph_;
  std::uint32_t nodes_ = 0;
  std::uint64_t sequence_ = 0;
};

// Returns the CPU time of all threads of this process named "gpushared-dev", at most one of which
// is active.
std::uint64_t DeviceThreadCpuNs() {
  std::uint64_t sum = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != "gpushared-dev") continue;
    std::uint64_t ns = 0;
    std::ifstream(task.path() / "schedstat") >> ns;
    sum += ns;
  }
  return sum;
}

// A device thread with its clients, from the first attach to the last detach.
class Bench {
 public:
  Bench(const char* policy, std::size_t clients, std::uint32_t parameter_bytes,
        scheduler::SchedulingClass of_class = scheduler::SchedulingClass::kHigh,
        std::chrono::nanoseconds launch_time = {})
      : signal_(Must(server::DeviceSignal::Create())),
        device_([this] { signal_->RecordCompletions(); }, launch_time),
        control_([] {}) {
    server::DeviceThreadOptions options;
    options.spin = server::SpinTimes{.budget = 50us};
    thread_ = Must(server::DeviceThread::Create(device_, scheduler::FindPolicy(policy)->make({}),
                                                *signal_, control_, options));
    thread_->Start();
    for (std::size_t i = 0; i < clients; ++i) {
      clients_.push_back(std::make_unique<BenchClient>(i + 1, device_, parameter_bytes));
      thread_->mailbox().Post(server::AttachClient{clients_.back()->MakeState(of_class)});
      thread_->mailbox().Post(server::AddModule{i + 1, 0, clients_.back()->module()});
    }
    AwaitMail(clients);
  }
  ~Bench() {
    is_over_.store(true, std::memory_order_relaxed);
    if (reading_.joinable()) reading_.join();
    for (const auto& client : clients_) {
      thread_->mailbox().Post(server::DetachClient{client->session()});
    }
    AwaitMail(clients_.size());
  }

  void UseGraphs(std::uint32_t nodes) {
    for (const auto& client : clients_) client->UseGraph(nodes, signal_->page());
  }

  // Opens a trace that TurnTrace turns on and off, and reads it in this process as gpusharedctl
  // would.
  void OpenTrace() {
    writer_ = Must(trace::Writer::Create());
    trace::Reader reader = Must(trace::Reader::Open(Must(writer_->ShareMemory())));
    reading_ = std::thread([this, reader = std::move(reader)]() mutable {
      // Relaxed, because no other data depends on it.
      while (!is_over_.load(std::memory_order_relaxed)) {
        const trace::Reader::Progress progress = reader.Poll([](const trace::Event&) {});
        events_ += progress.events;
        lost_ += progress.lost;
        std::this_thread::sleep_for(5ms);
      }
    });
  }
  // Traced and untraced measurements use the same device thread and the same memory for the trace,
  // so that they differ in nothing else. On return the device thread sleeps.
  void TurnTrace(bool on) {
    if (on == (writer_ == nullptr)) return;
    const std::uint64_t slept = AwaitSleepAfter(0);
    thread_->mailbox().Post(server::SetTrace{std::move(writer_)});
    if (!on) {
      std::vector<server::ControlMessage> mail = AwaitMail(1);
      writer_ = std::move(std::get<server::TraceOver>(mail.front()).writer);
    }
    AwaitSleepAfter(slept);
  }
  // Totals of the trace, valid once it is over.
  std::uint64_t events() const { return events_; }
  std::uint64_t lost() const { return lost_; }

  // Fills all rings while the device thread sleeps, then lets it drain them. Returns the thread's
  // CPU time per command, which does not depend on other load of the machine.
  double DrainNs(int per_client) {
    std::uint64_t commands = 0;
    const std::uint64_t slept = AwaitSleepAfter(0);
    std::this_thread::sleep_for(1ms);  // The thread announces its sleep shortly before it sleeps.
    for (const auto& client : clients_) {
      for (int i = 0; i < per_client && client->TryLaunch(); ++i) ++commands;
    }
    const std::uint64_t before = DeviceThreadCpuNs();
    clients_.front()->Ring(signal_->page());
    for (const auto& client : clients_) {
      while (!client->IsDone()) std::this_thread::sleep_for(100us);
    }
    AwaitSleepAfter(slept);
    return static_cast<double>(DeviceThreadCpuNs() - before) / static_cast<double>(commands);
  }

  // Keeps all rings filled for a while; returns commands per second.
  double Throughput(std::chrono::milliseconds duration) {
    std::uint64_t commands = 0;
    const auto start = Clock::now();
    while (Clock::now() - start < duration) {
      for (const auto& client : clients_) {
        for (int i = 0; i < 64 && client->TryLaunch(); ++i) ++commands;
        client->Ring(signal_->page());
      }
    }
    for (const auto& client : clients_) client->AwaitDone();
    return static_cast<double>(commands) /
           std::chrono::duration<double>(Clock::now() - start).count();
  }

  // Measures from before the record is written until the timeline advances, one command at a time.
  Samples RoundTrips(int count) {
    Samples samples;
    BenchClient& client = *clients_.front();
    for (int i = 0; i < count; ++i) {
      const auto start = Clock::now();
      client.TryLaunch();
      client.Ring(signal_->page());
      client.AwaitDone();
      samples.Add(Clock::now() - start);
    }
    return samples;
  }

 private:
  // Waits until the thread is in a sleep other than `number`; returns the number of that sleep.
  std::uint64_t AwaitSleepAfter(std::uint64_t number) const {
    for (;; std::this_thread::sleep_for(100us)) {
      const std::uint64_t sleep = signal_->page().sleeping.load();
      if (sleep != 0 && sleep != number) return sleep;
    }
  }
  std::vector<server::ControlMessage> AwaitMail(std::size_t messages) {
    std::vector<server::ControlMessage> all, mail;
    while (all.size() < messages) {
      control_.TakeAll(mail);
      std::move(mail.begin(), mail.end(), std::back_inserter(all));
      mail.clear();
    }
    return all;
  }

  std::unique_ptr<server::DeviceSignal> signal_;
  NullDevice device_;
  server::Mailbox<server::ControlMessage> control_;
  std::vector<std::unique_ptr<BenchClient>> clients_;
  std::unique_ptr<server::DeviceThread> thread_;
  std::unique_ptr<trace::Writer> writer_;  // Held here while the trace is off.
  std::thread reading_;
  std::atomic<bool> is_over_{false};
  std::atomic<std::uint64_t> events_{0}, lost_{0};
};

void Measure(const char* policy, std::size_t clients, std::uint32_t parameter_bytes,
             Report& report) {
  Bench bench(policy, clients, parameter_bytes);
  bench.Throughput(100ms);
  // Fits into each client's ring. The measured time includes the 50 us for which the thread spins
  // before it sleeps again.
  constexpr int kPerClient = 4000;
  Samples drained;
  bench.DrainNs(kPerClient);
  for (int i = 0; i < 20; ++i) drained.Add(bench.DrainNs(kPerClient));
  const std::uint64_t before = AllocationCount();
  std::array<double, 5> rounds{};
  for (double& round : rounds) round = bench.Throughput(200ms);
  const std::uint64_t allocations = AllocationCount() - before;
  std::sort(rounds.begin(), rounds.end());
  const std::string what = std::string(policy) + ", " + std::to_string(clients) + " clients, " +
                           std::to_string(parameter_bytes) + " B";
  report.Add(what + ": device thread's time per command", drained);
  report.AddValue(what + ": median of 5", rounds[2] / 1e6, "M commands/s");
  report.AddValue(what + ": allocations", static_cast<double>(allocations), "");
  if (clients == 1) report.Add(what + ": submit to seen", bench.RoundTrips(100'000));
}

// The cost of a graph's node to the device thread: for a high client, whose graph is one command,
// and for a low one, whose graph is split. Nodes take no time on this device, so one part
// contains all of them, except in every 16th launch, where each node is a part.
void MeasureGraphs(scheduler::SchedulingClass of_class, const char* name, Report& report) {
  constexpr std::uint32_t kNodes = 300;
  constexpr int kLaunches = 800;
  Bench bench("priority", 1, 56, of_class);
  bench.UseGraphs(kNodes);
  bench.DrainNs(kLaunches);
  Samples drained;
  double fastest = 0;
  for (int i = 0; i < 20; ++i) {
    const double per_launch = bench.DrainNs(kLaunches);
    drained.Add(per_launch);
    fastest = i == 0 ? per_launch : std::min(fastest, per_launch);
  }
  const std::string what = std::string("graph of 300 launches, class ") + name + ": ";
  report.Add(what + "device thread's time per launch of it", drained);
  report.AddValue(what + "the least, per node", fastest / kNodes, "ns");
}

// The median of pairs, and its 95 % confidence interval, whose ends are two of the sorted values.
class Pairs {
 public:
  void Add(double value) { values_.push_back(value); }
  void Tell(const std::string& what, const std::string& unit, Report& report) {
    std::sort(values_.begin(), values_.end());
    const std::size_t middle = values_.size() / 2;
    const auto away = static_cast<std::size_t>(std::sqrt(static_cast<double>(values_.size())));
    report.AddValue(what + ", median of " + std::to_string(values_.size()) + " pairs",
                    values_[middle], unit);
    report.AddValue(what + ", 95 % sure: from", values_[middle - away], unit);
    report.AddValue(what + ", 95 % sure: to", values_[middle + away], unit);
  }

 private:
  std::vector<double> values_;
};

// Reports by how much a trace reduces the device thread's throughput, in pairs as in MeasureTrace.
void ReportFewer(Bench& bench, const std::string& what, Report& report) {
  constexpr int kRates = 121;
  Pairs fewer;
  const auto rate = [&](bool on) {
    bench.TurnTrace(on);
    return bench.Throughput(20ms);
  };
  for (int pair = 0; pair < kRates; ++pair) {
    const bool first = pair % 2 == 0;
    const double one = rate(first), other = rate(!first);
    fewer.Add(100 * (1 - (first ? one / other : other / one)));
  }
  fewer.Tell(what + "reduction of commands/s", "%", report);
}

// Like ReportFewer, but each launch takes 2.1 us, as an empty kernel does on an A100 if launched
// back to back (github.com/AureliusJustin/lithos-reproduction).
void MeasureTraceOfShortest(std::size_t clients, Report& report) {
  Bench bench("priority", clients, 0, scheduler::SchedulingClass::kHigh, 2100ns);
  bench.OpenTrace();
  const std::string what = "traced, launches of 2.1 us, " + std::to_string(clients) + " clients: ";
  ReportFewer(bench, what, report);
  bench.TurnTrace(true);
  report.AddValue(what + "commands/s", bench.Throughput(1s) / 1e6, "M");
}

// The cost of a trace, in pairs without and with it, because the machine's speed changes from
// second to second. Each pair measures its second setting again; the difference of these two equal
// measurements shows the accuracy.
void MeasureTrace(std::size_t clients, Report& report) {
  Bench bench("priority", clients, 0);
  bench.OpenTrace();
  const int per_client = 8000 / static_cast<int>(clients);
  constexpr int kPairs = 601;
  const auto drain = [&](bool on) {
    bench.TurnTrace(on);
    return bench.DrainNs(per_client);
  };
  Pairs percent, ns, nothing;
  for (int pair = 0; pair < kPairs; ++pair) {
    // What ran before a pair affects its first measurement, so the order alternates.
    const bool first = pair % 2 == 0;
    const double one = drain(first), other = drain(!first), again = drain(!first);
    const double without = first ? other : one, with = first ? one : other;
    ns.Add(with - without);
    percent.Add(100 * (with - without) / without);
    nothing.Add(100 * (again - other) / other);
  }
  const std::string what = "traced, " + std::to_string(clients) + " clients: ";
  percent.Tell(what + "increase of time per command", "%", report);
  ns.Tell(what + "the same", "ns", report);
  nothing.Tell(what + "the same between equal measurements", "%", report);
  ReportFewer(bench, what, report);
  bench.TurnTrace(true);
  bench.Throughput(1s);
  std::this_thread::sleep_for(50ms);  // Lets the reader poll once more.
  report.AddValue(what + "events told", static_cast<double>(bench.events()) / 1e6, "M");
  report.AddValue(what + "events lost", static_cast<double>(bench.lost()) / 1e6, "M");
}

}  // namespace
}  // namespace gpushared::testing

namespace gpushared::testing {
namespace {

// Returns the records per second that the ring alone carries from one thread to another one, which
// discards them. The device thread cannot be faster.
double RingAlone() {
  const auto in = std::make_unique<ipc::CommandSegment>();
  std::atomic<std::uint64_t> taken{0};
  constexpr std::uint64_t kRecords = 5'000'000;
  std::thread reader([&] {
    ipc::TagRingReader ring(in->granules, taken);
    const auto copy = std::make_unique<ipc::RecordCopy>();
    for (std::uint64_t seen = 0; seen < kRecords;) {
      if (ring.TryRead(*copy) == ipc::ReadResult::kRecord) {
        ++seen;
      } else {
        ipc::SpinPause();
      }
    }
  });
  ipc::TagRingWriter ring(in->granules, taken);
  const ipc::LaunchRecord record;
  const auto start = Clock::now();
  for (std::uint64_t written = 0; written < kRecords;) {
    if (ring.TryWrite(record) == ipc::WriteResult::kWritten) ++written;
  }
  reader.join();
  return kRecords / std::chrono::duration<double>(Clock::now() - start).count();
}

void MeasureAll(Report& report) {
  report.AddValue("baseline: the ring alone", RingAlone() / 1e6, "M records/s");
  Measure("priority", 1, 0, report);
  Measure("priority", 1, 56, report);
  Measure("priority", 8, 0, report);
  Measure("priority", 64, 0, report);
  Measure("fifo", 1, 0, report);
  Measure("fair", 8, 0, report);
  MeasureGraphs(scheduler::SchedulingClass::kHigh, "high", report);
  MeasureGraphs(scheduler::SchedulingClass::kLow, "low", report);
  MeasureTrace(1, report);
  MeasureTrace(8, report);
  MeasureTraceOfShortest(1, report);
  MeasureTraceOfShortest(8, report);
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  using namespace gpushared::testing;
  return RunReport(argc, argv, "worker_bench: launches through a device thread, null device",
                   MeasureAll);
}
