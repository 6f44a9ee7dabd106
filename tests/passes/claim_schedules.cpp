// SPDX-License-Identifier: Apache-2.0
#include "tests/passes/claim_schedules.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/ptx/text/parser.h"
#include "common/ptx/text/printer.h"
#include "tests/executor/find_program.h"

namespace gpushared::testing {
namespace {

const std::atomic<bool> kNever{false};

std::string Text(const executor::RunOutcome& outcome) {
  return outcome.fault ? outcome.fault->message : "it did not run to its end";
}

executor::Launch GetLaunch(const PreemptibleLaunch& from, const executor::Program& program) {
  executor::Launch launch;
  launch.program = &program;
  launch.grid = from.grid;
  launch.block = from.block;
  launch.dynamic_shared_bytes = from.dynamic_shared_bytes;
  launch.parameters = from.parameters;
  launch.memory = from.memory;
  return launch;
}

// `begin`: offset of both in the launch's memory.
std::string Difference(std::span<const std::byte> got, std::span<const std::byte> want,
                       std::size_t begin = 0) {
  const auto [a, b] = std::ranges::mismatch(got, want);
  if (a == got.end()) return {};
  return "byte " + std::to_string(begin + static_cast<std::size_t>(a - got.begin())) + " is " +
         std::to_string(std::to_integer<int>(*a)) + " instead of " +
         std::to_string(std::to_integer<int>(*b));
}

// A part of a launch's memory.
struct Piece {
  std::size_t begin = 0, bytes = 0;

  template <typename Bytes>
  auto Of(Bytes& all) const {
    return std::span(all).subspan(begin, bytes);
  }
};

// Returns the pieces that a launch has changed.
std::vector<Piece> ChangedPieces(const std::vector<std::byte>& before,
                                 const std::vector<std::byte>& after) {
  constexpr std::size_t kPieceBytes = 1024;
  std::vector<Piece> changed;
  for (std::size_t at = 0; at < before.size(); at += kPieceBytes) {
    const Piece piece{.begin = at, .bytes = std::min(kPieceBytes, before.size() - at)};
    if (!std::ranges::equal(piece.Of(before), piece.Of(after))) changed.push_back(piece);
  }
  return changed;
}

}  // namespace

std::uint32_t Schedules() {
#if defined(__SANITIZE_ADDRESS__)
  constexpr std::uint32_t kBuiltIn = 100;
#else
  constexpr std::uint32_t kBuiltIn = 250;
#endif
  const char* const asked = std::getenv("GPUSHARED_SCHEDULES");
  return asked == nullptr ? kBuiltIn : static_cast<std::uint32_t>(std::strtoul(asked, nullptr, 10));
}

Result<std::unique_ptr<ClaimedModule>> ClaimedModule::Make(const ptx::Module& module,
                                                           const executor::ModuleLayout& layout,
                                                           std::uint64_t variables_base,
                                                           executor::Flavour flavour) {
  auto made = std::make_unique<ClaimedModule>();
  ptx::Claims claims = ptx::Claim(module);
  // Prints and parses the module again, because devices receive it as text.
  const Result<ptx::Module> parsed = ptx::Parse(ptx::Print(claims.module));
  if (!parsed) return parsed.status();
  auto image = executor::DecodeModule(*parsed, layout, variables_base, flavour);
  if (!image) return image.status();
  made->image_ = *std::move(image);
  made->kernels_ = std::move(claims.kernels);
  return made;
}

const ptx::PreemptibleKernel* ClaimedModule::Find(std::string_view kernel) const {
  const auto found = std::ranges::find(kernels_, kernel, &ptx::PreemptibleKernel::kernel);
  return found == kernels_.end() || found->claimed.empty() ? nullptr : &*found;
}

const executor::Program& ClaimedModule::Original(const ptx::PreemptibleKernel& kernel) const {
  return *FindProgram(*image_, kernel.kernel);
}

const executor::Program& ClaimedModule::Claimed(const ptx::PreemptibleKernel& kernel) const {
  return *FindProgram(*image_, kernel.claimed);
}

Crew::Crew(std::uint32_t threads) {
  for (std::uint32_t i = 0; i < threads; ++i) {
    executors_.push_back(std::make_unique<executor::BlockExecutor>());
  }
  for (std::uint32_t i = 1; i < threads; ++i) threads_.emplace_back([this, i] { Live(i); });
}

Crew::~Crew() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Crew::Live(std::uint32_t index) {
  std::uint64_t round = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_closed_ || round != round_; });
    if (is_closed_) return;
    round = round_;
    if (index >= wanted_) continue;
    lock.unlock();
    (*work_)(*executors_[index]);
    lock.lock();
    if (--running_ == 0) changed_.notify_all();
  }
}

void Crew::Run(std::uint32_t threads, const std::function<void(executor::BlockExecutor&)>& work) {
  if (threads > 1) {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    wanted_ = threads;
    running_ = threads - 1;
    ++round_;
    changed_.notify_all();
  }
  work(*executors_[0]);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return running_ == 0; });
}

std::uint32_t ScheduleRunner::Claimed() const {
  // The executor's atomics operate on plain memory, like the device's.
  return __atomic_load_n(&control_.counter, __ATOMIC_RELAXED);
}

