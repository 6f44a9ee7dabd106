// SPDX-License-Identifier: Apache-2.0
// dying_client SOCKET FATBIN STEP KERNELS: performs the protocol by hand and dies of SIGKILL at
// step STEP (index into kDeathSteps). KERNELS is 0 or 1: with 1, an endless kernel and a queue of
// launches are on the device by then. Exits with 1 if the server's answer is wrong.

#include "tests/crash/dying_client.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/raw_client.h"
#include "tests/support/read_file.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kModule = 3;  // A number that the client chooses.
constexpr std::uint64_t kMemoryBytes = 4u << 20;
constexpr std::uint32_t kCopyBytes = 1u << 20;
constexpr std::uint32_t kNodes = 64;

void Must(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "dying_client: %s: %s\n", what, status.ToString().c_str());
  std::exit(1);
}

class DyingClient {
 public:
  DyingClient(RawClient client, std::size_t death, bool with_kernels)
      : client_(std::move(client)), death_(kDeathSteps[death]), with_kernels_(with_kernels) {}

  void Live(const std::string& image) {
    DieAt("connected");
    Join();
    LoadModule(image);
    DieAwaitingAnswer("memory asked for", ipc::ResizeMemory{kMemoryBytes});
    Must(client_.Resize(kMemoryBytes).status(), "map memory");
    DieAt("memory mapped");
    if (with_kernels_) StartKernels();
    DieAwaitingAnswer("staging buffer asked for",
                      ipc::AddStagingBuffer{ipc::kStagingBufferBytesDefault});
    const Result<std::uint32_t> staging_buffer =
        client_.AddStagingBuffer(ipc::kStagingBufferBytesDefault);
    Must(staging_buffer.status(), "add staging buffer");
    DieAt("staging buffer mapped");
    Commands(*staging_buffer);
    Ends();
  }

 private:
  void DieAt(std::string_view step) const {
    if (step == death_) ::raise(SIGKILL);
  }
  // Only half a frame header of this type has been sent.
  void DieAtHalf(std::string_view step, ipc::MessageType type) const {
    if (step != death_) return;
    ipc::FrameHeader header;
    header.type = static_cast<std::uint16_t>(type);
    (void)!::write(client_.socket(), &header, sizeof header / 2);
    ::raise(SIGKILL);
  }
  template <typename Request>
  void DieAwaitingAnswer(std::string_view step, const Request& request) {
    if (step != death_) return;
    Must(client_.Send(request), "send");
    ::raise(SIGKILL);
  }

  void Join() {
    ipc::Hello hello;
    hello.client_class = SchedulingClass::kLow;
    hello.name = "dying";
    DieAtHalf("hello half sent", ipc::MessageType::kHello);
    DieAwaitingAnswer("hello sent", hello);
    if (death_ == "welcomed") {
      Must(client_.Ask<ipc::Welcome>(hello).status(), "hello");
      DieAt("welcomed");
    }
    Must(client_.Join(hello), "join");
  }

  void LoadModule(const std::string& image) {
    DieAtHalf("image header half sent", ipc::MessageType::kMakeImage);
    const auto memory = client_.MakeImage(image);
    Must(memory.status(), "make image");
    DieAt("image written");
    DieAwaitingAnswer("module sent", ipc::LoadModule{.module = kModule, .bytes = image.size()});
    Result<ipc::ModuleLoaded> loaded = client_.LoadModule(kModule, image);
    Must(loaded.status(), "load module");
    module_ = *std::move(loaded);
    DieAt("module loaded");
  }

  void StartKernels() {
    PublishLaunch("endless", 8);
    for (int i = 0; i < 4; ++i) PublishLaunch("step", 12);
    client_.Ring();
    std::this_thread::sleep_for(1ms);
  }

  void PublishLaunch(std::string_view kernel, std::size_t parameter_bytes) {
    const std::vector<std::byte> parameters = ParametersAt(client_.base(), parameter_bytes);
    client_.Publish(GetLaunch(0, kModule, KernelNumber(module_, kernel), {}, parameters.size()),
                    parameters);
  }

