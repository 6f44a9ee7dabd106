// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/http_server.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>

namespace gpushared::web {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

// Time for which further input is read after the answer. Closing the connection at once could reset
// the connection before the client has read the answer.
constexpr std::chrono::milliseconds kLingerMax{500};
// Pause after accept has failed, for example for lack of descriptors.
constexpr std::chrono::milliseconds kAcceptPause{100};

// Security headers: a browser may run and show only our own files, and no page may show them in a
// frame.
constexpr std::pair<const char*, const char*> kSafety[] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
     "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
};

std::string_view View(beast::string_view text) { return {text.data(), text.size()}; }

// Returns the header, up to the body. Written by hand, because Beast's serializer takes longer to
// compile than this whole file.
std::string GetHead(const HttpAnswer& answer) {
  std::string head = "HTTP/1.1 " + std::to_string(answer.code) + ' ' +
                     std::string(View(http::obsolete_reason(http::int_to_status(answer.code)))) +
                     "\r\n";
  const auto add = [&](std::string_view name, std::string_view value) {
    ((head += name) += ": ") += value;
    head += "\r\n";
  };
  add("Connection", "close");
  add("Content-Type", answer.content_type);
  add("Cache-Control", "no-store");
  for (const auto& [name, value] : kSafety) add(name, value);
  for (const auto& [name, value] : answer.headers) add(name, value);
  if (!answer.is_stream) add("Content-Length", std::to_string(answer.body.size()));
  return head + "\r\n";
}

}  // namespace

class HttpServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(HttpLimits limits, Callbacks callbacks)
      : limits_(limits), callbacks_(std::move(callbacks)) {}

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
  void Publish(std::string text);

 private:
  class Connection;
  // State of a connection.
  enum class Step : std::uint8_t {
    kAsks,
    kWaits,  // Waits for its answer.
    kWaitsInReserve,
    kReads,  // The client is reading its answer.
    kLingers,
    kStreams,
    kDropped,
  };

  void Accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (error) {
        // Too many descriptors are open, or the client has disconnected.
        pause_.expires_after(kAcceptPause);
        pause_.async_wait([this](const error_code&) { Accept(); });
        return;
      }
      Welcome(std::move(socket));
      Accept();
    });
  }
  void Welcome(tcp::socket socket);
  // Drops a connection that may be dropped, if there is one.
  bool MakePlace();
  bool MakeStreamPlace(const std::string& peer);
  // Returns the state in which a request for the path waits for its answer: kWaits or
  // kWaitsInReserve; kReads if the request must be rejected because no capacity is left.
  Step PlaceFor(const std::string& path, const std::string& peer) const;
  // Connections of each peer, oldest first.
  using Peers = std::map<std::string, std::vector<std::shared_ptr<Connection>>>;
  template <typename Test>
  Peers ByPeer(const Test& is_wanted) const;
  // Returns the connections of the peer with the most. `peers` must not be empty.
  static const Peers::mapped_type& GetMost(const Peers& peers) {
    return std::ranges::max_element(peers, {}, [](const auto& peer) { return peer.second.size(); })
        ->second;
  }
  void CountStreams(std::size_t streams) {
    streams_ = streams;
    if (callbacks_.on_streams) callbacks_.on_streams(streams);
  }

  const HttpLimits limits_;
  const Callbacks callbacks_;
  std::size_t streams_ = 0;
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  asio::steady_timer pause_{context_};
  std::list<std::weak_ptr<Connection>> connections_;  // Oldest first.
};

