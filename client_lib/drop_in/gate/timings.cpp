// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/gate/timings.h"

#include "client_lib/drop_in/gate/driver_functions.h"

namespace gpushared::drop_in::gate {
namespace {

using State = Timings::Pair::State;

bool Take(Timings::Pair& pair, State from) {
  return pair.state.compare_exchange_strong(from, State::kTaken, std::memory_order_acquire);
}

void Destroy(Timings::Pair& pair) {
  if (pair.before != nullptr) (void)driver_functions.event_destroy(pair.before);
  if (pair.after != nullptr) (void)driver_functions.event_destroy(pair.after);
  pair.before = pair.after = nullptr;
  pair.context = nullptr;
}

// Returns whether the pair has events of this context. If the pair has no events, creates them.
bool HasEvents(Timings::Pair& pair, ContextHandle context) {
  if (pair.context != nullptr) return pair.context == context;
  if (driver_functions.event_create(&pair.before, 0) != Code::kSuccess ||
      driver_functions.event_create(&pair.after, 0) != Code::kSuccess) {
    Destroy(pair);
    return false;
  }
  pair.context = context;
  return true;
}

}  // namespace

Timings::Pair* Timings::Begin(LaunchKey key, StreamHandle stream) {
  const OutsideCaptures outside;
  if (!outside) return nullptr;
  Collect();
  ContextHandle context = nullptr;
  if (driver_functions.ctx_get_current(&context) != Code::kSuccess || context == nullptr)
    return nullptr;
  for (Pair& pair : pairs_) {
    if (!Take(pair, State::kFree)) continue;
    if (HasEvents(pair, context) &&
        driver_functions.event_record(pair.before, stream) == Code::kSuccess) {
      pair.key = key;
      return &pair;
    }
    pair.state.store(State::kFree, std::memory_order_release);
  }
  return nullptr;
}

void Timings::End(Pair* pair, StreamHandle stream, Code code) {
  if (pair == nullptr) return;
  const OutsideCaptures outside;
  const bool is_measured = outside && code == Code::kSuccess &&
                           driver_functions.event_record(pair->after, stream) == Code::kSuccess;
  pair->state.store(is_measured ? State::kRecorded : State::kFree, std::memory_order_release);
}

void Timings::Collect() {
  for (Pair& pair : pairs_) {
    if (pair.state.load(std::memory_order_relaxed) != State::kRecorded) continue;
    if (!Take(pair, State::kRecorded)) continue;
    const Code code = driver_functions.event_query(pair.after);
    if (code == Code::kNotReady) {
      pair.state.store(State::kRecorded, std::memory_order_release);
      continue;
    }
    float milliseconds = 0;
    if (code == Code::kSuccess &&
        driver_functions.event_elapsed(&milliseconds, pair.before, pair.after) == Code::kSuccess &&
        milliseconds >= 0) {
      costs_.Add(pair.key, static_cast<std::uint64_t>(milliseconds * 1e6));
    }
    pair.state.store(State::kFree, std::memory_order_release);
  }
}

void Timings::DestroyEvents() {
  for (Pair& pair : pairs_) {
    if (!Take(pair, State::kFree) && !Take(pair, State::kRecorded)) continue;
    Destroy(pair);
    pair.state.store(State::kFree, std::memory_order_release);
  }
}

}  // namespace gpushared::drop_in::gate
