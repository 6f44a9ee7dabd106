// SPDX-License-Identifier: Apache-2.0
// dying_client SOCKET FATBIN STEP KERNELS: walks through the protocol by hand and dies of
// SIGKILL at step STEP (index into kDeathSteps). KERNELS is 0 or 1: with 1, an endless
// kernel and a queue of launches are on the device by then. Exits with 1 when the server
// does not answer as it should.

#include "tests/crash/dying_client.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "ipc/doorbell.h"
#include "ipc/shared_segment.h"
#include "ipc/tag_ring.h"
#include "ipc/unix_socket.h"
#include "ipc/wire/control.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kModule = 3;  // Numbers the client chooses.
constexpr std::uint64_t kMemoryBytes = 4u << 20;

template <typename T>
T Must(Result<T> result, const char* what) {
  if (!result.ok()) {
    std::fprintf(stderr, "dying_client: %s: %s\n", what, result.status().ToString().c_str());
    std::exit(1);
  }
  return std::move(result).value();
}
void Must(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "dying_client: %s: %s\n", what, status.ToString().c_str());
  std::exit(1);
}

class DyingClient {
 public:
  DyingClient(std::size_t death, bool with_kernels) : death_(death), with_kernels_(with_kernels) {}

  void Live(const std::string& socket_path, const std::string& image_path) {
    Handshake(socket_path);
    LoadModule(image_path);
    Memory();
    Commands();
    Ends();
  }

 private:
  static ipc::Deadline Soon() { return std::chrono::steady_clock::now() + 30s; }

  void DieAt(std::string_view step) const {
    if (kDeathSteps[death_] == step) ::raise(SIGKILL);
  }

  template <typename T>
  void Send(const T& message, std::span<const int> fds = {}) {
    Must(ipc::SendMessage(socket_.get(), ++request_, message, Soon(), fds), "send");
  }
  // Sends only the first half of the frame's header.
  template <typename T>
  void SendHalf(const T&) {
    ipc::FrameHeader header;
    header.type = static_cast<std::uint16_t>(T::kType);
    (void)!::write(socket_.get(), &header, sizeof header / 2);
  }
  template <typename T>
  T Receive(std::vector<ipc::UniqueFd>* fds = nullptr) {
    ipc::Frame frame =
        Must(ipc::ReceiveFrame(socket_.get(), ipc::ServerFrameRules, Soon()), "receive");
    if (fds != nullptr) *fds = std::move(frame.fds);
    return Must(ipc::DecodeReply<T>(frame), "decode");
  }

  void Handshake(const std::string& path) {
    socket_ = Must(ipc::ConnectUnix(path, Soon()), "connect");
    DieAt("connected");
    ipc::Hello hello;
    hello.client_class = ipc::ClientClass::kLow;
    hello.name = "dying";
    if (kDeathSteps[death_] == "hello half sent") SendHalf(hello);
    DieAt("hello half sent");
    Send(hello);
    DieAt("hello sent");
    std::vector<ipc::UniqueFd> fds;
    welcome_ = Receive<ipc::Welcome>(&fds);
    DieAt("welcomed");
    using Access = ipc::SharedSegment::Access;
    const auto map = [&](std::size_t index, std::size_t bytes, Access access) {
      return Must(
          ipc::SharedSegment::Map(std::move(fds[index]), {.bytes = bytes, .access = access}),
          "map");
    };
    commands_ = map(0, ipc::kCommandSegmentBytes, Access::kReadWrite);
    completions_ = map(1, ipc::kCompletionSegmentBytes, Access::kReadOnly);
    page_ = map(2, ipc::kWorkerPageBytes, Access::kReadOnly);
    eventfd_ = std::move(fds[3]);
    ring_.emplace(std::span(commands_.As<ipc::CommandSegment>().granules),
                  completions_.As<ipc::CompletionSegment>().granules_taken);
    DieAt("segments mapped");
  }

  void LoadModule(const std::string& image_path) {
    std::ifstream file(image_path, std::ios::binary);
    const std::string image((std::istreambuf_iterator<char>(file)),
                            std::istreambuf_iterator<char>());
    const ipc::UniqueFd memory =
        Must(ipc::MakeImmutableMemory("module", std::as_bytes(std::span(image))), "memfd");
    const ipc::LoadModule message{.module = kModule, .bytes = image.size()};
    if (kDeathSteps[death_] == "module header half sent") SendHalf(message);
    DieAt("module header half sent");
    const int fd = memory.get();
    Send(message, {&fd, 1});
    DieAt("module sent");
    module_ = Receive<ipc::ModuleLoaded>();
    DieAt("module loaded");
  }

  void Memory() {
    Send(ipc::ResizeMemory{kMemoryBytes});
    DieAt("memory asked for");
    (void)Receive<ipc::MemoryResized>();
    DieAt("memory mapped");
    if (with_kernels_) StartKernels();
    Send(ipc::AddArena{ipc::kArenaBytesDefault});
    DieAt("arena asked for");
    std::vector<ipc::UniqueFd> fds;
    arena_id_ = Receive<ipc::ArenaAdded>(&fds).arena;
    arena_ = Must(ipc::SharedSegment::Map(std::move(fds.at(0)),
                                          {.bytes = ipc::kArenaBytesDefault,
                                           .access = ipc::SharedSegment::Access::kReadWrite}),
                  "map arena");
    DieAt("arena mapped");
  }

