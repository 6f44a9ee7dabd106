// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/top/canvas.h"

#include <wchar.h>

#include <algorithm>
#include <utility>

namespace gpushared::server::top {
namespace {

// Limit on combining marks per character; more of them would overlap the lines above.
constexpr std::size_t kMarksMax = 2;
constexpr char32_t kBroken = 0xffffffff;

// Decodes the next character, or one byte if it begins no character.
char32_t Next(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(at);
  const std::size_t more = first < 0x80                     ? 0
                           : first >= 0xc2 && first <= 0xdf ? 1
                           : (first & 0xf0U) == 0xe0        ? 2
                           : first >= 0xf0 && first <= 0xf4 ? 3
                                                            : 4;
  ++at;
  if (more == 0) return first;
  if (more == 4) return kBroken;
  char32_t character = first & (0x3fU >> more);
  for (std::size_t i = 0; i < more; ++i) {
    if ((byte(at + i) & 0xc0U) != 0x80) return kBroken;
    character = character << 6U | (byte(at + i) & 0x3fU);
  }
  // Smaller values are overlong encodings.
  constexpr char32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = character >= 0xd800 && character <= 0xdfff;
  if (character < kLeast[more] || character > 0x10ffff || is_surrogate) return kBroken;
  at += more;
  return character;
}

std::string Encoded(char32_t c) {
  const auto tail = [&](unsigned shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3f)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xc0 | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xe0 | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | c >> 18), tail(12), tail(6), tail(0)};
}

// Returns whether the character is a joiner, variation selector or mark of direction. Terminals
// differ in how they render these, or change the layout because of them.
bool IsFormat(char32_t c) {
  struct Range {
    char32_t first, last;
  };
  constexpr Range kRanges[] = {
      {0xad, 0xad},     {0x34f, 0x34f},   {0x61c, 0x61c},   {0x115f, 0x1160},   {0x17b4, 0x17b5},
      {0x180b, 0x180f}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},   {0x3164, 0x3164},
      {0xfe00, 0xfe0f}, {0xfeff, 0xfeff}, {0xfff0, 0xfffb}, {0x1f3fb, 0x1f3ff}, {0xe0000, 0xe0fff}};
  return std::ranges::any_of(kRanges, [c](const Range& r) { return c >= r.first && c <= r.last; });
}

bool IsControl(char32_t c) { return c < 0x20 || (c >= 0x7f && c < 0xa0); }

}  // namespace

std::vector<Cell> GetCells(std::string_view text, Charset charset, Style style) {
  std::vector<Cell> cells;
  std::size_t marks = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = Next(text, at);
    if (c != kBroken && IsFormat(c)) continue;
    if (c == kBroken || IsControl(c) || (charset == Charset::kAscii && c >= 0x80)) {
      cells.push_back({"?", style});
      continue;
    }
    const int width = ::wcwidth(static_cast<wchar_t>(c));
    if (width == 0) {
      if (!cells.empty() && !cells.back().text.empty() && marks++ < kMarksMax) {
        cells.back().text += Encoded(c);
      }
      continue;
    }
    marks = 0;
    cells.push_back({width < 0 ? "?" : Encoded(c), style});
    if (width == 2) cells.push_back({"", style});
  }
  return cells;
}

std::size_t GetWidth(std::string_view text, Charset charset) {
  return GetCells(text, charset, Style::kPlain).size();
}

Canvas::Canvas(Size size, Charset charset)
    : size_(size), charset_(charset), cells_(size.rows, std::vector<Cell>(size.columns)) {}

std::size_t Canvas::Put(std::size_t row, std::size_t column, std::string_view text, Style style,
                        std::size_t width) {
  if (row >= size_.rows || column >= size_.columns) return column;
  width = std::min(width, size_.columns - column);
  if (width == 0) return column;
  std::vector<Cell> cells = GetCells(text, charset_, style);
  if (cells.size() > width) {
    // Removes the first half of a wide character whose second half does not fit.
    const bool splits = width > 1 && cells[width - 1].text.empty();
    cells.resize(width);
    cells.back() = {charset_ == Charset::kUtf8 ? "…" : "~", style};
    if (splits) cells[width - 2] = {" ", style};
  }
  for (std::size_t i = 0; i < cells.size(); ++i) cells_[row][column + i] = std::move(cells[i]);
  return column + cells.size();
}

void Canvas::PutRight(std::size_t row, std::size_t end, std::string_view text, Style style) {
  const std::size_t width = GetWidth(text, charset_);
  Put(row, end - std::min(end, width), text, style, std::min(end, width));
}

void Canvas::Paint(std::size_t row, Style style) {
  if (row >= size_.rows) return;
  for (Cell& cell : cells_[row]) cell.style = style;
}

std::string Canvas::Text() const {
  std::string text;
  for (const std::vector<Cell>& row : cells_) {
    std::string line;
    for (const Cell& cell : row) line += cell.text;
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace gpushared::server::top
