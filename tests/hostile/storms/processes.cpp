// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/storms/processes.h"

#include <dirent.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

namespace gpushared::storms {
namespace {

using namespace std::chrono_literals;

// Needs root. Drops supplementary groups, too, because access rules consider them.
bool BecomeUser(uid_t uid) {
  return ::setgroups(0, nullptr) == 0 && ::setgid(uid) == 0 && ::setuid(uid) == 0;
}

std::string WordAfter(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (word == key && file >> word) return word;
  }
  return "";
}

bool Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return static_cast<bool>(file);
}

}  // namespace

std::int64_t NowNs() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Processes::Start(std::optional<uid_t> uid, const std::function<void()>& body) {
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("no further process");
  if (pid > 0) {
    pids_.push_back(pid);
    return;
  }
  ::signal(SIGPIPE, SIG_IGN);
  if (uid && ::geteuid() == 0 && !BecomeUser(*uid)) ::_exit(99);
  // Set after the change of user, because that clears the parent-death signal.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(98);
  body();
  ::_exit(0);
}

void Processes::End() {
  for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
  const auto end = std::chrono::steady_clock::now() + kEndPatience;
  for (const pid_t pid : pids_) {
    while (::waitpid(pid, nullptr, WNOHANG) == 0 && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(1ms);
  }
  pids_.clear();
}

std::uint64_t Processes::ResidentBytes() const {
  std::uint64_t bytes = 0;
  for (const pid_t pid : pids_) bytes += storms::ResidentBytes(pid);
  return bytes;
}

std::chrono::nanoseconds Processes::ProcessorTime() const {
  std::chrono::nanoseconds time{0};
  for (const pid_t pid : pids_) {
    clockid_t clock{};
    timespec used{};
    if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &used) != 0) continue;
    time += std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
  }
  return time;
}

std::vector<pid_t> GetDescendants(pid_t pid) {
  std::vector<pid_t> found;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  DIR* const directory = ::opendir(tasks.c_str());
  if (directory == nullptr) return found;
  while (const dirent* const entry = ::readdir(directory)) {
    if (entry->d_name[0] == '.') continue;
    std::ifstream file(tasks + "/" + entry->d_name + "/children");
    std::copy(std::istream_iterator<pid_t>(file), std::istream_iterator<pid_t>(),
              std::back_inserter(found));
  }
  ::closedir(directory);
  const std::vector<pid_t> children = found;
  for (const pid_t child : children) {
    const std::vector<pid_t> further = GetDescendants(child);
    found.insert(found.end(), further.begin(), further.end());
  }
  return found;
}

std::uint64_t ResidentBytes(pid_t pid) {
  const std::string kib = WordAfter("/proc/" + std::to_string(pid) + "/status", "VmRSS:");
  return kib.empty() ? 0 : std::stoull(kib) * 1024;
}

std::uint64_t OpenDescriptors(pid_t pid) {
  DIR* const directory = ::opendir(("/proc/" + std::to_string(pid) + "/fd").c_str());
  if (directory == nullptr) return 0;
  std::uint64_t count = 0;
  while (const dirent* const entry = ::readdir(directory)) count += entry->d_name[0] != '.';
  ::closedir(directory);
  return count;
}

MemoryCage::MemoryCage(std::uint64_t bytes) {
  const std::string first = "/sys/fs/cgroup/memory", second = "/sys/fs/cgroup";
  is_second_version_ = ::access((first + "/tasks").c_str(), F_OK) != 0;
  std::string directory = (is_second_version_ ? second : first) + "/gpushared-storm-XXXXXX";
  if (::mkdtemp(directory.data()) == nullptr) {
    rejection_ = "no memory cgroup can be made here: " + directory;
    return;
  }
  directory_ = directory;
  const std::string limit =
      directory_ + (is_second_version_ ? "/memory.max" : "/memory.limit_in_bytes");
  if (!Write(limit, std::to_string(bytes)))
    rejection_ = "no memory limit can be set here: " + limit;
}

MemoryCage::~MemoryCage() {
  if (directory_.empty()) return;
  // Retries, because the directory cannot be removed while processes that were killed a moment ago
  // are exiting.
  for (int i = 0; i < 200 && ::rmdir(directory_.c_str()) != 0; ++i)
    std::this_thread::sleep_for(10ms);
}

void MemoryCage::Join() const {
  if (rejection_.empty()) (void)Write(directory_ + "/cgroup.procs", std::to_string(::getpid()));
}

std::uint64_t MemoryCage::Kills() const {
  if (directory_.empty()) return 0;
  const std::string file =
      directory_ + (is_second_version_ ? "/memory.events" : "/memory.oom_control");
  const std::string count = WordAfter(file, "oom_kill");
  return count.empty() ? 0 : std::stoull(count);
}

}  // namespace gpushared::storms
