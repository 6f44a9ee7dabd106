// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/exposition.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "gpushared/check.h"

namespace gpushared::web {
namespace {

std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 64> digits{};
  // Prints integers exactly, and otherwise the shortest text that parses to the same number.
  constexpr double kExact = 9007199254740992.0;  // 2^53.
  const bool is_whole = std::trunc(value) == value && std::abs(value) <= kExact;
  const std::to_chars_result end =
      is_whole ? std::to_chars(digits.begin(), digits.end(), static_cast<std::int64_t>(value))
               : std::to_chars(digits.begin(), digits.end(), value);
  return {digits.data(), end.ptr};
}

std::string Escaped(std::string_view text, bool with_quotes) {
  std::string escaped;
  for (const char each : text) {
    if (each == '\\') {
      escaped += "\\\\";
    } else if (each == '\n') {
      escaped += "\\n";
    } else if (each == '"' && with_quotes) {
      escaped += "\\\"";
    } else {
      escaped += each;
    }
  }
  return escaped;
}

std::string_view TypeName(Exposition::Type type, TextFormat format) {
  switch (type) {
    case Exposition::Type::kCounter:
      return "counter";
    case Exposition::Type::kHistogram:
      return "histogram";
    case Exposition::Type::kInfo:
      return format == TextFormat::kOpenMetrics ? "info" : "gauge";
    case Exposition::Type::kGauge:
      break;
  }
  return "gauge";
}

std::string_view GetSuffix(Exposition::Type type) {
  if (type == Exposition::Type::kCounter) return "_total";
  return type == Exposition::Type::kInfo ? "_info" : "";
}

std::string_view GetUnit(std::string_view name) {
  for (const std::string_view unit : {"seconds", "bytes", "joules", "watts", "celsius", "hertz"}) {
    if (name.ends_with(unit)) return unit;
  }
  return {};
}

std::string_view Trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::string_view TakeUpTo(std::string_view& rest, char separator) {
  const std::size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(rest.size(), end + 1));
  return Trimmed(part);
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& each : lower) {
    if (each >= 'A' && each <= 'Z') each = static_cast<char>(each - 'A' + 'a');
  }
  return lower;
}

}  // namespace

TextFormat PreferredFormat(std::string_view accept) {
  double plain = 0, open_metrics = 0;
  while (!accept.empty()) {
    std::string_view range = TakeUpTo(accept, ',');
    const std::string type = Lower(TakeUpTo(range, ';'));
    double quality = 1;
    bool is_our_version = true;
    while (!range.empty()) {
      const std::string parameter = Lower(TakeUpTo(range, ';'));
      if (parameter.starts_with("q=")) {
        quality = 0;
        (void)std::from_chars(parameter.data() + 2, parameter.data() + parameter.size(), quality);
      } else if (parameter.starts_with("version=")) {
        is_our_version = parameter == "version=1.0.0";
      }
    }
    // Treats a quality value that is malformed or not between 0 and 1 as 0.
    if (!(quality >= 0 && quality <= 1)) quality = 0;
    if (type == "application/openmetrics-text") {
      if (is_our_version) open_metrics = std::max(open_metrics, quality);
    } else if (type == "text/plain" || type == "text/*" || type == "*/*") {
      plain = std::max(plain, quality);
    }
  }
  return open_metrics > 0 && open_metrics >= plain ? TextFormat::kOpenMetrics : TextFormat::kPlain;
}

std::string_view ContentType(TextFormat format) {
  return format == TextFormat::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

void Exposition::Begin(std::string_view name, Type type, std::string_view help) {
  name_ = name;
  type_ = type;
  // In descriptions, OpenMetrics names the family, whereas the other format names the family's
  // samples.
  const bool is_open = format_ == TextFormat::kOpenMetrics;
  const std::string shown = name_ + std::string(is_open ? "" : GetSuffix(type));
  text_ += "# HELP " + shown + " " + Escaped(help, is_open) + "\n";
  text_ += "# TYPE " + shown + " " + std::string(TypeName(type, format_)) + "\n";
  const std::string_view unit = GetUnit(name);
  if (is_open && !unit.empty()) text_ += "# UNIT " + shown + " " + std::string(unit) + "\n";
}

void Exposition::Add(const Labels& labels, double value) {
  Check(type_ != Type::kHistogram, "a histogram has more than one number");
  AddSample(GetSuffix(type_), labels, "", value);
}

void Exposition::AddHistogram(const Labels& labels, std::span<const double> bounds,
                              std::span<const double> counts, double sum) {
  Check(type_ == Type::kHistogram && counts.size() == bounds.size() + 1,
        "a histogram has one bucket more than bounds");
  double below = 0;
  for (std::size_t each = 0; each < counts.size(); ++each) {
    below += counts[each];
    AddSample("_bucket", labels, each < bounds.size() ? NumberText(bounds[each]) : "+Inf", below);
  }
  AddSample("_sum", labels, "", sum);
  AddSample("_count", labels, "", below);
}

void Exposition::AddSample(std::string_view suffix, const Labels& labels, std::string_view bound,
                           double value) {
  text_ += name_;
  text_ += suffix;
  char separator = '{';
  for (const auto& [label, text] : labels) {
    text_ += separator + std::string(label) + "=\"" + Escaped(text, true) + "\"";
    separator = ',';
  }
  if (!bound.empty()) {
    text_ += separator + std::string("le=\"") + std::string(bound) + "\"";
    separator = ',';
  }
  if (separator == ',') text_ += '}';
  text_ += " " + NumberText(value) + "\n";
}

std::string Exposition::Finish() {
  if (format_ == TextFormat::kOpenMetrics) text_ += "# EOF\n";
  return std::move(text_);
}

}  // namespace gpushared::web
