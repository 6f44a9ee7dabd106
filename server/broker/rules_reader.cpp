// SPDX-License-Identifier: Apache-2.0
#include "server/broker/rules_reader.h"

#include <mutex>
#include <thread>
#include <utility>

#include <boost/asio/post.hpp>

namespace gpushared::server {

// What a thread that reads has of the rest: it may outlive both.
struct RulesReader::Shared {
  std::mutex mutex;
  boost::asio::io_context* context = nullptr;  // Null when the reader is gone.
  Done done;                                   // On the context's thread; empty: nobody waits.
};

RulesReader::RulesReader(boost::asio::io_context& context, Read read)
    : read_(std::move(read)), shared_(std::make_shared<Shared>()) {
  shared_->context = &context;
}

RulesReader::~RulesReader() {
  const std::lock_guard lock(shared_->mutex);
  shared_->context = nullptr;
  shared_->done = nullptr;
}

void RulesReader::ReadThen(Done done) {
  if (shared_->done) {
    return done(Status(StatusCode::kNotReady, "the configuration is being read, try again"));
  }
  shared_->done = std::move(done);
  std::thread([shared = shared_, read = read_] {
    Result<LiveRules> rules = read();
    const std::lock_guard lock(shared->mutex);
    if (shared->context == nullptr) return;
    boost::asio::post(*shared->context, [shared, rules = std::move(rules)] {
      if (Done waiting = std::exchange(shared->done, nullptr)) waiting(rules);
    });
  }).detach();
}

}  // namespace gpushared::server
