// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/context_lock.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "tests/support/fake_cuda/timeline.h"
#include "tests/support/fake_cuda/world.h"

namespace gpushared::testing::fake_cuda {
namespace {

// By how their names begin. None of this was measured by us. Sources:
//   [load]     meta-pytorch/torchcomms, pull request 2334, with reproducers: a load waits under the
//              context's lock until the GPU's queue has drained, and calls of other threads on the
//              context wait for the lock; with a kernel that ends by such a call, for ever.
//   [lazy]     CUDA Programming Guide, "Lazy Loading": loading a kernel may need the context to be
//              synchronised. uccl-project/uccl, pull request 220: it is. That is LoadFunction's.
//   [sync]     cuda.h: the call "may exhibit synchronous behavior" (note_sync).
//   [implicit] CUDA Programming Guide, "Implicit Synchronization": commands of two streams do not
//              run at once when this is called between them.
//   [free]     CUDA runtime documentation of cudaFree: it "may perform implicit synchronization".
//   [guess]    Nobody has published it of this driver. The counterpart is taken to do the same.
constexpr std::string_view kWaiting[] = {
    "cuModuleLoad",        // [load]
    "cuLibraryLoad",       // [load]
    "cuModuleUnload",      // [guess] As a load.
    "cuMemUnmap",          // [sync]
    "cuMemSetAccess",      // [sync]
    "cuMemAlloc",          // [implicit]
    "cuMemFree",           // [free], and cuMemFreeHost, [guess]: as cuMemHostAlloc.
    "cuMemHostAlloc",      // [implicit]
    "cuMemHostRegister",   // [guess] As cuMemHostAlloc.
    "cuMemHostUnregister"  // [guess] ROCm's does (JuliaGPU/AMDGPU.jl, pull request 538).
};

}  // namespace

bool WaitsForGpu(std::string_view call) {
  return std::ranges::any_of(kWaiting,
                             [&](std::string_view each) { return call.starts_with(each); });
}

bool ContextLock::IsDrained() const {
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
  TimePoint drained = holder_->began;
  for (const auto& stream : gpu_.streams) drained = std::max(drained, stream->free_at);
  return drained + holder_->cost;
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
  // The GPU's engines, or another thread, will have changed something.
  if (!World::PassesTime() || at == kNever) return world_.changed.wait(lock);
  World::Spend(std::max(at, World::Now()) - World::Now());
  world_.CatchUp();
}

void ContextLock::Enter(Lock& lock) {
  while (!World::is_elsewhere && !world_.sticky && IsHeld()) WaitForChange(lock);
}

void ContextLock::TakeAndDrain(Lock& lock) {
  holder_ = {.is_elsewhere = World::is_elsewhere,
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
