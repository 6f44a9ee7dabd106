// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/facts.h"

namespace gpushared::testing {
namespace {

using namespace device::cuda;  // NOLINT(google-build-using-namespace): this file is about it.

class NeighbourFacts : public Facts {
 public:
  using Facts::Facts;

  void StreamPriority() {
    const unsigned iterations = LongIterations();
    // Each wave takes as long as one block.
    const double per_us = iterations / (long_ns() / 1e3 / kLongWaves);
    Stream equal = nullptr;
    Do(driver_->StreamCreateWithPriority, &equal, kStreamNonBlocking, least_);
    for (const int block_us : {20, 100, 1000}) {
      const double wanted_us = Ns(Wanted()) / 1e3;
      const unsigned waves = std::max(4u, static_cast<unsigned>(wanted_us / block_us));
      for (const Stream stream : {equal, high_}) {
        const auto samples = Beside(stream, static_cast<unsigned>(per_us * block_us) + 1,
                                    waves * WaveBlocks(), Wanted() / 4);
        Row("null kernel beside low blocks of " + std::to_string(block_us) + " us, " +
                (stream == equal ? "equal" : "highest") + " stream priority",
            samples);
      }
    }
    Do(driver_->StreamDestroy, equal);
  }

  // Measures a kernel whose blocks each read a word first: the cost of the read, and how soon the
  // kernel ends once the word is set, for a word in device memory and one in pinned host memory.
  void StopWord() {
    void* host = nullptr;
    DeviceAddress host_word = 0, device_word = 0;
    Do(driver_->MemHostAlloc, &host, std::size_t{4096}, kHostPortable | kHostDeviceMap);
    Do(driver_->MemHostGetDevicePointer, &host_word, host, 0u);
    Do(driver_->MemAlloc, &device_word, std::size_t{4096});
    const std::atomic_ref<std::uint32_t> word(*static_cast<std::uint32_t*>(host));
    const auto set_host = [&](std::uint32_t value) {
      word.store(value, std::memory_order_release);
    };
    // Writes the word on the stream that does not run the kernel.
    const auto set_device = [&](std::uint32_t value) {
      if (driver_->Has(Feature::kStreamMemoryOperations)) {
        Do(driver_->StreamWriteValue32, high_, device_word, value, kWriteValueDefault);
      } else {
        Do(driver_->MemcpyHtoDAsync, device_word, &value, sizeof value, high_);
      }
      Do(driver_->StreamSynchronize, high_);
    };
    set_host(0);
    // Uses a memset, because on some drivers streams cannot write words.
    Do(driver_->MemsetD32Async, device_word, 0u, std::size_t{1}, high_);
    Do(driver_->StreamSynchronize, high_);
    const double plain = Repeat([&] {
                           Launch(occupy_, LongBlocks(), 32, LongIterations(), low_);
                           Do(driver_->StreamSynchronize, low_);
                         }).Percentile(0.5);
    // The server places its words in device memory.
    WatchedWord("device memory", device_word, set_device, plain, "<= 0.5");
    // No bound: a block that ends at once still has to read the word from the host.
    WatchedWord("pinned memory of the host", host_word, set_host, plain, "-");
    Do(driver_->MemFree, device_word);
    Do(driver_->MemFreeHost, host);
  }

