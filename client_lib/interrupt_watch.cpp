// SPDX-License-Identifier: Apache-2.0
#include "client_lib/interrupt_watch.h"

#include <signal.h>

#include <atomic>

#include "gpushared/mutex.h"

namespace gpushared::client {
namespace {

using Handler = void (*)(int);
using InfoHandler = void (*)(int, siginfo_t*, void*);

// These variables are global, because a process has one SIGINT handler. They are atomic and without
// destructors, because the handler accesses them.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<std::uint32_t> interrupts{0};
std::atomic<Handler> programs_handler{nullptr};
// Null if the program's handler was installed without SA_SIGINFO.
std::atomic<InfoHandler> programs_info_handler{nullptr};
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

void OnInterrupt(int number, siginfo_t* info, void* context) {
  interrupts.fetch_add(1, std::memory_order_relaxed);
  if (const InfoHandler with_info = programs_info_handler.load(std::memory_order_relaxed)) {
    with_info(number, info, context);
  } else if (const Handler plain = programs_handler.load(std::memory_order_relaxed)) {
    plain(number);
  }
}

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == OnInterrupt;
}

// Installs our handler in front of the program's when the first watch begins, and removes it when
// the last watch ends.
class Chain {
 public:
  void Join() {
    const MutexLock lock(mutex_);
    if (watches_++ > 0) return;
    struct sigaction now {};
    if (::sigaction(SIGINT, nullptr, &now) != 0 || IsOurs(now)) return;
    const bool has_info = (now.sa_flags & SA_SIGINFO) != 0;
    if (!has_info && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)) return;
    before_ = now;
    programs_info_handler.store(has_info ? now.sa_sigaction : nullptr, std::memory_order_relaxed);
    programs_handler.store(has_info ? nullptr : now.sa_handler, std::memory_order_relaxed);
    struct sigaction ours = now;
    ours.sa_sigaction = OnInterrupt;
    ours.sa_flags |= SA_SIGINFO;
    (void)::sigaction(SIGINT, &ours, nullptr);
  }

  void Leave() {
    const MutexLock lock(mutex_);
    if (--watches_ > 0) return;
    struct sigaction now {};
    if (::sigaction(SIGINT, nullptr, &now) == 0 && IsOurs(now)) {
      (void)::sigaction(SIGINT, &before_, nullptr);
    }
  }

 private:
  Mutex mutex_;
  std::uint32_t watches_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  // The program's handler. Valid while our handler is installed.
  struct sigaction before_ GPUSHARED_GUARDED_BY(mutex_) {};
};

Chain& TheChain() {
  // Never destroyed, because threads may wait while the program's static objects are destroyed.
  static Chain* const kChain = new Chain;
  return *kChain;
}

}  // namespace

InterruptWatch::InterruptWatch(bool is_wanted) : is_wanted_(is_wanted) {
  if (!is_wanted_) return;
  TheChain().Join();
  seen_ = interrupts.load(std::memory_order_relaxed);
}

InterruptWatch::~InterruptWatch() {
  if (is_wanted_) TheChain().Leave();
}

bool InterruptWatch::HasCome() const {
  return is_wanted_ && interrupts.load(std::memory_order_relaxed) != seen_;
}

}  // namespace gpushared::client
