// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_HOME_EXECUTOR_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_HOME_EXECUTOR_H_

#include <memory>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "gpushared/mutex.h"

namespace gpushared::server {

// Posts results to the control thread from calls that may outlast that thread. Copies of this
// object may outlive the io_context; they then drop all results.
//
// Thread-safe.
class HomeExecutor {
 public:
  explicit HomeExecutor(boost::asio::io_context& context) : shared_(std::make_shared<Shared>()) {
    shared_->context = &context;
  }

  template <typename Handler>
  void Post(Handler handler) const {
    const MutexLock lock(shared_->mutex);
    if (shared_->context != nullptr) boost::asio::post(*shared_->context, std::move(handler));
  }
  // Must be called before the context is destroyed.
  void Close() {
    const MutexLock lock(shared_->mutex);
    shared_->context = nullptr;
  }

 private:
  struct Shared {
    Mutex mutex;
    boost::asio::io_context* context GPUSHARED_GUARDED_BY(mutex) = nullptr;
  };
  std::shared_ptr<Shared> shared_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_HOME_EXECUTOR_H_
