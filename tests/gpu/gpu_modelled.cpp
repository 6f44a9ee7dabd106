// SPDX-License-Identifier: Apache-2.0
// The cost of sharing in a model: the worker's real device thread and CUDA device on the fake
// driver with the costs of a real one, in virtual time. The results are the same on every machine,
// however busy, and are as accurate as the costs (tests/support/fake_cuda/costs.h).
//
// gpu_modelled [--rows FILE] [--costs FILE] [--cost "kernel_gap 900"]...
//   --rows FILE   appends the judged results; run.sh describes rows. All of them begin with
//                 *modelled*.
//   --costs FILE  a cost a line, as measured by gpu_facts on a GPU.
//   --cost TEXT   one cost, in ns.
//
// Clients are simulated whenever the device thread reads its clock, so that they take none of its
// time. A waiting client detects the end of its work at the next clock read, without a wake-up.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ipc/doorbell.h"
#include "ipc/shared_segment.h"
#include "ipc/tag_ring.h"
#include "scheduler/policy_catalog.h"
#include "server/device/cuda/cuda_device.h"
#include "server/device/cuda/cuda_device_impl.h"
#include "server/device/cuda/cuda_module.h"
#include "server/worker/loop/device_thread.h"
#include "tests/bench/report.h"
#include "tests/gpu/simulated_loader.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/load_module.h"
#include "tests/support/plain_compiler.h"
#include "tests/support/virtual_time/virtual_time.h"

__asm__(
    ".pushsection .rodata\n"
    "gpu_modelled_ptx_begin:\n"
    ".incbin \"" GPUSHARED_KERNEL_IMAGE
    "\"\n"
    "gpu_modelled_ptx_end:\n"
    ".byte 0\n"
    ".popsection\n");
extern "C" const char gpu_modelled_ptx_begin[], gpu_modelled_ptx_end[];

namespace gpushared::testing {
namespace {

using device::Isolation;
using scheduler::SchedulingClass;

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
// Four multiprocessors with space for eight blocks of one warp each: 32 blocks at once. The driver
// blocks as in the worst reports: loads wait for the GPU, and all other calls wait for the loads.
constexpr const char* kGpu = "memory 4G; sms 4; attribute 39 256; costs on; lock on";
constexpr std::uint32_t kThreads = 32;
constexpr std::uint32_t kBlocksAtOnce = 32;
constexpr std::uint64_t kMapped = std::uint64_t{16} << 20;
// The time of a client's library and of a cache-line transfer, from the publication of one end to
// the next record.
constexpr std::uint64_t kClientNs = 500;

std::string_view KernelText() {
  return {gpu_modelled_ptx_begin,
          static_cast<std::size_t>(gpu_modelled_ptx_end - gpu_modelled_ptx_begin)};
}

#pragma pack(push, 4)
struct Parameters {
  std::uint64_t out = 0;
  std::uint32_t rounds = 0;
};
#pragma pack(pop)
static_assert(sizeof(Parameters) == 12);

// The form of a launch: `waves` waves of blocks that fill the GPU, with `rounds` rounds per block.
struct Shape {
  std::uint32_t rounds = 0;
  std::uint32_t waves = 1;
  std::uint32_t blocks() const { return waves * kBlocksAtOnce; }
};

// The outcome of some launches.
struct Outcome {
  double ns_each = 0;   // From the first launch to the end of the last one.
  double busy = 0;      // Fraction of that time in which the GPU ran blocks.
  Samples round_trips;  // Times of launches for which the client waited.
};

// ---- the driver itself

class Native {
 public:
  Native() : driver_(Must(device::cuda::Driver::Load())) {
    Do(driver_->DeviceGet, &device_, 0);
    Do(driver_->DevicePrimaryCtxRetain, &context_, device_);
    Do(driver_->CtxSetCurrent, context_);
    Do(driver_->StreamCreateWithPriority, &stream_, device::cuda::kStreamNonBlocking, 0);
    Do(driver_->ModuleLoadDataEx, &module_, static_cast<const void*>(gpu_modelled_ptx_begin), 0U,
       static_cast<device::cuda::JitOption*>(nullptr), static_cast<void**>(nullptr));
    Do(driver_->ModuleGetFunction, &busy_, module_, "busy");
    Do(driver_->MemAlloc, &out_, kMapped);
  }
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;
  ~Native() {
    Do(driver_->MemFree, out_);
    Do(driver_->ModuleUnload, module_);
    Do(driver_->StreamDestroy, stream_);
    Do(driver_->DevicePrimaryCtxRelease, device_);
  }

