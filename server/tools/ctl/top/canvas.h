// SPDX-License-Identifier: Apache-2.0
// A screen as rows of cells. What is drawn on it stays inside of it, whatever the text is.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TOP_CANVAS_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TOP_CANVAS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpushared::server::top {

// How a cell looks; a terminal without colours tells them apart as far as it can.
enum class Style : std::uint8_t {
  kPlain,
  kStrong,
  kFaint,
  kHeading,   // The table's first row.
  kSelected,  // A whole row.
  kEdited,    // A cell that is being changed.
  kHigh,      // Work of a class.
  kNormal,
  kLow,
  kMemory,
  kWarning,
  kAlarm,
};

// Characters that a terminal can show.
enum class Charset : std::uint8_t { kAscii, kUtf8 };

struct Size {
  std::size_t columns = 0, rows = 0;
};

// One character, or nothing in the second cell of a wide one.
struct Cell {
  std::string text = " ";
  Style style = Style::kPlain;
};

// A text in cells, of which each takes one column. Input may be any bytes: control characters and
// broken UTF-8 become "?", and what is invisible or turns the direction of a line is left out. Wide
// characters take two cells. Widths are those of the process's locale (wcwidth).
std::vector<Cell> GetCells(std::string_view text, Charset charset, Style style);

// Columns that the text takes.
std::size_t GetWidth(std::string_view text, Charset charset);

// Thread-compatible.
class Canvas {
 public:
  Canvas(Size size, Charset charset);

  Size size() const { return size_; }
  Charset charset() const { return charset_; }
  const std::vector<Cell>& Row(std::size_t row) const { return cells_.at(row); }

  // Draws the text with its first character at the place, at most `width` columns of it. A text
  // that is cut ends with "…", or "~" in ASCII. Returns the column behind it.
  std::size_t Put(std::size_t row, std::size_t column, std::string_view text,
                  Style style = Style::kPlain, std::size_t width = SIZE_MAX);
  // The same, with its last character in front of `end`.
  void PutRight(std::size_t row, std::size_t end, std::string_view text,
                Style style = Style::kPlain);
  // A whole row in one style, with what stands in it.
  void Paint(std::size_t row, Style style);

  // The characters alone, a line each, without blanks at the end.
  std::string Text() const;

 private:
  Size size_;
  Charset charset_;
  std::vector<std::vector<Cell>> cells_;
};

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TOP_CANVAS_H_
