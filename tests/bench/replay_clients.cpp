// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/replay_clients.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <new>
#include <stdexcept>
#include <thread>

#include "tests/bench/machine_noise.h"
#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr char kHoldPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry hold(.param .u64 nanoseconds, .param .u32 is_awake)
{
  .reg .pred %p<3>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [nanoseconds];
  ld.param.u32 %r0, [is_awake];
  setp.ne.u32 %p0, %r0, 0;
  mov.u64 %rd2, %globaltimer;
  add.u64 %rd2, %rd2, %rd1;
again:
  mov.u64 %rd3, %globaltimer;
  setp.ge.u64 %p1, %rd3, %rd2;
  @%p1 ret;
  @%p0 bra again;
  sub.u64 %rd4, %rd2, %rd3;
  setp.lt.u64 %p2, %rd4, 200000;
  @%p2 bra again;
  sub.u64 %rd4, %rd4, 150000;
  min.u64 %rd4, %rd4, 1000000;
  cvt.u32.u64 %r1, %rd4;
  nanosleep.u32 %r1;
  bra again;
}
)";

// The low client records an event after each `kChunk` launches and submits up to `kChunksAhead`
// chunks before it waits for the oldest event.
constexpr std::size_t kChunk = 4, kChunksAhead = 64;
constexpr std::size_t kRequestsMax = 1 << 16;

// Data exchanged between the processes, in memory shared by all of them.
struct Board {
  std::atomic<std::int64_t> start_ns{0};  // Steady clock; 0 until the start has been decided.
  std::atomic<int> ready{0};
  std::atomic<std::uint64_t> low_kernels{0};
  std::atomic<std::size_t> answered{0};
  std::array<std::int64_t, kRequestsMax> latency_ns{};
};

class SharedBoard {
 public:
  SharedBoard() {
    void* const memory =
        ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    board_ = new (memory) Board;
  }
  ~SharedBoard() { ::munmap(board_, sizeof(Board)); }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  Board* operator->() const { return board_; }
  Board& operator*() const { return *board_; }

 private:
  Board* board_;
};

std::int64_t Now() { return Clock::now().time_since_epoch().count(); }

Clock::time_point AwaitStart(Board& board) {
  ++board.ready;
  while (board.start_ns == 0) std::this_thread::sleep_for(1ms);
  return Clock::time_point(nanoseconds(board.start_ns));
}

[[noreturn]] void AnswerOneByOne(const ClientOptions& options, const ReplayPlan& plan,
                                 Board& board) {
  const HoldingClient holding(options);
  const Clock::time_point start = AwaitStart(board);
  for (std::size_t i = 0; i < plan.arrivals_s.size(); ++i) {
    std::this_thread::sleep_until(start + std::chrono::duration_cast<nanoseconds>(
                                              std::chrono::duration<double>(plan.arrivals_s[i])));
    const Clock::time_point begun = Clock::now();
    Must(holding.stream.BeginRequest());
    holding.Launch(plan.high);
    Must(holding.stream.EndRequest());
    Must(holding.stream.Synchronize());
    board.latency_ns[i] = (Clock::now() - begun).count();
    ++board.answered;
  }
  ::_exit(0);
}

// Requests arrive regardless of earlier ones, so one thread submits and another one waits.
[[noreturn]] void AnswerRequests(const ClientOptions& options, const ReplayPlan& plan,
                                 Board& board) {
  const HoldingClient holding(options);
  std::vector<Event> ends;
  for (std::size_t i = 0; i < plan.arrivals_s.size(); ++i)
    ends.push_back(Must(holding.client.CreateEvent()));
  const Clock::time_point start = AwaitStart(board);
  const auto arrival = [&](std::size_t request) {
    return start + std::chrono::duration_cast<nanoseconds>(
                       std::chrono::duration<double>(plan.arrivals_s[request]));
  };
  std::atomic<std::size_t> submitted{0};
  std::thread waiter([&] {
    for (std::size_t i = 0; i < ends.size(); ++i) {
      submitted.wait(i);
      Must(ends[i].Synchronize());
      board.latency_ns[i] = (Clock::now() - arrival(i)).count();
      ++board.answered;
    }
  });
  for (std::size_t i = 0; i < ends.size(); ++i) {
    std::this_thread::sleep_until(arrival(i));
    Must(holding.stream.BeginRequest(std::max<nanoseconds>(Clock::now() - arrival(i), 0ns)));
    holding.Launch(plan.high);
    Must(holding.stream.EndRequest());
    Must(holding.stream.Record(ends[i]));
    ++submitted;
    submitted.notify_one();
  }
  waiter.join();
  ::_exit(0);
}

// Never returns: the parent ends the process.
[[noreturn]] void Train(const ClientOptions& options, const ReplayPlan& plan, Board& board) {
  const HoldingClient holding(options);
  AwaitStart(board);
  std::deque<Event> ahead;
  for (std::size_t launched = 0;;) {
    if (ahead.size() == kChunksAhead) {
      Must(ahead.front().Synchronize());
      board.low_kernels += kChunk;
      ahead.push_back(std::move(ahead.front()));
      ahead.pop_front();
    } else {
      ahead.push_back(Must(holding.client.CreateEvent()));
    }
    for (std::size_t i = 0; i < kChunk; ++i, ++launched) {
      const std::size_t number = launched % plan.low.kernels.size();
      holding.Launch(plan.low.kernels[number], number);
    }
    Must(holding.stream.Record(ahead.back()));
  }
}

