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

// Now, as processes of one machine tell each other: nanoseconds of the steady clock.
std::int64_t NowNs();

// One T in memory that this process and its children share. T's destructor never runs.
//
// Thread-compatible; T says who may write what.
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

// Child processes that run functions of this program. Each ends with the object, or with this
// process, whichever ends first.
//
// Thread-compatible; for a process with one thread, since it forks.
class Processes {
 public:
  Processes() = default;
  ~Processes() { End(); }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Runs `body` in a child, as user `uid` when this process is root, else as its own user.
  // The child exits when `body` returns.
  void Start(std::optional<uid_t> uid, const std::function<void()>& body);
  // Kills them and waits for their end, at most kEndPatience.
  void End();
  // Sum of their resident memory.
  std::uint64_t ResidentBytes() const;
  // Processor time that those have used which still run.
  std::chrono::nanoseconds ProcessorTime() const;

  static constexpr std::chrono::seconds kEndPatience{20};

 private:
  std::vector<pid_t> pids_;
};

// Children, their children and so on; without `pid` itself.
std::vector<pid_t> GetDescendants(pid_t pid);
// 0 for a process that is gone.
std::uint64_t ResidentBytes(pid_t pid);
// Open descriptors; 0 for a process that is gone.
std::uint64_t OpenDescriptors(pid_t pid);

// A limit on the memory of the processes that join it, where this machine lets us set one
// (cgroup v1 or v2, writable). Gone with the object; its processes must have ended by then.
//
// Thread-compatible.
class MemoryCage {
 public:
  explicit MemoryCage(std::uint64_t bytes);
  ~MemoryCage();
  MemoryCage(const MemoryCage&) = delete;
  MemoryCage& operator=(const MemoryCage&) = delete;

  // Why there is no limit; empty when there is one.
  const std::string& rejection() const { return rejection_; }
  // Puts the calling process into the cage. Nothing without a limit.
  void Join() const;
  // How many processes the kernel killed for memory. 0 where the kernel does not say.
  std::uint64_t Kills() const;

 private:
  bool is_second_version_ = false;
  std::string directory_, rejection_;
};

}  // namespace gpushared::storms

#endif  // GPUSHARED_TESTS_HOSTILE_STORMS_PROCESSES_H_
