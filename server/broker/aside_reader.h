// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_ASIDE_READER_H_
#define GPUSHARED_SERVER_BROKER_ASIDE_READER_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "gpushared/mutex.h"
#include "gpushared/result.h"

namespace gpushared::server {

// Asks a function that may take long, on a thread of its own, one question at a time. The thread
// may outlive this.
//
// Confined to the thread that runs `context`.
template <typename T>
class AsideReader {
 public:
  using Read = std::function<Result<T>()>;
  using Done = std::function<void(const Result<T>& answer)>;

  // `busy`: what those are told who ask meanwhile, as kNotReady.
  AsideReader(boost::asio::io_context& context, Read read, std::string busy)
      : read_(std::move(read)), busy_(std::move(busy)), shared_(std::make_shared<Shared>()) {
    shared_->context = &context;
  }
  ~AsideReader() {
    const MutexLock lock(shared_->mutex);
    shared_->context = nullptr;
    shared_->done = nullptr;
  }
  AsideReader(const AsideReader&) = delete;
  AsideReader& operator=(const AsideReader&) = delete;

  void ReadThen(Done done) {
    if (shared_->done) return done(Status(StatusCode::kNotReady, busy_));
    shared_->done = std::move(done);
    std::thread([shared = shared_, read = read_] {
      Result<T> answer = read();
      const MutexLock lock(shared->mutex);
      if (shared->context == nullptr) return;
      boost::asio::post(*shared->context, [shared, answer = std::move(answer)] {
        if (Done waiting = std::exchange(shared->done, nullptr)) waiting(answer);
      });
    }).detach();
  }

 private:
  // The part that a thread and this share.
  struct Shared {
    Mutex mutex;
    // Null when the reader is gone.
    boost::asio::io_context* context GPUSHARED_GUARDED_BY(mutex) = nullptr;
    Done done;  // On the context's thread; empty: nobody waits.
  };

  const Read read_;
  const std::string busy_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_ASIDE_READER_H_