  void Commands() {
    if (kDeathSteps[death_] == "record written without its tag") {
      auto& granules = commands_.As<ipc::CommandSegment>().granules;
      std::fill_n(granules[ring_->position() % ipc::kCommandGranules].data,
                  ipc::kContinuationDataBytes, std::byte{2});
      DieAt("record written without its tag");
    }
    Publish(Fill());
    DieAt("record published without the doorbell");
    Ring();
    DieAt("doorbell rung");
    for (int i = 0; i < 8; ++i) Publish(Copy());
    Ring();
    DieAt("copy in flight");
    if (kDeathSteps[death_] == "command ring full") {
      // The worker takes a bounded number ahead, so behind an endless kernel the ring fills.
      for (int i = 0; i < 100'000 && TryPublish(Fill()); ++i) {
      }
      Ring();
      DieAt("command ring full");
    }
    for (int i = 0; i < 16; ++i) Publish(Mark());
    Ring();
    std::this_thread::sleep_for(1ms);
    DieAt("completions unread");
  }

  void Ends() {
    if (kDeathSteps[death_] == "asleep on the futex") {
      std::thread killer([] {
        std::this_thread::sleep_for(2ms);
        ::raise(SIGKILL);
      });
      const auto& completion = completions_.As<ipc::CompletionSegment>();
      ipc::CompletionWaiter waiter(completion.event, commands_.As<ipc::CommandSegment>().waiting);
      (void)waiter.Wait([] { return false; }, 0ns, 30s);
    }
    if (kDeathSteps[death_] == "socket half closed") {
      ::shutdown(socket_.get(), SHUT_WR);
      DieAt("socket half closed");
    }
    // The child keeps the socket open for a while: only the pidfd tells of the death.
    if (::fork() == 0) {
      ::usleep(300'000);
      ::_exit(0);
    }
    DieAt("socket held by a forked child");
  }

  void StartKernels() {
    Publish(Launch("endless", 8));
    for (int i = 0; i < 4; ++i) Publish(Launch("step", 12));
    Ring();
    std::this_thread::sleep_for(1ms);
  }

  template <typename Record>
  bool TryPublish(Record record) {
    record.header.sequence = sequence_ + 1;
    if (ring_->TryWrite(record, tail_) != ipc::WriteResult::kWritten) return false;
    ++sequence_;
    tail_.clear();
    return true;
  }
  template <typename Record>
  void Publish(const Record& record) {
    if (!TryPublish(record)) std::exit(1);
  }
  void Ring() { ipc::ClientDoorbell(page_.As<ipc::WorkerPage>(), eventfd_.get()).Ring(); }

  static ipc::RecordHeader Header(ipc::Op op) {
    ipc::RecordHeader header;
    header.op = static_cast<std::uint8_t>(op);
    return header;
  }
  ipc::LaunchRecord Launch(std::string_view name, std::uint16_t parameter_bytes) {
    ipc::LaunchRecord record;
    record.header = Header(ipc::Op::kLaunch);
    record.module = kModule;
    for (std::uint32_t i = 0; i < module_.kernels.size(); ++i) {
      if (module_.kernels[i].name == name) record.kernel = i;
    }
    std::fill(std::begin(record.grid), std::end(record.grid), 1u);
    std::fill(std::begin(record.block), std::end(record.block), std::uint16_t{1});
    record.parameter_bytes = parameter_bytes;
    tail_.assign(parameter_bytes, std::byte{0});
    std::memcpy(tail_.data(), &welcome_.space_base, sizeof welcome_.space_base);
    return record;
  }
  ipc::FillRecord Fill() const {
    ipc::FillRecord record;
    record.header = Header(ipc::Op::kFill);
    record.height = 1;
    record.destination = welcome_.space_base + 4096;
    record.pitch_bytes = record.width_bytes = 4096;
    record.element_bytes = 1;
    return record;
  }
  ipc::CopyRecord Copy() const {
    ipc::CopyRecord record;
    record.header = Header(ipc::Op::kCopyToDevice);
    record.arena = arena_id_;
    record.device_address = welcome_.space_base + 8192;
    record.device_pitch_bytes = 1u << 20;
    record.arena_pitch_bytes = record.width_bytes = 1u << 20;
    record.height = 1;
    return record;
  }
  static ipc::PlainRecord Mark() {
    ipc::PlainRecord record;
    record.header = Header(ipc::Op::kMark);
    return record;
  }

  const std::size_t death_;
  const bool with_kernels_;
  ipc::UniqueFd socket_, eventfd_;
  std::uint32_t request_ = 0, arena_id_ = 0;
  std::uint64_t sequence_ = 0;
  std::vector<std::byte> tail_;
  ipc::Welcome welcome_;
  ipc::ModuleLoaded module_;
  ipc::SharedSegment commands_, completions_, page_, arena_;
  std::optional<ipc::TagRingWriter> ring_;
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
