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
  std::string socket;                // The server's.
  std::vector<std::string> devices;  // Empty: all that there are.
  std::string file;
  std::uint64_t bytes_max = 0;  // The file ends when it is longer.
};

// Writes what runs on devices into a file, for a while. A device whose worker ends is followed to
// its next worker.
//
// Thread-compatible.
class Recording {
 public:
  // Asks the server, and makes the file. A rejection is the server's own.
  static Result<std::unique_ptr<Recording>> Begin(const RecordingOptions& options);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording();

  // To be called every few milliseconds, or events are lost. False: the file is full, or could not
  // be written.
  bool Go();
  // The last events, and the end of the file.
  Status Finish();

  // What was written: file, seconds, slices, requests, clients, stops, devices, lost, bytes, and
  // whether the file is full.
  nlohmann::json Summary() const;

 private:
  using Clock = std::chrono::steady_clock;
  // How often the next worker of a device is asked for.
  static constexpr std::chrono::milliseconds kAskEvery{200};
  // Bytes that are written to the file at one time.
  static constexpr std::size_t kWriteBytes = std::size_t{1} << 20;

  struct Device {
    std::string id;
    std::size_t number = 0;  // The timeline's.
    std::optional<admin::TraceWatch> watch;
    Clock::time_point next_ask{};
  };

  Recording(RecordingOptions options, std::FILE* file);
  // A device that is not ready is asked again later.
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
