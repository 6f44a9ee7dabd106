// SPDX-License-Identifier: Apache-2.0
#include "server/modules/loader/child.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/device/prepare.h"
#include "server/modules/compile/call_filter.h"
#include "server/modules/loader/load_limit.h"

namespace gpushared::loader {
namespace {

constexpr int kImageFd = 3;
constexpr int kOutputFd = 4;
constexpr int kNotConfined = 126;

// ---- a child

void Limit(__rlimit_resource resource, std::uint64_t value, std::uint64_t most) {
  const rlimit limit = {.rlim_cur = value, .rlim_max = most};
  if (::setrlimit(resource, &limit) != 0) ::_exit(kNotConfined);
}

// Address space that the process already uses.
std::uint64_t OwnBytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0;
  file >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Allows only memory management, reading the module, writing the result, and exiting. Mapping
// further code is denied.
void ForbidCalls() {
  compile::CallFilter filter;
  for (const int call : {SYS_exit, SYS_exit_group, SYS_pread64, SYS_write, SYS_pwrite64, SYS_brk,
                         SYS_munmap, SYS_mremap, SYS_futex, SYS_rt_sigreturn, SYS_rt_sigprocmask,
                         SYS_clock_gettime, SYS_getpid, SYS_gettid, SYS_restart_syscall}) {
    filter.Allow(static_cast<unsigned>(call));
  }
  filter.DenyWhere(SYS_mmap, 2, PROT_EXEC, PROT_EXEC);
  // Root could take pages offline. MADV_SOFT_OFFLINE (101) is missing in glibc's header.
  for (const std::uint32_t advice : {std::uint32_t{MADV_HWPOISON}, std::uint32_t{101}}) {
    filter.DenyWhere(SYS_madvise, 2, ~std::uint32_t{0}, advice);
  }
  filter.Allow(SYS_madvise);
  filter.DenyWhere(SYS_mprotect, 2, PROT_EXEC, PROT_EXEC);
  filter.Allow(SYS_mmap);
  filter.Allow(SYS_mprotect);
  // abort() signals its own process.
  filter.AllowOnlyWhere(SYS_tgkill, 0, static_cast<std::uint32_t>(::getpid()));
  if (!filter.EnterStrictly()) ::_exit(kNotConfined);
}

void Confine(const JobRequest& job, std::uint64_t own_bytes) {
  Limit(RLIMIT_CPU, job.seconds, job.seconds + 1);
  Limit(RLIMIT_FSIZE, job.output_bytes, job.output_bytes);
  Limit(RLIMIT_CORE, 0, 0);
#ifndef GPUSHARED_HAS_SHADOW  // Sanitizers reserve terabytes.
  Limit(RLIMIT_AS, own_bytes + job.memory_bytes, own_bytes + job.memory_bytes);
#else
  (void)own_bytes;
#endif
  ForbidCalls();
}

void WriteAt(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(kOutputFd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw std::length_error("output");
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

// Returns the status, and the number of bytes written after the header.
Status Prepare(const JobRequest& job, std::uint64_t* written) {
  const auto bytes = static_cast<std::size_t>(job.image_bytes);
  void* const image =
      bytes == 0 ? nullptr : ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, kImageFd, 0);
  if (image == MAP_FAILED) throw std::bad_alloc();
  device::FlatWriter to([&](std::span<const std::byte> piece) {
    WriteAt(sizeof(ResultHeader) + *written, piece);
    *written += piece.size();
  });
  Status status =
      device::PrepareModule(job.recipe, {static_cast<const std::byte*>(image), bytes}, to);
  if (status.ok()) to.Flush();
  return status;
}

[[noreturn]] void DoJob(const JobRequest& job) {
  std::uint64_t written = 0;
  Status status;
  try {
    status = Prepare(job, &written);
  } catch (const std::bad_alloc&) {
    status = {StatusCode::kLimitExceeded, "module rejected: reading it takes more than " +
                                              std::to_string(job.memory_bytes / kMiB) +
                                              " MiB of memory, its limit" + std::string(kRaisedBy)};
  } catch (const std::length_error&) {
    status = {StatusCode::kLimitExceeded, "module rejected: its decoded form has more than " +
                                              std::to_string(job.output_bytes / kMiB) +
                                              " MiB, its limit" + std::string(kRaisedBy)};
  } catch (const std::exception& error) {
    status = {StatusCode::kInternal, "module rejected: " + std::string(error.what())};
  }
  ResultHeader header = {.done = ResultHeader::kDone,
                         .code = static_cast<std::uint32_t>(status.code()),
                         .bytes = written};
  if (!status.ok()) {
    header.bytes = status.message().size();
    WriteAt(sizeof header, std::as_bytes(std::span(status.message())));
  }
  WriteAt(0, std::as_bytes(std::span(&header, 1)));
  ::_exit(0);
}

[[noreturn]] void RunChild(const JobRequest& job, int image, int output, std::uint64_t own_bytes) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int high_image = ::fcntl(image, F_DUPFD, 10), high_output = ::fcntl(output, F_DUPFD, 10);
  if (::dup2(high_image, kImageFd) < 0 || ::dup2(high_output, kOutputFd) < 0 ||
      ::syscall(SYS_close_range, kOutputFd + 1, ~0U, 0) != 0) {
    ::_exit(kNotConfined);
  }
  errno = 0;
  (void)::nice(static_cast<int>(job.niceness));
  Confine(job, own_bytes);
  try {
    DoJob(job);
  } catch (...) {  // Even the error message could not be made or written.
    ::_exit(1);
  }
}

// ---- the loader itself

struct Received {
  JobRequest job;
  std::array<int, 2> fds = {-1, -1};
};

// Returns false if the worker has exited or sent an invalid request.
bool Receive(Received* received) {
  iovec bytes = {.iov_base = &received->job, .iov_len = sizeof received->job};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof received->fds)> control;
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t count = 0;
  do {
    count = ::recvmsg(kLoaderChannelFd, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (count != sizeof received->job || header == nullptr ||
      header->cmsg_len != CMSG_LEN(sizeof received->fds)) {
    return false;
  }
  std::memcpy(received->fds.data(), CMSG_DATA(header), sizeof received->fds);
  return true;
}

// Sets up what children inherit: no new privileges, separate namespaces if the kernel permits, and
// the highest priority for the OOM killer.
void PrepareProcess() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  (void)::syscall(SYS_close_range, kLoaderChannelFd + 1, ~0U, 0);
  // With SIGXFSZ ignored, writing a result that is too large fails with an error instead of a fatal
  // signal.
  ::signal(SIGXFSZ, SIG_IGN);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) ::signal(signal, SIG_DFL);
  std::ofstream("/proc/self/oom_score_adj") << "1000\n";
  // Resets the scheduling policy inherited from the starting thread, so that readers do not compete
  // with the device's threads.
  const sched_param none = {};
  (void)::sched_setscheduler(0, SCHED_OTHER, &none);
  (void)::setpriority(PRIO_PROCESS, 0, std::max(::getpriority(PRIO_PROCESS, 0), 0));
  (void)::unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC);
}

// Initializes lazily created tables once, instead of in every child.
void Warm() {
  constexpr std::string_view kNothing =
      ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n";
  device::FlatWriter to([](auto) {});
  (void)device::PrepareModule({.passes = {}, .range_bytes = std::uint64_t{4} << 30},
                              std::as_bytes(std::span(kNothing)), to);
}

}  // namespace

int RunLoader() {
  PrepareProcess();
  Warm();
  const std::uint64_t own_bytes = OwnBytes();
  for (Received received; Receive(&received); received = {}) {
    // CLONE_PARENT makes the worker the child's parent, so the worker can wait for it. The child
    // may call anything, as after fork, because it shares no memory with this process, and this
    // process has a single thread.
    const long child = ::syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, 0);
    if (child == 0) RunChild(received.job, received.fds[0], received.fds[1], own_bytes);
    const auto answer = static_cast<std::int32_t>(child < 0 ? -errno : child);
    for (const int fd : received.fds) ::close(fd);
    if (::send(kLoaderChannelFd, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer) break;
  }
  return 0;
}

}  // namespace gpushared::loader
