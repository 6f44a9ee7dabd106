// SPDX-License-Identifier: Apache-2.0
// Aligned tables from the rows of a server's answer.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TABLE_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TABLE_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::server {

// Describes how a column is derived from a row of the answer.
struct Column {
  std::string_view heading;
  std::string_view field;  // Key of the field, also the column's name for --columns.
  double divisor = 0;      // If 0, the number is shown unchanged; otherwise it is divided by this.
  int decimals = 0;
  bool is_text = false;  // Whether cells are left-aligned, and truncated if the table is too wide.
  bool is_usual = true;  // Whether the column is shown without --wide.
  // If nonzero, the number is a time in units of this many microseconds, shown with its unit.
  double time_us = 0;
};

// The part of a table to show.
struct View {
  bool wide = false;                // Whether to show all columns.
  std::vector<std::string> fields;  // Columns to show, in this order; if empty, `wide` decides.
  std::size_t width = 0;            // Width of the terminal in characters; 0 means unlimited.
};

// Formats rows as a table. Columns are separated by two spaces, and the first line contains the
// headings. Missing fields are shown as "-". Texts are truncated with "…" if a line would exceed
// the width of the view.
std::string Table(const nlohmann::json& rows, std::span<const Column> columns, const View& view);

// Formats a time such as "950 us", "14.0 ms", "1.07 s", "34.0 s", "2.1 h".
std::string TimeText(double us);

// Returns the column with that field or heading, ignoring case and units, or null.
const Column* FindColumn(std::span<const Column> columns, std::string_view name);

// Checks that each of the view's fields is a column; the rejection lists the available ones.
Status CheckFields(const View& view, std::span<const Column> columns);

// Formats one field as in its cell.
std::string Cell(const nlohmann::json& row, const Column& column);

// Pads with blanks, or truncates with "…", to exactly that many characters.
std::string Fitted(const std::string& text, std::size_t width);

// Replaces control characters. Names come from clients. The server checks them, but a terminal
// warrants a second check.
std::string Printable(std::string_view text);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TABLE_H_
