// SPDX-License-Identifier: Apache-2.0
// Types shared by the broker's source files: deferred clients, and limits of messages.

#ifndef GPUSHARED_SERVER_BROKER_BROKER_PARTS_H_
#define GPUSHARED_SERVER_BROKER_BROKER_PARTS_H_

#include <cstddef>
#include <optional>
#include <utility>

#include "server/broker/broker.h"

namespace gpushared::server {

// Maximum number of names in one log line or message.
inline constexpr std::size_t kNamedInReportMax = 8;

inline Status Draining() {
  return {StatusCode::kUnavailable,
          "client rejected: the server is draining and takes no new ones"};
}

// A client that waits for a starting device: one that sent a hello, or one that asked for the list
// of devices.
struct Broker::DeferredHello {
  DeferredHello(boost::asio::io_context& context, Arrival from, std::optional<ipc::Hello> received)
      : arrival(std::move(from)), hello(std::move(received)), timer(context) {}
  Arrival arrival;
  std::optional<ipc::Hello> hello;  // Unset if it asked for the list.
  boost::asio::steady_timer timer;
};

// A client that asked why its session ended, at a time when the broker did not know the reason yet.
struct Broker::DeferredWhy {
  DeferredWhy(boost::asio::io_context& context, Arrival from, std::uint64_t id)
      : arrival(std::move(from)), session(id), timer(context) {}
  Arrival arrival;
  std::uint64_t session;
  boost::asio::steady_timer timer;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_BROKER_PARTS_H_
