// SPDX-License-Identifier: Apache-2.0
// Acts like a compiler that a client's text has compromised: attempts the act named by its
// argument, and reports how far it got. Exit code 0 means that the act succeeded.
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>

extern char** environ;

namespace {

struct Attempt {
  const char* name;
  bool (*succeeds)(const char* place);
};

constexpr Attempt kOnFiles[] = {
    {"write", [](const char* place) { return ::open(place, O_WRONLY | O_CREAT, 0600) >= 0; }},
    {"remove", [](const char* place) { return ::unlink(place) == 0; }},
    {"truncate", [](const char* place) { return ::truncate(place, 0) == 0; }},
    {"open to truncate", [](const char* place) { return ::open(place, O_TRUNC) >= 0; }},
    {"old open to truncate",
     [](const char* place) { return ::syscall(SYS_open, place, O_TRUNC) >= 0; }},
    // Opened for neither reading nor writing, which some drivers require for their control files.
    {"open for control to truncate",
     [](const char* place) { return ::open(place, O_ACCMODE | O_TRUNC) >= 0; }},
    {"old open for control to truncate",
     [](const char* place) { return ::syscall(SYS_open, place, O_ACCMODE | O_TRUNC) >= 0; }},
    {"new open to truncate",
     [](const char* place) {
       const std::uint64_t how[3] = {O_TRUNC, 0, 0};
       return ::syscall(SYS_openat2, AT_FDCWD, place, how, sizeof how) >= 0;
     }},
    {"mode", [](const char* place) { return ::chmod(place, 0777) == 0; }},
    {"mode at", [](const char* place) { return ::fchmodat(AT_FDCWD, place, 0777, 0) == 0; }},
    {"mode of open",
     [](const char* place) { return ::fchmod(::open(place, O_RDONLY), 0777) == 0; }},
    {"owner", [](const char* place) { return ::syscall(SYS_chown, place, -1, -1) == 0; }},
    {"owner of link", [](const char* place) { return ::lchown(place, -1, -1) == 0; }},
    {"owner at", [](const char* place) { return ::fchownat(AT_FDCWD, place, -1, -1, 0) == 0; }},
    {"owner of open",
     [](const char* place) { return ::fchown(::open(place, O_RDONLY), -1, -1) == 0; }},
    {"time", [](const char* place) { return ::syscall(SYS_utime, place, nullptr) == 0; }},
    {"times", [](const char* place) { return ::syscall(SYS_utimes, place, nullptr) == 0; }},
    {"times at",
     [](const char* place) { return ::syscall(SYS_futimesat, AT_FDCWD, place, nullptr) == 0; }},
    {"nanoseconds at",
     [](const char* place) { return ::utimensat(AT_FDCWD, place, nullptr, 0) == 0; }},
    {"lock", [](const char* place) { return ::flock(::open(place, O_RDONLY), LOCK_SH) == 0; }},
};

// Signal 0 only tests whether another signal would be delivered.
long Queue(long call, long thread) {
  siginfo_t info = {};
  info.si_code = SI_QUEUE;
  return call == SYS_rt_sigqueueinfo ? ::syscall(call, ::getppid(), 0, &info)
                                     : ::syscall(call, ::getppid(), thread, 0, &info);
}

bool SetsOwner(int command, const void* owner) {
  int pipe[2];
  return ::pipe(pipe) == 0 && ::syscall(SYS_fcntl, pipe[0], command, owner) == 0;
}

constexpr Attempt kOnProcesses[] = {
    {"trace",
     [](const char*) { return ::ptrace(PTRACE_ATTACH, ::getppid(), nullptr, nullptr) == 0; }},
    {"kill", [](const char*) { return ::kill(::getppid(), 0) == 0; }},
    {"tkill", [](const char*) { return ::syscall(SYS_tkill, ::getppid(), 0) == 0; }},
    {"tgkill", [](const char*) { return ::syscall(SYS_tgkill, ::getppid(), ::getppid(), 0) == 0; }},
    {"queue", [](const char*) { return Queue(SYS_rt_sigqueueinfo, 0) == 0; }},
    {"queue to thread", [](const char*) { return Queue(SYS_rt_tgsigqueueinfo, ::getppid()) == 0; }},
    {"signal by descriptor",
     [](const char*) {
       const long process = ::syscall(SYS_pidfd_open, ::getppid(), 0);
       return ::syscall(SYS_pidfd_send_signal, process < 0 ? 3 : process, 0, nullptr, 0) == 0;
     }},
    {"find", [](const char*) { return ::syscall(SYS_pidfd_open, ::getppid(), 0) >= 0; }},
    // The process that the kernel signals when the pipe becomes readable.
    {"owner of pipe",
     [](const char*) {
       return SetsOwner(F_SETOWN, reinterpret_cast<const void*>(std::intptr_t{::getppid()}));
     }},
    {"any owner of pipe",
     [](const char*) {
       const f_owner_ex owner = {.type = F_OWNER_PID, .pid = ::getppid()};
       return SetsOwner(F_SETOWN_EX, &owner);
     }},
    {"limits",
     [](const char*) {
       rlimit limit;
       return ::prlimit(::getppid(), RLIMIT_CORE, nullptr, &limit) == 0;
     }},
    {"processors",
     [](const char*) {
       cpu_set_t all;
       std::memset(&all, 0xff, sizeof all);
       return ::sched_setaffinity(::getppid(), sizeof all, &all) == 0;
     }},
    {"scheduler",
     [](const char*) {
       const sched_param none = {};
       return ::sched_setscheduler(::getppid(), SCHED_OTHER, &none) == 0;
     }},
    {"parameters",
     [](const char*) {
       const sched_param none = {};
       return ::sched_setparam(::getppid(), &none) == 0;
     }},
    {"attributes",
     [](const char*) {
       // A struct of 48 bytes, all zero.
       std::uint32_t attributes[12] = {sizeof attributes};
       return ::syscall(SYS_sched_setattr, ::getppid(), attributes, 0) == 0;
     }},
    {"priority",
     [](const char*) {
       const int now = ::getpriority(PRIO_PROCESS, ::getppid());
       return ::setpriority(PRIO_PROCESS, ::getppid(), now) == 0;
     }},
    {"priority of files",
     [](const char*) { return ::syscall(SYS_ioprio_set, 1, ::getppid(), 2 << 13 | 4) == 0; }},
    {"group", [](const char*) { return ::setpgid(0, ::getpgid(::getppid())) == 0; }},
    {"orphan", [](const char*) { return ::prctl(PR_SET_PDEATHSIG, 0) == 0; }},
};

// A new process exits at once.
bool IsMade(long process) {
  if (process == 0) ::_exit(0);
  return process > 0;
}

constexpr Attempt kToStart[] = {
    {"fork", [](const char*) { return IsMade(::syscall(SYS_fork)); }},
    {"vfork", [](const char*) { return IsMade(::vfork()); }},
    {"clone", [](const char*) { return IsMade(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }},
    {"clone3",
     [](const char*) {
       clone_args how = {};
       how.exit_signal = SIGCHLD;
       return IsMade(::syscall(SYS_clone3, &how, sizeof how));
     }},
};

constexpr Attempt kOnTheRest[] = {
    {"socket", [](const char*) { return ::socket(AF_UNIX, SOCK_STREAM, 0) >= 0; }},
    {"sockets",
     [](const char*) {
       int ends[2];
       return ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0;
     }},
    {"memory", [](const char*) { return ::shmget(IPC_PRIVATE, 4096, 0600) >= 0; }},
    {"memory file", [](const char*) { return ::memfd_create("more", 0) >= 0; }},
    {"messages", [](const char*) { return ::msgget(IPC_PRIVATE, 0600) >= 0; }},
    {"semaphores", [](const char*) { return ::semget(IPC_PRIVATE, 1, 0600) >= 0; }},
    {"control",
     [](const char*) {
       int bytes = 0;
       return ::ioctl(3, FIONREAD, &bytes) == 0;
     }},
    {"environment", [](const char*) { return environ[0] != nullptr; }},
    {"descriptors",
     [](const char*) {
       for (int fd = 5; fd < 4096; ++fd) {
         if (::fcntl(fd, F_GETFD) >= 0) return true;
       }
       return false;
     }},
    // Acts that a compiler needs.
    {"thread",
     [](const char*) {
       bool ran = false;
       std::thread([&ran] { ran = true; }).join();
       return ran;
     }},
    {"own users",
     [](const char* others) {
       char own[64] = {};
       return ::readlink("/proc/self/ns/user", own, sizeof own - 1) > 0 &&
              std::strcmp(own, others) != 0;
     }},
    {"no signal blocked",
     [](const char*) {
       sigset_t blocked;
       return ::sigprocmask(SIG_SETMASK, nullptr, &blocked) == 0 && ::sigisemptyset(&blocked) != 0;
     }},
    {"limits of its own",
     [](const char*) {
       rlimit limit;
       return ::getrlimit(RLIMIT_STACK, &limit) == 0;
     }},
};

void Loop() {
  for (volatile bool on = true; on;) {
  }
}

void Sleep() {
  for (;;) ::pause();
}

int Grow() {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  for (int i = 0; i < 1024; ++i) {
    void* const memory = std::malloc(kBytes);
    if (memory == nullptr) std::abort();
    std::memset(memory, 1, kBytes);
  }
  return 0;
}

int Flood(const char* place) {
  const char block[4096] = {};
  const int out = ::open(place, O_WRONLY);
  while (::write(out, block, sizeof block) > 0) {
  }
  return 3;
}

int Echo() {
  const int out = ::open("/proc/self/fd/4", O_WRONLY | O_TRUNC);
  const int in = ::open("/proc/self/fd/3", O_RDONLY);
  char byte = 0;
  while (::read(in, &byte, 1) == 1) {
    if (::write(out, &byte, 1) != 1) return 3;
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return 2;
  const char* const deed = arguments[1];
  const char* const place = count > 2 ? arguments[2] : "";
  const auto is = [deed](const char* name) { return std::strcmp(deed, name) == 0; };
  if (is("loop")) Loop();
  if (is("abort")) std::abort();
  if (is("sleep")) {
    ::close(0);
    Sleep();
  }
  if (is("close")) {
    ::close(1);
    ::close(2);
    Sleep();
  }
  if (is("grow")) return Grow();
  if (is("flood")) return Flood(place);
  if (is("chatter")) {
    for (int i = 0; i < 100000; ++i) std::puts("all work and no play");
    return 0;
  }
  if (is("echo")) return Echo();
  for (const std::span<const Attempt> attempts :
       {std::span<const Attempt>(kOnFiles), std::span<const Attempt>(kOnProcesses),
        std::span<const Attempt>(kToStart), std::span<const Attempt>(kOnTheRest)}) {
    for (const Attempt& attempt : attempts) {
      if (is(attempt.name)) return attempt.succeeds(place) ? 0 : 3;
    }
  }
  return 2;
}
