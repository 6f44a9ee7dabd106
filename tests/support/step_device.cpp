// SPDX-License-Identifier: Apache-2.0
#include "tests/support/step_device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>
#include <utility>

#include "gpushared/limits.h"

#include "server/device/memory_pieces.h"

namespace gpushared::testing {

namespace {

constexpr std::uint64_t kRangeBytes = std::uint64_t{4} << 30;
constexpr std::uint64_t kStepBytes = kMapPageBytes;
constexpr auto kPatience = std::chrono::seconds(30);

device::StreamKey GetStream(const std::variant<device::LaunchWork, device::CopyWork,
                                               device::FillWork, device::GraphWork>& work) {
  return std::visit([](const device::WorkHeader& each) { return each.stream; }, work);
}

}  // namespace

class StepModule : public device::Module {
 public:
  StepModule(StepDevice& device, std::vector<device::KernelInfo> kernels,
             std::vector<device::VariableInfo> variables)
      : device_(device),
        kernels_(std::move(kernels)),
        variables_(std::move(variables)),
        variable_memory_(device::GetPieces(variables_, 0)) {
    const std::lock_guard lock(device_.mutex_);
    ++device_.modules_alive_;
  }
  ~StepModule() override {
    const std::lock_guard lock(device_.mutex_);
    --device_.modules_alive_;
  }
  std::span<const device::KernelInfo> kernels() const override { return kernels_; }
  std::span<const device::VariableInfo> variables() const override { return variables_; }
  std::span<const device::MemoryPiece> variable_memory() const override { return variable_memory_; }

 private:
  StepDevice& device_;
  const std::vector<device::KernelInfo> kernels_;
  const std::vector<device::VariableInfo> variables_;
  const std::vector<device::MemoryPiece> variable_memory_;
};

namespace {

class PreparedStepModule : public device::PreparedModule {
 public:
  std::span<const device::KernelInfo> kernel_infos() const override { return kernels; }
  std::span<const device::VariableInfo> variable_infos() const override { return variables; }
  std::uint64_t bytes() const override { return 0; }

  std::vector<device::KernelInfo> kernels;
  std::vector<device::VariableInfo> variables;
};

}  // namespace

Result<std::shared_ptr<const device::PreparedModule>> PrepareStepModule(const std::string& image) {
  auto module = std::make_shared<PreparedStepModule>();
  std::istringstream text(image);
  for (std::string line; std::getline(text, line);) {
    std::istringstream fields(line);
    if (line.starts_with("variable ")) {
      device::VariableInfo& variable = module->variables.emplace_back();
      fields >> variable.name >> variable.name >> variable.bytes;
      continue;
    }
    device::KernelInfo kernel;
    if (!(fields >> kernel.name >> kernel.parameter_bytes)) {
      return Status(StatusCode::kInvalidArgument, "line is not 'name bytes': " + line);
    }
    std::getline(fields >> std::ws, kernel.unsupported);
    for (std::uint32_t at = 0; at < kernel.parameter_bytes; at += 8) {
      kernel.parameters.push_back({at, 8});
    }
    kernel.threads_per_block_max = kernel.name == "small" ? 64 : 1024;
    kernel.static_shared_bytes = kernel.name == "small" ? 4096 : 0;
    module->kernels.push_back(std::move(kernel));
  }
  return std::shared_ptr<const device::PreparedModule>(std::move(module));
}

class StepSpace : public device::Space {
 public:
  StepSpace(StepDevice& device, std::uint64_t base, std::uint64_t quota_bytes)
      : device_(device), base_(base), quota_bytes_(quota_bytes) {}
  ~StepSpace() override {
    const std::lock_guard lock(device_.mutex_);
    --device_.spaces_alive_;
    device_.mapped_bytes_ -= memory_.size();
    device_.resident_bytes_ -= Resident();
  }
  std::uint64_t base() const override { return base_; }
  std::uint64_t range_bytes() const override { return kRangeBytes; }

