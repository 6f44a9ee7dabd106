// SPDX-License-Identifier: Apache-2.0
#include "server/config/config_syntax.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "ipc/unique_fd.h"
#include "server/config/config_values.h"

namespace gpushared::server {
namespace {

// Both limits are far above what any setting has.
constexpr std::size_t kDotsMax = 16, kBracketsMax = 16;

Status WrongText(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Punctuation of a line outside strings and comments.
struct Punctuation {
  std::size_t dots = 0, opened = 0, closed = 0;
};

Punctuation GetPunctuation(std::string_view line) {
  Punctuation found;
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == '\\' && quote == '"') ++i;
      if (c == quote) quote = 0;
      continue;
    }
    if (c == '#') break;
    if (c == '"' || c == '\'') quote = c;
    if (c == '.') ++found.dots;
    if (c == '[' || c == '{') ++found.opened;
    if (c == ']' || c == '}') ++found.closed;
  }
  return found;
}

// Returns the text without the quotes that word processors write.
std::string_view WithoutCurlyQuotes(std::string_view text) {
  for (const std::string_view quote : {"\xe2\x80\x9c", "\xe2\x80\x9d", "\xe2\x80\x9e",
                                       "\xe2\x80\x98", "\xe2\x80\x99", "\xc2\xab", "\xc2\xbb"}) {
    if (text.starts_with(quote)) text.remove_prefix(quote.size());
    if (text.ends_with(quote)) text.remove_suffix(quote.size());
  }
  return text;
}

}  // namespace

Result<std::string> ReadConfigFile(const std::string& path) {
  const auto failed = [&](const char* what) {
    return Status(StatusCode::kNotFound,
                  "config file " + Escaped(path) + " cannot be " + what + ": " + ::strerror(errno));
  };
  const ipc::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file.valid()) return failed("opened");
  std::string text(kConfigFileBytesMax + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("read");
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > kConfigFileBytesMax) {
    return WrongText("config file " + Escaped(path) + " rejected: more than " +
                     FormatBytes(kConfigFileBytesMax));
  }
  text.resize(size);
  return text;
}

Status CheckNesting(std::string_view text, std::string_view source) {
  std::size_t open = 0, number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++number;
    const Punctuation found = GetPunctuation(line);
    const auto reject = [&](std::size_t count, std::string_view what, std::size_t allowed) {
      return WrongText(std::string(source) + " line " + std::to_string(number) +
                       " rejected: " + std::to_string(count) + " " + std::string(what) +
                       " outside of quotes, allowed: " + std::to_string(allowed));
    };
    if (found.dots > kDotsMax) return reject(found.dots, "dots", kDotsMax);
    open += found.opened;
    if (open > kBracketsMax) return reject(open, "open brackets", kBracketsMax);
    open -= std::min(open, found.closed);
  }
  return Status::Ok();
}

std::optional<UnquotedValue> FindUnquotedValue(std::string_view line) {
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) return std::nullopt;
  const std::string_view key = Trimmed(line.substr(0, equals));
  std::string_view value = line.substr(equals + 1);
  value = Trimmed(value.substr(0, value.find('#')));
  constexpr std::string_view kBeginsAsToml = "\"'[{";
  if (key.empty() || value.empty() || kBeginsAsToml.find(value.front()) != kBeginsAsToml.npos) {
    return std::nullopt;
  }
  const auto column = static_cast<std::size_t>(value.data() - line.data()) + 1;
  const std::string shown = Escaped(key) + " = ";
  constexpr std::array<std::string_view, 6> kYes = {"yes", "on", "True", "TRUE", "Yes", "On"};
  constexpr std::array<std::string_view, 6> kNo = {"no", "off", "False", "FALSE", "No", "Off"};
  const bool is_yes = std::ranges::find(kYes, value) != kYes.end();
  if (key != "memory" && (is_yes || std::ranges::find(kNo, value) != kNo.end())) {
    return UnquotedValue{column, "asked for " + Escaped(value) + ", write " + shown +
                                     (is_yes ? "true" : "false") + ", or quotes around text"};
  }
  const std::string_view bare = WithoutCurlyQuotes(value);
  const bool is_curly = bare.size() != value.size();
  return UnquotedValue{
      column, std::string(is_curly ? "text needs plain quotes" : "text needs quotes") + ", write " +
                  shown + "\"" + Escaped(bare) + "\""};
}

std::string_view GetLine(std::string_view text, std::size_t number) {
  for (; number > 1; --number) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace gpushared::server
