// SPDX-License-Identifier: Apache-2.0
#include "server/modules/compile/sandbox.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace gpushared::compile {
namespace {

using ::testing::HasSubstr;

Result<SandboxResult> Perform(std::vector<std::string> deed, const SandboxLimits& limits = {},
                              std::span<const std::byte> input = {}) {
  deed.insert(deed.begin(), GPUSHARED_HOSTILE_COMPILER);
  return RunSandboxed(deed, input, limits);
}

TEST(Sandbox, ProgramReadsItsInputAndWritesItsOutput) {
  std::string text(100000, 'x');
  text += "end";
  const auto run = Perform({"echo"}, {}, std::as_bytes(std::span(text)));
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_EQ(run->exit_code, 0) << run->text;
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(run->output.data()), run->output.size()),
            text);
}

TEST(Sandbox, EndsProgramThatRunsTooLong) {
  for (const char* deed : {"loop", "sleep"}) {
    const auto run = Perform({deed}, {.time = std::chrono::seconds(1)});
    EXPECT_EQ(run.status().code(), StatusCode::kLimitExceeded) << deed;
    EXPECT_THAT(std::string(run.status().message()), HasSubstr("it ran longer than 1 s")) << deed;
  }
}

TEST(Sandbox, EndsAbandonedProgram) {
  const int abandoned = ::eventfd(0, EFD_CLOEXEC);
  ASSERT_GE(abandoned, 0);
  std::thread leaver([abandoned] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(::eventfd_write(abandoned, 1), 0);
  });
  const auto run = RunSandboxed({GPUSHARED_HOSTILE_COMPILER, "loop"}, {},
                                {.time = std::chrono::hours(1)}, abandoned);
  leaver.join();
  ::close(abandoned);
  EXPECT_EQ(run.status().code(), StatusCode::kCancelled) << run.status().ToString();
}

TEST(Sandbox, EndsProgramThatClosedStdoutAndStderr) {
  EXPECT_EQ(Perform({"close"}).status().code(), StatusCode::kInternal);
}

TEST(Sandbox, EndsProgramThatTakesTooMuchMemory) {
  const auto run = Perform({"grow"}, {.memory_bytes = std::uint64_t{256} << 20});
  EXPECT_EQ(run.status().code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("268435456 bytes of memory"));
}

TEST(Sandbox, EndsProgramThatWritesTooMuch) {
  const auto run = Perform({"flood", kSandboxOutput}, {.output_bytes = 1 << 20});
  EXPECT_EQ(run.status().code(), StatusCode::kLimitExceeded);
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("1048576 bytes"));
}

TEST(Sandbox, KeepsOnlyTheBeginningOfTheText) {
  const auto run = Perform({"chatter"}, {.text_bytes = 1000});
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_EQ(run->text.size(), 1000U);
  EXPECT_THAT(run->text, HasSubstr("all work"));
}

// Exit code 3 means that the attempt failed, whereas 2 would mean that no attempt has this name.
void ExpectInVain(const std::vector<std::string>& deed) {
  const auto run = Perform(deed);
  ASSERT_TRUE(run.ok()) << deed[0] << ": " << run.status().ToString();
  EXPECT_EQ(run->exit_code, 3) << deed[0];
}

TEST(Sandbox, AccessesOnlyItsFiles) {
  ::setenv("GPUSHARED_SECRET", "1", 1);
  const int open_fd = ::open("/dev/null", O_RDONLY);  // Without close-on-exec.
  for (const char* deed : {"socket", "sockets", "memory", "memory file", "messages", "semaphores",
                           "control", "environment", "descriptors"}) {
    ExpectInVain({deed});
  }
  ::close(open_fd);
}

TEST(Sandbox, ChangesNoFileButItsOutput) {
  namespace fs = std::filesystem;
  const testing::ScratchDirectory scratch;
  const fs::path file = scratch / "victim";
  const fs::path fresh = scratch / "fresh";
  std::ofstream(file) << "mine";
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  const fs::file_time_type written = fs::last_write_time(file);
  for (const char* deed : {"write",
                           "remove",
                           "truncate",
                           "open to truncate",
                           "old open to truncate",
                           "open for control to truncate",
                           "old open for control to truncate",
                           "new open to truncate",
                           "mode",
                           "mode at",
                           "mode of open",
                           "owner",
                           "owner of link",
                           "owner at",
                           "owner of open",
                           "time",
                           "times",
                           "times at",
                           "nanoseconds at",
                           "lock"}) {
    ExpectInVain({deed, file});
  }
  ExpectInVain({"write", fresh});
  EXPECT_FALSE(fs::exists(fresh));
  ASSERT_TRUE(fs::exists(file));
  EXPECT_EQ(fs::file_size(file), 4U);
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(fs::last_write_time(file), written);
}

