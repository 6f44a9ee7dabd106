// SPDX-License-Identifier: Apache-2.0
#include "server/platform/successor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>

#include "ipc/unique_fd.h"
#include "ipc/wire/channel.h"
#include "server/config/config_values.h"

namespace gpushared::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kAnswerBytesMax = 4096;

Status CheckFailed(const std::string& program, const std::string& what) {
  return {StatusCode::kInternal, "'" + program + "' " + what};
}

// `output` becomes the program's stdout and stderr.
Result<pid_t> SpawnCheck(const std::string& program, const std::vector<std::string>& arguments,
                         int output) {
  std::vector<std::string> copies = {"gpushared", kCheckOption};
  copies.insert(copies.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(copies.size() + 1);
  for (std::string& each : copies) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  int error = ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (error == 0) error = ::posix_spawn_file_actions_adddup2(&actions, output, fd);
  }
  pid_t pid = -1;
  if (error == 0) {
    error = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, pointers.data(), environ);
  }
  ::posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return pid;
  return CheckFailed(program, "cannot be started: " + std::generic_category().message(error));
}

// Reads until end of file. Returns false if that took too long or the text is too long.
bool ReadToEnd(int fd, std::string& text, steady_clock::time_point deadline) {
  while (text.size() < kAnswerBytesMax) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    pollfd polled{fd, POLLIN, 0};
    const int ready = ::poll(&polled, 1, static_cast<int>(std::max<long>(0, left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    std::array<char, 512> bytes;
    const ssize_t got = ::read(fd, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    text.append(bytes.data(), static_cast<std::size_t>(got));
  }
  return false;
}

}  // namespace

std::string ProgramPath() {
  std::array<char, 4096> path;
  const ssize_t bytes = ::readlink("/proc/self/exe", path.data(), path.size());
  if (bytes <= 0 || static_cast<std::size_t>(bytes) >= path.size()) return "";
  return {path.data(), static_cast<std::size_t>(bytes)};
}

std::string SuccessorAnswer(const std::string& version) {
  return "gpushared channel " + std::to_string(ipc::kChannelVersion) + " version " + version + "\n";
}

Result<std::string> CheckSuccessor(const std::string& program,
                                   const std::vector<std::string>& arguments,
                                   milliseconds wait_max) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return CheckFailed(program, "cannot be asked");
  const ipc::UniqueFd output(ends[0]);
  ipc::UniqueFd input(ends[1]);
  const Result<pid_t> pid = SpawnCheck(program, arguments, input.get());
  input.Reset();
  if (!pid.ok()) return pid.status();
  std::string text;
  const bool is_whole = ReadToEnd(output.get(), text, steady_clock::now() + wait_max);
  if (!is_whole) ::kill(*pid, SIGKILL);
  int status = 0;
  while (::waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!is_whole) {
    return CheckFailed(program, "does not report in a line, within " + FormatDuration(wait_max) +
                                    ", whether it can take over");
  }
  while (text.ends_with('\n')) text.pop_back();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::ranges::replace(text, '\n', ' ');
    return CheckFailed(program, "rejects: " + Escaped(text, 1024));
  }
  std::string expected = SuccessorAnswer("");
  expected.pop_back();
  if (text.starts_with(expected)) return Escaped(text.substr(expected.size()), 64);
  return Status(StatusCode::kVersionMismatch, "'" + program + "' says '" + Escaped(text, 256) +
                                                  "', the running workers need '" + expected +
                                                  "...'");
}

}  // namespace gpushared::server