  Result<std::uint64_t> Resize(std::uint64_t mapped_bytes) override {
    const std::uint64_t wanted = (mapped_bytes + kStepBytes - 1) / kStepBytes * kStepBytes;
    std::unique_lock lock(device_.mutex_);
    device_.resizes_.push_back(mapped_bytes);
    if (mapped_bytes < device_.held_below_bytes_) device_.WaitWhileHeld(lock);
    if (wanted > quota_bytes_) return Status(StatusCode::kOutOfMemory, "beyond the quota");
    if (device_.options_.swaps_memory && wanted > memory_.size() &&
        wanted - memory_.size() > device_.FreeBytes()) {
      return Status(StatusCode::kOutOfMemory, "the device is full");
    }
    device_.resident_bytes_ -= Resident();
    device_.mapped_bytes_ += wanted - memory_.size();
    memory_.resize(wanted);
    is_away_.resize(wanted / kStepBytes);
    device_.resident_bytes_ += Resident();
    device_.memory_calls_.push_back({MemoryCall::Kind::kResize, base_, wanted});
    return wanted;
  }

  // Changes only the accounting; the bytes stay where they are.
  Status SwapPageOut(std::uint64_t offset) override {
    std::unique_lock lock(device_.mutex_);
    if (device_.suspends_swaps_out_) device_.WaitWhileHeld(lock);
    return Move(offset, true);
  }
  Status SwapPageIn(std::uint64_t offset) override {
    const std::lock_guard lock(device_.mutex_);
    if (device_.FreeBytes() < kStepBytes) return {StatusCode::kOutOfMemory, "the device is full"};
    return Move(offset, false);
  }
  std::uint64_t NonResidentBytes(std::uint64_t address, std::uint64_t bytes) const override {
    const std::lock_guard lock(device_.mutex_);
    const std::uint64_t begin = (address - base_) / kStepBytes;
    const std::uint64_t end = (address - base_ + bytes + kStepBytes - 1) / kStepBytes;
    std::uint64_t away = 0;
    for (std::uint64_t step = begin; step < std::min(end, is_away_.size()); ++step) {
      away += is_away_[step] ? kStepBytes : 0;
    }
    return away;
  }
  device::SpaceUse use() override {
    const std::lock_guard lock(device_.mutex_);
    return {.mapped_bytes = memory_.size(), .resident_bytes = Resident(), .pinned_bytes = 0};
  }

  // Returns an area without memory, because no command of these tests uses it.
  device::MemoryPiece mapping_area() const override {
    return {.base = base_ + kRangeBytes / 4, .bytes = kRangeBytes / 4};
  }
  Result<std::unique_ptr<device::Chunk>> MakeChunk(std::uint64_t) override {
    return std::make_unique<device::Chunk>();
  }
  Status MapChunk(device::Chunk&, std::uint64_t) override { return {}; }

  const device::ModuleRecipe& recipe() const override { return recipe_; }
  Result<std::shared_ptr<const device::Module>> PlaceModule(
      std::shared_ptr<const device::PreparedModule> module) override {
    const auto kernels = module->kernel_infos();
    std::vector<device::VariableInfo> variables;
    for (device::VariableInfo variable : module->variable_infos()) {
      variable.address = base_ + kVariablesAt + variable_bytes_;
      variable_bytes_ += variable.bytes + 64;
      variables.push_back(std::move(variable));
    }
    return std::shared_ptr<const device::Module>(std::make_shared<StepModule>(
        device_, std::vector(kernels.begin(), kernels.end()), std::move(variables)));
  }

  std::byte* At(std::uint64_t address) {
    const std::uint64_t offset = address - base_;
    return offset < kVariablesAt ? memory_.data() + offset
                                 : variable_memory_.data() + (offset - kVariablesAt);
  }

 private:
  // Offset of modules' variables in the range. They are never freed.
  static constexpr std::uint64_t kVariablesAt = kRangeBytes / 2;
  using MemoryCall = StepDevice::MemoryCall;

  // Move and Resident are called under the device's mutex.
  Status Move(std::uint64_t offset, bool goes_out) {
    const std::uint64_t step = offset / kStepBytes;
    if (step >= is_away_.size() || is_away_[step] == goes_out) return {};
    is_away_[step] = goes_out;
    device_.resident_bytes_ += goes_out ? 0 - kStepBytes : kStepBytes;
    const auto kind = goes_out ? MemoryCall::Kind::kOut : MemoryCall::Kind::kIn;
    device_.memory_calls_.push_back({kind, base_, offset});
    return {};
  }
  std::uint64_t Resident() const {
    const auto there = std::ranges::count(is_away_, false);
    return device_.options_.swaps_memory ? static_cast<std::uint64_t>(there) * kStepBytes : 0;
  }

