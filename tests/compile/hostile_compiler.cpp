// SPDX-License-Identifier: Apache-2.0
// Stands in for a compiler that a client's text has taken over: does what its argument says and
// tells how far it got. Exit code 0: it got its way.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

extern char** environ;

int main(int count, char** arguments) {
  if (count < 2) return 2;
  const char* const deed = arguments[1];
  const char* const place = count > 2 ? arguments[2] : "";
  const auto is = [deed](const char* name) { return std::strcmp(deed, name) == 0; };
  if (is("loop")) {
    for (volatile int i = 0;; i = i + 1) {
    }
  }
  if (is("sleep")) {
    ::close(0);
    for (;;) ::pause();
  }
  if (is("close")) {
    ::close(1);
    ::close(2);
    for (;;) ::pause();
  }
  if (is("grow")) {
    constexpr std::size_t kBytes = std::size_t{64} << 20;
    for (int i = 0; i < 1024; ++i) {
      void* const memory = std::malloc(kBytes);
      if (memory == nullptr) std::abort();
      std::memset(memory, 1, kBytes);
    }
    return 0;
  }
  if (is("flood")) {
    const char block[4096] = {};
    const int out = ::open(place, O_WRONLY);
    while (::write(out, block, sizeof block) > 0) {
    }
    return 3;
  }
  if (is("chatter")) {
    for (int i = 0; i < 100000; ++i) std::puts("all work and no play");
    return 0;
  }
  if (is("echo")) {
    const int out = ::open("/proc/self/fd/4", O_WRONLY | O_TRUNC);
    const int in = ::open("/proc/self/fd/3", O_RDONLY);
    char byte = 0;
    while (::read(in, &byte, 1) == 1) {
      if (::write(out, &byte, 1) != 1) return 3;
    }
    return 0;
  }
  if (is("write")) return ::open(place, O_WRONLY | O_CREAT, 0600) >= 0 ? 0 : 3;
  if (is("remove")) return ::unlink(place) == 0 ? 0 : 3;
  if (is("socket")) return ::socket(AF_UNIX, SOCK_STREAM, 0) >= 0 ? 0 : 3;
  if (is("trace")) return ::ptrace(PTRACE_ATTACH, ::getppid(), nullptr, nullptr) == 0 ? 0 : 3;
  if (is("kill")) return ::kill(::getppid(), 0) == 0 ? 0 : 3;
  if (is("environment")) return environ[0] != nullptr ? 0 : 3;
  if (is("descriptors")) {
    for (int fd = 5; fd < 4096; ++fd) {
      if (::fcntl(fd, F_GETFD) >= 0) return 0;
    }
    return 3;
  }
  return 2;
}