  Outcome BackToBack(const Shape& shape, int launches) {
    Sync();
    const std::uint64_t begin = virtual_time_now(), busy = fake_cuda_busy_ns();
    for (int i = 0; i < launches; ++i) Launch(shape);
    Sync();
    const auto took = static_cast<double>(virtual_time_now() - begin);
    return {.ns_each = took / launches,
            .busy = static_cast<double>(fake_cuda_busy_ns() - busy) / took,
            .round_trips = {}};
  }
  Samples RoundTrips(const Shape& shape, int launches) {
    Samples samples;
    for (int i = 0; i < launches; ++i) {
      const std::uint64_t begin = virtual_time_now();
      Launch(shape);
      Sync();
      samples.Add(static_cast<double>(virtual_time_now() - begin));
    }
    return samples;
  }
  // Returns the rounds of a block that takes 1 µs.
  double RoundsPerUs() {
    constexpr std::uint32_t kRounds = 10'000;
    const double one = BackToBack({.rounds = kRounds}, 1).ns_each;
    const double two = BackToBack({.rounds = 2 * kRounds}, 1).ns_each;
    return kRounds * 1000.0 / (two - one);
  }

 private:
  template <typename Call, typename... Arguments>
  void Do(const Call& call, Arguments... arguments) {
    Must(driver_->Try(call, arguments...));
  }
  void Launch(const Shape& shape) {
    Parameters parameters{.out = out_, .rounds = shape.rounds};
    std::array<void*, 2> given = {&parameters.out, &parameters.rounds};
    Do(driver_->LaunchKernel, busy_, shape.blocks(), 1U, 1U, kThreads, 1U, 1U, 0U, stream_,
       given.data(), static_cast<void**>(nullptr));
  }
  void Sync() { Do(driver_->StreamSynchronize, stream_); }

  const std::shared_ptr<const device::cuda::Driver> driver_;
  device::cuda::DeviceNumber device_ = 0;
  device::cuda::Context context_ = nullptr;
  device::cuda::Stream stream_ = nullptr;
  device::cuda::Module module_ = nullptr;
  device::cuda::Function busy_ = nullptr;
  device::cuda::DeviceAddress out_ = 0;
};

// ---- clients

constexpr int kEndless = std::numeric_limits<int>::max() / 2;

struct ClientPlan {
  SchedulingClass of_class = SchedulingClass::kLow;
  Isolation isolation = Isolation::kOff;
  Shape shape;
  // 0: the client only stays connected. kEndless: it launches until the others have finished.
  int launches = 0;
  // Launches before the counted ones, so that the server has learnt the kernel's duration.
  int warm_up = 0;
  // Maximum number of launches in flight. If 1, the client waits for each launch, and pauses for up
  // to `think_ns` before the next one.
  std::uint64_t depth = 256;
  std::uint64_t think_ns = 0;
};

// A client's shared memory, its end of the rings, and its behaviour.
class SimulatedClient {
 public:
  SimulatedClient(std::uint64_t session, device::Device& device, const ClientPlan& plan)
      : session_(session),
        plan_(plan),
        commands_(Must(
            ipc::SharedSegment::Create({.name = "modelled", .bytes = ipc::kCommandSegmentBytes}))),
        completions_(Must(ipc::SharedSegment::Create(
            {.name = "modelled", .bytes = ipc::kCompletionSegmentBytes}))),
        doorbell_(Must(ipc::MakeDoorbell())),
        space_(Must(device.CreateSpace(
            {.quota_bytes = std::uint64_t{1} << 30, .isolation = plan.isolation}))),
        ring_(in().granules, out().granules_taken) {
    Must(space_->Resize(kMapped));
    module_ = Must(LoadModule(*space_, KernelText()));
    AwaitClaimedForm();
    record_.header.op = static_cast<std::uint8_t>(ipc::Op::kLaunch);
    record_.kernel = kernel_;
    record_.grid[0] = plan.shape.blocks();
    record_.grid[1] = record_.grid[2] = 1;
    record_.block[0] = kThreads;
    record_.block[1] = record_.block[2] = 1;
    record_.parameter_bytes = sizeof(Parameters);
    parameters_ = {.out = space_->base(), .rounds = plan.shape.rounds};
  }

