// SPDX-License-Identifier: Apache-2.0
#include "server/worker/dispatch/turns.h"

#include <algorithm>
#include <utility>

namespace gpushared::server {

void Turns::Begin(ClientState& client, const CommandSlot& command, scheduler::TimePoint now) {
  const ClientGate::Use use = client.gate.Read();
  turns_.push_back({.id = command.name(),
                    .client = &client,
                    .number = command.sequence,
                    .units_before = command.units_done,
                    .last = use,
                    .began = now,
                    .changed_at = now,
                    .closed_at = {}});
  client.gate.Open(command.sequence);
  client.output.WakeThreads();
}

Turns::Turn* Turns::Find(device::WorkId id) {
  const auto turn = std::ranges::find(turns_, id, &Turn::id);
  return turn == turns_.end() ? nullptr : &*turn;
}

void Turns::Close(Turn& turn, Ending ending) {
  if (turn.ending == Ending::kNone) ++closed_;
  turn.ending = std::max(turn.ending, ending);
  turn.client->gate.Close(turn.number);
}

void Turns::RequestStop(device::WorkId id) {
  if (Turn* const turn = Find(id)) Close(*turn, Ending::kStop);
}

void Turns::RequestKill(device::WorkId id) {
  if (Turn* const turn = Find(id)) Close(*turn, Ending::kKill);
}

void Turns::End(const ClientState& client) {
  for (Turn& turn : turns_) {
    if (turn.client == &client) Close(turn, Ending::kEnd);
  }
}

void Turns::KillAll() {
  for (Turn& turn : turns_) Close(turn, Ending::kKill);
}

bool Turns::HasDrained(const Turn& turn, scheduler::TimePoint now) const {
  return turn.last.has_passed_all && now - turn.changed_at >= turn.last.tail;
}

bool Turns::Review(Turn& turn, scheduler::TimePoint now) {
  ClientGate& gate = turn.client->gate;
  const ClientGate::Use use = gate.Read();
  if (use.launches != turn.last.launches || use.passed != turn.last.passed) turn.changed_at = now;
  turn.last = use;
  if (turn.ending == Ending::kNone && limit_ && !gate.is_alone() && now - turn.began >= *limit_) {
    Close(turn, Ending::kEnd);
  }
  if (turn.ending == Ending::kKill) return true;
  if (turn.ending != Ending::kNone) {
    if (!turn.closed_at) turn.closed_at = now;
    return HasDrained(turn, now) || now - *turn.closed_at >= kDrainMax;
  }
  const bool is_used = use.launches != gate.counted();
  if (!HasDrained(turn, now) || now - turn.changed_at < use.tail + (is_used ? kIdle : kUnused)) {
    return false;
  }
  gate.Close(turn.number);
  const bool is_idle = gate.Read().launches == use.launches;
  if (is_idle) return true;
  gate.Open(turn.number);
  turn.client->output.WakeThreads();  // A thread may have found the gate closed.
  return false;
}

void Turns::TakeCompletions(std::vector<device::Completion>& out, scheduler::TimePoint now) {
  if (turns_.empty()) [[likely]]
    return;
  std::erase_if(turns_, [&](Turn& turn) {
    if (!Review(turn, now)) return false;
    if (turn.ending != Ending::kNone) --closed_;
    const auto at = [](scheduler::TimePoint time) {
      return device::DeviceClock::time_point(time.time_since_epoch());
    };
    device::Completion& completion = out.emplace_back();
    completion.id = turn.id;
    if (turn.ending == Ending::kKill) {
      completion.status = Status(StatusCode::kCancelled, "the turn was ended");
    }
    completion.stopped = turn.ending == Ending::kStop;
    completion.units_done = turn.units_before + turn.client->gate.CountLaunches(turn.last.launches);
    completion.started = at(turn.began);
    completion.ended = at(now);
    completion.times_are_exact = false;
    return true;
  });
}

}  // namespace gpushared::server
