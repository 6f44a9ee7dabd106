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

// Asks each worker every so often whether its control thread still answers. One that is silent for
// long gets no clients. One that stays so is killed, since nobody on its device can connect, load
// or leave any more. Its successor gives everybody all of that back.
//
// What counts is the broker's own time: neither a machine that slept nor a worker that somebody
// has stopped, as a debugger does, is silent.
//
// Confined to the broker's thread.
class WorkerWatch {
 public:
  struct Limits {
    std::chrono::milliseconds interval{1000};
    std::uint32_t silent_after = 10;  // Intervals without an answer.
    std::uint32_t killed_after = 60;
  };
  // In the place of an operator's request number, in questions of this class and their answers.
  static constexpr std::uint32_t kRequest = 0xffffffff;

  // `devices` outlives this.
  WorkerWatch(boost::asio::io_context& context, DeviceTable& devices, Limits limits,
              std::shared_ptr<spdlog::logger> log);

  void OnAnswer(DeviceEntry& device);
  void Stop() { timer_.cancel(); }

 private:
  void Wait();
  void Look(DeviceEntry& device);
  std::string Silence(const DeviceEntry& device) const;

  DeviceTable& devices_;
  const Limits limits_;
  const std::shared_ptr<spdlog::logger> log_;
  boost::asio::steady_timer timer_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_WORKER_WATCH_H_