  StepDevice& device_;
  const device::ModuleRecipe recipe_;
  const std::uint64_t base_;
  const std::uint64_t quota_bytes_;
  std::vector<std::byte> memory_;
  std::vector<bool> is_away_;  // Whether each page is swapped out; guarded by the device's mutex.
  std::uint64_t variable_bytes_ = 0;  // Allocated so far.
  std::vector<std::byte> variable_memory_ = std::vector<std::byte>(4096);
};

StepDevice::StepDevice(StepDeviceOptions options, device::WakeFunction wake)
    : options_(options),
      wake_(std::move(wake)),
      launches_block_(options.launches_block),
      runs_at_once_(options.runs_at_once),
      launch_takes_(options.launch_takes) {
  info_.name = "stepped device";
  info_.id = "step:0";
  info_.kind = "step";
  info_.memory_bytes = options_.memory_bytes;
  info_.multiprocessors = 1;
  // Below the protocol's limits, so that a test reaches the worker's own checks.
  info_.grid_max = {1u << 20, 200, 100};
  info_.block_max = {512, 128, 16};
  info_.threads_per_block_max = 512;
  info_.shared_bytes_per_block_max = 32 * 1024;
  info_.preemption = options_.preemption;
  info_.stopping_costs = options_.stopping_costs;
  info_.can_kill = options_.can_kill;
  info_.pci_bus = options_.pci_bus;
  info_.spinning_pays = options_.spinning_pays;
  info_.can_move_memory = info_.checks_reach = options_.swaps_memory;
}

StepDevice::~StepDevice() = default;

device::Isolation StepDevice::isolation() const {
  const std::lock_guard lock(mutex_);
  return isolation_;
}

std::uint64_t StepDevice::left_free_bytes() const {
  const std::lock_guard lock(mutex_);
  return left_free_bytes_;
}

Result<std::unique_ptr<device::Space>> StepDevice::CreateSpace(
    const device::SpaceOptions& options) {
  const std::lock_guard lock(mutex_);
  isolation_ = options.isolation;
  left_free_bytes_ = options.left_free_bytes;
  ++spaces_alive_;
  return std::unique_ptr<device::Space>(
      std::make_unique<StepSpace>(*this, ++spaces_made_ * kRangeBytes, options.quota_bytes));
}

// ---- work

void StepDevice::Submit(const device::LaunchWork& work) {
  std::this_thread::sleep_for(options_.submitting_takes);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !launches_block_; });
  }
  Submission submission;
  submission.kernel = work.module->kernels()[work.kernel].name;
  submission.may_be_stopped = work.may_be_stopped;
  submission.parameters.assign(work.parameters.begin(), work.parameters.end());
  Accept({.what = work,
          .id = work.id,
          .first_unit = work.first_unit,
          .units_done = work.first_unit,
          .units = work.grid.Count(),
          .started = {}},
         std::move(submission));
}

void StepDevice::Submit(const device::CopyWork& work) {
  Accept({.what = work,
          .id = work.id,
          .first_unit = work.first_unit,
          .units_done = work.first_unit,
          .units = device::CopyUnits(work.width_bytes, work.height),
          .started = {}},
         {});
}

void StepDevice::Submit(const device::FillWork& work) {
  Accept({.what = work,
          .id = work.id,
          .first_unit = work.first_unit,
          .units_done = work.first_unit,
          .units = device::CopyUnits(work.width_bytes, work.height),
          .started = {}},
         {});
}

void StepDevice::SubmitGraph(const device::GraphWork& work) {
  Submission submission;
  submission.nodes = work.nodes.size();
  Accept({.what = work,
          .id = work.id,
          .first_unit = work.first_unit,
          .units_done = work.first_unit,
          .units = work.nodes.size(),
          .started = {}},
         std::move(submission));
}

