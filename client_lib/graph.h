// SPDX-License-Identifier: Apache-2.0
// Client-side state of graphs. The server stores the nodes once they have been recorded.

#ifndef GPUSHARED_CLIENT_LIB_GRAPH_H_
#define GPUSHARED_CLIENT_LIB_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"
#include "gpushared/status.h"

#include "client_lib/graph_recorder.h"

namespace gpushared::client {

class Session;
class StreamRecord;

// State of a Graph handle. The server keeps the graph until this object is destroyed.
//
// Thread-safe.
class GraphState {
 public:
  // Sends the nodes and waits until the server has checked each of them.
  static Result<std::shared_ptr<GraphState>> Make(const std::shared_ptr<Session>& session,
                                                  std::vector<RecordedNode> nodes);
  ~GraphState();
  GraphState(const GraphState&) = delete;
  GraphState& operator=(const GraphState&) = delete;

  Session& session() const { return *session_; }
  const std::shared_ptr<Session>& shared_session() const { return session_; }
  std::size_t size() const { return size_; }
  Status Launch(const std::shared_ptr<StreamRecord>& stream);
  // Replaces a node. The new node is sent with the next launch.
  Status Replace(std::size_t number, RecordedNode node);

 private:
  GraphState(std::shared_ptr<Session> session, std::uint32_t number, std::size_t size)
      : session_(std::move(session)), number_(number), size_(size) {}

  Status Send(const std::shared_ptr<StreamRecord>& stream, std::size_t number,
              const RecordedNode& node) const;

  const std::shared_ptr<Session> session_;
  const std::uint32_t number_;
  const std::size_t size_;
  // Held while records are submitted, so that a launch finds the nodes that were set before it.
  Mutex mutex_;
  std::vector<bool> is_launch_ GPUSHARED_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const KernelState>> kernels_ GPUSHARED_GUARDED_BY(mutex_);
  std::map<std::size_t, RecordedNode> changed_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_GRAPH_H_
