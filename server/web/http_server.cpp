// SPDX-License-Identifier: Apache-2.0
#include "server/web/http_server.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <list>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

namespace gpushared::web {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kTokenBytesMax = 512;
// What a client sends beyond its request is read for so long: closing at once could take the
// answer from it.
constexpr std::chrono::milliseconds kLingerMax{500};
constexpr std::chrono::milliseconds kAcceptPause{100};  // After one failed, as for descriptors.
constexpr std::string_view kBearer = "bearer ";

char Lower(char each) {
  return each >= 'A' && each <= 'Z' ? static_cast<char>(each - 'A' + 'a') : each;
}

bool IsSameWord(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (Lower(a[i]) != Lower(b[i])) return false;
  }
  return true;
}

bool HasToken(std::string_view authorization, std::string_view token) {
  const bool is_bearer = IsSameWord(authorization.substr(0, kBearer.size()), kBearer);
  return IsSameToken(is_bearer ? authorization.substr(kBearer.size()) : "", token) && is_bearer;
}

std::string_view View(beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

bool NamesLoopback(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos) {
    const std::string_view port = host.substr(colon + 1);
    if (port.empty() || port.find_first_not_of("0123456789") != std::string_view::npos)
      return false;
    host = host.substr(0, colon);
  }
  if (IsSameWord(host, "localhost")) return true;
  const Result<Endpoint> named = ParseEndpoint(std::string(host) + ":0");
  return named.ok() && named->is_loopback;
}

bool IsSameToken(std::string_view given, std::string_view wanted) {
  // Both are spread over as many bytes, so that neither where they differ nor how long the wanted
  // one is shows in the time.
  unsigned difference = given.size() == wanted.size() ? 0 : 1;
  std::array<unsigned char, kTokenBytesMax> a{}, b{};
  for (std::size_t i = 0; i < std::min(given.size(), a.size()); ++i) {
    a[i] = static_cast<unsigned char>(given[i]);
  }
  for (std::size_t i = 0; i < std::min(wanted.size(), b.size()); ++i) {
    b[i] = static_cast<unsigned char>(wanted[i]);
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned>(a[i] ^ b[i]);
  }
  return difference == 0;
}

class HttpServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(std::string token, HttpLimits limits, Handler handler)
      : token_(std::move(token)), limits_(limits), handler_(std::move(handler)) {}

  Status Listen(const Endpoint& endpoint) {
    error_code error;
    const asio::ip::address address = asio::ip::make_address(endpoint.address, error);
    const tcp::endpoint at(address, endpoint.port);
    if (!error) acceptor_.open(at.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(at, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (!error) acceptor_.non_blocking(true, error);
    if (!error) return Status::Ok();
    return {StatusCode::kUnavailable, "listening on " + endpoint.address + " port " +
                                          std::to_string(endpoint.port) +
                                          " failed: " + error.message()};
  }

  std::string address() const {
    error_code error;
    const tcp::endpoint at = acceptor_.local_endpoint(error);
    const std::string number = at.address().to_string();
    return (at.address().is_v6() ? "[" + number + "]" : number) + ":" + std::to_string(at.port());
  }

  void Run() {
    asio::signal_set signals(context_, SIGTERM, SIGINT);
    signals.async_wait([this](const error_code&, int) { context_.stop(); });
    Accept();
    context_.run();
  }
  void Stop() { context_.stop(); }

 private:
  class Connection;

  void Accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (error) {
        // Too many descriptors are open, or the client went away.
        pause_.expires_after(kAcceptPause);
        pause_.async_wait([this](const error_code&) { Accept(); });
        return;
      }
      Welcome(std::move(socket));
      Accept();
    });
  }
  void Welcome(tcp::socket socket);

  const std::string token_;
  const HttpLimits limits_;
  const Handler handler_;
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  asio::steady_timer pause_{context_};
  std::list<std::weak_ptr<Connection>> connections_;  // Oldest first.
};

