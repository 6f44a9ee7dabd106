// SPDX-License-Identifier: Apache-2.0
#include "tests/passes/fence_bench.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include <gtest/gtest.h>

#include "server/ptx/parser.h"
#include "server/ptx/printer.h"

namespace gpushared::testing {
namespace {

namespace executor = device::executor;

const std::atomic<bool> kNever{false};

// In the client's range.
constexpr std::uint64_t kPlainAt = std::uint64_t{64} << 20;
constexpr std::uint64_t kFencedAt = std::uint64_t{96} << 20;
constexpr std::uint64_t kClaimedAt = std::uint64_t{128} << 20;
constexpr std::uint64_t kMovedAt = std::uint64_t{160} << 20;

// Two words of the server's, which claimed kernels reach beside the client's range.
struct Control {
  alignas(64) std::uint32_t counter = 0;
  alignas(64) std::uint32_t stop = 0;
};

std::string Text(const executor::RunOutcome& outcome) {
  if (outcome.end == executor::RunOutcome::End::kFinished) return {};
  return outcome.fault ? outcome.fault->message : "it did not run to its end";
}

// What a device gets is text.
ptx::Module ByWayOfText(const ptx::Module& module) {
  Result<ptx::Module> again = ptx::Parse(ptx::Print(module));
  EXPECT_TRUE(again) << again.status().message();
  return again ? *std::move(again) : ptx::Module();
}

}  // namespace

Ranges::Ranges() {
  reserved_ = mmap(nullptr, 4 * kRangeBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(reserved_, MAP_FAILED);
  base_ =
      (reinterpret_cast<std::uint64_t>(reserved_) + kRangeBytes - 1) / kRangeBytes * kRangeBytes;
}

Ranges::~Ranges() { munmap(reserved_, 4 * kRangeBytes); }

executor::MemoryWindow Ranges::Window() const { return {.base = base_, .mapped_bytes = &bytes_}; }

void Ranges::Protect(int protection) {
  const std::uint64_t bytes = kRangeBytes - ptx::kFenceMarginBytes;
  EXPECT_EQ(mprotect(reinterpret_cast<void*>(below()), bytes, protection), 0);
  EXPECT_EQ(mprotect(reinterpret_cast<void*>(above() + ptx::kFenceMarginBytes), bytes, protection),
            0);
}
void Ranges::Forbid() { Protect(PROT_NONE); }
void Ranges::Allow() { Protect(PROT_READ | PROT_WRITE); }

FenceBench::FenceBench(const std::string& text, const Change& change) {
  Result<ptx::Module> module = ptx::Parse(text);
  EXPECT_TRUE(module) << module.status().message();
  if (!module) return;
  source_ = *std::move(module);
  Result<ptx::Fenced> fenced = ptx::Fence(source_);
  EXPECT_TRUE(fenced) << fenced.status().message();
  if (!fenced) return;
  fenced_ = *std::move(fenced);
  if (change) {
    change(source_);
    change(fenced_.module);
  }
  claims_ = ptx::Claim(ByWayOfText(fenced_.module));
  moved_base_ = ranges_.client() + kMovedAt;
  const auto decode = [this](const ptx::Module& form, std::uint64_t at, Image& image) {
    Result<Image> decoded = Decode(ByWayOfText(form), ranges_.client() + at);
    EXPECT_TRUE(decoded) << decoded.status().message();
    if (decoded) image = *std::move(decoded);
  };
  decode(source_, kPlainAt, plain_);
  decode(fenced_.module, kFencedAt, fence_);
  decode(claims_.module, kClaimedAt, claimed_);
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

std::string FenceBench::Reason(std::string_view kernel) const {
  const auto found = std::ranges::find(fenced_.kernels, kernel, &ptx::FencedKernel::kernel);
  return found == fenced_.kernels.end() ? "no such kernel" : found->reason;
}

bool FenceBench::IsClaimed(std::string_view kernel) const {
  const auto found = std::ranges::find(claims_.kernels, kernel, &ptx::ClaimedKernel::kernel);
  return found != claims_.kernels.end() && !found->claimed.empty();
}

void FenceBench::WriteVariables(const Image& image, bool is_fenced) {
  const std::vector<std::byte> initial = image.layout.InitialBytes(image.base);
  std::ranges::copy(initial, reinterpret_cast<std::byte*>(image.base));
  if (!is_fenced) return;
  const std::vector<std::byte> moved = fenced_.variables.InitialBytes(moved_base_);
  std::ranges::copy(moved, reinterpret_cast<std::byte*>(moved_base_));
  const ptx::FenceConstant constant =
      ptx::MakeFenceConstant(ranges_.client(), kRangeBytes, moved_base_);
  const ptx::VariablePlacement* place = image.layout.Find(fenced_.constant);
  ASSERT_NE(place, nullptr);
  std::memcpy(reinterpret_cast<std::byte*>(image.base) + place->offset, &constant, sizeof constant);
}

std::string FenceBench::Run(Form form, const FenceLaunch& launch) {
  if (form == Form::kFencedAndClaimed) return RunClaimed(launch);
  const Image& image = form == Form::kPlain ? plain_ : fence_;
  const executor::Program* program = image.code ? image.code->Find(launch.kernel) : nullptr;
  if (program == nullptr) return "no such kernel";
  if (!program->info().unsupported.empty()) return program->info().unsupported;
  WriteVariables(image, form == Form::kFenced);
  executor::Launch run;
  run.program = program;
  run.grid = launch.grid;
  run.block = launch.block;
  run.dynamic_shared_bytes = launch.dynamic_shared_bytes;
  run.parameters = launch.parameters;
  run.memory = ranges_.Window();
  return Text(blocks_.Run(run, 0, launch.grid.Count(), kNever, kNever));
}

std::string FenceBench::RunClaimed(const FenceLaunch& launch) {
  const auto found = std::ranges::find(claims_.kernels, launch.kernel, &ptx::ClaimedKernel::kernel);
  if (found == claims_.kernels.end() || found->claimed.empty()) return "no claimed form";
  WriteVariables(claimed_, true);
  Control control;
  const auto total = static_cast<std::uint32_t>(launch.grid.Count());
  const ptx::ClaimParameter parameter{.counter = reinterpret_cast<std::uint64_t>(&control.counter),
                                      .stop = reinterpret_cast<std::uint64_t>(&control.stop),
                                      .epoch = 1,
                                      .blocks = total,
                                      .grid_x = launch.grid.x,
                                      .grid_y = launch.grid.y,
                                      .grid_z = launch.grid.z};
  std::vector<std::byte> parameters = launch.parameters;
  parameters.resize(found->parameter_offset + sizeof parameter);
  std::memcpy(parameters.data() + found->parameter_offset, &parameter, sizeof parameter);
  executor::Launch run;
  run.program = claimed_.code->Find(found->claimed);
  run.block = launch.block;
  run.dynamic_shared_bytes = launch.dynamic_shared_bytes + ptx::kClaimSharedBytes;
  run.parameters = parameters;
  run.memory = ranges_.Window();
  run.memory.variables_base = reinterpret_cast<std::uint64_t>(&control);
  run.memory.variables_bytes = sizeof control;
  // In two launches, the second of which goes on where the first has ended.
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
  for (const ptx::VariablePlacement& moved : fenced_.variables.variables) {
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
  for (const Argument& argument : what.arguments) {
    if (argument.kind == Argument::Kind::kValue) {
      parameters.insert(parameters.end(), argument.value.begin(), argument.value.end());
      continue;
    }
    const std::uint64_t address = ranges_.client() + used_;
    auto* at = reinterpret_cast<std::byte*>(address);
    std::mt19937 random(argument.count);
    std::memset(at, 0, std::size_t{argument.count} * 4);
    for (std::uint32_t i = 0; i < argument.count; ++i) {
      const auto word = static_cast<std::uint32_t>(random() % argument.below);
      const auto real = static_cast<float>(word);
      if (argument.kind == Argument::Kind::kBytes) at[i] = static_cast<std::byte>(word);
      if (argument.kind == Argument::Kind::kWords) std::memcpy(at + 4 * i, &word, 4);
      if (argument.kind == Argument::Kind::kFloats) std::memcpy(at + 4 * i, &real, 4);
    }
    used_ = (used_ + std::uint64_t{argument.count} * 4 + 255) / 256 * 256;
    parameters.resize((parameters.size() + 7) / 8 * 8);
    const auto* bytes = reinterpret_cast<const std::byte*>(&address);
    parameters.insert(parameters.end(), bytes, bytes + sizeof address);
  }
  const executor::Program* program = plain_.code ? plain_.code->Find(what.kernel) : nullptr;
  if (program != nullptr) parameters.resize(program->info().parameter_bytes);
  return launch;
}

std::span<std::byte> FenceBench::buffers() const {
  return {reinterpret_cast<std::byte*>(ranges_.client()), used_};
}

}  // namespace gpushared::testing
