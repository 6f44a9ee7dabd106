// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/gate/admission.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "client_lib/drop_in/gate/driver_functions.h"
#include "client_lib/drop_in/gate/function_names.h"
#include "client_lib/drop_in/gate/memory.h"
#include "client_lib/drop_in/log.h"
#include "client_lib/drop_in/native_driver.h"
#include "client_lib/drop_in/session.h"

namespace gpushared::drop_in::gate {

DriverFunctions driver_functions;
std::atomic<int> open_captures{0};
std::atomic<int> calls_outside_captures{0};

namespace {

using std::chrono::nanoseconds;

// A mark is placed after this much predicted work while the client has a window.
constexpr std::uint64_t kMarkInWindowNs = 50'000;
constexpr std::uint32_t kMarksPerCheck = 64;
// A thread that waits for marks spins this long, and sleeps afterwards.
constexpr nanoseconds kSpin = std::chrono::microseconds(20);
constexpr nanoseconds kReconnectEvery = std::chrono::seconds(1);
// Interval between attempts for a GPU that the server does not serve. Longer than kReconnectEvery,
// because the answer rarely changes and a launch waits for each attempt.
constexpr nanoseconds kSearchEvery = std::chrono::minutes(1);
constexpr nanoseconds kConnectTimeout = std::chrono::seconds(2);

// Returns the time of the coarse steady clock, which advances in steps of a few milliseconds. A
// call costs a fifth of a call of the exact clock. Every launch without a server makes one.
std::int64_t CoarseNs() {
  timespec now{};
  (void)::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Sets the timer slack of its thread to 1 ns during the lifetime of the object. With the default of
// 50 µs, sleeps would be so much longer than requested that the GPU would run out of work.
class ExactSleeps {
 public:
  ExactSleeps() : before_(::prctl(PR_GET_TIMERSLACK)) { ::prctl(PR_SET_TIMERSLACK, 1UL); }
  ~ExactSleeps() { ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(before_)); }
  ExactSleeps(const ExactSleeps&) = delete;
  ExactSleeps& operator=(const ExactSleeps&) = delete;

 private:
  const int before_;
};

void Sleep(nanoseconds time) {
  const timespec request{.tv_sec = 0, .tv_nsec = time.count()};
  (void)::clock_nanosleep(CLOCK_MONOTONIC, 0, &request, nullptr);
}

}  // namespace

std::array<std::atomic<Admission*>, kGpusMax> Admission::all_;
std::atomic<Admission*> Admission::only_{nullptr};
std::atomic<int> Admission::gpu_count_{0};
std::atomic<bool> Admission::must_have_server_{false};

Admission& Admission::Of(int gpu) {
  std::atomic<Admission*>& place = all_.at(static_cast<std::size_t>(gpu));
  Admission* found = place.load(std::memory_order_acquire);
  if (found != nullptr) [[likely]]
    return *found;
  auto made = std::unique_ptr<Admission>(new Admission(gpu));  // The constructor is private.
  if (place.compare_exchange_strong(found, made.get())) found = made.release();
  return *found;
}

std::optional<int> Admission::CurrentGpu() {
  const int count = gpu_count_.load(std::memory_order_relaxed);
  int gpu = 0;
  if (count == 1) [[likely]]
    return gpu;
  const bool is_known = count > 1 && driver_functions.ctx_get_device(&gpu) == Code::kSuccess;
  return is_known && IsGpu(gpu) ? std::optional(gpu) : std::nullopt;
}

Admission* Admission::FindCurrent() {
  const std::optional<int> gpu = CurrentGpu();
  return gpu ? &Of(*gpu) : nullptr;
}

Code Admission::Begin() {
  const Code code = CountGpus();
  return code == Code::kSuccess && gpu_count_ == 1 ? Of(0).Connect() : code;
}

Code Admission::CountGpus() {
  // Programs may call cuInit many times, and from several threads.
  static Mutex& mutex = *new Mutex;
  static bool has_counted = false;
  const MutexLock lock(mutex);
  if (has_counted) return Code::kSuccess;
  const Result<std::optional<Fallback>> fallback = FallbackFromEnvironment();
  if (!fallback.ok()) return Reject(Code::kInvalidValue, fallback.status().message());
  must_have_server_ = fallback->value_or(Fallback::kNative) == Fallback::kNone;
  has_counted = true;
  if (!driver_functions.is_complete()) {
    LogLine("gate mode: the installed driver is too old to be gated");
    return Code::kSuccess;
  }
  int count = 0;
  if (driver_functions.device_get_count(&count) != Code::kSuccess) return Code::kSuccess;
  if (count == 1) only_ = &Of(0);
  gpu_count_ = count;
  return Code::kSuccess;
}

// ---- the session

Status Admission::TryConnect() {
  next_attempt_ns_.store(CoarseNs() + kReconnectEvery.count(), std::memory_order_relaxed);
  client::GatedSession::Gpu gpu{.number = static_cast<std::size_t>(gpu_)};
  if (driver_functions.device_get_uuid != nullptr) {
    (void)driver_functions.device_get_uuid(gpu.uuid.data(), gpu_);
  }
  auto client = client::GatedSession::Connect({.control_timeout = kConnectTimeout}, gpu);
  if (!client.ok()) {
    if (client.status().code() == StatusCode::kNotFound) {
      next_attempt_ns_.store(CoarseNs() + kSearchEvery.count(), std::memory_order_relaxed);
    }
    return client.status();
  }
  sessions_.push_back(std::make_unique<Session>(*std::move(client), gpu_, sessions_.size() + 1));
  Session& session = *sessions_.back();
  if (IsLogging()) {
    LogLine("gate mode: client " + std::to_string(session.client->id()) + " on device " +
            session.client->device());
  }
  MemoryQuota::Get().SetLimit(gpu_, session.client->quota_bytes(), session.client->use());
  session_.store(&session, std::memory_order_release);
  return {};
}

Code Admission::Connect() {
  if (has_tried_to_connect_.load(std::memory_order_acquire)) [[likely]]
    return Code::kSuccess;
  const MutexLock lock(connecting_);
  if (has_tried_to_connect_) return Code::kSuccess;
  const Status status = TryConnect();
  if (!status.ok() && must_have_server_) return ConnectCode(status);
  has_tried_to_connect_.store(true, std::memory_order_release);
  if (status.ok()) return Code::kSuccess;
  const std::string where = gpu_count_ == 1 ? "" : " on GPU " + std::to_string(gpu_);
  const std::string sentence =
      "gate mode: this program runs" + where +
      " without a server until one answers: " + std::string(status.message());
  LogLine(sentence);
  static std::atomic<bool> was_reported{false};
  ReportUser(sentence, was_reported);
  return Code::kSuccess;
}

Admission::Session* Admission::GetSession(Code& code) {
  Session* const session = session_.load(std::memory_order_acquire);
  if (session == nullptr) [[unlikely]]
    return Reconnect(code);
  return session->client->InOwner() ? session : nullptr;
}

Admission::Session* Admission::Reconnect(Code& code) {
  if (!has_tried_to_connect_.load(std::memory_order_acquire)) [[unlikely]]
    code = Connect();
  if (code != Code::kSuccess) return nullptr;
  if (CoarseNs() >= next_attempt_ns_.load(std::memory_order_relaxed) && connecting_.TryLock()) {
    const MutexLock lock(connecting_, std::adopt_lock);
    if (session_.load(std::memory_order_acquire) == nullptr) (void)TryConnect();
  }
  Session* const session = session_.load(std::memory_order_acquire);
  if (session == nullptr && must_have_server_) code = Code::kMpsClientTerminated;
  return session;
}

void Admission::OnLost(Session& session) {
  Session* expected = &session;
  if (!session_.compare_exchange_strong(expected, nullptr)) return;
  MemoryQuota::Get().LiftLimit(gpu_, session.client->use());
  const std::string sentence =
      "gate mode: " + std::string(session.client->end_status().message()) +
      (must_have_server_ ? "; launches fail from now on"
                         : "; this program goes on without a server until one answers");
  LogLine(sentence);
  static std::atomic<bool> was_reported{false};
  ReportUser(sentence, was_reported);
}

// ---- turns

bool Admission::RequestTurn(Session& session) {
  client::GatedSession& client = *session.client;
  const std::uint64_t turn = client.turn();
  const bool is_over = turn == 0 || client.HasEnded(turn) ||
                       // If the client does not wait: its turn was opened and, as the caller has
                       // observed, is no longer open, so the worker has closed the turn.
                       (client.gate().waits.load(std::memory_order_relaxed) == 0 &&
                        client.gate().last_opened.load(std::memory_order_acquire) >= turn);
  if (!is_over) return true;
  if (client.CheckAlive() && client.Ask(turn)) {
    client.use().longest_ns.store(0, std::memory_order_relaxed);
    return true;
  }
  OnLost(session);
  return false;
}

bool Admission::HasRoom(Session& session, Admitted& admitted) {
  const std::uint64_t window = session.client->gate().window_ns.load(std::memory_order_relaxed);
  if (window == 0) return true;
  const Marks::InFlight in_flight = session.marks.GetInFlight();
  admitted.at = in_flight.at;
  admitted.mark_above_ns = kMarkInWindowNs;
  // The new launch is not counted, so that the GPU does not become idle between two long launches.
  return in_flight.ns <= window;
}

bool Admission::AwaitRoom(Session& session, Clock::time_point deadline) {
  session.marks.PlaceAll();
  const ExactSleeps exact;
  const Clock::time_point since = Clock::now();
  Clock::time_point progressed_at = since;
  Admitted ignored;
  std::uint64_t passed = session.marks.GetInFlight().passed;
  while (session.client->IsOpen() && !HasRoom(session, ignored)) {
    const Marks::InFlight in_flight = session.marks.GetInFlight();
    if (in_flight.passed != passed) progressed_at = in_flight.at;
    passed = in_flight.passed;
    const nanoseconds stalled = in_flight.at - progressed_at;
    if (stalled >= kStallMax + nanoseconds(in_flight.ns) || in_flight.at >= deadline) return false;
    if (in_flight.at - since < kSpin) {
      for (int i = 0; i < 8; ++i) ipc::SpinPause();
    } else {
      Sleep(kSpin);
    }
  }
  return true;
}

bool Admission::AwaitTurn(Session& session, Clock::time_point deadline) {
  session.marks.PlaceAll();
  client::GatedSession& client = *session.client;
  if (!RequestTurn(session)) return false;
  const std::uint64_t turn = client.turn();
  return client.Await(
      [&] {
        return client.IsOpen() || client.HasEnded(turn) ||
               client.gate().waits.load(std::memory_order_relaxed) == 0;
      },
      deadline - Clock::now());
}

Admission::Admitted Admission::Admit(Session& session) {
  client::GatedSession& client = *session.client;
  std::atomic<std::uint64_t>& submitted = client.use().submitted;
  const ipc::GateState& gate = client.gate();
  Admitted admitted;
  std::optional<Clock::time_point> deadline;
  for (;;) {
    // The launch is counted before the gate is read: a worker that closes the gate of an idle
    // client afterwards observes the launch, and opens the gate again.
    admitted.number = submitted.fetch_add(1, std::memory_order_seq_cst);
    const bool is_open = client.IsOpen();
    if (gate.waits.load(std::memory_order_relaxed) == 0) {
      if (!is_open) [[unlikely]]
        RequestTurn(session);
      return admitted;
    }
    if (is_open && HasRoom(session, admitted)) return admitted;
    submitted.fetch_sub(1, std::memory_order_seq_cst);
    if (!deadline) deadline = Clock::now() + kWaitMax;
    if (is_open ? AwaitRoom(session, *deadline) : AwaitTurn(session, *deadline)) continue;
    submitted.fetch_add(1, std::memory_order_relaxed);
    if (client.CheckAlive()) {
      client.use().passes.fetch_add(1, std::memory_order_relaxed);
    } else {
      OnLost(session);
      admitted.has_server = false;
    }
    return admitted;
  }
}

// ---- launches

void Admission::SetLongest(ipc::GateUse& use, const Work& work, std::uint32_t predicted_ns) {
  using Kind = Work::Kind;
  const std::string name = work.kind == Kind::kKernel  ? FunctionNames::Get().Find(work.function)
                           : work.kind == Kind::kGraph ? "graph"
                                                       : "copy";
  std::array<std::uint64_t, std::size(decltype(use.longest_name){})> words{};
  std::memcpy(words.data(), name.data(), std::min(name.size(), sizeof words));
  for (std::size_t i = 0; i < words.size(); ++i) {
    use.longest_name[i].store(words[i], std::memory_order_relaxed);
  }
  use.longest_ns.store(predicted_ns, std::memory_order_relaxed);
}

Code Admission::Enter(const Work& work, StreamHandle stream, Launch& launch) {
  Code code = Code::kSuccess;
  Session* const session = GetSession(code);
  if (session == nullptr || open_captures.load(std::memory_order_acquire) > 0) return code;
  const LaunchCosts::Prediction predicted = costs_.Predict(work.key);
  const Admitted admitted = Admit(*session);
  if (!admitted.has_server && must_have_server_) return Code::kMpsClientTerminated;
  launch.session = session;
  launch.stream = stream;
  launch.mark_above_ns = admitted.mark_above_ns;
  launch.slot = session->marks.Find(stream);
  if (launch.slot != nullptr) session->marks.Count(*launch.slot, predicted.ns, admitted.at);
  if (predicted.samples < LaunchCosts::kSamplesMin ||
      admitted.number % LaunchCosts::kSampleEvery == 0) [[unlikely]] {
    launch.timing = timings_.Begin(work.key, stream);
  }
  ipc::GateUse& use = session->client->use();
  if (predicted.samples > 0 && predicted.ns > use.longest_ns.load(std::memory_order_relaxed))
      [[unlikely]] {
    SetLongest(use, work, predicted.ns);
  }
  return Code::kSuccess;
}

void Admission::Leave(const Launch& launch, Code code) {
  if (launch.timing != nullptr) timings_.End(launch.timing, launch.stream, code);
  if (launch.slot == nullptr ||
      launch.session->marks.UnmarkedNs(*launch.slot) < launch.mark_above_ns)
    return;
  Session& session = *launch.session;
  session.marks.Place(*launch.slot);
  // While the client does not wait at the gate, only this check detects that the server has ended.
  if (session.placed.fetch_add(1, std::memory_order_relaxed) % kMarksPerCheck == 0 &&
      !session.client->CheckAlive()) [[unlikely]] {
    OnLost(session);
  }
}

// ---- ends

void Admission::ForgetStream(StreamHandle stream) {
  if (Session* const session = session_.load(std::memory_order_acquire)) {
    session->marks.Forget(stream);
  }
}

void Admission::ForgetContext(ContextHandle context) {
  if (Session* const session = session_.load(std::memory_order_acquire)) {
    session->marks.ForgetContext(context);
  }
}

}  // namespace gpushared::drop_in::gate
