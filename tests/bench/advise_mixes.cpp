// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/advise_mixes.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <new>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "scheduler/sim/arrivals.h"
#include "tests/bench/machine_noise.h"
#include "tests/bench/replay_clients.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

// Occupies its executor thread until it has run for the time in its parameter, like the kernels of
// `replay_bench`. Each interval between two clock reads counts for at most 20 us, so that the
// kernel makes no progress while it is preempted or the machine keeps its thread off the cores. A
// kernel that counted rounds instead would take up to twice as long while the core's hyper-thread
// sibling is busy, which cannot be predicted.
constexpr char kWorkPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry work(.param .u64 nanoseconds)
{
  .reg .pred %p0;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [nanoseconds];
  mov.u64 %rd1, %globaltimer;
again:
  mov.u64 %rd2, %globaltimer;
  sub.u64 %rd3, %rd2, %rd1;
  mov.u64 %rd1, %rd2;
  min.u64 %rd3, %rd3, 20000;
  sub.s64 %rd0, %rd0, %rd3;
  setp.gt.s64 %p0, %rd0, 0;
  @%p0 bra again;
  ret;
}
)";

constexpr std::size_t kClientsMax = 8, kRequestsMax = 1 << 15;
constexpr std::size_t kStepsAhead = 8;

// Data exchanged between the processes, in memory shared by all of them.
struct MixBoard {
  struct Client {
    std::atomic<std::size_t> answered{0};
    std::array<std::int64_t, kRequestsMax> latency_ns{};
  };
  std::atomic<std::int64_t> start_ns{0};  // Steady clock; 0 until the start has been decided.
  std::atomic<int> ready{0};
  std::array<Client, kClientsMax> clients;
};

class SharedMixBoard {
 public:
  SharedMixBoard() {
    void* const memory = ::mmap(nullptr, sizeof(MixBoard), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    board_ = new (memory) MixBoard;
  }
  ~SharedMixBoard() { ::munmap(board_, sizeof(MixBoard)); }
  SharedMixBoard(const SharedMixBoard&) = delete;
  SharedMixBoard& operator=(const SharedMixBoard&) = delete;
  MixBoard* operator->() const { return board_; }
  MixBoard& operator*() const { return *board_; }

 private:
  MixBoard* board_;
};

class WorkingClient {
 public:
  WorkingClient(const MixClient& told, const std::string& socket)
      : client(Must(Client::Connect({.name = told.name,
                                     .scheduling_class = told.scheduling_class,
                                     .weight = told.weight,
                                     .latency_target = told.target,
                                     .socket = socket}))),
        stream(client.default_stream()),
        work_(Must(Must(client.LoadModule(std::string_view(kWorkPtx))).GetKernel("work"))) {}

  void Launch(const MixClient& told) const {
    const auto time_ns = static_cast<std::uint64_t>(1e6 * told.kernel_ms);
    for (std::size_t i = 0; i < told.kernels; ++i)
      Must(stream.Launch(work_, {.grid = {1, 1, 1}, .block = {1, 1, 1}}, time_ns));
  }

  const Client client;
  const Stream stream;

 private:
  const Kernel work_;
};

Clock::time_point AwaitMixStart(MixBoard& board) {
  ++board.ready;
  while (board.start_ns == 0) std::this_thread::sleep_for(1ms);
  return Clock::time_point(nanoseconds(board.start_ns));
}

std::vector<double> GetArrivals(const MixRun& run, std::size_t number) {
  const MixClient& told = run.clients[number];
  const auto count = static_cast<std::size_t>(1.5e3 * run.seconds / told.every_ms) + 16;
  std::vector<double> times = Must(
      simulation::MakeArrivals(told.arrivals, count, told.every_ms / 1e3,
                               run.seed + run.first_client + static_cast<std::uint32_t>(number)));
  times.erase(std::lower_bound(times.begin(), times.end(), run.seconds), times.end());
  times.resize(std::min(times.size(), kRequestsMax));
  return times;
}

// One thread submits the requests and another one waits for them, so that a slow request does not
// delay the next one's submission.
[[noreturn]] void ServeArrivals(const MixRun& run, std::size_t number, const std::string& socket,
                                MixBoard& board) {
  const MixClient& told = run.clients[number];
  const WorkingClient working(told, socket);
  const std::vector<double> times = GetArrivals(run, number);
  std::vector<Event> ends;
  for (std::size_t i = 0; i < times.size(); ++i) ends.push_back(Must(working.client.CreateEvent()));
  MixBoard::Client& mine = board.clients[number];
  const Clock::time_point start = AwaitMixStart(board);
  const auto arrival = [&](std::size_t request) {
    return start +
           std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(times[request]));
  };
  std::atomic<std::size_t> submitted{0};
  std::thread waiter([&] {
    for (std::size_t i = 0; i < ends.size(); ++i) {
      submitted.wait(i);
      Must(ends[i].Synchronize());
      mine.latency_ns[i] = (Clock::now() - arrival(i)).count();
      ++mine.answered;
    }
  });
  for (std::size_t i = 0; i < ends.size(); ++i) {
    std::this_thread::sleep_until(arrival(i));
    Must(working.stream.BeginRequest(std::max<nanoseconds>(Clock::now() - arrival(i), 0ns)));
    working.Launch(told);
    Must(working.stream.EndRequest());
    Must(working.stream.Record(ends[i]));
    ++submitted;
    submitted.notify_one();
  }
  waiter.join();
  ::pause();
  std::abort();
}

