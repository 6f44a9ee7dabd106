// SPDX-License-Identifier: Apache-2.0
// Keys change a view, and a view is laid out for terminals of all sizes.
#include "server/tools/ctl/top/view.h"

#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tools/ctl/top/draw.h"
#include "tests/ctl/top/answers.h"

namespace gpushared::server::top {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

KeyPress Letter(char letter) { return {Key::kCharacter, letter}; }

void Type(View& view, const std::string& letters) {
  for (const char each : letters) view.On(Letter(each));
}

std::vector<std::string> Names(const View& view) {
  std::vector<std::string> names;
  for (const ClientFigures* each : view.Clients()) names.push_back(each->now.name);
  return names;
}

// Three clients with 10, 30 and 20 % of the device, and 3, 1 and 2 KiB.
class TopView : public ::testing::Test {
 protected:
  TopView() { Take({{1, "a"}, {2, "b"}, {3, "c"}}); }

  void Take(const std::vector<std::pair<unsigned, std::string>>& clients) {
    std::vector<json> before, now;
    for (const auto& [id, name] : clients) {
      before.push_back(ClientRow(id, name, 1));
      json row = ClientRow(id, name, 1 + (id == 1 ? 0.1 : id == 2 ? 0.3 : 0.2));
      row["memory_bytes"] = id == 1 ? 3072 : id == 2 ? 1024 : 2048;
      now.push_back(row);
    }
    const Sample first = GetSample({DeviceRow("cpu:0", {})}, before, 1);
    const Sample second = GetSample({DeviceRow("cpu:0", {.high = 0.25, .low = 0.5})}, now, 2);
    Figures figures = Between(&first, second);
    history_.Add(figures);
    view_.Take(std::move(figures));
  }
  std::string Screen(Size size = {80, 24}, Charset charset = Charset::kAscii) {
    return Draw(view_, {.history = history_, .every_s = 1}, size, charset).Text();
  }

