// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/trace/recording.h"

#include <errno.h>

#include <map>
#include <system_error>
#include <utility>

#include "ipc/wire/bytes.h"
#include "ipc/wire/control.h"
#include "server/telemetry/admin/ask.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {

namespace {

using nlohmann::json;

Status FileFailed(const std::string& file) {
  return {StatusCode::kInternal,
          "cannot write " + file + ": " + std::generic_category().message(errno)};
}

}  // namespace

Recording::Recording(RecordingOptions options, std::FILE* file)
    : options_(std::move(options)), file_(file) {}

Recording::~Recording() {
  if (file_ != nullptr) (void)std::fclose(file_);
}

Result<std::unique_ptr<Recording>> Recording::Begin(const RecordingOptions& options) {
  const Result<json> answer = admin::Ask(options.socket, {.verb = ipc::AdminVerb::kDevices});
  if (!answer.ok()) return answer.status();
  std::FILE* const file = std::fopen(options.file.c_str(), "wbe");
  if (file == nullptr) return FileFailed(options.file);
  std::unique_ptr<Recording> recording(new Recording(options, file));
  std::vector<std::string> wanted = options.devices;
  std::map<std::string, std::string> names;
  for (const json& row : answer->value("devices", json::array())) {
    const std::string id = row.value("device", "");
    names[id] = row.value("name", "");
    if (options.devices.empty()) wanted.push_back(id);
  }
  for (const std::string& id : wanted) {
    Device device{.id = id};
    device.number =
        recording->timeline_.AddDevice(ipc::PrintableText(id), ipc::PrintableText(names[id]));
    if (Status status = recording->Watch(device); !status.ok()) return status;
    recording->devices_.push_back(std::move(device));
  }
  if (recording->devices_.empty()) {
    return Status(StatusCode::kNotFound, "trace rejected: this server has no device");
  }
  return recording;
}

Status Recording::Watch(Device& device) {
  device.next_ask = Clock::now() + kAskEvery;
  Result<admin::TraceWatch> watch = admin::TraceWatch::Begin(options_.socket, device.id);
  if (watch.ok()) {
    device.watch = *std::move(watch);
    return Status::Ok();
  }
  const bool may_come =
      watch.status().code() == StatusCode::kNotReady || admin::IsUnreachable(watch.status());
  return may_come ? Status::Ok() : watch.status();
}

void Recording::Poll(Device& device) {
  trace::Reader& reader = device.watch->reader();
  lost_ += reader
               .Poll([&](const trace::Event& event) {
                 if (is_full_) return;
                 timeline_.Add(device.number, reader, event);
                 if (trace_.pending_bytes() >= kWriteBytes) Write();
               })
               .lost;
}

void Recording::Follow(Device& device) {
  if (device.watch) {
    // Determines whether the worker has exited before its events are read, so that its last events
    // are read, too.
    const bool has_ended = device.watch->HasEnded();
    Poll(device);
    if (has_ended) device.watch.reset();
  } else if (Clock::now() >= device.next_ask) {
    (void)Watch(device);
  }
}

bool Recording::Go() {
  for (Device& device : devices_) Follow(device);
  return failure_.ok() && !is_full_;
}

void Recording::Write() {
  const std::string bytes = trace_.Take();
  if (!failure_.ok()) return;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) {
    failure_ = FileFailed(options_.file);
  }
  bytes_ += bytes.size();
  is_full_ = bytes_ >= options_.bytes_max;
}

Status Recording::Finish() {
  for (Device& device : devices_) {
    if (device.watch) Poll(device);
  }
  Write();
  trace_.Finish();
  Write();
  ended_ = Clock::now();
  if (std::fclose(std::exchange(file_, nullptr)) != 0 && failure_.ok()) {
    failure_ = FileFailed(options_.file);
  }
  return failure_;
}

json Recording::Summary() const {
  const Timeline::Counts& counts = timeline_.counts();
  json devices = json::array();
  for (const Device& device : devices_) devices.push_back(device.id);
  return {{"file", options_.file},
          {"seconds", std::chrono::duration<double>(ended_ - begun_).count()},
          {"devices", devices},
          {"clients", counts.clients},
          {"slices", counts.slices},
          {"requests", counts.requests},
          {"stops", counts.stops},
          {"lost", lost_},
          {"bytes", bytes_},
          {"is_full", is_full_}};
}

}  // namespace gpushared::server
