// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CTL_TRACE_RECORDING_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TRACE_RECORDING_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/telemetry/admin/trace_watch.h"
#include "server/tools/ctl/trace/json_trace.h"
#include "server/tools/ctl/trace/timeline.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::server {

struct RecordingOptions {
  std::string socket;                // Path of the server's socket.
  std::vector<std::string> devices;  // If empty, all devices.
  std::string file;
  std::uint64_t bytes_max = 0;  // Size of the file at which the recording ends.
};

// Records the execution traces of devices in a file. When a device's worker exits, continues with
// the next worker.
//
// Thread-compatible.
class Recording {
 public:
  // Connects to the server and creates the file. If the server rejects a request, returns the
  // server's Status.
  static Result<std::unique_ptr<Recording>> Begin(const RecordingOptions& options);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording();

  // Must be called every few milliseconds, otherwise events are lost. Returns false if the file is
  // full or could not be written.
  bool Go();
  // Writes the last events and completes the file.
  Status Finish();

  // Returns a summary of the recording: file, seconds, slices, requests, clients, stops, devices,
  // lost, bytes, and whether the file is full.
  nlohmann::json Summary() const;

 private:
  using Clock = std::chrono::steady_clock;
  // Interval of attempts to reach a device's next worker.
  static constexpr std::chrono::milliseconds kAskEvery{200};
  // Number of bytes of pending text from which the text is written to the file.
  static constexpr std::size_t kWriteBytes = std::size_t{1} << 20;

  struct Device {
    std::string id;
    std::size_t number = 0;  // Number of the device in the timeline.
    std::optional<admin::TraceWatch> watch;
    Clock::time_point next_ask{};
  };

  Recording(RecordingOptions options, std::FILE* file);
  // Begins to follow the device; retries later if the device is not ready.
  Status Watch(Device& device);
  void Follow(Device& device);
  void Poll(Device& device);
  void Write();

  const RecordingOptions options_;
  JsonTrace trace_;
  Timeline timeline_{trace_};
  std::FILE* file_;
  std::vector<Device> devices_;
  const Clock::time_point begun_ = Clock::now();
  Clock::time_point ended_{};
  std::uint64_t bytes_ = 0, lost_ = 0;
  bool is_full_ = false;
  Status failure_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TRACE_RECORDING_H_
