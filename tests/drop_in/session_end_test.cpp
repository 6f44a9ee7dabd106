// SPDX-License-Identifier: Apache-2.0
// The message to a program under `gpusharedctl run` whose session ends while it waits for a kernel,
// and how Ctrl-C ends such a kernel.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

namespace gpushared {
namespace {

using ::testing::AllOf;
using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ServerProcess;

class SessionEnd : public ::testing::Test {
 protected:
  void Start(const std::vector<std::string>& options) {
    std::vector<std::string> command = {GPUSHARED_BIN_DIR "/gpusharedctl", "run", "--socket",
                                        server_.socket()};
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {"--", GPUSHARED_ENDLESS_PROGRAM});
    program_ = testing::StartProgram(command, log_);
    ASSERT_TRUE(Eventually([&] { return Output().find("the kernel runs") != std::string::npos; }))
        << Output();
  }
  ~SessionEnd() override {
    if (program_ < 0) return;
    ::kill(program_, SIGKILL);
    ::waitpid(program_, nullptr, 0);
  }
  std::string Output() const {
    std::ostringstream text;
    text << std::ifstream(log_).rdbuf();
    return text.str();
  }
  // Returns whether the program's main thread sleeps, which it only does in its waiting call.
  bool IsWaiting() const {
    std::ostringstream stat;
    stat << std::ifstream("/proc/" + std::to_string(program_) + "/stat").rdbuf();
    return stat.str().find(") S ") != std::string::npos;
  }
  // Returns the program's output once it has exited.
  std::string Await() {
    int status = 0;
    if (!Eventually([&] { return ::waitpid(program_, &status, WNOHANG) == program_; })) {
      return "(it still waits)";
    }
    program_ = -1;
    EXPECT_EQ(status, 0);
    return Output();
  }

  const testing::ScratchDirectory directory_;
  const std::string log_ = directory_ / "log";
  ServerProcess server_;
  pid_t program_ = -1;
};

// Error 810 is CUDA_ERROR_MPS_CLIENT_TERMINATED.
TEST_F(SessionEnd, MessageNamesDeathOfTheWorker) {
  Start({});
  ASSERT_EQ(server_.workers().size(), 1u);
  const pid_t worker = server_.workers()[0];
  ::kill(worker, SIGKILL);
  EXPECT_THAT(Await(), AllOf(HasSubstr("cpu:0"), HasSubstr("(pid " + std::to_string(worker) + ")"),
                             HasSubstr("signal 9"), HasSubstr("error 810 after 0 interrupts")));
}

TEST_F(SessionEnd, MessageNamesTheOperator) {
  Start({});
  EXPECT_EQ(server_.Ctl({"client", "terminate", "2"}).exit_code, 0);
  EXPECT_THAT(Await(), AllOf(HasSubstr("the operator"), HasSubstr("error 810 after 0 interrupts")));
}

TEST_F(SessionEnd, InterruptEndsKernelOfInterruptibleProgram) {
  Start({"--interruptible"});
  // A signal before the waiting call would reach only the program's own handler.
  ASSERT_TRUE(Eventually([&] { return IsWaiting(); }));
  ::kill(program_, SIGINT);
  EXPECT_THAT(Await(),
              AllOf(HasSubstr("SIGINT"),
                    HasSubstr("error 810 after 1 interrupts, the handler is the program's")));
  EXPECT_TRUE(Eventually([&] {
    return server_.Ctl({"ps", "--json"}).output.find("endless") == std::string::npos;
  })) << "the server ends the kernel";
}

TEST_F(SessionEnd, InterruptEndsNoKernelOfOtherPrograms) {
  Start({});
  ::kill(program_, SIGINT);
  // Long enough for a waiting call to poll four times.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(::waitpid(program_, nullptr, WNOHANG), 0);
  EXPECT_THAT(Output(), Not(HasSubstr("error")));
}

}  // namespace
}  // namespace gpushared
