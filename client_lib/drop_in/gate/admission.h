// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_ADMISSION_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_ADMISSION_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/status.h"

#include "client_lib/drop_in/driver_types.h"
#include "client_lib/drop_in/gate/costs.h"
#include "client_lib/drop_in/gate/driver_functions.h"
#include "client_lib/drop_in/gate/marks.h"
#include "client_lib/drop_in/gate/timings.h"
#include "client_lib/gated_session.h"

namespace gpushared::drop_in::gate {

// Decides when a launch of this process on one GPU goes to the driver. A client that waits
// (GateState::waits) submits while its turn is open and while no more than the server's window is
// in flight; any other client submits at once and requests its turn without waiting for it. Without
// a server, every launch goes to the driver at once, unless the program must not run without a
// server (GPUSHARED_FALLBACK=none).
//
// Thread-safe. No lock is held during a call of the driver.
class Admission {
  struct Session;

 public:
  // Limit of a wait. A launch that waits may hold locks of its program, such as Python's.
  static constexpr std::chrono::nanoseconds kWaitMax = std::chrono::seconds(1);
  // How long a wait continues beyond the predicted time if no launch in flight ends. Those launches
  // may depend on the launch that waits.
  static constexpr std::chrono::nanoseconds kStallMax = std::chrono::milliseconds(20);

  // Called when the driver has been initialized. Connects to the server if the program has one GPU;
  // with several GPUs, the session of each begins when the GPU is first used. Fails if
  // GPUSHARED_FALLBACK is invalid, or if the connection fails and the program must not run without
  // a server.
  static Code Begin();
  // Returns the number of the GPU of the calling thread's context; always 0 if the program has one
  // GPU. No value without a context, if the GPU's number is not below kGpusMax, or if nothing can
  // be gated.
  static std::optional<int> CurrentGpu();
  // Returns the admission to a GPU. Never destroyed, because threads may launch until the process
  // ends.
  static Admission& Of(int gpu);
  // As Of(*CurrentGpu()); null if CurrentGpu() has no value.
  static Admission* OfCurrent() {
    Admission* const only = only_.load(std::memory_order_acquire);
    return only != nullptr ? only : FindCurrent();
  }
  // Returns whether the program has only one GPU, so that no call needs to determine its GPU.
  static bool SeesOneGpu() { return only_.load(std::memory_order_acquire) != nullptr; }
  template <typename Function>
  static void ForEach(Function function) {
    for (auto& one : all_) {
      if (Admission* const admission = one.load(std::memory_order_acquire)) function(*admission);
    }
  }

  // The first call connects. Returns the error of a failed attempt only if the program must not run
  // without a server; the next call then tries again.
  Code Connect();

  // Identifies a launch for predictions and messages.
  struct Work {
    enum class Kind : std::uint8_t { kKernel, kGraph, kCopy };
    LaunchKey key = 0;
    Kind kind = Kind::kKernel;
    const void* function = nullptr;  // Handle of the kernel, if `kind` is kKernel.
  };
  // A launch between Enter and Leave. Without a slot it is neither counted nor marked.
  struct Launch {
    Session* session = nullptr;
    Marks::Slot* slot = nullptr;
    Timings::Pair* timing = nullptr;
    StreamHandle stream = nullptr;
    std::uint64_t mark_above_ns = 0;
  };
  // Called before the driver's function; may wait. The launch must not be submitted unless the code
  // is kSuccess. A null `stream` means the legacy default stream.
  Code Enter(const Work& work, StreamHandle stream, Launch& launch);
  // Called after the driver's function. `code` is its result.
  void Leave(const Launch& launch, Code code);

  // ForgetStream is called before a stream is destroyed, DestroyEvents before a context ends, and
  // ForgetContext after a context has ended.
  void ForgetStream(StreamHandle stream);
  void DestroyEvents() { timings_.DestroyEvents(); }
  void ForgetContext(ContextHandle context);

 private:
  explicit Admission(int gpu) : gpu_(gpu) {}
  static Admission* FindCurrent();
  // Sets only_, gpu_count_ and must_have_server_, once.
  static Code CountGpus();

  struct Session {
    Session(std::unique_ptr<client::GatedSession> connected, int gpu, std::size_t ordinal)
        : client(std::move(connected)), marks(client->use(), gpu, ordinal) {}
    const std::unique_ptr<client::GatedSession> client;
    Marks marks;
    std::atomic<std::uint32_t> placed{0};  // Number of calls of Marks::Place by Leave.
  };
  using Clock = std::chrono::steady_clock;

  // Returns the session; null if there is none. Without a session, a launch goes to the driver
  // without admission if `code` is kSuccess, and fails with `code` if it is not.
  Session* GetSession(Code& code);
  [[gnu::cold]] Session* Reconnect(Code& code);
  [[gnu::cold]] void OnLost(Session& session);
  Status TryConnect() GPUSHARED_REQUIRES(connecting_);

  // A mark is placed after this much predicted work if the client has no window.
  static constexpr std::uint64_t kMarkNs = 200'000;
  struct Admitted {
    std::uint64_t number = 0;  // Number of earlier launches in the session.
    std::uint64_t mark_above_ns = kMarkNs;
    Clock::time_point at{};  // Set if the client has a window.
    bool has_server = true;
  };
  // Waits for the turn and for room in the window; returns at once if GateState::waits is 0.
  Admitted Admit(Session& session);
  bool HasRoom(Session& session, Admitted& admitted);
  [[gnu::cold]] bool AwaitRoom(Session& session, Clock::time_point deadline);
  [[gnu::cold]] bool AwaitTurn(Session& session, Clock::time_point deadline);
  // Publishes the launch as the longest of the turn.
  [[gnu::cold]] static void SetLongest(ipc::GateUse& use, const Work& work,
                                       std::uint32_t predicted_ns);
  // Requests the next turn if the latest one is over. Returns false if the session has ended.
  [[gnu::cold]] bool RequestTurn(Session& session);

  // Admissions by the number of their GPU; null until the GPU is used.
  static std::array<std::atomic<Admission*>, kGpusMax> all_;
  static std::atomic<Admission*> only_;  // Null unless the program has one GPU.
  static std::atomic<int> gpu_count_;    // 0 if nothing can be gated.
  static std::atomic<bool> must_have_server_;

  const int gpu_;
  std::atomic<Session*> session_{nullptr};
  std::atomic<bool> has_tried_to_connect_{false};
  // Earliest time of the next attempt to connect, on the coarse steady clock.
  std::atomic<std::int64_t> next_attempt_ns_{0};
  Mutex connecting_;
  // Ended sessions are kept, because threads may still use them. A session is added only after the
  // previous one has ended.
  std::vector<std::unique_ptr<Session>> sessions_ GPUSHARED_GUARDED_BY(connecting_);
  LaunchCosts costs_;
  Timings timings_{costs_};
};

}  // namespace gpushared::drop_in::gate

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_ADMISSION_H_