  // Measures how soon the host can read a word written by one stream while 31 others are busy. If
  // the driver mapped two streams to one queue, a stop word could wait for the kernel that it is to
  // stop.
  void Queues() {
    if (!driver_->Has(Feature::kStreamMemoryOperations))
      return NoRow("31 busy streams: a word of another one is seen after", "us",
                   "not in this driver");
    const Words words(*this);
    const Spin spin = CalibratedSpin(1, kBusy, words);
    // Streams of three priorities, as in a worker, whose stream for urgent words has the highest.
    std::vector<Stream> streams = {low_, high_};
    while (streams.size() < kQueues) {
      Stream made = nullptr;
      const std::array priorities = {least_, (least_ + greatest_) / 2, greatest_};
      Do(driver_->StreamCreateWithPriority, &made, kStreamNonBlocking,
         priorities.at(streams.size() % priorities.size()));
      streams.push_back(made);
    }
    // The driver creates a stream's resources when the stream first runs work.
    for (const Stream stream : streams) {
      Launch(step_, 1, 1, 1, stream);
      Do(driver_->StreamWriteValue32, stream, words.GetAddress(kQueues), 0u, kWriteValueDefault);
      Do(driver_->StreamSynchronize, stream);
    }
    // Tries the other streams as well, while time permits, because any two may share a queue.
    const auto end = FactsClock::now() + limit_;
    std::vector<WordSeen> seen;
    do {
      seen.push_back(GetWord(kQueues - 1 - seen.size(), streams, spin, words));
    } while (seen.size() < kQueues && FactsClock::now() < end);
    Row("31 busy streams: a word of another one is seen after", seen[0].us, "us", seen[0].note);
    const WordSeen& worst = *std::ranges::max_element(seen, {}, &WordSeen::us);
    Row("31 busy streams: the slowest of the streams that were tried for the word", worst.us, "us",
        std::to_string(seen.size()) + " of 32 were tried; " + worst.note);
    for (std::size_t i = 2; i < streams.size(); ++i) Do(driver_->StreamDestroy, streams[i]);
  }

  // Measures a null kernel of this thread while another thread makes slow calls.
  void SlowCalls() {
    const Memfd memory(kSharedBytes), copied(kSharedBytes);
    Stream other = nullptr;
    DeviceAddress target = 0;
    Do(driver_->StreamCreateWithPriority, &other, kStreamNonBlocking, least_);
    Do(driver_->MemAlloc, &target, kSharedBytes);
    Do(driver_->MemHostRegister, copied.bytes(), kSharedBytes, kHostPortable);
    struct Call {
      std::string what;
      std::function<void()> make;
    };
    const std::array<Call, 6> calls = {
        Call{"nothing", [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }},
        Call{"a thread that loads modules",
             [this] {
               Module module = nullptr;
               Do(driver_->ModuleLoadDataEx, &module, KernelImage(), 0u, nullptr, nullptr);
               Do(driver_->ModuleUnload, module);
             }},
        Call{"a thread that maps 64 MiB", [this] { Unmap(Map(kMappedBytes)); }},
        Call{"a thread that allocates 64 MiB",
             [this] {
               DeviceAddress address = 0;
               Do(driver_->MemAlloc, &address, kMappedBytes);
               Do(driver_->MemFree, address);
             }},
        Call{"a thread that registers 16 MiB",
             [this, &memory] {
               Do(driver_->MemHostRegister, memory.bytes(), kSharedBytes, kHostPortable);
               Do(driver_->MemHostUnregister, memory.bytes());
             }},
        Call{"a thread that copies 16 MiB", [this, &copied, other, target] {
               Do(driver_->MemcpyHtoDAsync, target, copied.bytes(), kSharedBytes, other);
               Do(driver_->StreamSynchronize, other);
             }}};
    for (const Call& call : calls) {
      const Samples samples = BesideCalls(call.make);
      char note[96];
      std::snprintf(note, sizeof note, "p50 %.2f, worst %.2f", samples.Percentile(0.5) / 1e3,
                    samples.Percentile(1) / 1e3);
      Row("null kernel beside " + call.what + ", p99", samples.Percentile(0.99) / 1e3, "us", note);
    }
    Do(driver_->MemHostUnregister, copied.bytes());
    Do(driver_->MemFree, target);
    Do(driver_->StreamDestroy, other);
  }

 private:
  static constexpr std::size_t kQueues = 32;
  static constexpr std::chrono::milliseconds kBusy{5};
  struct WordSeen {
    double us = 0;
    std::string note;
  };

