// SPDX-License-Identifier: Apache-2.0
// The costs of a client of a real server: submission, null launches, many clients, idling, how soon
// a killed client is removed, and the cost of the drop-in compared with the client library.
// system_bench [--json FILE]

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gpushared/client.h"

#include "ipc/unix_socket.h"
#include "ipc/wire/control.h"
#include "tests/bench/drop_in_cost.h"
#include "tests/bench/report.h"
#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "system_bench: %s\n", result.status().ToString().c_str());
    std::exit(1);
  }
  return std::move(result).value();
}
void Must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "system_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

// A client with one almost empty kernel.
struct NullClient {
  explicit NullClient(const std::string& socket)
      : client(Must(Client::Connect({.name = "bench", .socket = socket}))),
        kernel(Must(Must(client.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS)).GetKernel("step"))),
        out(Must(client.AllocateDevice(4))),
        stream(client.default_stream()) {}
  void Launch() const { Must(stream.Launch(kernel, {}, out, 0)); }

  Client client;
  Kernel kernel;
  DeviceBuffer out;
  Stream stream;
};

double CpuSeconds(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

// Queries the live sessions directly from the broker, because a gpusharedctl process would take
// longer to start than the measured time.
std::size_t Sessions(const std::string& socket_path) {
  const auto deadline = Clock::now() + 5s;
  const ipc::UniqueFd socket = Must(ipc::ConnectUnix(socket_path, deadline));
  Must(ipc::SendMessage(socket.get(), 1, ipc::Admin{.verb = ipc::AdminVerb::kClients}, deadline));
  ipc::AdminReply page{.is_last = false};
  std::string text;
  while (!page.is_last) {
    page = Must(ipc::DecodeReply<ipc::AdminReply>(
        Must(ipc::ReceiveFrame(socket.get(), ipc::ServerFrameRules, deadline))));
    text += page.text;
  }
  std::size_t count = 0;
  for (std::size_t at = text.find("\"pid\""); at != std::string::npos;
       at = text.find("\"pid\"", at + 1))
    ++count;
  return count;
}

// Waits until the server has ended all sessions, which happens a moment after their clients have
// left, so that they do not affect the next part.
void WaitForNoSessions(const std::string& socket) {
  while (Sessions(socket) > 0) std::this_thread::sleep_for(1ms);
}

// Measures the cost of a launch to its caller: of the first launch of a burst, which wakes the
// sleeping worker; of the others, for which the ring has space; and of a sustained load, where the
// ring is full and the caller runs at the speed of the device.
void SubmitCost(Report& report, const std::string& socket) {
  constexpr int kBursts = 1000, kBurst = 64;
  const NullClient client(socket);
  Samples first, others, whole;
  for (int burst = 0; burst < kBursts; ++burst) {
    std::this_thread::sleep_for(200us);  // The worker goes to sleep.
    const auto begin = Clock::now();
    client.Launch();
    const auto woken = Clock::now();
    for (int i = 1; i < kBurst; ++i) client.Launch();
    const auto end = Clock::now();
    first.Add(woken - begin);
    others.Add(static_cast<double>((end - woken).count()) / (kBurst - 1));
    whole.Add(static_cast<double>((end - begin).count()) / kBurst);
    Must(client.stream.Synchronize());
  }
  report.Add("submit into a sleeping worker (wakes it)", first);
  report.Add("submit with space in the ring, mean of 63", others);
  report.Add("submit, mean of bursts of 64 with the wake-up", whole);

  constexpr int kSustained = 100'000;
  const auto begin = Clock::now();
  for (int i = 0; i < kSustained; ++i) client.Launch();
  report.AddValue("submit, sustained: the ring is full",
                  static_cast<double>((Clock::now() - begin).count()) / kSustained, "ns");
  Must(client.stream.Synchronize());
}

void NullLaunch(Report& report, const std::string& socket) {
  const NullClient client(socket);
  Samples round_trip;
  for (int i = 0; i < 5000; ++i) {
    const auto begin = Clock::now();
    client.Launch();
    Must(client.stream.Synchronize());
    round_trip.Add(Clock::now() - begin);
  }
  report.Add("null launch and synchronise, end to end", round_trip);

  // Measures the baseline of any design with a server process: sending one byte to another process
  // and back over a Unix socket.
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) return;
  const pid_t echo = ::fork();
  if (echo == 0) {
    char byte = 0;
    ::close(pair[0]);
    while (::read(pair[1], &byte, 1) == 1 && ::write(pair[1], &byte, 1) == 1) {
    }
    ::_exit(0);
  }
  ::close(pair[1]);
  Samples socket_round_trip;
  for (int i = 0; i < 5000; ++i) {
    char byte = 0;
    const auto begin = Clock::now();
    if (::write(pair[0], &byte, 1) != 1 || ::read(pair[0], &byte, 1) != 1) break;
    socket_round_trip.Add(Clock::now() - begin);
  }
  ::close(pair[0]);
  ::waitpid(echo, nullptr, 0);
  report.Add("baseline: one byte there and back, Unix seqpacket", socket_round_trip);
}