  void Attach(server::DeviceThread& thread) {
    server::ClientState::Setup setup;
    setup.session = session_;
    setup.who = "a played client";
    setup.spec.scheduling_class = plan_.of_class;
    setup.commands = &in();
    setup.completions = &out();
    setup.doorbell = doorbell_.get();
    setup.space = space_.get();
    setup.graphs = std::make_shared<server::GraphBudget>(setup.limits.graphs_bytes, 1);
    thread.mailbox().Post(server::AttachClient{std::make_unique<server::ClientState>(setup)});
    thread.mailbox().Post(server::SetMapped{session_, kMapped});
    thread.mailbox().Post(server::AddModule{session_, 0, module_.get(), session_});
  }

  // Performs the client's actions at that time; returns when it will act next if no other event
  // occurs.
  std::uint64_t Act(std::uint64_t now, const ipc::WorkerPage& page) {
    const std::uint64_t ended = out().timeline[0].load(std::memory_order_acquire);
    const auto total = static_cast<std::uint64_t>(plan_.warm_up + plan_.launches);
    if (is_done_ || total == 0) return kNever;
    if (ended > ended_) {
      ended_ = ended;
      if (plan_.depth == 1) {
        if (ended > Warm()) outcome_.round_trips.Add(static_cast<double>(now - launched_at_));
        next_at_ = now + kClientNs + (plan_.think_ns == 0 ? 0 : random_() % plan_.think_ns);
      }
      if (plan_.launches == kEndless && ended > Warm()) Measure(now, ended - Warm());
      if (ended == total) {
        Finish(now);
        return kNever;
      }
    }
    if (now < next_at_) return next_at_;
    bool has_written = false;
    while (sent_ < total && sent_ - ended_ < plan_.depth && TryLaunch(now)) has_written = true;
    if (has_written) ipc::ClientDoorbell(page, doorbell_.get()).Ring();
    return kNever;
  }

  bool is_awaited() const { return plan_.launches > 0 && plan_.launches != kEndless && !is_done_; }
  std::uint64_t session() const { return session_; }
  const Outcome& outcome() const { return outcome_; }

 private:
  ipc::CommandSegment& in() { return commands_.As<ipc::CommandSegment>(); }
  ipc::CompletionSegment& out() { return completions_.As<ipc::CompletionSegment>(); }
  std::uint64_t Warm() const { return static_cast<std::uint64_t>(plan_.warm_up); }

  bool TryLaunch(std::uint64_t now) {
    // Waits for the warm-up to end, because the measurement starts with an idle device.
    if (sent_ == Warm() && ended_ < Warm()) return false;
    record_.header.sequence = sent_ + 1;
    const auto parameters = std::as_bytes(std::span(&parameters_, 1));
    if (ring_.TryWrite(record_, parameters) != ipc::WriteResult::kWritten) return false;
    if (sent_++ == Warm()) {
      began_at_ = now;
      busy_before_ = fake_cuda_busy_ns();
    }
    // Uses the time at which the client wanted to launch, because the device thread may have been
    // inside a driver call then.
    launched_at_ = next_at_ == 0 ? now : next_at_;
    return true;
  }

