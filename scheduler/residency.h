// SPDX-License-Identifier: Apache-2.0
// Memory oversubscription: which clients' memory is resident on the device, and which memory is
// evicted when the device cannot hold all of it.

#ifndef GPUSHARED_SCHEDULER_RESIDENCY_H_
#define GPUSHARED_SCHEDULER_RESIDENCY_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "scheduler/client_table.h"
#include "scheduler/recent_samples.h"
#include "scheduler/types.h"

namespace gpushared::scheduler {

struct ResidencyOptions {
  std::uint64_t device_bytes = 0;  // Total memory of the device.
  // Whether a client must be suspended, and all its commands must have ended, before its pages are
  // swapped in.
  bool suspends_for_swap_in = false;
  // Residency period of a client, as a multiple of its swap-in cost: 9 spends a tenth of the time
  // on swaps. The cost is the number of bytes times the usual time per byte: the median of the last
  // 15 swap-ins of at least swap_bytes_max. The real time of the swap-in is not used, because a
  // client whose swaps happened to be slow must not get a longer period than clients of the same
  // class; only for a smaller swap-in, the cost is the shorter of the two times. A period is based
  // on the mean of the last two costs, so that alternating cheap and expensive swap-ins get equal
  // periods while the total stays the same.
  int residency_factor = 9;
  Duration residency_min = std::chrono::milliseconds(20);
  Duration residency_max = std::chrono::seconds(60);
  // An idle client can be evicted before its residency period ends, once it has been idle for this
  // long and for as long as swapping it in again would take.
  Duration idle_min = std::chrono::milliseconds(20);
  // Advance notice that a running client gets before it is evicted for a client of the same or a
  // higher class, so that it can free memory that it does not need. The notice overlaps the
  // residency period, so it delays the other client only if that period has already ended.
  Duration notice = std::chrono::milliseconds(2);
  // Delay until the next swap-out after a swap has failed. During the delay, a client that was
  // terminated because of the failure returns its memory.
  Duration retry_after = std::chrono::seconds(1);
  // Delay before a swap-in for which the device had no memory is repeated. Other programs on this
  // machine may hold that memory.
  Duration retry_swap_in_after = std::chrono::milliseconds(1);
  // Minimum allowance in the promise of a wake for delays that no swap explains, because threads of
  // a busy host start late.
  Duration wake_delay_min = std::chrono::milliseconds(20);
  // Maximum size of one swap.
  std::uint64_t swap_bytes_max = std::uint64_t{16} << 20;
  // Unit in which a swap can be preempted: a client with a guarantee waits for at most one such
  // unit.
  std::uint64_t step_bytes = kMapPageBytes;
  // Minimum interval at which the caller checks which clients are busy; not used here. Commands
  // start and end within microseconds, whereas swaps take milliseconds.
  Duration busy_check_interval = std::chrono::microseconds(100);
};

// A client's memory guarantee, and the memory that it must leave to others.
struct MemoryGrant {
  std::uint64_t guaranteed_bytes = 0;
  std::uint64_t left_free_bytes = 0;  // Free device memory that the client must leave to others.
  SchedulingClass scheduling_class = SchedulingClass::kNormal;
  // The client is parked once it has been idle for this long; never if zero.
  Duration idle_after{};
};

// A client's memory usage, as last reported.
struct MemoryUsage {
  std::uint64_t movable_bytes = 0;   // Mapped memory, resident or swapped out.
  std::uint64_t resident_bytes = 0;  // The part of movable_bytes that is on the device.
  std::uint64_t pinned_bytes = 0;    // Modules, which always stay on the device.
  // Non-resident memory that the client's next commands are known not to touch.
  std::uint64_t unneeded_bytes = 0;
  // Resident memory that the client's next commands are known not to touch.
  std::uint64_t spare_bytes = 0;

