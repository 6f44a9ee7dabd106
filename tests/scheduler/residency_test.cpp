// SPDX-License-Identifier: Apache-2.0
#include "scheduler/residency.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <gtest/gtest.h>

namespace gpushared::scheduler {
namespace {

using namespace std::chrono_literals;
using Kind = MemoryAction::Kind;

constexpr std::uint64_t kStep = std::uint64_t{2} << 20;
constexpr std::uint64_t kDevice = 100 * kStep;

// A device of 100 steps on which all moves take 1 ms a step and clients leave the device at once.
class ResidencyTest : public ::testing::Test {
 protected:
  explicit ResidencyTest(Duration notice = {}, bool moves_by_step = false,
                         bool holds_for_moves_in = false)
      : residency_({.device_bytes = kDevice,
                    .moves_by_step = moves_by_step,
                    .holds_for_moves_in = holds_for_moves_in,
                    .stay_factor = 4,
                    .stay_min = 10ms,
                    .idle_min = 5ms,
                    .notice = notice,
                    .move_bytes_max = 8 * kStep}) {}

  ClientId Add(std::uint64_t guaranteed_steps,
               SchedulingClass scheduling_class = SchedulingClass::kLow) {
    const ClientId client{++last_};
    residency_.Add(client, {.guaranteed_bytes = guaranteed_steps * kStep,
                            .scheduling_class = scheduling_class});
    return client;
  }
  MemoryHeld& Of(ClientId client) { return held_[client.value]; }
  std::uint64_t Free() const {
    std::uint64_t used = 0;
    for (const MemoryHeld& held : held_) used += held.resident_bytes + held.pinned_bytes;
    return kDevice - used;
  }
  // It grows where there is room.
  void Grow(ClientId client, std::uint64_t steps) {
    ASSERT_LE(steps * kStep, Free());
    Of(client).movable_bytes += steps * kStep;
    Of(client).resident_bytes += steps * kStep;
    residency_.OnMemory(client, Of(client), now_);
  }
  void Busy(ClientId client, bool is_busy = true) { residency_.SetBusy(client, is_busy, now_); }
  // From now on that is all that its next commands touch of what is moved out.
  void Needs(ClientId client, std::uint64_t steps) {
    MemoryHeld& held = Of(client);
    held.unneeded_bytes = held.absent_bytes() - steps * kStep;
    is_known_[client.value] = true;
    residency_.SetUnneeded(client, held.unneeded_bytes, held.spare_bytes, now_);
  }
  bool Runs(ClientId client) {
    return Of(client).missing_bytes() == 0 && !residency_.IsHeld(client);
  }
  bool IsThere(ClientId client) { return Of(client).is_whole() && !residency_.IsHeld(client); }

  // Carries out what is decided until nothing is; returns the last action.
  std::optional<MemoryAction> Settle() {
    std::optional<MemoryAction> last;
    while (const auto action = residency_.Next(Free(), now_)) {
      last = action;
      MemoryHeld& held = Of(action->client);
      switch (action->kind) {
        case Kind::kHold:
          now_ += stop_;
          residency_.OnDrained(action->client, now_);
          break;
        case Kind::kMoveOut:
        case Kind::kMoveIn:
          now_ += 1ms * static_cast<int>(action->bytes / kStep) + std::exchange(delay_, {});
          if (action->kind == Kind::kMoveOut) {
            held.resident_bytes -= action->bytes;
            const std::uint64_t spared = std::min(held.spare_bytes, action->bytes);
            held.spare_bytes -= spared;
            held.unneeded_bytes += is_known_[action->client.value] ? action->bytes : spared;
            moved_out_ += action->bytes / kStep;
          } else {
            held.resident_bytes += action->bytes;
            held.unneeded_bytes = std::min(held.unneeded_bytes, held.absent_bytes());
          }
          residency_.OnMoved(action->client, held, now_);
          break;
        case Kind::kRoom:
          room_for_ = action->client;
          break;
        case Kind::kRelease:
        case Kind::kCut:
        case Kind::kNoRoom:
          break;
      }
    }
    return last;
  }
  // Lets time pass, and what is decided happen, until `client` is there or a second is over.
  bool Comes(ClientId client) {
    const TimePoint latest = now_ + 10s;
    for (Settle(); !IsThere(client) && now_ < latest; Settle()) {
      now_ = residency_.wake_at().value_or(latest);
    }
    return IsThere(client);
  }

  std::optional<Duration> PromisedTo(ClientId client) const {
    return residency_.PromisedTo(client, Free(), now_);
  }

  Residency residency_;
  TimePoint now_{1s};
  std::uint64_t moved_out_ = 0;
  ClientId room_for_;  // Made last.
  Duration delay_{};   // The next move takes so much longer.
  Duration stop_{};    // Who is held takes so long to stop.

