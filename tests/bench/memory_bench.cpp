// SPDX-License-Identifier: Apache-2.0
// Clients that together hold more memory than their device has: the cost of swapping to the low
// clients, and the waiting time of a high one. All results are checked.
//
// The baseline is an ideal round robin: each of three clients has the whole device for a third of
// the time that remains after the minimum of swapping. The low clients run in turns and count
// rounds. A round is a kernel that takes a millisecond by the clock, because a machine's speed
// changes from second to second. Now and then the low clients pause, so that another client can run
// alone and its rounds per second be counted. A pause begins after at least six seconds, and after
// twelve turns or a further multiple of six. Interference by a virtual machine's host still affects
// the rounds, but hardly the time for which each client's memory was resident, which is printed as
// well.
//
// The minimum of swapping is that of a clairvoyant: if each client uses a part p of the device,
// each turn swaps in (3p - 1) / 2 of the device and swaps out as much. The time for a byte is that
// of the same calls without a server: measured on the cpu device, or the bandwidth of the modelled
// GPU's PCIe link. The ideal contains no time for suspending, preempting and deciding, nor for
// other system calls.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpushared/client.h"

#include "server/device/cpu/address_range.h"
#include "server/device/memory_budget.h"
#include "server/device/swap_store.h"
#include "tests/bench/report.h"
#include "tests/support/fake_cuda/costs.h"
#include "tests/support/gpu_server.h"
#include "tests/support/move_steps.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMebi = std::uint64_t{1} << 20;
constexpr std::size_t kLowClients = 3;
constexpr std::size_t kRequests = 100;  // Requests of each kind per visit.
// Clients are swapped in at alternating costs, so the sequence of costs repeats after six turns.
constexpr std::uint64_t kTurnsAtOnce = 12;
constexpr std::chrono::milliseconds kAlone{700}, kTurnsMin{6000}, kTurnsMax{30000};
constexpr std::chrono::milliseconds kHold{1};  // A low client's round.

struct Arguments {
  std::uint64_t memory_mib = 1024;
  std::uint64_t turns = 300;
  std::uint64_t visits = 50;
  std::uint64_t cpu_threads = 1;
  bool is_gpu = false;
  std::string json;
};

void Demand(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}
template <typename T>
T Demand(Result<T> result) {
  Demand(result.status());
  return *std::move(result);
}

double SecondsSince(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

// Bytes per second of swapping the cpu device's pages out and in, without a server.
double StoreBandwidth() {
  constexpr std::size_t kSteps = 128, kBytes = kSteps * kMapPageBytes;
  const auto store = Demand(device::SwapStore::Create({.bytes = kBytes, .directory = ""}));
  Demand(store->Reserve(kBytes));
  const auto range = Demand(device::AddressRange::Reserve(
      kBytes, std::make_shared<device::MemoryBudget>(kBytes), 0, store));
  Demand(range->Resize(kBytes));
  std::memset(reinterpret_cast<void*>(range->base()), 7, kBytes);
  const Clock::time_point began = Clock::now();
  Demand(testing::SwapOut(*range, kBytes));
  Demand(testing::SwapIn(*range, kBytes));
  return 2.0 * kBytes / SecondsSince(began);
}

// Returns the size of a GPU that has this much memory for clients, because the driver reserves an
// eighth of a GPU, at most 1 GiB.
std::uint64_t GpuMib(std::uint64_t for_clients_mib) {
  return std::min((for_clients_mib * 8 + 6) / 7, for_clients_mib + 1024);
}

// Bytes per second of the modelled GPU's PCIe link.
double ModelledBandwidth() {
  return 1e6 * static_cast<double>(fake_cuda::Costs().host_bytes_per_us);
}

// out[i] = out[i] * 3 + 1. The first thread then occupies the device for a given time by the clock.
// Each interval between two clock reads counts for at most 20 us, because a preempted kernel makes
// no progress. A round therefore takes hardly longer on a slow machine than on a fast one.
constexpr char kStepPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry step(.param .u64 out, .param .u32 count, .param .u64 nanoseconds)
{
  .reg .pred %p<3>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd0, [out];
  ld.param.u32 %r0, [count];
  ld.param.u64 %rd1, [nanoseconds];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  setp.ge.u32 %p0, %r4, %r0;
  @%p0 ret;
  cvta.to.global.u64 %rd2, %rd0;
  mul.wide.u32 %rd3, %r4, 4;
  add.u64 %rd2, %rd2, %rd3;
  ld.global.u32 %r5, [%rd2];
  mad.lo.u32 %r5, %r5, 3, 1;
  st.global.u32 [%rd2], %r5;
  setp.ne.u32 %p1, %r4, 0;
  @%p1 ret;
  mov.u64 %rd3, %globaltimer;
again:
  mov.u64 %rd4, %globaltimer;
  sub.u64 %rd5, %rd4, %rd3;
  mov.u64 %rd3, %rd4;
  min.u64 %rd5, %rd5, 20000;
  sub.s64 %rd1, %rd1, %rd5;
  setp.gt.s64 %p2, %rd1, 0;
  @%p2 bra again;
  ret;
}
)";

