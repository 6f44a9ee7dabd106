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

// Accounts that share device time by weight, in up to kLevelsMax levels that know nothing
// of each other. What the fair, priority and deadline policies have in common.
//
// Each client carries a virtual time: device time it was charged for, divided by its
// weight. The ready client of a level that is furthest behind runs next. Its work on the
// device counts as if it had taken the predicted time already. A client that was asleep is
// moved forward to the virtual time of its level, which never goes back. So nobody is paid
// for time they did not ask for. A client that is ahead stays ahead, so nobody sheds a debt
// by sleeping. In a level that it left for another one, a client is asleep. It finds its
// debt there again when it comes back.
//
// Clients of one group share in two steps. The group has a virtual time of its own, of all that its
// clients were charged for. It has the weight of the heaviest of them. It competes with the other
// groups of the level by the rules above, and its clients among themselves. So who opens more
// clients has more clients to share with, and nobody else has less. A client without a group is
// one by itself.
//
// A client that queues one command at a time is not ready while that command runs. Nor is
// it in the moment before the next one, which is up to `hold_off` long. It keeps its place
// meanwhile, and from level `suspended_from` on nobody who is ahead of it starts: others would
// take the time that is due to it, however great its weight. After a command it is waited
// for if it came back in time before and its commands are no shorter than the wait.
//
// Thread-compatible.
class FairShares {
 public:
  using Level = std::size_t;
  // A level per class, and one for what is above all classes.
  static constexpr Level kLevelsMax = kSchedulingClasses + 1;

  static constexpr Level kNoLevel = static_cast<Level>(-1);

  explicit FairShares(Duration slice, Duration hold_off = {}, Level suspended_from = kNoLevel)
      : slice_(slice), hold_off_(hold_off), suspended_from_(suspended_from) {}

  // Clients with the same `group` share what one has; none: the client is alone in its group.
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
  // Something runs that can be stopped and was not asked to.
  bool HasStoppable(Level level) const { return levels_[level].stoppable > 0; }
  bool HasStoppable(ClientId client) { return accounts_.At(client).stoppable > 0; }

  // What the level would do if it had the device to itself: stop a client whose slice
  // is over while another one is behind it, else run the one furthest behind.
  Decision Pick(Level level, TimePoint now);
  // What levels `highest` to `lowest`, numbered downwards, would do if they had it. A lower one
  // starts work only while no higher one has anything ready or on the device, and not before
  // `hold_off` has passed since. When higher work becomes ready, stoppable lower work is stopped
  // at once.
  Decision PickByLevel(Level highest, Level lowest, Duration hold_off, TimePoint now);
  // Stops a client of the level; HasStoppable must hold.
  Decision StopOne(Level level);
  // Stops that one; HasStoppable must hold for it.
  Decision Stop(ClientId client);

 private:
  // Virtual time is in units of nanoseconds / kVirtualScale at weight 1: fine enough to
  // order short commands of heavy clients, and good for four years of device time.
  static constexpr std::int64_t kVirtualScale = 64;

  // Most weights are 1, and each command takes some of these divisions.
  static std::int64_t Weighed(std::int64_t scaled, std::uint32_t weight) {
    return weight == 1 ? scaled : scaled / weight;
  }

  struct Charged {
    std::int64_t used = 0;       // Virtual time.
    std::int64_t remainder = 0;  // Of the division by weight; carried, so that no time is lost.
  };
  struct Account {
    std::size_t place = 0;  // In accounts_.
    std::size_t group = 0;  // In groups_.
    std::uint8_t level = 0;
    bool ready = false;
    bool counted = false;  // Among its group's active ones.
    std::uint32_t running = 0;
    std::uint32_t stoppable = 0;
    std::uint32_t weight = 1;
    std::array<Charged, kLevelsMax> charged{};  // By the level in which it was started.
    std::int64_t pending_ns = 0;                // Predicted device time of what is on the device.
    TimePoint uncharged_since{};                // The running command is charged up to here.
    // With nothing ready or running, and maybe for a moment only.
    std::optional<TimePoint> paused_since;
    bool returns_soon = false;  // Did so after its last pause.
    Duration last_held{};       // By its last command.