 private:
  std::uint64_t last_ = 0;
  std::array<MemoryHeld, 8> held_{};
  std::array<bool, 8> is_known_{};  // Its next commands touch nothing of what goes out.
};

TEST_F(ResidencyTest, NobodyMovesWhereAllHaveRoom) {
  const ClientId one = Add(0), other = Add(0);
  Grow(one, 50);
  Grow(other, 50);
  Busy(one);
  Busy(other);
  EXPECT_FALSE(Settle());
  EXPECT_FALSE(residency_.wake_at());
}

TEST_F(ResidencyTest, RoomWithinAGuaranteeIsMadeAtOnceByWhoeverIsBeyondItsOwn) {
  const ClientId high = Add(50, SchedulingClass::kHigh), low = Add(10);
  Grow(low, 90);
  Busy(low);
  residency_.AskRoom(high, 40 * kStep, now_);
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, Kind::kRoom);
  EXPECT_EQ(last->client, high);
  EXPECT_EQ(moved_out_, 30u);  // 10 were free.
  EXPECT_TRUE(residency_.IsHeld(low));
}

TEST_F(ResidencyTest, RoomThatWasGrantedIsNobodyElses) {
  const ClientId high = Add(50, SchedulingClass::kHigh), low = Add(10);
  Grow(low, 90);
  Busy(low);
  residency_.AskRoom(high, 40 * kStep, now_);
  Settle();
  // Freed by the grant; the low client wants it back and is to leave it alone.
  EXPECT_GE(Free(), 40 * kStep);
  EXPECT_FALSE(Settle());
  Grow(high, 40);
  EXPECT_TRUE(residency_.IsSettled(high));
  EXPECT_TRUE(residency_.IsShutOut(low));
}

TEST_F(ResidencyTest, WhoIsWithinItsGuaranteeNeverMoves) {
  const ClientId settled = Add(50, SchedulingClass::kLow), high = Add(0, SchedulingClass::kHigh);
  Grow(settled, 50);
  Grow(high, 50);
  residency_.AskRoom(high, 1 * kStep, now_);
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, Kind::kNoRoom);
  EXPECT_EQ(moved_out_, 0u);
  EXPECT_TRUE(IsThere(settled));
}

TEST_F(ResidencyTest, WhoComesInStaysForAMultipleOfWhatItsWayTook) {
  const ClientId one = Add(0), other = Add(0);
  Grow(one, 60);
  Busy(one);
  Grow(other, 40);
  Busy(other);
  residency_.AskRoom(other, 20 * kStep, now_);
  now_ += 20ms;  // The stay of a newcomer is over.
  Settle();
  Grow(other, 20);
  EXPECT_TRUE(IsThere(other));
  EXPECT_FALSE(IsThere(one));
  const TimePoint came_in = now_;
  ASSERT_TRUE(Comes(one));
  // 20 steps out at 1 ms each bought a stay of four times that; then 20 out and 20 in again.
  EXPECT_EQ(now_ - came_in, 80ms + 40ms);
}

TEST_F(ResidencyTest, BusyClientsTakeTurnsAndNobodyStarves) {
  const ClientId clients[] = {Add(0), Add(0), Add(0)};
  Grow(clients[0], 60);
  Grow(clients[1], 40);
  for (const ClientId client : clients) Busy(client);
  now_ += 20ms;
  residency_.AskRoom(clients[1], 20 * kStep, now_);
  Settle();
  Grow(clients[1], 20);
  Of(clients[2]).movable_bytes = 60 * kStep;  // It was moved out before.
  residency_.OnMemory(clients[2], Of(clients[2]), now_);
  std::array<int, 3> turns{};
  for (int round = 0; round < 30; ++round) {
    // The first one was the first to make room, and the third came last.
    const int next = (3 - round % 3) % 3;
    ASSERT_TRUE(Comes(clients[next])) << round;
    ++turns.at(static_cast<std::size_t>(next));
  }
  EXPECT_EQ(turns, (std::array{10, 10, 10}));
  // Who came in last goes out first: 40 steps a turn. Taking from the oldest would move 60.
  EXPECT_LE(moved_out_, 30u * 41);
}

// Each comes in by short and long ways in turn, since it is moved out in part and as a whole.
TEST_F(ResidencyTest, EqualsThatTakeTurnsRunForEquallyLong) {
  const std::array clients = {Add(0), Add(0), Add(0)};
  for (const ClientId client : clients) {
    Of(client) = {.movable_bytes = 57 * kStep, .resident_bytes = std::min(57 * kStep, Free())};
    residency_.OnMemory(client, Of(client), now_);
    Busy(client);
  }
  std::array<Duration, 3> ran{};
  const TimePoint end = now_ + 600s;
  while (now_ < end) {
    Settle();
    ASSERT_TRUE(residency_.wake_at());
    const TimePoint next = *residency_.wake_at();
    for (std::size_t i = 0; i < clients.size(); ++i) {
      if (IsThere(clients[i])) ran[i] += next - now_;
    }
    now_ = next;
  }
  const auto [least, most] = std::ranges::minmax(ran);
  EXPECT_GT(least, 600s / 4);  // A third, without the moves.
  EXPECT_LT(most - least, most / 50);
}

// A client whose way is held up once would have the device for seconds, and the others nothing.
TEST_F(ResidencyTest, AMoveThatTheMachineHeldUpBuysNoLongStay) {
  const ClientId one = Add(0), other = Add(0);
  for (const ClientId client : {one, other}) {
    Of(client) = {.movable_bytes = 60 * kStep, .resident_bytes = std::min(60 * kStep, Free())};
    residency_.OnMemory(client, Of(client), now_);
    Busy(client);
  }
  // Each moves 20 steps out and as many in: 40 ms, for a stay of 160 ms.
  for (int turn = 0; turn < 4; ++turn) ASSERT_TRUE(Comes(turn % 2 == 0 ? other : one));
  delay_ = 5s;
  ASSERT_TRUE(Comes(other));
  const TimePoint came_in = now_;
  ASSERT_TRUE(Comes(one));
  // The move of 8 steps counts as 16 ms in place of 8.
  EXPECT_EQ(now_ - came_in, 160ms + 8ms * 4 + 40ms);
}

TEST_F(ResidencyTest, AnIdleClientMakesRoomBeforeItsStayIsOver) {
  const ClientId one = Add(0), other = Add(0);
  Grow(one, 60);
  Busy(one);
  now_ += 20ms;
  Grow(other, 40);
  Busy(other);
  residency_.AskRoom(other, 20 * kStep, now_);
  Settle();
  Grow(other, 20);
  const TimePoint came_in = now_;
  Busy(other, false);
  ASSERT_TRUE(Comes(one));
  // Its way in took 20 ms: for so long it may be idle and keep its place.
  EXPECT_EQ(now_ - came_in, 20ms + 40ms);
}