  bool is_whole() const { return resident_bytes == movable_bytes; }
  std::uint64_t absent_bytes() const { return movable_bytes - resident_bytes; }
  // Bytes that must be swapped in before the next commands can run.
  std::uint64_t missing_bytes() const { return absent_bytes() - unneeded_bytes; }
  friend bool operator==(const MemoryUsage&, const MemoryUsage&) = default;
};

struct MemoryAction {
  enum class Kind : std::uint8_t {
    // Suspend the client: start none of its commands and preempt the running ones. Answered by
    // OnDrained.
    kSuspend,
    kResume,         // Resume the client's commands.
    kSwapOut,        // Swap out at most `bytes`. Answered by OnSwapped.
    kSwapIn,         // Swap in at most `bytes`. Answered by OnSwapped.
    kPreemptSwap,    // End the swap in progress after its current page.
    kMemoryRequest,  // Grant the requested memory, which is now free. Answered by OnMemory.
    kNoMemory,       // Deny the request, because no eviction could free enough memory.
  };
  Kind kind = Kind::kSuspend;
  ClientId client;
  std::uint64_t bytes = 0;
  // The client for which a swap is made, and whether that client's guarantee covers its memory and
  // its pending request.
  ClientId beneficiary;
  bool is_guaranteed = false;
};

// Swap counters of one client since it was added.
struct MemorySwaps {
  std::uint64_t out_bytes = 0;
  std::uint64_t in_bytes = 0;
  std::uint64_t times_out = 0;  // Evictions of memory that the client's next commands need.
};

// Whether a client is parked, by an operator or by the option idle_after, and statistics of its
// wakes.
struct ParkingState {
  bool is_parked = false;
  bool is_held = false;  // Whether only an operator, not a command, can wake the client.
  // Upper bound of the duration of the next wake (after a wake: of that wake), estimated when the
  // client was parked. Empty before the first swap, and if the client is beyond its guarantee and
  // therefore has to wait for its turn.
  std::optional<Duration> promised;
  Duration last_wake{};
  std::uint64_t wakes = 0, wakes_promised = 0, wakes_in_time = 0;
};

// Swap bandwidth, waits of memory requests that a guarantee covers, and wakes of parked clients.
struct MemoryRequestStats {
  // Median over the last 15 swaps of at least 1 MiB; 0 before the first one.
  std::uint64_t out_bytes_per_s = 0;
  std::uint64_t in_bytes_per_s = 0;
  // Answered requests within a guarantee since the device started, and their longest wait.
  std::uint64_t requests = 0;
  Duration longest_wait{};
  std::uint64_t parked = 0;  // Clients that are parked now.
  // Wakes since the device started, those with a promised duration, and those that took no longer
  // than promised.
  std::uint64_t wakes = 0, wakes_promised = 0, wakes_in_time = 0;
  Duration longest_wake{};
};

// Decides which memory is resident on a device whose clients may hold more memory than the device
// has.
//
// Memory of a client that is *within its guarantee* is never evicted, and memory requests that the
// guarantee covers are served immediately by evicting other clients. The memory of a client above
// its guarantee may be swapped out page by page, and the client may allocate more than the device
// has. It can run while the memory that its next commands touch is resident, or, if this access set
// is unknown, while all of its memory is.
//
// Memory outside the access set is evicted first, including the client's own: a client that works
// through its memory in parts therefore disturbs no other client. Clients above their guarantees
// take turns. The one that has waited longest is swapped in as soon as the residency periods of
// others have ended. During its own period a client is served before others of its class when its
// next commands touch further memory. A period is proportional to the swap-in cost. Swaps that only
// replaced the client's own memory do not count, because they delayed no other client.
//
// Eviction order: parked clients first, then the lowest class. Within a class idle clients come
// first, the one idle for
// longest before the others. Among busy clients the victim is the one swapped in last, because its
// next turn is the furthest in the future.
//
// A *parked* client is suspended, and all of its memory, within its guarantee or not, is swapped
// out and free for others until the client is woken. It then gets its memory back under the rules
// above.
//
// At most one swap is in progress. It is preempted when a request within a guarantee arrives,
// unless it serves such a request itself. After each event, and when wake_at() is reached, the
// caller takes actions from Next until none is left, and carries out each before it makes any other
// call.
//
// Allocates only when clients are added. Thread-compatible.
class Residency {
 public:
  explicit Residency(const ResidencyOptions& options) : options_(options) {}

