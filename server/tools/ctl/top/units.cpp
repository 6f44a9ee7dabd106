// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/top/units.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace gpushared::server::top {
namespace {

constexpr double kFarTooMuch = 1e18;  // No correct counter is this large.

std::string Formatted(double number, int decimals) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, number);
  return text.data();
}

}  // namespace

std::string PercentText(const Figure& part) {
  if (!part) return "-";
  return *part >= 1e6 ? "huge" : Formatted(*part * 100, *part * 100 < 999.95 ? 1 : 0);
}

std::string CountText(const Figure& count) {
  if (!count) return "-";
  if (*count >= kFarTooMuch) return "huge";
  if (*count < 99.95) return Formatted(*count, *count == std::floor(*count) ? 0 : 1);
  double number = *count;
  constexpr std::array<const char*, 6> kUnits = {"", "k", "M", "G", "T", "P"};
  std::size_t unit = 0;
  while (number >= 999.5 && unit + 1 < kUnits.size()) {
    number /= 1000;
    ++unit;
  }
  return Formatted(number, unit > 0 && number < 9.95 ? 1 : 0) + kUnits.at(unit);
}

std::string WholeText(const Figure& number) {
  if (!number) return "-";
  return *number >= kFarTooMuch ? "huge" : Formatted(*number, 0);
}

std::string BytesText(const Figure& bytes) {
  if (!bytes) return "-";
  constexpr std::array<const char*, 6> kUnits = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  double number = *bytes;
  std::size_t unit = 0;
  while (number >= 1023.5 && unit + 1 < kUnits.size()) {
    number /= 1024;
    ++unit;
  }
  if (number >= 1023.5) return "huge";
  return Formatted(number, unit > 0 && number < 99.95 ? 1 : 0) + kUnits.at(unit);
}

std::string EnergyText(const Figure& joules) {
  std::string text = CountText(joules);
  if (!joules || *joules >= kFarTooMuch) return text;
  const std::size_t digits = text.find_last_of("0123456789") + 1;
  return text.insert(digits, " ") + "J";
}

std::string MicrosecondsText(const Figure& us) {
  if (!us) return "-";
  if (*us < 999.5) return Formatted(*us, 0) + " us";
  if (*us < 999'950) return Formatted(*us / 1000, *us < 99'950 ? 1 : 0) + " ms";
  return *us < 1e12 ? Formatted(*us / 1e6, *us < 99.95e6 ? 1 : 0) + " s" : "huge";
}

std::string AgeText(const Figure& seconds) {
  if (!seconds) return "-";
  if (*seconds < 60) return Formatted(std::floor(*seconds), 0) + " s";
  const double minutes = std::floor(*seconds / 60);
  if (minutes < 60) return Formatted(minutes, 0) + " min";
  const double hours = std::floor(minutes / 60);
  if (hours < 24) return Formatted(hours, 0) + " h " + Formatted(minutes - 60 * hours, 0) + " min";
  const double days = std::floor(hours / 24);
  return days < 1e6 ? Formatted(days, 0) + " d " + Formatted(hours - 24 * days, 0) + " h" : "huge";
}

}  // namespace gpushared::server::top
