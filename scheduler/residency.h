// SPDX-License-Identifier: Apache-2.0
// Whose memory is on the device when there is not enough for all, and who makes room for whom.

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
  std::uint64_t device_bytes = 0;  // All memory of the device.
  // Steps come in while nothing of their client runs.
  bool suspends_for_swap_in = false;
  // A client that came in stays this many times as long as the moves for it take. So 9 spends a
  // tenth of the time on moves. They count with what their bytes usually take: the median of the
  // last 15 clients that came in with swap_bytes_max or more. So what a machine does to the moves
  // for one of them gives it no longer stay than its equals have. A stay counts the mean of its own
  // way and the one before. So clients that come in by long and short ways in turn stay equally
  // long each time. What a way buys in all is the same.
  int residency_factor = 9;
  Duration residency_min = std::chrono::milliseconds(20);
  Duration residency_max = std::chrono::seconds(60);
  // An idle client makes room before its stay is over: after this time, and after as long as its
  // own way back would take.
  Duration idle_min = std::chrono::milliseconds(20);
  // A client that runs is told this long before it makes room for an equal. So it can free memory
  // that it does not need, and nobody waits longer for it.
  Duration notice = std::chrono::milliseconds(2);
  // When moves are tried again after one failed. Meanwhile a client that had to end for it gives
  // its memory back.
  Duration retry_after = std::chrono::seconds(1);
  // When a move in is tried again that found no room: others of the machine may have it.
  Duration rest = std::chrono::milliseconds(1);
  // One move at most.
  std::uint64_t swap_bytes_max = std::uint64_t{16} << 20;
  // A move that is cut ends after so much: whoever has a guarantee waits for that.
  std::uint64_t step_bytes = kMapPageBytes;
  // The caller's: it looks for who is busy so often at most. Commands come and go in microseconds,
  // and memory in milliseconds.
  Duration look_every = std::chrono::microseconds(100);
};

// Memory that a client was granted.
struct MemoryGrant {
  std::uint64_t guaranteed_bytes = 0;
  std::uint64_t left_free_bytes = 0;  // Free device memory that it leaves to others.
  SchedulingClass scheduling_class = SchedulingClass::kNormal;
};

// Memory that a client has.
struct MemorySuspended {
  std::uint64_t movable_bytes = 0;   // Its mapped memory, on the device or moved out.
  std::uint64_t resident_bytes = 0;  // The part of it that is on the device.
  std::uint64_t pinned_bytes = 0;    // Its modules', always on the device.
  // The part of what is not resident that its next commands do not touch, as far as that is known.
  std::uint64_t unneeded_bytes = 0;
  // The same of what is resident.
  std::uint64_t spare_bytes = 0;

  bool is_whole() const { return resident_bytes == movable_bytes; }
  std::uint64_t absent_bytes() const { return movable_bytes - resident_bytes; }
  // To run its next commands.
  std::uint64_t missing_bytes() const { return absent_bytes() - unneeded_bytes; }
  friend bool operator==(const MemorySuspended&, const MemorySuspended&) = default;
};

struct MemoryAction {
  enum class Kind : std::uint8_t {
    kHold,     // None of its commands starts; those that run are stopped. Answered by OnDrained.
    kRelease,  // Its commands may start again.
    kSwapOut,  // `bytes` at most go off the device. Answered by OnSwapped.
    kSwapIn,   // `bytes` at most come back. Answered by OnSwapped.
    kCut,      // Its move, which has begun, is to end after the present step.
    kMemoryRequest,  // The room that it asked for is free. Answered by OnMemory.
    kNoMemory,       // It cannot be had, whoever makes room.
  };
  Kind kind = Kind::kHold;
  ClientId client;
  std::uint64_t bytes = 0;
  // On whose behalf a move is made, and whether that one has a right to it.
  ClientId beneficiary;
  bool is_guaranteed = false;
};

// Memory of a client that moved since it came.
struct MemorySwaps {
  std::uint64_t out_bytes = 0;
  std::uint64_t in_bytes = 0;
  std::uint64_t times_out = 0;  // It could run, and a part went that it needs.
};

// How fast memory moves, and how long clients waited for memory within their guarantees.
struct MemoryRequestStats {
  // The median of the last 15 moves of 1 MiB or more; 0 before the first one.
  std::uint64_t out_bytes_per_s = 0;
  std::uint64_t in_bytes_per_s = 0;
  // Since the device began: requests within a guarantee that were answered, and the longest wait.
  std::uint64_t requests = 0;
  Duration longest_wait{};
};

