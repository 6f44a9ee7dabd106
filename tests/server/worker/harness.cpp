// SPDX-License-Identifier: Apache-2.0
#include "tests/server/worker/harness.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <span>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "server/modules/compile/sha256.h"
#include "server/modules/loader/module_reader.h"

namespace gpushared::testing {

namespace {

constexpr std::chrono::seconds kPatience(30);
constexpr const char* kModule = "null 0\nthree 24\nodd 0 no such instruction\n";

// Reads modules of a StepDevice synchronously.
class StepReader : public loader::ModuleReader {
 public:
  void Load(Owner /*owner*/, const device::ModuleRecipe& /*recipe*/, ipc::UniqueFd image,
            std::uint64_t bytes, Compile /*compile*/, Done done) override {
    std::string text(bytes, '\0');
    if (::pread(image.get(), text.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
      return done(Status(StatusCode::kInternal, "the image cannot be read"));
    }
    Result<std::shared_ptr<const device::PreparedModule>> module = PrepareStepModule(text);
    if (!module.ok()) return done(module.status());
    compile::Sha256 content;
    content.Add(std::as_bytes(std::span(text)));
    done(Loaded{.module = *std::move(module), .content = content.Finish(), .place = nullptr});
  }
  void Cancel(std::uint64_t /*session*/) override {}
  void SetRank(std::uint64_t /*session*/, std::uint8_t /*rank*/) override {}
  loader::LoaderFacts Facts() const override { return {}; }
};

}  // namespace

WorkerHarness::WorkerHarness(StepDeviceOptions device, server::WorkerOptions options) {
  auto pair = ipc::MakeChannelPair();
  EXPECT_TRUE(pair.ok());
  channel_ = std::move(pair->first);
  std::promise<StepDevice*> made;
  auto device_made = made.get_future();
  options.make_device =
      [this, &made, device](
          device::WakeFunction wake, device::OutputFunction,
          std::function<void()> await_quiet) -> Result<std::unique_ptr<device::Device>> {
    await_quiet_ = std::move(await_quiet);
    auto step = std::make_unique<StepDevice>(device, std::move(wake));
    made.set_value(step.get());
    return std::unique_ptr<device::Device>(std::move(step));
  };
  options.make_reader = [] {
    return Result<std::unique_ptr<loader::ModuleReader>>(std::make_unique<StepReader>());
  };
  worker_ = std::make_unique<server::Worker>(std::move(options), std::move(pair->second));
  thread_ = std::thread([this] { exit_promise_.set_value(worker_->Run()); });
  device_ = device_made.get();
}

WorkerHarness::~WorkerHarness() {
  // Ends all work, because the worker has to end sessions whose clients are still connected.
  device_->RunAtOnce();
  device_->HoldNothing();
  for (std::uint64_t session = 1; session < next_session_; ++session) {
    Send(ipc::TerminateSession{.session = session});
  }
  Send(ipc::Drain{});
  channel_.Reset();
  thread_.join();
}

void WorkerHarness::WhileControlStands(const std::function<void()>& body) {
  static std::atomic<bool> stands, goes_on;
  static_assert(std::atomic<bool>::is_always_lock_free);
  stands = goes_on = false;
  struct sigaction stand = {};
  struct sigaction before = {};
  stand.sa_handler = [](int) {
    stands = true;
    while (!goes_on) ::usleep(100);
    stands = false;
  };
  ::sigaction(SIGUSR1, &stand, &before);
  ::pthread_kill(thread_.native_handle(), SIGUSR1);
  EXPECT_TRUE(Eventually([&] { return stands.load(); }));
  body();
  goes_on = true;
  EXPECT_TRUE(Eventually([&] { return !stands; }));
  ::sigaction(SIGUSR1, &before, nullptr);
}

RawClient WorkerHarness::Connect(const ClientOptions& options) {
  int pair[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  std::vector<ipc::UniqueFd> fds;
  fds.emplace_back(pair[1]);
  const pid_t process = options.process < 0 ? ::getpid() : options.process;
  fds.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  EXPECT_TRUE(fds.back().valid());
  ipc::Attach attach;
  attach.session = next_session_++;
  attach.peer.pid = process;
  attach.peer.uid = options.uid;
  attach.share_group = options.uid;
  attach.is_trusted = options.uid == 0 || options.uid == ::geteuid();
  attach.request = 1;
  attach.quota_bytes = options.quota_bytes;
  attach.guaranteed_bytes = options.guaranteed_bytes.value_or(options.quota_bytes);
  attach.allowed_class = options.allowed_class;
  attach.isolation = options.isolation;
  attach.weight_max = kWeightMax;
  attach.client_class = options.client_class;
  attach.hello.latency_target_ns = options.latency_target_ns;
  attach.weight = options.weight;
  attach.hello.name = options.name;
  attach.hello.gated = options.is_gated;
  Send(attach, 0, std::move(fds));
  return RawClient(ipc::UniqueFd(pair[0]));
}

RawClient WorkerHarness::Client(const ClientOptions& options) {
  RawClient client = Connect(options);
  const Status welcome = client.AwaitWelcome();
  EXPECT_TRUE(welcome.ok()) << welcome.ToString();
  EXPECT_TRUE(client.LoadModule(0, kModule).ok());
  EXPECT_TRUE(client.Resize(std::uint64_t{4} << 20).ok());
  return client;
}

std::optional<ipc::Frame> WorkerHarness::AwaitFrame(std::uint16_t type) {
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    if (kept->type != type) continue;
    ipc::Frame frame = std::move(*kept);
    kept_.erase(kept);
    return frame;
  }
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    auto frame = ipc::ReceiveChannelMessage(channel_.get(), ipc::ChannelToBrokerRules);
    if (!frame.ok()) return {};
    if (!frame->has_value()) {
      pollfd waiting{.fd = channel_.get(), .events = POLLIN, .revents = 0};
      ::poll(&waiting, 1, 100);
      continue;
    }
    if ((*frame)->type == type) return std::move(**frame);
    kept_.push_back(std::move(**frame));
  }
  return {};
}

std::string WorkerHarness::AskAdmin(const ipc::Admin& asked) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  std::optional<ipc::ChannelReply> reply;
  std::string text;
  do {  // If the machine keeps the worker's threads off the cores, the answer says that they did
        // not respond.
    Send(ipc::AdminRequest{.admin = asked}, 77);
    text.clear();
    do {
      reply = Await<ipc::ChannelReply>();
      if (reply) text += reply->text;
    } while (reply && !reply->is_last);
  } while (reply && reply->code == StatusCode::kTimedOut && std::chrono::steady_clock::now() < end);
  return text;
}

std::optional<int> WorkerHarness::AwaitExit() {
  if (exit_.wait_for(kPatience) != std::future_status::ready) return {};
  return exit_.get();
}

Holdings Holdings::Now() {
  Holdings holdings;
  if (DIR* const directory = ::opendir("/proc/self/fd")) {
    while (::readdir(directory) != nullptr) ++holdings.descriptors;
    ::closedir(directory);
  }
  std::ifstream map("/proc/self/maps");
  for (std::string line; std::getline(map, line);) {
    if (line.find("memfd:gpushared") != std::string::npos) ++holdings.segments;
  }
  return holdings;
}

bool Eventually(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace gpushared::testing
