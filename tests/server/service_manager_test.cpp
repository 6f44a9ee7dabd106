// SPDX-License-Identifier: Apache-2.0
#include "server/platform/service_manager.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/server/other_user.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::server {
namespace {

using testing::InAProcess;
using testing::ScratchDirectory;

// Warnings of the case. Each case runs in a separate process, because environment variables and
// descriptors belong to the process.
std::vector<std::string> warnings;
ServiceManager Read() {
  return ServiceManager([](const std::string& what) { warnings.push_back(what); });
}

int Listening(int type, const std::string& path, bool listens = true) {
  const int fd = ::socket(AF_UNIX, type, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return -1;
  if (listens && type == SOCK_STREAM) ::listen(fd, 4);
  return fd;
}

// gtest's expectations work only in this process, so the child reports by its exit code which one
// failed.
#define GPUSHARED_MUST(condition) \
  if (!(condition)) return __LINE__ % 200 + 1

TEST(ServiceManager, WorksWithoutServiceManager) {
  EXPECT_EQ(InAProcess([] {
              ServiceManager manager = Read();
              manager.Notify("READY=1");
              GPUSHARED_MUST(warnings.empty() && manager.TakeSockets().empty());
              GPUSHARED_MUST(!manager.watchdog_interval() && manager.executions() == 0);
              return 0;
            }),
            0);
}

TEST(ServiceManager, IsNotifiedAndItsVariablesAreNotInherited) {
  const ScratchDirectory directory;
  EXPECT_EQ(InAProcess([&] {
              const std::string path = directory / "notify";
              const int fd = Listening(SOCK_DGRAM, path);
              ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
              ::setenv("WATCHDOG_USEC", "3000000", 1);
              ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
              const ServiceManager manager = Read();
              GPUSHARED_MUST(::getenv("NOTIFY_SOCKET") == nullptr);
              GPUSHARED_MUST(::getenv("WATCHDOG_USEC") == nullptr);
              GPUSHARED_MUST(manager.watchdog_interval() == std::chrono::microseconds(1'500'000));
              manager.Notify("READY=1");
              char text[32] = {};
              GPUSHARED_MUST(::recv(fd, text, sizeof text, MSG_DONTWAIT) == 7);
              GPUSHARED_MUST(std::string(text) == "READY=1");
              return 0;
            }),
            0);
}

TEST(ServiceManager, IgnoresWatchdogOfOtherProcess) {
  EXPECT_EQ(InAProcess([] {
              ::setenv("WATCHDOG_USEC", "3000000", 1);
              ::setenv("WATCHDOG_PID", "1", 1);
              GPUSHARED_MUST(!Read().watchdog_interval());
              ::setenv("WATCHDOG_USEC", "soon", 1);
              GPUSHARED_MUST(!Read().watchdog_interval());
              GPUSHARED_MUST(warnings.size() == 1);
              GPUSHARED_MUST(warnings[0].find("WATCHDOG_USEC rejected: asked for 'soon'") !=
                             std::string::npos);
              return 0;
            }),
            0);
}

TEST(ServiceManager, HandsOverListeningSockets) {
  const ScratchDirectory directory;
  EXPECT_EQ(
      InAProcess([&] {
        const int good = Listening(SOCK_STREAM, directory / "s");
        const int datagrams = Listening(SOCK_DGRAM, directory / "d");
        const int deaf = Listening(SOCK_STREAM, directory / "x", /*listens=*/false);
        ::dup2(good, 103), ::dup2(datagrams, 104), ::dup2(deaf, 105);
        for (int i = 0; i < 3; ++i) ::dup2(103 + i, 3 + i);
        ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
        ::setenv("LISTEN_FDS", "3", 1);
        ServiceManager manager = Read();
        const std::vector<ipc::InheritedSocket> sockets = manager.TakeSockets();
        GPUSHARED_MUST(sockets.size() == 1);
        GPUSHARED_MUST(sockets[0].path == directory / "s" && !sockets[0].is_own);
        GPUSHARED_MUST((::fcntl(sockets[0].fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
        GPUSHARED_MUST(warnings.size() == 2);
        GPUSHARED_MUST(warnings[0].find("no Unix stream socket that listens") != std::string::npos);
        ::setenv("LISTEN_PID", "1", 1);
        ::setenv("LISTEN_FDS", "3", 1);
        GPUSHARED_MUST(Read().TakeSockets().empty());
        ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
        ::setenv("LISTEN_FDS", "4000000000", 1);
        GPUSHARED_MUST(Read().TakeSockets().empty());
        GPUSHARED_MUST(warnings.back().find("LISTEN_FDS rejected") != std::string::npos);
        return 0;
      }),
      0);
}

TEST(ServiceManager, FailedReexecChangesNothing) {
  const ScratchDirectory directory;
  EXPECT_EQ(InAProcess([&] {
              const int fd = Listening(SOCK_STREAM, directory / "s");
              ::fcntl(fd, F_SETFD, FD_CLOEXEC);
              const ServiceManager manager = Read();
              const Status status = manager.Execute(directory / "nothing", {"gpushared"},
                                                    {{.fd = fd, .is_own = true}});
              GPUSHARED_MUST(status.message().find("No such file") != std::string::npos);
              GPUSHARED_MUST((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
              GPUSHARED_MUST(::getenv("GPUSHARED_HANDED_OVER") == nullptr);
              return 0;
            }),
            0);
}

TEST(ServiceManager, RecognisesJournalByItsStream) {
  EXPECT_EQ(InAProcess([] {
              GPUSHARED_MUST(!StderrIsJournal());
              struct stat facts {};
              ::fstat(STDERR_FILENO, &facts);
              const std::string stream =
                  std::to_string(facts.st_dev) + ":" + std::to_string(facts.st_ino);
              ::setenv("JOURNAL_STREAM", stream.c_str(), 1);
              GPUSHARED_MUST(StderrIsJournal());
              ::setenv("JOURNAL_STREAM", "1:1", 1);
              GPUSHARED_MUST(!StderrIsJournal());
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace gpushared::server