  void Finish(std::uint64_t now) {
    is_done_ = true;
    Measure(now, static_cast<std::uint64_t>(plan_.launches));
  }
  void Measure(std::uint64_t now, std::uint64_t launches) {
    const auto took = static_cast<double>(now - began_at_);
    outcome_.ns_each = took / static_cast<double>(launches);
    outcome_.busy = static_cast<double>(fake_cuda_busy_ns() - busy_before_) / took;
  }

  void AwaitClaimedForm() {
    const auto kernels = module_->kernels();
    const auto found = std::ranges::find(kernels, "busy", &device::KernelInfo::name);
    kernel_ = static_cast<std::uint32_t>(found - kernels.begin());
    const auto& module = static_cast<const device::cuda::CudaModule&>(*module_);
    // Waits in real time, because another thread compiles the form.
    while (module.claimed(kernel_) == nullptr) std::this_thread::yield();
  }

  const std::uint64_t session_;
  const ClientPlan plan_;
  ipc::SharedSegment commands_, completions_;
  ipc::UniqueFd doorbell_;
  std::unique_ptr<device::Space> space_;
  std::shared_ptr<const device::Module> module_;
  std::uint32_t kernel_ = 0;
  ipc::TagRingWriter ring_;
  ipc::LaunchRecord record_;
  Parameters parameters_;
  std::mt19937_64 random_{1};
  std::uint64_t sent_ = 0, ended_ = 0;
  std::uint64_t next_at_ = 0, launched_at_ = 0, began_at_ = 0, busy_before_ = 0;
  bool is_done_ = false;
  Outcome outcome_;
};

// ---- the worker's part

enum class Loads : std::uint8_t { kNone, kAsTheyCome, kInIdleWindows };

struct WorkerPlan {
  const char* policy = "priority";
  Loads loads = Loads::kNone;
  std::uint64_t loads_pause_ns = 0;
  Image loaded = Image::kKept;
  std::chrono::nanoseconds spins = std::chrono::microseconds(50);
  device::cuda::CompletionKind completion = device::cuda::CompletionKind::kEvents;
};

// Runs the device thread with these clients until their launches have finished. Returns the
// outcomes of the clients, followed by that of the loads.
std::vector<Outcome> Play(const WorkerPlan& worker, const std::vector<ClientPlan>& plans) {
  const auto signal = Must(server::DeviceSignal::Create());
  device::cuda::CudaDeviceOptions options;
  options.completion = worker.completion;
  options.make_compiler = [] { return std::make_unique<PlainCompiler>(); };
  const auto device =
      Must(device::cuda::CreateCudaDevice(Must(device::cuda::Driver::Load()), std::move(options),
                                          [&] { signal->RecordCompletions(); }));
  std::vector<std::unique_ptr<SimulatedClient>> clients;
  for (const ClientPlan& plan : plans) {
    clients.push_back(std::make_unique<SimulatedClient>(clients.size() + 1, *device, plan));
  }
  server::Mailbox<server::ControlMessage> control([] {});
  server::DeviceThreadOptions thread_options;
  thread_options.spin.budget = worker.spins;
  const auto thread = Must(server::DeviceThread::Create(
      *device, scheduler::FindPolicy(worker.policy)->make({}), *signal, control, thread_options));
  for (const auto& client : clients) client->Attach(*thread);
  std::optional<SimulatedLoader> loader;
  if (worker.loads != Loads::kNone) {
    auto& quiet = static_cast<device::cuda::CudaDevice&>(*device).idle_windows();
    loader.emplace(worker.loads == Loads::kInIdleWindows ? &quiet : nullptr, KernelText(),
                   worker.loaded, worker.loads_pause_ns);
  }
  bool is_leaving = false;
  const std::function<std::uint64_t(std::uint64_t)> look = [&](std::uint64_t now) {
    fake_cuda_catch_up();
    std::uint64_t next = kNever;
    bool is_over = true;
    for (const auto& client : clients) {
      next = std::min(next, client->Act(now, signal->page()));
      is_over &= !client->is_awaited();
    }
    if (loader && !is_leaving) next = std::min(next, loader->Act(now));
    if (is_over && !std::exchange(is_leaving, true)) {
      if (loader) loader->Stop();
      for (const auto& client : clients) {
        thread->mailbox().Post(server::DetachClient{client->session()});
      }
      thread->mailbox().Post(server::StopThread{});
    }
    return next;
  };
  virtual_time_set_world(
      [](std::uint64_t now, void* context) {
        return (*static_cast<const std::function<std::uint64_t(std::uint64_t)>*>(context))(now);
      },
      const_cast<void*>(static_cast<const void*>(&look)));
  thread->Run();
  virtual_time_set_world(nullptr, nullptr);
  if (loader) loader->End();
  std::vector<Outcome> outcomes;
  for (const auto& client : clients) outcomes.push_back(client->outcome());
  if (loader) outcomes.push_back({.round_trips = loader->took()});
  return outcomes;
}

// ---- questions

constexpr ClientPlan kIdleHigh{.of_class = SchedulingClass::kHigh};

class Model {
 public:
  explicit Model(const std::string& rows) {
    if (!rows.empty()) rows_.open(rows, std::ios::app);
  }