void StepDevice::Accept(Work work, Submission submission) {
  const std::lock_guard lock(mutex_);
  std::visit(
      [&](const auto& what) {
        submission.stream = what.stream;
        submission.priority = what.priority;
      },
      work.what);
  submission.id = work.id;
  submission.first_unit = work.first_unit;
  submission.units = work.units;
  submissions_.push_back(std::move(submission));
  work.started = device::DeviceClock::now();
  if (runs_at_once_) {
    work.units_done = work.units;
    End(std::move(work), Status::Ok(), false);
  } else {
    running_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void StepDevice::End(Work work, Status status, bool stopped) {
  if (status.ok() && !stopped) Perform(work);
  auto ended = device::DeviceClock::now() + options_.ends_later;
  if (const auto* const launch = std::get_if<device::LaunchWork>(&work.what)) {
    const auto takes = launch->may_be_stopped ? options_.stoppable_takes : launch_takes_;
    if (takes.count() > 0) ended = work.started + takes;
  }
  completions_.push_back({.id = work.id,
                          .status = std::move(status),
                          .units_done = work.units_done,
                          .stopped = stopped,
                          .started = work.started,
                          .ended = ended});
  changed_.notify_all();
  if (options_.must_be_polled) return;
  if (std::exchange(armed_, false)) wake_();
}

template <typename Any>
void StepDevice::Perform(const Any& work, device::Space& of) {
  using Direction = device::CopyWork::Direction;
  auto& space = static_cast<StepSpace&>(of);
  if constexpr (std::is_same_v<Any, device::CopyWork>) {
    const device::CopyWork* const copy = &work;
    for (std::uint64_t row = 0; row < copy->height; ++row) {
      const std::uint64_t to = row * copy->destination_pitch_bytes;
      const std::uint64_t from = row * copy->source_pitch_bytes;
      std::byte* const destination = copy->direction == Direction::kDeviceToHost
                                         ? copy->host + to
                                         : space.At(copy->destination + to);
      const std::byte* const source = copy->direction == Direction::kHostToDevice
                                          ? copy->host + from
                                          : space.At(copy->source + from);
      std::memmove(destination, source, copy->width_bytes);
    }
  } else if constexpr (std::is_same_v<Any, device::FillWork>) {
    const device::FillWork* const fill = &work;
    for (std::uint64_t row = 0; row < fill->height; ++row) {
      for (std::uint64_t at = 0; at < fill->width_bytes; at += fill->element_bytes) {
        std::memcpy(space.At(fill->destination + row * fill->pitch_bytes + at), &fill->value,
                    fill->element_bytes);
      }
    }
  }
}

void StepDevice::Perform(const Work& work) {
  if (const auto* const graph = std::get_if<device::GraphWork>(&work.what)) {
    for (const device::GraphNode* const node : graph->nodes) {
      std::visit([&](const auto& each) { Perform(each, *graph->space); }, *node);
    }
    return;
  }
  std::visit([](const auto& each) { Perform(each, *each.space); }, work.what);
}

bool StepDevice::CanStop(const device::LaunchWork& work, std::chrono::nanoseconds expected) {
  return Device::CanStop(work, expected) &&
         work.module->kernels()[work.kernel].name != options_.unstoppable_kernel;
}

void StepDevice::RequestStop(device::WorkId id) {
  const std::lock_guard lock(mutex_);
  ++stops_asked_;
  changed_.notify_all();
  if (options_.ignores_stop || options_.preemption == device::Preemption::kBetweenCommands) return;
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [&](const Work& work) { return work.id == id; });
  if (found == running_.end()) return;
  const device::StreamKey stream = GetStream(found->what);
  for (auto each = found; each != running_.end();) {
    if (each != found && (!options_.stopping_costs || GetStream(each->what) != stream)) {
      ++each;
      continue;
    }
    Work work = std::move(*each);
    each = running_.erase(each);
    End(std::move(work), Status::Ok(), true);
    if (!options_.stopping_costs) return;
  }
}

bool StepDevice::ReportKernelsToEnd() {
  const std::lock_guard lock(mutex_);
  if (!options_.may_be_killed) return false;
  ++end_requests_;
  if (options_.polling_kernels_end) launches_block_ = false;
  changed_.notify_all();
  return true;
}

void StepDevice::RequestKill(device::WorkId id) {
  const std::lock_guard lock(mutex_);
  ++kills_asked_;
  changed_.notify_all();
  if (!options_.can_kill) return;
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [&](const Work& work) { return work.id == id; });
  if (found == running_.end()) return;
  Work work = std::move(*found);
  running_.erase(found);
  End(std::move(work), Status(StatusCode::kCancelled, "killed"), false);
}

std::size_t StepDevice::TakeCompletions(std::span<device::Completion> out) {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  while (count < out.size() && !completions_.empty()) {
    out[count++] = std::move(completions_.front());
    completions_.pop_front();
  }
  if (count < out.size()) armed_ = true;
  ++times_asked_;
  return count;
}