void ManyClients(Report& report, const std::string& socket, int count) {
  WaitForNoSessions(socket);
  std::vector<std::unique_ptr<NullClient>> clients;
  for (int i = 0; i < count; ++i) clients.push_back(std::make_unique<NullClient>(socket));
  const int launches = 20'000 / count;
  const auto begin = Clock::now();
  std::vector<std::thread> threads;
  for (const auto& client : clients) {
    threads.emplace_back([&client, launches] {
      for (int i = 0; i < launches; ++i) client->Launch();
      Must(client->stream.Synchronize());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  report.AddValue("launches/s through one worker, " + std::to_string(count) + " clients",
                  launches * count / seconds, "1/s");
}

void IdleCpu(Report& report, const ServerProcess& server) {
  WaitForNoSessions(server.socket());
  std::vector<std::unique_ptr<NullClient>> clients;
  for (int i = 0; i < 64; ++i) clients.push_back(std::make_unique<NullClient>(server.socket()));
  const pid_t worker = server.workers().at(0);
  std::this_thread::sleep_for(500ms);
  const double before = CpuSeconds(worker);
  constexpr double kSeconds = 6;
  std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds));
  report.AddValue("CPU of a worker with 64 idle clients",
                  100 * (CpuSeconds(worker) - before) / kSeconds, "% of a core");
}

void CleanUp(Report& report, const std::string& socket) {
  WaitForNoSessions(socket);
  Samples gone;
  for (int i = 0; i < 30; ++i) {
    int ready[2];
    if (::pipe(ready) != 0) return;
    const pid_t child = ::fork();
    if (child == 0) {
      const NullClient client(socket);
      for (int launch = 0; launch < 100; ++launch) client.Launch();
      (void)!::write(ready[1], "x", 1);
      for (;;) client.Launch();
    }
    char byte = 0;
    (void)!::read(ready[0], &byte, 1);
    ::close(ready[0]);
    ::close(ready[1]);
    const auto begin = Clock::now();
    ::kill(child, SIGKILL);
    while (Sessions(socket) > 0) std::this_thread::sleep_for(100us);
    gone.Add(Clock::now() - begin);
    ::waitpid(child, nullptr, 0);
  }
  report.Add("kill -9 of a busy client until its session is gone", gone);
}

void MeasureSystem(Report& report) {
  {
    const ServerProcess server({"--log-level", "warn"});
    SubmitCost(report, server.socket());
    NullLaunch(report, server.socket());
    for (const int count : {1, 8, 64}) ManyClients(report, server.socket(), count);
    IdleCpu(report, server);
    CleanUp(report, server.socket());
  }
  MeasureDropIn(report);  // Last, because no child may be forked once CUDA is initialised.
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  using namespace gpushared::testing;
  return RunReport(argc, argv, "system_bench: clients and a server on the cpu device",
                   MeasureSystem);
}
