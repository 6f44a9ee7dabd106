// SPDX-License-Identifier: Apache-2.0
#include "server/modules/compile/sandbox.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "ipc/unique_fd.h"
#include "server/modules/compile/call_filter.h"

namespace gpushared::compile {
namespace {

using std::chrono::steady_clock;

constexpr int kInputFd = 3;
constexpr int kOutputFd = 4;
constexpr int kNotStarted = 126;

Status Failed(const std::string& what) {
  return {StatusCode::kInternal,
          "compiler not started: " + what + ": " + std::generic_category().message(errno)};
}

Result<ipc::UniqueFd> MemoryFile(const char* name, std::span<const std::byte> bytes) {
  ipc::UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Failed("memory for it");
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd.get(), bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) return Failed("its input");
    if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return fd;
}

// ---- in the child, between clone and exec: system calls only. The memory is shared with the
// parent, whose calling thread waits while its other threads run. Therefore only this stack and
// errno are written.

bool Limit(__rlimit_resource resource, std::uint64_t value, std::uint64_t most) {
  const rlimit limit = {.rlim_cur = value, .rlim_max = most};
  return ::setrlimit(resource, &limit) == 0;
}

// Forbids writing, creating and removing anything that has a path; memory files have none.
bool ForbidWriting() {
  landlock_ruleset_attr rules = {.handled_access_fs =
                                     LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                                     LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                     LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                                     LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                                     LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM};
  // From Landlock's third version (Linux 6.2); for earlier ones, ForbidCalls denies the same.
  constexpr std::uint64_t kTruncate = std::uint64_t{1} << 14;
  if (::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) >= 3) {
    rules.handled_access_fs |= kTruncate;
  }
  const long ruleset = ::syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
  // Kernels before 5.13 do not support Landlock.
  if (ruleset < 0) return true;
  const bool is_restricted = ::syscall(SYS_landlock_restrict_self, ruleset, 0) == 0;
  ::close(static_cast<int>(ruleset));
  return is_restricted;
}

// System calls that no compiler needs. Denying them supplements namespaces, which are not available
// everywhere, and limits; neither keeps a process from signalling or controlling other processes of
// the same user ID.
constexpr unsigned kForbidden[] = {
    // Access to other processes: memory, signals, scheduling.
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp, SYS_move_pages,
    SYS_migrate_pages, SYS_kill, SYS_tkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
    SYS_sched_setaffinity, SYS_sched_setscheduler, SYS_sched_setparam, SYS_sched_setattr,
    SYS_setpriority, SYS_ioprio_set,
    // Creating children, because each child gets a separate time limit; leaving the process group
    // that is killed; and surviving the parent.
    SYS_fork, SYS_vfork, SYS_setsid, SYS_setpgid, SYS_prctl,
    // Communication and sharing with other processes.
    SYS_socket, SYS_socketpair, SYS_connect, SYS_shmget, SYS_shmat, SYS_shmctl, SYS_semget,
    SYS_semop, SYS_semtimedop, SYS_semctl, SYS_msgget, SYS_msgsnd, SYS_msgrcv, SYS_msgctl,
    SYS_mq_open, SYS_mq_unlink,
    // System administration, and devices whose files are readable.
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_setns, SYS_unshare, SYS_bpf, SYS_perf_event_open,
    SYS_userfaultfd, SYS_add_key, SYS_request_key, SYS_keyctl, SYS_ioctl,
    // File operations not covered by Landlock: times, owners, modes, attributes and locks; before
    // its third version also truncation.
    SYS_truncate, SYS_chmod, SYS_fchmod, SYS_fchmodat, SYS_chown, SYS_fchown, SYS_lchown,
    SYS_fchownat, SYS_utime, SYS_utimes, SYS_futimesat, SYS_utimensat, SYS_setxattr, SYS_lsetxattr,
    SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, SYS_flock,
    // Memory not covered by the limit.
    SYS_memfd_create};