    std::int64_t used() const { return charged[level].used; }
    std::int64_t key() const { return used() + Weighed(pending_ns * kVirtualScale, weight); }
    bool is_active() const { return ready || running > 0 || paused_since.has_value(); }
  };
  // The clients of one group have this together in one level.
  struct Share {
    std::uint32_t weight = 1;  // Of the heaviest; the last one's when there is none any more.
    std::uint32_t ready = 0, active = 0;  // Clients.
    Charged charged;
    std::int64_t pending_ns = 0;
    std::int64_t clock = 0;  // Virtual time inside: of its client furthest behind.

    std::int64_t key() const { return charged.used + Weighed(pending_ns * kVirtualScale, weight); }
  };
  struct Group {
    std::optional<std::uint64_t> number;  // None: for one client alone.
    std::size_t clients = 0;              // 0: all have left, and this slot can be taken.
    std::size_t place = 0;                // Ascending with its first client's.
    std::size_t first = 0;                // Place of that client.
    std::array<Share, kLevelsMax> shares{};
  };
  struct LevelState {
    std::size_t ready = 0, running = 0, stoppable = 0;  // Clients, commands, commands.
    std::size_t paused = 0;                             // Clients.
    std::int64_t clock = 0;  // Virtual time of the level: of its group furthest behind.
    std::optional<TimePoint> inactive_since;  // Came to have nothing ready or running.
    // Its groups' keys, by place.
    SmallestKey ready_keys;   // Virtual time used plus what is on the device, if a client is ready.
    SmallestKey absent_keys;  // The same if none is ready, but one runs or pauses.
    SmallestKey active_used;  // Virtual time used, if one is ready, running or pausing.
    // Its accounts' keys, by place.
    SmallestKey pauses;     // paused_since in ns.
    SmallestKey uncharged;  // uncharged_since in ns, if it can be stopped.

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
  // After a client came, left or changed.
  void Reweigh(std::size_t group);
  // After every change of an account.
  void Refresh(Account& account);
  // In line: each command does this twice.
  [[gnu::always_inline]] inline void RefreshGroup(const Group& group, Level level);
  // After accounts were added or removed.
  void RefreshAll();
  static void Charge(Charged& charged, std::uint32_t weight, Duration held);
  std::int64_t GetPending(Duration predicted, bool stoppable) const;
  // The level's clock, moved to its active group furthest behind.
  static std::int64_t GetClock(LevelState& level);
  // The same inside a group.
  std::int64_t ClockInside(const Account& account);
  // The ready client of the group that is furthest behind, but `except` (a place).
  const Item* GetBest(const Group& group, Level level, std::size_t except = kNoPlace) const;
  static std::int64_t SmallestBut(std::size_t place, const SmallestKey& keys, std::size_t places);
  // When `account`, of a command that can be stopped, is to give way; none: nobody waits.
  std::optional<TimePoint> DueAt(const Account& account, const Group& best) const;
  void Pause(Account& account, TimePoint now);
  void EndPause(Account& account);
  // Those who pause for longer than a moment are asleep.
  void ExpirePauses(LevelState& level, TimePoint now);
  void OnAsleep(const Account& account);
  // Whoever was asleep is paid for nothing.
  void MoveForward(Account& account);
  // It was in its level for the last time, or for now.
  void Withdraw(Account& account, TimePoint now);
  void Enter(Account& account);
  void Leave(Account& account, TimePoint now);
  // After one of the level's counts went down.
  static void RecordLess(LevelState& level, TimePoint now);
  // Until when those who are behind `best`, of group `group`, without being ready are waited for.
  std::optional<TimePoint> HeldUntil(const Account& best, const Group& group, TimePoint now);
  // How long a client or group has to go on until a rival of that key is behind it.
  static Duration Lead(std::int64_t used, std::uint32_t weight, std::int64_t rival_key);

  static constexpr std::size_t kNoPlace = kClientsMax;

  const Duration slice_;
  const Duration hold_off_;
  const Level suspended_from_;
  ClientTable<Account> accounts_;
  std::vector<Group> groups_;                          // Grows with Add, and never shrinks.
  std::array<std::uint16_t, kClientsMax> group_at_{};  // By place.
  std::size_t groups_here_ = 0;
  std::array<LevelState, kLevelsMax> levels_{};
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_FAIR_SHARES_H_