// A client with a buffer of numbers on the device, and their expected values.
class Numbers {
 public:
  static constexpr std::size_t kCount = 4096;  // Numbers that one kernel changes.

  Numbers(const std::string& socket, const std::string& name, SchedulingClass its_class,
          std::size_t bytes)
      : client_(Demand(
            Client::Connect({.name = name, .scheduling_class = its_class, .socket = socket}))),
        step_(Demand(Demand(client_.LoadModule(kStepPtx)).GetKernel("step"))),
        expected_(bytes / sizeof(std::uint32_t)) {
    const Clock::time_point began = Clock::now();
    buffer_.emplace(Demand(client_.AllocateDevice(bytes)));
    allocation_s_ = SecondsSince(began);
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      expected_[i] = static_cast<std::uint32_t>(i * 2654435761U);
    }
    Demand(client_.default_stream().CopyToDevice(buffer_->address(), expected_.data(), bytes));
    Demand(client_.Synchronize());
  }

  double allocation_s() const { return allocation_s_; }
  // Runs one kernel, which takes at least `hold`.
  void Step(std::size_t round, std::chrono::nanoseconds hold) {
    const std::size_t first = round * 37 * kCount % (expected_.size() - kCount);
    for (std::size_t i = first; i < first + kCount; ++i) expected_[i] = expected_[i] * 3 + 1;
    const Stream stream = client_.default_stream();
    Demand(stream.Launch(step_, {.grid = {kCount / 256, 1, 1}, .block = {256, 1, 1}},
                         buffer_->address() + first * sizeof(std::uint32_t),
                         static_cast<std::uint32_t>(kCount),
                         static_cast<std::uint64_t>(hold.count())));
    Demand(stream.Synchronize());
  }
  void Check() {
    std::vector<std::uint32_t> found(expected_.size());
    Demand(client_.default_stream().CopyToHost(found.data(), buffer_->address(),
                                               found.size() * sizeof(std::uint32_t)));
    Demand(client_.Synchronize());
    if (found != expected_) throw std::runtime_error("results are wrong");
  }

 private:
  const Client client_;
  const Kernel step_;
  std::vector<std::uint32_t> expected_;
  std::optional<DeviceBuffer> buffer_;
  double allocation_s_ = 0;
};

// Low clients, each on a separate thread, until the object is destroyed.
class LowClients {
 public:
  LowClients(const std::string& socket, const std::string& name, std::size_t count,
             std::size_t bytes)
      : rounds_(count) {
    for (std::size_t i = 0; i < count; ++i) {
      threads_.emplace_back([this, socket, name = name + "-" + std::to_string(i), i, bytes] {
        try {
          Numbers numbers(socket, name, SchedulingClass::kLow, bytes);
          ++ready_;
          for (std::size_t round = 0; !is_over_; ++round) {
            numbers.Step(round, kHold);
            ++rounds_[i];
            ++parked_;
            while (is_paused_ && !is_over_) std::this_thread::sleep_for(1ms);
            --parked_;
          }
          numbers.Check();
          ++right_;
        } catch (const std::exception& error) {
          std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
          is_broken_ = true;
        }
      });
    }
    while (ready_ < count && !is_broken_) std::this_thread::sleep_for(5ms);
  }
  ~LowClients() { End(); }
  LowClients(const LowClients&) = delete;
  LowClients& operator=(const LowClients&) = delete;

