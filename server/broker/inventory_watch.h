// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_INVENTORY_WATCH_H_
#define GPUSHARED_SERVER_BROKER_INVENTORY_WATCH_H_

#include <chrono>
#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/device/inventory/inventory.h"

namespace gpushared::server {

// Looks every so often which GPUs the machine has. The looks are on threads of their own, one at a
// time: the driver's library takes its time, and with a GPU that fell off its bus it may never
// answer. Then there is no further news, and no harm to anybody.
//
// Confined to the thread that runs `context`, where the news arrive too; only `read` is called
// elsewhere. Destroyed when `context` is not running; a look that is under way is abandoned.
class InventoryWatch {
 public:
  using Read = std::function<device::Inventory()>;
  using News = std::function<void(const device::Inventory& inventory)>;

  // The first look comes after one interval.
  InventoryWatch(boost::asio::io_context& context, Read read, std::chrono::milliseconds interval,
                 News news);
  ~InventoryWatch();
  InventoryWatch(const InventoryWatch&) = delete;
  InventoryWatch& operator=(const InventoryWatch&) = delete;

  // Also when a look is under way: that may have begun before what the caller wants to see.
  void LookNow();

 private:
  struct Shared;

  void Wait();
  void OnRead(const device::Inventory& inventory);

  const Read read_;
  const std::chrono::milliseconds interval_;
  const News news_;
  boost::asio::steady_timer timer_;
  bool is_looking_ = false;
  bool looks_again_ = false;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_INVENTORY_WATCH_H_
