// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_HOSTILE_STORMS_BOARD_H_
#define GPUSHARED_TESTS_HOSTILE_STORMS_BOARD_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpushared::storms {

// An operation's start and duration, in shared memory.
struct Sample {
  std::atomic<std::int64_t> began_ns{0};  // Steady clock; 0: not written yet.
  std::atomic<std::int64_t> took_ns{0};   // 0: not finished; kRejected: it failed.

  static constexpr std::int64_t kRejected = -1;
};

// Thread-safe, also between processes. Samples beyond the capacity are dropped.
class SampleLog {
 public:
  static constexpr std::size_t kSamplesMax = std::size_t{1} << 17;

  Sample& Begin(std::int64_t now_ns) {
    // Relaxed, because readers of a sample check its began_ns.
    const std::size_t index = begun_.fetch_add(1, std::memory_order_relaxed);
    Sample& sample = samples_[index < kSamplesMax ? index : kSamplesMax - 1];
    sample.began_ns.store(now_ns, std::memory_order_release);
    return sample;
  }
  // Returns the number of samples that were begun and not dropped.
  std::size_t size() const {
    const std::size_t begun = begun_.load(std::memory_order_acquire);
    return begun < kSamplesMax ? begun : kSamplesMax;
  }
  const Sample& operator[](std::size_t index) const { return samples_[index]; }

 private:
  std::atomic<std::size_t> begun_{0};
  std::array<Sample, kSamplesMax> samples_;
};

// A message from one process to another. Only the first message is kept.
struct FirstWords {
  std::atomic<bool> taken{false};
  std::array<char, 512> text{};
};

// All results that the processes of one storm report to the measuring process, in shared memory.
struct Board {
  // ---- the honest client
  SampleLog requests;                          // Sample n belongs to arrival n.
  std::atomic<std::int64_t> first_arrival_ns;  // 0 until the client has measured service_ns.
  std::atomic<std::int64_t> service_ns;        // Duration of a single request on an idle server.
  std::atomic<std::uint64_t> wrong_results, reconnects;
  // ---- new clients
  // Times of connecting, loading, and from connecting to the result.
  SampleLog welcomes, loads, results;
  std::atomic<std::uint64_t> new_clients_left_out;  // Skipped, because too many were in progress.
  // ---- attackers
  std::atomic<std::uint64_t> deeds, rejected_deeds;
  FirstWords honest_words, new_client_words, attacker_words;
};

}  // namespace gpushared::storms

#endif  // GPUSHARED_TESTS_HOSTILE_STORMS_BOARD_H_
