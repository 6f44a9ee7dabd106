// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/top/draw.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "server/tools/ctl/top/client_table.h"
#include "server/tools/ctl/top/device_panel.h"
#include "server/tools/ctl/top/units.h"

namespace gpushared::server::top {
namespace {

constexpr std::size_t kMessageRowsMax = 4;

constexpr std::string_view kKeys =
    "h help  q quit  arrows choose  c class  w weight  e explain  / find  A-Z sort";

// Removes the first word and the blank after it from the text, and returns the word. A word of more
// than `width` bytes is split between characters.
std::string_view NextWord(std::string_view& text, std::size_t width) {
  std::string_view word = text.substr(0, text.find(' '));
  if (word.size() <= width) {
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    return word;
  }
  std::size_t end = width;
  while (end > 1 && (static_cast<unsigned char>(word[end]) & 0xc0U) == 0x80) --end;
  word = word.substr(0, end);
  text.remove_prefix(end);
  return word;
}

// Returns the indentation of continuation lines. In a list entry whose description is set apart,
// they are aligned with the description.
std::size_t HangingIndent(std::string_view line, std::size_t width) {
  const std::size_t word = line.find_first_not_of(' ');
  if (word == std::string_view::npos || word == 0) return 0;
  const std::size_t apart = line.find("  ", word);
  const std::size_t rest =
      apart == std::string_view::npos ? apart : line.find_first_not_of(' ', apart);
  return rest == std::string_view::npos || rest > width / 3 ? std::min(word, width / 3) : rest;
}

// Breaks the text into lines of at most `width` columns, at blanks if possible.
std::vector<std::string> Wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::string indent(HangingIndent(line, width), ' ');
    std::string current;
    bool is_empty = true;
    while (!line.empty()) {
      const std::string_view word = NextWord(line, width - indent.size());
      if (!is_empty && current.size() + 1 + word.size() > width) {
        lines.push_back(current);
        current = indent;
        is_empty = true;
      }
      current += (is_empty ? "" : " ") + std::string(word);
      is_empty = false;
    }
    lines.push_back(current);
  }
  return lines;
}

std::string HelpText() {
  std::string text =
      "Arrows, PgUp, PgDn, Home and End choose a client, Esc none. Small letters:\n  c      "
      "change its class: h, n, l or the arrows, then Enter  (right 'operate')\n  w      change its "
      "weight: digits, then Enter  (right 'operate')\n  e      explain its slowest request: of the "
      "last 64, or one that has not ended\n  /      show clients whose name, id, uid, class, "
      "device or endpoint contains a text\n  space  pause and resume\n  h      this page\n  q      "
      "quit\n\nCapitals sort; the same one again reverses the order:";
  for (std::size_t each = 0; each < std::size(kSortKeys); ++each) {
    text += each % 5 == 0 ? "\n" : "";
    text += "  " + std::string(1, kSortKeys[each].letter) + " " + std::string(kSortKeys[each].what);
  }
  text += "\n\nColumns; a wider terminal shows more of them:\n" + ClientColumnsHelp();
  text +=
      "\nDevices\n"
      "  time       device time that clients were charged, by class. A command counts when it "
      "leaves "
      "the device.\n"
      "  gap used   of the time without work of class high, the part in which others used the "
      "device\n"
      "  steal      the part of the time in which the machine kept the device from its work\n"
      "  strip      how busy the device was; the colour is that of the class with the most time\n";
  return text;
}

void DrawTop(Canvas& canvas, const View& view, std::size_t clients) {
  if (view.lost()) {
    canvas.Put(0, 0, *view.lost());
    canvas.Paint(0, Style::kAlarm);
    return;
  }
  const ServerSample& server = view.figures().server;
  std::size_t column = canvas.Put(0, 0, "gpushared " + server.version, Style::kStrong);
  column = canvas.Put(0, column + 2, "policy " + server.policy);
  column = canvas.Put(0, column + 2, "up " + AgeText(server.uptime_s));
  if (!server.state.empty() && server.state != "serving") {
    column = canvas.Put(0, column + 2, server.state, Style::kAlarm);
  }
  if (view.is_paused()) column = canvas.Put(0, column + 2, "PAUSED", Style::kWarning);
  const std::size_t all = view.figures().clients.size();
  const std::string count = clients == all
                                ? std::to_string(all) + (all == 1 ? " client" : " clients")
                                : std::to_string(clients) + " of " + std::to_string(all) +
                                      " clients: '" + view.filter() + "'";
  if (column + 2 + count.size() <= canvas.size().columns) {
    canvas.PutRight(0, canvas.size().columns, count);
  }
}

