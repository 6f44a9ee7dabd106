// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_GPU_FACTS_H_
#define GPUSHARED_TESTS_GPU_FACTS_H_

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "server/device/cuda/driver.h"
#include "tests/bench/report.h"

namespace gpushared::testing {

using FactsClock = std::chrono::steady_clock;

struct FactsOptions {
  std::string rows;   // File to append rows to; empty for none.
  std::string costs;  // File to append measured costs to; empty for none.
  long ms = 200;      // Time per measurement.
};

// A context with the kernels of gpu_kernels.cu, a low and a high stream, and a file of rows: the
// tools for a question about a GPU and its driver. Classes of questions derive from it.
//
// Thread-compatible.
class Facts {
 public:
  explicit Facts(const FactsOptions& options);
  virtual ~Facts() = default;
  Facts(const Facts&) = delete;
  Facts& operator=(const Facts&) = delete;

  // Returns false if the question has no answer; a row states the reason.
  bool Ask(const std::string& name, const std::function<void()>& question);
  // Creates a context and stops this process, so that another process can observe the effect of a
  // second context.
  void HoldContext();

 protected:
  // A mapped memfd that is sealed like the server's staging buffers.
  class Memfd {
   public:
    // `is_closed`: no further seals can be added.
    explicit Memfd(std::size_t bytes, bool is_closed = true);
    ~Memfd();
    Memfd(const Memfd&) = delete;
    Memfd& operator=(const Memfd&) = delete;
    std::byte* bytes() const { return bytes_; }
    std::size_t size() const { return size_; }
    int fd() const { return fd_; }

   private:
    const std::size_t size_;
    const int fd_;
    std::byte* bytes_ = nullptr;
  };
  // Another process that has a context, until this object is destroyed.
  class OtherContext {
   public:
    OtherContext();  // Returns once the process has a context.
    ~OtherContext();
    OtherContext(const OtherContext&) = delete;
    OtherContext& operator=(const OtherContext&) = delete;

   private:
    pid_t pid_ = -1;
  };
  struct Mapping {
    device::cuda::DeviceAddress address = 0;
    device::cuda::MemoryHandle handle = 0;
    std::size_t bytes = 0;
  };

  static constexpr std::size_t kSharedBytes = std::size_t{16} << 20;
  static constexpr std::size_t kMappedBytes = std::size_t{64} << 20;
  // Blocks of one warp that a multiprocessor runs at once, on all current GPUs.
  static constexpr unsigned kBlocksAtOnce = 32;

  // Makes the call; throws the driver's message if it fails.
  template <typename... Parameters, typename... Arguments>
  void Do(const device::cuda::DriverCall<device::cuda::Code(Parameters...)>& call,
          Arguments... arguments) const {
    const Status status = driver_->Try(call, arguments...);
    if (!status.ok()) throw std::runtime_error(status.message());
  }
  void Check(const char* call, device::cuda::Code code) const {
    if (code != device::cuda::Code::kSuccess)
      throw std::runtime_error(driver_->Explain(call, code));
  }
  static double Ns(FactsClock::duration duration) {
    return static_cast<double>(std::chrono::nanoseconds(duration).count());
  }

  void Row(const std::string& what, double value, const std::string& unit, const std::string& note,
           const std::string& kind = "fact", const std::string& must = "-");
  // Writes a row with the median in us.
  void Row(const std::string& what, const Samples& samples);
  // Writes a row without a value, with the reason.
  void NoRow(const std::string& what, const std::string& unit, const std::string& why);
  // Writes the code that a call returned. Calls SetDead() if the code ends the context.
  void CodeRow(const std::string& what, const char* call, device::cuda::Code code);
  // Writes a row about a condition that the design depends on.
  void Rule(const std::string& what, bool holds, const std::string& note = "") {
    Row(what, holds ? 1 : 0, "-", note, "rule", "== 1");
  }

  // Writes a measured value for a cost of the fake driver (tests/support/fake_cuda/costs.h). `what`
  // describes how the value was measured.
  void Cost(const std::string& name, double value, const std::string& what);

  // The kernels' fatbin. It ends with a zero byte, as the driver requires.
  static const char* KernelImage();
  void Launch(device::cuda::Function kernel, unsigned blocks, unsigned threads, unsigned iterations,
              device::cuda::Stream stream);
  template <typename Action>
  static FactsClock::duration GetTime(const Action& action) {
    const auto begin = FactsClock::now();
    action();
    return FactsClock::now() - begin;
  }
  // Returns a loaded kernel of fact_kernels.cu.
  device::cuda::Function FactKernel(const char* name);
  // Returns a driver call that the server does not use, or null if this driver lacks it. `version`
  // is the CUDA version whose form of the call the caller declares.
  template <typename Call>
  static Call* FindCall(const char* name, int version) {
    return reinterpret_cast<Call*>(FindSymbol(name, version));
  }

  // 64 words of pinned memory that the GPU and the host share, each in its own cache line.
  class Words {
   public:
    explicit Words(const Facts& facts);
    ~Words();
    Words(const Words&) = delete;
    Words& operator=(const Words&) = delete;
    std::atomic_ref<std::uint32_t> operator[](std::size_t i) const {
      return std::atomic_ref(bytes_[i * kLine]);
    }
    device::cuda::DeviceAddress GetAddress(std::size_t i) const {
      return address_ + i * kLine * sizeof(std::uint32_t);
    }