TEST_F(ResidencyTest, ABusyHigherClassKeepsItsMemoryAndAnIdleOneDoesNot) {
  const ClientId normal = Add(0, SchedulingClass::kNormal), low = Add(0);
  Grow(normal, 60);
  Grow(low, 40);
  Busy(normal);
  Busy(low);
  residency_.AskRoom(low, 20 * kStep, now_);
  now_ += 1h;
  EXPECT_FALSE(Settle());
  Busy(normal, false);
  Settle();
  now_ = residency_.wake_at().value();
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, Kind::kRoom);
}

TEST_F(ResidencyTest, TheLowestClassMakesRoomFirstAndIdleClientsBeforeBusyOnes) {
  const ClientId high = Add(50, SchedulingClass::kHigh), normal = Add(0, SchedulingClass::kNormal),
                 busy = Add(0), idle = Add(0);
  Grow(normal, 30);
  Grow(idle, 20);
  Grow(busy, 50);
  Busy(normal);
  Busy(busy);
  now_ += 1s;
  residency_.AskRoom(high, 20 * kStep, now_);
  Settle();
  EXPECT_EQ(Of(idle).resident_bytes, 0u);
  EXPECT_TRUE(IsThere(busy));
  Grow(high, 20);
  residency_.AskRoom(high, 20 * kStep, now_);
  Settle();
  EXPECT_EQ(Of(busy).resident_bytes, 30 * kStep);
  EXPECT_TRUE(IsThere(normal));
}

TEST_F(ResidencyTest, AHeldClientThatNobodyNeedsAnyMoreGoesOn) {
  const ClientId high = Add(50, SchedulingClass::kHigh), low = Add(0);
  Grow(low, 100);
  Busy(low);
  residency_.AskRoom(high, 10 * kStep, now_);
  const auto hold = residency_.Next(Free(), now_);
  ASSERT_TRUE(hold);
  EXPECT_EQ(hold->kind, Kind::kHold);
  EXPECT_FALSE(residency_.Next(Free(), now_));  // Its commands are on the device.
  residency_.Remove(high);
  const auto release = residency_.Next(Free(), now_);
  ASSERT_TRUE(release);
  EXPECT_EQ(release->kind, Kind::kRelease);
  EXPECT_EQ(release->client, low);
}

TEST_F(ResidencyTest, AMoveInThatFindsNoRoomIsNotTriedAgainAtOnce) {
  const ClientId client = Add(0);
  Of(client).movable_bytes = 60 * kStep;
  residency_.OnMemory(client, Of(client), now_);
  Busy(client);
  const auto first = residency_.Next(Free(), now_);
  ASSERT_TRUE(first && first->kind == Kind::kMoveIn);
  residency_.OnMoved(client, Of(client), now_);
  EXPECT_FALSE(residency_.Next(Free(), now_));
  EXPECT_EQ(residency_.wake_at(), now_ + 1ms);
  now_ += 1ms;
  ASSERT_TRUE(Comes(client));
}

// ---- by step

class ResidencyByStep : public ResidencyTest {
 protected:
  // The other one has what it asked for, and the first one lacks 40 of its 80 steps.
  void Begin() {
    Grow(one_, 80);
    Busy(one_);
    residency_.AskRoom(other_, 60 * kStep, now_);
    now_ += 1s;
    ASSERT_EQ(Settle()->kind, Kind::kRoom);
    Grow(other_, 60);
    Busy(other_);
    ASSERT_EQ(Of(one_).absent_bytes(), 40 * kStep);
  }

  const ClientId one_ = Add(0), other_ = Add(0);
};

TEST_F(ResidencyByStep, WhoTouchesLittleComesInWithThatAlone) {
  Begin();
  Needs(one_, 5);
  Settle();
  EXPECT_FALSE(Runs(one_)) << "the other one has its stay";
  now_ += 1s;
  Settle();
  EXPECT_TRUE(Runs(one_));
  EXPECT_EQ(Of(one_).resident_bytes, 45 * kStep);
  EXPECT_EQ(Of(other_).resident_bytes, 55 * kStep);
  EXPECT_EQ(residency_.ResidentBytes(one_), 45 * kStep);
  EXPECT_FALSE(residency_.IsShutOut(one_));
}

TEST_F(ResidencyByStep, WhoseStepsAreThereGoesOnAtOnce) {
  Begin();
  Needs(one_, 0);
  Settle();
  EXPECT_TRUE(Runs(one_));
  EXPECT_TRUE(Runs(other_));
  EXPECT_FALSE(residency_.wake_at()) << "nobody lacks anything";
}

TEST_F(ResidencyByStep, DuringItsStayAClientGoesFirstWithWhatFurtherCommandsTouch) {
  Begin();
  Needs(one_, 5);
  now_ += 1s;
  Settle();
  ASSERT_TRUE(Runs(one_));
  Settle();
  ASSERT_FALSE(Runs(other_)) << "it lacks what made room";
  Needs(one_, 3);
  Settle();
  EXPECT_TRUE(Runs(one_));
  EXPECT_EQ(Of(other_).resident_bytes, 52 * kStep);
  // All that came in for it counts for its stay, and then it is the other one's turn.
  EXPECT_EQ(Of(one_).resident_bytes, 48 * kStep);
  const TimePoint since = now_;
  EXPECT_TRUE(Comes(other_));
  EXPECT_GT(now_ - since, 20ms);
  EXPECT_LT(now_ - since, 200ms);
}

