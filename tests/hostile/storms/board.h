// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_HOSTILE_STORMS_BOARD_H_
#define GPUSHARED_TESTS_HOSTILE_STORMS_BOARD_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpushared::storms {

// What was begun, and how long it took. Lies in shared memory.
struct Sample {
  std::atomic<std::int64_t> began_ns{0};  // Of the steady clock; 0: not written yet.
  std::atomic<std::int64_t> took_ns{0};   // 0: not over; kRejected: it failed.

  static constexpr std::int64_t kRejected = -1;
};

// Thread-safe, between processes too. What does not fit is not kept.
class SampleLog {
 public:
  static constexpr std::size_t kSamplesMax = std::size_t{1} << 17;

  Sample& Begin(std::int64_t now_ns) {
    // Relaxed: whoever reads a sample looks at its began_ns.
    const std::size_t index = begun_.fetch_add(1, std::memory_order_relaxed);
    Sample& sample = samples_[index < kSamplesMax ? index : kSamplesMax - 1];
    sample.began_ns.store(now_ns, std::memory_order_release);
    return sample;
  }
  // How many were begun and kept.
  std::size_t size() const {
    const std::size_t begun = begun_.load(std::memory_order_acquire);
    return begun < kSamplesMax ? begun : kSamplesMax;
  }
  const Sample& operator[](std::size_t index) const { return samples_[index]; }

 private:
  std::atomic<std::size_t> begun_{0};
  std::array<Sample, kSamplesMax> samples_;
};

// A sentence that one process leaves for another: the first of its kind.
struct FirstWords {
  std::atomic<bool> taken{false};
  std::array<char, 512> text{};
};

// All that the processes of one storm tell the one that measures. Lies in shared memory.
struct Board {
  // ---- the honest client
  SampleLog requests;                          // The n-th is of the n-th arrival.
  std::atomic<std::int64_t> first_arrival_ns;  // 0 until it is calibrated.
  std::atomic<std::int64_t> service_ns;        // One request takes it, alone.
  std::atomic<std::uint64_t> wrong_results, reconnects;
  // ---- new clients
  SampleLog welcomes, loads, results;  // Each since its own beginning; results since connecting.
  std::atomic<std::uint64_t> new_clients_left_out;  // Too many were under way.
  // ---- attackers
  std::atomic<std::uint64_t> deeds, rejected_deeds;
  FirstWords honest_words, new_client_words, attacker_words;
};

}  // namespace gpushared::storms

#endif  // GPUSHARED_TESTS_HOSTILE_STORMS_BOARD_H_
