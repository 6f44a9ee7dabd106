// SPDX-License-Identifier: Apache-2.0
#include "server/modules/loader/child_job.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "server/device/prepare.h"
#include "server/modules/loader/child.h"

namespace gpushared::loader {
namespace {

using Clock = std::chrono::steady_clock;
using End = JobOutcome::End;

constexpr std::chrono::milliseconds kPollEvery{10};

Status Rejected(StatusCode code, const std::string& why) {
  return {code, "module rejected: " + why};
}

std::chrono::nanoseconds GetProcessorTime(pid_t pid) {
  clockid_t clock = 0;
  timespec time = {};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Waits until the child has ended, its time has expired, or the job is abandoned.
End Watch(const Child& child, const JobLimits& limits, int abandoned) {
  const Clock::time_point until = Clock::now() + limits.wall;
  for (;;) {
    std::array<pollfd, 2> waiting = {{{.fd = child.pidfd(), .events = POLLIN, .revents = 0},
                                      {.fd = abandoned, .events = POLLIN, .revents = 0}}};
    const int ready = ::poll(waiting.data(), waiting.size(), static_cast<int>(kPollEvery.count()));
    if (ready < 0) continue;
    if (waiting[0].revents != 0) return End::kDone;
    if (waiting[1].revents != 0) return End::kAbandoned;
    if (Clock::now() >= until || GetProcessorTime(child.pid()) >= limits.time) return End::kTime;
  }
}

// The mapped result. The child has exited, so this process has the only descriptor.
class Mapping {
 public:
  explicit Mapping(int fd, std::uint64_t most) {
    struct stat about = {};
    constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    // Adding the seals fails if another process could still write to the file.
    if (::fcntl(fd, F_ADD_SEALS, kSeals) != 0 || ::fstat(fd, &about) != 0) return;
    const auto bytes = static_cast<std::uint64_t>(std::max<off_t>(about.st_size, 0));
    if (bytes < sizeof(ResultHeader) || bytes > most) return;
    void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at != MAP_FAILED) bytes_ = {static_cast<const std::byte*>(at), bytes};
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

// Reads the child's status: printable text and a code that is allowed for a rejection.
Status TakeRejection(const ResultHeader& header, std::span<const std::byte> text) {
  constexpr std::size_t kTextBytesMax = 4096;
  std::string message(reinterpret_cast<const char*>(text.data()),
                      std::min(text.size(), kTextBytesMax));
  std::ranges::replace_if(
      message, [](char c) { return c < ' ' || c > '~'; }, '?');
  const auto code = static_cast<StatusCode>(header.code);
  for (const StatusCode known : {StatusCode::kInvalidArgument, StatusCode::kUnsupported,
                                 StatusCode::kLimitExceeded, StatusCode::kOutOfMemory}) {
    if (code == known) return {known, message};
  }
  return {StatusCode::kInternal, message};
}

JobOutcome TakeResult(const device::ModuleRecipe& recipe, int output, std::uint64_t most) {
  const auto wrong = [] {
    return JobOutcome{End::kCrashed,
                      Rejected(StatusCode::kInternal, "its reader wrote no valid result")};
  };
  const Mapping result(output, most);
  if (result.bytes().empty()) return wrong();
  ResultHeader header;
  std::memcpy(&header, result.bytes().data(), sizeof header);
  const auto content = result.bytes().subspan(sizeof header);
  if (header.done != ResultHeader::kDone || header.bytes > content.size()) return wrong();
  const auto bytes = content.first(static_cast<std::size_t>(header.bytes));
  if (header.code == 0) {
    auto module = device::TakePrepared(recipe, bytes);
    const bool is_wrong = !module.ok() && module.status().code() == StatusCode::kInvalidArgument;
    return {is_wrong ? End::kCrashed : End::kDone, std::move(module)};
  }
  const auto code = static_cast<StatusCode>(header.code);
  const bool beyond = code == StatusCode::kLimitExceeded;
  return {beyond ? End::kMemory : End::kDone, TakeRejection(header, bytes)};
}

Status WhyDied(int status, const JobLimits& limits) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    return Rejected(StatusCode::kLimitExceeded,
                    "the machine had no memory left to read it, allowed: " +
                        std::to_string(limits.memory_bytes / kMiB) + " MiB");
  }
  return Rejected(StatusCode::kInternal,
                  WIFSIGNALED(status)
                      ? "reading it crashed with signal " + std::to_string(WTERMSIG(status))
                      : "its reader ended with code " + std::to_string(WEXITSTATUS(status)));
}

}  // namespace

JobLimits LongestJob(const LoadLimit& limit) {
  const auto time = std::chrono::ceil<std::chrono::milliseconds>(limit.time);
  return {.time = time,
          .wall = 6 * time,
          .memory_bytes = limit.memory_bytes,
          .output_bytes = limit.memory_bytes / 2,
          .niceness = 19};
}

JobOutcome RunJob(LoaderProcess& loader, const device::ModuleRecipe& recipe, int image,
                  std::uint64_t image_bytes, const JobLimits& limits, int abandoned) {
  const ipc::UniqueFd output(::memfd_create("gpushared module", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!output.valid()) {
    return {End::kCrashed, Rejected(StatusCode::kInternal, std::generic_category().message(errno))};
  }
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(limits.time);
  Result<Child> child = loader.Make({.recipe = recipe,
                                     .image_bytes = image_bytes,
                                     .memory_bytes = limits.memory_bytes,
                                     .output_bytes = limits.output_bytes,
                                     .seconds = static_cast<std::uint32_t>(seconds.count()),
                                     .niceness = limits.niceness},
                                    image, output.get());
  if (!child) return {End::kCrashed, child.status()};
  const End end = Watch(*child, limits, abandoned);
  if (end != End::kDone) child->Kill();
  const int status = child->Await();
  if (end == End::kAbandoned) {
    return {end, Rejected(StatusCode::kCancelled, "its caller no longer waits")};
  }
  if (end == End::kTime || (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)) {
    const auto wall = std::chrono::ceil<std::chrono::seconds>(limits.wall);
    return {End::kTime, Rejected(StatusCode::kLimitExceeded,
                                 "reading it took more than " + std::to_string(seconds.count()) +
                                     " s of processor time, or " + std::to_string(wall.count()) +
                                     " s by the clock, its limits" + std::string(kRaisedBy))};
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    return {killed ? End::kMemory : End::kCrashed, WhyDied(status, limits)};
  }
  return TakeResult(recipe, output.get(), limits.output_bytes);
}

}  // namespace gpushared::loader