TEST_F(ResidencyByStep, WhoGrowsNeedsAllOfItsMemory) {
  Begin();
  Needs(one_, 0);
  Settle();
  residency_.AskRoom(one_, 10 * kStep, now_);
  now_ += 1s;
  ASSERT_EQ(Settle()->kind, Kind::kRoom);
  EXPECT_TRUE(Of(one_).is_whole());
  EXPECT_EQ(Free(), 10 * kStep);
}

TEST_F(ResidencyByStep, WithinItsGuaranteeAClientHasAllOfItsMemory) {
  Begin();
  Needs(one_, 0);
  Settle();
  residency_.Change(one_, {.guaranteed_bytes = 80 * kStep}, now_);
  Settle();
  EXPECT_TRUE(Of(one_).is_whole());
}

TEST_F(ResidencyTest, WaitsCountFromTheWishToTheReturn) {
  const ClientId high = Add(50, SchedulingClass::kHigh), low = Add(10);
  Grow(low, 90);
  residency_.AskRoom(high, 40 * kStep, now_);
  Settle();
  Grow(high, 40);
  now_ += 1s;  // Out, and idle.
  EXPECT_EQ(residency_.WaitedFor(low, now_), 0ns);
  Busy(low);
  now_ += 3ms;
  EXPECT_EQ(residency_.WaitedFor(low, now_), 3ms);
  EXPECT_TRUE(residency_.IsShutOut(low));
  Of(high) = {};
  residency_.OnMemory(high, Of(high), now_);
  ASSERT_TRUE(Comes(low));
  EXPECT_EQ(residency_.WaitedFor(low, now_), 3ms + 30ms);
  now_ += 1s;
  EXPECT_EQ(residency_.WaitedFor(low, now_), 3ms + 30ms);
}

// Of two busy clients that fill the device, the second one asks for more. The stay of the first
// one is over.
class MemoryNotice : public ResidencyTest {
 protected:
  MemoryNotice() : ResidencyTest(2ms) {
    Grow(one_, 60);
    Busy(one_);
    Grow(other_, 40);
    Busy(other_);
    now_ += 1s;
  }
  // One action after the other.
  MemoryAction Expect(Kind kind) {
    const auto action = residency_.Next(Free(), now_);
    EXPECT_TRUE(action && action->kind == kind) << static_cast<int>(kind);
    return action.value_or(MemoryAction{});
  }

  const ClientId one_ = Add(0), other_ = Add(0);
};

TEST_F(MemoryNotice, WhoRunsIsToldAndMayFreeWhatItDoesNotNeed) {
  residency_.AskRoom(other_, 20 * kStep, now_);
  EXPECT_FALSE(Settle());
  EXPECT_EQ(residency_.WantedBytes(one_), 20 * kStep);
  EXPECT_EQ(residency_.wake_at(), now_ + 2ms);
  now_ += 1ms;
  Of(one_).movable_bytes -= 20 * kStep;
  Of(one_).resident_bytes -= 20 * kStep;
  residency_.OnMemory(one_, Of(one_), now_);
  EXPECT_EQ(Expect(Kind::kRoom).client, other_);
  EXPECT_FALSE(Settle());
  EXPECT_EQ(residency_.WantedBytes(one_), 0u);
  EXPECT_EQ(moved_out_, 0u);
  EXPECT_TRUE(IsThere(one_));
}

TEST_F(MemoryNotice, WhoDoesNothingIsMovedWhenTheNoticeIsOver) {
  residency_.AskRoom(other_, 20 * kStep, now_);
  EXPECT_FALSE(Settle());
  now_ += 2ms;
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, Kind::kRoom);
  EXPECT_EQ(moved_out_, 20u);
}

TEST_F(MemoryNotice, AGuaranteeWaitsForNoNotice) {
  const ClientId high = Add(50, SchedulingClass::kHigh);
  residency_.AskRoom(high, 20 * kStep, now_);
  EXPECT_EQ(Expect(Kind::kHold).client, one_);
  EXPECT_EQ(residency_.WantedBytes(one_), 0u) << "it could free nothing in time";
}

TEST_F(MemoryNotice, AMoveForOneWithoutARightEndsForOneWithARight) {
  residency_.AskRoom(other_, 20 * kStep, now_);
  EXPECT_FALSE(residency_.Next(Free(), now_));
  now_ += 2ms;
  EXPECT_EQ(Expect(Kind::kHold).client, one_);
  residency_.OnDrained(one_, now_);
  EXPECT_EQ(Expect(Kind::kMoveOut).client, one_);
  EXPECT_FALSE(residency_.Next(Free(), now_));
  const ClientId high = Add(50, SchedulingClass::kHigh);
  residency_.AskRoom(high, 2 * kStep, now_);
  EXPECT_EQ(Expect(Kind::kCut).client, one_);
  EXPECT_FALSE(residency_.Next(Free(), now_)) << "once is enough";
  Of(one_).resident_bytes -= kStep;
  residency_.OnMoved(one_, Of(one_), now_);
  const auto next = residency_.Next(Free(), now_);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->beneficiary, high);
}

