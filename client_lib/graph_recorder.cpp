// SPDX-License-Identifier: Apache-2.0
#include "client_lib/graph_recorder.h"

#include <string>

namespace gpushared::client {

bool RecordedNode::is_launch() const {
  ipc::RecordHeader header;
  std::memcpy(&header, head.data(), sizeof header);
  return header.op == static_cast<std::uint8_t>(ipc::Op::kLaunch);
}

Status GraphRecorder::AddNode(RecordedNode node) {
  const MutexLock lock(mutex_);
  if (nodes_.size() >= ipc::kGraphNodesMax) {
    return Status(StatusCode::kLimitExceeded,
                  "recording rejected: the graph has " + std::to_string(nodes_.size()) +
                      " nodes, at most " + std::to_string(ipc::kGraphNodesMax) + " are allowed");
  }
  if (node.is_launch()) node.kernel = kernel_;
  nodes_.push_back(std::move(node));
  return Status::Ok();
}

}  // namespace gpushared::client