std::string Prompt(const View& view) {
  const ClientFigures* const client = view.Selected();
  const std::string who = client == nullptr ? "" : std::to_string(client->now.id);
  switch (view.edit()) {
    case View::Edit::kClass:
      return "class of client " + who + ": h high  n normal  l low  Enter sets it  Esc leaves it";
    case View::Edit::kWeight:
      return "weight of client " + who + ": " + view.typed() + "_  1 to " +
             std::to_string(kWeightMax) + "  Enter sets it  Esc leaves it";
    case View::Edit::kFilter:
      return "show clients with: " + view.typed() + "_  Enter keeps it  Esc shows all";
    case View::Edit::kNothing:
      break;
  }
  return std::string(kKeys);
}

void DrawTable(Canvas& canvas, View& view, const Scene& scene) {
  const Size size = canvas.size();
  DrawTop(canvas, view, view.Clients().size());
  const std::vector<std::string> sentence = Wrapped(view.message(), size.columns);
  const std::size_t message_rows = std::min(sentence.size(), kMessageRowsMax);
  // Devices take at most two fifths of the screen. Without a message, the rest has space for at
  // least two clients.
  const std::size_t devices_max = std::max<std::size_t>(1, size.rows * 2 / 5);
  const std::size_t table = DrawDevices(canvas, 1, devices_max, view.figures().devices, scene);
  const std::size_t bottom = size.rows - 1 - message_rows;
  DrawClients(canvas, table, bottom - std::min(bottom, table), view);
  for (std::size_t i = 0; i < message_rows; ++i) {
    canvas.Put(bottom + i, 0, sentence[i], view.is_bad() ? Style::kWarning : Style::kStrong);
  }
  if (view.lost()) {
    for (std::size_t row = 1; row < bottom; ++row) canvas.Paint(row, Style::kDim);
  }
  canvas.Put(size.rows - 1, 0, Prompt(view), Style::kStrong);
}

void DrawPage(Canvas& canvas, View& view, std::string_view title, std::string_view text) {
  const Size size = canvas.size();
  canvas.Put(0, 0, title);
  canvas.Paint(0, Style::kHeading);
  const std::vector<std::string> lines = Wrapped(text, size.columns);
  const std::size_t rows = size.rows - 2;
  const std::size_t first = view.FirstLine(rows, lines.size());
  for (std::size_t i = 0; i < rows && first + i < lines.size(); ++i) {
    canvas.Put(1 + i, 0, lines[first + i]);
  }
  const bool is_whole = lines.size() <= rows;
  canvas.Put(size.rows - 1, 0,
             is_whole ? "Enter goes back" : "Enter goes back  arrows and PgUp, PgDn show the rest",
             Style::kStrong);
}

}  // namespace

Canvas Draw(View& view, const Scene& scene, Size size, Charset charset) {
  Canvas canvas(size, charset);
  if (size.columns < kSizeLeast.columns || size.rows < kSizeLeast.rows) {
    canvas.Put(0, 0,
               "too small: needs " + std::to_string(kSizeLeast.columns) + "x" +
                   std::to_string(kSizeLeast.rows));
    return canvas;
  }
  switch (view.page()) {
    case View::Page::kTable:
      DrawTable(canvas, view, scene);
      break;
    case View::Page::kHelp:
      DrawPage(canvas, view, "gpusharedctl top: keys and columns", HelpText());
      break;
    case View::Page::kText:
      DrawPage(canvas, view, view.title(), view.text());
      break;
  }
  return canvas;
}

}  // namespace gpushared::server::top