// One request and its answer. Each step has a time limit; the connection closes once no handler
// refers to it.
class HttpServer::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Impl& server, tcp::socket socket)
      : server_(server),
        peer_(server.callbacks_.peer_of(socket.native_handle())),
        stream_(std::move(socket)) {
    parser_.header_limit(server.limits_.header_bytes_max);
    parser_.body_limit(server.limits_.body_bytes_max);
  }
  ~Connection() { Drop(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Step step() const { return step_; }
  const std::string& peer() const { return peer_; }
  void Drop() {
    if (step_ == Step::kStreams) server_.CountStreams(server_.streams_ - 1);
    step_ = Step::kDropped;
    stream_.close();
  }

  void Start() {
    stream_.expires_after(server_.limits_.header_time_max);
    parser_.eager(false);  // Makes the parser stop after the header.
    ReadUntil(&Parser::is_header_done, &Connection::OnHead);
  }

  // Sends an event, if this connection is a stream. Drops a client that does not keep up.
  void Send(const std::shared_ptr<const std::string>& text) {
    if (step_ != Step::kStreams) return;
    if (behind_.size() >= server_.limits_.events_behind_max) return Drop();
    behind_.push_back(text);
    if (behind_.size() == 1 && has_begun_) SendNext();
  }

 private:
  using Parser = http::request_parser<http::string_body>;
  // A single handler type for all operations, because otherwise each step would be compiled once
  // per handler.
  using Done = std::function<void(const error_code&, std::size_t)>;

  void ReadUntil(bool (Parser::*is_enough)() const, void (Connection::*next)(const error_code&)) {
    if ((parser_.*is_enough)()) return (this->*next)({});
    http::async_read_some(
        stream_, buffer_, parser_,
        Done([self = shared_from_this(), is_enough, next](const error_code& error, std::size_t) {
          if (error) return (self.get()->*next)(error);
          self->ReadUntil(is_enough, next);
        }));
  }
  void Write(const std::string& text, Done done) {
    asio::async_write(stream_, asio::buffer(text), std::move(done));
  }
  // Reads and ignores further input.
  void ReadOn(Done done) { stream_.async_read_some(asio::buffer(rest_), std::move(done)); }

  void OnHead(const error_code& error) {
    if (error) return OnWrong(error);
    method_ = parser_.get().method();
    if (method_ != http::verb::get && method_ != http::verb::head && method_ != http::verb::post) {
      return Answer({.code = 405,
                     .body = "allowed: GET, HEAD and POST\n",
                     .headers = {{"Allow", "GET, HEAD, POST"}}});
    }
    const bool has_body = parser_.chunked() || parser_.content_length().value_or(0) > 0;
    if (method_ != http::verb::post && has_body) {
      return Answer({.code = 413, .body = "this request has no body\n"});
    }
    parser_.eager(true);
    ReadUntil(&Parser::is_done, &Connection::OnWhole);
  }

  void OnWrong(const error_code& error) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return Answer({.code = 431,
                     .body = "the header has more than " +
                             std::to_string(server_.limits_.header_bytes_max) + " bytes\n"});
    }
    if (error == http::error::body_limit) {
      return Answer({.code = 413,
                     .body = "the body has more than " +
                             std::to_string(server_.limits_.body_bytes_max) + " bytes\n"});
    }
    if (error.category() == http::make_error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message) {
      return Answer({.code = 400, .body = "this is no HTTP request\n"});
    }
    // The client has disconnected or is too slow.
  }

  // Returns an empty string unless the request has the field exactly once.
  std::string Field(http::field name) const {
    const auto& request = parser_.get();
    return request.count(name) == 1 ? std::string(View(request[name])) : std::string();
  }

  void OnWhole(const error_code& error) {
    if (error) return OnWrong(error);
    if (step_ == Step::kDropped) return;
    const std::string_view target = View(parser_.get().target());
    const std::size_t path_bytes = std::min(target.find('?'), target.size());
    const Request asked{
        .is_post = method_ == http::verb::post,
        .path = std::string(target.substr(0, path_bytes)),
        .query = std::string(target.substr(std::min(path_bytes + 1, target.size()))),
        .host = Field(http::field::host),
        .authorization = Field(http::field::authorization),
        .cookie = Field(http::field::cookie),
        .accept = std::string(View(parser_.get()[http::field::accept])),
        .body = parser_.get().body()};
    step_ = server_.PlaceFor(asked.path, peer_);
    if (step_ == Step::kReads) {
      return Answer({.code = 503,
                     .body = "rejected: too many requests wait for their answers\n",
                     .headers = {{"Retry-After", "1"}}});
    }
    // The client's time limit starts with the answer; until then, the handler limits its own time.
    stream_.expires_never();
    // The reply may be called on another thread. It moves its reference to the connection back to
    // the thread of Run, because the connection must be destroyed there.
    server_.callbacks_.on_request(asked, [self = shared_from_this()](HttpAnswer answer) mutable {
      asio::io_context& context = self->server_.context_;
      asio::dispatch(context, [self = std::move(self), answer = std::move(answer)]() mutable {
        self->Answer(std::move(answer));
      });
    });
  }

  void Answer(HttpAnswer answer) {
    step_ = Step::kReads;
    const bool is_head = method_ == http::verb::head;
    if (answer.is_stream && !is_head && !server_.MakeStreamPlace(peer_)) {
      answer = {.code = 503,
                .body = "rejected: " + std::to_string(server_.streams_) + " others read events\n"};
    }
    if (answer.is_stream && !is_head) {
      step_ = Step::kStreams;
      server_.CountStreams(server_.streams_ + 1);
    }
    answer_ = GetHead(answer);
    if (!is_head) answer_ += answer.body;
    stream_.expires_after(server_.limits_.answer_time_max);
    Write(answer_, [self = shared_from_this()](const error_code& error, std::size_t) {
      if (error || self->step_ == Step::kDropped) return;
      self->step_ == Step::kStreams ? self->BeginStream() : self->Linger();
    });
  }

  void BeginStream() {
    has_begun_ = true;
    stream_.expires_never();
    // The client has nothing more to send, so any input or error ends the stream.
    ReadOn([self = shared_from_this()](const error_code&, std::size_t) { self->Drop(); });
    if (!behind_.empty()) SendNext();
  }
  void SendNext() {
    stream_.expires_after(server_.limits_.answer_time_max);
    Write(*behind_.front(), [self = shared_from_this()](const error_code& error, std::size_t) {
      if (error) return self->Drop();
      self->behind_.pop_front();
      if (!self->behind_.empty()) self->SendNext();
    });
  }

  void Linger() {
    step_ = Step::kLingers;
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(kLingerMax);
    Discard();
  }
  void Discard() {
    ReadOn([self = shared_from_this()](const error_code& error, std::size_t) {
      if (!error) self->Discard();
    });
  }

  Impl& server_;
  const std::string peer_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_{std::size_t{64} * 1024};
  Parser parser_;
  std::string answer_;
  std::array<char, 4096> rest_{};
  http::verb method_ = http::verb::unknown;
  Step step_ = Step::kAsks;
  bool has_begun_ = false;  // Whether the stream has begun.
  // Queued events; the first one is being sent.
  std::deque<std::shared_ptr<const std::string>> behind_;
};