TEST(Sandbox, CannotSignalOrControlOthers) {
  for (const char* deed :
       {"trace", "kill", "tkill", "tgkill", "queue", "queue to thread", "signal by descriptor",
        "find", "owner of pipe", "any owner of pipe", "limits", "processors", "scheduler",
        "parameters", "attributes", "priority", "priority of files"}) {
    ExpectInVain({deed});
  }
}

// A process outside the program's group would survive the time limit of the program.
TEST(Sandbox, CannotStartProcessesOrLeaveItsGroup) {
  for (const char* deed : {"fork", "vfork", "clone", "clone3", "group", "orphan"}) {
    ExpectInVain({deed});
  }
}

TEST(Sandbox, HasThreadsAndKnowsItsLimits) {
  for (const char* deed : {"thread", "limits of its own"}) {
    const auto run = Perform({deed});
    ASSERT_TRUE(run.ok()) << deed << ": " << run.status().ToString();
    EXPECT_EQ(run->exit_code, 0) << deed << ": " << run->text;
  }
}

std::string GetLink(const char* path) {
  std::array<char, 64> target = {};
  return ::readlink(path, target.data(), target.size() - 1) > 0 ? target.data() : "";
}

bool MayHaveOwnUsers() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::unshare(CLONE_NEWUSER) == 0 ? 0 : 1);
  int status = 1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status == 0;
}

TEST(Sandbox, HasItsOwnUserNamespaceIfTheKernelAllows) {
  if (!MayHaveOwnUsers()) GTEST_SKIP() << "this kernel does not allow user namespaces";
  const auto run = Perform({"own users", GetLink("/proc/self/ns/user")});
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_EQ(run->exit_code, 0) << run->text;
}

// A fork would copy the page tables of the tens of GiB that a driver maps into the worker, and the
// driver must not be called between fork and exec, even by handlers that libraries registered.
std::atomic<int> prepared_to_fork = 0;
TEST(Sandbox, StartsWithoutAForkOfThisProcess) {
  ASSERT_EQ(::pthread_atfork([] { ++prepared_to_fork; }, nullptr, nullptr), 0);
  const int before = prepared_to_fork;
  ASSERT_TRUE(Perform({"echo"}).ok());
  EXPECT_EQ(prepared_to_fork, before);
}

// The child restricts itself while it still shares this process's memory.
TEST(Sandbox, KeepsRightsLimitsAndSignalsOfThisProcess) {
  struct Facts {
    rlimit memory, descriptors;
    std::string users;
    sigset_t blocked;
    struct sigaction handler;
    int dumpable, privileges, filter, group;
  };
  const auto facts = [] {
    Facts now = {};
    EXPECT_EQ(::getrlimit(RLIMIT_AS, &now.memory), 0);
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &now.descriptors), 0);
    now.users = GetLink("/proc/self/ns/user");
    EXPECT_EQ(::pthread_sigmask(SIG_SETMASK, nullptr, &now.blocked), 0);
    EXPECT_EQ(::sigaction(SIGUSR1, nullptr, &now.handler), 0);
    now.dumpable = ::prctl(PR_GET_DUMPABLE);
    now.privileges = ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    now.filter = ::prctl(PR_GET_SECCOMP);
    now.group = ::getpgrp();
    return now;
  };
  struct sigaction mine = {};
  mine.sa_handler = [](int) {};
  struct sigaction before_mine = {};
  ASSERT_EQ(::sigaction(SIGUSR1, &mine, &before_mine), 0);
  sigset_t some, before_some;
  sigemptyset(&some);
  sigaddset(&some, SIGUSR2);
  ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, &some, &before_some), 0);
  const Facts before = facts();
  const auto run = Perform({"no signal blocked"});
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_EQ(run->exit_code, 0) << run->text;
  EXPECT_FALSE(RunSandboxed({"/nowhere/ptxas"}, {}, {}).ok());
  const Facts after = facts();
  EXPECT_EQ(after.memory.rlim_cur, before.memory.rlim_cur);
  EXPECT_EQ(after.descriptors.rlim_cur, before.descriptors.rlim_cur);
  EXPECT_EQ(after.users, before.users);
  EXPECT_EQ(sigismember(&after.blocked, SIGUSR2), 1);
  EXPECT_EQ(sigismember(&after.blocked, SIGTERM), 0);
  EXPECT_EQ(after.handler.sa_handler, mine.sa_handler);
  EXPECT_EQ(after.dumpable, before.dumpable);
  EXPECT_EQ(after.privileges, before.privileges);
  EXPECT_EQ(after.filter, before.filter);
  EXPECT_EQ(after.group, before.group);
  (void)::pthread_sigmask(SIG_SETMASK, &before_some, nullptr);
  (void)::sigaction(SIGUSR1, &before_mine, nullptr);
}

TEST(Sandbox, ReportsAbort) {
  const auto run = Perform({"abort"});
  EXPECT_EQ(run.status().code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("signal 6"));
}

TEST(Sandbox, ReportsMissingProgram) {
  EXPECT_EQ(RunSandboxed({"/nowhere/ptxas"}, {}, {}).status().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace gpushared::compile