bool StepDevice::must_be_polled() const {
  const std::lock_guard lock(mutex_);
  return options_.must_be_polled && (!running_.empty() || !completions_.empty());
}

// ---- for the test

bool StepDevice::FinishOldest(Status status) {
  const std::lock_guard lock(mutex_);
  if (running_.empty()) return false;
  Work work = std::move(running_.front());
  running_.pop_front();
  if (status.ok()) work.units_done = work.units;
  End(std::move(work), std::move(status), false);
  return true;
}

bool StepDevice::FinishLatest() {
  const std::lock_guard lock(mutex_);
  if (running_.empty()) return false;
  Work work = std::move(running_.back());
  running_.pop_back();
  work.units_done = work.units;
  End(std::move(work), Status::Ok(), false);
  return true;
}

void StepDevice::FinishAll() {
  while (FinishOldest()) {
  }
}

void StepDevice::RunUnits(std::uint64_t units) {
  const std::lock_guard lock(mutex_);
  if (running_.empty()) return;
  running_.front().units_done += units;
  if (running_.front().units_done < running_.front().units) return;
  Work work = std::move(running_.front());
  running_.pop_front();
  work.units_done = work.units;
  End(std::move(work), Status::Ok(), false);
}

void StepDevice::LaunchesTake(std::chrono::microseconds time) {
  const std::lock_guard lock(mutex_);
  launch_takes_ = time;
}

void StepDevice::RunAtOnce() {
  {
    const std::lock_guard lock(mutex_);
    runs_at_once_ = true;
  }
  FinishAll();
}

std::vector<StepDevice::Submission> StepDevice::WaitForSubmissions(std::size_t count) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kPatience, [&] { return submissions_.size() >= count; })) return {};
  return submissions_;
}

std::vector<StepDevice::Submission> StepDevice::submissions() const {
  const std::lock_guard lock(mutex_);
  return submissions_;
}

std::size_t StepDevice::running_count() const {
  const std::lock_guard lock(mutex_);
  return running_.size();
}

std::size_t StepDevice::stops_asked() const {
  const std::lock_guard lock(mutex_);
  return stops_asked_;
}

std::size_t StepDevice::kills_asked() const {
  const std::lock_guard lock(mutex_);
  return kills_asked_;
}

std::size_t StepDevice::end_requests() const {
  const std::lock_guard lock(mutex_);
  return end_requests_;
}

std::size_t StepDevice::times_asked() const {
  const std::lock_guard lock(mutex_);
  return times_asked_;
}

int StepDevice::spaces_alive() const {
  const std::lock_guard lock(mutex_);
  return spaces_alive_;
}

int StepDevice::modules_alive() const {
  const std::lock_guard lock(mutex_);
  return modules_alive_;
}

std::vector<std::uint64_t> StepDevice::resizes() const {
  const std::lock_guard lock(mutex_);
  return resizes_;
}

std::uint64_t StepDevice::free_memory_bytes() const {
  const std::lock_guard lock(mutex_);
  return FreeBytes();
}

std::vector<StepDevice::MemoryCall> StepDevice::memory_calls() const {
  const std::lock_guard lock(mutex_);
  return memory_calls_;
}

void StepDevice::HoldResizes(std::uint64_t below_bytes) {
  const std::lock_guard lock(mutex_);
  held_below_bytes_ = below_bytes;
}

void StepDevice::SuspendSwapsOut() {
  const std::lock_guard lock(mutex_);
  suspends_swaps_out_ = true;
}

void StepDevice::WaitWhileHeld(std::unique_lock<std::mutex>& lock) {
  const std::size_t number = ++held_;
  changed_.notify_all();
  changed_.wait_for(lock, kPatience, [&] { return released_ >= number; });
}

bool StepDevice::AwaitHeldCall() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] { return held_ > released_; });
}

void StepDevice::ReleaseHeldCall() {
  const std::lock_guard lock(mutex_);
  ++released_;
  changed_.notify_all();
}

void StepDevice::HoldNothing() {
  const std::lock_guard lock(mutex_);
  held_below_bytes_ = 0;
  suspends_swaps_out_ = false;
  released_ = held_;
  launches_block_ = false;
  changed_.notify_all();
}

std::uint64_t StepDevice::mapped_bytes() const {
  const std::lock_guard lock(mutex_);
  return mapped_bytes_;
}

}  // namespace gpushared::testing
