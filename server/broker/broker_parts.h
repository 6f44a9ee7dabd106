// SPDX-License-Identifier: Apache-2.0
// Parts that the broker's own files share: clients that wait, a limit and a sentence.

#ifndef GPUSHARED_SERVER_BROKER_BROKER_PARTS_H_
#define GPUSHARED_SERVER_BROKER_BROKER_PARTS_H_

#include <cstddef>
#include <optional>
#include <utility>

#include "server/broker/broker.h"

namespace gpushared::server {

// Names in one line of the log or one sentence.
inline constexpr std::size_t kNamedInReportMax = 8;

inline Status Draining() {
  return {StatusCode::kUnavailable,
          "client rejected: the server is draining and takes no new ones"};
}

// A client that was admitted, and waits for a device that is just starting, or who asked for the
// list of devices.
struct Broker::ParkedHello {
  ParkedHello(boost::asio::io_context& context, Arrival from, std::optional<ipc::Hello> said)
      : arrival(std::move(from)), hello(std::move(said)), timer(context) {}
  Arrival arrival;
  std::optional<ipc::Hello> hello;  // None: it asked for the list.
  boost::asio::steady_timer timer;
};

// A client that saw its connection end before the broker learnt why.
struct Broker::ParkedWhy {
  ParkedWhy(boost::asio::io_context& context, Arrival from, std::uint64_t id)
      : arrival(std::move(from)), session(id), timer(context) {}
  Arrival arrival;
  std::uint64_t session;
  boost::asio::steady_timer timer;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_BROKER_PARTS_H_
