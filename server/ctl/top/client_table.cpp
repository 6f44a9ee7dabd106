// SPDX-License-Identifier: Apache-2.0
#include "server/ctl/top/client_table.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "server/ctl/top/units.h"

namespace gpushared::server::top {
namespace {

constexpr std::size_t kNameLeast = 12;
constexpr double kStarvedWaits = 0.9, kStarvedBusy = 0.01;

struct TableColumn {
  std::string_view heading;
  std::size_t width;
  unsigned rank;  // The lowest are shown first; 0 always.
  std::optional<SortBy> sort;
  std::string (*text)(const ClientFigures& client);
  std::string_view help;
};

const std::vector<TableColumn>& Columns() {
  using Client = const ClientFigures&;
  static const std::vector<TableColumn> kColumns = {
      {"ID", 5, 0, SortBy::kId, [](Client c) { return std::to_string(c.now.id); },
       "the server's number for the client"},
      {"DEVICE", 7, 5, {}, [](Client c) { return c.now.device; }, "where its work runs"},
      {"CLASS", 6, 0, SortBy::kClass, [](Client c) { return c.now.scheduling_class; },
       "high, normal or low"},
      {"WGT",
       4,
       2,
       {},
       [](Client c) { return WholeText(c.now.weight); },
       "its weight within the class, 1 to 1000"},
      {"DEV%", 5, 0, SortBy::kBusy, [](Client c) { return PercentText(c.busy); },
       "device time that it was charged since the last answer"},
      {"WAIT%", 5, 1, SortBy::kWaits, [](Client c) { return PercentText(c.waits); },
       "time with work ready and none on the device, since then"},
      {"MEMORY", 8, 3, SortBy::kMemory, [](Client c) { return BytesText(c.now.memory_bytes); },
       "device memory it holds"},
      {"REQ/s", 5, 6, SortBy::kRequests, [](Client c) { return CountText(c.requests_per_s); },
       "requests that ended"},
      {"REQ p99", 7, 4, SortBy::kRequestP99,
       [](Client c) { return MicrosecondsText(c.now.request_p99_us); },
       "99 of 100 of its requests took no longer"},
      {"KEPT%", 6, 4, SortBy::kKept,
       [](Client c) { return PercentText(c.kept) + (c.broke_promise ? "!" : ""); },
       "requests within its promise; '!' when one just was not"},
      {"LAUNCH/s",
       8,
       7,
       {},
       [](Client c) { return CountText(c.launches_per_s); },
       "kernel launches that ended"},
      {"STOPS/s",
       7,
       8,
       {},
       [](Client c) { return CountText(c.stops_per_s); },
       "commands taken off the device unfinished"},
      {"CAP%",
       5,
       9,
       {},
       [](Client c) {
         const Figure& percent = c.now.max_share_percent;
         return percent && *percent < 100 ? CountText(percent) : std::string("-");
       },
       "the most device time it may have"},
      {"UID", 6, 10, {}, [](Client c) { return WholeText(c.now.uid); }, "its user"},
      {"PID", 8, 11, {}, [](Client c) { return WholeText(c.now.pid); }, "its process"},
      {"QUEUE p99",
       9,
       12,
       {},
       [](Client c) { return MicrosecondsText(c.now.queue_wait_p99_us); },
       "99 of 100 of its commands waited no longer for the device"},
      {"QUOTA",
       8,
       13,
       {},
       [](Client c) { return BytesText(c.now.quota_bytes); },
       "device memory it may have"},
      {"IN/s",
       8,
       14,
       {},
       [](Client c) { return BytesText(c.in_bytes_per_s); },
       "bytes copied to the device"},
      {"OUT/s",
       8,
       15,
       {},
       [](Client c) { return BytesText(c.out_bytes_per_s); },
       "bytes copied from the device"},
      {"ENTRANCE", 10, 16, {}, [](Client c) { return c.now.entrance; }, "the way it came in"},
  };
  return kColumns;
}

// Those that fit, in their order. On one device its number says nothing, so it comes last.
std::vector<const TableColumn*> Fitting(std::size_t width, bool has_devices) {
  const std::vector<TableColumn>& all = Columns();
  std::vector<const TableColumn*> by_rank;
  for (const TableColumn& column : all) by_rank.push_back(&column);
  const auto rank = [&](const TableColumn* column) {
    return column->heading == "DEVICE" && !has_devices ? 99 : column->rank;
  };
  std::ranges::stable_sort(by_rank, {}, rank);
  std::size_t used = 1 + kNameLeast;
  std::vector<const TableColumn*> fitting;
  for (const TableColumn* column : by_rank) {
    used += column->width + 1;
    if (used > width && column->rank > 0) break;
    fitting.push_back(column);
  }
  std::ranges::sort(fitting);  // They stand in one array.
  return fitting;
}

bool IsStarved(const ClientFigures& client) {
  return client.waits.value_or(0) > kStarvedWaits && client.busy.value_or(1) < kStarvedBusy;
}

Style CellStyle(const TableColumn& column, const ClientFigures& client) {
  if (column.sort == SortBy::kClass) {
    const std::string& name = client.now.scheduling_class;
    return name == "high" ? Style::kHigh : name == "low" ? Style::kLow : Style::kNormal;
  }
  if (column.sort == SortBy::kWaits && IsStarved(client)) return Style::kWarning;
  if (column.sort == SortBy::kKept && client.broke_promise) return Style::kAlarm;
  return Style::kPlain;
}

bool IsText(const TableColumn& column) {
  return column.heading == "DEVICE" || column.heading == "CLASS" || column.heading == "ENTRANCE";
}

void PutCell(Canvas& canvas, std::size_t row, std::size_t at, const TableColumn& column,
             std::string_view text, Style style) {
  const std::size_t width = WidthOf(text, canvas.charset());
  const std::size_t blanks = IsText(column) || width >= column.width ? 0 : column.width - width;
  canvas.Put(row, at + blanks, text, style, column.width - blanks);
}

void DrawHeading(Canvas& canvas, std::size_t row, const View& view,
                 const std::vector<const TableColumn*>& columns) {
  const bool utf8 = canvas.charset() == Charset::kUtf8;
  const std::string_view mark = view.is_reversed() ? (utf8 ? "▲" : "^") : (utf8 ? "▼" : "v");
  std::size_t at = 1;
  for (const TableColumn* column : columns) {
    PutCell(canvas, row, at, *column, column->heading, Style::kHeading);
    const std::size_t width = column->heading.size();
    const std::size_t begin = IsText(*column) ? at : at + column->width - width;
    if (column->sort == view.sort()) canvas.Put(row, begin - 1, mark);
    at += column->width + 1;
  }
  canvas.Put(row, at, "NAME");
  if (view.sort() == SortBy::kName) canvas.Put(row, at - 1, mark);
  canvas.Paint(row, Style::kHeading);
}

void DrawClient(Canvas& canvas, std::size_t row, const View& view, const ClientFigures& client,
                const std::vector<const TableColumn*>& columns) {
  const bool is_selected = &client == view.Selected();
  std::size_t at = 1;
  for (const TableColumn* column : columns) {
    PutCell(canvas, row, at, *column, column->text(client), CellStyle(*column, client));
    at += column->width + 1;
  }
  canvas.Put(row, at, client.now.name);
  if (!is_selected) return;
  canvas.Put(row, 0, ">");
  canvas.Paint(row, Style::kSelected);
  const bool edits_class = view.edit() == View::Edit::kClass;
  if (!edits_class && view.edit() != View::Edit::kWeight) return;
  at = 1;
  for (const TableColumn* column : columns) {
    if (column->heading == (edits_class ? "CLASS" : "WGT")) {
      // Over the whole width of the cell, so that one sees where the keys go.
      canvas.Put(row, at, std::string(column->width, ' '), Style::kEdited);
      PutCell(canvas, row, at, *column, edits_class ? view.typed() : view.typed() + "_",
              Style::kEdited);
    }
    at += column->width + 1;
  }
}

}  // namespace

void DrawClients(Canvas& canvas, std::size_t row, std::size_t rows, View& view) {
  if (rows == 0) return;
  const std::vector<const TableColumn*> columns =
      Fitting(canvas.size().columns, view.figures().devices.size() > 1);
  DrawHeading(canvas, row, view, columns);
  const std::vector<const ClientFigures*> clients = view.Clients();
  const std::size_t first = view.FirstClient(rows - 1);
  for (std::size_t i = 0; i + 1 < rows && first + i < clients.size(); ++i) {
    DrawClient(canvas, row + 1 + i, view, *clients[first + i], columns);
  }
  if (!clients.empty() || rows < 2) return;
  canvas.Put(row + 1, 1,
             view.figures().clients.empty() ? "no client is here"
                                            : "no client matches the filter; Esc shows all",
             Style::kFaint);
}

std::string ClientColumnsHelp() {
  std::string text;
  for (const TableColumn& column : Columns()) {
    text += "  " + std::string(column.heading) + std::string(11 - column.heading.size(), ' ') +
            std::string(column.help) + "\n";
  }
  return text;
}

}  // namespace gpushared::server::top
