// SPDX-License-Identifier: Apache-2.0
#include "tests/passes/fence_bench.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include <gtest/gtest.h>

#include "common/ptx/text/parser.h"
#include "common/ptx/text/printer.h"
#include "tests/executor/find_program.h"

namespace gpushared::testing {
namespace {

namespace executor = device::executor;

const std::atomic<bool> kNever{false};

// Offsets in the client's range.
constexpr std::uint64_t kPlainAt = std::uint64_t{64} << 20;
constexpr std::uint64_t kFencedAt = std::uint64_t{96} << 20;
constexpr std::uint64_t kContainedAt = std::uint64_t{160} << 20;
// Variables are placed after the mapped part, kMovedBytes before the end of a range of any size.
constexpr std::uint64_t kMovedBytes = std::uint64_t{32} << 20;
constexpr std::uint64_t kWordsBehind = kMovedBytes / 2;
// Offset from a form to its preemptible form.
constexpr std::uint64_t kClaimedBehind = std::uint64_t{32} << 20;

bool IsClaimed(Form form) {
  return form == Form::kFencedAndClaimed || form == Form::kContainedAndClaimed;
}
bool IsContained(Form form) {
  return form == Form::kContained || form == Form::kContainedAndClaimed;
}

std::string Text(const executor::RunOutcome& outcome) {
  if (outcome.end == executor::RunOutcome::End::kFinished) return {};
  return outcome.fault ? outcome.fault->message : "it did not run to its end";
}

// Prints and parses the module again, because devices receive it as text.
ptx::Module ByWayOfText(const ptx::Module& module) {
  Result<ptx::Module> again = ptx::Parse(ptx::Print(module));
  EXPECT_TRUE(again) << again.status().message();
  return again ? *std::move(again) : ptx::Module();
}

}  // namespace

Ranges::Ranges(std::uint64_t range_bytes) : range_bytes_(range_bytes) {
  reserved_ = mmap(nullptr, 4 * range_bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(reserved_, MAP_FAILED);
  base_ =
      (reinterpret_cast<std::uint64_t>(reserved_) + range_bytes_ - 1) / range_bytes_ * range_bytes_;
}

Ranges::~Ranges() { munmap(reserved_, 4 * range_bytes_); }

executor::MemoryWindow Ranges::Window() const { return {.base = base_, .mapped_bytes = &bytes_}; }

void Ranges::Protect(int protection) {
  const std::uint64_t bytes = range_bytes_ - ptx::kFenceMarginBytes;
  EXPECT_EQ(mprotect(reinterpret_cast<void*>(below()), bytes, protection), 0);
  EXPECT_EQ(mprotect(reinterpret_cast<void*>(above() + ptx::kFenceMarginBytes), bytes, protection),
            0);
}
void Ranges::Forbid() { Protect(PROT_NONE); }
void Ranges::Allow() { Protect(PROT_READ | PROT_WRITE); }

FenceBench::FenceBench(const std::string& text, const Change& change, std::uint64_t range_bytes)
    : ranges_(range_bytes) {
  Result<ptx::Module> module = ptx::Parse(text);
  EXPECT_TRUE(module) << module.status().message();
  if (!module) return;
  source_ = *std::move(module);
  moved_base_ = ranges_.above() - kMovedBytes;
  words_ = new (reinterpret_cast<void*>(moved_base_ + kWordsBehind)) Words;
  words_->control.limit = ranges_.client() + kMappedBytes - kRangeBytes + range_bytes;
  Make(ptx::Fence(source_, range_bytes), change, kFencedAt, fenced_);
  Make(ptx::Contain(source_, range_bytes), change, kContainedAt, contained_);
  if (change) change(source_);
  Decode(source_, kPlainAt, plain_);
}

void FenceBench::Make(Result<ptx::Fenced> fenced, const Change& change, std::uint64_t at,
                      Passed& passed) {
  EXPECT_TRUE(fenced) << fenced.status().message();
  if (!fenced) return;
  passed.fenced = *std::move(fenced);
  if (change) change(passed.fenced.module);
  passed.claims = ptx::Claim(ByWayOfText(passed.fenced.module));
  Decode(passed.fenced.module, at, passed.image);
  Decode(passed.claims.module, at + kClaimedBehind, passed.claimed);
}

void FenceBench::Decode(const ptx::Module& module, std::uint64_t at, Image& image) const {
  Result<Image> decoded = Decode(ByWayOfText(module), ranges_.client() + at);
  EXPECT_TRUE(decoded) << decoded.status().message();
  if (decoded) image = *std::move(decoded);
}

Result<FenceBench::Image> FenceBench::Decode(const ptx::Module& module, std::uint64_t base) const {
  Image image;
  auto layout = executor::LayOutModule(module);
  if (!layout) return layout.status();
  image.layout = *std::move(layout);
  image.base = base;
  auto code = executor::DecodeModule(module, image.layout, base);
  if (!code) return code.status();
  image.code = *std::move(code);
  return image;
}

std::string FenceBench::Passed::Reason(std::string_view kernel) const {
  const auto found = std::ranges::find(fenced.kernels, kernel, &ptx::FencedKernel::kernel);
  return found == fenced.kernels.end() ? "no such kernel" : found->reason;
}

const ptx::PreemptibleKernel* FenceBench::Passed::Claim(std::string_view kernel) const {
  const auto found = std::ranges::find(claims.kernels, kernel, &ptx::PreemptibleKernel::kernel);
  return found != claims.kernels.end() && !found->claimed.empty() ? &*found : nullptr;
}

const FenceBench::Passed& FenceBench::Of(Form form) const {
  return IsContained(form) ? contained_ : fenced_;
}

bool FenceBench::Has(Form form, std::string_view kernel) const {
  if (form == Form::kPlain) return true;
  const Passed& passed = Of(form);
  return passed.Reason(kernel).empty() && (!IsClaimed(form) || passed.Claim(kernel) != nullptr);
}

void FenceBench::WriteVariables(const Image& image, const Passed* passed) {
  const std::vector<std::byte> initial = image.layout.InitialBytes(image.base);
  std::ranges::copy(initial, reinterpret_cast<std::byte*>(image.base));
  if (passed == nullptr) return;
  const std::vector<std::byte> moved = passed->fenced.variables.InitialBytes(moved_base_);
  std::ranges::copy(moved, reinterpret_cast<std::byte*>(moved_base_));
  ptx::FenceConstant constant = ptx::MakeFenceConstant(ranges_.client(), moved_base_);
  constant.control = reinterpret_cast<std::uint64_t>(&words_->control);
  constant.host_words = reinterpret_cast<std::uint64_t>(&words_->host);
  const ptx::VariablePlacement* place = image.layout.Find(passed->fenced.constant);
  ASSERT_NE(place, nullptr);
  std::memcpy(reinterpret_cast<std::byte*>(image.base) + place->offset, &constant, sizeof constant);
}

executor::Launch FenceBench::Prepare(Form form, const FenceLaunch& launch) {
  executor::Launch run;
  run.grid = launch.grid;
  run.block = launch.block;
  run.dynamic_shared_bytes = launch.dynamic_shared_bytes;
  run.parameters = launch.parameters;
  run.memory = ranges_.Window();
  if (IsContained(form)) {
    run.memory = {.base = ranges_.client(), .mapped_bytes = &mapped_bytes_};
  }
  run.memory.variables_base = moved_base_;
  run.memory.variables_bytes = kWordsBehind + sizeof(Words);
  words_->host.fault = {};
  ptx::ContainControl& control = words_->control;
  control.first_place = control.has_place = control.has_other_place = 0;
  return run;
}

std::string FenceBench::Run(Form form, const FenceLaunch& launch) {
  if (IsClaimed(form)) return RunClaimed(form, launch);
  const bool is_plain = form == Form::kPlain;
  const Image& image = is_plain ? plain_ : Of(form).image;
  executor::Launch run = Prepare(form, launch);
  run.program = image.code ? FindProgram(*image.code, launch.kernel) : nullptr;
  if (run.program == nullptr) return "no such kernel";
  if (!run.program->info().unsupported.empty()) return run.program->info().unsupported;
  WriteVariables(image, is_plain ? nullptr : &Of(form));
  return Text(blocks_.Run(run, 0, launch.grid.Count(), kNever, kNever));
}

std::string FenceBench::RunClaimed(Form form, const FenceLaunch& launch) {
  const Passed& passed = Of(form);
  const ptx::PreemptibleKernel* claim = passed.Claim(launch.kernel);
  if (claim == nullptr) return "no claimed form";
  WriteVariables(passed.claimed, &passed);
  words_->counter = words_->stop = 0;
  const auto total = static_cast<std::uint32_t>(launch.grid.Count());
  const ptx::ClaimParameter parameter{.counter = reinterpret_cast<std::uint64_t>(&words_->counter),
                                      .stop = reinterpret_cast<std::uint64_t>(&words_->stop),
                                      .epoch = 1,
                                      .blocks = total,
                                      .grid_x = launch.grid.x,
                                      .grid_y = launch.grid.y,
                                      .grid_z = launch.grid.z};
  std::vector<std::byte> parameters = launch.parameters;
  parameters.resize(claim->parameter_offset + sizeof parameter);
  std::memcpy(parameters.data() + claim->parameter_offset, &parameter, sizeof parameter);
  executor::Launch run = Prepare(form, launch);
  run.program = FindProgram(*passed.claimed.code, claim->claimed);
  run.dynamic_shared_bytes += ptx::kClaimSharedBytes;
  run.parameters = parameters;
  // Runs the preemptible form in two launches, the second of which resumes where the first one
  // ended.
  const std::uint32_t first = (total + 1) / 2;
  for (const std::uint32_t blocks : {first, total - first + 1}) {
    run.grid = {blocks, 1, 1};
    std::string wrong = Text(blocks_.Run(run, 0, blocks, kNever, kNever));
    if (!wrong.empty()) return wrong;
  }
  return {};
}

std::vector<std::byte> FenceBench::Variables(Form form) const {
  std::vector<std::byte> bytes;
  for (const ptx::VariablePlacement& moved : fenced_.fenced.variables.variables) {
    const ptx::VariablePlacement* own = plain_.layout.Find(moved.name);
    const std::uint64_t at =
        form == Form::kPlain ? plain_.base + own->offset : moved_base_ + moved.offset;
    const auto* begin = reinterpret_cast<const std::byte*>(at);
    bytes.insert(bytes.end(), begin, begin + moved.bytes);
  }
  return bytes;
}

FenceLaunch FenceBench::Prepare(const Case& what) {
  FenceLaunch launch{.kernel = what.kernel,
                     .grid = what.grid,
                     .block = what.block,
                     .dynamic_shared_bytes = what.dynamic_shared_bytes,
                     .parameters = {}};
  used_ = 0;
  std::vector<std::byte>& parameters = launch.parameters;
  parameters = FillBuffers(what, reinterpret_cast<std::byte*>(ranges_.client()), used_);
  const executor::Program* program = plain_.code ? FindProgram(*plain_.code, what.kernel) : nullptr;
  if (program != nullptr) parameters.resize(program->info().parameter_bytes);
  return launch;
}

std::span<std::byte> FenceBench::buffers() const {
  return {reinterpret_cast<std::byte*>(ranges_.client()), used_};
}

}  // namespace gpushared::testing