  // Does not wait for a round that is in progress.
  void Pause(bool is_paused) { is_paused_ = is_paused; }
  // Pauses, and returns when no round is in progress.
  void Park() {
    Pause(true);
    while (parked_ < rounds_.size() && !is_broken_) std::this_thread::sleep_for(1ms);
  }
  std::vector<std::uint64_t> Rounds() const { return {rounds_.begin(), rounds_.end()}; }
  bool is_broken() const { return is_broken_; }
  // Ends all clients; returns whether all their results were correct.
  bool End() {
    is_over_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return right_ == rounds_.size();
  }

 private:
  std::vector<std::atomic<std::uint64_t>> rounds_;
  std::atomic<std::size_t> ready_ = 0, parked_ = 0, right_ = 0;
  std::atomic<bool> is_over_ = false, is_broken_ = false, is_paused_ = false;
  std::vector<std::thread> threads_;
};

class MemoryMeasurement {
 public:
  explicit MemoryMeasurement(const Arguments& arguments)
      : arguments_(arguments),
        report_(arguments.is_gpu ? "memory beyond the device, modelled GPU"
                                 : "memory beyond the device"),
        bandwidth_(arguments.is_gpu ? ModelledBandwidth() : StoreBandwidth()) {
    std::ofstream(rules_) << "[[access]]\neveryone = true\nhighest_class = \"high\"\n"
                             "max_weight = 1000\nclient_memory = \"20%\"\nmemory_limit = \"60%\"\n";
    std::vector<std::string> options = {
        "--config",         rules_,
        "--log-level",      "warn",
        "--policy",         "priority",
        "--overcommit",     std::to_string(4 * arguments.memory_mib) + "MiB",
        "--memory-reserve", "0"};
    const std::string memory = std::to_string(GpuMib(arguments.memory_mib));
    if (arguments.is_gpu) {
      gpu_.emplace(
          GpuServerOptions{.statements = "memory " + memory + "M; costs on", .arguments = options});
    } else {
      options.insert(options.end(), {"--cpu-threads", std::to_string(arguments.cpu_threads),
                                     "--memory", std::to_string(arguments.memory_mib) + "MiB"});
      cpu_.emplace(options);
    }
    report_.AddValue("pages to host memory and back", bandwidth_ / 1e9, "GB/s");
  }

  bool Run() {
    bool is_right = TakeTurns();
    Visits("high client alone", nullptr);
    {
      LowClients low(server().socket(), "low", 2, LowBytes());
      const std::string beside = "high client beside two that thrash";
      Visits(beside, &low);
      is_right &= low.End();
      const auto now = nlohmann::json::parse(
          server().Ctl({"status", "--json"}).output)["devices"][0]["overcommit"];
      report_.AddValue("swapped out by the server", now["swap_out_bytes_per_s"].get<double>() / 1e9,
                       "GB/s");
      report_.AddValue("requests for memory within a guarantee",
                       now["memory_requests"].get<double>(), "");
      report_.AddValue("longest wait of such a request",
                       1e3 * now["memory_request_longest_s"].get<double>(), "ms");
    }
    report_.Print();
    return report_.WriteJson(arguments_.json) && is_right;
  }

 private:
  ServerProcess& server() { return gpu_ ? gpu_->server() : *cpu_; }
  std::uint64_t LowBytes() const { return arguments_.memory_mib * 57 / 100 * kMebi; }
  std::uint64_t HighBytes() const { return arguments_.memory_mib * 15 / 100 * kMebi; }

  // Returns the rounds per second of a client while the others of its class are parked.
  static double RoundsAlone(LowClients& lone) {
    const std::uint64_t parked = lone.Rounds().front();
    lone.Pause(false);
    // The first round waits until the client's memory is resident, so it is not counted.
    while (lone.Rounds().front() == parked && !lone.is_broken()) std::this_thread::sleep_for(1ms);
    const std::uint64_t before = lone.Rounds().front();
    const Clock::time_point began = Clock::now();
    std::this_thread::sleep_for(kAlone);
    const std::uint64_t after = lone.Rounds().front();
    const double seconds = SecondsSince(began);
    lone.Park();
    return static_cast<double>(after - before) / seconds;
  }

