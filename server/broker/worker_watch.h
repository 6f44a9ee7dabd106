// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_WORKER_WATCH_H_
#define GPUSHARED_SERVER_BROKER_WORKER_WATCH_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/logger.h>

#include "server/broker/device_table.h"

namespace gpushared::server {

// Checks periodically whether each worker's control thread still answers. A worker that is silent
// for long gets no new clients. A worker that stays silent is killed, because clients of its device
// can no longer connect, load modules or disconnect until another worker replaces it.
//
// Only time in which the broker itself runs is counted, so no worker appears silent after the
// machine was suspended. A worker that a debugger has stopped is not considered silent either.
//
// Confined to the broker's thread.
class WorkerWatch {
 public:
  struct Limits {
    std::chrono::milliseconds interval{1000};
    std::uint32_t silent_after = 10;  // Intervals without an answer.
    std::uint32_t killed_after = 60;
  };
  // Request number of liveness queries and their answers.
  static constexpr std::uint32_t kRequest = 0xffffffff;

  // `devices` must outlive this object.
  WorkerWatch(boost::asio::io_context& context, DeviceTable& devices, Limits limits,
              std::shared_ptr<spdlog::logger> log);

  void OnAnswer(DeviceEntry& device);
  void Stop() { timer_.cancel(); }

 private:
  void Wait();
  void CheckDevice(DeviceEntry& device);
  std::string Silence(const DeviceEntry& device) const;

  DeviceTable& devices_;
  const Limits limits_;
  const std::shared_ptr<spdlog::logger> log_;
  boost::asio::steady_timer timer_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_WORKER_WATCH_H_