  bool Run() {
    {
      Native native;
      rounds_per_us_ = native.RoundsPerUs();
      for (const int us : {5, 20, 50, 100, 300}) natives_.push_back(OfNative(native, us));
      for (const int us : {0, 100, 1000, 5000}) {
        round_trips_.emplace_back(us, native.RoundTrips(GetShape(us), 20).Percentile(0.5));
      }
      long_native_ = native.BackToBack(GetShape(5000, 250), 20).ns_each;
    }
    for (const NativeRate& native : natives_) Rates(native);
    LongKernelsAlone();
    for (const auto& [us, native] : round_trips_) HighRoundTrip(us, native);
    for (const int us : {20, 100, 300, 1000}) HighBeside(us);
    BesideLoads("one after the other", 0);
    BesideLoads("5 ms apart", 5'000'000);
    BesideNewClients();
    std::printf("%zu of %zu rows hold\n", held_, judged_);
    return held_ == judged_;
  }

 private:
  struct NativeRate {
    int us = 0;
    Outcome outcome;
    Outcome in_waves;  // Blocks of 20 us.
  };

  Shape GetShape(int us, std::uint32_t waves = 1) const {
    return {.rounds = static_cast<std::uint32_t>(rounds_per_us_ * us / waves), .waves = waves};
  }
  static std::uint32_t GetWaves(int us) { return static_cast<std::uint32_t>(std::max(1, us / 20)); }
  static int GetLaunches(int us) { return std::max(100, 10'000 / std::max(us, 1)); }

  NativeRate OfNative(Native& native, int us) const {
    return {.us = us,
            .outcome = native.BackToBack(GetShape(us), GetLaunches(us)),
            .in_waves = native.BackToBack(GetShape(us, GetWaves(us)), GetLaunches(us))};
  }

  ClientPlan LowPlan(int us, std::uint32_t waves) const {
    return {.shape = GetShape(us, waves), .launches = GetLaunches(us), .warm_up = 40};
  }

  void Rates(const NativeRate& native) {
    const std::string of = "low client's " + std::to_string(native.us) + " us kernels, ";
    const ClientPlan low = LowPlan(native.us, 1);
    const double each = native.outcome.ns_each;
    Ratio(of + "alone", each, Play({}, {low})[0].ns_each, native.us >= 20 ? ">= 0.99" : "-");
    Ratio(of + "beside an idle high session", each, Play({}, {low, kIdleHigh})[0].ns_each,
          native.us >= 20 ? ">= 0.95" : "-");
    ClientPlan contained = low;
    contained.isolation = Isolation::kContain;
    // The contained kernel is longer than the original, so the fraction of time in which it runs
    // matters.
    const Outcome inside = Play({}, {contained, kIdleHigh})[0];
    Row(of + "contained beside it, use of the GPU / native", inside.busy / native.outcome.busy, "-",
        native.us >= 20 ? ">= 0.93" : "-", Us("each", inside.ns_each));
    if (GetWaves(native.us) < 2) return;
    Ratio(of + "in blocks of 20 us beside it", native.in_waves.ns_each,
          Play({}, {LowPlan(native.us, GetWaves(native.us)), kIdleHigh})[0].ns_each,
          native.us >= 300 ? ">= 0.95" : "-");
  }

  void LongKernelsAlone() {
    ClientPlan low = LowPlan(5000, 250);
    low.launches = 20;
    Ratio("low client's 5000 us kernels, in blocks of 20 us alone", long_native_,
          Play({}, {low})[0].ns_each, ">= 0.99");
  }

  void HighRoundTrip(int us, double native) {
    ClientPlan high{.of_class = SchedulingClass::kHigh, .shape = GetShape(us), .launches = 100};
    high.warm_up = 40;
    high.depth = 1;
    const Samples samples = Play({}, {high})[0].round_trips;
    Row("high client's round trip of " + std::to_string(us) + " us alone, more than native",
        (samples.Percentile(0.5) - native) / 1e3, "us", "<= 3",
        Us("native", native) + ", " + Us("shared p50", samples.Percentile(0.5)) + ", " +
            Us("p99", samples.Percentile(0.99)));
  }

  void HighBeside(int us) {
    ClientPlan high{.of_class = SchedulingClass::kHigh, .shape = GetShape(20), .launches = 300};
    high.warm_up = 40;
    high.depth = 1;
    high.think_ns = 400'000;
    ClientPlan low = LowPlan(us, GetWaves(us));
    low.launches = kEndless;
    const Samples samples = Play({}, {high, low})[0].round_trips;
    Row("high client's round trip of 20 us beside low kernels of " + std::to_string(us) +
            " us, p99",
        samples.Percentile(0.99) / 1e3, "us", "-", Us("p50", samples.Percentile(0.5)));
  }

  // Measures a high client next to a low one, while modules are loaded and unloaded for a third
  // one.
  void BesideLoads(const std::string& how, std::uint64_t pause_ns) {
    ClientPlan high{.of_class = SchedulingClass::kHigh, .shape = GetShape(20), .launches = 300};
    high.warm_up = 40;
    high.depth = 1;
    high.think_ns = 400'000;
    const ClientPlan low{.shape = GetShape(1000, 50), .launches = kEndless, .warm_up = 10};
    const double without = Play({}, {high, low})[1].ns_each;
    for (const Loads loads : {Loads::kAsTheyCome, Loads::kInIdleWindows}) {
      const std::vector<Outcome> outcomes =
          Play({.loads = loads, .loads_pause_ns = pause_ns}, {high, low});
      const Samples& trips = outcomes[0].round_trips;
      const Samples& took = outcomes[2].round_trips;
      const bool is_quiet = loads == Loads::kInIdleWindows;
      const std::string beside = " beside low kernels of 1000 us and loads " + how +
                                 (is_quiet ? " in idle windows" : " that wait for nothing");
      Row("high client's round trip of 20 us" + beside + ", p99", trips.Percentile(0.99) / 1e3,
          "us", is_quiet ? "<= 700" : "-",
          Us("p50", trips.Percentile(0.5)) + ", " + Us("longest", trips.Percentile(1.0)));
      Row("low client's rate" + beside + ", with / without", without / outcomes[1].ns_each, "-",
          is_quiet ? ">= 0.75" : "-",
          std::to_string(took.count()) + " loads, each " + Us("p50", took.Percentile(0.5)) + ", " +
              Us("p99", took.Percentile(0.99)));
    }
  }

  // Measures a high client like `serve` next to one like `gpu_churn`, which loads modules that were
  // never loaded before.
  void BesideNewClients() {
    ClientPlan high{.of_class = SchedulingClass::kHigh, .shape = GetShape(20), .launches = 150};
    high.warm_up = 40;
    high.depth = 1;
    high.think_ns = 8'000'000;
    // The device thread spins instead of sleeping, because its sleep would take real time.
    WorkerPlan worker{.spins = std::chrono::seconds(1)};
    const double alone = Play(worker, {high})[0].round_trips.Percentile(0.99);
    worker.loads = Loads::kInIdleWindows;
    worker.loads_pause_ns = 100'000'000;
    for (const Image loaded : {Image::kFreshText, Image::kFreshCode}) {
      worker.loaded = loaded;
      const Samples trips = Play(worker, {high})[0].round_trips;
      const bool is_code = loaded == Image::kFreshCode;
      Row(std::string("high client's round trip of 20 us beside loads of fresh texts, ") +
              (is_code ? "compiled before" : "which the driver compiles") + ", p99 / alone",
          trips.Percentile(0.99) / alone, "-", is_code ? "<= 1.2" : "-",
          Us("alone", alone) + ", " + Us("p50", trips.Percentile(0.5)) + ", " +
              Us("p99", trips.Percentile(0.99)) + ", " + Us("longest", trips.Percentile(1.0)));
    }
  }

  static std::string Us(const std::string& what, double ns) {
    char text[64];
    std::snprintf(text, sizeof text, " %.2f us", ns / 1e3);
    return what + text;
  }
  void Ratio(const std::string& what, double native, double shared, const std::string& must) {
    Row(what + ", native / shared", native / shared, "-", must,
        Us("native", native) + ", " + Us("shared", shared));
  }
  void Row(const std::string& what, double value, const std::string& unit, const std::string& must,
           const std::string& note) {
    bool holds = true;
    if (must != "-") {
      const double bound = std::stod(must.substr(3));
      holds = must[0] == '>' ? value >= bound : value <= bound;
      ++judged_;
      held_ += holds ? 1 : 0;
    }
    std::printf("%-7s %-88s %8.3f %-3s %-8s %s\n",
                must == "-" ? "-"
                : holds     ? "ok"
                            : "FAILED",
                what.c_str(), value, unit.c_str(), must.c_str(), note.c_str());
    std::fflush(stdout);
    if (!rows_.is_open()) return;
    rows_ << "modelled\tmodelled: " << what << '\t' << value << '\t' << unit << "\tfigure\t" << must
          << '\t' << note << '\n'
          << std::flush;
  }

  std::ofstream rows_;
  double rounds_per_us_ = 0;
  std::vector<NativeRate> natives_;
  std::vector<std::pair<int, double>> round_trips_;
  double long_native_ = 0;
  std::size_t judged_ = 0, held_ = 0;
};

// Returns lines "name ns  # what" as statements of the fake driver.
std::string GetCosts(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read '" + path + "'");
  std::string statements;
  for (std::string line; std::getline(file, line);) {
    line.resize(std::min(line.size(), line.find('#')));
    if (line.find_first_not_of(' ') != std::string::npos) statements += "; cost " + line;
  }
  return statements;
}

int Main(int argc, char** argv) {
  std::string rows, script = kGpu;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    if (i + 1 == argc || (option != "--rows" && option != "--costs" && option != "--cost")) {
      std::fprintf(stderr,
                   "usage: gpu_modelled [--rows FILE] [--costs FILE] [--cost \"NAME NS\"]...\n");
      return 2;
    }
    if (option == "--rows") {
      rows = argv[i + 1];
    } else if (option == "--costs") {
      script += GetCosts(argv[i + 1]);
    } else {
      script += std::string("; cost ") + argv[i + 1];
    }
  }
  virtual_time_begin();
  device::cuda::PrepareEnvironment();
  if (const char* const wrong = fake_cuda_script(script.c_str()); wrong != nullptr) {
    throw std::runtime_error(wrong);
  }
  return Model(rows).Run() ? 0 : 1;
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  try {
    return gpushared::testing::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_modelled: %s\n", error.what());
    return 1;
  }
}