// Each client that runs is to stop once. After one move the others go out before it.
TEST_F(MemoryNotice, StopsOfAllThatMakeRoomArePromised) {
  stop_ = 3ms;
  residency_.AskRoom(Add(80, SchedulingClass::kHigh), 8 * kStep, now_);
  Settle();  // A first stop, so that it is known.
  residency_.Remove(room_for_);
  const auto wait = [&](std::uint64_t steps) {
    EXPECT_TRUE(Comes(one_) && Comes(other_));
    const ClientId high = Add(steps, SchedulingClass::kHigh);
    const std::optional<Duration> promised = PromisedTo(high);
    residency_.AskRoom(high, steps * kStep, now_);
    Settle();
    const Room room = residency_.LastRoomOf(high);
    EXPECT_EQ(room.promised, promised) << steps;
    EXPECT_EQ(room.waited, promised) << steps;
    residency_.Remove(high);
    return room.waited;
  };
  EXPECT_EQ(wait(8), Duration(8ms + 3ms));
  EXPECT_EQ(wait(20), Duration(20ms + 2 * 3ms));
  EXPECT_EQ(wait(70), Duration(70ms + 2 * 3ms));
}

TEST_F(MemoryNotice, WhoHadNothingToStopSaysNothingOfStops) {
  const ClientId high = Add(80, SchedulingClass::kHigh);
  for (int visit = 0; visit < 70; ++visit) {
    stop_ = visit == 0 ? Duration(3ms) : Duration::zero();
    residency_.AskRoom(high, 8 * kStep, now_);
    Settle();
    residency_.OnMemory(high, {}, now_);
    EXPECT_TRUE(Comes(one_) && Comes(other_));
  }
  EXPECT_EQ(residency_.rooms().stop, 3ms);
}

// Neither of the last two goes out before the other.
TEST_F(MemoryNotice, ThoseThatCameAtOneTimeStopEachForThemselves) {
  Of(one_).movable_bytes -= 30 * kStep;
  Of(one_).resident_bytes -= 30 * kStep;
  residency_.OnMemory(one_, Of(one_), now_);
  const ClientId third = Add(0);
  Grow(third, 30);
  Busy(third);
  const ClientId high = Add(80, SchedulingClass::kHigh);
  residency_.AskRoom(high, 10 * kStep, now_);
  const ClientId stops = Expect(Kind::kHold).client;
  now_ += 3ms;
  residency_.OnDrained(stops, now_);
  Settle();
  residency_.Remove(high);
  ASSERT_TRUE(Comes(stops));
  EXPECT_EQ(PromisedTo(Add(100)), Duration(100ms + 3 * 3ms));
}

TEST_F(MemoryNotice, AMoveForAGuaranteeIsNotCutForAnotherOne) {
  const ClientId high = Add(30, SchedulingClass::kHigh), third = Add(30, SchedulingClass::kHigh);
  residency_.AskRoom(third, 20 * kStep, now_);
  EXPECT_EQ(Expect(Kind::kHold).client, one_);
  residency_.OnDrained(one_, now_);
  EXPECT_EQ(Expect(Kind::kMoveOut).beneficiary, third);
  residency_.AskRoom(high, 20 * kStep, now_);
  EXPECT_FALSE(residency_.Next(Free(), now_));
}

TEST_F(MemoryNotice, AMoveInThatWasCutGoesOnAtOnceAfterwards) {
  Of(other_).movable_bytes = 60 * kStep;  // It was moved out before.
  residency_.OnMemory(other_, Of(other_), now_);
  Of(one_) = {};
  residency_.OnMemory(one_, Of(one_), now_);
  EXPECT_EQ(Expect(Kind::kMoveIn).client, other_);
  const ClientId high = Add(50, SchedulingClass::kHigh);
  residency_.AskRoom(high, 10 * kStep, now_);
  EXPECT_EQ(Expect(Kind::kCut).client, other_);
  Of(other_).resident_bytes += kStep;  // The present step is made.
  residency_.OnMoved(other_, Of(other_), now_);
  EXPECT_EQ(Expect(Kind::kRoom).client, high);
  EXPECT_EQ(Expect(Kind::kMoveIn).client, other_);
}

// It takes a step of its guarantee and gives it back, and asks whenever others move.
TEST_F(MemoryNotice, WhoAsksForRoomAllTheTimeKeepsNobodyOut) {
  Of(other_).movable_bytes = 60 * kStep;  // It was moved out before.
  residency_.OnMemory(other_, Of(other_), now_);
  const ClientId nagging = Add(1, SchedulingClass::kHigh);
  int cuts = 0;
  for (int turn = 0; turn < 1000 && !IsThere(other_); ++turn) {
    const auto action = residency_.Next(Free(), now_);
    if (!action) {
      now_ = residency_.wake_at().value_or(now_ + 1ms);
      continue;
    }
    if (action->kind == Kind::kHold) residency_.OnDrained(action->client, now_);
    if (action->kind == Kind::kRoom) residency_.OnMemory(nagging, {}, now_);
    if (action->kind != Kind::kMoveOut && action->kind != Kind::kMoveIn) continue;
    std::uint64_t moved = action->bytes;
    if (action->beneficiary != nagging) {
      residency_.AskRoom(nagging, kStep, now_);
      EXPECT_EQ(Expect(Kind::kCut).client, action->client);
      moved = kStep;  // The present step is made.
      ++cuts;
    }
    now_ += 1ms;
    MemoryHeld& held = Of(action->client);
    held.resident_bytes += action->kind == Kind::kMoveIn ? moved : 0 - moved;
    residency_.OnMoved(action->client, held, now_);
  }
  EXPECT_TRUE(IsThere(other_));
  EXPECT_GE(cuts, 20);
}

// High clients ask for room that they have a right to. A step takes 1 ms.
class OwedRoomTest : public ResidencyTest {
 protected:
  OwedRoomTest() {
    Grow(low_, 100);
    Busy(low_);
  }
  // The client that has the room.
  ClientId HaveRoom(std::uint64_t steps) {
    const ClientId high = Add(40, SchedulingClass::kHigh);
    residency_.AskRoom(high, steps * kStep, now_);
    Settle();
    EXPECT_EQ(room_for_, high);
    Grow(high, steps);
    return high;
  }

