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

// Checks periodically which GPUs the machine has. Each check runs on a separate thread, one at a
// time, because the driver's library is slow and may never return after a GPU fell off the bus. In
// that case there are no further reports, and the broker is not affected.
//
// Confined to the thread that runs `context`, on which `on_inventory` is called, too; only `read`
// is called elsewhere. Must be destroyed while `context` is not running; a check in progress is
// abandoned.
class InventoryWatch {
 public:
  using Read = std::function<device::Inventory()>;
  using OnInventory = std::function<void(const device::Inventory& inventory)>;

  // The first check runs after one interval.
  InventoryWatch(boost::asio::io_context& context, Read read, std::chrono::milliseconds interval,
                 OnInventory on_inventory);
  ~InventoryWatch();
  InventoryWatch(const InventoryWatch&) = delete;
  InventoryWatch& operator=(const InventoryWatch&) = delete;

  // Starts a check or, if one is in progress, has another one follow it, because the current one
  // may have begun before the event of interest.
  void CheckNow();

 private:
  struct Shared;

  void Wait();
  void OnRead(const device::Inventory& inventory);

  const Read read_;
  const std::chrono::milliseconds interval_;
  const OnInventory on_inventory_;
  boost::asio::steady_timer timer_;
  bool is_checking_ = false;
  bool checks_again_ = false;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_INVENTORY_WATCH_H_
