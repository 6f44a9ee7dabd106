// SPDX-License-Identifier: Apache-2.0
// A worker in this process, and the broker's end of its channel.

#ifndef GPUSHARED_TESTS_SERVER_WORKER_HARNESS_H_
#define GPUSHARED_TESTS_SERVER_WORKER_HARNESS_H_

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpushared/result.h"

#include "ipc/unique_fd.h"
#include "ipc/unix_socket.h"
#include "ipc/wire/channel.h"
#include "server/worker/control/worker.h"
#include "tests/support/raw_client.h"
#include "tests/support/step_device.h"

namespace gpushared::testing {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// Makes a device finish its work as soon as it is submitted.
inline constexpr StepDeviceOptions kAtOnce{.runs_at_once = true};

// A worker in this process. Waits end after 30 s with an empty value. Thread-compatible.
class WorkerHarness {
 public:
  struct ClientOptions {
    std::string name = "client";
    SchedulingClass client_class = SchedulingClass::kNormal;
    std::uint32_t weight = 1;
    std::uint64_t latency_target_ns = 0;
    std::uint64_t quota_bytes = std::uint64_t{64} << 20;
    std::optional<std::uint64_t> guaranteed_bytes = {};  // Default: the whole quota.
    std::uint32_t uid = ::geteuid();
    std::uint8_t isolation = 0;
    SchedulingClass allowed_class = SchedulingClass::kHigh;
    bool is_gated = false;
    int process = -1;  // Process whose death ends the session; negative: this process.
  };

  explicit WorkerHarness(StepDeviceOptions device = {}, server::WorkerOptions options = {});
  // Drains and joins the worker; finishes everything on the device first.
  ~WorkerHarness();
  WorkerHarness(const WorkerHarness&) = delete;
  WorkerHarness& operator=(const WorkerHarness&) = delete;

  StepDevice& device() { return *device_; }
  // Waits until no request is urgent, as the device does before its own calls.
  void AwaitQuiet() { await_quiet_(); }

  // Hands a new connection to the worker without waiting for its welcome.
  RawClient Connect(const ClientOptions& options);
  // Returns a client that has completed its handshake, with one module (number 0: kernels `null`
  // without parameters and `three` with 24 bytes) and 4 MiB of memory.
  RawClient Client(const ClientOptions& options);
  RawClient Client() { return Client(ClientOptions{}); }
  std::uint64_t last_session() const { return next_session_ - 1; }

  template <typename T>
  void Send(const T& message, std::uint32_t request = 0, std::vector<ipc::UniqueFd> fds = {}) {
    (void)outbox_.Add(request, message, std::move(fds));
    (void)outbox_.Flush(channel_.get());
  }
  // Returns the next message of this type; others are kept for later calls.
  template <typename T>
  std::optional<T> Await() {
    const auto frame = AwaitFrame(static_cast<std::uint16_t>(T::kType));
    if (!frame) return {};
    Result<T> message = ipc::Decode<T>(frame->payload);
    if (!message.ok()) return {};
    return *message;
  }
  // Returns the worker's answer to an admin request as text.
  std::string AskAdmin(const ipc::Admin& asked);
  std::string AskAdmin(ipc::AdminVerb verb) { return AskAdmin(ipc::Admin{.verb = verb}); }

  void CloseChannel() { channel_.Reset(); }
  // Runs `body`, whose effects all reach the worker's control thread at once, in order.
  void WhileControlStands(const std::function<void()>& body);
  // Waits for the worker to end, and returns its exit code.
  std::optional<int> AwaitExit();

 private:
  std::optional<ipc::Frame> AwaitFrame(std::uint16_t type);

  StepDevice* device_ = nullptr;  // Owned by the worker.
  std::function<void()> await_quiet_;
  ipc::UniqueFd channel_;
  ipc::Outbox outbox_{ipc::Outbox::Kind::kSeqpacket};
  std::deque<ipc::Frame> kept_;
  std::unique_ptr<server::Worker> worker_;
  std::promise<int> exit_promise_;
  std::future<int> exit_ = exit_promise_.get_future();
  std::thread thread_;
  std::uint64_t next_session_ = 1;
};

// Numbers of open descriptors of this process, and of mappings of our shared memory.
struct Holdings {
  std::size_t descriptors = 0;
  std::size_t segments = 0;
  static Holdings Now();
  friend bool operator==(const Holdings&, const Holdings&) = default;
};

// Returns whether `holds` becomes true within 30 s.
bool Eventually(const std::function<bool()>& holds);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SERVER_WORKER_HARNESS_H_