  struct Moved {
    std::uint64_t bytes = 0, turns = 0;
    std::array<double, kLowClients> waited_s{};  // Time that each low client waited for memory.
  };
  Moved MovedSoFar() {
    Moved sum;
    const auto told = nlohmann::json::parse(server().Ctl({"ps", "--json"}).output);
    for (const auto& row : told["clients"]) {
      if (!row.contains("memory_waited_s")) continue;  // The client is connecting or leaving.
      sum.bytes += row["swapped_out_bytes"].get<std::uint64_t>();
      sum.bytes += row["swapped_in_bytes"].get<std::uint64_t>();
      sum.turns += row["swap_outs"].get<std::uint64_t>();
      for (std::size_t i = 0; i < kLowClients; ++i) {
        if (row["name"] != "low-" + std::to_string(i)) continue;
        sum.waited_s.at(i) = row["memory_waited_s"].get<double>();
      }
    }
    return sum;
  }

  // Returns the minimum time of swapping, as defined at the top of this file.
  double IdealMovesSeconds(double turns) const {
    const double device = static_cast<double>(arguments_.memory_mib * kMebi);
    const double needed = kLowClients * static_cast<double>(LowBytes()) - device;
    return turns * needed / bandwidth_;
  }

  // Turns of three clients, and each client's results during them.
  struct Turns {
    double count = 0, bytes = 0, seconds = 0;
    double cut = 0;  // Number of pauses that began before all clients had had equally many turns.
    double ideal_moves_s = 0, ideal_rounds = 0;
    std::array<double, kLowClients> rounds{}, there_s{};
    double alone = 0;  // Rounds per second of the last client that was alone.
  };
  // Returns whether each client has been swapped in equally often, at the same mixture of costs.
  // The first turn is not counted, because it evicts the client that was alone.
  static bool AreWhole(std::uint64_t turns) {
    return turns > kTurnsAtOnce && turns % (2 * kLowClients) == 1;
  }
  void TakeTurns(LowClients& low, LowClients& lone, Turns& turns) {
    const Moved moved_before = MovedSoFar();
    const std::vector<std::uint64_t> before = low.Rounds();
    const Clock::time_point began = Clock::now();
    low.Pause(false);
    std::this_thread::sleep_for(kTurnsMin);
    Moved moved = MovedSoFar();
    while (!AreWhole(moved.turns - moved_before.turns) && Clock::now() < began + kTurnsMax) {
      std::this_thread::sleep_for(100ms);
      moved = MovedSoFar();
    }
    const double seconds = SecondsSince(began);
    const std::vector<std::uint64_t> after = low.Rounds();
    turns.cut += AreWhole(moved.turns - moved_before.turns) ? 0 : 1;
    low.Park();
    const auto count = static_cast<double>(moved.turns - moved_before.turns);
    const double moves_s = IdealMovesSeconds(count);
    const double alone_before = std::exchange(turns.alone, RoundsAlone(lone));
    const double alone = (alone_before + turns.alone) / 2;
    turns.count += count;
    turns.bytes += static_cast<double>(moved.bytes - moved_before.bytes);
    turns.seconds += seconds;
    turns.ideal_moves_s += moves_s;
    turns.ideal_rounds += alone * (seconds - moves_s) / kLowClients;
    for (std::size_t i = 0; i < kLowClients; ++i) {
      turns.rounds.at(i) += static_cast<double>(after[i] - before[i]);
      turns.there_s.at(i) += seconds - (moved.waited_s.at(i) - moved_before.waited_s.at(i));
    }
  }