  const ClientId low_ = Add(0);
};

TEST_F(OwedRoomTest, NothingIsPromisedBeforeTheSpeedIsKnown) {
  HaveRoom(8);
  EXPECT_EQ(residency_.rooms().rooms, 0u);
  // 2 MiB in 1 ms.
  EXPECT_EQ(residency_.rooms().out_bytes_per_s, 1000 * kStep);
  EXPECT_EQ(residency_.rooms().in_bytes_per_s, 0u);
}

TEST_F(OwedRoomTest, ItTakesAsLongAsItsBytes) {
  HaveRoom(8);
  HaveRoom(20);
  const RoomReport report = residency_.rooms();
  EXPECT_EQ(report.rooms, 1u);
  EXPECT_EQ(report.late, 0u);
  EXPECT_EQ(report.longest, 20ms);
  EXPECT_EQ(report.longest_promised, 20ms);
}

TEST_F(OwedRoomTest, AMoveThatIsHeldUpMakesItLate) {
  HaveRoom(8);
  delay_ = 5ms;
  HaveRoom(20);
  HaveRoom(4);
  const RoomReport report = residency_.rooms();
  EXPECT_EQ(report.rooms, 2u);
  EXPECT_EQ(report.late, 1u);
  EXPECT_EQ(report.longest, 25ms);
  EXPECT_EQ(report.longest_promised, 20ms);
}

// The longest of those before: what a stop takes is not known before it is over.
TEST_F(OwedRoomTest, TheLongestStopIsPartOfThePromise) {
  const ClientId first = HaveRoom(8);
  Of(first) = {};
  residency_.Remove(first);
  const auto ask = [&](std::uint64_t steps, scheduler::Duration stop) {
    ASSERT_TRUE(Comes(low_));
    const ClientId high = Add(40, SchedulingClass::kHigh);
    residency_.AskRoom(high, steps * kStep, now_);
    ASSERT_EQ(residency_.Next(Free(), now_).value().kind, Kind::kHold);
    EXPECT_FALSE(residency_.Next(Free(), now_));
    now_ += stop;
    residency_.OnDrained(low_, now_);
    Settle();
    residency_.Remove(high);
  };
  ask(10, 3ms);
  EXPECT_EQ(residency_.rooms().late, 1u) << "nobody had taken so long";
  EXPECT_EQ(residency_.rooms().stop, 3ms);
  ask(12, 2ms);
  const RoomReport report = residency_.rooms();
  EXPECT_EQ(report.rooms, 2u);
  EXPECT_EQ(report.late, 1u);
  EXPECT_EQ(report.longest, 14ms);
  EXPECT_EQ(report.longest_promised, 15ms);
}

TEST_F(OwedRoomTest, WhatAGuaranteeLeavesIsPromisedBeforeItIsAsked) {
  const ClientId first = HaveRoom(8);
  EXPECT_EQ(PromisedTo(first), Duration(32ms));
  EXPECT_EQ(residency_.LastRoomOf(first).bytes, 0u) << "nothing was known";
  const ClientId second = HaveRoom(20);
  const Room room = residency_.LastRoomOf(second);
  EXPECT_EQ(room.bytes, 20 * kStep);
  EXPECT_EQ(room.waited, 20ms);
  EXPECT_EQ(room.promised, 20ms);
  EXPECT_EQ(PromisedTo(low_), std::nullopt);
}

TEST_F(OwedRoomTest, OneSlowMoveOfManyIsPartOfThePromiseOnce) {
  const ClientId high{7};
  for (int visit = 0; visit < 50; ++visit) {
    residency_.Add(high,
                   {.guaranteed_bytes = 40 * kStep, .scheduling_class = SchedulingClass::kHigh});
    residency_.AskRoom(high, 2 * kStep, now_);
    if (visit == 45) delay_ = 5ms;
    Settle();
    ASSERT_EQ(PromisedTo(high).value(), visit < 45 ? 38ms : 58ms) << visit;
    residency_.Remove(high);
    ASSERT_TRUE(Comes(low_));
  }
  EXPECT_EQ(residency_.rooms().late, 1u);
  EXPECT_EQ(residency_.rooms().out_bytes_per_s, 1000 * kStep);
  // 4 MiB took 7 ms and not 2. As slow, the largest move would take 28 ms and not 8.
  EXPECT_EQ(residency_.rooms().delay, 20ms);
}

// They wait for others, and an urgent one does not.
TEST_F(OwedRoomTest, MovesForThoseWithoutARightMakeNoPromiseLonger) {
  const ClientId high = HaveRoom(8);
  delay_ = 100ms;
  const ClientId other = Add(0);
  residency_.AskRoom(other, 20 * kStep, now_);
  now_ += 1s;
  Settle();
  EXPECT_EQ(room_for_, other);
  EXPECT_EQ(PromisedTo(high), Duration(32ms));
}

TEST_F(OwedRoomTest, WhatIsFreeTakesNoTime) {
  const ClientId first = HaveRoom(8);
  const std::optional<Duration> full = PromisedTo(first);
  EXPECT_GT(full, Duration::zero());
  EXPECT_EQ(residency_.PromisedTo(first, Free() + 8 * kStep, now_), *full - 8ms);
  EXPECT_EQ(residency_.PromisedTo(first, 100 * kStep, now_), Duration::zero());
}

TEST_F(OwedRoomTest, RoomBeyondAGuaranteeIsPromisedNothing) {
  HaveRoom(8);
  const ClientId other = Add(0);
  residency_.AskRoom(other, 20 * kStep, now_);
  now_ += 1s;
  Settle();
  EXPECT_EQ(room_for_, other);
  EXPECT_EQ(residency_.rooms().rooms, 0u);
}

