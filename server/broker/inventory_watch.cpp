// SPDX-License-Identifier: Apache-2.0
#include "server/broker/inventory_watch.h"

#include <thread>
#include <utility>

#include <boost/asio/post.hpp>

#include "gpushared/mutex.h"

namespace gpushared::server {

// State shared with the checking thread, which may outlive the watch and the context.
struct InventoryWatch::Shared {
  Mutex mutex;
  // Null after the watch has been destroyed.
  boost::asio::io_context* context GPUSHARED_GUARDED_BY(mutex) = nullptr;
  InventoryWatch* watch = nullptr;  // Used on the context's thread only.
};

InventoryWatch::InventoryWatch(boost::asio::io_context& context, Read read,
                               std::chrono::milliseconds interval, OnInventory on_inventory)
    : read_(std::move(read)),
      interval_(interval),
      on_inventory_(std::move(on_inventory)),
      timer_(context),
      shared_(std::make_shared<Shared>()) {
  shared_->context = &context;
  shared_->watch = this;
  Wait();
}

InventoryWatch::~InventoryWatch() {
  const MutexLock lock(shared_->mutex);
  shared_->context = nullptr;
  shared_->watch = nullptr;
}

void InventoryWatch::Wait() {
  timer_.expires_after(interval_);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) CheckNow();
  });
}

void InventoryWatch::CheckNow() {
  checks_again_ = is_checking_;
  if (is_checking_) return;
  is_checking_ = true;
  timer_.cancel();
  std::thread([shared = shared_, read = read_] {
    device::Inventory inventory = read();
    const MutexLock lock(shared->mutex);
    if (shared->context == nullptr) return;
    boost::asio::post(*shared->context, [shared, found = std::move(inventory)] {
      if (shared->watch != nullptr) shared->watch->OnRead(found);
    });
  }).detach();
}

void InventoryWatch::OnRead(const device::Inventory& inventory) {
  is_checking_ = false;
  if (std::exchange(checks_again_, false)) {
    CheckNow();
  } else {
    Wait();
  }
  on_inventory_(inventory);
}

}  // namespace gpushared::server
