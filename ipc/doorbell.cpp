// SPDX-License-Identifier: Apache-2.0
#include "ipc/doorbell.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <system_error>

namespace gpushared::ipc {

FutexResult FutexWait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                      std::chrono::nanoseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  timespec wait{};
  wait.tv_sec = static_cast<time_t>(seconds.count());
  wait.tv_nsec = static_cast<long>((timeout - seconds).count());
  // Without FUTEX_PRIVATE_FLAG, because the kernel must identify the futex by the page of the file,
  // not the address in this process.
  const long result = ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &wait, nullptr, 0);
  return result == -1 && errno == ETIMEDOUT ? FutexResult::kTimedOut : FutexResult::kWokenOrChanged;
}

std::uint32_t FutexWake(const std::atomic<std::uint32_t>* word, std::uint32_t count) {
  const long woken = ::syscall(SYS_futex, word, FUTEX_WAKE, count, nullptr, nullptr, 0);
  return woken > 0 ? static_cast<std::uint32_t>(woken) : 0;
}

Result<UniqueFd> MakeDoorbell() {
  UniqueFd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd.valid()) {
    return Status(StatusCode::kInternal,
                  "no eventfd for the doorbell: " + std::generic_category().message(errno));
  }
  return fd;
}

unsigned UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<unsigned>(CPU_COUNT(&set));
}

void ClientDoorbell::Wake() {
  const std::uint64_t one = 1;
  // EAGAIN means that the counter is full, so the worker is being woken already. A valid descriptor
  // causes no other errors, and an invalid one affects only this client.
  while (::write(eventfd_, &one, sizeof one) == -1 && errno == EINTR) {
  }
}

}  // namespace gpushared::ipc