ServerProcess StartServer(const std::string& policy) {
  return ServerProcess(
      {"--log-level", "warn", "--device", "cpu:0", "--cpu-threads", "1", "--policy", policy});
}

// Returns the 0.1 quantile, because time added by other work on the machine is not a cost of the
// device.
template <typename Function>
nanoseconds UndisturbedTime(int count, Function function) {
  std::vector<nanoseconds> times;
  for (int i = 0; i < count; ++i) {
    std::this_thread::sleep_for(5ms);
    const auto begin = Clock::now();
    function();
    times.push_back(Clock::now() - begin);
  }
  const auto tenth = times.begin() + count / 10;
  std::nth_element(times.begin(), tenth, times.end());
  return *tenth;
}

}  // namespace

void Must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, status.ToString().c_str());
  std::_Exit(1);
}

HoldingClient::HoldingClient(const ClientOptions& options, Hold hold)
    : client(Must(Client::Connect(options))),
      stream(client.default_stream()),
      hold_(Must(Must(client.LoadModule(std::string_view(kHoldPtx))).GetKernel("hold"))),
      is_awake_(hold == Hold::kAwake) {}

void HoldingClient::Launch(const simulation::Kernel& kernel, std::size_t number) const {
  constexpr std::size_t kNumbersMax = 4096;
  const auto hold_ns = static_cast<std::uint64_t>(kernel.block_time.count());
  Must(stream.Launch(hold_,
                     {.grid = {kernel.blocks, 1, 1},
                      .block = {1, 1, 1},
                      .dynamic_shared_bytes = static_cast<std::uint32_t>(number % kNumbersMax)},
                     hold_ns, std::uint32_t{is_awake_}));
}

void HoldingClient::Launch(const simulation::Job& job) const {
  for (std::size_t i = 0; i < job.kernels.size(); ++i) Launch(job.kernels[i], i);
}

ClientProcesses::~ClientProcesses() {
  for (const pid_t pid : pids_) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

void ClientProcesses::EndWith(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // The parent has already ended.
}

void ClientProcesses::CheckAlive() const {
  for (const pid_t pid : pids_) {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == pid && status != 0)
      throw std::runtime_error("a client has ended");
  }
}

ReplayOutcome Replay(const std::string& policy, const ReplayPlan& plan) {
  const ServerProcess server = StartServer(policy);
  const SharedBoard board;
  ClientProcesses processes;
  const std::size_t requests = plan.arrivals_s.size();
  if (requests > 0) {
    const ClientOptions options{.name = "high",
                                .scheduling_class = SchedulingClass::kHigh,
                                .latency_target = plan.target,
                                .socket = server.socket()};
    processes.Start([&] {
      plan.is_one_by_one ? AnswerOneByOne(options, plan, *board)
                         : AnswerRequests(options, plan, *board);
    });
  }
  if (plan.has_low) {
    const ClientOptions options{
        .name = "low", .scheduling_class = SchedulingClass::kLow, .socket = server.socket()};
    processes.Start([&] { Train(options, plan, *board); });
  }
  const int expected = (requests > 0 ? 1 : 0) + (plan.has_low ? 1 : 0);
  while (board->ready < expected) {
    processes.CheckAlive();
    std::this_thread::sleep_for(5ms);
  }
  const pid_t worker = server.workers().at(0);
  const nanoseconds waited_before = KeptFromCores(worker);
  const std::int64_t start = Now() + nanoseconds(10ms).count();
  board->start_ns = start;
  const auto is_over = [&] {
    return requests > 0 ? board->answered == requests : Now() - start >= plan.length.count();
  };
  while (!is_over()) {
    processes.CheckAlive();
    std::this_thread::sleep_for(5ms);
  }
  const double seconds = static_cast<double>(Now() - start) / 1e9;
  const nanoseconds waited = KeptFromCores(worker) - waited_before;
  ReplayOutcome outcome;
  outcome.worker_waited = std::chrono::duration<double>(waited).count() / seconds;
  for (std::size_t i = 0; i < requests; ++i) outcome.latencies.emplace_back(board->latency_ns[i]);
  outcome.low_jobs_per_s = static_cast<double>(board->low_kernels) /
                           static_cast<double>(plan.low.kernels.size()) / seconds;
  return outcome;
}

ReplayCosts MeasureCosts() {
  constexpr int kLong = 100;
  constexpr nanoseconds kHold = 1ms;
  const ServerProcess server = StartServer("fifo");
  const HoldingClient holding({.name = "costs", .socket = server.socket()});
  const simulation::Kernel one{.blocks = 1, .block_time = kHold};
  const simulation::Kernel many{.blocks = kLong, .block_time = kHold};
  const nanoseconds single = UndisturbedTime(101, [&] {
    holding.Launch(one, 0);
    Must(holding.stream.Synchronize());
  });
  const nanoseconds chain = UndisturbedTime(11, [&] {
    for (int i = 0; i < kLong; ++i) holding.Launch(one, 0);
    Must(holding.stream.Synchronize());
  });
  const nanoseconds blocks = UndisturbedTime(11, [&] {
    holding.Launch(many, 1);
    Must(holding.stream.Synchronize());
  });
  ReplayCosts costs;
  costs.block = std::max<nanoseconds>(blocks / kLong - kHold, 0ns);
  costs.kernel_gap = std::max<nanoseconds>(chain / kLong - kHold - costs.block, 0ns);
  costs.round_trip = std::max<nanoseconds>(single - kHold - costs.block, 0ns);
  return costs;
}

}  // namespace gpushared::testing
