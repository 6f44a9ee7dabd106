// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/top/client_table.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "server/tools/ctl/top/units.h"

namespace gpushared::server::top {
namespace {

constexpr std::size_t kNameLeast = 12;
constexpr double kStarvedShownS = 1;

using Client = const ClientFigures&;

struct TableColumn {
  std::string_view heading;
  std::size_t width;
  // If space is short, columns with low ranks are kept longest; rank 0 is always shown.
  unsigned rank;
  std::string (*text)(Client client);
  std::string_view help;
  std::optional<SortBy> sort = {};
  bool is_text = false;    // Whether cells are left-aligned.
  bool is_energy = false;  // Whether to hide the column if no device reports power or energy.
};

// The following show a figure, or its rate of change, in a column.
template <ClientKey kKey, std::string (*kText)(const Figure&)>
std::string Now(Client c) {
  return kText(c.now[kKey]);
}
template <ClientKey kKey, std::string (*kText)(const Figure&)>
std::string PerSecond(Client c) {
  return kText(c.PerSecond(kKey));
}

std::string Id(Client c) { return std::to_string(c.now.id); }
std::string Device(Client c) { return c.now.device; }
std::string Class(Client c) { return c.now.scheduling_class; }
bool IsStarved(Client c) { return c.now["starved_for_s"].value_or(0) >= kStarvedShownS; }
// Formats the fraction of time in which the client waits; for a starved client, how long it has
// been starved, with only one unit ("34 s", "12 min", "3 h"), because the column is narrow.
std::string Waits(Client c) {
  if (!IsStarved(c)) return PercentText(c.waits);
  const std::string age = AgeText(c.now["starved_for_s"]);
  return age.substr(0, age.find(' ', age.find(' ') + 1));
}
std::string Met(Client c) { return PercentText(c.met) + (c.missed_target ? "!" : ""); }
std::string Cap(Client c) {
  const Figure& percent = c.now["max_share_percent"];
  return percent && *percent < 100 ? CountText(percent) : "-";
}
std::string Watts(Client c) { return CountText(c.watts); }
std::string Endpoint(Client c) { return c.now.endpoint; }

constexpr std::string_view kDevice = "DEVICE", kClass = "CLASS", kWeight = "WGT";
constexpr std::array kColumns = {
    TableColumn{"ID", 6, 0, Id, "the server's number for the client", SortBy::kId},
    TableColumn{kDevice, 7, 5, Device, "where its work runs", {}, true},
    TableColumn{kClass, 6, 0, Class, "high, normal or low", SortBy::kClass, true},
    TableColumn{kWeight, 4, 2, Now<"weight", WholeText>, "its weight within the class, 1 to 1000"},
    TableColumn{"DEV%", 5, 0, PerSecond<"device_time_s", PercentText>,
                "device time it was charged since the last answer", SortBy::kBusy},
    TableColumn{"WAIT%", 6, 1, Waits,
                "time with work ready but none on the device, since the last answer; for a starved "
                "client, for how long",
                SortBy::kWaits},
    TableColumn{"MEMORY", 8, 3, Now<"memory_bytes", BytesText>, "device memory it holds",
                SortBy::kMemory},
    TableColumn{"WATTS",
                5,
                5,
                Watts,
                "the device's power times its part of the device time",
                {},
                false,
                true},
    TableColumn{
        "ENERGY", 7, 5, Now<"energy_j", EnergyText>, "energy it used so far", {}, false, true},
    TableColumn{"REQ/s", 5, 6, PerSecond<"requests", CountText>, "requests that ended",
                SortBy::kRequests},
    TableColumn{"REQ p99", 7, 4, Now<"request_p99_us", MicrosecondsText>,
                "99 of 100 of its requests took no longer", SortBy::kRequestP99},
    TableColumn{"MET%", 6, 4, Met,
                "requests within its target; '!' if one has missed it since the last answer",
                SortBy::kMet},
    TableColumn{"LAUNCH/s", 8, 7, PerSecond<"launches", CountText>, "kernel launches that ended"},
    TableColumn{"STOPS/s", 7, 8, PerSecond<"stops", CountText>, "commands preempted"},
    TableColumn{"CAP%", 5, 9, Cap, "the maximum device time"},
    TableColumn{"UID", 6, 10, Now<"uid", WholeText>, "its user"},
    TableColumn{"PID", 8, 11, Now<"pid", WholeText>, "its process"},
    TableColumn{"QUEUE p99", 9, 12, Now<"queue_wait_p99_us", MicrosecondsText>,
                "99 of 100 of its commands waited no longer for the device"},
    TableColumn{"QUOTA", 8, 13, Now<"quota_bytes", BytesText>, "the maximum device memory"},
    TableColumn{"IN/s", 8, 14, PerSecond<"bytes_in", BytesText>, "bytes copied to the device"},
    TableColumn{"OUT/s", 8, 15, PerSecond<"bytes_out", BytesText>, "bytes copied from the device"},
    TableColumn{"ENDPOINT", 10, 16, Endpoint, "endpoint through which it connected", {}, true},
};
constexpr unsigned kLastRank = 99;

// Selects the columns that fit, in their order. With a single device, the device's column ranks
// last, because all clients have the same device.
std::vector<const TableColumn*> Fitting(std::size_t width, const Figures& figures) {
  const bool has_devices = figures.devices.size() > 1, has_energy = figures.HasEnergy();
  std::vector<const TableColumn*> by_rank;
  for (const TableColumn& column : kColumns) {
    if (has_energy || !column.is_energy) by_rank.push_back(&column);
  }
  const auto rank = [&](const TableColumn* column) {
    return column->heading == kDevice && !has_devices ? kLastRank : column->rank;
  };
  std::ranges::stable_sort(by_rank, {}, rank);
  std::size_t used = 1 + kNameLeast;
  std::vector<const TableColumn*> fitting;
  for (const TableColumn* column : by_rank) {
    used += column->width + 1;
    if (used > width && column->rank > 0) break;
    fitting.push_back(column);
  }
  // Restores their order; the pointers can be compared, because all point into one array.
  std::ranges::sort(fitting);
  return fitting;
}

Style CellStyle(const TableColumn& column, const ClientFigures& client) {
  if (column.sort == SortBy::kClass) {
    const std::string& name = client.now.scheduling_class;
    return name == "high" ? Style::kHigh : name == "low" ? Style::kLow : Style::kNormal;
  }
  if (column.sort == SortBy::kWaits && IsStarved(client)) return Style::kWarning;
  if (column.sort == SortBy::kMet && client.missed_target) return Style::kAlarm;
  return Style::kPlain;
}

void PutCell(Canvas& canvas, std::size_t row, std::size_t at, const TableColumn& column,
             std::string_view text, Style style) {
  const std::size_t width = GetWidth(text, canvas.charset());
  const std::size_t blanks = column.is_text || width >= column.width ? 0 : column.width - width;
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
    const std::size_t begin = column->is_text ? at : at + column->width - width;
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
    if (column->heading == (edits_class ? kClass : kWeight)) {
      // Fills the whole width of the cell, so that the edited field is visible.
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
  const std::vector<const TableColumn*> columns = Fitting(canvas.size().columns, view.figures());
  DrawHeading(canvas, row, view, columns);
  const std::vector<const ClientFigures*> clients = view.Clients();
  const std::size_t first = view.FirstClient(rows - 1);
  for (std::size_t i = 0; i + 1 < rows && first + i < clients.size(); ++i) {
    DrawClient(canvas, row + 1 + i, view, *clients[first + i], columns);
  }
  if (!clients.empty() || rows < 2) return;
  canvas.Put(row + 1, 1,
             view.figures().clients.empty() ? "no client is connected"
                                            : "no client matches the filter; Esc shows all",
             Style::kDim);
}

std::string ClientColumnsHelp() {
  std::string text;
  for (const TableColumn& column : kColumns) {
    text += "  " + std::string(column.heading) + std::string(11 - column.heading.size(), ' ') +
            std::string(column.help) + "\n";
  }
  return text;
}

}  // namespace gpushared::server::top