  void Add(ClientId client, const MemoryGrant& grant);
  void Change(ClientId client, const MemoryGrant& grant, TimePoint now);
  // Drops the client with its pending request, which is not answered.
  void Remove(ClientId client);

  // Reports a client's memory after it grew, shrank, or loaded or unloaded a module.
  void OnMemory(ClientId client, const MemoryUsage& memory, TimePoint now);
  // Reports MemoryUsage::unneeded_bytes and spare_bytes for the client's next commands.
  void SetUnneeded(ClientId client, std::uint64_t unneeded_bytes, std::uint64_t spare_bytes,
                   TimePoint now);
  // Reports whether the client has commands.
  void SetBusy(ClientId client, bool is_busy, TimePoint now);
  // Parks the client until Wake. Unless `is_held`, the client must not be busy, and becoming busy
  // or growing wakes it as well. A client whose memory cannot be swapped out is woken.
  void Park(ClientId client, bool is_held, TimePoint now);
  void Wake(ClientId client, TimePoint now);
  ParkingState GetParking(ClientId client) const;
  // Requests `bytes` of memory for the client. Called if the device has fewer free bytes. A client
  // has at most one pending request. Answered by kMemoryRequest or kNoMemory.
  void RequestMemory(ClientId client, std::uint64_t bytes, TimePoint now);

  // Reports that no command of a suspended client is left on the device. The caller reports this
  // immediately, because other clients wait for it.
  void OnDrained(ClientId client);
  // Reports the end of a swap, which may have moved less than was requested.
  void OnSwapped(ClientId client, const MemoryUsage& memory, TimePoint now);
  // Reports the end of a swap-out that failed: nothing is swapped out for `retry_after`. If it
  // served a request that no guarantee covers, that request is answered by kNoMemory.
  void OnSwapFailed(ClientId client, const MemoryUsage& memory, TimePoint now);

  // Returns the next action. `free_bytes` is the device's free memory at this moment.
  std::optional<MemoryAction> Next(std::uint64_t free_bytes, TimePoint now);
  // Returns the time at which to call Next again even without an event. Valid after Next returned
  // nothing.
  std::optional<TimePoint> wake_at() const { return wake_at_; }

  // Returns the last value of SetBusy.
  bool IsBusy(ClientId client) const;
  // Returns whether the client holds no more than its guarantee.
  bool IsWithinGuarantee(ClientId client) const;
  bool IsHeld(ClientId client) const;
  // Returns whether memory must be swapped in before the client can run.
  bool LacksMemory(ClientId client) const;
  // Returns the client's memory usage, as last reported.
  MemoryUsage UsageFor(ClientId client) const;
  std::uint64_t ResidentBytes(ClientId client) const;
  // Returns the resident bytes that the client should free because others wait for them. Valid
  // after Next returned nothing.
  std::uint64_t WantedBytes(ClientId client) const;
  MemorySwaps GetSwaps(ClientId client) const;
  // Returns the total time for which the client waited for memory, either for a memory request or
  // for a swap-in.
  Duration WaitedFor(ClientId client, TimePoint now) const;
  // Returns whether the guarantees of others leave too little for what the client needs, so that it
  // must wait until one of them frees memory.
  bool IsStarved(ClientId client) const;
  MemoryRequestStats request_stats() const;
  // Returns how much memory the client could have resident if all evictable memory were evicted.
  std::uint64_t MaxResidentBytes(ClientId client) const;

 private:
  // Swaps made for a client since it was last able to run, without swaps that only replaced its own
  // memory.
  struct SwapWork {
    std::uint64_t bytes = 0;
    Duration took{};
  };