std::string ScheduleRunner::Run(const PreemptibleLaunch& launch, std::uint32_t count,
                                std::uint64_t seed) {
  const std::vector<std::byte> before(launch.bytes.begin(), launch.bytes.end());
  executor::BlockExecutor plain;
  const executor::RunOutcome outcome =
      plain.Run(GetLaunch(launch, *launch.original), 0, launch.grid.Count(), kNever, kNever);
  if (outcome.end != executor::RunOutcome::End::kFinished) return "original: " + Text(outcome);
  const std::vector<std::byte> after(launch.bytes.begin(), launch.bytes.end());
  // Copying and comparing all memory each time would take longer than the kernel does.
  const std::vector<Piece> changed = ChangedPieces(before, after);
  for (std::uint32_t i = 0; i < count; ++i) {
    for (const Piece& piece : changed) {
      std::ranges::copy(piece.Of(before), piece.Of(launch.bytes).begin());
    }
    std::string wrong = RunSchedule(launch, seed + i);
    for (const Piece& piece : changed) {
      if (wrong.empty()) wrong = Difference(piece.Of(launch.bytes), piece.Of(after), piece.begin);
    }
    if (!wrong.empty()) return "schedule " + std::to_string(seed + i) + ": " + wrong;
  }
  // A stray write by any schedule remains visible here.
  const std::string wrong = Difference(launch.bytes, after);
  return wrong.empty() ? wrong : "one of " + std::to_string(count) + " schedules: " + wrong;
}

std::string ScheduleRunner::RunSchedule(const PreemptibleLaunch& launch, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&random](std::uint64_t limit) {
    return static_cast<std::uint32_t>(random() % limit);
  };
  const auto total = static_cast<std::uint32_t>(launch.grid.Count());
  ++schedules_;
  control_.counter = 0;
  // Epochs wrap around to small numbers.
  Part part{.epoch = below(2) == 0 ? 0xfffffffeu : below(1000)};
  control_.stop = part.epoch;
  for (std::uint32_t done = 0; done < total; done = std::min(Claimed(), total)) {
    ++part.epoch;
    part.blocks = 1 + below(total - done + 3);
    part.stop_at = below(3) == 0 ? total : done + below(total - done);
    part.threads = 1 + below(crew_.size());
    std::string wrong = RunPart(launch, part, done);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

std::string ScheduleRunner::RunPart(const PreemptibleLaunch& launch, const Part& part,
                                    std::uint32_t before) {
  const auto total = static_cast<std::uint32_t>(launch.grid.Count());
  ++launches_;
  ptx::ClaimParameter parameter{.counter = reinterpret_cast<std::uint64_t>(&control_.counter),
                                .stop = reinterpret_cast<std::uint64_t>(&control_.stop),
                                .epoch = part.epoch,
                                .blocks = total,
                                .grid_x = launch.grid.x,
                                .grid_y = launch.grid.y,
                                .grid_z = launch.grid.z};
  std::vector<std::byte> parameters = launch.parameters;
  parameters.resize(launch.parameter_offset + sizeof parameter);
  std::memcpy(parameters.data() + launch.parameter_offset, &parameter, sizeof parameter);
  executor::Launch form = GetLaunch(launch, *launch.claimed);
  form.grid = {part.blocks, 1, 1};
  form.dynamic_shared_bytes += ptx::kClaimSharedBytes;
  form.parameters = parameters;
  form.memory.variables_base = reinterpret_cast<std::uint64_t>(&control_);
  form.memory.variables_bytes = sizeof control_;

  // Stops may also occur before the first block.
  if (part.stop_at <= before) __atomic_store_n(&control_.stop, part.epoch, __ATOMIC_RELAXED);
  std::atomic<std::uint32_t> next{0};
  std::mutex mutex;
  std::string wrong;
  crew_.Run(part.threads, [&](executor::BlockExecutor& blocks) {
    for (std::uint32_t i; (i = next.fetch_add(1)) < part.blocks;) {
      const executor::RunOutcome outcome = blocks.Run(form, i, 1, kNever, kNever);
      if (outcome.end != executor::RunOutcome::End::kFinished) {
        const std::lock_guard lock(mutex);
        wrong = Text(outcome);
      }
      if (Claimed() >= part.stop_at && part.stop_at < total) {
        __atomic_store_n(&control_.stop, part.epoch, __ATOMIC_RELAXED);
      }
    }
  });
  if (!wrong.empty()) return wrong;
  const std::uint32_t claimed = Claimed(), wanted = before + part.blocks;
  // Each of the other threads may have claimed one more block before it saw the stop.
  const std::uint32_t stop = std::max(part.stop_at, before);
  const std::uint32_t most =
      part.stop_at <= before ? before : std::min(wanted, stop + part.threads - 1);
  const bool stopped = part.stop_at < total;
  if (stopped && (claimed > most || claimed < std::min(wanted, stop))) {
    return "asked to stop at " + std::to_string(stop) + ", claimed " + std::to_string(claimed) +
           " with " + std::to_string(part.threads) + " threads";
  }
  if (!stopped && claimed != wanted) {
    return "launched " + std::to_string(wanted) + " blocks, claimed " + std::to_string(claimed);
  }
  if (claimed < std::min(wanted, total)) ++stops_;
  return {};
}

}  // namespace gpushared::testing
