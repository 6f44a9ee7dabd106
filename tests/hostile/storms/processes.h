// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_HOSTILE_STORMS_PROCESSES_H_
#define GPUSHARED_TESTS_HOSTILE_STORMS_PROCESSES_H_

#include <sys/mman.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace gpushared::storms {

// Returns nanoseconds of the steady clock, which all processes of the machine share.
std::int64_t NowNs();

// A T in memory that this process and its children share. T's destructor never runs.
//
// Thread-compatible; T defines who may write what.
template <typename T>
class Shared {
 public:
  static_assert(std::is_trivially_destructible_v<T>);
  Shared() {
    void* const memory =
        ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
    value_ = new (memory) T;
  }
  ~Shared() { ::munmap(value_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T* operator->() const { return value_; }
  T& operator*() const { return *value_; }

 private:
  T* value_;
};

// Child processes that run functions of this program. Each ends with the object or with this
// process, whichever ends first.
//
// Thread-compatible; only for a process with one thread, because it forks.
class Processes {
 public:
  Processes() = default;
  ~Processes() { End(); }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Runs `body` in a child, as user `uid` if this process is root, otherwise as its own user. The
  // child exits when `body` returns.
  void Start(std::optional<uid_t> uid, const std::function<void()>& body);
  // Kills the children and waits up to kEndPatience for their end.
  void End();
  // Returns the sum of the children's resident memory.
  std::uint64_t ResidentBytes() const;
  // Returns the processor time of the children that still run.
  std::chrono::nanoseconds ProcessorTime() const;

  static constexpr std::chrono::seconds kEndPatience{20};

 private:
  std::vector<pid_t> pids_;
};

// Returns the children of `pid`, their children and so on.
std::vector<pid_t> GetDescendants(pid_t pid);
// Returns the resident memory of a process; 0 if it has exited.
std::uint64_t ResidentBytes(pid_t pid);
// Returns the number of open descriptors of a process; 0 if it has exited.
std::uint64_t OpenDescriptors(pid_t pid);

// A limit on the memory of the processes that join it, if this machine permits setting one (cgroup
// v1 or v2, writable). Removed by the destructor; its processes must have ended by then.
//
// Thread-compatible.
class MemoryCage {
 public:
  explicit MemoryCage(std::uint64_t bytes);
  ~MemoryCage();
  MemoryCage(const MemoryCage&) = delete;
  MemoryCage& operator=(const MemoryCage&) = delete;

  // The reason why there is no limit; empty if there is one.
  const std::string& rejection() const { return rejection_; }
  // Puts the calling process into the cage. A no-op without a limit.
  void Join() const;
  // Returns how many processes the kernel killed because the limit was reached; 0 if the kernel
  // does not report that.
  std::uint64_t Kills() const;

 private:
  bool is_second_version_ = false;
  std::string directory_, rejection_;
};

}  // namespace gpushared::storms

#endif  // GPUSHARED_TESTS_HOSTILE_STORMS_PROCESSES_H_