  void Commands(std::uint32_t staging_buffer) {
    if (death_ == "record written without its tag") {
      ipc::Granule& next =
          client_.commands().granules[client_.ring_position() % ipc::kCommandGranules];
      std::fill_n(next.data, ipc::kContinuationDataBytes, std::byte{2});
    }
    DieAt("record written without its tag");
    client_.Publish(GetFill(0, client_.base(), 4096, 0));
    DieAt("record published without the doorbell");
    client_.Ring();
    DieAt("doorbell rung");
    for (int i = 0; i < 8; ++i) {
      client_.Publish(GetCopy(
          ipc::Op::kCopyToDevice,
          {.staging_buffer = staging_buffer, .address = client_.base(), .bytes = kCopyBytes}));
    }
    client_.Ring();
    DieAt("copy in flight");
    Graphs(staging_buffer);
    if (death_ == "command ring full") {
      // The worker takes a bounded number of commands ahead, so the ring fills up after an endless
      // kernel.
      for (int i = 0; i < 100'000 && client_.Publish(GetFill(0, client_.base(), 4096, 0)) != 0;
           ++i) {
      }
      client_.Ring();
    }
    DieAt("command ring full");
    for (int i = 0; i < 16; ++i) client_.Publish(GetPlain(ipc::Op::kMark, 0));
    client_.Ring();
    std::this_thread::sleep_for(1ms);
    DieAt("completions unread");
  }

  // The graph is on a separate stream, so that it and the kernels are on the device at the same
  // time.
  void Graphs(std::uint32_t staging_buffer) {
    client_.CreateStream(1);
    client_.MakeGraph(0, 1);
    for (std::uint32_t node = 0; node < kNodes; ++node) {
      if (node == kNodes / 2) DieAt("graph half made");
      SetNode(node, staging_buffer);
    }
    for (int i = 0; i < 4; ++i) client_.LaunchGraph(0, 1);
    DieAt("graph in flight");
    SetNode(0, staging_buffer);
    client_.LaunchGraph(0, 1);
    client_.DestroyGraph(0, 1);
    DieAt("graph changed and destroyed in flight");
  }

  void SetNode(std::uint32_t node, std::uint32_t staging_buffer) {
    const NodePlace place{.graph = 0, .node = node, .stream = 1};
    if (node % 8 == 0) {
      client_.SetNode(place, GetCopy(ipc::Op::kCopyToDevice, {.staging_buffer = staging_buffer,
                                                              .address = client_.base(),
                                                              .bytes = 4096}));
      return;
    }
    const std::vector<std::byte> parameters = ParametersAt(client_.base(), 12);
    client_.SetNode(place,
                    GetLaunch(0, kModule, KernelNumber(module_, "step"), {}, parameters.size()),
                    parameters);
  }

  void Ends() {
    if (death_ == "asleep on the futex") {
      std::thread killer([] {
        std::this_thread::sleep_for(2ms);
        ::raise(SIGKILL);
      });
      (void)client_.AwaitFinished(0, ~std::uint64_t{0});
    }
    if (death_ == "socket half closed") ::shutdown(client_.socket(), SHUT_WR);
    DieAt("socket half closed");
    // The child keeps the socket open for a while, so that only the pidfd reports the death.
    if (::fork() == 0) {
      ::usleep(300'000);
      ::_exit(0);
    }
    DieAt("socket held by a forked child");
  }

  RawClient client_;
  ipc::ModuleLoaded module_;
  const std::string_view death_;
  const bool with_kernels_;
};

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  using namespace gpushared::testing;
  gpushared::Result<RawClient> client = RawClient::Connect(argv[1]);
  Must(client.status(), "connect");
  DyingClient(*std::move(client), static_cast<std::size_t>(std::atoi(argv[3])), argv[4][0] == '1')
      .Live(ReadFile(argv[2]));
  return 1;  // The process should have died.
}