// Sends each request when the previous one has ended and a pause has passed. Never returns: the
// parent ends the process.
[[noreturn]] void ServeLoop(const MixRun& run, std::size_t number, const std::string& socket,
                            MixBoard& board) {
  const MixClient& told = run.clients[number];
  const WorkingClient working(told, socket);
  MixBoard::Client& mine = board.clients[number];
  AwaitMixStart(board);
  for (std::size_t i = 0; i < kRequestsMax; ++i) {
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(told.every_ms));
    const Clock::time_point begun = Clock::now();
    Must(working.stream.BeginRequest(0ns));
    working.Launch(told);
    Must(working.stream.EndRequest());
    Must(working.stream.Synchronize());
    mine.latency_ns[i] = (Clock::now() - begun).count();
    ++mine.answered;
  }
  ::pause();
  std::abort();
}

// Never returns: the parent ends the process.
[[noreturn]] void WorkWithoutEnd(const MixRun& run, std::size_t number, const std::string& socket,
                                 MixBoard& board) {
  const MixClient& told = run.clients[number];
  const WorkingClient working(told, socket);
  AwaitMixStart(board);
  std::deque<Event> ahead;
  for (;;) {
    if (ahead.size() == kStepsAhead) {
      Must(ahead.front().Synchronize());
      ahead.push_back(std::move(ahead.front()));
      ahead.pop_front();
    } else {
      ahead.push_back(Must(working.client.CreateEvent()));
    }
    working.Launch(told);
    Must(working.stream.Record(ahead.back()));
  }
}

ServerProcess StartMixServer(const std::string& policy) {
  return ServerProcess(
      {"--log-level", "warn", "--device", "cpu:0", "--cpu-threads", "1", "--policy", policy});
}

std::string GetText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Returns the number of the client with that name from the output of `ps`.
std::string GetNumber(const ServerProcess& server, const std::string& name) {
  const std::string listed = server.Ctl({"ps", "--columns", "client,name"}).output;
  std::istringstream lines(listed);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, shown;
    if (words >> number >> shown && shown == name) return number;
  }
  throw std::runtime_error("no client " + name + " in:\n" + listed);
}

void Start(ClientProcesses& processes, const MixRun& run, std::size_t number,
           const std::string& socket, MixBoard& board) {
  processes.Start([&, number] {
    switch (run.clients[number].pace) {
      case MixClient::Pace::kOpen:
        ServeArrivals(run, number, socket, board);
      case MixClient::Pace::kLoop:
        ServeLoop(run, number, socket, board);
      case MixClient::Pace::kEndless:
        WorkWithoutEnd(run, number, socket, board);
    }
  });
}

// ---- the clients of the mixes

MixClient Train() {
  return {.name = "train",
          .scheduling_class = SchedulingClass::kLow,
          .target = {},
          .kernels = 10,
          .kernel_ms = 5};
}

MixClient LongTrain() {
  MixClient client = Train();
  client.name = "long";
  client.kernels = 4;
  client.kernel_ms = 25;
  return client;
}

MixClient Serve(std::chrono::milliseconds target) {
  return {.name = "serve",
          .scheduling_class = SchedulingClass::kHigh,
          .target = target,
          .pace = MixClient::Pace::kOpen,
          .arrivals = "poisson",
          .every_ms = 40,
          .kernels = 8,
          .kernel_ms = 1};
}

MixClient Second(std::chrono::milliseconds target, double every_ms) {
  MixClient client = Serve(target);
  client.name = "second";
  client.every_ms = every_ms;
  client.kernels = 5;
  client.kernel_ms = 3;
  return client;
}