// One request and its answer. Each step has its time; a connection ends when nothing waits for it.
class HttpServer::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Impl& server, tcp::socket socket) : server_(server), stream_(std::move(socket)) {
    parser_.header_limit(server.limits_.header_bytes_max);
    parser_.body_limit(0);
  }

  // Nothing complete has come from it.
  bool is_silent() const { return is_silent_; }
  void Drop() { stream_.close(); }

  void Start() {
    stream_.expires_after(server_.limits_.header_time_max);
    http::async_read_header(
        stream_, buffer_, parser_,
        [self = shared_from_this()](const error_code& error, std::size_t) { self->OnHead(error); });
  }

 private:
  void OnHead(const error_code& error) {
    is_silent_ = false;
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return Answer({.code = 431,
                     .body = "the header has more than " +
                             std::to_string(server_.limits_.header_bytes_max) + " bytes\n"});
    }
    if (error == http::error::body_limit) {
      return Answer({.code = 413, .body = "a request has no body here\n"});
    }
    if (error.category() == http::make_error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message) {
      return Answer({.code = 400, .body = "this is no HTTP request\n"});
    }
    if (error) return;  // Gone, or too slow.
    if (std::optional<HttpAnswer> refusal = Refusal()) return Answer(*std::move(refusal));
    const http::request<http::empty_body>& request = parser_.get();
    const std::string_view target = View(request.target());
    Request asked{.path = std::string(target.substr(0, target.find('?'))),
                  .accept = std::string(View(request[http::field::accept]))};
    // The handler's own time is bounded by itself; the time of the client begins with the answer.
    stream_.expires_never();
    // The connection goes on to the other thread whole: it must not end on the handler's.
    server_.handler_(asked, [self = shared_from_this()](HttpAnswer answer) mutable {
      asio::io_context& context = self->server_.context_;
      asio::post(context, [self = std::move(self), answer = std::move(answer)]() mutable {
        self->Answer(std::move(answer));
      });
    });
  }

  std::optional<HttpAnswer> Refusal() {
    const http::request<http::empty_body>& request = parser_.get();
    is_head_ = request.method() == http::verb::head;
    if (server_.token_.empty()) {
      if (request.count(http::field::host) != 1 || !NamesLoopback(View(request[http::field::host])))
        return HttpAnswer{.code = 421,
                          .body =
                              "the Host header names another machine; allowed are localhost "
                              "and loopback addresses\n"};
    } else if (request.count(http::field::authorization) != 1 ||
               !HasToken(View(request[http::field::authorization]), server_.token_)) {
      return HttpAnswer{.code = 401, .body = "the token is wrong or missing\n"};
    }
    if (!is_head_ && request.method() != http::verb::get) {
      return HttpAnswer{.code = 405, .body = "allowed are GET and HEAD\n"};
    }
    return std::nullopt;
  }

  void Answer(HttpAnswer answer) {
    response_.result(answer.code);
    response_.version(11);
    response_.keep_alive(false);
    response_.set(http::field::content_type, answer.content_type);
    response_.set(http::field::cache_control, "no-store");
    response_.set("X-Content-Type-Options", "nosniff");
    if (answer.code == 401) response_.set(http::field::www_authenticate, "Bearer");
    if (answer.code == 405) response_.set(http::field::allow, "GET, HEAD");
    response_.content_length(answer.body.size());
    if (!is_head_) response_.body() = std::move(answer.body);
    stream_.expires_after(server_.limits_.answer_time_max);
    http::async_write(stream_, response_,
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        if (!error) self->Linger();
                      });
  }

  void Linger() {
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(kLingerMax);
    Discard();
  }
  void Discard() {
    stream_.async_read_some(asio::buffer(rest_),
                            [self = shared_from_this()](const error_code& error, std::size_t) {
                              if (!error) self->Discard();
                            });
  }

  Impl& server_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_{std::size_t{64} * 1024};
  http::request_parser<http::empty_body> parser_;
  http::response<http::string_body> response_;
  std::array<char, 4096> rest_{};
  bool is_silent_ = true;
  bool is_head_ = false;
};

void HttpServer::Impl::Welcome(tcp::socket socket) {
  connections_.remove_if([](const auto& each) { return each.expired(); });
  if (connections_.size() >= limits_.connections_max) {
    for (auto each = connections_.begin(); each != connections_.end(); ++each) {
      const std::shared_ptr<Connection> oldest = each->lock();
      if (!oldest->is_silent()) continue;
      oldest->Drop();
      connections_.erase(each);
      break;
    }
  }
  if (connections_.size() >= limits_.connections_max) return;  // Closes it.
  const auto connection = std::make_shared<Connection>(*this, std::move(socket));
  connections_.push_back(connection);
  connection->Start();
}

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const Endpoint& endpoint, std::string token,
                                                       HttpLimits limits, Handler handler) {
  auto impl = std::make_shared<Impl>(std::move(token), limits, std::move(handler));
  if (Status status = impl->Listen(endpoint); !status.ok()) return status;
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

std::string HttpServer::address() const { return impl_->address(); }
void HttpServer::Run() { impl_->Run(); }
void HttpServer::Stop() { impl_->Stop(); }

}  // namespace gpushared::web
