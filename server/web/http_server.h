// SPDX-License-Identifier: Apache-2.0
// A small HTTP/1 server for answers that everybody shares.

#ifndef GPUSHARED_SERVER_WEB_HTTP_SERVER_H_
#define GPUSHARED_SERVER_WEB_HTTP_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/web/options.h"

namespace gpushared::web {

struct HttpLimits {
  std::size_t connections_max = 64;
  std::uint32_t header_bytes_max = 8 * 1024;
  std::chrono::milliseconds header_time_max{5000};   // Until a request is complete.
  std::chrono::milliseconds answer_time_max{10000};  // Until the client has read the answer.
};

struct HttpAnswer {
  unsigned code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Whether a request's Host header names the machine itself: a page of another site that a browser
// was led to has its own name there. Any port.
bool NamesLoopback(std::string_view host);
// Takes as long for every `given`. `wanted` has at most 512 bytes.
bool IsSameToken(std::string_view given, std::string_view wanted);

// Listens and answers GET and HEAD, a request per connection. Where all connections are taken,
// the one that has been silent for longest is dropped for a new one. If none is silent, the new one
// is dropped. A client that is slow to ask or to read is dropped, too.
//
// Run blocks its thread; the other functions but Stop are called before it.
class HttpServer {
 public:
  struct Request {
    std::string path;  // Without what follows a '?'.
    std::string accept;
  };
  using Reply = std::function<void(HttpAnswer answer)>;
  // Called on the thread of Run, when everything about the request is in order; answers then or
  // later, from any thread, once.
  using Handler = std::function<void(const Request& request, Reply reply)>;

  // kUnavailable when the address cannot be had. Without a token, Host must name this machine.
  static Result<std::unique_ptr<HttpServer>> Listen(const Endpoint& endpoint, std::string token,
                                                    HttpLimits limits, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string address() const;  // "127.0.0.1:9464".
  // Until SIGTERM, SIGINT or Stop.
  void Run();
  // From any thread.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_WEB_HTTP_SERVER_H_