  struct Client {
    MemoryGrant grant;
    MemoryUsage memory;
    std::uint64_t requested_bytes = 0;  // Pending memory request.
    TimePoint requested_at{};
    std::uint64_t granted_bytes = 0;  // Reserved for the client until it reports its memory again.
    bool is_busy = false;
    bool is_suspended = false;
    bool is_drained = false;
    bool is_rejected = false;              // Whether the pending request is to be denied.
    std::uint64_t wanted_bytes = 0;        // Bytes that others wait for.
    std::optional<TimePoint> notified_at;  // Time of the advance notice of an eviction.
    TimePoint idle_since{};
    // Whether the client has been swapped in and nothing that it needs has been evicted since.
    bool is_resident = false;
    TimePoint resident_since{};
    TimePoint resident_until{};
    SwapWork swap_work;
    std::uint64_t own_evicted_bytes = 0;  // Own memory evicted to swap in other own memory.
    Duration swap_in_cost{};              // Swap-in cost of the current residency period.
    Duration previous_swap_in_cost{};     // Swap-in cost of the previous period.
    std::optional<TimePoint> waits_since{};
    Duration waited{};  // Total of all earlier waits, without the current one.
    MemorySwaps swaps;
    ParkingState parking;
    std::optional<TimePoint> wakes_since;      // Set from the wake until the client can run.
    Duration wake_estimate{};                  // See PromiseWake.
    std::optional<TimePoint> suspended_since;  // Set from the suspension until the first swap.

    // Returns whether no command of the client runs or will start.
    bool is_quiet() const { return is_suspended && is_drained; }
    bool is_within_guarantee() const {
      return memory.movable_bytes + memory.pinned_bytes <= grant.guaranteed_bytes;
    }
    // Returns the bytes to swap in before the client can run: within its guarantee, all
    // non-resident bytes.
    std::uint64_t missing_bytes() const {
      return is_within_guarantee() ? memory.absent_bytes() : memory.missing_bytes();
    }
    bool can_run() const { return missing_bytes() == 0; }
    // Returns the bytes to swap in for the client now.
    std::uint64_t swap_in_bytes() const {
      return requested_bytes == 0 || is_busy || is_within_guarantee() ? missing_bytes() : 0;
    }
    // Returns the bytes that the client needs now. Growth is served after the swap-in of what its
    // commands need, so the two need not fit at the same time.
    std::uint64_t needed_bytes() const {
      const std::uint64_t coming = swap_in_bytes();
      return coming > 0 ? coming : requested_bytes;
    }
    // Returns the client's own memory that can be evicted now for its needs.
    std::uint64_t own_evictable_bytes() const {
      if (is_within_guarantee()) return 0;
      return is_busy ? memory.spare_bytes : memory.resident_bytes;
    }
    // Returns the client's own memory that can be evicted once its commands have run, so that it
    // can grow.
    std::uint64_t own_evictable_later_bytes() const {
      const bool grows = !is_within_guarantee() && swap_in_bytes() == 0;
      return grows ? memory.resident_bytes : own_evictable_bytes();
    }
    // Returns whether the client waits for memory.
    bool wants_memory() const {
      if (parking.is_parked) return false;
      return requested_bytes > 0 || (!can_run() && (is_busy || is_within_guarantee()));
    }
    bool is_in_residency_period(TimePoint now) const { return is_resident && now < resident_until; }
    // Returns whether, in its residency period, the client needs more than was swapped in.
    bool wants_more(TimePoint now) const { return is_in_residency_period(now) && !can_run(); }
    // Returns whether the guarantee covers the client's memory, its pending request included.
    bool is_guaranteed() const {
      return memory.movable_bytes + memory.pinned_bytes + requested_bytes <= grant.guaranteed_bytes;
    }
    bool is_evictable() const { return parking.is_parked || !is_within_guarantee(); }
    // Returns the bytes that cannot be evicted. A woken client counts only its resident bytes,
    // because otherwise two woken clients of which only one fits would wait for each other.
    std::uint64_t unevictable_bytes() const {
      if (is_evictable()) return memory.pinned_bytes;
      return memory.pinned_bytes + (wakes_since ? memory.resident_bytes : memory.movable_bytes);
    }
    std::uint64_t evictable_bytes() const { return is_evictable() ? memory.resident_bytes : 0; }
  };
  using Item = ClientTable<Client>::Item;

  struct Swap {
    ClientId client;
    ClientId beneficiary;
    TimePoint since{};
    bool is_swap_in = false;
    bool is_guaranteed = false;
    bool is_preempted = false;
  };