bool ForbidCalls() {
  CallFilter filter;
  // System calls after Linux 5.0, and those with x32 numbers, return ENOSYS. Libraries have
  // fallbacks for those that they use; the others affect other processes and mounts, or may be
  // added in the future.
  constexpr std::uint32_t kFirstNew = SYS_pidfd_send_signal;
  filter.DenyFrom(kFirstNew, ENOSYS);
  for (const unsigned call : kForbidden) filter.Deny(call);
  constexpr std::uint32_t kAll = ~std::uint32_t{0};
  // Allows only threads. Denies clone3, because a filter cannot read its flags; libraries then fall
  // back to clone.
  filter.AllowWhere(SYS_clone, 0, CLONE_THREAD, CLONE_THREAD);
  // abort() signals its own process.
  filter.AllowWhere(SYS_tgkill, 0, kAll, static_cast<std::uint32_t>(::getpid()));
  filter.AllowWhere(SYS_prlimit64, 0, kAll, 0);
  // F_SETOWN would select a process to be signalled when a pipe is readable.
  filter.DenyWhere(SYS_fcntl, 1, kAll, F_SETOWN);
  filter.DenyWhere(SYS_fcntl, 1, kAll, F_SETOWN_EX);
  // Without Landlock's third version, opening a file without write access could still truncate it.
  for (const std::uint32_t access : {std::uint32_t{O_RDONLY}, std::uint32_t{O_ACCMODE}}) {
    filter.DenyWhere(SYS_open, 1, O_ACCMODE | O_TRUNC, access | O_TRUNC);
    filter.DenyWhere(SYS_openat, 2, O_ACCMODE | O_TRUNC, access | O_TRUNC);
  }
  return filter.Enter();
}

struct ChildFds {
  int input, output, text, null;
};

struct ChildTask {
  char* const* arguments;
  ChildFds fds;
  pid_t parent;
  const SandboxLimits& limits;
};

// Resets signal handlers, because a handler would run in the parent's memory.
void DropHandlers() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action = {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    (void)::sigaction(signal, &action, nullptr);
  }
}

bool PlaceDescriptors(ChildFds fds) {
  // Moves descriptors above those that are overwritten next; dup2 then clears the close-on-exec
  // flag.
  for (int* fd : {&fds.input, &fds.output, &fds.text, &fds.null}) {
    *fd = ::fcntl(*fd, F_DUPFD_CLOEXEC, 10);
  }
  const std::array<std::pair<int, int>, 5> places = {{{fds.null, 0},
                                                      {fds.text, 1},
                                                      {fds.text, 2},
                                                      {fds.input, kInputFd},
                                                      {fds.output, kOutputFd}}};
  for (const auto& [from, to] : places) {
    if (::dup2(from, to) < 0) return false;
  }
  return ::syscall(SYS_close_range, kOutputFd + 1, ~0U, 0) == 0;
}

bool SetLimits(const SandboxLimits& limits) {
  const auto seconds = static_cast<std::uint64_t>(limits.time.count());
  // SIGXCPU at the soft limit shows that time ran out; the hard limit kills the process one second
  // later.
  return Limit(RLIMIT_CPU, seconds, seconds + 1) &&
         Limit(RLIMIT_AS, limits.memory_bytes, limits.memory_bytes) &&
         Limit(RLIMIT_FSIZE, limits.output_bytes, limits.output_bytes) &&
         Limit(RLIMIT_CORE, 0, 0) && Limit(RLIMIT_NOFILE, 64, 64);
}

// Returns only if the program could not be started. All signals are blocked at the beginning.
int RunChild(void* of) {
  const ChildTask& task = *static_cast<const ChildTask*>(of);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != task.parent) return kNotStarted;
  DropHandlers();
  ::setpgid(0, 0);
  if (!PlaceDescriptors(task.fds)) return kNotStarted;
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (!SetLimits(task.limits)) return kNotStarted;
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return kNotStarted;
  // Failure is ignored, because many systems do not permit users to create namespaces. The calls
  // that these would isolate are denied below as well.
  (void)::unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC);
  if (!ForbidWriting() || !ForbidCalls()) return kNotStarted;
  char* const environment[] = {nullptr};
  ::execve(task.arguments[0], task.arguments, environment);
  return kNotStarted;
}

// ---- in the parent

// Returns when the child has executed its program or ended; negative if it could not be created.
// Does not use fork, because a worker has mapped tens of GiB for its driver, so fork would copy the
// page tables, write-protect the pages that other threads write to, and run the atfork handlers of
// libraries.
pid_t StartChild(ChildTask& task) {
#ifdef GPUSHARED_HAS_SHADOW  // Sanitizers would attribute the child's calls to its parent.
  constexpr int kHow = CLONE_VFORK | SIGCHLD;
#else
  constexpr int kHow = CLONE_VM | CLONE_VFORK | SIGCHLD;
#endif
  constexpr std::size_t kStackBytes = std::size_t{64} << 10;
  const auto stack = std::make_unique<std::byte[]>(kStackBytes);
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t child = ::clone(RunChild, stack.get() + kStackBytes, kHow, &task);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return child;
}

enum class Ending { kItself, kTime, kAbandoned };