  View view_;
  History history_;
};

TEST_F(TopView, CapitalsSortAndReverseOrder) {
  EXPECT_THAT(Names(view_), ElementsAre("b", "c", "a"));
  Type(view_, "D");
  EXPECT_THAT(Names(view_), ElementsAre("a", "c", "b"));
  Type(view_, "M");
  EXPECT_THAT(Names(view_), ElementsAre("a", "c", "b"));
  Type(view_, "N");
  EXPECT_THAT(Names(view_), ElementsAre("a", "b", "c"));
  Type(view_, "NI");
  EXPECT_THAT(Names(view_), ElementsAre("a", "b", "c"));
  Type(view_, "I");
  EXPECT_THAT(Names(view_), ElementsAre("c", "b", "a"));
}

TEST_F(TopView, ClientsWithoutTheFigureComeLastInBothOrders) {
  const Sample before = GetSample({}, {ClientRow(1, "a", 1)}, 1);
  view_.Take(Between(&before, GetSample({}, {ClientRow(1, "a", 2), ClientRow(2, "new", 9)}, 2)));
  EXPECT_THAT(Names(view_), ElementsAre("a", "new"));
  Type(view_, "D");
  EXPECT_THAT(Names(view_), ElementsAre("a", "new"));
}

TEST_F(TopView, TheSelectionStaysWithItsClient) {
  Screen();
  view_.On({Key::kDown});
  EXPECT_EQ(view_.Selected()->now.name, "b");
  view_.On({Key::kDown});
  EXPECT_EQ(view_.Selected()->now.name, "c");
  Type(view_, "M");
  EXPECT_EQ(view_.Selected()->now.name, "c");
  Take({{3, "c"}, {1, "a"}});
  EXPECT_EQ(view_.Selected()->now.name, "c");
  Take({{1, "a"}});
  EXPECT_EQ(view_.Selected(), nullptr);
}

TEST_F(TopView, PromptsForClassInPlace) {
  Type(view_, "c");
  EXPECT_THAT(Screen(), HasSubstr("choose a client with the arrow keys first"));
  Screen();
  view_.On({Key::kDown});
  Type(view_, "ch");
  EXPECT_THAT(Screen(), HasSubstr("2 high  "));
  EXPECT_THAT(Screen(), HasSubstr("Enter sets it"));
  const ViewAction action = view_.On({Key::kEnter});
  ASSERT_EQ(action.what, ViewAction::What::kAsk);
  EXPECT_EQ(action.question.verb, ipc::AdminVerb::kSet);
  EXPECT_EQ(action.question.client, 2U);
  EXPECT_EQ(action.question.client_class, SchedulingClass::kHigh);
  EXPECT_EQ(action.question.weight, std::nullopt);
  Type(view_, "c");
  view_.On({Key::kUp});
  EXPECT_EQ(view_.On({Key::kEnter}).question.client_class, SchedulingClass::kNormal);
}

TEST_F(TopView, ValidatesWeightBeforeRequest) {
  view_.On({Key::kDown});
  Type(view_, "w12x5");
  view_.On({Key::kBackspace});
  EXPECT_EQ(view_.typed(), "12");
  EXPECT_EQ(view_.On({Key::kEnter}).question.weight, 12U);
  Type(view_, "w1001");
  EXPECT_EQ(view_.On({Key::kEnter}).what, ViewAction::What::kNothing);
  EXPECT_EQ(view_.message(), "weight rejected: asked for 1001, allowed: 1 to 1000");
  Type(view_, "w0");
  EXPECT_EQ(view_.On({Key::kEnter}).what, ViewAction::What::kNothing);
  Type(view_, "w99999999");
  EXPECT_EQ(view_.typed().size(), 4U);
}

TEST_F(TopView, EscapeCancelsChange) {
  view_.On({Key::kDown});
  Type(view_, "ch");
  EXPECT_EQ(view_.On({Key::kEscape}).what, ViewAction::What::kNothing);
  EXPECT_EQ(view_.edit(), View::Edit::kNothing);
  EXPECT_EQ(view_.On({Key::kEnter}).what, ViewAction::What::kNothing);
}

TEST_F(TopView, ReportsDepartureOfClientBeingChanged) {
  view_.On({Key::kDown});
  Type(view_, "cl");
  Take({{1, "a"}});
  EXPECT_EQ(view_.edit(), View::Edit::kNothing);
  EXPECT_THAT(view_.message(), HasSubstr("client 2 'b' has left; nothing was changed"));
  EXPECT_EQ(view_.On({Key::kEnter}).what, ViewAction::What::kNothing);
}

TEST_F(TopView, FiltersByNamesAndNumbers) {
  Type(view_, "/b");
  EXPECT_THAT(Names(view_), ElementsAre("b"));
  EXPECT_THAT(Screen(), HasSubstr("1 of 3 clients: 'b'"));
  view_.On({Key::kEnter});
  EXPECT_EQ(view_.edit(), View::Edit::kNothing);
  EXPECT_THAT(Names(view_), ElementsAre("b"));
  view_.On({Key::kEscape});
  EXPECT_EQ(Names(view_).size(), 3U);
  Type(view_, "/nobody");
  EXPECT_THAT(Screen(), HasSubstr("no client matches"));
}

TEST_F(TopView, ExplainAsksForTheSelectedClientAndShowsItsText) {
  view_.On({Key::kDown});
  const ViewAction action = view_.On(Letter('e'));
  EXPECT_EQ(action.question.verb, ipc::AdminVerb::kExplain);
  EXPECT_EQ(action.question.client, 2U);
  view_.ShowText("why", "request 7 took long\n  because\n");
  EXPECT_THAT(Screen(), HasSubstr("request 7 took long\n  because"));
  view_.On({Key::kEnter});
  EXPECT_THAT(Screen(), HasSubstr("NAME"));
}

TEST_F(TopView, QuitIsTheOnlyKeyThatQuits) {
  for (char c = 0x20; c < 0x7f; ++c) {
    View view;
    EXPECT_EQ(view.On(Letter(c)).what == ViewAction::What::kQuit, c == 'q') << c;
  }
}

TEST_F(TopView, TheTableFits80Columns) {
  EXPECT_EQ(Screen({80, 12}),
            "gpushared 1.2.3  policy fair  up 1 min                                 3 clients\n"
            "cpu:0  ready  2 clients  7.5 launches/s  0 stops/s  gap used - %  a device\n"
            " time    [#####-----------     ] 75.0 %  # high 25.0  = normal 0.0  - low 50.0\n"
            " memory  [|||||                ] 25.0 %  256 MiB of 1.0 GiB\n"
            " 69 s                                                                         +\n"
            "     ID CLASS   WGT vDEV%  WAIT%   MEMORY REQ/s REQ p99   MET% NAME\n"
            "      2 low       1  30.0    0.0  1.0 KiB     -       -      - b\n"
            "      3 low       1  20.0    0.0  2.0 KiB     -       -      - c\n"
            "      1 low       1  10.0    0.0  3.0 KiB     -       -      - a\n"
            "\n\n"
            "h help  q quit  arrows choose  c class  w weight  e explain  / find  A-Z sort\n");
}

TEST_F(TopView, AStarvingClientSaysForHowLong) {
  std::vector<json> before, now;
  const std::vector<double> starved_for_s = {0.4, 34.2, 759, 11'000};
  for (unsigned i = 0; i < starved_for_s.size(); ++i) {
    before.push_back(ClientRow(i + 1, "client", 1));
    json row = ClientRow(i + 1, "client", 1);
    row["waited_s"] = 1.53;
    row["starved_for_s"] = starved_for_s[i];
    now.push_back(row);
  }
  const Sample first = GetSample({}, before, 1);
  view_.Take(Between(&first, GetSample({}, now, 2)));
  Type(view_, "W");
  const std::string screen = Screen();
  // Clients that have waited for longest come first.
  const std::vector<std::string> waits = {"   0.0    3 h  4.0 KiB", "   0.0 12 min  4.0 KiB",
                                          "   0.0   34 s  4.0 KiB", "   0.0  100.0  4.0 KiB"};
  std::size_t at = 0;
  for (const std::string& each : waits) {
    const std::size_t found = screen.find(each, at);
    ASSERT_NE(found, std::string::npos) << each << " in\n" << screen;
    at = found;
  }
}

TEST_F(TopView, ShowsHostStealOfDevice) {
  json before = DeviceRow("cpu:0", {}), now = before;
  before["host_steal_s"] = 10;
  now["host_steal_s"] = 10.241;
  const Sample first = GetSample({before}, {}, 1);
  view_.Take(Between(&first, GetSample({now}, {}, 2)));
  EXPECT_THAT(Screen(), HasSubstr("2 clients  steal 24.1 %  0 launches/s"));
  now["host_steal_s"] = 10.005;
  view_.Take(Between(&first, GetSample({now}, {}, 2)));
  EXPECT_THAT(Screen(), Not(HasSubstr("steal")));
}

TEST_F(TopView, NamesAreLastColumn) {
  const Utf8Locale locale;
  std::vector<json> clients;
  const std::vector<std::string> names = {"日本語の名前がとても長い", "\u05e9\u05dc\u05d5\u05dd 12",
                                          "\x1b[31m\xff", "plain"};
  for (unsigned i = 0; i < names.size(); ++i) clients.push_back(ClientRow(i + 1, names[i], 1));
  view_.Take(Between(nullptr, GetSample({DeviceRow("cpu:0", {})}, clients, 1)));
  const Canvas canvas = Draw(view_, {.history = history_, .every_s = 1}, {80, 24}, Charset::kUtf8);
  const auto begin = [&](std::size_t row) {
    std::string text;
    for (std::size_t i = 0; i < 62; ++i) text += canvas.Row(row)[i].text;
    return text.substr(7);
  };
  for (std::size_t row = 7; row < 10; ++row) EXPECT_EQ(begin(row), begin(6));
  EXPECT_THAT(canvas.Text(), HasSubstr("?[31m?"));
  EXPECT_THAT(canvas.Text(), Not(HasSubstr("\x1b")));
}

TEST_F(TopView, ShowsPowerAndEnergyWhereTheDeviceReportsThem) {
  EXPECT_THAT(Screen({200, 24}), AllOf(Not(HasSubstr("WATTS")), Not(HasSubstr("ENERGY"))));
  json device = DeviceRow("cpu:0", {.high = 1});
  device["gpu"] = {{"power_w", 350}};
  json client = ClientRow(1, "a", 1);
  client["energy_j"] = 12340;
  const Sample before = GetSample({device}, {client}, 1);
  device["totals"]["classes"]["high"]["device_time_s"] = 1.5;
  client["device_time_s"] = 1.5;
  view_.Take(Between(&before, GetSample({device}, {client}, 2)));
  const std::string screen = Screen({90, 24});
  EXPECT_THAT(screen, HasSubstr("2 clients  350 W  "));
  EXPECT_THAT(screen, HasSubstr("WATTS  ENERGY"));
  EXPECT_THAT(screen, HasSubstr("  175   12 kJ "));
  EXPECT_THAT(Screen({80, 24}), HasSubstr("WATTS"));
}

TEST_F(TopView, WideTerminalsShowMoreColumns) {
  EXPECT_THAT(Screen({80, 24}), Not(HasSubstr("QUOTA")));
  EXPECT_THAT(Screen({180, 24}), HasSubstr("QUOTA"));
  EXPECT_THAT(Screen({180, 24}), HasSubstr("ENDPOINT"));
  for (std::size_t columns = 1; columns < 200; columns += 7) {
    for (std::size_t rows = 1; rows < 40; rows += 3) {
      const Canvas canvas =
          Draw(view_, {.history = history_, .every_s = 1}, {columns, rows}, Charset::kAscii);
      EXPECT_EQ(canvas.size().columns, columns);
    }
  }
  EXPECT_THAT(Screen({39, 24}), HasSubstr("too small: needs 40x8"));
}

TEST_F(TopView, ManyClientsScrollWithTheSelection) {
  std::vector<json> clients;
  for (unsigned i = 1; i <= 128; ++i) clients.push_back(ClientRow(i, "c" + std::to_string(i), 1));
  view_.Take(Between(nullptr, GetSample({DeviceRow("cpu:0", {})}, clients, 1)));
  EXPECT_THAT(Screen(), HasSubstr(" c17\n"));
  EXPECT_THAT(Screen(), Not(HasSubstr(" c18\n")));
  view_.On({Key::kEnd});
  EXPECT_THAT(Screen(), HasSubstr(" c128\n"));
  view_.On({Key::kPageUp});
  EXPECT_EQ(view_.Selected()->now.id, 111U);
  EXPECT_THAT(Screen(), HasSubstr(" c111\n"));
  view_.On({Key::kHome});
  EXPECT_THAT(Screen(), HasSubstr(" c1\n"));
}

TEST_F(TopView, ManyDevicesTakeALineEach) {
  std::vector<json> devices;
  for (unsigned i = 0; i < 20; ++i) devices.push_back(DeviceRow("cuda:" + std::to_string(i), {}));
  devices[1]["state"] = "missing";
  devices[1]["missing"] = "it fell off the bus";
  view_.Take(Between(nullptr, GetSample(devices, {ClientRow(1, "a", 1)}, 1)));
  const std::string screen = Screen();
  EXPECT_THAT(screen, HasSubstr("cuda:7   ready"));
  EXPECT_THAT(screen, HasSubstr("missing    it fell off the bus"));
  EXPECT_THAT(screen, HasSubstr("12 more devices"));
  EXPECT_THAT(screen, HasSubstr("DEVICE"));
}

TEST_F(TopView, ADrainedDeviceIsNoAlarm) {
  const auto style = [&](const char* state, Size size) {
    std::vector<json> devices = {DeviceRow("cpu:0", {})};
    devices[0]["state"] = state;
    devices.resize(size.rows < 20 ? 8 : 1, devices[0]);  // One line each if space is scarce.
    view_.Take(Between(nullptr, GetSample(devices, {}, 1)));
    const Canvas canvas = Draw(view_, {.history = history_, .every_s = 1}, size, Charset::kAscii);
    std::istringstream lines(canvas.Text());
    std::string line;
    for (std::size_t row = 0; std::getline(lines, line); ++row) {
      const std::size_t at = line.find(state);
      if (at != std::string::npos) return canvas.Row(row)[at].style;
    }
    ADD_FAILURE() << state << " is not shown:\n" << canvas.Text();
    return Style::kPlain;
  };
  for (const Size size : {Size{80, 24}, Size{80, 12}}) {
    EXPECT_EQ(style("ready", size), Style::kPlain);
    EXPECT_EQ(style("drained", size), Style::kWarning);
    EXPECT_EQ(style("draining", size), Style::kWarning);
    EXPECT_EQ(style("missing", size), Style::kAlarm);
    EXPECT_EQ(style("restarting", size), Style::kAlarm);
  }
}

TEST_F(TopView, ReportsLostServerAboveLastFigures) {
  view_.SetLost("no figures for 3 s: nobody answers");
  const Canvas canvas = Draw(view_, {.history = history_, .every_s = 1}, {80, 24}, Charset::kAscii);
  EXPECT_THAT(canvas.Text(), HasSubstr("no figures for 3 s: nobody answers"));
  EXPECT_THAT(canvas.Text(), HasSubstr(" b\n"));
  EXPECT_EQ(canvas.Row(0)[0].style, Style::kAlarm);
  EXPECT_EQ(canvas.Row(6)[6].style, Style::kDim);
}

TEST_F(TopView, WrapsLongMessagesAndWords) {
  view_.ShowMessage("rejected: " + std::string(100, 'x') + " because the right is missing", true);
  EXPECT_THAT(Screen(), HasSubstr("\nrejected:\n" + std::string(80, 'x') + "\n" +
                                  std::string(20, 'x') + " because the right is missing\n"));
}

TEST_F(TopView, HelpNamesEveryKeyAndColumn) {
  Type(view_, "h");
  const std::string help = Screen({80, 60});
  for (const SortKey& key : kSortKeys) {
    EXPECT_THAT(help, HasSubstr(std::string(1, key.letter) + " " + std::string(key.what)));
  }
  for (const char* const each : {"QUEUE p99", "ENDPOINT", "gap used", "space", "quit"}) {
    EXPECT_THAT(help, HasSubstr(each));
  }
  EXPECT_THAT(Screen(), HasSubstr("show the rest"));
  view_.On({Key::kEnd});
  EXPECT_THAT(Screen(), HasSubstr("strip"));
}

}  // namespace
}  // namespace gpushared::server::top
