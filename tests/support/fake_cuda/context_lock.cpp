// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/context_lock.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "tests/support/fake_cuda/timeline.h"
#include "tests/support/fake_cuda/world.h"

namespace gpushared::testing::fake_cuda {
namespace {

struct Use {
  std::string_view call;
  LockUse use;
};

// How calls use the lock, by the prefix of the call's name; the first match applies. Sources:
//   [h100]     Measured: tests/gpu/results/2026-11-27-h100.tsv, "beside a 20 ms kernel" and "null
//              kernel beside a thread that".
//   [load]     meta-pytorch/torchcomms, pull request 2334, with reproducers: a load waits under the
//              context's lock until the GPU's queue has drained, and calls of other threads on the
//              context wait for the lock, forever if the kernel ends only after such a call.
//   [lazy]     CUDA Programming Guide, "Lazy Loading": loading a kernel may need the context to be
//              synchronised. uccl-project/uccl, pull request 220, confirms it. LoadFunction models
//              this case.
//   [sync]     cuda.h: the call "may exhibit synchronous behavior" (note_sync).
//   [free]     CUDA runtime documentation of cudaFree: it "may perform implicit synchronization".
//   [guess]    Nothing is published about this call. It is assumed to behave like its counterpart.
// The driver of [h100] blocks less than reported: its loads wait for the GPU without delaying other
// calls, and it unmaps memory and sets access while a kernel runs. The table follows the reports,
// because the server must also work with drivers that behave as reported.
constexpr Use kUses[] = {
    {"cuModuleLoad", LockUse::kDrains},         // [load]
    {"cuLibraryLoad", LockUse::kDrains},        // [load]
    {"cuModuleUnload", LockUse::kDrains},       // [h100] It waits. [guess] It holds the lock.
    {"cuMemUnmap", LockUse::kDrains},           // [sync]
    {"cuMemSetAccess", LockUse::kDrains},       // [sync]
    {"cuMemAlloc", LockUse::kHolds},            // [h100]
    {"cuMemFree", LockUse::kDrains},            // [h100], [free]; cuMemFreeHost: [guess]
    {"cuMemHostAlloc", LockUse::kHolds},        // [h100]
    {"cuMemHostRegister", LockUse::kHolds},     // [h100]
    {"cuMemHostUnregister", LockUse::kDrains},  // [h100]
};

}  // namespace

LockUse LockUseOf(std::string_view call) {
  const auto* const found =
      std::ranges::find_if(kUses, [&](const Use& each) { return call.starts_with(each.call); });
  return found == std::end(kUses) ? LockUse::kShort : found->use;
}

bool ContextLock::IsDrained() const {
  if (holder_->use == LockUse::kHolds) return true;
  return std::ranges::all_of(gpu_.streams, [this](const auto& stream) {
    const Work* const first = stream->running         ? &*stream->running
                              : stream->queue.empty() ? nullptr
                                                      : &stream->queue.front();
    return first == nullptr || first->order > holder_->last_order;
  });
}

std::optional<ContextLock::TimePoint> ContextLock::FreeAt() const {
  if (!holder_) return std::nullopt;
  if (!holder_->is_elsewhere || !IsDrained()) return kNever;
  TimePoint begins = holder_->began;
  if (holder_->use == LockUse::kDrains) {
    for (const auto& stream : gpu_.streams) begins = std::max(begins, stream->free_at);
  }
  return begins + holder_->cost;
}

bool ContextLock::IsHeld() {
  if (const auto at = FreeAt(); at && *at <= World::Now()) holder_.reset();
  return holder_.has_value();
}

void ContextLock::WaitForChange(Lock& lock) {
  TimePoint at = FreeAt().value_or(kNever);
  if (World::PassesTime() && gpu_.timeline != nullptr) {
    at = std::min(at, gpu_.timeline->next_event());
  }
  // In real time, and in virtual time without a next event, one of the GPU's engines or another
  // thread causes the change.
  if (!World::PassesTime() || at == kNever) return world_.changed.wait(lock);
  World::Spend(std::max(at, World::Now()) - World::Now());
  world_.CatchUp();
}

void ContextLock::Enter(Lock& lock) {
  while (!World::is_elsewhere && !world_.sticky && IsHeld()) WaitForChange(lock);
}

void ContextLock::Take(Lock& lock, LockUse use) {
  holder_ = {.is_elsewhere = World::is_elsewhere,
             .use = use,
             .last_order = world_.last_order(),
             .began = World::Now()};
  if (!IsDrained()) ++waits_;
  while (!World::is_elsewhere && !world_.sticky && !IsDrained()) WaitForChange(lock);
}

void ContextLock::Return(std::chrono::nanoseconds cost) {
  if (holder_->is_elsewhere) {
    holder_->cost += cost;
    return;
  }
  holder_.reset();
  world_.changed.notify_all();
}

}  // namespace gpushared::testing::fake_cuda

// ---- the controls

using gpushared::testing::fake_cuda::ContextLock;
using gpushared::testing::fake_cuda::World;

extern "C" {

void fake_cuda_elsewhere(int is_elsewhere) { World::is_elsewhere = is_elsewhere != 0; }

size_t fake_cuda_lock_waits(void) {
  World& world = World::Get();
  const ContextLock::Lock lock(world.mutex);
  std::size_t waits = 0;
  for (const auto& gpu : world.gpus) waits += gpu->context_lock.waits();
  return waits;
}

uint64_t fake_cuda_lock_free_at(void) {
  World& world = World::Get();
  const ContextLock::Lock lock(world.mutex);
  world.CatchUp();
  const auto at = world.gpus.front()->context_lock.FreeAt();
  if (!at || *at <= World::Now()) return 0;
  if (*at == ContextLock::kNever) return UINT64_MAX;
  const std::chrono::nanoseconds since(at->time_since_epoch());
  return static_cast<uint64_t>(since.count());
}

}  // extern "C"
