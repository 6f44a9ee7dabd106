// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_COST_MODEL_H_
#define GPUSHARED_SERVER_WORKER_STATE_COST_MODEL_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "scheduler/predictor.h"
#include "scheduler/recent_samples.h"
#include "scheduler/types.h"
#include "server/device/isolation.h"
#include "server/worker/state/command_slab.h"
#include "server/worker/state/keyed_hash.h"
#include "server/worker/state/log_histogram.h"

namespace gpushared::server {

// Predicts how long a command will occupy the device. Launches are keyed by (module, kernel, grid,
// block, shared memory), because everything else that matters is in the client's data. Copies and
// fills are keyed by kind and size across all clients, because they all run the same code.
//
// Some devices can preempt a kernel only in a form that differs from the one the client wrote. Each
// form has its own samples; a form without samples is predicted from the other one.
//
// Confined to the device thread.
class CostModel {
 public:
  // One command in kSampleEvery is sampled, or runs differently from the others. The choice must be
  // unpredictable, because a client that could foresee it could make just that command short, and
  // thereby shorten all of its predictions.
  static constexpr std::uint64_t kSampleEvery = 16;
  // The forms are compared once each has kFormSamplesMin samples. The preemptible form is abandoned
  // if it takes more than kFormPermilleMax thousandths of the original's time.
  static constexpr std::size_t kFormSamplesMin = 5;
  static constexpr std::int64_t kFormPermilleMax = 1150;

  // `secret` determines which command in each kSampleEvery is sampled.
  explicit CostModel(const HashSeed& secret = {}) : secret_(secret) {}

  // `number` is the sequence of a session's command, or the number of launches of a graph.
  bool IsSampled(std::uint64_t session, std::uint64_t number) const;

  // Identity of a module in keys: its content, its owner, and its isolation, which changes its
  // code. The costs learnt from one program of a user therefore also serve the user's next program,
  // and the next worker with this seed. Without the seed, no client can construct a module that has
  // another user's key.
  //
  // The tables are nevertheless shared. A user with thousands of kernels can displace the costs of
  // other users' kernels, whose predictions then restart at the first guess. Copy costs are common
  // to all users.
  struct Owner {
    std::uint32_t uid = 0;
    device::Isolation isolation = device::Isolation::kOff;
  };
  static std::uint64_t ModuleIdentity(std::span<const std::byte> image, const Owner& owner,
                                      const HashSeed& seed);

  static std::uint64_t LaunchKey(std::uint64_t module, const device::LaunchWork& work);

  // Returns a key that is common to all grids of the kernel with one block size.
  static std::uint64_t KernelKey(std::uint64_t module, const device::LaunchWork& work);

  // Predict returns the predicted time of a graph node; Knows returns whether a node of its key was
  // ever measured.
  scheduler::Duration Predict(const GraphNode& node) const { return PredictWhole(node); }
  bool Knows(const GraphNode& node) const { return HasSample(node); }

  // Predicts the remainder of the command.
  scheduler::Duration Predict(const CommandSlot& command) const;

  // Times of both forms of the launch. A launch with a single form has no samples of the other.
  struct Forms {
    scheduler::Predictor::Middle original, stoppable;

    bool are_known() const {
      return original.samples >= kFormSamplesMin && stoppable.samples >= kFormSamplesMin;
    }
    // Returns whether the preemptible form costs more than preemption is worth.
    bool is_stoppable_slow() const {
      return are_known() && stoppable.median.count() >
                                original.median.count() / 1000 * kFormPermilleMax +
                                    original.median.count() % 1000 * kFormPermilleMax / 1000;
    }
    // Returns whether the forms can never be compared, because the original is not being sampled.
    bool lacks_original() const {
      return stoppable.samples >= kFormSamplesMin && original.samples < kFormSamplesMin;
    }
  };
  Forms GetForms(const CommandSlot& command) const {
    return {.original = launches_.GetMiddle(command.cost_key),
            .stoppable = launches_.GetMiddle(StoppableKey(command.cost_key))};
  }

  // Returns whether a sample of the command is worth the cost of exact timing. This holds until its
  // key (or copies and fills of about its size) has enough samples. From then on it is true for one
  // command in kSampleEvery, because kernels change their behaviour. It is always true for an
  // unsplit graph.
  bool WantsSample(std::uint64_t session, const CommandSlot& command) const;

  // Adds the time of a command that ran to completion with the device essentially to itself.
  void AddSample(const CommandSlot& command, scheduler::Duration measured);
  // Adds the time of a command that ran to completion concurrently with other work. Alone it would
  // have taken no longer, so the time shortens a prediction that was too long. If other clients'
  // work was running, the time cannot lengthen a prediction that was too short, because that work
  // may have slowed the command down. If only work of the same client was running, a launch is
  // assumed to need the time that it was charged, at most `measured`; otherwise a client could
  // permanently hide the cost of its kernels.
  void AddBound(const CommandSlot& command, scheduler::Duration measured);

