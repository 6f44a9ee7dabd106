// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

namespace gpushared::drop_in {
namespace {

int OpenLog() {
  const char* const where = std::getenv("GPUSHARED_LOG");
  if (where == nullptr || *where == '\0') return -1;
  const std::string_view name = where;
  if (name == "1" || name == "stderr") return STDERR_FILENO;
  return ::open(where, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

// Returns -1 if there is no log.
int LogDescriptor() {
  static const int kDescriptor = OpenLog();
  return kDescriptor;
}

// A buffer without a destructor, because programs may call the driver after the thread-local
// objects of their threads are destroyed.
constexpr std::size_t kMessageBytesMax = 1024;
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): each thread has its own.
thread_local char last_message[kMessageBytesMax] = {};

}  // namespace

bool IsLogging() { return LogDescriptor() >= 0; }

void LogLine(std::string_view line) {
  if (!IsLogging()) return;
  const std::string text =
      "gpushared drop-in [pid " + std::to_string(::getpid()) + "]: " + std::string(line) + "\n";
  // A single write, so that lines of several processes do not mix. The line is lost if the disk is
  // full.
  [[maybe_unused]] const ssize_t written = ::write(LogDescriptor(), text.data(), text.size());
}

void ReportUser(std::string_view line, std::atomic<bool>& has_reported) {
  const char* const is_run = std::getenv("GPUSHARED_RUN");
  if (is_run == nullptr || *is_run == '\0') return;
  if (has_reported.exchange(true, std::memory_order_relaxed)) return;
  const std::string text = "gpushared: " + std::string(line) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

Code Reject(Code code, std::string_view message) {
  if (IsLogging()) {
    last_message[message.copy(last_message, kMessageBytesMax - 1)] = '\0';
  }
  return code;
}

std::string TakeMessage() {
  std::string message = last_message;
  last_message[0] = '\0';
  return message;
}

}  // namespace gpushared::drop_in
