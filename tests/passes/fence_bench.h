// SPDX-License-Identifier: Apache-2.0
// Runs kernels plain, fenced, contained, and preemptible in the latter two forms, next to other
// clients' memory, in an executor that permits access to all of it, so that only the fence protects
// it. Contained forms are limited to the mapped part, and any other access ends them.

#ifndef GPUSHARED_TESTS_PASSES_FENCE_BENCH_H_
#define GPUSHARED_TESTS_PASSES_FENCE_BENCH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor/program.h"
#include "server/ptx/passes/claim.h"
#include "server/ptx/passes/fence.h"
#include "tests/passes/kernel_cases.h"

namespace gpushared::testing {

inline constexpr std::uint64_t kOut = std::uint64_t{1} << 20;  // In the client's range.
inline constexpr std::uint64_t kRangeBytes = std::uint64_t{1} << 32;
// Mapped part of the client's range, as passed to contained kernels.
inline constexpr std::uint64_t kMappedBytes = kRangeBytes - (std::uint64_t{64} << 20);

// Three adjacent ranges of one size: a neighbour's, the client's, a neighbour's.
class Ranges {
 public:
  explicit Ranges(std::uint64_t range_bytes);
  ~Ranges();
  Ranges(const Ranges&) = delete;
  Ranges& operator=(const Ranges&) = delete;

  std::uint64_t range_bytes() const { return range_bytes_; }
  std::uint64_t client() const { return base_ + range_bytes_; }
  std::uint64_t below() const { return base_; }
  std::uint64_t above() const { return base_ + 2 * range_bytes_; }
  device::executor::MemoryWindow Window() const;
  // Afterwards every access to a neighbour's byte ends the process, except in the margins around
  // the client's range, which are unused.
  void Forbid();
  void Allow();

 private:
  void Protect(int protection);

  const std::uint64_t range_bytes_;
  void* reserved_ = nullptr;
  std::uint64_t base_ = 0;
  std::atomic<std::uint64_t> bytes_ = 3 * range_bytes_;
};

enum class Form : std::uint8_t {
  kPlain,
  kFenced,
  kFencedAndClaimed,
  kContained,
  kContainedAndClaimed
};

struct FenceLaunch {
  std::string kernel;
  device::Dim3 grid{1, 1, 1}, block{1, 1, 1};
  std::uint32_t dynamic_shared_bytes = 0;
  std::vector<std::byte> parameters;
};

// A module in its forms.
class FenceBench {
 public:
  // `change` is applied to each form after the passes, except for the preemptible ones, whose text
  // is derived from the changed fenced and contained forms.
  using Change = std::function<void(ptx::Module&)>;
  explicit FenceBench(const std::string& ptx, const Change& change = {},
                      std::uint64_t range_bytes = kRangeBytes);

  Ranges& ranges() { return ranges_; }
  const ptx::Fenced& fenced() const { return fenced_.fenced; }
  const ptx::Fenced& contained() const { return contained_.fenced; }
  // Returns why the kernel has no fenced form; "" if it has one.
  std::string Reason(std::string_view kernel) const { return fenced_.Reason(kernel); }
  std::string ReasonOfContained(std::string_view kernel) const { return contained_.Reason(kernel); }
  // Returns whether the kernel has this form.
  bool Has(Form form, std::string_view kernel) const;

  // Initialises module variables and runs the kernel. Returns the error, or "". Faults recorded by
  // contained kernels are in fault().
  std::string Run(Form form, const FenceLaunch& launch);
  const ptx::FaultRecord& fault() const { return words_->host.fault; }
  // SetStop makes running contained kernels stop, and SetStopAtEntry keeps others from beginning.
  void SetStop(std::uint32_t value) { std::atomic_ref(words_->host.stop).store(value); }
  void SetStopAtEntry(std::uint32_t value) { std::atomic_ref(words_->control.stop).store(value); }
  // Returns the .global variables after the last run, in source order.
  std::vector<std::byte> Variables(Form form) const;
  // Returns the launch of a case, with its buffers at the start of the client's range and
  // initialised.
  FenceLaunch Prepare(const Case& what);
  // Buffers of the last Prepare.
  std::span<std::byte> buffers() const;

 private:
  struct Image {
    device::executor::ModuleLayout layout;
    std::uint64_t base = 0;  // The address of its own variables.
    std::unique_ptr<device::executor::ModuleImage> code;
  };
  // The result of a pass, alone and with preemptible forms.
  struct Passed {
    ptx::Fenced fenced;
    ptx::Claims claims;
    Image image, claimed;

    std::string Reason(std::string_view kernel) const;
    const ptx::PreemptibleKernel* Claim(std::string_view kernel) const;
  };
  // Words that the server shares with kernels.
  struct Words {
    ptx::ContainControl control;
    ptx::ContainHostWords host;
    alignas(64) std::uint32_t counter = 0;
    alignas(64) std::uint32_t stop = 0;
  };
  Result<Image> Decode(const ptx::Module& module, std::uint64_t base) const;
  void Decode(const ptx::Module& module, std::uint64_t at, Image& image) const;
  void Make(Result<ptx::Fenced> fenced, const Change& change, std::uint64_t at, Passed& passed);
  const Passed& Of(Form form) const;
  device::executor::Launch Prepare(Form form, const FenceLaunch& launch);
  std::string RunClaimed(Form form, const FenceLaunch& launch);
  void WriteVariables(const Image& image, const Passed* passed);

  Ranges ranges_;
  ptx::Module source_;
  Image plain_;
  Passed fenced_, contained_;
  Words* words_ = nullptr;  // After the variables.
  std::atomic<std::uint64_t> mapped_bytes_ =
      kMappedBytes - kRangeBytes + ranges_.range_bytes() + ptx::kContainTailBytes;
  std::uint64_t moved_base_ = 0;
  std::uint64_t used_ = 0;
  device::executor::BlockExecutor blocks_;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_PASSES_FENCE_BENCH_H_