  // Lets stream number `of` write the word while each other stream runs a kernel.
  WordSeen GetWord(std::size_t of, const std::vector<Stream>& streams, const Spin& spin,
                   const Words& words) {
    words[kQueues].store(0);
    for (std::size_t i = 0; i < streams.size(); ++i) {
      words[i].store(0);
      if (i != of) LaunchSpin(spin, words, i, streams[i]);
    }
    const auto begun = [&] {
      std::size_t count = 0;
      for (std::size_t i = 0; i < streams.size(); ++i) count += words[i].load() != 0 ? 1 : 0;
      return count;
    };
    const auto latest = FactsClock::now() + kBusy / 4;
    while (begun() < streams.size() - 1 && FactsClock::now() < latest) {
    }
    const std::size_t running = begun();
    const auto took = GetTime([&] {
      Do(driver_->StreamWriteValue32, streams[of], words.GetAddress(kQueues), 1u,
         kWriteValueDefault);
      SpinUntil([&] { return words[kQueues].load(std::memory_order_acquire) != 0; },
                "a word of a stream beside busy ones");
    });
    std::size_t busy = 0;
    for (const Stream stream : streams) {
      busy += driver_->StreamQuery(stream) == Code::kNotReady ? 1 : 0;
    }
    for (const Stream stream : streams) Do(driver_->StreamSynchronize, stream);
    return {.us = Ns(took) / 1e3,
            .note = std::to_string(running) + " of 31 kernels had begun, " + std::to_string(busy) +
                    " streams were still busy then"};
  }

  Samples Beside(Stream stream, unsigned iterations, unsigned blocks,
                 FactsClock::duration head_start) {
    Samples samples;
    const auto end = FactsClock::now() + limit_;
    do {
      Launch(occupy_, blocks, 32, iterations, low_);
      SpinFor(head_start);
      samples.Add(GetTime([&] {
        Launch(step_, 1, 1, 0, stream);
        Do(driver_->StreamSynchronize, stream);
      }));
      Do(driver_->StreamSynchronize, low_);
    } while (FactsClock::now() < end);
    return samples;
  }
  static void SpinFor(FactsClock::duration time) {
    const auto end = FactsClock::now() + time;
    while (FactsClock::now() < end) {
    }
  }

  void WatchedWord(const std::string& where, DeviceAddress word,
                   const std::function<void(std::uint32_t)>& set, double plain_ns,
                   const std::string& must) {
    unsigned iterations = LongIterations();
    std::array<void*, 3> parameters = {&out_, &iterations, &word};
    const auto launch = [&] {
      Do(driver_->LaunchKernel, watch_, LongBlocks(), 1u, 1u, 32u, 1u, 1u, 0u, low_,
         parameters.data(), nullptr);
    };
    const double watched = Repeat([&] {
                             launch();
                             Do(driver_->StreamSynchronize, low_);
                           }).Percentile(0.5);
    Row("blocks that look at a word in " + where + ", time / without", watched / plain_ns, "-", "");
    Samples stops;
    const auto end = FactsClock::now() + limit_;
    do {
      launch();
      SpinFor(Wanted() / 4);
      stops.Add(GetTime([&] {
        set(1);
        Do(driver_->StreamSynchronize, low_);
      }));
      set(0);
    } while (FactsClock::now() < end);
    Row("the end of such a kernel after the word was set", stops);
    // The word is set when three quarters of the kernel's time are left.
    Row("the same for a word in " + where + ", of the time that it had before it",
        stops.Percentile(0.5) / (watched - Ns(Wanted() / 4)), "-", "",
        must == "-" ? "fact" : "figure", must);
  }

  Samples BesideCalls(const std::function<void()>& call) {
    std::atomic<bool> is_over{false};
    std::string why;
    std::thread other([&] {
      try {
        Do(driver_->CtxSetCurrent, context_);
        while (!is_over.load(std::memory_order_relaxed)) call();
      } catch (const std::exception& error) {
        why = error.what();
      }
    });
    Samples samples;
    std::exception_ptr thrown;
    try {
      samples = Repeat([&] {
        Launch(step_, 1, 1, 0, high_);
        Do(driver_->StreamSynchronize, high_);
      });
    } catch (...) {
      thrown = std::current_exception();
    }
    is_over.store(true, std::memory_order_relaxed);
    other.join();
    if (thrown) std::rethrow_exception(thrown);
    if (!why.empty()) throw std::runtime_error(why);
    return samples;
  }
};

}  // namespace

std::vector<Question> NeighbourQuestions() {
  return {GetQuestion("busy streams", &NeighbourFacts::Queues),
          GetQuestion("stream priority", &NeighbourFacts::StreamPriority),
          GetQuestion("a word that stops", &NeighbourFacts::StopWord),
          GetQuestion("slow calls", &NeighbourFacts::SlowCalls)};
}

}  // namespace gpushared::testing