   private:
    static constexpr std::size_t kLine = 16;
    const Facts& facts_;
    std::uint32_t* bytes_ = nullptr;
    device::cuda::DeviceAddress address_ = 0;
  };
  // A launch of kernel `spin`, which lasts for `ns` or `rounds`, whichever is shorter.
  struct Spin {
    unsigned blocks = 1;
    unsigned ns = 0;
    unsigned rounds = 0;
  };
  // Returns a launch that ends by its `ns`, because its `rounds` take longer.
  Spin CalibratedSpin(unsigned blocks, std::chrono::nanoseconds length, const Words& words);
  // The kernel sets word `number` when it begins. Launches that overlap have different numbers.
  void LaunchSpin(const Spin& spin, const Words& words, std::size_t number,
                  device::cuda::Stream stream);

  // Repeats the action for about this long, at least once.
  static Samples Repeat(const std::function<void()>& action, FactsClock::duration limit);
  Samples Repeat(const std::function<void()>& action) const { return Repeat(action, limit_); }
  // Polls for a change by the GPU. Throws if it has not happened after some seconds.
  template <typename Polls>
  static void SpinUntil(const Polls& is_seen, const char* what) {
    constexpr unsigned kPolls = 1024;  // Reading the clock may take as long as reading memory.
    const auto end = FactsClock::now() + kSeenMax;
    for (unsigned looks = 1; !is_seen(); ++looks) {
      if (looks % kPolls == 0 && FactsClock::now() > end) {
        throw std::runtime_error(std::string(what) + " was not seen within " +
                                 std::to_string(kSeenMax.count()) + " s");
      }
    }
  }
  // Returns the GPU's memory in use by all processes.
  double UsedBytes() const;
  int Attribute(device::cuda::DeviceAttribute which) const;
  std::size_t ThreadsAtOnce() const;
  // Returns the local memory per thread that the server requests (CudaContext::TakeLocalMemory).
  std::size_t ServersStackBytes() const;
  Mapping Map(std::size_t bytes) const;
  void Unmap(const Mapping& mapping) const;

  // Waves of blocks (of one warp each) of a long low kernel.
  static constexpr unsigned kLongWaves = 32;
  unsigned WaveBlocks() const { return static_cast<unsigned>(multiprocessors_) * kBlocksAtOnce; }
  unsigned LongBlocks() const { return WaveBlocks() * kLongWaves; }
  FactsClock::duration Wanted() const {
    return std::min<FactsClock::duration>(limit_ / 10, std::chrono::milliseconds(10));
  }
  // Returns the iterations with which a kernel of LongBlocks() takes Wanted() or a little longer.
  unsigned LongIterations();
  double long_ns() const { return long_ns_; }

  // Records that the context is dead, in which case its objects are not released.
  void SetDead() { is_dead_ = true; }
  bool is_dead() const { return is_dead_; }

  const FactsClock::duration limit_;
  std::shared_ptr<const device::cuda::Driver> driver_;
  FactsClock::duration load_took_{}, context_took_{};
  double used_bare_ = 0;
  device::cuda::DeviceNumber number_ = 0;
  device::cuda::Context context_ = nullptr;
  int multiprocessors_ = 0, least_ = 0, greatest_ = 0;
  device::cuda::Module module_ = nullptr;
  device::cuda::Function step_ = nullptr, occupy_ = nullptr, watch_ = nullptr, wide_ = nullptr;
  device::cuda::Stream low_ = nullptr, high_ = nullptr;
  device::cuda::DeviceAddress out_ = 0;

 private:
  static constexpr std::chrono::seconds kSeenMax{3};

  void Open();
  void Close();
  static void* FindSymbol(const char* name, int version);

  std::ofstream rows_, costs_;
  device::cuda::Module fact_module_ = nullptr;
  device::cuda::Function spin_ = nullptr;
  bool is_dead_ = false;
  unsigned long_iterations_ = 0;  // 0 until measured.
  double long_ns_ = 0;
};

// A question, which is answered in a separate process with a separate driver and context.
struct Question {
  const char* name;
  std::function<bool(const Question& self, const FactsOptions& options)> answer;
};
template <typename T>
Question GetQuestion(const char* name, void (T::*ask)()) {
  return {name, [ask](const Question& self, const FactsOptions& options) {
            T facts(options);
            return facts.Ask(self.name, [&] { (facts.*ask)(); });
          }};
}
// Images of fact_kernels.cu: PTX text, and a fatbin with machine code for compute capability 9.0.
const char* FactText();
const char* FactFatbin();

// Calls of one thread alongside a kernel, and their effect on another thread's calls.
std::vector<Question> CallQuestions();
// The range of a block's shared memory.
std::vector<Question> SharedQuestions();
// The costs of a context and its parts, and the effects of its death.
std::vector<Question> ContextQuestions();
// Host memory registered with the GPU, and the GPU's own memory.
std::vector<Question> MemoryQuestions();
// Launches, their completion, and the calls for them.
std::vector<Question> WorkQuestions();
// The effect of one piece of work on another.
std::vector<Question> NeighbourQuestions();

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_GPU_FACTS_H_
