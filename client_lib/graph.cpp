// SPDX-License-Identifier: Apache-2.0
// Graphs: recording, transfer to the server, and the public interface.
#include "client_lib/graph.h"

#include <cstring>
#include <string>

#include "gpushared/client.h"

#include "client_lib/session.h"

namespace gpushared {
namespace client {

namespace {

Status Invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

ipc::GraphRecord GetRecord(ipc::Op op, std::uint32_t graph) {
  return {.header = {.op = static_cast<std::uint8_t>(op)}, .graph = graph};
}

}  // namespace

Result<std::shared_ptr<GraphState>> GraphState::Make(const std::shared_ptr<Session>& session,
                                                     std::vector<RecordedNode> nodes) {
  if (nodes.empty()) return Invalid("graph rejected: nothing was recorded");
  const Result<std::uint32_t> number = session->TakeGraphNumber();
  if (!number.ok()) return number.status();
  // The nodes are sent on a separate stream, because a rejected node fails the stream that carries
  // it.
  const Result<std::shared_ptr<StreamRecord>> stream = session->CreateStream();
  if (!stream.ok()) {
    session->ReturnGraphNumber(*number);
    return stream.status();
  }
  const std::shared_ptr<GraphState> graph(new GraphState(session, *number, nodes.size()));
  Result<std::uint64_t> sent = session->Submit(*stream, GetRecord(ipc::Op::kMakeGraph, *number));
  Status status = sent.status();
  for (std::size_t node = 0; status.ok() && node < nodes.size(); ++node) {
    status = graph->Send(*stream, node, nodes[node]);
  }
  if (status.ok()) status = session->Await(**stream, session->submitted(**stream));
  session->DestroyStream(*stream);
  if (!status.ok()) return status;
  const MutexLock lock(graph->mutex_);
  for (RecordedNode& node : nodes) {
    graph->is_launch_.push_back(node.is_launch());
    graph->kernels_.push_back(std::move(node.kernel));
  }
  return graph;
}

GraphState::~GraphState() { session_->DestroyGraph(number_); }

Status GraphState::Send(const std::shared_ptr<StreamRecord>& stream, std::size_t number,
                        const RecordedNode& node) const {
  ipc::GraphRecord record = GetRecord(ipc::Op::kSetGraphNode, number_);
  record.node = static_cast<std::uint32_t>(number);
  std::vector<std::byte> content(node.head.begin(), node.head.end());
  if (!node.is_launch()) {
    record.content_bytes = static_cast<std::uint32_t>(content.size());
    return session_->Submit(stream, record, content).status();
  }
  ipc::LaunchRecord launch;
  std::memcpy(&launch, content.data(), sizeof launch);
  const std::size_t bytes = node.parameters.size();
  std::byte* staged = nullptr;
  if (content.size() + bytes <= ipc::kGraphNodeBytesMax) {
    launch.header.continuations = static_cast<std::uint16_t>(
        (bytes + ipc::kContinuationDataBytes - 1) / ipc::kContinuationDataBytes);
    content.insert(content.end(), node.parameters.begin(), node.parameters.end());
  } else {
    const Result<StagingBlock> block = session_->AllocateStaging(bytes);
    if (!block.ok()) return block.status();
    staged = block->data;
    std::memcpy(staged, node.parameters.data(), bytes);
    launch.header.flags |= ipc::kFlagParametersInStagingBuffer;
    launch.staging_buffer = block->place.staging_buffer;
    launch.staging_offset = block->place.offset;
  }
  std::memcpy(content.data(), &launch, sizeof launch);
  record.content_bytes = static_cast<std::uint32_t>(content.size());
  const Result<std::uint64_t> sequence = session_->Submit(stream, record, content);
  if (staged != nullptr && sequence.ok()) {
    session_->staging_buffers().Retire(staged, {{stream->number(), *sequence}});
  } else if (staged != nullptr) {
    session_->staging_buffers().Free(staged);
  }
  return sequence.status();
}

Status GraphState::Launch(const std::shared_ptr<StreamRecord>& stream) {
  const MutexLock lock(mutex_);
  while (!changed_.empty()) {
    const auto first = changed_.begin();
    if (Status status = Send(stream, first->first, first->second); !status.ok()) return status;
    // Launches that were submitted before still need the old kernel; unloading its module waits for
    // them.
    kernels_[first->first] = std::move(first->second.kernel);
    changed_.erase(first);
  }
  return session_->Submit(stream, GetRecord(ipc::Op::kLaunchGraph, number_)).status();
}

Status GraphState::Replace(std::size_t number, RecordedNode node) {
  const MutexLock lock(mutex_);
  if (number >= size_) {
    return Invalid("node rejected: the graph has " + std::to_string(size_) +
                   " nodes, asked to change number " + std::to_string(number) +
                   " (counted from 0)");
  }
  if (!is_launch_[number] || !node.is_launch()) {
    return Invalid("node rejected: node " + std::to_string(number) +
                   " is no launch; copies and fills of a graph cannot be changed");
  }
  changed_[number] = std::move(node);
  return Status::Ok();
}

}  // namespace client

// ---- public interface

Result<Stream> Client::CreateRecorder() const {
  if (!valid()) return Status(StatusCode::kInvalidArgument, "the client is empty");
  if (Status status = session_->Usable(); !status.ok()) return status;
  auto record = std::make_shared<client::StreamRecord>(0, 0);
  record->set_recorder(std::make_shared<client::GraphRecorder>());
  return Stream(std::make_shared<client::StreamState>(session_, std::move(record)));
}

Result<Graph> Stream::MakeGraph() const {
  if (!valid() || state_->record()->recorder() == nullptr) {
    return Status(StatusCode::kInvalidArgument, "graph rejected: the stream is no recorder");
  }
  if (Status status = state_->session().Usable(); !status.ok()) return status;
  Result<std::shared_ptr<client::GraphState>> graph =
      client::GraphState::Make(state_->shared_session(), state_->record()->recorder()->Take());
  if (!graph.ok()) return graph.status();
  return Graph(*std::move(graph));
}

std::size_t Graph::node_count() const noexcept { return valid() ? state_->size() : 0; }

Status Graph::Launch(const Stream& stream) const {
  if (!valid()) return Status(StatusCode::kInvalidArgument, "launch rejected: the graph is empty");
  if (!stream.valid() || &stream.state_->session() != &state_->session()) {
    return Status(StatusCode::kInvalidArgument,
                  "launch rejected: the stream is empty or belongs to another client");
  }
  return state_->Launch(stream.state_->record());
}

Status Graph::SetLaunchWith(std::size_t node, const Kernel& kernel, const LaunchShape& shape,
                            std::span<const LaunchArgument> arguments) const {
  return SetRecorded(
      node, [&](const Stream& recorder) { return recorder.LaunchWith(kernel, shape, arguments); });
}

Status Graph::SetLaunchPacked(std::size_t node, const Kernel& kernel, const LaunchShape& shape,
                              std::span<const std::byte> parameters) const {
  return SetRecorded(node, [&](const Stream& recorder) {
    return recorder.LaunchPacked(kernel, shape, parameters);
  });
}

template <typename Record>
Status Graph::SetRecorded(std::size_t node, Record record) const {
  if (!valid()) return Status(StatusCode::kInvalidArgument, "node rejected: the graph is empty");
  auto stream = std::make_shared<client::StreamRecord>(0, 0);
  stream->set_recorder(std::make_shared<client::GraphRecorder>());
  const std::shared_ptr<client::GraphRecorder> recorder = stream->recorder();
  const Stream one(
      std::make_shared<client::StreamState>(state_->shared_session(), std::move(stream)));
  if (Status status = record(one); !status.ok()) return status;
  std::vector<client::RecordedNode> nodes = recorder->Take();
  return state_->Replace(node, std::move(nodes.front()));
}

}  // namespace gpushared
