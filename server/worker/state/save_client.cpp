// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/save_client.h"

#include <fmt/format.h>

#include <string>

namespace gpushared::server {
namespace {

Status Wrong(const char* what) {
  return {StatusCode::kProtocolViolation, std::string("moved client rejected: its ") + what};
}

}  // namespace

Status CheckMove(const ClientState& client) {
  const auto reject = [&](const std::string& why) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("client cannot be moved: {} [{}]", why, client.setup.who));
  };
  if (!client.graphs.empty()) return reject("it has graphs");
  for (std::uint32_t stream = 0; stream < ipc::kStreamsMax; ++stream) {
    const StreamState& state = client.streams[stream];
    if (state.has_failed || state.error != nullptr) {
      return reject(fmt::format("its stream {} has failed", stream));
    }
  }
  return {};
}

SavedClient Save(const ClientState& client) {
  SavedClient saved;
  saved.commands_taken = client.intake.position();
  saved.commands_published = client.intake.published();
  saved.completions_written = client.output.position();
  saved.completions_taken = client.output.known_taken();
  saved.completions_reserved = static_cast<std::uint32_t>(client.output.reserved());
  saved.counters = client.counters;
  for (std::uint32_t stream = 0; stream < ipc::kStreamsMax; ++stream) {
    const StreamState& state = client.streams[stream];
    const bool is_live = client.intake.is_live(stream);
    if (!is_live && state.finished == 0) continue;
    saved.streams.push_back({.stream = stream,
                             .is_live = is_live,
                             .finished = state.finished,
                             .last_time_ns = state.last_time_ns,
                             .failed_first = state.failed_before.first,
                             .failed_last = state.failed_before.last});
  }
  for (const auto& [address, bytes] : client.buffers.all()) {
    saved.buffers.push_back({.address = address, .bytes = bytes});
  }
  return saved;
}

Status Restore(const SavedClient& saved, std::uint64_t mapped_bytes, ClientState& client) {
  if (!client.intake.Resume(saved.commands_taken, saved.commands_published)) {
    return Wrong("position in the command ring is impossible");
  }
  if (!client.output.Resume(saved.completions_written, saved.completions_taken,
                            saved.completions_reserved)) {
    return Wrong("position in the completion ring is impossible");
  }
  client.counters = saved.counters;
  client.was_saved = true;
  client.requests_before = saved.last_request;
  client.has_marked_requests = saved.has_marked_requests;
  client.scope.GrowTo(mapped_bytes);
  for (const SavedStream& stream : saved.streams) {
    client.intake.ResumeStream(stream.stream, stream.finished, stream.is_live);
    StreamState& state = client.streams[stream.stream];
    state.finished = stream.finished;
    state.last_time_ns = stream.last_time_ns;
    state.failed_before = {stream.failed_first, stream.failed_last};
  }
  for (const SavedBuffer& buffer : saved.buffers) {
    if (client.buffers.Add(buffer.address, buffer.bytes, mapped_bytes) != nullptr) {
      return Wrong("buffers overlap or are outside of its memory");
    }
  }
  return {};
}

}  // namespace gpushared::server
