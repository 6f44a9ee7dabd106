// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/storms/server_under_test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "gpushared/client.h"

namespace gpushared::storms {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::seconds kStartPatience{30}, kStopPatience{3}, kKillPatience{20};

template <typename Condition>
bool Eventually(Condition condition, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

[[noreturn]] void Become(const std::vector<std::string>& command, const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::dup2(file, STDOUT_FILENO);
  ::dup2(file, STDERR_FILENO);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace

ServerUnderTest::ServerUnderTest(const std::string& program,
                                 const std::vector<std::string>& arguments,
                                 std::uint64_t memory_limit_bytes)
    : cage_(memory_limit_bytes), socket_(directory_ / "socket") {
  // Clients of other users can reach the socket, but no other file in the directory.
  ::chmod(directory_.path().c_str(), 0711);
  std::vector<std::string> command = {program, "--socket", socket_, "--device", "cpu:0"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("no process for the server");
  if (pid_ == 0) {
    cage_.Join();
    Become(command, directory_ / "log");
  }
  const ClientOptions first = {.name = "first", .socket = socket_, .control_timeout = 5s};
  const auto answers = [&] { return Client::Connect(first).ok(); };
  if (Eventually(answers, kStartPatience)) return;
  const std::string log = LogTail(4096);
  Stop();
  throw std::runtime_error(program + " does not answer:\n" + log);
}

ServerUnderTest::~ServerUnderTest() { Stop(); }

void ServerUnderTest::Stop() {
  const std::vector<pid_t> others = GetDescendants(pid_);
  const auto ended = [&] {
    ::kill(pid_, SIGTERM);
    return ::waitpid(pid_, nullptr, WNOHANG) != 0;
  };
  if (!Eventually(ended, kStopPatience)) {
    ::kill(pid_, SIGKILL);
    (void)Eventually([&] { return ::waitpid(pid_, nullptr, WNOHANG) != 0; }, kKillPatience);
  }
  for (const pid_t pid : others) ::kill(pid, SIGKILL);
}

bool ServerUnderTest::IsBrokerAlive() const { return ResidentBytes(pid_) != 0; }

pid_t ServerUnderTest::Worker() const {
  std::ifstream children("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) +
                         "/children");
  pid_t first = 0;
  children >> first;
  return first;
}

Holdings ServerUnderTest::Measure() const {
  Holdings holdings{.broker_bytes = ResidentBytes(pid_),
                    .broker_descriptors = OpenDescriptors(pid_)};
  for (const pid_t pid : GetDescendants(pid_)) {
    holdings.workers_bytes += ResidentBytes(pid);
    holdings.workers_descriptors += OpenDescriptors(pid);
  }
  return holdings;
}

std::uint64_t ServerUnderTest::LogBytes() const {
  struct stat facts {};
  return ::stat((directory_ / "log").c_str(), &facts) == 0
             ? static_cast<std::uint64_t>(facts.st_size)
             : 0;
}

std::string ServerUnderTest::LogTail(std::uint64_t bytes) const {
  std::ifstream file(directory_ / "log");
  const std::uint64_t size = LogBytes();
  if (size > bytes) file.seekg(static_cast<std::streamoff>(size - bytes));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace gpushared::storms
