// SPDX-License-Identifier: Apache-2.0
// Counters of a device that never fall: clients leave, workers die and brokers follow each other,
// and the counters stay.

#ifndef GPUSHARED_SERVER_TELEMETRY_TOTALS_DEVICE_TOTALS_H_
#define GPUSHARED_SERVER_TELEMETRY_TOTALS_DEVICE_TOTALS_H_

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "gpushared/result.h"

#include "ipc/unique_fd.h"
#include "scheduler/types.h"

namespace gpushared::server {

// A number that one thread adds to and any process may read meanwhile.
class Total {
 public:
  Total() = default;
  Total(const Total& other) : value_(other.Get()) {}
  Total& operator=(const Total& other) {
    value_.store(other.Get(), std::memory_order_relaxed);
    return *this;
  }

  // Relaxed: a total orders nothing, and has one writer.
  void Add(std::uint64_t by) {
    value_.store(value_.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
  void Add(scheduler::Duration by) {
    if (by.count() > 0) Add(static_cast<std::uint64_t>(by.count()));
  }
  // Relaxed: as Add.
  std::uint64_t Get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_ = 0;
};

// Durations in buckets that end at powers of two: the coarse bounds of LogHistogram.
struct TotalHistogram {
  // The ends are 2^10 ns (1.024 µs), 2^11 ns, ... 2^34 ns (17.2 s), each included; then infinity.
  static constexpr unsigned kFirstPower = 10;
  static constexpr std::size_t kBounds = 25;

  static constexpr std::uint64_t BoundNs(std::size_t bound) {
    return std::uint64_t{1} << (kFirstPower + bound);
  }
  void Add(std::uint64_t ns) {
    const auto power = static_cast<std::size_t>(std::bit_width(ns == 0 ? 0 : ns - 1));
    const std::size_t bucket = power <= kFirstPower ? 0 : power - kFirstPower;
    counts[bucket < kBounds ? bucket : kBounds].Add(1);
    sum_ns.Add(ns);
  }
  void Add(scheduler::Duration time) {
    Add(time.count() < 0 ? 0 : static_cast<std::uint64_t>(time.count()));
  }

  std::array<Total, kBounds + 1> counts;  // Not cumulative.
  Total sum_ns;
};

// What the clients of one class did, each while it had that class. ClientCounters says what they
// mean.
struct ClassTotals {
  Total sessions;  // They began in it.
  Total device_time_ns;
  Total commands, launches, copies, fills;
  Total bytes_in, bytes_out, bytes_on_device;
  Total commands_rejected, commands_failed, commands_skipped;
  Total stops, wasted_ns;
  Total requests, requests_with_target, requests_target_met;
  Total targets_abandoned;
  // Where memory moves. A move begins where a client had all of its memory. A client waits while it
  // has commands and not all of its memory.
  Total memory_out_bytes, memory_in_bytes, memory_swaps, memory_waited_ns;
  TotalHistogram queue_wait, request_time, stop_time;
};

// The part of it that clients did who came through one endpoint.
struct EndpointTotals {
  Total sessions;
  Total device_time_ns;
  Total commands;
  Total bytes_in, bytes_out, bytes_on_device;
  Total requests, requests_with_target, requests_target_met;
};

// Where the work of one client is counted. Copies count in the same place.
class ClientTotals {
 public:
  ClientTotals() = default;
  ClientTotals(ClassTotals& of_class, EndpointTotals& of_endpoint)
      : of_class_(&of_class), of_endpoint_(&of_endpoint) {}

  void AddSession() {
    of_class_->sessions.Add(1);
    of_endpoint_->sessions.Add(1);
  }
  void AddCommand() {
    of_class_->commands.Add(1);
    of_endpoint_->commands.Add(1);
  }
  void AddDeviceTime(scheduler::Duration held) {
    of_class_->device_time_ns.Add(held);
    of_endpoint_->device_time_ns.Add(held);
  }
  void AddBytesIn(std::uint64_t bytes) {
    of_class_->bytes_in.Add(bytes);
    of_endpoint_->bytes_in.Add(bytes);
  }
  void AddBytesOut(std::uint64_t bytes) {
    of_class_->bytes_out.Add(bytes);
    of_endpoint_->bytes_out.Add(bytes);
  }
  void AddBytesOnDevice(std::uint64_t bytes) {
    of_class_->bytes_on_device.Add(bytes);
    of_endpoint_->bytes_on_device.Add(bytes);
  }
  void AddRequest(scheduler::Duration latency, bool has_target, bool is_target_met) {
    of_class_->request_time.Add(latency);
    for (Total* const requests : {&of_class_->requests, &of_endpoint_->requests}) requests->Add(1);
    of_class_->requests_with_target.Add(has_target);
    of_endpoint_->requests_with_target.Add(has_target);
    of_class_->requests_target_met.Add(is_target_met);
    of_endpoint_->requests_target_met.Add(is_target_met);
  }
  // The rest is not told apart by endpoint.
  ClassTotals& of_class() { return *of_class_; }

 private:
  ClassTotals* of_class_ = nullptr;
  EndpointTotals* of_endpoint_ = nullptr;
};

// The counters of one device in the memory of a file, which the next worker of the device goes on
// with. A worker that is killed loses nothing: the kernel has the memory. One worker at a time
// writes, anybody with the right to the file may read.
//
// Thread-compatible: confined to the device thread once that runs. Rows stay where they are.
class DeviceTotals {
 public:
  // Twice as many as clients can be there. So a row is free for every endpoint that has one.
  static constexpr std::size_t kEndpointsMax = 2 * scheduler::kClientsMax;
  static constexpr std::size_t kEndpointNameBytes = 40;  // Terminator included.

  struct Endpoint {
    char name[kEndpointNameBytes];  // Empty, in the first row: nobody said it.
    Total number;                   // Of this use of the row; 0: it is free.
    std::array<EndpointTotals, scheduler::kSchedulingClasses> classes;
  };
  struct Layout {
    std::uint64_t number;   // Another one for another layout.
    Total workers_started;  // The present one included.
    Total gap_ns, gap_used_ns, host_steal_ns;
    std::array<ClassTotals, scheduler::kSchedulingClasses> classes;
    // Grows before and after a row gets another name, so it is odd meanwhile.
    std::atomic<std::uint64_t> renamed;
    std::array<Endpoint, kEndpointsMax> endpoints;
  };

  // Goes on with the file, or makes it. A file of another layout begins anew. kUnavailable:
  // another worker writes it. kInvalidArgument: it is not a file of ours.
  static Result<std::unique_ptr<DeviceTotals>> Open(const std::string& path);
  // Kept nowhere.
  static Result<std::unique_ptr<DeviceTotals>> InMemory();
  // A copy of a file's counters. kNotFound: there is none yet, or it is of another layout.
  static Result<std::unique_ptr<Layout>> Read(const std::string& path);

  ~DeviceTotals();
  DeviceTotals(const DeviceTotals&) = delete;
  DeviceTotals& operator=(const DeviceTotals&) = delete;

  Layout& layout() { return *layout_; }
  const Layout& layout() const { return *layout_; }

  // The row of that endpoint, until Leave is called as often. The longest unused row of another one
  // is taken where all are in use; that one's counters end.
  std::size_t Enter(std::string_view endpoint);
  void Leave(std::size_t row);
  ClientTotals For(scheduler::SchedulingClass of_class, std::size_t row);

 private:
  DeviceTotals(Layout* layout, ipc::UniqueFd file) : layout_(layout), file_(std::move(file)) {}
  void Rename(Endpoint& row, std::string_view name);

  Layout* layout_;
  ipc::UniqueFd file_;  // Locked for as long as it is open; invalid in memory.
  std::array<std::uint32_t, kEndpointsMax> clients_{};  // This worker's, by row.
  std::uint64_t uses_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TELEMETRY_TOTALS_DEVICE_TOTALS_H_
