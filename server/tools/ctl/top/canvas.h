// SPDX-License-Identifier: Apache-2.0
// Screen as rows of cells. Whatever bytes a text contains, it affects only its own cells.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TOP_CANVAS_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TOP_CANVAS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpushared::server::top {

// Style of a cell; on a terminal without colours the styles differ as far as possible.
enum class Style : std::uint8_t {
  kPlain,
  kStrong,
  kDim,
  kHeading,   // First row of the table.
  kSelected,  // The selected row.
  kEdited,    // A cell being edited.
  kHigh,      // Work of class high; the next two are for the other classes.
  kNormal,
  kLow,
  kMemory,
  kWarning,
  kAlarm,
};

// Character set that a terminal supports.
enum class Charset : std::uint8_t { kAscii, kUtf8 };

struct Size {
  std::size_t columns = 0, rows = 0;
};

// One column of the screen: a character with its combining marks. The second cell of a wide
// character is empty.
struct Cell {
  std::string text = " ";
  Style style = Style::kPlain;
};

// Splits a text into cells of one column each. Accepts any bytes: control characters and invalid
// UTF-8 become "?", and invisible characters and marks of direction are omitted. Wide characters
// take two cells. Widths follow the process's locale (wcwidth).
std::vector<Cell> GetCells(std::string_view text, Charset charset, Style style);

// Returns the number of columns of the text.
std::size_t GetWidth(std::string_view text, Charset charset);

// Thread-compatible.
class Canvas {
 public:
  Canvas(Size size, Charset charset);

  Size size() const { return size_; }
  Charset charset() const { return charset_; }
  const std::vector<Cell>& Row(std::size_t row) const { return cells_.at(row); }

  // Draws the text at the position, in at most `width` columns. Truncated text ends with "…", or
  // "~" in ASCII. Returns the column after the text.
  std::size_t Put(std::size_t row, std::size_t column, std::string_view text,
                  Style style = Style::kPlain, std::size_t width = SIZE_MAX);
  // As Put, right-aligned before column `end`.
  void PutRight(std::size_t row, std::size_t end, std::string_view text,
                Style style = Style::kPlain);
  // Applies a style to a whole row and its contents.
  void Paint(std::size_t row, Style style);

  // Returns the characters, one line per row, without trailing blanks.
  std::string Text() const;

 private:
  Size size_;
  Charset charset_;
  std::vector<std::vector<Cell>> cells_;
};

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TOP_CANVAS_H_
