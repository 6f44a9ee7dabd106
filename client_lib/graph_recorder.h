// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_GRAPH_RECORDER_H_
#define GPUSHARED_CLIENT_LIB_GRAPH_RECORDER_H_

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/status.h"

#include "ipc/wire/command.h"

namespace gpushared::client {

struct KernelState;

// Recorded node: its record as it would be in the ring, and the parameters of a launch.
struct RecordedNode {
  std::array<std::byte, ipc::kGranuleBytes> head = {};
  std::vector<std::byte> parameters;
  std::shared_ptr<const KernelState> kernel;  // Keeps the module loaded. Set only for launches.

  bool is_launch() const;
};

// Collects the commands of a stream that records a graph.
//
// Thread-safe.
class GraphRecorder {
 public:
  template <typename Record>
  Status Add(const Record& record, std::span<const std::byte> parameters) {
    if constexpr (std::is_same_v<Record, ipc::LaunchRecord> ||
                  std::is_same_v<Record, ipc::CopyRecord> ||
                  std::is_same_v<Record, ipc::CopyOnDeviceRecord> ||
                  std::is_same_v<Record, ipc::FillRecord>) {
      RecordedNode node;
      std::memcpy(node.head.data(), &record, sizeof record);
      node.parameters.assign(parameters.begin(), parameters.end());
      return AddNode(std::move(node));
    } else {
      return Status(StatusCode::kInvalidArgument,
                    "recording rejected: a graph holds launches, copies and fills; waits, events "
                    "and requests belong before or after its launch");
    }
  }
  // Sets the kernel of the launch that Add receives next.
  void RecordKernel(std::shared_ptr<const KernelState> kernel) {
    const MutexLock lock(mutex_);
    kernel_ = std::move(kernel);
  }
  // Returns all recorded nodes and empties the recorder.
  std::vector<RecordedNode> Take() {
    const MutexLock lock(mutex_);
    return std::move(nodes_);
  }

 private:
  Status AddNode(RecordedNode node);

  Mutex mutex_;
  std::vector<RecordedNode> nodes_ GPUSHARED_GUARDED_BY(mutex_);
  std::shared_ptr<const KernelState> kernel_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_GRAPH_RECORDER_H_