  bool TakeTurns() {
    LowClients low(server().socket(), "low", kLowClients, LowBytes());
    low.Park();
    LowClients lone(server().socket(), "alone", 1, LowBytes());
    lone.Park();
    Turns turns{.alone = RoundsAlone(lone)};
    Samples alone;
    while (turns.count < static_cast<double>(arguments_.turns) && !low.is_broken()) {
      TakeTurns(low, lone, turns);
      alone.Add(1e9 / turns.alone);
    }
    report_.AddValue("alternations", turns.count, "");
    report_.AddValue("pauses before all clients had had equally many", turns.cut, "");
    report_.AddValue("time of one alternation", 1e3 * turns.seconds / turns.count, "ms");
    report_.AddValue("bytes swapped in one alternation, both ways",
                     turns.bytes / turns.count / kMebi, "MiB");
    report_.AddValue("part of the time spent swapping, in the ideal",
                     100 * turns.ideal_moves_s / turns.seconds, "%");
    report_.Add("round of a client alone, on average", alone);
    const double ideal_s = (turns.seconds - turns.ideal_moves_s) / kLowClients;
    for (std::size_t i = 0; i < kLowClients; ++i) {
      const std::string low_client = "low client " + std::to_string(i);
      report_.AddValue(low_client + " against the ideal round robin",
                       turns.rounds.at(i) / turns.ideal_rounds, "");
      report_.AddValue(low_client + ": time with resident memory, against the ideal",
                       turns.there_s.at(i) / ideal_s, "");
    }
    const bool was_right = lone.End();
    return low.End() && was_right;
  }

  // Waits until a low client is swapped out, because only then do low clients use the memory that
  // the last high client released.
  void AwaitTurn() {
    constexpr std::chrono::seconds kTurnMax{5};
    const std::uint64_t turns = MovedSoFar().turns;
    const Clock::time_point latest = Clock::now() + kTurnMax;
    while (MovedSoFar().turns == turns && Clock::now() < latest) std::this_thread::sleep_for(20ms);
  }
  std::unique_ptr<Numbers> MakeHigh() {
    return std::make_unique<Numbers>(server().socket(), "high", SchedulingClass::kHigh,
                                     HighBytes());
  }
  void Visits(const std::string& which, LowClients* low) {
    Samples allocations, requests, beside_paused;
    for (std::uint64_t visit = 0; visit < arguments_.visits; ++visit) {
      if (low != nullptr) AwaitTurn();
      const std::unique_ptr<Numbers> numbers = MakeHigh();
      allocations.Add(1e9 * numbers->allocation_s());
      MakeRequests(*numbers, requests);
      if (low != nullptr) {
        low->Pause(true);
        std::this_thread::sleep_for(100ms);
        MakeRequests(*numbers, beside_paused);
        low->Pause(false);
      }
      numbers->Check();
    }
    report_.Add(which + ": allocation", allocations);
    report_.Add(which + ": request", requests);
    if (low != nullptr) report_.Add(which + ": request while the low clients pause", beside_paused);
  }
  static void MakeRequests(Numbers& numbers, Samples& requests) {
    for (std::size_t round = 0; round < kRequests; ++round) {
      const Clock::time_point began = Clock::now();
      numbers.Step(round, {});
      requests.Add(Clock::now() - began);
      std::this_thread::sleep_for(1ms);
    }
  }

  const Arguments arguments_;
  Report report_;
  const double bandwidth_;
  const ScratchDirectory directory_;
  const std::string rules_ = directory_ / "server.toml";
  std::optional<ServerProcess> cpu_;
  std::optional<GpuServer> gpu_;
};

int Run(int argc, char** argv) {
  CLI::App app("clients that hold more memory than their device has");
  Arguments arguments;
  app.add_option("--memory-mib", arguments.memory_mib, "memory of the device (1024)")
      ->check(CLI::Range(64, 65536));
  app.add_option("--turns", arguments.turns,
                 "turns of three clients that use 57 % of the memory each (300)");
  app.add_option("--visits", arguments.visits,
                 "visits of a high client that uses 15 % of the memory (50)");
  app.add_option("--cpu-threads", arguments.cpu_threads, "threads of the cpu device (1)")
      ->check(CLI::Range(1, 64));
  app.add_flag("--gpu", arguments.is_gpu, "use a fake GPU with the timing of a modelled one");
  app.add_option("--json", arguments.json, "also write the report to this file");
  CLI11_PARSE(app, argc, argv);
  return MemoryMeasurement(arguments).Run() ? 0 : 1;
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  return gpushared::testing::RunProgram([&] { return gpushared::testing::Run(argc, argv); });
}
