// SPDX-License-Identifier: Apache-2.0
// Device memory of a session: resizing, and swapping out and in.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "server/device/memory_budget.h"
#include "server/worker/control/session.h"
#include "server/worker/control/session_calls.h"

namespace gpushared::server {

// ---- size

void Session::Handle(const ipc::ResizeMemory& request) {
  Resizing resizing{.asked_bytes = request.bytes, .before_bytes = memory_->mapped_bytes};
  if (request.bytes >= memory_->mapped_bytes) return Resize(std::move(resizing));
  // Before memory is unmapped, it must become inaccessible to commands.
  Apply(SetMapped{id(), request.bytes}, [this, resizing] { Resize(resizing); });
}

std::uint64_t Session::GrowStep() const {
  const std::uint64_t most = environment_.limits.grow_step_bytes;
  if (!memory_swaps()) return most;
  // Memory larger than the device is mapped in parts, each of which evicts earlier ones.
  constexpr std::uint64_t kParts = 8;
  const std::uint64_t part = environment_.device.info().memory_bytes / kParts / kMapPageBytes;
  return std::min(most, std::max<std::uint64_t>(part, 1) * kMapPageBytes);
}

void Session::Resize(Resizing resizing) {
  const std::uint64_t wanted = resizing.wanted_bytes(), mapped = memory_->mapped_bytes;
  const std::uint64_t next =
      wanted < mapped ? LessMapped(mapped, wanted) : MoreMapped(mapped, wanted, GrowStep());
  resizing.is_last_step = next == wanted;
  const std::uint64_t moved = std::max(next, mapped) - std::min(next, mapped);
  MakeSlowCallFor(
      moved,
      [space = memory_->space.get(), cover = memory_->cover.get(), next, quota = quota_bytes()]()
          -> Result<ResizeStep> { return MakeResizeStep(*space, cover, next, quota); },
      [resizing = std::move(resizing)](Session& self, Result<ResizeStep> step) mutable {
        if (!step.ok()) step = ResizeStep{.mapped = step.status(), .use = std::nullopt};
        self.OnResizeStep(std::move(resizing), *step);
      });
}

Session::ResizeStep Session::MakeResizeStep(device::Space& space, SwapReservation* cover,
                                            std::uint64_t bytes, std::uint64_t quota_bytes) {
  if (cover == nullptr) return {.mapped = space.Resize(bytes), .use = std::nullopt};
  const device::SpaceUse before = space.use();
  device::SpaceUse wanted = before;
  wanted.mapped_bytes = device::RoundUp(bytes, kMapPageBytes);
  const bool fits =
      bytes <= quota_bytes && wanted.mapped_bytes <= quota_bytes - before.pinned_bytes;
  if (fits && wanted.mapped_bytes > before.mapped_bytes) {
    wanted.resident_bytes += wanted.mapped_bytes - before.mapped_bytes;
    if (Status full = cover->Cover(wanted); !full.ok()) return {.mapped = full, .use = before};
  }
  ResizeStep step{.mapped = space.Resize(bytes), .use = std::nullopt};
  const device::SpaceUse after = space.use();
  step.use = after;
  (void)cover->Cover(after);  // Reserving less than before always succeeds.
  if (fits && step.mapped.status().code() == StatusCode::kOutOfMemory) {
    step.missing_bytes = wanted.mapped_bytes - after.mapped_bytes;
  }
  return step;
}

void Session::OnResizeStep(Resizing resizing, const ResizeStep& step) {
  const std::uint64_t before = memory_->mapped_bytes;
  if (step.mapped.ok()) {
    memory_->mapped_bytes = *step.mapped;
    resizing.memory_requests_open = 0;  // Only consecutive fruitless requests are limited.
  }
  if (step.use && attached_ != nullptr) {
    environment_.device_thread.Post(MemoryChanged{id(), *step.use});
  }
  bool goes_on = memory_->mapped_bytes != before && !resizing.is_last_step;
  if (!step.mapped.ok() && resizing.failure.ok()) {
    if (MayAwaitMemory(step) && resizing.memory_requests_open < kMemoryRequestsMax && !has_ended_) {
      ++resizing.memory_requests_open;
      return AwaitMemory(step.missing_bytes, [resizing, why = step.mapped.status()](
                                                 Session& self, bool is_made) mutable {
        if (!is_made) resizing.failure = why;
        self.Resize(std::move(resizing));
      });
    }
    resizing.failure = step.mapped.status();
    // Memory gained by earlier steps is returned, because it was not reported to the client, which
    // therefore does not use it.
    goes_on = before > resizing.before_bytes;
  }
  if (goes_on && !has_ended_) return Resize(std::move(resizing));
  OnResized(resizing);
}

// An urgent client does not wait for another client's residency period to end: beyond its guarantee
// it only gets memory that is free now.
bool Session::MayAwaitMemory(const ResizeStep& step) const {
  if (step.missing_bytes == 0 || !caller().is_urgent) return step.missing_bytes > 0;
  return step.use->mapped_bytes + step.use->pinned_bytes + step.missing_bytes <=
         attach_.guaranteed_bytes;
}

void Session::OnResized(const Resizing& resizing) {
  if (has_ended_) return CheckOver();
  // The size is reported to the device thread even after a failure, because a rejected shrink
  // leaves all of the memory mapped.
  Apply(SetMapped{id(), memory_->mapped_bytes}, [this, resizing] {
    const Status& why = resizing.failure;
    if (why.ok()) return Reply(ipc::MemoryResized{.mapped_bytes = memory_->mapped_bytes});
    Reject({why.code(),
            fmt::format("memory of {} bytes rejected: {}", resizing.asked_bytes, why.message())});
  });
}

// ---- free memory

void Session::AwaitMemory(std::uint64_t bytes, std::function<void(Session&, bool)> then) {
  on_memory_ = std::move(then);
  environment_.device_thread.Post(RequestMemory{id(), bytes});
}

void Session::OnMemory(bool is_made) {
  if (const auto then = std::exchange(on_memory_, nullptr)) then(*this, is_made);
}

Result<std::shared_ptr<const device::Module>> Session::PlaceCovered(device::Space& space,
                                                                    SwapReservation* cover,
                                                                    Placing& placing) {
  auto placed = space.PlaceModule(placing.module);
  if (cover == nullptr) return placed;
  device::SpaceUse use = space.use();
  if (placed.ok()) {
    // The module may take the client beyond its guarantee, in which case the load is rejected if
    // the swap space is full.
    if (Status full = cover->Cover(use); !full.ok()) return full;
  } else if (placed.status().code() == StatusCode::kOutOfMemory) {
    // A GPU's modules take their memory in whole pages, and a guarantee may end within the last
    // one, so both the exact and the rounded size are tried.
    const std::uint64_t bytes = placing.module->bytes(), pinned = use.pinned_bytes;
    for (const std::uint64_t room : {bytes, device::RoundUp(bytes, kMapPageBytes)}) {
      use.pinned_bytes = pinned + room;
      if (cover->IsWithinGuarantee(use)) placing.missing_bytes = room;
    }
  }
  return placed;
}

// ---- swaps

Status Session::CheckParking() const {
  const char* why = nullptr;
  if (attached_ == nullptr || has_ended_) why = "it is starting or ending";
  if (!can_park_) {
    why =
        "its memory cannot be swapped out: this requires overcommit, and idle_after or a "
        "memory_limit above its guarantee";
  }
  if (attach_.hello.gated) why = "in gate mode its memory belongs to the driver";
  if (why == nullptr) return {};
  return {StatusCode::kUnsupported, fmt::format("client cannot be parked: {} [{}]", why, who_)};
}

// Reserves space in the swap store first, so that a full store rejects the request. The call is
// urgent, because it makes no call of the driver and therefore cannot delay a request.
void Session::Park(const ParkClient& request, std::function<void(const Status&)> rejected) {
  SlowCalls::Caller whose = caller();
  whose.is_urgent = true;
  MakeSlowCallAs(
      whose,
      [space = memory_->space.get(), cover = memory_->cover.get()] {
        return cover->Cover(space->use(), /*is_parked=*/true);
      },
      [request, rejected = std::move(rejected)](Session& self, const Status& covered) {
        if (!covered.ok()) rejected(covered);
        if (self.has_ended_) return self.CheckOver();
        if (covered.ok()) self.environment_.device_thread.Post(request);
      });
}

void Session::OnSwap(const SwapMemory& move) {
  if (has_ended_) return;
  SlowCalls::Caller whose = caller();
  whose.is_urgent = move.is_urgent;
  whose.is_swap = true;
  whose.disturbs = environment_.device.info().swaps_disturb;
  ++slow_calls_;
  is_swap_preempted_ = std::make_shared<std::atomic<bool>>(false);
  // One page per call, so that other clients' calls are made in between.
  environment_.slow_calls.Post(whose, [self = shared_from_this(), done = std::size_t{0}, move,
                                       is_cut = is_swap_preempted_]() mutable {
    SessionMemory& memory = *self->memory_;
    device::Space& space = *memory.space;
    // Swaps at least one page, so that a client that preempts all swaps of others delays them but
    // does not prevent them. The load is relaxed, because no other data depends on the flag.
    const bool ends = done > 0 && is_cut->load(std::memory_order_relaxed);
    Status status;
    // The client may since have freed the memory beyond its guarantee, and with it its reservation
    // in the swap store.
    if (move.parks && done == 0) status = memory.cover->Cover(space.use(), /*is_parked=*/true);
    if (status.ok() && !ends && done < move.steps.size() &&
        (!move.goes_out || memory.cover->Covers(space.use()))) {
      const std::uint64_t offset = move.steps[done] * kMapPageBytes;
      status = move.goes_out ? space.SwapPageOut(offset) : space.SwapPageIn(offset);
    }
    ++done;
    if (status.ok() && !ends && done < move.steps.size()) return true;
    const device::SpaceUse use = space.use();
    if (status.ok() || status.code() == StatusCode::kOutOfMemory) {
      (void)memory.cover->Cover(use, move.parks);  // Reserving less than before always succeeds.
    }
    boost::asio::io_context& context = self->environment_.context;
    boost::asio::post(context, [self = std::move(self), move, status = std::move(status), use] {
      --self->slow_calls_;
      self->is_swap_preempted_.reset();
      self->OnSwapEnded(move, status, use);
    });
    return false;
  });
}

void Session::PreemptSwap(bool is_urgent) {
  if (is_swap_preempted_ == nullptr) return;  // The swap has already ended.
  is_swap_preempted_->store(true, std::memory_order_relaxed);
  if (is_urgent) environment_.slow_calls.HurrySwap(id());
}

void Session::OnSwapEnded(const SwapMemory& move, const Status& status,
                          const device::SpaceUse& use) {
  if (has_ended_) return CheckOver();
  // kOutOfMemory is no failure: other clients have taken the free memory since, and the device
  // thread decides again.
  const bool has_failed = !status.ok() && status.code() != StatusCode::kOutOfMemory;
  if (!has_failed || move.goes_out) {
    environment_.device_thread.Post(MemorySwapped{id(), use, has_failed});
  }
  const bool stays = move.parks && !status.ok();
  if (!has_failed && !stays) return;
  // A failed swap-in ends the session. A failed swap-out leaves the memory resident and ends the
  // session only if that memory is needed for another client's guarantee.
  if (has_failed && (!move.goes_out || move.is_guaranteed)) {
    return End({status.code(), fmt::format("session ended: {} [{}]", status.message(), who_)});
  }
  environment_.log.GetWrite(spdlog::level::warn, id(),
                            fmt::format("memory stays resident, and other clients wait: {} [{}]",
                                        status.message(), who_));
}

void Session::ReportMemory() {
  if (!memory_swaps() || has_ended_) return;
  MakeSlowCall(
      [space = memory_->space.get(), cover = memory_->cover.get()]() -> Result<device::SpaceUse> {
        const device::SpaceUse use = space->use();
        (void)cover->Cover(use);
        return use;
      },
      [](Session& self, const Result<device::SpaceUse>& use) {
        if (self.has_ended_) return self.CheckOver();
        self.environment_.device_thread.Post(MemoryChanged{self.id(), *use});
      });
}

}  // namespace gpushared::server