  // Adds the launch bubble of a launch that was submitted to an idle device and had it to itself:
  // the time from its submission until its end was known, minus its running time.
  void AddLaunchBubble(scheduler::Duration measured) { launch_bubbles_.Add(measured); }
  // Returns an upper estimate (90th percentile) of the time the device is idle between the end of a
  // command and the start of a command submitted in response to that end. Empty until there are
  // enough samples.
  std::optional<scheduler::Duration> LaunchBubble() const;

  // Persisted costs of launches; see scheduler::Predictor. Learn may only be called before the
  // first sample.
  void Learn(std::span<const scheduler::KnownCost> costs);
  std::vector<scheduler::KnownCost> Known() const { return launches_.Known(); }
  std::vector<scheduler::KnownCost> KnownPart(std::size_t part) const {
    return launches_.KnownPart(part);
  }
  std::uint64_t launch_samples() const { return launches_.samples(); }

  // Accuracy of predictions of launches whose key had a sample: how many there were, how many
  // launches took longer, and the relative error of the prediction in thousandths of the measured
  // time.
  struct Accuracy {
    std::uint64_t predictions = 0;
    std::uint64_t exceeded = 0;
    LogHistogram error_permille;
  };
  const Accuracy& accuracy() const { return accuracy_; }

 private:
  // Minimum number of samples. With fewer samples the 0.9 quantile would simply be the largest one.
  static constexpr std::size_t kLaunchBubblesMin = 9;
  static constexpr std::size_t kCopyKinds = 4;
  static constexpr std::size_t kSizes = 65;  // By bit width of the number of bytes or pieces.

  static constexpr std::size_t kCopySamplesKept = 19;
  using CopySamples = scheduler::RecentSamples<kCopySamplesKept>;
  static std::size_t CopyKind(CommandKind kind);
  // `Work` is a command or a graph node. A copy in separate rows that has more pieces than its
  // bytes would fill is keyed by the number of pieces, because each piece may touch a page for the
  // first time.
  template <typename Work>
  const CopySamples& CopiesLike(const Work& work) const {
    const bool has_rows = work.units > work.bytes / device::kCopyPieceBytes + 1;
    const std::size_t kind = CopyKind(work.kind) + (has_rows ? kCopyKinds : 0);
    const std::uint64_t size = has_rows ? work.units : work.bytes;
    return copies_[kind][static_cast<std::size_t>(std::bit_width(size))];
  }
  template <typename Work>
  CopySamples& CopiesLike(const Work& work) {
    return const_cast<CopySamples&>(std::as_const(*this).CopiesLike(work));
  }
  template <typename Work>
  static scheduler::KernelGrid GetGrid(const Work& work) {
    return {.kernel = work.cost_kernel, .blocks = work.units};
  }
  static constexpr std::uint64_t StoppableKey(std::uint64_t cost_key) {
    return cost_key ^ 0x9e3779b97f4a7c15u;
  }
  // Key of the form that the launch runs as.
  static std::uint64_t FormKey(const GraphNode& node) { return node.cost_key; }
  static std::uint64_t FormKey(const CommandSlot& command) {
    return command.runs_stoppable_form ? StoppableKey(command.cost_key) : command.cost_key;
  }
  static constexpr std::uint64_t OtherFormKey(std::uint64_t form_key, std::uint64_t cost_key) {
    return form_key == cost_key ? StoppableKey(cost_key) : cost_key;
  }
  // Predicts from samples of the launch's own form, else of the other form, else of other grids of
  // its kernel.
  template <typename Work>
  scheduler::Duration PredictLaunch(const Work& work) const {
    const std::uint64_t own = FormKey(work);
    if (const auto known = launches_.PredictKnown(own); known > scheduler::Duration::zero())
        [[likely]] {
      return known;
    }
    const auto other = launches_.PredictKnown(OtherFormKey(own, work.cost_key));
    if (other > scheduler::Duration::zero()) return other;
    return launches_.Predict(work.cost_key, GetGrid(work));
  }
  template <typename Work>
  bool HasSample(const Work& work) const {
    if (work.kind != CommandKind::kLaunch) return !CopiesLike(work).empty();
    const std::uint64_t own = FormKey(work);
    return launches_.Knows(own) || launches_.Knows(OtherFormKey(own, work.cost_key));
  }
  template <typename Work>
  scheduler::Duration PredictWhole(const Work& work) const {
    if (work.kind == CommandKind::kLaunch) return PredictLaunch(work);
    const CopySamples& seen = CopiesLike(work);
    if (!seen.empty()) return seen.Quantile(90);
    // No such copy was ever measured: assume 1 GB/s, which all relevant devices exceed.
    const auto guess = static_cast<std::int64_t>(
        std::min<std::uint64_t>(work.bytes, std::uint64_t{1} << 40) + 10'000);
    return scheduler::Duration(guess);
  }
  // Returns what the predictor predicted for the launch before this sample.
  scheduler::Duration Store(const CommandSlot& command, scheduler::Duration sample);
  bool KnowsWell(const CommandSlot& command) const;
  void Judge(scheduler::Duration predicted, scheduler::Duration measured);

  const HashSeed secret_;
  scheduler::Predictor launches_;
  std::array<std::array<CopySamples, kSizes>, 2 * kCopyKinds> copies_ = {};
  scheduler::RecentSamples<19> launch_bubbles_;
  Accuracy accuracy_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_COST_MODEL_H_
