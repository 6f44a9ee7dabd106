// SPDX-License-Identifier: Apache-2.0
// A server for tests of the client library: a real socket, real rings, an array as device memory,
// and kernels without effect. Tests can inject every kind of failure.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_WORKER_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_WORKER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpushared/status.h"

#include "ipc/unique_fd.h"
#include "ipc/wire/command.h"
#include "ipc/wire/control.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::testing {

// A command that the worker took, with its parameters copied out of the record or the staging
// buffer.
struct TakenCommand {
  ipc::Command command;
  std::vector<std::byte> parameters;  // Empty except for launches.
};

struct FakeWorkerOptions {
  std::uint64_t quota_bytes = 64u << 20;
  std::uint64_t staging_bytes_total_max = 64u << 20;
  std::uint32_t staging_buffers_max = 8;
  std::uint64_t spin_ns = 0;
  Status reject_hello;  // Answer to every hello; Ok accepts it.
};

// Serves any number of sessions in the same way, one thread each.
//
// Thread-safe.
class FakeWorker {
 public:
#ifdef __SANITIZE_ADDRESS__
  // Base address of clients' memory. Managed memory is mapped here, and the sanitizer's shadow
  // memory occupies lower addresses.
  static constexpr std::uint64_t kBase = std::uint64_t{1} << 45;
#else
  static constexpr std::uint64_t kBase = std::uint64_t{1} << 33;
#endif
  // Address of modules' variables, beyond all memory that a client can have.
  static constexpr std::uint64_t kVariables = kBase + (std::uint64_t{1} << 32);
  static constexpr std::uint64_t kSession = 7;
  // Every module that loads has these kernels. An image that begins with "bad" is rejected.
  static std::vector<ipc::KernelDescription> Kernels();
  static std::vector<ipc::VariableDescription> Variables();

  explicit FakeWorker(FakeWorkerOptions options = {});
  ~FakeWorker();
  FakeWorker(const FakeWorker&) = delete;
  FakeWorker& operator=(const FakeWorker&) = delete;

  const std::string& socket_path() const { return path_; }

  // While off, the ring is not read and fills up.
  void set_taking(bool on) { taking_ = on; }
  // While off, commands are taken but not executed.
  void set_finishing(bool on) { finishing_ = on; }
  // While off, requests on the socket stay unanswered.
  void set_answering(bool on) { answering_ = on; }
  // Delays the answer that a module is loaded by this time.
  void set_load_takes(std::chrono::milliseconds time) { load_takes_ = time; }
  // Makes the worker answer the next request falsely, as a broken or hostile server would.
  enum class Lie : std::uint8_t { kNone, kOtherRequest, kOtherKind };
  void set_lie(Lie lie) { lie_ = lie; }
  // Sends one session a message that its client did not request.
  void SendUnrequested() { sends_unrequested_ = true; }
  // Makes the command fail with `status` after it was executed; kKernelFault is reported with
  // FaultKind::kMisalignedAddress.
  void FailAt(std::uint32_t stream, std::uint64_t sequence, Status status);
  // Answers kWhy on a socket that the function takes over; it may block until the socket is closed.
  // Default answer: kDeviceLost, "worker 1 of device fake:0 died".
  using WhyAnswer = std::function<void(ipc::UniqueFd socket)>;
  void set_why(WhyAnswer answer);
  // Removes the socket that clients connect to.
  void StopListening();

  // Ends all sessions with a message; KillSessions ends them like a worker that is killed.
  void EndSessions(Status status);
  void KillSessions() { kill_ = true; }

  // All commands taken so far, in order.
  std::vector<TakenCommand> taken() const;
  std::size_t taken_count() const { return taken_count_; }
  std::vector<std::uint32_t> unloaded_modules() const;
  std::vector<std::uint64_t> resizes() const;  // The requested sizes.
  std::size_t staging_buffers_added() const { return staging_buffers_added_; }
  std::size_t sessions_ended() const { return sessions_ended_; }
  // Returns the violations of the protocol for which sessions were ended. Tests expect none.
  std::vector<std::string> violations() const;
  std::optional<ipc::Hello> last_hello() const;

 private:
  class Session;

  void Serve();
  void Answer(ipc::UniqueFd socket);

  const FakeWorkerOptions options_;
  ScratchDirectory directory_;
  std::string path_;
  ipc::UniqueFd listening_;
  ipc::UniqueFd stop_;

  std::atomic<std::chrono::milliseconds> load_takes_{};
  std::atomic<bool> taking_{true}, finishing_{true}, answering_{true};
  std::atomic<bool> kill_{false}, stopping_{false}, sends_unrequested_{false};
  std::atomic<Lie> lie_{Lie::kNone};
  std::atomic<std::size_t> taken_count_{0}, staging_buffers_added_{0}, sessions_ended_{0};

  mutable std::mutex mutex_;  // Guards the members below.
  std::map<std::pair<std::uint32_t, std::uint64_t>, Status> failures_;
  std::optional<Status> end_;
  WhyAnswer why_;
  std::vector<TakenCommand> taken_;
  std::vector<std::uint32_t> unloaded_;
  std::vector<std::uint64_t> resizes_;
  std::vector<std::string> violations_;
  std::optional<ipc::Hello> last_hello_;
  std::vector<std::thread> sessions_;

  std::thread server_;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_WORKER_H_
