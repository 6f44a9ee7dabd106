// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/waterfall.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string_view>

#include "server/telemetry/admin/json_fields.h"
#include "server/tools/ctl/table.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {

namespace {

using nlohmann::json;

constexpr std::size_t kLineWidth = 80;  // In characters, as are the next three.
constexpr std::size_t kBarWidth = 28;
constexpr std::size_t kWhoWidth = 12, kWhatWidth = 23;

double GetNumber(const json& row, const char* field) {
  return admin::Number(row, field).value_or(0);
}

std::string RowWho(const json& row) {
  const std::string name = admin::Text(row, "name");
  if (!name.empty()) return Printable(name);
  const json& client = admin::Member(row, "client");
  return "client " + (client.is_number() ? client.dump() : "?");
}

std::string WhatText(const json& row) {
  if (admin::Text(row, "kind") == "wait") return "(waits)";
  const std::string what = admin::Text(row, "what");
  return what.empty() ? "a command" : Printable(what);
}

// Extent of a row's bar in characters; at least one character long.
struct Bar {
  std::size_t from = 0, to = 0;
};

Bar GetBar(const json& row, double total_us) {
  const auto place = [&](const char* field) {
    const double part = GetNumber(row, field) / total_us * static_cast<double>(kBarWidth);
    return std::clamp(part, 0.0, static_cast<double>(kBarWidth));
  };
  const auto from = std::min(static_cast<std::size_t>(place("from_us")), kBarWidth - 1);
  const auto to = static_cast<std::size_t>(std::ceil(place("to_us")));
  return {from, std::max(to, from + 1)};
}

std::string BarText(const json& row, double total_us) {
  const std::string kind = admin::Text(row, "kind");
  const char fill = kind == "wait" ? '.' : kind == "own" ? '=' : '#';
  const Bar bar = GetBar(row, total_us);
  std::string text(kBarWidth, ' ');
  std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(bar.from), bar.to - bar.from, fill);
  if (const auto asked = admin::Number(row, "stop_asked_us")) {
    const double part = *asked / total_us * static_cast<double>(kBarWidth);
    const auto at = static_cast<std::size_t>(std::clamp(part, 0.0, kBarWidth - 1.0));
    text[at] = '!';
  }
  return text;
}

// Wraps our own text between words.
std::string Wrapped(std::string_view words) {
  constexpr std::string_view kIndent = "        ";
  std::string text;
  while (!words.empty()) {
    std::size_t end = words.size();
    if (end > kLineWidth - kIndent.size()) {
      end = std::min(end, words.rfind(' ', kLineWidth - kIndent.size()));
    }
    text += std::string(kIndent) + std::string(words.substr(0, end)) + "\n";
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return text;
}

std::string RowText(const json& row, double total_us) {
  const double took_us = GetNumber(row, "to_us") - GetNumber(row, "from_us");
  const std::string time = TimeText(took_us);
  std::string text = "    " + Fitted(RowWho(row), kWhoWidth) + " " +
                     Fitted(WhatText(row), kWhatWidth) + " |" + BarText(row, total_us) + "|" +
                     std::string(time.size() < 9 ? 9 - time.size() : 1, ' ') + time + "\n";
  if (admin::Text(row, "kind") != "other") return text;
  std::string cut = "it " + Printable(admin::Text(row, "cut"));
  if (row.contains("stop_latency_us")) {
    cut += ", which took " + TimeText(GetNumber(row, "stop_latency_us"));
  }
  return text + Wrapped(cut);
}

}  // namespace

std::string WaterfallText(const json& reply) {
  const auto rows = reply.find("waterfall");
  if (rows == reply.end() || !rows->is_array() || rows->empty()) return "";
  const double total_us = GetNumber(reply, "latency_us") - GetNumber(reply, "before_us");
  if (total_us <= 0) return "";
  std::string text = "  since the server began it, " + TimeText(total_us) +
                     ":\n    . waits   = has the device   # others have it   ! told to stop\n";
  for (const json& row : *rows) {
    if (row.is_object()) text += RowText(row, total_us);
  }
  const auto rest = reply.find("waterfall_rest");
  if (rest == reply.end() || !rest->is_object()) return text;
  if (GetNumber(*rest, "commands") > 0) {
    text += "    and " + (*rest)["commands"].dump() + " shorter commands, " +
            TimeText(GetNumber(*rest, "on_device_us")) + " in all\n";
  }
  if (GetNumber(*rest, "waits") > 0) {
    text += "    and " + (*rest)["waits"].dump() + " shorter waits, " +
            TimeText(GetNumber(*rest, "waited_us")) + " in all\n";
  }
  return text;
}

}  // namespace gpushared::server
