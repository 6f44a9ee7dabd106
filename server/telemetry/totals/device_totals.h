// SPDX-License-Identifier: Apache-2.0
// Monotonic counters of a device. They survive the exit of clients, the death of workers and the
// replacement of brokers.

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

#include "ipc/owner.h"
#include "ipc/unique_fd.h"
#include "scheduler/types.h"

namespace gpushared::server {

// Counter that one thread writes and any process may read concurrently.
class Total {
 public:
  Total() = default;
  Total(const Total& other) : value_(other.Get()) {}
  Total& operator=(const Total& other) {
    value_.store(other.Get(), std::memory_order_relaxed);
    return *this;
  }

  // Relaxed, because a total has one writer and orders no other memory access.
  void Add(std::uint64_t by) {
    value_.store(value_.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
  void Add(scheduler::Duration by) {
    if (by.count() > 0) Add(static_cast<std::uint64_t>(by.count()));
  }
  // Relaxed, as in Add. For the few totals that may fall.
  void Set(std::uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  // Relaxed, as in Add.
  std::uint64_t Get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_ = 0;
};

// Histogram of durations with buckets that end at powers of two, the coarse bounds of LogHistogram.
struct TotalHistogram {
  // Upper bounds, inclusive: 2^10 ns (1.024 µs), 2^11 ns, ... 2^34 ns (17.2 s), then infinity.
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

  std::array<Total, kBounds + 1> counts;  // Number of samples in each bucket; not cumulative.
  Total sum_ns;
};

// Activity of the clients of one class while they had that class. ClientCounters documents the
// fields.
struct ClassTotals {
  Total sessions;  // Sessions that began in this class.
  Total device_time_ns;
  Total commands, launches, copies, fills;
  Total bytes_in, bytes_out, bytes_on_device;
  Total commands_rejected, commands_failed, commands_skipped;
  Total stops, wasted_ns;
  Total requests, requests_with_target, requests_target_met;
  Total targets_abandoned;
  // Memory oversubscription. A swap is counted when a client whose memory is all resident loses
  // some of it. A client is waiting while it has commands but not all of its memory is resident.
  Total memory_out_bytes, memory_in_bytes, memory_swaps, memory_waited_ns;
  Total energy_mj;
  TotalHistogram queue_wait, request_time, stop_time;
};

// The part of a class's activity by clients of one endpoint.
struct EndpointTotals {
  Total sessions;
  Total device_time_ns;
  Total commands;
  Total bytes_in, bytes_out, bytes_on_device;
  Total requests, requests_with_target, requests_target_met;
};

// The part of a device's activity by clients of one owner, in any class and through any endpoint.
struct OwnerTotals {
  Total sessions;
  Total device_time_ns;
  Total energy_mj;
  Total requests, requests_with_target, requests_target_met;
};

// Where the activity of one client is counted. Copies share their counters.
class ClientTotals {
 public:
  ClientTotals() = default;
  ClientTotals(ClassTotals& of_class, EndpointTotals& of_endpoint, OwnerTotals& of_owner)
      : of_class_(&of_class), of_endpoint_(&of_endpoint), of_owner_(&of_owner) {}

  void AddSession() {
    of_class_->sessions.Add(1);
    of_endpoint_->sessions.Add(1);
    of_owner_->sessions.Add(1);
  }
  void AddCommand() {
    of_class_->commands.Add(1);
    of_endpoint_->commands.Add(1);
  }
  void AddDeviceTime(scheduler::Duration held) {
    of_class_->device_time_ns.Add(held);
    of_endpoint_->device_time_ns.Add(held);
    of_owner_->device_time_ns.Add(held);
  }
  void AddEnergy(std::uint64_t energy_mj) {
    of_class_->energy_mj.Add(energy_mj);
    of_owner_->energy_mj.Add(energy_mj);
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
    const auto add = [&](auto& totals) {
      totals.requests.Add(1);
      totals.requests_with_target.Add(has_target);
      totals.requests_target_met.Add(is_target_met);
    };
    add(*of_class_);
    add(*of_endpoint_);
    add(*of_owner_);
  }
  // The remaining counters are split neither by endpoint nor by owner.
  ClassTotals& of_class() { return *of_class_; }
  bool operator==(const ClientTotals& other) const = default;

 private:
  ClassTotals* of_class_ = nullptr;
  EndpointTotals* of_endpoint_ = nullptr;
  OwnerTotals* of_owner_ = nullptr;
};

// Counters of one device in a memory-mapped file, which successive workers of the device continue.
// Nothing is lost if a worker is killed, because the kernel keeps the memory. One worker at a time
// writes; any process with access to the file may read.
//
// Thread-compatible: confined to the device thread once it runs. Rows keep their addresses.
class DeviceTotals {
 public:
  // Twice the maximum number of clients, so that a free row exists for every endpoint with clients.
  static constexpr std::size_t kEndpointsMax = 2 * scheduler::kClientsMax;
  static constexpr std::size_t kEndpointNameBytes = 40;  // Including the terminator.
  static constexpr std::size_t kOwnersMax = kEndpointsMax;

  struct Endpoint {
    char name[kEndpointNameBytes];  // Empty in the first row, which is for unknown endpoints.
    Total number;                   // Number of this use of the row; 0 if it is free.
    std::array<EndpointTotals, scheduler::kSchedulingClasses> classes;
  };
  struct Owner {
    // Text of ipc::Owner::ToRow. Empty in the first row, which is for unknown owners.
    char name[ipc::kOwnerBytes];
    Total number;
    Total clients;  // Connected clients.
    Total left_ns;  // When a client of the owner left last, on the steady clock.
    OwnerTotals totals;
  };
  struct Layout {
    std::uint64_t number;   // Must change with the layout.
    Total workers_started;  // Including the current one.
    Total gap_ns, gap_used_ns, host_steal_ns;
    // Energy that the device used while a worker measured it. The energy of all classes and the
    // idle energy add up to energy_mj.
    Total energy_mj, energy_idle_mj;
    Total xids;  // Critical errors that the driver has reported.
    std::array<ClassTotals, scheduler::kSchedulingClasses> classes;
    // Incremented before and after a row is renamed, and therefore odd in between (seqlock).
    std::atomic<std::uint64_t> renamed;
    std::array<Endpoint, kEndpointsMax> endpoints;
    std::array<Owner, kOwnersMax> owners;
  };

  // Opens the file to continue its counters, or creates it. A file of another layout is reset.
  // kUnavailable: another worker is writing it. kInvalidArgument: it is not a totals file.
  static Result<std::unique_ptr<DeviceTotals>> Open(const std::string& path);
  // Counters that are not persisted.
  static Result<std::unique_ptr<DeviceTotals>> InMemory();
  // Returns a copy of a file's counters. kNotFound: the file does not exist or has another layout.
  static Result<std::unique_ptr<Layout>> Read(const std::string& path);

  ~DeviceTotals();
  DeviceTotals(const DeviceTotals&) = delete;
  DeviceTotals& operator=(const DeviceTotals&) = delete;

  Layout& layout() { return *layout_; }
  const Layout& layout() const { return *layout_; }

  // Numbers of the rows of one client.
  struct Rows {
    std::size_t endpoint = 0, owner = 0;
  };
  // Returns the rows of that endpoint and that owner (ipc::Owner::ToRow) and marks them as used
  // until Leave has been called as often as Enter. If all rows are taken, resets the row that has
  // been unused for longest and reuses it. Rows of owners are chosen only among those of the user
  // who has the most, so that no user can reset another user's counters by renaming programs.
  Rows Enter(std::string_view endpoint, std::string_view owner = {});
  void Leave(const Rows& rows, scheduler::TimePoint now = {});
  ClientTotals For(scheduler::SchedulingClass of_class, const Rows& rows);

 private:
  using Clients = std::array<std::uint32_t, kEndpointsMax>;  // Clients of this worker, by row.

  DeviceTotals(Layout* layout, ipc::UniqueFd file) : layout_(layout), file_(std::move(file)) {}
  template <typename Row>
  std::size_t EnterRow(std::array<Row, kEndpointsMax>& rows, Clients& clients,
                       std::string_view name);
  template <typename Row>
  void Rename(Row& row, std::string_view name);

  Layout* layout_;
  ipc::UniqueFd file_;  // Locked while it is open; invalid for InMemory.
  Clients of_endpoint_{}, of_owner_{};
  std::uint64_t uses_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TELEMETRY_TOTALS_DEVICE_TOTALS_H_
