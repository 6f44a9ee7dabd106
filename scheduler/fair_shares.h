// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_FAIR_SHARES_H_
#define GPUSHARED_SCHEDULER_FAIR_SHARES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/client_table.h"
#include "scheduler/policy.h"
#include "scheduler/smallest_key.h"

namespace gpushared::scheduler {

// Accounts that share device time by weight, in up to kLevelsMax independent levels. Used by the
// fair, priority and deadline policies.
//
// Each client has a virtual time: the device time charged to it, divided by its weight. In each
// level the ready client with the smallest virtual time runs next. Work on the device counts with
// its predicted time until it is charged. The virtual time of a level never decreases. A client
// that was asleep is moved forward to the virtual time of its level, because the client must not be
// compensated for time that it did not request. A client whose virtual time is larger than that of
// its level keeps its own, so that it cannot lose debt by sleeping. A client is asleep in a level
// that it left for another one, and finds its debt there when it returns.
//
// Clients of one group share in two steps. The group has its own virtual time, charged for all its
// clients, and the weight of the heaviest of them. It competes with the other groups of the level
// by the rules above, as do its clients among themselves. A user with more clients therefore has no
// larger share: only the clients of that user get less. A client without a group forms a group
// alone.
//
// A client that queues one command at a time is not ready while that command runs, nor for up to
// `hold_off` before the next one. In levels from `suspended_from` on, no client with a larger
// virtual time starts in the meantime, because that client would use time that is due to the absent
// one, whatever the weights of the two. The level waits for the client after a command only if the
// client returned in time after the previous command, and if its commands take at least as long as
// the wait.
//
// Thread-compatible.
class FairShares {
 public:
  using Level = std::size_t;
  // A level per class, and one above all classes.
  static constexpr Level kLevelsMax = kSchedulingClasses + 1;

  static constexpr Level kNoLevel = static_cast<Level>(-1);

  explicit FairShares(Duration slice, Duration hold_off = {}, Level suspended_from = kNoLevel)
      : slice_(slice), hold_off_(hold_off), suspended_from_(suspended_from) {}

  // Clients with the same `group` share what one client would have. Without a value the client is
  // alone in its group.
  void Add(ClientId client, Level level, std::uint32_t weight, std::optional<std::uint64_t> group);
  void Change(ClientId client, Level level, std::uint32_t weight, TimePoint now);
  void Remove(ClientId client, TimePoint now);
  void OnReady(ClientId client);
  void OnIdle(ClientId client, TimePoint now);
  void OnStarted(ClientId client, const Head& head, TimePoint now);
  void OnEnded(ClientId client, const Ended& ended, TimePoint now);

  Level GetLevel(ClientId client) { return accounts_.At(client).level; }
  bool HasReady(Level level) const { return levels_[level].ready > 0; }
  bool HasRunning(Level level) const { return levels_[level].running > 0; }
  bool IsActive(Level level) const { return HasReady(level) || HasRunning(level); }
  // Returns whether a stoppable command runs that has not been stopped yet.
  bool HasStoppable(Level level) const { return levels_[level].stoppable > 0; }
  bool HasStoppable(ClientId client) { return accounts_.At(client).stoppable > 0; }

  // Returns the decision for a level that has the device to itself: stops a client whose slice is
  // over if another client has a smaller virtual time, otherwise runs the client with the smallest.
  Decision Pick(Level level, TimePoint now);
  // Returns the decision for levels `highest` to `lowest`, in ascending order, that have the device
  // to themselves. A lower level starts work only when no higher one has had anything ready or on
  // the device for `hold_off`. When higher work becomes ready, stoppable lower work is stopped
  // immediately.
  Decision PickByLevel(Level highest, Level lowest, Duration hold_off, TimePoint now);
  // Stops a client of the level; HasStoppable must hold.
  Decision StopOne(Level level);
  // Stops the client; HasStoppable must hold for it.
  Decision Stop(ClientId client);

 private:
  // Virtual time is in units of nanoseconds / kVirtualScale at weight 1: fine enough to order short
  // commands of heavy clients, and sufficient for four years of device time.
  static constexpr std::int64_t kVirtualScale = 64;

  // Skips the division at weight 1, because most weights are 1 and each command requires several
  // such divisions.
  static std::int64_t Weighed(std::int64_t scaled, std::uint32_t weight) {
    return weight == 1 ? scaled : scaled / weight;
  }

  struct Charged {
    std::int64_t used = 0;  // Virtual time.
    // Remainder of the division by weight, carried over so that no time is lost.
    std::int64_t remainder = 0;
  };
  struct Account {
    std::size_t place = 0;  // Index in accounts_.
    std::size_t group = 0;  // Index in groups_.
    std::uint8_t level = 0;
    bool ready = false;
    bool counted = false;  // Whether the account is counted in its group's `active`.
    std::uint32_t running = 0;
    std::uint32_t stoppable = 0;
    std::uint32_t weight = 1;
    // Charges by the level in which the command was started.
    std::array<Charged, kLevelsMax> charged{};
    std::int64_t pending_ns = 0;  // Predicted device time of the commands on the device.
    TimePoint uncharged_since{};  // Time up to which the running command has been charged.
    // Time since which no command is ready or running; the pause may turn out to be short.
    std::optional<TimePoint> paused_since;
    bool returns_soon = false;  // Whether the client returned in time after its last pause.
    Duration last_held{};       // Device time of its last command.

