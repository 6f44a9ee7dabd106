// SPDX-License-Identifier: Apache-2.0
// Rows of a server's answer as aligned columns.

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

// How a column is made from one row of the answer.
struct Column {
  std::string_view heading;
  std::string_view field;  // Also its name for --columns.
  double divisor = 0;      // 0: shown as it is. Else a number, divided.
  int decimals = 0;
  bool is_text = false;  // Aligned to the left, and cut where the table is too wide.
  bool is_usual = true;  // Shown without --wide.
  double time_us = 0;    // Not 0: a time of so many microseconds each, shown with its unit.
};

// The part of a table that somebody wants to see.
struct View {
  bool wide = false;                // All columns.
  std::vector<std::string> fields;  // These columns, in this order; empty: as `wide` says.
  std::size_t width = 0;            // Of the terminal, in characters; 0: no bound.
};

// Columns are separated by two spaces, the first line has the headings. Fields that a row lacks are
// shown as "-". Texts are cut, with "…", where a line would be longer than the view is wide.
std::string Table(const nlohmann::json& rows, std::span<const Column> columns, const View& view);

// "950 us", "14.0 ms", "1.07 s", "34.0 s", "2.1 h".
std::string TimeText(double us);

// The column of that field or heading, whose case and units do not matter; null: there is none.
const Column* FindColumn(std::span<const Column> columns, std::string_view name);

// Whether each of the view's fields is a column; else the rejection names those that are.
Status CheckFields(const View& view, std::span<const Column> columns);

// One field as its cell would show it.
std::string Cell(const nlohmann::json& row, const Column& column);

// A text of exactly that many characters: filled up with blanks, or cut with "…".
std::string Fitted(const std::string& text, std::size_t width);

// Names come from clients. The server checks them; a terminal deserves a second look.
std::string Printable(std::string_view text);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TABLE_H_
