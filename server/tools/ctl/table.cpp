// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "ipc/wire/bytes.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using nlohmann::json;
using Cells = std::vector<std::string>;  // The cells of one line.

constexpr std::size_t kGap = 2;
constexpr std::size_t kTextLeast = 6;  // Minimum width to which texts are truncated.
constexpr std::string_view kCut = "…";

bool Continues(char c) { return (static_cast<unsigned>(c) & 0xc0U) == 0x80U; }

// Counts characters, because continuation bytes of UTF-8 take no column of the terminal.
std::size_t Width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !Continues(c); }));
}

std::string CutTo(const std::string& text, std::size_t width) {
  if (Width(text) <= width) return text;
  std::size_t end = 0;
  for (std::size_t characters = 0; end < text.size(); ++end) {
    if (!Continues(text[end]) && ++characters == width) break;
  }
  return text.substr(0, end) + std::string(kCut);
}

std::string Padded(const std::string& text, std::size_t width, bool left) {
  const std::string blanks(width - std::min(width, Width(text)), ' ');
  return left ? text + blanks : blanks + text;
}

std::vector<Column> Shown(std::span<const Column> columns, const View& view) {
  std::vector<Column> shown;
  for (const std::string& field : view.fields) {
    if (const Column* const found = FindColumn(columns, field)) shown.push_back(*found);
  }
  if (!view.fields.empty()) return shown;
  std::ranges::copy_if(columns, std::back_inserter(shown),
                       [&](const Column& column) { return view.wide || column.is_usual; });
  return shown;
}

// Shrinks the widest text until a line fits or no text can be shortened further.
void Fit(std::vector<std::size_t>& widths, const std::vector<Column>& columns, std::size_t width) {
  const auto total = [&] {
    return std::accumulate(widths.begin(), widths.end(), kGap * (widths.size() - 1));
  };
  while (total() > width) {
    std::size_t* widest = nullptr;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const bool may_give = columns[i].is_text && widths[i] > kTextLeast;
      if (may_give && (widest == nullptr || widths[i] > *widest)) widest = &widths[i];
    }
    if (widest == nullptr) return;
    --*widest;
  }
}

}  // namespace

std::string Fitted(const std::string& text, std::size_t width) {
  return Padded(CutTo(text, width), width, true);
}

std::string Printable(std::string_view text) { return ipc::PrintableText(text); }

std::string TimeText(double us) {
  std::array<char, 64> text{};
  const double seconds = us / 1e6;
  if (us < 0 || us != us) return "-";
  if (us < 999.5) {
    std::snprintf(text.data(), text.size(), us == std::floor(us) ? "%.0f us" : "%.1f us", us);
  } else if (seconds < 0.9995) {
    std::snprintf(text.data(), text.size(), "%.1f ms", us / 1000);
  } else if (seconds < 60) {
    std::snprintf(text.data(), text.size(), seconds < 10 ? "%.2f s" : "%.1f s", seconds);
  } else {
    const bool is_hours = seconds >= 3600;
    std::snprintf(text.data(), text.size(), is_hours ? "%.1f h" : "%.1f min",
                  seconds / (is_hours ? 3600 : 60));
  }
  return text.data();
}

const Column* FindColumn(std::span<const Column> columns, std::string_view name) {
  // Treats "WAIT p99", "wait_p99" and "Wait P99" as the same name.
  const auto plain = [](std::string_view text) {
    std::string result;
    for (const char c : text) {
      if (c == ' ' || c == '_' || c == '-') continue;
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return result;
  };
  // Accepts "MEMORY" for "MEMORY MiB", whose last word is the unit.
  const auto without_unit = [](std::string_view heading) {
    for (const std::string_view unit : {" MiB", " %", " pp"}) {
      if (heading.ends_with(unit)) heading.remove_suffix(unit.size());
    }
    return heading;
  };
  const auto exact = std::ranges::find(columns, name, &Column::field);
  if (exact != columns.end()) return &*exact;
  const auto found = std::ranges::find_if(columns, [&](const Column& column) {
    return plain(column.heading) == plain(name) ||
           plain(without_unit(column.heading)) == plain(name);
  });
  return found == columns.end() ? nullptr : &*found;
}

std::string Cell(const json& row, const Column& column) {
  const auto field = row.find(column.field);
  if (field == row.end() || field->is_null()) return "-";
  if (column.time_us != 0 && field->is_number()) {
    return TimeText(field->get<double>() * column.time_us);
  }
  if (column.divisor != 0 && field->is_number()) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.*f", column.decimals,
                  field->get<double>() / column.divisor);
    return text.data();
  }
  if (field->is_string()) return Printable(field->get_ref<const std::string&>());
  if (!field->is_structured()) return field->dump();
  // The value is a list, or a count for each of several keys.
  std::string text;
  for (const auto& [key, value] : field->items()) {
    const std::string item = value.is_string() ? value.get<std::string>() : value.dump();
    text += (text.empty() ? "" : ", ") + (field->is_object() ? key + " " + item : item);
  }
  return text.empty() ? "-" : Printable(text);
}

Status CheckFields(const View& view, std::span<const Column> columns) {
  for (const std::string& field : view.fields) {
    if (FindColumn(columns, field) != nullptr) continue;
    std::string known;
    for (const Column& column : columns) {
      known += (known.empty() ? "" : ", ") + std::string(column.field);
    }
    return {StatusCode::kInvalidArgument,
            "there is no column '" + Printable(field) + "'; available are " + known};
  }
  return Status::Ok();
}

std::string Table(const json& rows, std::span<const Column> columns, const View& view) {
  const std::vector<Column> shown = Shown(columns, view);
  std::vector<Cells> lines(1);
  for (const Column& column : shown) lines[0].emplace_back(column.heading);
  for (const json& row : rows) {
    if (!row.is_object()) continue;
    Cells& line = lines.emplace_back();
    for (const Column& column : shown) line.push_back(Cell(row, column));
  }
  std::vector<std::size_t> widths(shown.size(), 0);
  for (const Cells& line : lines) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], Width(line[i]));
    }
  }
  if (view.width > 0) Fit(widths, shown, view.width);
  std::string text;
  for (const Cells& line : lines) {
    std::string out;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (i > 0) out.append(kGap, ' ');
      out += Padded(CutTo(line[i], widths[i]), widths[i], shown[i].is_text);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + "\n";
  }
  return text;
}

}  // namespace gpushared::server
