// SPDX-License-Identifier: Apache-2.0
// A small HTTP/1 server with event streams, on which all clients receive the same events. It
// contains neither contents nor access rules.

#ifndef GPUSHARED_SERVER_TOOLS_WEB_HTTP_SERVER_H_
#define GPUSHARED_SERVER_TOOLS_WEB_HTTP_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/tools/web/options.h"
#include "server/tools/web/peer.h"

namespace gpushared::web {

struct HttpLimits {
  // Limit of connections; more than streams and waiting requests together, so that one of the other
  // connections can always be dropped in favour of a new one.
  std::size_t connections_max = 128;
  std::size_t streams_max = 32;
  // Limit of requests that wait for their answers.
  std::size_t requests_max = 24;
  std::size_t requests_per_peer_max = 8;
  // Number of requests for reserved_path that may wait in excess of requests_max and
  // requests_per_peer_max.
  std::size_t reserved_max = 32;
  std::string reserved_path;
  std::size_t events_behind_max = 16;  // Limit of events queued for the client of a stream.
  std::uint32_t header_bytes_max = 8 * 1024;
  std::uint32_t body_bytes_max = 2 * 1024;          // Limit of a body; sufficient for a form.
  std::chrono::milliseconds header_time_max{5000};  // Time limit until a request is complete.
  std::chrono::milliseconds answer_time_max{
      10000};  // Time limit until the client has read an answer or event.
};

struct HttpAnswer {
  unsigned code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // Additional headers.
  // Whether the body is the beginning of a stream. Published events follow until the client
  // disconnects.
  bool is_stream = false;
};

// Listens and answers GET, HEAD and POST, one request per connection. Drops clients that are slow
// to send or to read.
//
// Scarce resources go to the peer (see GetPeer) that uses the least of them. If all connections are
// in use, a new connection replaces one that neither waits for an answer nor is a stream, of the
// peer with the most such connections: one that has been answered, otherwise the peer's oldest. If
// all streams are in use, a new one replaces a stream of the peer with the most streams, if that
// peer has at least two more than the peer of the new one.
//
// Run blocks its thread; the other functions except Stop and Publish must be called before it.
class HttpServer {
 public:
  struct Request {
    bool is_post = false;
    std::string path;   // Without the query.
    std::string query;  // The part after '?'.
    // Empty if the request does not have the field, or has it more than once.
    std::string host, authorization, cookie, accept;
    std::string body;  // Empty unless the request is a POST.
  };
  using Reply = std::function<void(HttpAnswer answer)>;
  // Functions that are called on the thread of Run.
  struct Callbacks {
    // Called with a complete request. `reply` must be called once, at any time and from any thread.
    std::function<void(const Request& request, Reply reply)> on_request;
    // Called with the number of open streams when that number changes. May be empty.
    std::function<void(std::size_t streams)> on_streams;
    std::function<std::string(int socket)> peer_of = GetPeer;
  };

  // Listens at the endpoint. kUnavailable if the address cannot be bound.
  static Result<std::unique_ptr<HttpServer>> Listen(const Endpoint& endpoint, HttpLimits limits,
                                                    Callbacks callbacks);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string address() const;  // Returns the address, such as "127.0.0.1:9464".
  // Runs until SIGTERM, SIGINT or Stop.
  void Run();
  // Makes Run return. Thread-safe.
  void Stop();
  // Sends the text to all streams. Thread-safe.
  void Publish(std::string text);

 private:
  class Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_TOOLS_WEB_HTTP_SERVER_H_