// Reads until the child ends or closes its output, its time has expired, or the caller abandons it.
Ending ReadText(int fd, int abandoned, steady_clock::time_point until, std::size_t most,
                std::string& text) {
  std::array<char, 4096> buffer;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - steady_clock::now());
    if (left.count() <= 0) return Ending::kTime;
    // A negative `abandoned` is fine, because poll ignores negative descriptors.
    std::array<pollfd, 2> waiting = {{{.fd = fd, .events = POLLIN, .revents = 0},
                                      {.fd = abandoned, .events = POLLIN, .revents = 0}}};
    if (::poll(waiting.data(), waiting.size(), static_cast<int>(left.count())) <= 0) continue;
    if (waiting[1].revents != 0) return Ending::kAbandoned;
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count == 0) return Ending::kItself;
    if (count < 0) continue;
    text.append(buffer.data(), std::min(static_cast<std::size_t>(count), most - text.size()));
  }
}

Result<std::vector<std::byte>> ReadAll(int fd, std::uint64_t most) {
  struct stat about = {};
  if (::fstat(fd, &about) != 0 || about.st_size < 0) return Failed("its output");
  const auto bytes = static_cast<std::uint64_t>(about.st_size);
  if (bytes > most) {
    return Status(StatusCode::kLimitExceeded, "compiler rejected: its output has " +
                                                  std::to_string(bytes) +
                                                  " bytes, allowed: " + std::to_string(most));
  }
  std::vector<std::byte> out(bytes);
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count =
        ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(done));
    if (count == 0) break;
    if (count > 0) done += static_cast<std::size_t>(count);
    if (count < 0 && errno != EINTR) return Failed("its output");
  }
  out.resize(done);
  return out;
}

Status WhyEnded(int status, bool in_time, const SandboxLimits& limits) {
  const auto beyond = [](const std::string& what) {
    return Status(StatusCode::kLimitExceeded, "compiler ended: " + what);
  };
  if (!in_time || (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)) {
    return beyond("it ran longer than " + std::to_string(limits.time.count()) +
                  " s, its limit (--load-limit of the server)");
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) {
    return beyond("its output has more than " + std::to_string(limits.output_bytes) + " bytes");
  }
  if (WIFSIGNALED(status)) {
    return {StatusCode::kInternal, "compiler ended: signal " + std::to_string(WTERMSIG(status)) +
                                       ", with at most " + std::to_string(limits.memory_bytes) +
                                       " bytes of memory"};
  }
  if (WEXITSTATUS(status) == kNotStarted) {
    return {StatusCode::kInternal, "compiler not started: its sandbox could not be made"};
  }
  return {};
}

}  // namespace

Result<SandboxResult> RunSandboxed(const std::vector<std::string>& arguments,
                                   std::span<const std::byte> input, const SandboxLimits& limits,
                                   int abandoned) {
  Result<ipc::UniqueFd> in = MemoryFile("gpushared ptx", input);
  if (!in.ok()) return in.status();
  Result<ipc::UniqueFd> out = MemoryFile("gpushared code", {});
  if (!out.ok()) return out.status();
  const ipc::UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  int pipe[2];
  if (::lseek(in->get(), 0, SEEK_SET) != 0 || ::pipe2(pipe, O_CLOEXEC) != 0) {
    return Failed("its descriptors");
  }
  const ipc::UniqueFd text_end(pipe[0]);
  ipc::UniqueFd child_end(pipe[1]);
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments)
    pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);

  ChildTask task = {.arguments = pointers.data(),
                    .fds = {.input = in->get(),
                            .output = out->get(),
                            .text = child_end.get(),
                            .null = null.get()},
                    .parent = ::getpid(),
                    .limits = limits};
  const pid_t child = StartChild(task);
  if (child < 0) return Failed("its process");
  child_end.Reset();
  SandboxResult result;
  // Waits one second longer than the CPU time limit, so that the latter normally ends the process
  // first.
  const auto until = steady_clock::now() + limits.time + std::chrono::seconds(1);
  const Ending ending = ReadText(text_end.get(), abandoned, until, limits.text_bytes, result.text);
  // The child is killed even if it has only closed its end of the pipe, so that it cannot continue.
  ::kill(-child, SIGKILL);
  ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (ending == Ending::kAbandoned) {
    return Status(StatusCode::kCancelled, "compiler ended: its caller no longer waits");
  }
  const bool in_time = ending == Ending::kItself;
  // The program had closed its output, but was still running when it was killed above.
  if (in_time && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    return Status(StatusCode::kInternal, "compiler ended: it closed its output but did not exit");
  }
  if (Status why = WhyEnded(status, in_time, limits); !why.ok()) {
    return Status(why.code(), why.message() + (result.text.empty() ? "" : ": " + result.text));
  }
  result.exit_code = WEXITSTATUS(status);
  Result<std::vector<std::byte>> bytes = ReadAll(out->get(), limits.output_bytes);
  if (!bytes.ok()) return bytes.status();
  result.output = *std::move(bytes);
  return result;
}

}  // namespace gpushared::compile