// Decides whose memory is on a device whose clients may hold more than there is.
//
// A client that holds no more than its guarantee is *settled*: its memory never moves, and room
// within the guarantee is made for it at once. Whoever holds more may be moved out, step by step as
// others need it, and may grow meanwhile. So it may hold more than the device has, and its own
// memory makes room for what it needs next. It runs while all that its next commands touch is on
// the device: all of its memory, where nobody knows what they touch. What they do not touch goes
// first, also for what they do: so a client that works on its memory in parts keeps to itself. Such
// clients take turns: the one that waits longest comes in as soon as those that are there have had
// their stay. During its stay a client goes before its equals with what further commands touch. The
// stay grows with the way, except for what takes the place of its own memory.
//
// Room is taken from the lowest class first. Within a class those go first that have nothing to do,
// the longest idle one before others. Of the busy ones the one goes first whose next turn is
// furthest: it came in last.
//
// One move is made at a time. It is cut where somebody asks for room that is his right, unless it
// is made for such a one. After each event, and when wake_at() is reached, the caller takes actions
// from Next until there is none, and carries each out before anything else.
//
// Allocates when clients are added. Thread-compatible.
class Residency {
 public:
  explicit Residency(const ResidencyOptions& options) : options_(options) {}

  void Add(ClientId client, const MemoryGrant& grant);
  void Change(ClientId client, const MemoryGrant& grant, TimePoint now);
  // Nothing about it is answered any more.
  void Remove(ClientId client);

  // The client grew, shrank, or loaded or unloaded a module.
  void OnMemory(ClientId client, const MemorySuspended& held, TimePoint now);
  // Its next commands are others: MemorySuspended::unneeded_bytes and spare_bytes are now these.
  void SetUnneeded(ClientId client, std::uint64_t unneeded_bytes, std::uint64_t spare_bytes,
                   TimePoint now);
  // It has commands, or has none.
  void SetBusy(ClientId client, bool is_busy, TimePoint now);
  // It needs so much more than is free. One question at a time; answered by kMemoryRequest or
  // kNoMemory.
  void RequestMemory(ClientId client, std::uint64_t bytes, TimePoint now);

  // Nothing of a held client is on the device any more. Said at once: others wait for it.
  void OnDrained(ClientId client);
  // The move is over; less than it was for may have been moved.
  void OnSwapped(ClientId client, const MemorySuspended& held, TimePoint now);
  // The same of a move out that met an error: nothing goes out for a while. A question for room
  // that nobody has a right to, and on whose behalf it was, is answered by kNoMemory.
  void OnSwapFailed(ClientId client, const MemorySuspended& held, TimePoint now);

  // `free_bytes`: of the device, at this moment.
  std::optional<MemoryAction> Next(std::uint64_t free_bytes, TimePoint now);
  // When to call Next again if nothing happens. Current after Next returned nothing.
  std::optional<TimePoint> wake_at() const { return wake_at_; }

  // Within its guarantee.
  bool IsWithinGuarantee(ClientId client) const;
  bool IsHeld(ClientId client) const;
  MemorySuspended HeldBy(ClientId client) const;       // The last that was told.
  std::uint64_t ResidentBytes(ClientId client) const;  // MemorySuspended::resident_bytes.
  // Of that, what it should free, since others wait for it; current after Next returned nothing.
  std::uint64_t WantedBytes(ClientId client) const;
  MemorySwaps GetMoves(ClientId client) const;
  // Time in which it had commands, or asked for room, and its memory was not there.
  Duration WaitedFor(ClientId client, TimePoint now) const;
  // The guarantees of others leave too little for what it needs; it waits until one of them frees.
  bool IsStarved(ClientId client) const;
  MemoryRequestStats request_stats() const;
  // The most of its memory that can be on the device, whoever else makes room.
  std::uint64_t RoomFor(ClientId client) const;

 private:
  // Moves on behalf of a client. What keeps no others waiting, since its own memory made room, is
  // no part of it.
  struct Way {
    std::uint64_t bytes = 0;
    Duration took{};
  };

  struct Client {
    MemoryGrant grant;
    MemorySuspended held;
    std::uint64_t asked_bytes = 0;  // Room.
    TimePoint asked_at{};
    std::uint64_t granted_bytes = 0;  // Room that is kept for it until it says what it holds.
    bool is_busy = false;
    bool is_suspended = false;
    bool is_drained = false;
    bool is_rejected = false;          // The room is not to be had; not answered yet.
    std::uint64_t wanted_bytes = 0;    // Others wait for so much of its memory,
    std::optional<TimePoint> told_at;  // and it knows since then.
    TimePoint idle_since{};
    // It came in, and nothing that it needs has been moved out since.
    bool is_in = false;
    TimePoint came_in{};
    TimePoint resident_until{};
    Way way;                           // Since it last could run.
    std::uint64_t replaced_bytes = 0;  // Its own went so far for what comes in.
    Duration last_way{};               // For all that it has in this stay,
    Duration way_before{};             // and in the one before.
    std::optional<TimePoint> waits_since{};
    Duration waited{};  // Before that.
    MemorySwaps moves;