  // Returns the swap-in cost on which the residency period is based. A continuation is a further
  // swap-in within the same period.
  Duration SwapInCostFor(const SwapWork& work, bool is_continuation);
  static void Charge(Client& beneficiary, const Swap& swap, std::uint64_t moved, Duration took);
  void UpdateWait(Client& client, TimePoint now);
  void CountAnswer(const Client& client, TimePoint now);
  std::optional<MemoryAction> PreemptSwap(std::uint64_t free_bytes, TimePoint now);
  void Park(Client& client, bool is_held, TimePoint now);
  void Wake(Client& client, TimePoint now);
  // Wakes the client unless it is held.
  void OnActivity(Client& client, TimePoint now);
  void CountWake(Client& client, TimePoint now);
  void PromiseWake(Client& client) const;
  // Parks the clients that have been idle for long enough.
  void ParkIdleClients(TimePoint now);
  std::optional<MemoryAction> SwapOutParked(TimePoint now);
  void Update(Client& client, const MemoryUsage& memory, TimePoint now);
  void BeginResidency(Client& client, bool is_continuation, TimePoint now);
  bool IsFeasible(ClientId id, const Client& client) const;
  // Returns the client to serve next, or null.
  const Item* ChooseCandidate(std::uint64_t free_bytes, TimePoint now) const;
  static bool IsServedBefore(const Item& left, const Item& right, TimePoint now);
  std::uint64_t AvailableTo(const Client& client, std::uint64_t free_bytes) const;
  // Returns whether a swap-in for the client waits only for the client's own commands to end.
  bool IsDraining(const Client& client, std::uint64_t free_bytes) const;
  // Returns whether enough memory for the candidate will become evictable without further events.
  bool CanEventuallyServe(const Item& candidate, std::uint64_t free_bytes, TimePoint now) const;
  bool IsIdle(const Client& client, TimePoint now) const;
  TimePoint IdleAt(const Client& client) const;
  // Returns the time from which `victim` can be evicted for `candidate`; TimePoint::max() if never.
  TimePoint EvictableAt(const Client& victim, const Client& candidate, TimePoint now) const;
  void NotifyWanted(Client& victim, const Client& candidate, std::uint64_t bytes, TimePoint now);
  void ClearWanted();
  // Returns the client to evict now. If the evictable clients do not hold enough memory yet, sets
  // wake_at_ and returns null.
  Item* ChooseVictim(const Item& candidate, std::uint64_t bytes, TimePoint now);
  bool IsEvictedBefore(const Item& left, const Item& right, ClientId candidate,
                       TimePoint now) const;
  std::uint64_t UnevictableBytesExcept(ClientId excluded) const;
  // Marks the client as suspended, and returns the action; empty if it was suspended already.
  std::optional<MemoryAction> Suspend(ClientId client, ClientId beneficiary, TimePoint now);
  MemoryAction BeginSwap(MemoryAction::Kind kind, ClientId client, std::uint64_t bytes,
                         ClientId beneficiary, bool is_guaranteed, TimePoint now);
  // Returns how many bytes to evict before the victim is chosen again.
  static std::uint64_t EvictionBytes(const Item& victim, ClientId candidate);
  std::optional<MemoryAction> Serve(const Item& candidate, std::uint64_t free_bytes, TimePoint now,
                                    ClientId* victim);

  const ResidencyOptions options_;
  ClientTable<Client> clients_;
  std::optional<Swap> swap_;
  // Time per MiB of recent swap-ins that count for residency periods.
  RecentSamples<15> swap_in_times_;
  // Time per MiB of recent single swaps: out, in.
  std::array<RecentSamples<15>, 2> per_mebibyte_;
  // Time until the commands of a suspended client had ended.
  RecentSamples<15> drain_times_;
  RecentSamples<15> wake_delays_;  // Excess of a wake over its estimate.
  TimePoint swaps_fail_until_{};
  TimePoint swap_in_backoff_until_{};
  std::optional<TimePoint> wake_at_;
  // Holds only the counters; request_stats() computes the rates.
  MemoryRequestStats request_stats_;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_RESIDENCY_H_
