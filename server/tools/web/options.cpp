// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "common/command_line/command_line.h"
#include "ipc/unique_fd.h"
#include "server/telemetry/admin/parse_arguments.h"

namespace gpushared::web {
namespace {

constexpr const char* kUsualEndpoint = "127.0.0.1:9464";
constexpr std::size_t kTokenBytesMin = 16, kTokenBytesMax = 512;
constexpr std::size_t kHostsMax = 16, kHostBytesMax = 253;

Status NoEndpoint(std::string_view text) {
  return {StatusCode::kInvalidArgument,
          "address '" + std::string(text) +
              "' rejected; allowed: a numeric address and a port, as in 127.0.0.1:9464 or "
              "[::1]:9464"};
}

Status NoToken(const std::string& path, const std::string& why) {
  return {StatusCode::kInvalidArgument, "token file '" + path + "' rejected: " + why};
}

Status CheckHostName(const std::string& name) {
  const bool is_name =
      !name.empty() && name.size() <= kHostBytesMax && std::ranges::all_of(name, [](char each) {
        return (each >= '0' && each <= '9') || (each >= 'a' && each <= 'z') ||
               (each >= 'A' && each <= 'Z') || each == '-' || each == '.';
      });
  if (is_name) return Status::Ok();
  return {StatusCode::kInvalidArgument, "host '" + name + "' rejected; allowed: 1 to " +
                                            std::to_string(kHostBytesMax) +
                                            " letters, digits, dots and hyphens, without a port"};
}

}  // namespace

Result<Endpoint> ParseEndpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return NoEndpoint(text);
  std::string_view address = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  Endpoint endpoint;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), endpoint.port);
  if (error != std::errc() || end != digits.data() + digits.size()) return NoEndpoint(text);
  const bool is_v6 = address.size() >= 2 && address.front() == '[' && address.back() == ']';
  if (is_v6) address = address.substr(1, address.size() - 2);
  endpoint.address = address;
  in_addr v4{};
  in6_addr v6{};
  if (is_v6 && ::inet_pton(AF_INET6, endpoint.address.c_str(), &v6) == 1) {
    endpoint.is_loopback = IN6_IS_ADDR_LOOPBACK(&v6);
  } else if (!is_v6 && ::inet_pton(AF_INET, endpoint.address.c_str(), &v4) == 1) {
    endpoint.is_loopback = (ntohl(v4.s_addr) >> 24) == 127;
  } else {
    return NoEndpoint(text);
  }
  return endpoint;
}

Result<std::string> ReadToken(const std::string& path) {
  const ipc::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return NoToken(path, std::generic_category().message(errno));
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return NoToken(path, "it is no regular file");
  }
  if ((facts.st_mode & 07) != 0) return NoToken(path, "all users may read it; run chmod o= on it");
  std::string token(kTokenBytesMax + 2, '\0');
  const ssize_t got = ::read(file.get(), token.data(), token.size());
  if (got < 0) return NoToken(path, std::generic_category().message(errno));
  token.resize(static_cast<std::size_t>(got));
  if (token.ends_with('\n')) token.pop_back();
  if (token.size() < kTokenBytesMin || token.size() > kTokenBytesMax) {
    return NoToken(
        path, "it has " + (token.size() > kTokenBytesMax ? "more than " : std::string()) +
                  std::to_string(std::min(token.size(), kTokenBytesMax)) + " bytes, allowed: " +
                  std::to_string(kTokenBytesMin) + " to " + std::to_string(kTokenBytesMax));
  }
  if (!std::ranges::all_of(token, [](char each) { return each > ' ' && each <= '~'; })) {
    return NoToken(path, "allowed: printable ASCII without spaces, in one line");
  }
  return token;
}

std::variant<Options, ExitNow> ParseOptions(std::span<const char* const> arguments) {
  const command_line::Program app(
      "Web page for a gpushared server, and its metrics for Prometheus at /metrics.",
      "gpushared-web");
  app.SetVersion(std::string("gpushared-web ") + GPUSHARED_VERSION);
  app.SetFooter("Exit codes: 0 stopped by a signal; 1 cannot listen; 2 usage error.");
  Options options;
  std::string listen = kUsualEndpoint, token_file;
  app.AddOption("--socket", options.socket,
                "path of the server's socket (default: the standard locations)")
      .TypeName("PATH");
  app.AddOption("--listen", listen,
                std::string("address to listen on; addresses other than loopback ones require "
                            "--token-file (default: ") +
                    kUsualEndpoint + ")")
      .TypeName("ADDRESS:PORT");
  app.AddOption("--token-file", token_file,
                "file with the access token: browsers ask for it once, programs send "
                "'Authorization: Bearer TOKEN'")
      .TypeName("FILE");
  app.AddOption("--host", options.hosts,
                "additional host name of this machine, with --token-file (may be repeated)")
      .TypeName("NAME")
      .Expected(1)
      .TakeAll();
  const auto rejected = [](const Status& why) {
    return ExitNow{admin::kRejectedArguments,
                   "gpushared-web: " + std::string(why.message()) + "\n"};
  };
  if (auto stop = admin::ParseArguments(app, arguments); stop) return *std::move(stop);
  Result<Endpoint> endpoint = ParseEndpoint(listen);
  if (!endpoint.ok()) return rejected(endpoint.status());
  options.listen = *std::move(endpoint);
  if (!token_file.empty()) {
    Result<std::string> token = ReadToken(token_file);
    if (!token.ok()) return rejected(token.status());
    options.token = *std::move(token);
  }
  for (const std::string& host : options.hosts) {
    if (const Status named = CheckHostName(host); !named.ok()) return rejected(named);
  }
  if (options.hosts.size() > kHostsMax) {
    return rejected({StatusCode::kInvalidArgument,
                     "option host rejected: it is given " + std::to_string(options.hosts.size()) +
                         " times, allowed: " + std::to_string(kHostsMax)});
  }
  if (!options.listen.is_loopback && options.token.empty()) {
    return rejected({StatusCode::kInvalidArgument,
                     "option listen rejected: other machines may reach " + listen +
                         "; allowed: loopback addresses, or others with --token-file"});
  }
  return options;
}

}  // namespace gpushared::web
