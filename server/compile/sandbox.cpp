// SPDX-License-Identifier: Apache-2.0
#include "server/compile/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
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
#include <system_error>
#include <utility>

#include "ipc/unique_fd.h"

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

// ---- in the child, between fork and exec: calls of the kernel only, since the parent has threads.

void Limit(__rlimit_resource resource, std::uint64_t value, std::uint64_t most) {
  const rlimit limit = {.rlim_cur = value, .rlim_max = most};
  if (::setrlimit(resource, &limit) != 0) ::_exit(kNotStarted);
}

// Nothing may be written, made or removed that has a path. A memory file has none.
void ForbidWriting() {
  const landlock_ruleset_attr rules = {
      .handled_access_fs = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                           LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                           LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                           LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                           LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM};
  const long ruleset = ::syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
  // Kernels before 5.13 do not know it.
  if (ruleset < 0) return;
  if (::syscall(SYS_landlock_restrict_self, ruleset, 0) != 0) ::_exit(kNotStarted);
  ::close(static_cast<int>(ruleset));
}

// A list of what no compiler needs, beside what namespaces and limits take away.
void ForbidCalls() {
  constexpr std::array<unsigned, 20> kForbidden = {
      SYS_socket,      SYS_connect, SYS_ptrace,  SYS_process_vm_readv, SYS_process_vm_writev,
      SYS_kill,        SYS_tkill,   SYS_mount,   SYS_umount2,          SYS_pivot_root,
      SYS_bpf,         SYS_keyctl,  SYS_add_key, SYS_perf_event_open,  SYS_io_uring_setup,
      SYS_pidfd_getfd, SYS_setns,   SYS_unshare, SYS_userfaultfd,      SYS_pidfd_send_signal};
  // Load the number; one comparison each; allow; deny. Another instruction set's numbers are
  // denied.
  std::array<sock_filter, kForbidden.size() + 6> program = {};
  std::size_t at = 0;
  const auto put = [&](std::uint16_t code, std::uint32_t k, std::size_t yes, std::size_t no) {
    program.at(at++) = {code, static_cast<std::uint8_t>(yes), static_cast<std::uint8_t>(no), k};
  };
  const std::size_t deny = program.size() - 1;
  put(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch), 0, 0);
  put(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, deny - at - 1);
  put(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr), 0, 0);
  constexpr std::uint32_t kX32 = 0x40000000;
  put(BPF_JMP | BPF_JGE | BPF_K, kX32, deny - at - 1, 0);
  for (const unsigned call : kForbidden) {
    put(BPF_JMP | BPF_JEQ | BPF_K, call, deny - at - 1, 0);
  }
  put(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
  put(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM, 0, 0);
  const sock_fprog filter = {.len = static_cast<unsigned short>(program.size()),
                             .filter = program.data()};
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) ::_exit(kNotStarted);
}

struct ChildFds {
  int input, output, text, null;
};

[[noreturn]] void RunChild(char* const* arguments, ChildFds fds, pid_t parent,
                           const SandboxLimits& limits) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kNotStarted);
  ::setpgid(0, 0);
  // Above all that is overwritten next; without the close-on-exec flag afterwards.
  for (int* fd : {&fds.input, &fds.output, &fds.text, &fds.null}) {
    *fd = ::fcntl(*fd, F_DUPFD_CLOEXEC, 10);
  }
  const std::array<std::pair<int, int>, 5> places = {{{fds.null, 0},
                                                      {fds.text, 1},
                                                      {fds.text, 2},
                                                      {fds.input, kInputFd},
                                                      {fds.output, kOutputFd}}};
  for (const auto& [from, to] : places) {
    if (::dup2(from, to) < 0) ::_exit(kNotStarted);
  }
  if (::syscall(SYS_close_range, kOutputFd + 1, ~0U, 0) != 0) ::_exit(kNotStarted);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const auto seconds = static_cast<std::uint64_t>(limits.time.count());
  // A second later it is killed; what says that it was the time is the signal before.
  Limit(RLIMIT_CPU, seconds, seconds + 1);
  Limit(RLIMIT_AS, limits.memory_bytes, limits.memory_bytes);
  Limit(RLIMIT_FSIZE, limits.output_bytes, limits.output_bytes);
  Limit(RLIMIT_CORE, 0, 0);
  Limit(RLIMIT_NOFILE, 64, 64);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) ::_exit(kNotStarted);
  // Many systems forbid it to users; what it takes away is denied below as well.
  (void)::unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC);
  ForbidWriting();
  ForbidCalls();
  char* const environment[] = {nullptr};
  ::execve(arguments[0], arguments, environment);
  ::_exit(kNotStarted);
}

// ---- in the parent

enum class Ending { kItself, kTime, kAbandoned };

// Until the end of the child, of its time or of our interest.
Ending ReadText(int fd, int abandoned, steady_clock::time_point until, std::size_t most,
                std::string& text) {
  std::array<char, 4096> buffer;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - steady_clock::now());
    if (left.count() <= 0) return Ending::kTime;
    // A descriptor below zero is passed over.
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
    return Status(StatusCode::kLimitExceeded, "compiler refused: its output has " +
                                                  std::to_string(bytes) + " bytes, allowed are " +
                                                  std::to_string(most));
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
    return beyond("it ran " + std::to_string(limits.time.count()) + " s, which is all it may");
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
  for (const std::string& argument : arguments)
    pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);

  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return Failed("its process");
  if (child == 0) {
    RunChild(
        pointers.data(),
        {.input = in->get(), .output = out->get(), .text = child_end.get(), .null = null.get()},
        self, limits);
  }
  child_end.Reset();
  SandboxResult result;
  // A second more than its processor time: what waits for nothing is ended by that.
  const auto until = steady_clock::now() + limits.time + std::chrono::seconds(1);
  const Ending ending = ReadText(text_end.get(), abandoned, until, limits.text_bytes, result.text);
  ::kill(-child, SIGKILL);  // Also when it closed its end: nothing of it goes on.
  ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (ending == Ending::kAbandoned) {
    return Status(StatusCode::kCancelled, "compiler ended: nobody waits for it any more");
  }
  const bool in_time = ending == Ending::kItself;
  // It was killed in the moment of its own end.
  if (in_time && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    return Status(StatusCode::kInternal, "compiler ended: it closed its output and went on");
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
