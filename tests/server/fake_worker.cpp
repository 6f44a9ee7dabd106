// SPDX-License-Identifier: Apache-2.0
// A worker without a device, for tests of the broker: it keeps the sockets it receives, sends the
// broker a worker's messages, and misbehaves on request.
//
// Usage: fake_worker GENERATION BEHAVIOUR. The behaviours: normal. silent: never answers operators.
// mad: sends garbage when a session is attached. unable: exits at once. slow: is never ready.
// stubborn: ignores drain and requests to end sessions. verbose: answers operators in pages.
// endless: answers in more pages than any reader accepts. losing: loses its device when a session
// is attached, and exits some time later.

#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/unix_socket.h"

namespace gpushared::testing {
namespace {

constexpr int kChannel = 3;

class FakeWorker {
 public:
  FakeWorker(std::uint32_t generation, std::string_view behaviour)
      : generation_(generation), behaviour_(behaviour) {}

  int Run() {
    if (behaviour_ == "unable") return 1;
    ipc::Ready ready;
    ready.generation = generation_;
    ready.device.name = "fake device";
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible != nullptr) {
      ready.device.name += std::string(" that sees ") + visible;
    }
    ready.device.id = "fake:0";
    ready.device.kind = "fake";
    ready.device.memory_bytes = std::uint64_t{1} << 30;
    ready.device.multiprocessors = 1;
    ready.device.threads_per_block_max = 1024;
    ready.device.block_max = {1024, 1024, 64};
    ready.device.grid_max = {1, 1, 1};
    ready.device.shared_bytes_per_block_max = 48 << 10;
    if (behaviour_ != "slow") SendToBroker(0, ready);
    while (!(is_draining_ && sessions_.empty())) Turn();
    return 0;
  }

 private:
  template <typename T>
  void SendToBroker(std::uint32_t request, const T& message) {
    if (!outbox_.Add(request, message).ok() || !outbox_.Flush(kChannel).ok()) is_draining_ = true;
  }

  void FlushAll() {
    for (Result<bool> done = false; done.ok() && !*done; done = outbox_.Flush(kChannel)) {
      pollfd writable = {.fd = kChannel, .events = POLLOUT, .revents = 0};
      ::poll(&writable, 1, -1);
    }
  }

  void Turn() {
    std::vector<pollfd> polled;
    polled.push_back({.fd = channel_open_ ? kChannel : -1, .events = POLLIN, .revents = 0});
    std::vector<std::uint64_t> ids;
    for (const auto& [id, socket] : sessions_) {
      ids.push_back(id);
      polled.push_back({.fd = socket.get(), .events = POLLRDHUP, .revents = 0});
    }
    ::poll(polled.data(), polled.size(), -1);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (polled[i + 1].revents != 0) End(ids[i], Status::Ok());
    }
    if (polled[0].revents != 0) TakeMessage();
  }

  void TakeMessage() {
    Result<std::optional<ipc::Frame>> message =
        ipc::ReceiveChannelMessage(kChannel, ipc::ChannelToWorkerRules);
    if (!message.ok()) {
      channel_open_ = false;
      is_draining_ = true;
      return;
    }
    if (message->has_value()) Handle(**message);
  }

  void Handle(ipc::Frame& frame) {
    const bool is_stubborn = behaviour_ == "stubborn";
    switch (static_cast<ipc::ChannelType>(frame.type)) {
      case ipc::ChannelType::kAttach:
        return Attach(frame);
      case ipc::ChannelType::kDrain:
        is_draining_ = is_draining_ || !is_stubborn;
        return;
      case ipc::ChannelType::kResume:
        is_draining_ = false;
        return;
      case ipc::ChannelType::kTerminateSession: {
        const auto session = ipc::Decode<ipc::TerminateSession>(frame.payload);
        if (is_stubborn || !session.ok()) return;
        End(session->session, {StatusCode::kDisconnected, "session ended: " + session->why});
        return SendToBroker(frame.request, ipc::ChannelReply{});
      }
      case ipc::ChannelType::kSetSession:
      case ipc::ChannelType::kAdminRequest: {
        if (behaviour_ == "silent") return;
        if (behaviour_ == "verbose" || behaviour_ == "endless") return ReportPages(frame.request);
        ipc::ChannelReply reply;
        reply.text = R"({"clients":[{"client":1,"launches":77}]})";
        return SendToBroker(frame.request, reply);
      }
      default:
        return;
    }
  }

  // Reports a row for each session. The rows have the length of a real worker's rows.
  void ReportPages(std::uint32_t request) {
    std::string text = R"({"padding":")";
    text.append((behaviour_ == "endless" ? 100 : 3) * ipc::kPageTextBytesMax, 'p');
    text += R"(","clients":[)";
    for (const auto& [id, socket] : sessions_) {
      text += R"({"client":)" + std::to_string(id) + R"(,"facts":")" + std::string(500, 'f') +
              (id == sessions_.rbegin()->first ? "\"}" : "\"},");
    }
    text += "]}";
    for (std::string_view rest = text; !rest.empty();) {
      const std::string page(ipc::TakePage(rest));
      SendToBroker(request, ipc::ChannelReply{.text = page, .is_last = rest.empty()});
      FlushAll();
    }
  }

  void Attach(ipc::Frame& frame) {
    const auto attach = ipc::Decode<ipc::Attach>(frame.payload);
    if (!attach.ok() || frame.fds.size() != ipc::kAttachFds) std::abort();
    if (behaviour_ == "mad") {
      if (::write(kChannel, "nonsense", 8) != 8) std::abort();
      return;
    }
    // Enough for a test client to notice that it was attached; a real welcome also carries
    // descriptors.
    ipc::Outbox welcome;
    if (!welcome.Add(attach->request, ipc::Done{}).ok()) std::abort();
    if (!welcome.Flush(frame.fds[0].get()).ok()) return;
    sessions_.emplace(attach->session, std::move(frame.fds[0]));
    SendToBroker(0, ipc::SessionStarted{attach->session});
    if (behaviour_ != "losing") return;
    // Imitates a worker whose device has died: a last message, the ends of its sessions, and some
    // time later the exit of the process.
    SendToBroker(0, ipc::ChannelReply{.code = StatusCode::kDeviceLost, .text = "the device died"});
    End(attach->session, {StatusCode::kDeviceLost, "killed by session 1"});
    ::usleep(300'000);
    ::_exit(3);
  }

  void End(std::uint64_t id, const Status& why) {
    if (sessions_.erase(id) > 0) SendToBroker(0, ipc::SessionEnded{id, why});
  }

  std::uint32_t generation_;
  std::string behaviour_;
  ipc::Outbox outbox_{ipc::Outbox::Kind::kSeqpacket};
  std::map<std::uint64_t, ipc::UniqueFd> sessions_;
  bool channel_open_ = true;
  bool is_draining_ = false;
};

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto generation = static_cast<std::uint32_t>(std::strtoul(argv[1], nullptr, 10));
  return gpushared::testing::FakeWorker(generation, argv[2]).Run();
}
