// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/cuda_context.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace gpushared::device::cuda {
namespace {

// Threads that wait for the GPU (in slow calls, while zeroing) sleep; the polling thread never
// waits. Local memory keeps the largest size that a kernel needed, because changing it stops the
// whole GPU.
constexpr unsigned kContextFlags = kContextBlockingSync | kContextKeepLocalMemory;

// Limit for the local memory of each thread, which the GPU must have for every thread that it can
// run at once. Compilers keep most kernels below 1 KiB. 1/64 of the GPU's memory allows 8 KiB on an
// H200 and on the smallest MIG instances. GPUs on which 8 KiB take up to 3 %, such as an H100, get
// 8 KiB as well, because otherwise some kernels could run on an H200 but not on an H100.
std::uint64_t LocalBytesFor(std::uint64_t memory, std::uint64_t threads) {
  constexpr std::uint64_t kLeast = 4096, kUsual = 8192, kMost = 16384;
  const std::uint64_t bytes = std::clamp(std::bit_floor(memory / 64 / threads), kLeast, kMost);
  return bytes < kUsual && kUsual * threads <= memory / 100 * 3 ? kUsual : bytes;
}

}  // namespace

Result<std::shared_ptr<CudaContext>> CudaContext::Open(std::shared_ptr<const Driver> driver,
                                                       int ordinal, WakeFunction wake,
                                                       std::function<void()> await_unhurried) {
  std::shared_ptr<CudaContext> context(
      new CudaContext(std::move(driver), std::move(wake), std::move(await_unhurried)));
  if (Status status = context->Retain(ordinal); !status.ok()) return status;
  return context;
}

Status CudaContext::Retain(int ordinal) {
  int count = 0;
  Status status = Try("counting GPUs", driver_->DeviceGetCount, &count);
  if (!status.ok()) return status;
  if (ordinal < 0 || ordinal >= count) {
    return {StatusCode::kNotFound, "there is no GPU " + std::to_string(ordinal) +
                                       ", this process sees " + std::to_string(count)};
  }
  status = Try("finding the GPU", driver_->DeviceGet, &number_, ordinal);
  if (!status.ok()) return status;
  const Code flags = Call(driver_->DevicePrimaryCtxSetFlags, number_, kContextFlags);
  // Accepts a context that is already active in this process, because the flags are only a
  // preference.
  if (flags != Code::kSuccess && flags != Code::kPrimaryContextActive) {
    return Explain("preparing the context", driver_->DevicePrimaryCtxSetFlags.name(), flags);
  }
  Context context = nullptr;
  status = Try("making the context", driver_->DevicePrimaryCtxRetain, &context, number_);
  if (!status.ok()) return status;
  context_ = context;
  return Bind();
}

CudaContext::~CudaContext() {
  if (context_ == nullptr || is_dead()) return;
  // A failure cannot be reported, and the process that used the GPU is about to exit.
  (void)Call(driver_->CtxSetCurrent, nullptr);
  (void)Call(driver_->DevicePrimaryCtxRelease, number_);
}

Status CudaContext::Bind() const {
  // Does not access the GPU, so it cannot return the errors that Call detects.
  const Code code = driver_->CtxSetCurrent(context_);
  if (code == Code::kSuccess) [[likely]]
    return {};
  return Explain("using the context", driver_->CtxSetCurrent.name(), code);
}

Status CudaContext::Explain(const char* doing, std::string_view call, Code code) const {
  return {ToStatusCode(code), std::string(doing) + " failed: " + driver_->Explain(call, code)};
}

void CudaContext::RecordDeath(const char* call, Code code) {
  GiveUp({StatusCode::kDeviceLost, driver_->Explain(call, code)});
}

void CudaContext::GiveUp(const Status& why) {
  {
    const MutexLock lock(mutex_);
    if (!death_.ok()) return;
    death_ = Status(StatusCode::kDeviceLost, why.message());
  }
  is_dead_.store(true, std::memory_order_release);
  idle_windows_.GiveUp();
  if (wake_) wake_();
}

Status CudaContext::death() const {
  const MutexLock lock(mutex_);
  return death_;
}

Result<std::uint64_t> CudaContext::FreeBytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  Status status = Try("asking for free memory", driver_->MemGetInfo, &free, &total);
  if (!status.ok()) return status;
  return free;
}

Status CudaContext::LimitLocalMemory() {
  std::size_t total = 0;
  Status status = Try("asking for its memory", driver_->DeviceTotalMem, &total, number_);
  if (!status.ok()) return status;
  const Result<int> multiprocessors =
      NeededAttribute(DeviceAttribute::kMultiprocessors, "multiprocessors");
  if (!multiprocessors.ok()) return multiprocessors.status();
  const Result<int> threads_each =
      NeededAttribute(DeviceAttribute::kThreadsPerMultiprocessorMax, "threads per multiprocessor");
  if (!threads_each.ok()) return threads_each.status();
  const auto threads = static_cast<std::uint64_t>(std::max(*multiprocessors, 1)) *
                       static_cast<std::uint64_t>(std::max(*threads_each, 1));
  const Result<std::uint64_t> free_before = FreeBytes();
  if (!free_before.ok()) return free_before.status();
  std::size_t before = 0;
  std::size_t after = 0;  // Drivers round the value.
  constexpr const char* kDoing = "limiting local memory";
  status = Try(kDoing, driver_->CtxGetLimit, &before, Limit::kStackBytes);
  if (status.ok()) {
    status = Try(kDoing, driver_->CtxSetLimit, Limit::kStackBytes,
                 std::size_t{LocalBytesFor(total, threads)});
  }
  if (status.ok()) status = Try(kDoing, driver_->CtxGetLimit, &after, Limit::kStackBytes);
  if (!status.ok()) return status;
  const Result<std::uint64_t> free_after = FreeBytes();
  if (!free_after.ok()) return free_after.status();
  local_bytes_max_ = after;
  const std::uint64_t added = (std::max(after, before) - before) * threads;
  const std::uint64_t taken = *free_before - std::min(*free_before, *free_after);
  untaken_local_bytes_ = added - std::min(added, taken);
  return {};
}

std::string CudaContext::WhyTooMuchLocalMemory(std::uint64_t bytes) const {
  if (bytes <= local_bytes_max_) return "";
  return std::to_string(bytes) + " bytes of local memory for each thread, at most " +
         std::to_string(local_bytes_max_) + " are allowed on this GPU (no option changes that)";
}

int CudaContext::Attribute(DeviceAttribute which, int otherwise) const {
  int value = 0;
  const Code code = driver_->DeviceGetAttribute(&value, which, number_);
  return code == Code::kSuccess ? value : otherwise;
}

Result<int> CudaContext::NeededAttribute(DeviceAttribute which, const char* name) const {
  int value = 0;
  const Code code = driver_->DeviceGetAttribute(&value, which, number_);
  if (code == Code::kSuccess) return value;
  const std::string doing = "asking for its " + std::string(name) + " (attribute " +
                            std::to_string(static_cast<int>(which)) + ")";
  return Explain(doing.c_str(), driver_->DeviceGetAttribute.name(), code);
}

}  // namespace gpushared::device::cuda
