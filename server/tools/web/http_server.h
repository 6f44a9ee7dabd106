// SPDX-License-Identifier: Apache-2.0
// A small HTTP/1 server, and streams of events that all their readers share. It knows nothing of
// what is served, and to whom.

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
  // More than streams and requests that wait together, so that one of the others can always give
  // way to a new connection.
  std::size_t connections_max = 128;
  std::size_t streams_max = 32;
  // Requests that wait for their answers.
  std::size_t requests_max = 24;
  std::size_t requests_per_peer_max = 8;
  // Where all of these are taken, so many further requests may wait for this path.
  std::size_t reserved_max = 32;
  std::string reserved_path;
  std::size_t events_behind_max = 16;  // Events of a stream that wait for its client.
  std::uint32_t header_bytes_max = 8 * 1024;
  std::uint32_t body_bytes_max = 2 * 1024;          // A filled-in form has fewer.
  std::chrono::milliseconds header_time_max{5000};  // Until a request is complete.
  std::chrono::milliseconds answer_time_max{
      10000};  // Until the client has read an answer or event.
};

struct HttpAnswer {
  unsigned code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // Further ones.
  // The body is the beginning. What is published from now on follows until the client leaves.
  bool is_stream = false;
};

// Listens and answers GET, HEAD and POST, a request per connection. A client that is slow to ask or
// to read is dropped.
//
// What there is too little of goes to the peer (see GetPeer) that has least of it. Where all
// connections are taken, a new one takes the place of one of the peer that has most of those that
// neither wait for an answer nor are streams: one that has been answered, otherwise its oldest. A
// further stream takes the place of one of a peer that has at least two more.
//
// Run blocks its thread; the other functions but Stop and Publish are called before it.
class HttpServer {
 public:
  struct Request {
    bool is_post = false;
    std::string path;   // Without what follows a '?'.
    std::string query;  // The part behind it.
    // Fields that a request has twice are empty, as those that it has not.
    std::string host, authorization, cookie, accept;
    std::string body;  // Empty unless it is a POST.
  };
  using Reply = std::function<void(HttpAnswer answer)>;
  // They are called on the thread of Run.
  struct Callbacks {
    // A whole request is here. Answers then or later, from any thread, once.
    std::function<void(const Request& request, Reply reply)> on_request;
    // So many clients read what is published. May be empty.
    std::function<void(std::size_t streams)> on_streams;
    std::function<std::string(int socket)> peer_of = GetPeer;
  };

  // kUnavailable when the address cannot be had.
  static Result<std::unique_ptr<HttpServer>> Listen(const Endpoint& endpoint, HttpLimits limits,
                                                    Callbacks callbacks);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string address() const;  // "127.0.0.1:9464".
  // Until SIGTERM, SIGINT or Stop.
  void Run();
  // From any thread.
  void Stop();
  // From any thread: to all streams that there are.
  void Publish(std::string text);

 private:
  class Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_TOOLS_WEB_HTTP_SERVER_H_
