// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_BACKGROUND_READER_H_
#define GPUSHARED_SERVER_BROKER_BACKGROUND_READER_H_

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

// Runs a function that may take long on a dedicated thread, one call at a time. The thread may
// outlive this object.
//
// Confined to the thread that runs `context`.
template <typename T>
class BackgroundReader {
 public:
  using Read = std::function<Result<T>()>;
  using Done = std::function<void(const Result<T>& answer)>;

  // `busy` is the message (kNotReady) for requests that arrive while a call is in progress.
  BackgroundReader(boost::asio::io_context& context, Read read, std::string busy)
      : read_(std::move(read)), busy_(std::move(busy)), shared_(std::make_shared<Shared>()) {
    shared_->context = &context;
  }
  ~BackgroundReader() {
    const MutexLock lock(shared_->mutex);
    shared_->context = nullptr;
    shared_->done = nullptr;
  }
  BackgroundReader(const BackgroundReader&) = delete;
  BackgroundReader& operator=(const BackgroundReader&) = delete;

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
  // State shared with the thread.
  struct Shared {
    Mutex mutex;
    // Null after the reader has been destroyed.
    boost::asio::io_context* context GPUSHARED_GUARDED_BY(mutex) = nullptr;
    Done done;  // Called on the context's thread; empty if the caller no longer waits.
  };

  const Read read_;
  const std::string busy_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_BACKGROUND_READER_H_
