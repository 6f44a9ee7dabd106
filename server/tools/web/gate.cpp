// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/gate.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <system_error>
#include <utility>

#include "server/tools/web/options.h"

namespace gpushared::web {
namespace {

constexpr std::size_t kTokenBytesMax = 512;
constexpr std::size_t kKeyBytes = 32;
constexpr std::string_view kBearer = "bearer ";
constexpr std::string_view kCookieName = "gpushared";
constexpr std::string_view kFormField = "token=";

char LowerCase(char each) {
  return each >= 'A' && each <= 'Z' ? static_cast<char>(each - 'A' + 'a') : each;
}

bool IsSameWord(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return LowerCase(x) == LowerCase(y); });
}

std::string RandomKey() {
  std::array<unsigned char, kKeyBytes> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw std::system_error(errno, std::generic_category(), "getrandom");
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string key;
  for (const unsigned char byte : bytes) {
    key += kDigits[byte >> 4];
    key += kDigits[byte & 15];
  }
  return key;
}

// Removes the port; returns an empty string if the port is invalid.
std::string_view WithoutPort(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  if (colon == std::string_view::npos || host.find(']', colon) != std::string_view::npos) {
    return host;
  }
  const std::string_view port = host.substr(colon + 1);
  const bool is_port =
      !port.empty() && port.find_first_not_of("0123456789") == std::string_view::npos;
  return is_port ? host.substr(0, colon) : std::string_view();
}

std::optional<unsigned> HexDigit(char each) {
  if (each >= '0' && each <= '9') return static_cast<unsigned>(each - '0');
  each = LowerCase(each);
  if (each >= 'a' && each <= 'f') return static_cast<unsigned>(each - 'a' + 10);
  return std::nullopt;
}

// Decodes a form field in the encoding used by browsers.
std::string Decoded(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && HexDigit(text[i + 1]) && HexDigit(text[i + 2])) {
      plain += static_cast<char>(*HexDigit(text[i + 1]) * 16 + *HexDigit(text[i + 2]));
      i += 2;
    } else {
      plain += text[i] == '+' ? ' ' : text[i];
    }
  }
  return plain;
}

}  // namespace

bool IsSameToken(std::string_view given, std::string_view wanted) {
  // Both tokens are copied into buffers of the same size, so that the time reveals neither the
  // position of a difference nor the length of the token.
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

Gate::Gate(std::string token, std::vector<std::string> hosts)
    : token_(std::move(token)),
      hosts_(std::move(hosts)),
      key_(token_.empty() ? std::string() : RandomKey()) {}

bool Gate::KnowsHost(std::string_view host) const {
  host = WithoutPort(host);
  if (IsSameWord(host, "localhost")) return true;
  const Result<Endpoint> address = ParseEndpoint(std::string(host) + ":0");
  if (token_.empty()) return address.ok() && address->is_loopback;
  // Any address is accepted, because DNS cannot redirect an address.
  return address.ok() ||
         (!host.empty() && std::ranges::any_of(hosts_, [&](const std::string& each) {
           return IsSameWord(each, host);
         }));
}

std::string Gate::HostsAllowed() const {
  if (token_.empty()) return "localhost and loopback addresses";
  std::string allowed = "localhost, addresses";
  for (const std::string& host : hosts_) allowed += ", " + host;
  return allowed + "; --host NAME adds a name";
}

bool Gate::IsAuthorized(const HttpServer::Request& request) const {
  if (token_.empty()) return true;
  const std::string_view given = request.authorization;
  if (IsSameWord(given.substr(0, kBearer.size()), kBearer) &&
      IsSameToken(given.substr(kBearer.size()), token_)) {
    return true;
  }
  std::string_view rest = request.cookie;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(';'), rest.size());
    std::string_view cookie = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    cookie.remove_prefix(std::min(cookie.find_first_not_of(' '), cookie.size()));
    const std::size_t name_end = cookie.find('=');
    if (name_end != std::string_view::npos && cookie.substr(0, name_end) == kCookieName &&
        IsSameToken(cookie.substr(name_end + 1), key_)) {
      return true;
    }
  }
  return false;
}

bool Gate::HasToken(std::string_view form) const {
  return form.starts_with(kFormField) &&
         IsSameToken(Decoded(form.substr(kFormField.size())), token_);
}

std::string Gate::Cookie() const {
  return std::string(kCookieName) + "=" + key_ + "; Path=/; HttpOnly; SameSite=Strict";
}

}  // namespace gpushared::web
