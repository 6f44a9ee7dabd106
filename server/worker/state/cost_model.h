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

// How long a command will hold the device. Launches by (module, kernel, grid, block, shared
// memory): what else decides is in the client's data. Copies and fills by kind and size, for
// all clients together: they all run the same code.
//
// Some devices stop another form of a kernel than the one that its client wrote. Each form has
// samples of its own, and one that is known for neither is predicted from the other.
//
// Confined to the device thread.
class CostModel {
 public:
  // Of so many commands one is sampled, or runs otherwise than the others. Which one nobody outside
  // knows: a client that did could make that one short, and so all its predictions.
  static constexpr std::uint64_t kSampleEvery = 16;
  // Forms are compared when each has so many samples. The one that can be stopped is given up when
  // it takes so much of the other one's time.
  static constexpr std::size_t kFormSamplesMin = 5;
  static constexpr std::int64_t kFormPermilleMax = 1150;

  // `secret` decides which of each kSampleEvery is sampled.
  explicit CostModel(const HashSeed& secret = {}) : secret_(secret) {}

  // Of a session's command by its sequence, of a graph's launches by how many there were.
  bool IsSampled(std::uint64_t session, std::uint64_t number) const;

  // A module's identity in keys: its content, its owner and its isolation, which decides about its
  // code. So one program of a user teaches the next one, also in the next worker with this seed.
  // Nobody who does not know the seed can bring a module with another user's key.
  //
  // The tables are shared all the same. A user with thousands of kernels makes those of others
  // forgotten; they are at the first guess again. Copies are those of all users.
  struct Owner {
    std::uint32_t uid = 0;
    device::Isolation isolation = device::Isolation::kOff;
  };
  static std::uint64_t ModuleIdentity(std::span<const std::byte> image, const Owner& owner,
                                      const HashSeed& seed);

  static std::uint64_t LaunchKey(std::uint64_t module, const device::LaunchWork& work);

  // The same for all grids of the kernel with blocks of one size.
  static std::uint64_t KernelKey(std::uint64_t module, const device::LaunchWork& work);

  // Predicts a node of a graph, and says whether it was ever measured.
  scheduler::Duration Predict(const GraphNode& node) const { return PredictWhole(node); }
  bool Knows(const GraphNode& node) const { return HasSample(node); }

  // Predicts the rest of the command.
  scheduler::Duration Predict(const CommandSlot& command) const;

  // What both forms of the launch take; a launch that has only one form has no samples of another.
  struct Forms {
    scheduler::Predictor::Middle original, stoppable;

    bool are_known() const {
      return original.samples >= kFormSamplesMin && stoppable.samples >= kFormSamplesMin;
    }
    // Stopping it costs more than it is worth.
    bool is_stoppable_slow() const {
      return are_known() && stoppable.median.count() >
                                original.median.count() / 1000 * kFormPermilleMax +
                                    original.median.count() % 1000 * kFormPermilleMax / 1000;
    }
    // Nobody would ever know whether it is.
    bool lacks_original() const {
      return stoppable.samples >= kFormSamplesMin && original.samples < kFormSamplesMin;
    }
  };
  Forms GetForms(const CommandSlot& command) const {
    return {.original = launches_.GetMiddle(command.cost_key),
            .stoppable = launches_.GetMiddle(StoppableKey(command.cost_key))};
  }

  // Whether a sample of it is worth what exact times cost: until its key, or copies and fills of
  // about its size, have enough of them, and of one in kSampleEvery from then on, since kernels
  // change what they do. Of a graph always.
  bool WantsSample(std::uint64_t session, const CommandSlot& command) const;

  // Only for commands that ran to their end, and next to nothing else.
  void AddSample(const CommandSlot& command, scheduler::Duration measured);
  // Of one that ran to its end beside others: alone it would have taken no longer. That makes a
  // prediction shorter where it was too long. Beside other clients it says nothing where it was too
  // short: they could make it longer. Beside work of its own client the launch is taken to need
  // what it was charged, or a client could hide for ever what its kernels take.
  void AddBound(const CommandSlot& command, scheduler::Duration measured);

  // Of a launch that went to an idle device and had it for itself: from its submission until its
  // end was known, less the time that it ran.
  void AddLaunchBubble(scheduler::Duration measured) { launch_bubbles_.Add(measured); }
  // How long the device stands idle between a command and the next one, where that is submitted
  // in answer to its end: nine times of ten no longer than this. Empty before enough is known.
  std::optional<scheduler::Duration> LaunchBubble() const;

  // Of launches; see scheduler::Predictor. Learn only before the first sample.
  void Learn(std::span<const scheduler::KnownCost> costs);
  std::vector<scheduler::KnownCost> Known() const { return launches_.Known(); }
  std::vector<scheduler::KnownCost> KnownPart(std::size_t part) const {
    return launches_.KnownPart(part);
  }
  std::uint64_t launch_samples() const { return launches_.samples(); }

  // How good predictions of launches were that had a sample before: of how many, how many took
  // longer, and by which part of the measured time they were off, in thousandths.
  struct Accuracy {
    std::uint64_t predictions = 0;
    std::uint64_t exceeded = 0;
    LogHistogram error_permille;
  };
  const Accuracy& accuracy() const { return accuracy_; }

 private:
  // Of fewer samples the 0.9 quantile is the largest, whatever that is.
  static constexpr std::size_t kLaunchBubblesMin = 9;
  static constexpr std::size_t kCopyKinds = 4;
  static constexpr std::size_t kSizes = 65;  // By bit width of the number of bytes.

  static constexpr std::size_t kCopySamplesKept = 19;
  using CopySamples = scheduler::RecentSamples<kCopySamplesKept>;
  static std::size_t CopyKind(CommandKind kind);
  // `Work` is a command or a node of a graph. What has more pieces than its bytes fill, in rows
  // that lie apart, is sampled by those: each may touch a page that nothing has touched before.
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
  // The key of the form that the launch runs as.
  static std::uint64_t FormKey(const GraphNode& node) { return node.cost_key; }
  static std::uint64_t FormKey(const CommandSlot& command) {
    return command.runs_stoppable_form ? StoppableKey(command.cost_key) : command.cost_key;
  }
  static constexpr std::uint64_t OtherFormKey(std::uint64_t form_key, std::uint64_t cost_key) {
    return form_key == cost_key ? StoppableKey(cost_key) : cost_key;
  }
  // From samples of its own form, else of the other one, else of its kin.
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
    // A copy that was never seen: 1 GB/s, which all devices of interest exceed.
    const auto guess = static_cast<std::int64_t>(
        std::min<std::uint64_t>(work.bytes, std::uint64_t{1} << 40) + 10'000);
    return scheduler::Duration(guess);
  }
  // Returns what samples of launches predicted until now, as the predictor does.
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
