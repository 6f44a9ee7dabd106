// SPDX-License-Identifier: Apache-2.0
// dying_client SOCKET FATBIN STEP KERNELS: walks through the protocol by hand and dies of
// SIGKILL at step STEP (index into kDeathSteps). KERNELS is 0 or 1: with 1, an endless
// kernel and a queue of launches are on the device by then. Exits with 1 when the server
// does not answer as it should.

#include "tests/crash/dying_client.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/raw_session.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kModule = 3;  // A number that the client chooses.
constexpr std::uint64_t kMemoryBytes = 4u << 20;
constexpr std::uint32_t kCopyBytes = 1u << 20;

void Must(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "dying_client: %s: %s\n", what, status.ToString().c_str());
  std::exit(1);
}

class DyingClient {
 public:
  DyingClient(std::size_t death, bool with_kernels)
      : death_(kDeathSteps[death]),
        with_kernels_(with_kernels),
        session_([this](std::string_view step) { DieAt(step); }) {}

  void Live(const std::string& socket_path, const std::string& image_path) {
    Must(session_.Connect(socket_path), "connect");
    ipc::Hello hello;
    hello.client_class = ipc::ClientClass::kLow;
    hello.name = "dying";
    Must(session_.Handshake(hello), "handshake");
    Must(session_.LoadModule(kModule, ReadFile(image_path)), "load module");
    Must(session_.ResizeMemory(kMemoryBytes), "map memory");
    if (with_kernels_) StartKernels();
    Must(session_.AddArena(ipc::kArenaBytesDefault), "add arena");
    Commands();
    Ends();
  }

 private:
  void DieAt(std::string_view step) const {
    if (step != death_) return;
    if (step == "hello half sent" || step == "module header half sent") {
      ipc::FrameHeader header;
      header.type = static_cast<std::uint16_t>(
          step == "hello half sent" ? ipc::MessageType::kHello : ipc::MessageType::kLoadModule);
      (void)!::write(session_.socket(), &header, sizeof header / 2);
    }
    ::raise(SIGKILL);
  }

  void StartKernels() {
    PublishLaunch("endless", 8);
    for (int i = 0; i < 4; ++i) PublishLaunch("step", 12);
    session_.Ring();
    std::this_thread::sleep_for(1ms);
  }

  void PublishLaunch(std::string_view kernel, std::uint16_t parameter_bytes) {
    std::vector<std::byte> tail;
    const ipc::LaunchRecord record = session_.Launch(kernel, parameter_bytes, tail);
    session_.Publish(record, tail);
  }

  void Commands() {
    if (death_ == "record written without its tag") {
      ipc::Granule& next =
          session_.commands().granules[session_.ring().position() % ipc::kCommandGranules];
      std::fill_n(next.data, ipc::kContinuationDataBytes, std::byte{2});
    }
    DieAt("record written without its tag");
    session_.Publish(session_.Fill(4096));
    DieAt("record published without the doorbell");
    session_.Ring();
    DieAt("doorbell rung");
    for (int i = 0; i < 8; ++i) session_.Publish(session_.Copy(ipc::Op::kCopyToDevice, kCopyBytes));
    session_.Ring();
    DieAt("copy in flight");
    if (death_ == "command ring full") {
      // The worker takes a bounded number ahead, so behind an endless kernel the ring fills.
      for (int i = 0; i < 100'000 && session_.Publish(session_.Fill(4096)); ++i) {
      }
      session_.Ring();
    }
    DieAt("command ring full");
    for (int i = 0; i < 16; ++i) session_.Publish(session_.Plain(ipc::Op::kMark, 0));
    session_.Ring();
    std::this_thread::sleep_for(1ms);
    DieAt("completions unread");
  }

  void Ends() {
    if (death_ == "asleep on the futex") {
      std::thread killer([] {
        std::this_thread::sleep_for(2ms);
        ::raise(SIGKILL);
      });
      (void)session_.WaitUntil(~std::uint64_t{0}, 30s);
    }
    if (death_ == "socket half closed") ::shutdown(session_.socket(), SHUT_WR);
    DieAt("socket half closed");
    // The child keeps the socket open for a while: only the pidfd tells of the death.
    if (::fork() == 0) {
      ::usleep(300'000);
      ::_exit(0);
    }
    DieAt("socket held by a forked child");
  }

  const std::string_view death_;
  const bool with_kernels_;
  RawSession session_;
};

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  gpushared::testing::DyingClient client(static_cast<std::size_t>(std::atoi(argv[3])),
                                         argv[4][0] == '1');
  client.Live(argv[1], argv[2]);
  return 1;  // It should have died.
}