class FailingStore : public MemoryNotice {
 protected:
  // The first move out of one_, on whosever behalf.
  MemoryAction FailToMove() {
    if (const auto at = residency_.wake_at()) now_ = *at;
    EXPECT_EQ(Expect(Kind::kHold).client, one_);
    residency_.OnDrained(one_, now_);
    const MemoryAction move = Expect(Kind::kMoveOut);
    residency_.OnMoveFailed(move.client, Of(move.client), now_);
    return move;
  }
};

TEST_F(FailingStore, WhoAskedIsRefusedAndWhoIsThereGoesOn) {
  residency_.AskRoom(other_, 20 * kStep, now_);
  EXPECT_FALSE(Settle());
  EXPECT_FALSE(FailToMove().is_owed);
  EXPECT_EQ(Expect(Kind::kNoRoom).client, other_);
  EXPECT_EQ(Expect(Kind::kRelease).client, one_);
  EXPECT_FALSE(Settle());
  EXPECT_TRUE(IsThere(one_));
  EXPECT_TRUE(IsThere(other_));
}

TEST_F(FailingStore, NoMoveIsCutForOneForWhomNobodyCanMakeRoom) {
  Of(other_).movable_bytes = 60 * kStep;  // It was moved out before.
  residency_.OnMemory(other_, Of(other_), now_);
  EXPECT_FALSE(Settle());
  FailToMove();
  Of(one_) = {.movable_bytes = 40 * kStep, .resident_bytes = 40 * kStep};  // It gave the rest back.
  residency_.OnMemory(one_, Of(one_), now_);
  while (const auto action = residency_.Next(Free(), now_)) {
    if (action->kind == Kind::kMoveIn) break;
  }
  const ClientId high = Add(90, SchedulingClass::kHigh);
  residency_.AskRoom(high, 70 * kStep, now_);
  EXPECT_FALSE(residency_.Next(Free(), now_)) << "the store has just failed";
  now_ += 1s;
  EXPECT_EQ(Expect(Kind::kCut).client, other_);
}

TEST_F(FailingStore, WhoWaitsToComeInTriesAgainAfterAWhile) {
  Of(other_).movable_bytes = 60 * kStep;  // It was moved out before.
  residency_.OnMemory(other_, Of(other_), now_);
  EXPECT_FALSE(Settle());
  FailToMove();
  EXPECT_EQ(Expect(Kind::kRelease).client, one_);
  EXPECT_FALSE(Settle());
  EXPECT_TRUE(IsThere(one_));
  EXPECT_EQ(residency_.wake_at(), now_ + 1s);
  now_ += 1s;
  Settle();
  now_ = residency_.wake_at().value_or(now_);
  Settle();
  EXPECT_TRUE(IsThere(other_));
}

TEST_F(FailingStore, AMoveForAGuaranteeSaysSo) {
  const ClientId high = Add(50, SchedulingClass::kHigh);
  residency_.AskRoom(high, 20 * kStep, now_);
  EXPECT_TRUE(FailToMove().is_owed);
  // Its session ends for it, and nobody else's.
  residency_.Remove(one_);
  EXPECT_FALSE(Settle());
  Of(one_) = {};
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, Kind::kRoom);
  EXPECT_EQ(last->client, high);
  EXPECT_TRUE(IsThere(other_));
}

// Steps move alone, and clients hold more than the device has.
class ByStepTest : public ResidencyTest {
 protected:
  explicit ByStepTest(bool holds_for_moves_in = false)
      : ResidencyTest({}, true, holds_for_moves_in) {}

  // It grows in parts, as a session does.
  void GrowTo(ClientId client, std::uint64_t steps) {
    Busy(client, false);
    while (Of(client).movable_bytes < steps * kStep) {
      residency_.AskRoom(client, 8 * kStep, now_);
      const auto last = Settle();
      ASSERT_TRUE(last && last->kind == Kind::kRoom) << Of(client).movable_bytes / kStep;
      Grow(client, 8);
      Settle();
    }
  }
  // Its next commands touch so many steps, and of those so many are there.
  void Works(ClientId client, std::uint64_t steps, std::uint64_t there) {
    MemoryHeld& held = Of(client);
    held.unneeded_bytes = held.absent_bytes() - (steps - there) * kStep;
    held.spare_bytes = held.resident_bytes - there * kStep;
    residency_.SetUnneeded(client, held.unneeded_bytes, held.spare_bytes, now_);
    Busy(client);
  }
};

TEST_F(ByStepTest, AClientGrowsBeyondTheDeviceAndMakesRoomForItself) {
  const ClientId client = Add(0);
  GrowTo(client, 296);
  EXPECT_EQ(Of(client).resident_bytes, kDevice);
  EXPECT_EQ(moved_out_, 196u);
}

TEST_F(ByStepTest, WhatComesInTakesThePlaceOfWhatItsClientDoesNotTouch) {
  const ClientId client = Add(0);
  GrowTo(client, 296);
  const std::uint64_t before = moved_out_;
  const std::uint64_t times_out = residency_.MovesOf(client).times_out;
  Works(client, 40, 10);
  EXPECT_FALSE(Runs(client));
  Settle();
  EXPECT_TRUE(Runs(client));
  EXPECT_EQ(moved_out_ - before, 30u);
  EXPECT_EQ(residency_.MovesOf(client).in_bytes, 30 * kStep);
  EXPECT_EQ(residency_.MovesOf(client).times_out, times_out) << "it lost nothing that it needs";
}

