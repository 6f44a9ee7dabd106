// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_device.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "gpushared/check.h"

#include "server/device/cpu/address_range.h"
#include "tests/support/fake_space.h"

namespace gpushared::testing {
namespace {

using device::Completion;
using device::CopyWork;
using device::DeviceClock;
using device::FillWork;
using device::kCopyPieceBytes;
using device::LaunchWork;
using device::StreamKey;
using device::WorkHeader;
using device::WorkId;

constexpr DeviceClock::time_point kNeverEnds = DeviceClock::time_point::max();

struct FakeWork {
  std::variant<LaunchWork, CopyWork, FillWork> what;
  std::uint64_t sequence = 0;  // Order of submission.
  std::uint64_t units_total = 0;
  std::uint64_t next_unit = 0;
  std::uint32_t units_running = 0;
  std::uint64_t output_bytes = 0;
  bool is_stopping = false;
  bool is_killed = false;
  Status status;
  std::optional<DeviceClock::time_point> started;
  // The graph whose present node the work is.
  std::optional<device::GraphWork> graph;
  std::size_t node = 0;
  bool is_last_node = false;

  const WorkHeader& header() const {
    return std::visit([](const auto& work) -> const WorkHeader& { return work; }, what);
  }
  const FakeSpace& space() const { return static_cast<const FakeSpace&>(*header().space); }
  bool MustEnd() const {
    return next_unit >= units_total || is_stopping || is_killed || !status.ok();
  }
};

// A multiprocessor and the unit that occupies it.
struct Slot {
  FakeWork* work = nullptr;
  DeviceClock::time_point ends;
};

std::byte* HostPointer(std::uint64_t address) {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

class FakeDeviceImplementation : public FakeDevice {
 public:
  FakeDeviceImplementation(FakeDeviceOptions options, device::WakeFunction wake)
      : options_(std::move(options)),
        wake_(std::move(wake)),
        budget_(std::make_shared<device::MemoryBudget>(options_.memory_bytes)),
        slots_(options_.multiprocessors) {
    info_.name = "fake device";
    info_.id = options_.id;
    info_.kind = "fake";
    info_.memory_bytes = options_.memory_bytes;
    info_.multiprocessors = options_.multiprocessors;
    info_.preemption = options_.preemption;
    info_.copy_preemption = options_.preemption;
    info_.can_kill = true;
    info_.runs_graphs = true;
    info_.isolates_clients = true;
    if (options_.clock == FakeDeviceOptions::Clock::kVirtual) {
      thread_ = std::thread([this] { FollowEvents(); });
    }
  }

  ~FakeDeviceImplementation() override {
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  const device::DeviceInfo& info() const override { return info_; }

  Result<std::unique_ptr<device::Space>> CreateSpace(const device::SpaceOptions& options) override {
    return FakeSpace::Create(options, budget_, options_.kernels);
  }

  void Submit(const LaunchWork& work) override {
    SubmitAny(work, work.grid.Count(), CheckLaunch(work));
  }
  void Submit(const CopyWork& work) override {
    SubmitAny(work, device::CopyUnits(work.width_bytes, work.height), CheckCopy(work));
  }
  void Submit(const FillWork& work) override {
    SubmitAny(work, device::CopyUnits(work.width_bytes, work.height), CheckFill(work));
  }
  void SubmitGraph(const device::GraphWork& work) override;

  void RequestStop(WorkId id) override {
    std::unique_lock lock(mutex_);
    FakeWork* const work = Find(id);
    if (work != nullptr && work->graph) {
      work->is_last_node = true;
      work->is_stopping = !work->started;
    } else if (work != nullptr && options_.preemption == device::Preemption::kWithinCommand) {
      work->is_stopping = true;
    }
    Settle(lock);
  }

  void RequestKill(WorkId id) override {
    if (options_.preemption == device::Preemption::kBetweenCommands) return;
    std::unique_lock lock(mutex_);
    if (FakeWork* work = Find(id)) {
      work->is_killed = true;
      for (Slot& slot : slots_) {
        if (slot.work == work) Release(slot);
      }
    }
    Settle(lock);
  }

  std::size_t TakeCompletions(std::span<Completion> out) override {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    while (count < out.size() && !completions_.empty()) {
      out[count++] = std::move(completions_.front());
      completions_.pop_front();
    }
    if (count < out.size()) is_wake_asked_ = true;
    return count;
  }

  void AdvanceBy(std::chrono::nanoseconds span) override {
    std::unique_lock lock(mutex_);
    const DeviceClock::time_point until = now_ + span;
    while (NextEnd() <= until) FinishNext();
    now_ = until;
    Settle(lock);
  }

  bool AdvanceToNextEvent() override {
    std::unique_lock lock(mutex_);
    if (NextEnd() == kNeverEnds) return false;
    FinishNext();
    Settle(lock);
    return true;
  }

  DeviceClock::time_point now() const override {
    const std::lock_guard lock(mutex_);
    return now_;
  }

  std::size_t work_count() const override {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const auto& [key, stream] : streams_) count += stream.size();
    return count;
  }

 private:
  using Stream = std::deque<std::unique_ptr<FakeWork>>;

  static Status CheckLaunch(const LaunchWork& work);
  static Status CheckCopy(const CopyWork& work);
  static Status CheckFill(const FillWork& work);
  void SubmitAny(std::variant<LaunchWork, CopyWork, FillWork> what, std::uint64_t units,
                 Status status);
  // The node that is next becomes what the work is.
  static void TakeNode(FakeWork& work);
  // Goes on with the next node; false where there is none.
  static bool TakeNextNode(FakeWork& work);
  void FollowEvents();

  // All below need mutex_.
  FakeWork* Find(WorkId id);
  DeviceClock::time_point NextEnd() const;
  void FinishNext();
  void Release(Slot& slot);
  void EndAndStart();
  void EndHeads();
  FakeWork* Best();
  void StartUnit(Slot& slot, FakeWork& work);
  std::chrono::nanoseconds RunUnit(FakeWork& work, std::uint64_t unit);
  std::chrono::nanoseconds RunBlock(FakeWork& work, const LaunchWork& launch, std::uint64_t unit);
  void Print(FakeWork& work, std::string_view text);
  void Settle(std::unique_lock<std::mutex>& lock);

  const FakeDeviceOptions options_;
  const device::WakeFunction wake_;
  const std::shared_ptr<device::MemoryBudget> budget_;
  device::DeviceInfo info_;  // Constant after construction.

  mutable std::mutex mutex_;  // Protects everything below but thread_.
  std::condition_variable changed_;
  bool is_closed_ = false;
  bool is_wake_asked_ = true;
  bool is_wake_due_ = false;
  std::uint64_t sequence_ = 0;
  DeviceClock::time_point now_{};
  std::vector<Slot> slots_;
  std::map<StreamKey, Stream> streams_;
  std::deque<Completion> completions_;
  std::thread thread_;
};

Status FakeDeviceImplementation::CheckLaunch(const LaunchWork& work) {
  if (work.module == nullptr || work.kernel >= work.module->kernels().size()) {
    return {StatusCode::kInvalidArgument, "launch refused: no such kernel"};
  }
  const device::KernelInfo& kernel = work.module->kernels()[work.kernel];
  if (!kernel.unsupported.empty()) {
    return {StatusCode::kUnsupported,
            "launch refused: kernel '" + kernel.name + "' needs " + kernel.unsupported};
  }
  if (work.parameters.size() != kernel.parameter_bytes) {
    return {StatusCode::kInvalidArgument, "launch refused: wrong number of parameter bytes"};
  }
  return {};
}

Status FakeDeviceImplementation::CheckCopy(const CopyWork& work) {
  const auto& space = static_cast<const FakeSpace&>(*work.space);
  for (std::uint64_t row = 0; row < work.height; ++row) {
    const bool is_inside =
        (work.direction == CopyWork::Direction::kDeviceToHost ||
         space.range().IsMapped(work.destination + row * work.destination_pitch_bytes,
                                work.width_bytes)) &&
        (work.direction == CopyWork::Direction::kHostToDevice ||
         space.range().IsMapped(work.source + row * work.source_pitch_bytes, work.width_bytes));
    if (!is_inside) {
      return {StatusCode::kInvalidArgument,
              "copy refused: row " + std::to_string(row) + " leaves mapped memory"};
    }
  }
  return {};
}

Status FakeDeviceImplementation::CheckFill(const FillWork& work) {
  const auto& space = static_cast<const FakeSpace&>(*work.space);
  for (std::uint64_t row = 0; row < work.height; ++row) {
    if (!space.range().IsMapped(work.destination + row * work.pitch_bytes, work.width_bytes)) {
      return {StatusCode::kInvalidArgument,
              "fill refused: row " + std::to_string(row) + " leaves mapped memory"};
    }
  }
  return {};
}

void FakeDeviceImplementation::SubmitAny(std::variant<LaunchWork, CopyWork, FillWork> what,
                                         std::uint64_t units, Status status) {
  std::unique_lock lock(mutex_);
  auto work = std::make_unique<FakeWork>();
  work->what = what;
  work->sequence = ++sequence_;
  work->units_total = units;
  work->next_unit = work->header().first_unit;
  work->status = std::move(status);
  Check(Find(work->header().id) == nullptr, "work on the device has a unique id");
  streams_[work->header().stream].push_back(std::move(work));
  Settle(lock);
}

void FakeDeviceImplementation::SubmitGraph(const device::GraphWork& graph) {
  std::unique_lock lock(mutex_);
  auto work = std::make_unique<FakeWork>();
  work->graph = graph;
  work->node = static_cast<std::size_t>(graph.first_unit);
  work->sequence = ++sequence_;
  TakeNode(*work);
  Check(Find(graph.id) == nullptr, "work on the device has a unique id");
  streams_[graph.stream].push_back(std::move(work));
  Settle(lock);
}

void FakeDeviceImplementation::TakeNode(FakeWork& work) {
  work.what = *work.graph->nodes[work.node];
  std::visit(
      [&](auto& node) {
        static_cast<WorkHeader&>(node) = *work.graph;
        if constexpr (std::is_same_v<std::decay_t<decltype(node)>, LaunchWork>) {
          work.units_total = node.grid.Count();
          work.status = CheckLaunch(node);
        } else {
          work.units_total = device::CopyUnits(node.width_bytes, node.height);
        }
        if constexpr (std::is_same_v<std::decay_t<decltype(node)>, CopyWork>) {
          work.status = CheckCopy(node);
        }
        if constexpr (std::is_same_v<std::decay_t<decltype(node)>, FillWork>) {
          work.status = CheckFill(node);
        }
      },
      work.what);
  work.next_unit = 0;
  work.output_bytes = 0;
}

bool FakeDeviceImplementation::TakeNextNode(FakeWork& work) {
  const bool is_done = work.next_unit >= work.units_total && work.status.ok() && !work.is_killed;
  if (!is_done || work.is_last_node || work.node + 1 == work.graph->nodes.size()) return false;
  ++work.node;
  TakeNode(work);
  return true;
}

// Body of the thread of Clock::kVirtual.
void FakeDeviceImplementation::FollowEvents() {
  std::unique_lock lock(mutex_);
  while (!is_closed_) {
    if (NextEnd() == kNeverEnds) {
      changed_.wait(lock);
      continue;
    }
    FinishNext();
    Settle(lock);
    lock.lock();
  }
}

FakeWork* FakeDeviceImplementation::Find(WorkId id) {
  for (const auto& [key, stream] : streams_) {
    for (const auto& work : stream) {
      if (work->header().id == id) return work.get();
    }
  }
  return nullptr;
}

DeviceClock::time_point FakeDeviceImplementation::NextEnd() const {
  DeviceClock::time_point next = kNeverEnds;
  for (const Slot& slot : slots_) {
    if (slot.work != nullptr) next = std::min(next, slot.ends);
  }
  return next;
}

void FakeDeviceImplementation::FinishNext() {
  now_ = NextEnd();
  const auto slot = std::ranges::find_if(
      slots_, [this](const Slot& any) { return any.work != nullptr && any.ends == now_; });
  Release(*slot);
  EndAndStart();
}

void FakeDeviceImplementation::Release(Slot& slot) {
  --slot.work->units_running;
  slot.work = nullptr;
}

void FakeDeviceImplementation::EndAndStart() {
  EndHeads();
  for (Slot& slot : slots_) {
    if (slot.work != nullptr) continue;
    FakeWork* const work = Best();
    if (work == nullptr) return;
    StartUnit(slot, *work);
  }
}

// Completes every head of a stream that has nothing left to do.
void FakeDeviceImplementation::EndHeads() {
  for (auto entry = streams_.begin(); entry != streams_.end();) {
    Stream& stream = entry->second;
    while (!stream.empty() && stream.front()->MustEnd() && stream.front()->units_running == 0) {
      FakeWork& work = *stream.front();
      if (work.graph && TakeNextNode(work)) continue;
      if (work.graph) {
        const bool is_done = work.next_unit >= work.units_total && work.status.ok();
        work.next_unit = work.node + (is_done ? 1 : 0);
        work.units_total = work.graph->nodes.size();
      }
      Completion completion{.id = work.header().id,
                            .status = std::move(work.status),
                            .units_done = work.next_unit,
                            .stopped = false,
                            .started = work.started.value_or(now_),
                            .ended = now_};
      if (work.is_killed) {
        completion.status = Status(StatusCode::kCancelled, "killed on request");
      } else {
        completion.stopped = completion.status.ok() && work.next_unit < work.units_total;
      }
      completions_.push_back(std::move(completion));
      is_wake_due_ = is_wake_due_ || std::exchange(is_wake_asked_, false);
      stream.pop_front();
    }
    entry = stream.empty() ? streams_.erase(entry) : std::next(entry);
  }
}

FakeWork* FakeDeviceImplementation::Best() {
  FakeWork* best = nullptr;
  for (const auto& [key, stream] : streams_) {
    FakeWork& head = *stream.front();
    if (head.MustEnd()) continue;
    if (best == nullptr || head.header().priority > best->header().priority ||
        (head.header().priority == best->header().priority && head.sequence < best->sequence)) {
      best = &head;
    }
  }
  return best;
}

void FakeDeviceImplementation::StartUnit(Slot& slot, FakeWork& work) {
  if (!work.started) work.started = now_;
  slot.work = &work;
  ++work.units_running;
  const std::chrono::nanoseconds time = RunUnit(work, work.next_unit++);
  slot.ends = time == kForEver ? kNeverEnds : now_ + time;
}

std::chrono::nanoseconds FakeDeviceImplementation::RunUnit(FakeWork& work, std::uint64_t unit) {
  if (const auto* launch = std::get_if<LaunchWork>(&work.what)) {
    return RunBlock(work, *launch, unit);
  }
  const auto* copy = std::get_if<CopyWork>(&work.what);
  const auto* fill = std::get_if<FillWork>(&work.what);
  const std::uint64_t width = copy != nullptr ? copy->width_bytes : fill->width_bytes;
  const std::uint64_t per_row = device::CopyUnits(width, 1);
  const std::uint64_t row = unit / per_row;
  const std::uint64_t begin = unit % per_row * kCopyPieceBytes;
  const std::uint64_t bytes = std::min(kCopyPieceBytes, width - begin);
  if (fill != nullptr) {
    std::byte* const to = HostPointer(fill->destination + row * fill->pitch_bytes + begin);
    for (std::uint64_t i = 0; i < bytes; ++i) {
      to[i] = static_cast<std::byte>(fill->value >> (i % fill->element_bytes * 8));
    }
    return options_.copy_piece_time;
  }
  const std::uint64_t to = row * copy->destination_pitch_bytes + begin;
  const std::uint64_t from = row * copy->source_pitch_bytes + begin;
  const bool to_host = copy->direction == CopyWork::Direction::kDeviceToHost;
  const bool from_host = copy->direction == CopyWork::Direction::kHostToDevice;
  std::memmove(to_host ? copy->host + to : HostPointer(copy->destination + to),
               from_host ? copy->host + from : HostPointer(copy->source + from), bytes);
  return options_.copy_piece_time;
}

std::chrono::nanoseconds FakeDeviceImplementation::RunBlock(FakeWork& work,
                                                            const LaunchWork& launch,
                                                            std::uint64_t unit) {
  const auto& module = static_cast<const FakeModule&>(*launch.module);
  const device::KernelInfo& info = module.kernels()[launch.kernel];
  const auto found = options_.kernels.find(info.name);
  if (found == options_.kernels.end()) return FakeKernel().block_time;
  const FakeKernel& kernel = found->second;
  std::vector<std::byte> shared(info.static_shared_bytes + launch.dynamic_shared_bytes);
  FakeBlock block;
  block.grid = launch.grid;
  block.block = launch.block;
  block.index = unit;
  block.parameters = launch.parameters;
  block.shared = shared;
  block.print = [this, &work](std::string_view text) { Print(work, text); };
  block.at = [&work](std::uint64_t address, std::uint64_t bytes) {
    return work.space().range().IsMapped(address, bytes) ? HostPointer(address) : nullptr;
  };
  block.variable = [&module](std::string_view name) { return module.Variable(name); };
  if (kernel.run) {
    if (Status ran = kernel.run(block); !ran.ok() && work.status.ok()) work.status = ran;
  }
  return kernel.block_time_of ? kernel.block_time_of(block) : kernel.block_time;
}

void FakeDeviceImplementation::Print(FakeWork& work, std::string_view text) {
  if (!options_.output || work.output_bytes > device::kOutputBytesMax) return;
  const std::uint64_t room = device::kOutputBytesMax - work.output_bytes;
  work.output_bytes += text.size();
  device::KernelOutput output{.work = work.header().id,
                              .stream = work.header().stream,
                              .space = work.header().space,
                              .text = text.substr(0, room)};
  if (!output.text.empty()) options_.output(output);
  if (text.size() > room) {
    output.text = "\n[cut]\n";
    options_.output(output);
  }
}

// Last act of every call: whatever may end or begin now does; unlocks; calls the wake
// function if it is due.
void FakeDeviceImplementation::Settle(std::unique_lock<std::mutex>& lock) {
  EndAndStart();
  const bool is_due = std::exchange(is_wake_due_, false);
  lock.unlock();
  changed_.notify_all();
  if (is_due && wake_) wake_();
}

}  // namespace

std::unique_ptr<FakeDevice> FakeDevice::Create(FakeDeviceOptions options,
                                               device::WakeFunction wake) {
  return std::make_unique<FakeDeviceImplementation>(std::move(options), std::move(wake));
}

Status FakeFault(std::string_view kernel, const FakeBlock& block, std::uint64_t address) {
  const std::uint64_t x = block.index % block.grid.x;
  const std::uint64_t y = block.index / block.grid.x % block.grid.y;
  const std::uint64_t z = block.index / block.grid.x / block.grid.y;
  std::ostringstream hex;
  hex << "0x" << std::hex << address;
  return {StatusCode::kKernelFault,
          "kernel '" + std::string(kernel) + "' left its memory: block (" + std::to_string(x) +
              "," + std::to_string(y) + "," + std::to_string(z) +
              ") thread (0,0,0) line 0: simulated access at " + hex.str()};
}

}  // namespace gpushared::testing
