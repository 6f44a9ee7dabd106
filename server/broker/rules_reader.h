// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_RULES_READER_H_
#define GPUSHARED_SERVER_BROKER_RULES_READER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "gpushared/result.h"

#include "server/config.h"

namespace gpushared::server {

// The part of the configuration that a running server takes over.
struct LiveRules {
  std::vector<AccessRule> access;
  std::vector<EntranceRule> entrances;
  std::vector<Subject> observers, operators;
  std::chrono::nanoseconds lease_grace = std::chrono::seconds(10);
  std::vector<std::string> need_restart;  // Options that were changed, and are not taken over.
};

// Reads the rules again, on a thread of its own: looking up a user's name can take as long as the
// machine's directory likes.
//
// Confined to the thread that runs `context`.
class RulesReader {
 public:
  using Read = std::function<Result<LiveRules>()>;
  using Done = std::function<void(const Result<LiveRules>& rules)>;

  RulesReader(boost::asio::io_context& context, Read read);
  ~RulesReader();
  RulesReader(const RulesReader&) = delete;
  RulesReader& operator=(const RulesReader&) = delete;

  // One reading at a time: who asks meanwhile is refused with kNotReady.
  void ReadThen(Done done);

 private:
  struct Shared;

  const Read read_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_RULES_READER_H_