void HttpServer::Impl::Publish(std::string text) {
  asio::post(context_, [this, text = std::make_shared<const std::string>(std::move(text))] {
    for (const std::weak_ptr<Connection>& each : connections_) {
      if (const std::shared_ptr<Connection> connection = each.lock()) connection->Send(text);
    }
  });
}

void HttpServer::Impl::Welcome(tcp::socket socket) {
  connections_.remove_if([](const auto& each) {
    const std::shared_ptr<Connection> connection = each.lock();
    return connection == nullptr || connection->step() == Step::kDropped;
  });
  const bool is_full = connections_.size() >= limits_.connections_max;
  if (is_full && !MakePlace()) return;  // Returning closes the new connection.
  const auto connection = std::make_shared<Connection>(*this, std::move(socket));
  connections_.push_back(connection);
  connection->Start();
}

template <typename Test>
HttpServer::Impl::Peers HttpServer::Impl::ByPeer(const Test& is_wanted) const {
  Peers found;
  for (const std::weak_ptr<Connection>& each : connections_) {
    const std::shared_ptr<Connection> connection = each.lock();
    if (connection != nullptr && is_wanted(connection->step())) {
      found[connection->peer()].push_back(connection);
    }
  }
  return found;
}

bool HttpServer::Impl::MakePlace() {
  const auto by_peer = ByPeer([](Step step) {
    return step == Step::kAsks || step == Step::kReads || step == Step::kLingers;
  });
  if (by_peer.empty()) return false;
  const auto& most = GetMost(by_peer);
  const auto answered = std::ranges::find(most, Step::kLingers, &Connection::step);
  (answered == most.end() ? most.front() : *answered)->Drop();
  return true;
}

bool HttpServer::Impl::MakeStreamPlace(const std::string& peer) {
  if (streams_ < limits_.streams_max) return true;
  auto by_peer = ByPeer([](Step step) { return step == Step::kStreams; });
  const std::size_t own = by_peer[peer].size();
  const auto& most = GetMost(by_peer);
  if (most.size() < own + 2) return false;
  most.front()->Drop();
  return true;
}

HttpServer::Impl::Step HttpServer::Impl::PlaceFor(const std::string& path,
                                                  const std::string& peer) const {
  std::size_t waiting = 0, of_peer = 0, in_reserve = 0;
  for (const std::weak_ptr<Connection>& each : connections_) {
    const std::shared_ptr<Connection> connection = each.lock();
    if (connection == nullptr) continue;
    if (connection->step() == Step::kWaitsInReserve) ++in_reserve;
    if (connection->step() != Step::kWaits) continue;
    ++waiting;
    if (connection->peer() == peer) ++of_peer;
  }
  if (waiting < limits_.requests_max && of_peer < limits_.requests_per_peer_max) {
    return Step::kWaits;
  }
  const bool is_reserved = path == limits_.reserved_path && in_reserve < limits_.reserved_max;
  return is_reserved ? Step::kWaitsInReserve : Step::kReads;
}

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const Endpoint& endpoint, HttpLimits limits,
                                                       Callbacks callbacks) {
  auto impl = std::make_shared<Impl>(limits, std::move(callbacks));
  if (Status status = impl->Listen(endpoint); !status.ok()) return status;
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

std::string HttpServer::address() const { return impl_->address(); }
void HttpServer::Run() { impl_->Run(); }
void HttpServer::Stop() { impl_->Stop(); }
void HttpServer::Publish(std::string text) { impl_->Publish(std::move(text)); }

}  // namespace gpushared::web
