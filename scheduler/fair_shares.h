// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_FAIR_SHARES_H_
#define GPUSHARED_SCHEDULER_FAIR_SHARES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "scheduler/client_table.h"
#include "scheduler/policy.h"
#include "scheduler/smallest_key.h"

namespace gpushared::scheduler {

// Accounts that share device time by weight, in up to kLevelsMax levels that know nothing
// of each other. What the fair, priority and deadline policies have in common.
//
// Each client carries a virtual time: device time it was charged for, divided by its
// weight. Of the ready clients of a level the one furthest behind runs next; what it
// has on the device counts as if it had taken the predicted time already. A client
// that was asleep is moved forward to the virtual time of its level, which never goes
// back, so nobody is paid for time they did not ask for; one that is ahead stays
// ahead, so nobody sheds a debt by sleeping. In a level that it left, for another one, a client
// is asleep: what it owes there it finds again when it comes back.
//
// A client that queues one command at a time is not ready while that command runs, nor
// in the moment before the next one, which is up to `hold_off` long. It keeps its place
// meanwhile, and from level `held_from` on nobody who is ahead of it starts: others would
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

  explicit FairShares(Duration slice, Duration hold_off = {}, Level held_from = kNoLevel)
      : slice_(slice), hold_off_(hold_off), held_from_(held_from) {}

  void Add(ClientId client, Level level, std::uint32_t weight);
  void Change(ClientId client, Level level, std::uint32_t weight, TimePoint now);
  void Remove(ClientId client, TimePoint now);
  void OnReady(ClientId client);
  void OnIdle(ClientId client, TimePoint now);
  void OnStarted(ClientId client, const Head& head, TimePoint now);
  void OnEnded(ClientId client, const Ended& ended, TimePoint now);

  Level LevelOf(ClientId client) { return accounts_.At(client).level; }
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
  // `hold_off` has passed since; when higher work becomes ready, lower work that can be stopped
  // is stopped at once.
  Decision PickByLevel(Level highest, Level lowest, Duration hold_off, TimePoint now);
  // Stops a client of the level; HasStoppable must hold.
  Decision StopOne(Level level);
  // Stops that one; HasStoppable must hold for it.
  Decision Stop(ClientId client);

 private:
  // Virtual time is in units of nanoseconds / kVirtualScale at weight 1: fine enough to
  // order short commands of heavy clients, and good for four years of device time.
  static constexpr std::int64_t kVirtualScale = 64;

  struct Charged {
    std::int64_t used = 0;       // Virtual time.
    std::int64_t remainder = 0;  // Of the division by weight; carried, so that no time is lost.
  };
  struct Account {
    std::size_t place = 0;  // In accounts_.
    std::uint8_t level = 0;
    bool ready = false;
    std::uint32_t running = 0;
    std::uint32_t stoppable = 0;
    std::uint32_t weight = 1;
    std::array<Charged, kLevelsMax> charged{};  // By the level in which it was started.
    std::int64_t pending_ns = 0;                // Predicted device time of what is on the device.
    TimePoint uncharged_since{};                // What runs has been charged for up to here.
    // With nothing ready or running, and maybe for a moment only.
    std::optional<TimePoint> paused_since;
    bool returns_soon = false;  // Did so after its last pause.
    Duration last_held{};       // By its last command.

    std::int64_t used() const { return charged[level].used; }
    bool is_active() const { return ready || running > 0 || paused_since.has_value(); }
  };
  struct LevelState {
    std::size_t ready = 0, running = 0, stoppable = 0;  // Of clients, of commands, of commands.
    std::size_t paused = 0;                             // Of clients.
    std::int64_t clock = 0;  // Virtual time of the level: of its client furthest behind.
    std::optional<TimePoint> inactive_since;  // Came to have nothing ready or running.
    // Of its accounts, by place.
    SmallestKey ready_keys;   // Virtual time used plus what is on the device, if ready.
    SmallestKey absent_keys;  // The same if it is not ready, but runs or pauses.
    SmallestKey active_used;  // Virtual time used, if ready, running or pausing.
    SmallestKey pauses;       // paused_since in ns.
    SmallestKey uncharged;    // uncharged_since in ns, if it can be stopped.

    void Forget(std::size_t place) {
      for (SmallestKey* keys : {&ready_keys, &absent_keys, &active_used, &pauses, &uncharged}) {
        keys->Set(place, SmallestKey::kNone);
      }
    }
  };
  using Item = ClientTable<Account>::Item;

  // After every change of an account.
  void Refresh(const Account& account);
  // After accounts were added or removed.
  void RefreshAll();
  std::int64_t PendingOf(Duration predicted, bool stoppable) const;
  // The level's clock, moved to its active client furthest behind.
  static std::int64_t ClockOf(LevelState& level);
  std::int64_t SmallestBut(std::size_t place, const LevelState& level) const;
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
  static void NoteLess(LevelState& level, TimePoint now);
  // Until when those who are behind `best_key` without being ready are waited for.
  std::optional<TimePoint> HeldUntil(Level level, std::int64_t best_key, TimePoint now);
  // How long `account` has to go on until a rival of that key is behind it.
  static Duration Lead(const Account& account, std::int64_t rival_key);
  // When a rival of that key gets ahead of what `account` will have used if it goes on.
  TimePoint OvertakenAt(const Account& account, std::int64_t rival_key) const;

  const Duration slice_;
  const Duration hold_off_;
  const Level held_from_;
  ClientTable<Account> accounts_;
  std::array<LevelState, kLevelsMax> levels_{};
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_FAIR_SHARES_H_
