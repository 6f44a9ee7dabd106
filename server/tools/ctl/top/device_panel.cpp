// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/top/device_panel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "server/tools/ctl/top/units.h"

namespace gpushared::server::top {
namespace {

constexpr std::size_t kRowsOfOne = 4;
constexpr std::size_t kLabelColumns = 9;
constexpr std::size_t kIdColumns = 9, kStateColumns = 11;
constexpr double kHostStealShown = 0.01;
constexpr std::array kClassStyles = {Style::kHigh, Style::kNormal, Style::kLow};

// Characters that distinguish the classes in a bar on terminals without colours.
std::string_view ClassGlyph(std::size_t each, Charset charset) {
  constexpr std::array<std::string_view, 3> kAscii = {"#", "=", "-"}, kUtf8 = {"█", "▓", "░"};
  return charset == Charset::kUtf8 ? kUtf8.at(each) : kAscii.at(each);
}

std::string_view Level(double part, Charset charset) {
  constexpr std::array<std::string_view, 8> kUtf8 = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::array<std::string_view, 8> kAscii = {"_", ".", ":", "-", "=", "+", "*", "#"};
  const double level = std::clamp(std::ceil(part * 8), 1.0, 8.0);
  const auto at = static_cast<std::size_t>(level) - 1;
  return charset == Charset::kUtf8 ? kUtf8.at(at) : kAscii.at(at);
}

struct BarPart {
  double part;
  std::string_view glyph;
  Style style;
};

// Draws "[###---    ]" over `width` columns.
template <std::size_t kParts>
void DrawBar(Canvas& canvas, std::size_t row, std::size_t column, std::size_t width,
             const std::array<BarPart, kParts>& parts) {
  if (width < 3) return;
  const auto inner = static_cast<double>(width - 2);
  canvas.Put(row, column, "[");
  canvas.Put(row, column + width - 1, "]");
  double until = 0;
  std::size_t at = 0;
  for (const BarPart& part : parts) {
    until = std::min(1.0, until + part.part);
    for (; at < static_cast<std::size_t>(std::lround(until * inner)); ++at) {
      canvas.Put(row, column + 1 + at, part.glyph, part.style);
    }
  }
}

void DrawTimeBar(Canvas& canvas, std::size_t row, std::size_t column, std::size_t width,
                 const Busy& busy) {
  std::array<BarPart, kClassNames.size()> parts{};
  for (std::size_t each = 0; each < parts.size(); ++each) {
    parts.at(each) = {busy[each].value_or(0), ClassGlyph(each, canvas.charset()),
                      kClassStyles.at(each)};
  }
  DrawBar(canvas, row, column, width, parts);
}

Figure MemoryPart(const DeviceSample& device) {
  if (!device.memory_bytes || !device.mapped_bytes || *device.memory_bytes <= 0) return {};
  return *device.mapped_bytes / *device.memory_bytes;
}

void DrawMemoryBar(Canvas& canvas, std::size_t row, std::size_t column, std::size_t width,
                   const DeviceSample& device) {
  const bool utf8 = canvas.charset() == Charset::kUtf8;
  DrawBar(canvas, row, column, width,
          std::array{BarPart{MemoryPart(device).value_or(0), utf8 ? "▒" : "|", Style::kMemory}});
}

std::string MemoryText(const DeviceSample& device) {
  return BytesText(device.mapped_bytes) + " of " + BytesText(device.memory_bytes);
}

// A drain by an operator is no reason for an alarm.
Style StateStyle(const DeviceSample& device) {
  if (device.state == "ready") return Style::kPlain;
  return device.state == "draining" || device.state == "drained" ? Style::kWarning : Style::kAlarm;
}

// Draws the device's id ("cuda:0"), state, clients and activity, followed by the model's name.
void DrawTitle(Canvas& canvas, std::size_t row, const DeviceFigures& device) {
  const DeviceSample& now = device.now;
  std::size_t column = canvas.Put(row, 0, now.id, Style::kStrong);
  column = canvas.Put(row, column + 2, now.state, StateStyle(now));
  if (now.is_overloaded) column = canvas.Put(row, column + 2, "OVERLOADED", Style::kAlarm);
  column = canvas.Put(row, column + 2,
                      WholeText(now.sessions) + (now.sessions == 1 ? " client" : " clients"));
  if (device.host_steal.value_or(0) >= kHostStealShown) {
    column = canvas.Put(row, column + 2, "steal " + PercentText(device.host_steal) + " %",
                        Style::kWarning);
  }
  if (now.power_w) column = canvas.Put(row, column + 2, WholeText(now.power_w) + " W");
  column = canvas.Put(row, column + 2, CountText(device.launches_per_s) + " launches/s");
  column = canvas.Put(row, column + 2, CountText(device.stops_per_s) + " stops/s");
  column = canvas.Put(row, column + 2, "gap used " + PercentText(device.gap_used) + " %");
  canvas.Put(row, column + 2, now.missing.empty() ? now.name : now.missing, Style::kDim);
}

void DrawStrip(Canvas& canvas, std::size_t row, const std::string& device, const Scene& scene) {
  const std::size_t width = canvas.size().columns - kLabelColumns - 2;
  const double seconds = static_cast<double>(width) * scene.every_s;
  canvas.Put(row, 1, seconds < 120 ? WholeText(seconds) + " s" : AgeText(seconds), Style::kPlain,
             kLabelColumns - 1);
  const std::deque<Busy>& moments = scene.history.Of(device);
  const std::size_t shown = std::min(moments.size(), width);
  for (std::size_t i = 0; i < shown; ++i) {
    const Busy& busy = moments[moments.size() - shown + i];
    const Figure sum = Sum(busy);
    if (!sum) continue;  // Unknown.
    std::size_t most = 0;
    for (std::size_t each = 1; each < busy.size(); ++each) {
      if (busy[each].value_or(0) > busy[most].value_or(0)) most = each;
    }
    canvas.Put(row, kLabelColumns + 1 + width - shown + i, Level(*sum, canvas.charset()),
               *sum > 0 ? kClassStyles.at(most) : Style::kDim);
  }
}

// Draws the percentages after a device's bar, which also serve as the legend of its characters.
std::size_t DrawShares(Canvas& canvas, std::size_t row, std::size_t column, const Busy& busy) {
  column = canvas.Put(row, column, PercentText(Sum(busy)) + " %", Style::kStrong);
  for (std::size_t each = 0; each < kClassNames.size(); ++each) {
    column = canvas.Put(row, column + 2, ClassGlyph(each, canvas.charset()), kClassStyles.at(each));
    column = canvas.Put(row, column,
                        " " + std::string(kClassNames.at(each)) + " " + PercentText(busy[each]));
  }
  return column;
}

void DrawWhole(Canvas& canvas, std::size_t row, const DeviceFigures& device, const Scene& scene) {
  constexpr std::size_t kSideColumns = 48;
  const std::size_t columns = canvas.size().columns;
  const std::size_t bar = columns - kLabelColumns - (columns >= 72 ? kSideColumns : 10);
  const std::size_t side = kLabelColumns + bar + 1;
  DrawTitle(canvas, row, device);
  canvas.Put(row + 1, 1, "time");
  DrawTimeBar(canvas, row + 1, kLabelColumns, bar, device.busy);
  DrawShares(canvas, row + 1, side, device.busy);
  canvas.Put(row + 2, 1, "memory");
  DrawMemoryBar(canvas, row + 2, kLabelColumns, bar, device.now);
  const std::size_t behind =
      canvas.Put(row + 2, side, PercentText(MemoryPart(device.now)) + " %", Style::kStrong);
  canvas.Put(row + 2, behind + 2, MemoryText(device.now));
  DrawStrip(canvas, row + 3, device.now.id, scene);
}

// Draws "cuda:0   ready      87.3 % [####---   ]  12.0 GiB of 80.0 GiB [||||      ]".
void DrawShort(Canvas& canvas, std::size_t row, const DeviceFigures& device) {
  constexpr std::size_t kPercentColumns = 8, kMemoryColumns = 22;
  const DeviceSample& now = device.now;
  canvas.Put(row, 0, now.id, Style::kStrong, kIdColumns - 1);
  const bool is_ready = now.state == "ready";
  const bool is_overloaded = now.is_overloaded && is_ready;
  canvas.Put(row, kIdColumns, is_overloaded ? "OVERLOADED" : now.state,
             is_overloaded ? Style::kAlarm : StateStyle(now), kStateColumns - 1);
  std::size_t column = kIdColumns + kStateColumns;
  if (!now.missing.empty()) {
    canvas.Put(row, column, now.missing, Style::kDim);
    return;
  }
  canvas.PutRight(row, column + kPercentColumns - 1, PercentText(Sum(device.busy)) + " %",
                  Style::kStrong);
  column += kPercentColumns;
  const std::size_t left = canvas.size().columns - std::min(canvas.size().columns, column);
  if (left < kMemoryColumns + 16) return DrawTimeBar(canvas, row, column, left, device.busy);
  const std::size_t bar = (left - kMemoryColumns) / 2;
  DrawTimeBar(canvas, row, column, bar, device.busy);
  canvas.PutRight(row, column + bar + kMemoryColumns - 1, MemoryText(now));
  DrawMemoryBar(canvas, row, column + bar + kMemoryColumns, left - kMemoryColumns - bar, now);
}

}  // namespace

std::size_t DrawDevices(Canvas& canvas, std::size_t row, std::size_t rows_max,
                        const std::vector<DeviceFigures>& devices, const Scene& scene) {
  if (devices.size() * kRowsOfOne <= rows_max) {
    for (const DeviceFigures& device : devices) {
      DrawWhole(canvas, row, device, scene);
      row += kRowsOfOne;
    }
    return row;
  }
  const std::size_t shown = devices.size() <= rows_max ? devices.size() : rows_max - 1;
  for (std::size_t each = 0; each < shown; ++each) DrawShort(canvas, row++, devices[each]);
  if (shown == devices.size()) return row;
  canvas.Put(row, 0,
             std::to_string(devices.size() - shown) + " more devices: a taller terminal shows them",
             Style::kDim);
  return row + 1;
}

}  // namespace gpushared::server::top