    std::int64_t used() const { return charged[level].used; }
    std::int64_t key() const { return used() + Weighed(pending_ns * kVirtualScale, weight); }
    bool is_active() const { return ready || running > 0 || paused_since.has_value(); }
  };
  // State that the clients of a group share in one level.
  struct Share {
    // Weight of the heaviest client, or of the last client once all have left.
    std::uint32_t weight = 1;
    std::uint32_t ready = 0, active = 0;  // Numbers of clients.
    Charged charged;
    std::int64_t pending_ns = 0;
    std::int64_t clock = 0;  // Virtual time inside the group: the smallest of its clients.

    std::int64_t key() const { return charged.used + Weighed(pending_ns * kVirtualScale, weight); }
  };
  struct Group {
    std::optional<std::uint64_t> number;  // Empty for a client without a group.
    std::size_t clients = 0;              // 0 once all have left; the slot can then be reused.
    std::size_t place = 0;                // Index in group_at_, in the order of `first`.
    std::size_t first = 0;                // Place of the group's first client in accounts_.
    std::array<Share, kLevelsMax> shares{};
  };
  struct LevelState {
    // Numbers of ready clients, running commands and stoppable commands.
    std::size_t ready = 0, running = 0, stoppable = 0;
    std::size_t paused = 0;  // Number of pausing clients.
    std::int64_t clock = 0;  // Virtual time of the level: the smallest of its groups.
    std::optional<TimePoint> inactive_since;  // Time since which nothing is ready or running.
    // Keys of its groups, by place.
    SmallestKey ready_keys;  // Virtual time used plus work on the device, if a client is ready.
    // Keys of groups in which no client is ready, but one runs or pauses.
    SmallestKey absent_keys;
    SmallestKey active_used;  // Virtual time used, if a client is ready, running or pausing.
    // Keys of its accounts, by place.
    SmallestKey pauses;     // paused_since in ns.
    SmallestKey uncharged;  // uncharged_since in ns, if the account has a stoppable command.

    void ForgetGroup(std::size_t place) {
      for (SmallestKey* keys : {&ready_keys, &absent_keys, &active_used}) {
        keys->Set(place, SmallestKey::kNone);
      }
    }
    void ForgetAccount(std::size_t place) {
      for (SmallestKey* keys : {&pauses, &uncharged}) keys->Set(place, SmallestKey::kNone);
    }
  };
  using Item = ClientTable<Account>::Item;

  Share& ShareFor(const Account& account) { return groups_[account.group].shares[account.level]; }
  std::size_t GroupFor(std::optional<std::uint64_t> number);
  // Updates the group's weight after a client was added, removed or changed.
  void Reweigh(std::size_t group);
  // Updates the keys after every change of an account.
  void Refresh(Account& account);
  // Inlined, because it is called twice per command.
  [[gnu::always_inline]] inline void RefreshGroup(const Group& group, Level level);
  // Updates all keys after accounts were added or removed.
  void RefreshAll();
  static void Charge(Charged& charged, std::uint32_t weight, Duration held);
  std::int64_t GetPending(Duration predicted, bool stoppable) const;
  // Advances the level's clock to the smallest virtual time of an active group, and returns the
  // clock.
  static std::int64_t GetClock(LevelState& level);
  // Advances the clock of the account's group to the smallest virtual time of an active client in
  // the account's level, and returns that clock.
  std::int64_t ClockInside(const Account& account);
  // Returns the client with the smallest virtual time among the ready clients of the group, except
  // the one at place `except`.
  const Item* GetBest(const Group& group, Level level, std::size_t except = kNoPlace) const;
  static std::int64_t SmallestBut(std::size_t place, const SmallestKey& keys, std::size_t places);
  // Returns when the stoppable command of `account` is to be stopped; empty if no client waits.
  std::optional<TimePoint> DueAt(const Account& account, const Group& best) const;
  void Pause(Account& account, TimePoint now);
  void EndPause(Account& account);
  // Puts clients to sleep that have paused for longer than the hold-off.
  void ExpirePauses(LevelState& level, TimePoint now);
  void OnAsleep(const Account& account);
  // Moves a client that was asleep forward to the present virtual time, so that the client is not
  // compensated for its sleep.
  void MoveForward(Account& account);
  // Removes the account from the counts and keys of its level when the client is removed or changes
  // levels.
  void Withdraw(Account& account, TimePoint now);
  void Enter(Account& account);
  void Leave(Account& account, TimePoint now);
  // Sets inactive_since if the level has become inactive. Called after one of its counts has
  // decreased.
  static void RecordLess(LevelState& level, TimePoint now);
  // Returns the time until which the level waits for clients that are not ready but precede `best`
  // (of `group`) by virtual time, within their group or as a group.
  std::optional<TimePoint> HeldUntil(const Account& best, const Group& group, TimePoint now);
  // Returns how long a client or group can run until its virtual time exceeds `rival_key`.
  static Duration Lead(std::int64_t used, std::uint32_t weight, std::int64_t rival_key);

  static constexpr std::size_t kNoPlace = kClientsMax;

  const Duration slice_;
  const Duration hold_off_;
  const Level suspended_from_;
  ClientTable<Account> accounts_;
  std::vector<Group> groups_;                          // Grows with Add, and never shrinks.
  std::array<std::uint16_t, kClientsMax> group_at_{};  // Index in groups_, by place.
  std::size_t groups_here_ = 0;
  std::array<LevelState, kLevelsMax> levels_{};
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_FAIR_SHARES_H_