    // Nothing of it is on the device, and nothing comes.
    bool is_quiet() const { return is_suspended && is_drained; }
    bool is_within_guarantee() const {
      return held.movable_bytes + held.pinned_bytes <= grant.guaranteed_bytes;
    }
    // What it lacks to run: within its guarantee, anything that is not there.
    std::uint64_t missing_bytes() const {
      return is_within_guarantee() ? held.absent_bytes() : held.missing_bytes();
    }
    bool can_run() const { return missing_bytes() == 0; }
    // What is to come in.
    std::uint64_t coming_bytes() const {
      return asked_bytes == 0 || is_busy || is_within_guarantee() ? missing_bytes() : 0;
    }
    // It grows once its commands have what they need, so the two need not fit together.
    std::uint64_t needed_bytes() const {
      const std::uint64_t coming = coming_bytes();
      return coming > 0 ? coming : asked_bytes;
    }
    // Bytes of its own that it can give up for what it needs.
    std::uint64_t own_memory_bytes() const {
      if (is_within_guarantee()) return 0;
      return is_busy ? held.spare_bytes : held.resident_bytes;
    }
    // Sooner or later: once its commands have run, where it is to grow.
    std::uint64_t own_memory_ever_bytes() const {
      const bool grows = !is_within_guarantee() && coming_bytes() == 0;
      return grows ? held.resident_bytes : own_memory_bytes();
    }
    // Whether something should be done for it.
    bool wants_memory() const {
      return asked_bytes > 0 || (!can_run() && (is_busy || is_within_guarantee()));
    }
    bool is_in_residency_period(TimePoint now) const { return is_in && now < resident_until; }
    // Its next commands touch more than what it came in with.
    bool wants_more(TimePoint now) const { return is_in_residency_period(now) && !can_run(); }
    // Room for it is its right.
    bool has_right() const {
      return held.movable_bytes + held.pinned_bytes + asked_bytes <= grant.guaranteed_bytes;
    }
    // Bytes that nobody can take from it.
    std::uint64_t fixed_bytes() const {
      return held.pinned_bytes + (is_within_guarantee() ? held.movable_bytes : 0);
    }
    std::uint64_t movable_now() const { return is_within_guarantee() ? 0 : held.resident_bytes; }
  };
  using Item = ClientTable<Client>::Item;

  struct Move {
    ClientId client;
    ClientId beneficiary;
    TimePoint since{};
    bool goes_in = false;
    bool is_guaranteed = false;
    bool is_cut = false;
  };

  // A stay pays this for a way; `goes_on`: for a further part of it.
  Duration GetCost(const Way& way, bool goes_on);
  static void Charge(Client& beneficiary, const Move& move, std::uint64_t moved, Duration took);
  void CountWait(Client& client, TimePoint now);
  void CountAnswer(const Client& client, TimePoint now);
  std::optional<MemoryAction> PreemptSwap(std::uint64_t free_bytes, TimePoint now);
  void Update(Client& client, const MemorySuspended& held, TimePoint now);
  void ComeIn(Client& client, bool goes_on, TimePoint now);
  bool CanEverHave(ClientId id, const Client& client) const;
  // The client that is served next.
  const Item* Choose(std::uint64_t free_bytes, TimePoint now) const;
  static bool GoesBefore(const Item& left, const Item& right, TimePoint now);
  std::uint64_t AvailableTo(const Client& client, std::uint64_t free_bytes) const;
  // It waits for its own commands to end, so that what it needs can come in.
  bool IsDraining(const Client& client, std::uint64_t free_bytes) const;
  // Whether the time alone could make enough room for it.
  bool MayCome(const Item& candidate, std::uint64_t free_bytes, TimePoint now) const;
  bool IsIdle(const Client& client, TimePoint now) const;
  TimePoint IdleAt(const Client& client) const;
  // From when on it makes room for the candidate; never: max.
  TimePoint EvictableAt(const Client& victim, const Client& candidate, TimePoint now) const;
  void ReportWanted(Client& victim, const Client& candidate, std::uint64_t bytes, TimePoint now);
  void ForgetWanted();
  // Who makes room now; null, with wake_at_ set, where those that may do not have enough.
  Item* Victim(const Item& candidate, std::uint64_t bytes, TimePoint now);
  bool GoesOutBefore(const Item& left, const Item& right, ClientId candidate, TimePoint now) const;
  // Bytes that nobody can take, of all clients but one.
  std::uint64_t FixedBytes(ClientId but) const;
  // Until the client is quiet.
  std::optional<MemoryAction> Hold(ClientId client, ClientId beneficiary);
  // Bytes of the victim that go before the next look at who makes room.
  static std::uint64_t GivesBytes(const Item& victim, ClientId candidate);
  std::optional<MemoryAction> Serve(const Item& candidate, std::uint64_t free_bytes, TimePoint now,
                                    ClientId* victim);

  const ResidencyOptions options_;
  ClientTable<Client> clients_;
  std::optional<Move> move_;
  // A MiB took so long: of the ways of clients that came in,
  RecentSamples<15> ways_;
  // and of moves out and in.
  std::array<RecentSamples<15>, 2> per_mebibyte_;
  TimePoint swaps_fail_until_{};
  TimePoint rests_until_{};
  std::optional<TimePoint> wake_at_;
  MemoryRequestStats request_stats_;  // Counts alone.
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_RESIDENCY_H_