TEST_F(ByStepTest, OthersKeepWhatTheyWorkOnWhileAClientHasRoomOfItsOwn) {
  const ClientId other = Add(0), client = Add(0);
  Grow(other, 40);
  Works(other, 40, 40);
  GrowTo(client, 96);
  now_ += 10s;  // The other one has had its stay.
  Works(client, 30, 0);
  Settle();
  EXPECT_TRUE(Runs(client));
  EXPECT_TRUE(IsThere(other));
}

TEST_F(ByStepTest, OfBusyOnesTheOneGivesThatHasMemoryToSpare) {
  const ClientId first = Add(0), last = Add(0), client = Add(0);
  Grow(first, 48);
  Works(first, 20, 20);
  Grow(last, 48);
  Works(last, 48, 48);
  now_ += 10s;
  residency_.AskRoom(client, 30 * kStep, now_);
  EXPECT_EQ(Settle()->kind, Kind::kRelease);
  EXPECT_TRUE(IsThere(last));
  EXPECT_EQ(Of(first).resident_bytes, 22 * kStep);
}

TEST_F(ByStepTest, AnIdleOneMakesRoomBeforeWhatABusyOneCanSpare) {
  const ClientId idle = Add(0), client = Add(0);
  Grow(idle, 40);
  GrowTo(client, 56);
  now_ += 10s;
  Works(client, 30, 30);
  residency_.AskRoom(client, 8 * kStep, now_);
  Settle();
  EXPECT_EQ(Of(client).resident_bytes, 56 * kStep);
  EXPECT_EQ(Of(idle).resident_bytes, 36 * kStep);
}

TEST_F(ByStepTest, WhatTakesThePlaceOfItsOwnMemoryBuysNoLongerStay) {
  const ClientId client = Add(0), other = Add(0);
  GrowTo(client, 296);
  Works(client, 60, 60);
  residency_.AskRoom(other, 8 * kStep, now_);
  Settle();
  // It goes on and on to further parts.
  const TimePoint latest = now_ + 2s;
  while (room_for_ != other && now_ < latest) {
    Works(client, 60, 20);
    Settle();
    now_ += 1ms;
  }
  EXPECT_EQ(room_for_, other);
}

TEST_F(ByStepTest, ABusyClientGrowsOnceItsCommandsLeaveRoom) {
  const ClientId client = Add(0);
  GrowTo(client, 96);
  Works(client, 96, 96);
  residency_.AskRoom(client, 8 * kStep, now_);
  EXPECT_FALSE(Settle()) << "all that it has is needed";
  EXPECT_FALSE(residency_.IsHeld(client)) << "and runs on";
  Busy(client, false);
  const auto last = Settle();
  ASSERT_TRUE(last);
  EXPECT_EQ(moved_out_, 4u);
}

// And come in while nothing of their client runs.
class QuietByStepTest : public ByStepTest {
 protected:
  QuietByStepTest() : ByStepTest(true) {}
};

TEST_F(QuietByStepTest, StepsComeInOnceNothingOfTheirClientRuns) {
  const ClientId client = Add(0);
  Of(client) = {.movable_bytes = 60 * kStep, .resident_bytes = 30 * kStep};
  residency_.OnMemory(client, Of(client), now_);
  Works(client, 36, 30);
  const auto held = residency_.Next(Free(), now_);
  ASSERT_TRUE(held);
  EXPECT_EQ(held->kind, Kind::kHold);
  EXPECT_FALSE(residency_.Next(Free(), now_)) << "its commands still run";
  residency_.OnDrained(client, now_);
  const auto moved = residency_.Next(Free(), now_);
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->kind, Kind::kMoveIn);
  Of(client).resident_bytes = 36 * kStep;
  Of(client).unneeded_bytes = Of(client).absent_bytes();
  residency_.OnMoved(client, Of(client), now_);
  EXPECT_EQ(residency_.Next(Free(), now_)->kind, Kind::kRelease);
  EXPECT_TRUE(Runs(client));
  // It came back, and is held again for its next steps, whatever it was before.
  Works(client, 40, 36);
  EXPECT_EQ(residency_.Next(Free(), now_)->kind, Kind::kHold);
  EXPECT_FALSE(residency_.Next(Free(), now_)) << "it was quiet before, and is not now";
}

// Its kernel may wait for what it writes itself from another stream.
TEST_F(QuietByStepTest, OneWhoseCommandsDoNotEndHoldsUpNobodyElse) {
  const ClientId endless = Add(0), other = Add(0);
  for (const ClientId each : {endless, other}) {
    Of(each) = {.movable_bytes = 40 * kStep, .resident_bytes = 20 * kStep};
    residency_.OnMemory(each, Of(each), now_);
    Works(each, 26, 20);
  }
  EXPECT_EQ(residency_.Next(Free(), now_)->client, endless);
  const auto next = residency_.Next(Free(), now_);
  ASSERT_TRUE(next) << "there is room for both";
  EXPECT_EQ(next->kind, Kind::kHold);
  EXPECT_EQ(next->client, other);
  residency_.OnDrained(other, now_);
  EXPECT_EQ(residency_.Next(Free(), now_)->kind, Kind::kMoveIn);
}

TEST_F(ByStepTest, WhatNeverFitsIsRefusedAtOnce) {
  const ClientId guaranteed = Add(50), client = Add(0);
  Grow(guaranteed, 50);
  residency_.AskRoom(client, 51 * kStep, now_);
  EXPECT_EQ(Settle()->kind, Kind::kNoRoom);
  EXPECT_EQ(residency_.RoomFor(client), 50 * kStep);
  GrowTo(client, 96);
  Works(client, 51, 5);
  EXPECT_TRUE(residency_.IsShutOut(client));
  Works(client, 50, 5);
  EXPECT_FALSE(residency_.IsShutOut(client));
}

}  // namespace
}  // namespace gpushared::scheduler
