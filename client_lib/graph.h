// SPDX-License-Identifier: Apache-2.0
// Graphs on the client's side: collected by a recorder, then kept by the server.

#ifndef GPUSHARED_CLIENT_LIB_GRAPH_H_
#define GPUSHARED_CLIENT_LIB_GRAPH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/wire/command.h"

namespace gpushared::client {

class Session;
class StreamRecord;
struct KernelState;

// A node: its record, as the ring would have it, and a launch's parameters.
struct RecordedNode {
  std::array<std::byte, ipc::kGranuleBytes> head = {};
  std::vector<std::byte> parameters;
  std::shared_ptr<const KernelState> kernel;  // Keeps the module loaded; launches only.

  bool is_launch() const;
};

// Takes what a stream would submit, if that is a recorder.
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
                    "recording refused: a graph holds launches, copies and fills; waits, events "
                    "and requests stand before and behind its launch");
    }
  }
  // The next launch is one of this kernel.
  void NoteKernel(std::shared_ptr<const KernelState> kernel) {
    const MutexLock lock(mutex_);
    kernel_ = std::move(kernel);
  }
  // All that was recorded; nothing is left.
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

// Behind Graph: the server has it until this is gone.
//
// Thread-safe.
class GraphState {
 public:
  // Waits until the server has checked every node.
  static Result<std::shared_ptr<GraphState>> Make(const std::shared_ptr<Session>& session,
                                                  std::vector<RecordedNode> nodes);
  ~GraphState();
  GraphState(const GraphState&) = delete;
  GraphState& operator=(const GraphState&) = delete;

  Session& session() const { return *session_; }
  const std::shared_ptr<Session>& shared_session() const { return session_; }
  std::size_t size() const { return size_; }
  Status Launch(const std::shared_ptr<StreamRecord>& stream);
  // Sent with the next launch.
  Status Replace(std::size_t number, RecordedNode node);

 private:
  GraphState(std::shared_ptr<Session> session, std::uint32_t number, std::size_t size)
      : session_(std::move(session)), number_(number), size_(size) {}

  Status Send(const std::shared_ptr<StreamRecord>& stream, std::size_t number,
              const RecordedNode& node) const;

  const std::shared_ptr<Session> session_;
  const std::uint32_t number_;
  const std::size_t size_;
  // Held while records go out, so that a launch finds the nodes that were set before it.
  Mutex mutex_;
  std::vector<bool> is_launch_ GPUSHARED_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const KernelState>> kernels_ GPUSHARED_GUARDED_BY(mutex_);
  std::map<std::size_t, RecordedNode> changed_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_GRAPH_H_
