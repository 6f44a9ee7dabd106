// SPDX-License-Identifier: Apache-2.0
// Without an argument, the loader; with one, a loader whose children perform the named act.
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "server/modules/loader/child.h"

namespace {

using gpushared::loader::JobRequest;
using gpushared::loader::ResultHeader;

[[noreturn]] void Misbehave(std::string_view how, int output) {
  if (how == "silent") ::pause();
  if (how == "crash") ::raise(SIGSEGV);
  if (how == "nothing") ::_exit(0);
  ResultHeader header = {.done = ResultHeader::kDone, .code = 0, .bytes = 4096};
  std::vector<char> bytes(4096);
  std::mt19937 random(static_cast<unsigned>(::getpid()));
  if (how == "garbage") {
    for (char& byte : bytes) byte = static_cast<char>(random());
  }
  if (how == "long") header.bytes = 1u << 30;
  if (how == "text") {  // A rejection that would corrupt a log.
    header.code = 1;
    std::memcpy(bytes.data(), "evil\nline\x1b[2J", 13);
    header.bytes = 13;
  }
  [[maybe_unused]] ssize_t count = ::pwrite(output, &header, sizeof header, 0);
  count = ::pwrite(output, bytes.data(), bytes.size(), sizeof header);
  ::_exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return gpushared::loader::RunLoader();
  for (;;) {
    JobRequest job;
    std::array<int, 2> fds = {-1, -1};
    iovec bytes = {.iov_base = &job, .iov_len = sizeof job};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof fds)> control;
    msghdr message = {};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (::recvmsg(gpushared::loader::kLoaderChannelFd, &message, 0) != sizeof job) return 0;
    std::memcpy(fds.data(), CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fds);
    if (std::string_view(argv[1]) == "mortal") return 0;
    const long child = ::syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, 0);
    if (child == 0) Misbehave(argv[1], fds[1]);
    const auto answer = static_cast<std::int32_t>(child);
    for (const int fd : fds) ::close(fd);
    (void)!::send(gpushared::loader::kLoaderChannelFd, &answer, sizeof answer, 0);
  }
}