MixClient Camera(std::chrono::milliseconds target) {
  MixClient client = Serve(target);
  client.name = "camera";
  client.arrivals = "periodic";
  client.every_ms = 33;
  client.kernels = 4;
  client.kernel_ms = 2;
  return client;
}

MixClient Chat(std::chrono::milliseconds target, double every_ms) {
  MixClient client = Serve(target);
  client.name = "chat";
  client.arrivals = "bursty";
  client.every_ms = every_ms;
  client.kernels = 12;
  return client;
}

MixClient Loop() {
  return {.name = "loop",
          .target = {},
          .pace = MixClient::Pace::kLoop,
          .every_ms = 20,
          .kernels = 6,
          .kernel_ms = 2};
}

MixClient OfNormalClass(MixClient client, std::uint32_t weight) {
  client.scheduling_class = SchedulingClass::kNormal;
  client.weight = weight;
  return client;
}

}  // namespace

MixOutcome RunMix(const MixRun& run) {
  constexpr double kBeforeS = 0.5, kAfterS = 0.5;
  const ServerProcess server = StartMixServer(run.policy);
  const SharedMixBoard board;
  ClientProcesses processes;
  for (std::size_t i = 0; i < run.clients.size(); ++i)
    Start(processes, run, i, server.socket(), *board);
  while (board->ready < static_cast<int>(run.clients.size())) {
    processes.CheckAlive();
    std::this_thread::sleep_for(5ms);
  }
  const ScratchDirectory directory;
  const std::string file = directory.path() + "/profile.json";
  pid_t profiler = -1;
  if (!run.profile_of.empty()) {
    const std::string whom =
        run.profile_of == "--node" ? "--node" : GetNumber(server, run.profile_of);
    profiler = StartProgram({GPUSHARED_CTL, "--socket", server.socket(), "profile", whom, "--out",
                             file, "--seconds", std::to_string(run.seconds + kBeforeS + kAfterS)},
                            file + ".log");
    std::this_thread::sleep_for(std::chrono::duration<double>(kBeforeS));
  }
  const pid_t worker = server.workers().at(0);
  const nanoseconds waited_before = KeptFromCores(worker);
  const Clock::time_point start = Clock::now() + 10ms;
  board->start_ns = start.time_since_epoch().count();
  std::this_thread::sleep_until(
      start + std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(run.seconds)));
  const nanoseconds waited = KeptFromCores(worker) - waited_before;
  processes.CheckAlive();
  MixOutcome outcome;
  outcome.worker_waited = std::chrono::duration<double>(waited).count() / run.seconds;
  for (std::size_t i = 0; i < run.clients.size(); ++i) {
    const MixBoard::Client& client = board->clients[i];
    outcome.latencies.emplace_back();
    for (std::size_t k = 0; k < client.answered; ++k)
      outcome.latencies.back().emplace_back(client.latency_ns[k]);
  }
  if (profiler > 0) {
    int status = 0;
    ::waitpid(profiler, &status, 0);
    if (status != 0) throw std::runtime_error("profile failed: " + GetText(file + ".log"));
    outcome.profile = GetText(file);
  }
  return outcome;
}

std::vector<AdviseMix> AdviseMixes() {
  return {
      {"a server beside training", "priority", {Train()}, Serve(60ms)},
      {"two servers, too much", "priority", {Train(), Serve(25ms)}, Second(60ms, 40)},
      {"training beside a target", "deadline", {OfNormalClass(Serve(60ms), 1)}, Train()},
      {"long kernels, no classes", "fifo", {Serve(30ms)}, LongTrain()},
      {"even shares, tight target",
       "fair",
       {OfNormalClass(Serve(16ms), 1)},
       OfNormalClass(Train(), 1)},
      {"shares of 8 to 1", "fair", {OfNormalClass(Serve(80ms), 8)}, OfNormalClass(Train(), 1)},
      {"in turns, three", "round_robin", {Camera(12ms), Train()}, Chat(400ms, 80)},
      {"four clients",
       "priority",
       {Camera(20ms), Train(), LongTrain()},
       OfNormalClass(Chat(200ms, 50), 1)},
      {"targets that collide",
       "deadline",
       {Chat(30ms, 80), Camera(20ms), Train()},
       Second(40ms, 75)},
      {"a loop below a server", "priority", {Loop(), Train()}, Serve(60ms)},
  };
}

}  // namespace gpushared::testing
