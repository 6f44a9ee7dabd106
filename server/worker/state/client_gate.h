// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_CLIENT_GATE_H_
#define GPUSHARED_SERVER_WORKER_STATE_CLIENT_GATE_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>

#include "ipc/wire/bytes.h"
#include "ipc/wire/layout.h"
#include "scheduler/types.h"

namespace gpushared::server {

// Opens and closes the gate of a gated client (docs/protocol.md), and reads what the client has
// submitted. The client's figures are untrusted: a false one delays other clients by at most
// Turns::kDrainMax at the end of a turn.
//
// Confined to the device thread.
class ClientGate {
 public:
  // What the client has submitted so far.
  struct Use {
    std::uint64_t launches = 0;
    std::uint64_t passed = 0;    // Grows whenever the GPU passes a mark of the client.
    bool has_passed_all = true;  // The GPU has passed every mark.
    scheduler::Duration tail{};  // Predicted time of the launches after the marks.
  };

  // Both segments must outlive this.
  ClientGate(ipc::CompletionSegment& completions, const ipc::CommandSegment& commands)
      : state_(completions.gate), use_(commands.gate) {}

  // `window`: predicted time that the client may have in flight; zero for no limit, if no other
  // client is connected. A client that does not wait may submit while the gate is closed.
  void SetTerms(scheduler::Duration window, bool waits) {
    // Relaxed: the client may act on the old values a moment longer.
    state_.window_ns.store(static_cast<std::uint32_t>(window.count()), std::memory_order_relaxed);
    state_.waits.store(waits ? 1 : 0, std::memory_order_relaxed);
  }
  // Values of the last terms: whether the client waits for the gate, and whether no other client is
  // connected.
  bool waits() const { return state_.waits.load(std::memory_order_relaxed) != 0; }
  bool is_alone() const { return state_.window_ns.load(std::memory_order_relaxed) == 0; }

  // The caller wakes the client's threads afterwards.
  void Open(std::uint64_t turn) {
    const std::uint64_t last = state_.last_opened.load(std::memory_order_relaxed);
    state_.last_opened.store(std::max(last, turn), std::memory_order_seq_cst);
    state_.open.store(turn, std::memory_order_seq_cst);
  }
  // Sequentially consistent, like the client's count and its subsequent load of the gate, so that
  // either a later Read sees the launch, or the launch sees the closed gate.
  void Close(std::uint64_t turn) {
    if (state_.open.load(std::memory_order_relaxed) != turn) return;
    state_.open.store(0, std::memory_order_seq_cst);
  }

  Use Read() const {
    Use use;
    std::uint64_t tail_ns = 0;
    use.launches = use_.submitted.load(std::memory_order_seq_cst);
    const std::uint32_t slots =
        std::min(use_.slots.load(std::memory_order_acquire), ipc::kStreamsMax);
    for (std::uint32_t i = 0; i < slots; ++i) {
      const std::uint32_t marked = use_.marked[i].load(std::memory_order_acquire);
      const std::uint32_t passed = use_.passed[i].load(std::memory_order_relaxed);
      use.passed += passed;
      use.has_passed_all = use.has_passed_all && marked == passed;
      // Loaded in this order, because a mark never covers more than the launches counted so far.
      const std::uint64_t marked_ns = use_.marked_ns[i].load(std::memory_order_acquire);
      const std::uint64_t launched_ns = use_.launched_ns[i].load(std::memory_order_relaxed);
      tail_ns += std::min(launched_ns - marked_ns, kTailNsMax);
    }
    // Clamped before the conversion, because a duration is signed.
    use.tail = scheduler::Duration(std::min(tail_ns, kTailNsMax));
    return use;
  }
  // Returns how many of these launches have not been counted for a turn yet, and counts them. A
  // client that does not wait may submit launches between two turns; they count toward the later
  // turn.
  std::uint64_t CountLaunches(std::uint64_t launches) {
    const auto more = static_cast<std::int64_t>(launches - counted_);
    // The client's number may have decreased, because the client subtracts launches that have to
    // wait, and because the number is untrusted.
    if (more <= 0) return 0;
    counted_ = launches;
    return std::min(static_cast<std::uint64_t>(more), kLaunchesMax);
  }
  std::uint64_t counted() const { return counted_; }

  // Predicted time of the current turn's longest launch; zero if no launch has been measured.
  std::chrono::nanoseconds longest() const {
    return std::chrono::nanoseconds(use_.longest_ns.load(std::memory_order_relaxed));
  }
  // Name of that launch: of its kernel, or "graph" or "copy". Unprintable characters are replaced.
  // May be empty.
  std::string LongestName() const {
    std::string name(ipc::kLongestNameBytes, '\0');
    for (std::size_t i = 0; i < std::size(use_.longest_name); ++i) {
      const std::uint64_t word = use_.longest_name[i].load(std::memory_order_relaxed);
      std::memcpy(name.data() + i * sizeof word, &word, sizeof word);
    }
    name.resize(std::min(name.find('\0'), name.size()));
    return ipc::PrintableText(name);
  }

  std::uint64_t held_bytes() const { return use_.held_bytes.load(std::memory_order_relaxed); }
  std::uint64_t passes() const { return use_.passes.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint64_t kTailNsMax = 20'000'000;
  static constexpr std::uint64_t kLaunchesMax = 1u << 30;  // Per turn.

  ipc::GateState& state_;
  const ipc::GateUse& use_;
  std::uint64_t counted_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_CLIENT_GATE_H_
