// SPDX-License-Identifier: Apache-2.0
// gpusharedctl top in a tmux terminal, with a real server.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/gpu_server.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTmux = "/usr/bin/tmux";

// Every user may observe. A user may have at most 64 clients through one endpoint, and a device
// 128.
constexpr const char* kConfig = R"(
observe = ["everyone"]
[[endpoint]]
name = "second"
class = "low"
clients_max = 64
)";

// Returns the figure in column DEV% of a client's row; 0 if it has none.
double DevicePercent(const std::string& screen, const std::string& name) {
  std::istringstream lines(screen);
  for (std::string line; std::getline(lines, line);) {
    if (!line.ends_with(" " + name)) continue;
    std::istringstream words(line);
    std::string id, scheduling_class, weight;
    double percent = 0;
    return words >> id >> scheduling_class >> weight >> percent ? percent : 0;
  }
  return 0;
}

// A terminal in which one command runs; its end is shown as "ENDED WITH code".
class TerminalOfTmux {
 public:
  struct Size {
    unsigned columns = 80, rows = 24;
  };

  TerminalOfTmux(const std::string& command, Size size) {
    (void)Tmux({"new-session", "-d", "-x", std::to_string(size.columns), "-y",
                std::to_string(size.rows), command + "; echo ENDED WITH $?; exec sleep 600"});
  }
  ~TerminalOfTmux() { (void)Tmux({"kill-server"}); }
  TerminalOfTmux(const TerminalOfTmux&) = delete;
  TerminalOfTmux& operator=(const TerminalOfTmux&) = delete;

  void Press(const std::vector<std::string>& keys) const {
    std::vector<std::string> command = {"send-keys"};
    command.insert(command.end(), keys.begin(), keys.end());
    (void)Tmux(command);
  }
  void Resize(Size size) const {
    (void)Tmux(
        {"resize-window", "-x", std::to_string(size.columns), "-y", std::to_string(size.rows)});
  }
  std::string Screen() const { return Tmux({"capture-pane", "-p"}); }
  // Returns the screen with its colour sequences.
  std::string Coloured() const { return Tmux({"capture-pane", "-p", "-e"}); }
  bool Shows(const std::string& text) const {
    return Eventually([&] { return Screen().find(text) != std::string::npos; });
  }
  bool ShowsNoMore(const std::string& text) const {
    return Eventually([&] { return Screen().find(text) == std::string::npos; });
  }

 private:
  std::string Tmux(const std::vector<std::string>& words) const {
    std::vector<std::string> command = {kTmux, "-u", "-S", directory_ / "tmux", "-f", "/dev/null"};
    command.insert(command.end(), words.begin(), words.end());
    return RunProgram(command).output;
  }

  ScratchDirectory directory_;
};

class TopTerminal : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kTmux)) GTEST_SKIP() << "tmux is not installed";
    std::ofstream(directory_ / "gpushared.toml") << kConfig;
    server_ = std::make_unique<ServerProcess>(
        std::vector<std::string>{"--device", "cpu:0", "--memory", "256MiB", "--policy", "priority",
                                 "--config", directory_ / "gpushared.toml"});
  }

  Client Come(const std::string& name, SchedulingClass of_class = SchedulingClass::kLow) {
    return ComeThrough(server_->socket(), name, of_class);
  }
  Client ComeThrough(const std::string& socket, const std::string& name,
                     SchedulingClass of_class = SchedulingClass::kLow) {
    Result<Client> client =
        Client::Connect({.name = name, .scheduling_class = of_class, .socket = socket});
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    return client.ok() ? std::move(*client) : Client();
  }
  // `words` precede the command: variables, or a program that starts it.
  std::unique_ptr<TerminalOfTmux> Top(TerminalOfTmux::Size size = {}, const std::string& words = "",
                                      const std::string& variables = "TERM=screen-256color") {
    return std::make_unique<TerminalOfTmux>("env LC_ALL=C.UTF-8 " + variables + " " + words + " " +
                                                program_ + " top --every 0.2 --socket " +
                                                server_->socket(),
                                            size);
  }
  json Row(std::uint64_t id) {
    const json told = json::parse(server_->Ctl({"ps", "--json"}).output);
    for (const json& row : told["clients"]) {
      if (row["client"] == id) return row;
    }
    return json::object();
  }

  ScratchDirectory directory_;
  std::string program_ = GPUSHARED_BIN_DIR "/gpusharedctl";
  std::unique_ptr<ServerProcess> server_;
};

TEST_F(TopTerminal, ShowsDevicesAndClientsAndQuits) {
  const Client high = Come("answers", SchedulingClass::kHigh), low = Come("trains");
  const auto top = Top();
  EXPECT_TRUE(top->Shows("policy priority")) << top->Screen();
  EXPECT_TRUE(top->Shows("2 clients"));
  EXPECT_TRUE(top->Shows("cpu:0  ready  2 clients"));
  EXPECT_TRUE(top->Shows(" answers\n"));
  EXPECT_TRUE(top->Shows("256 MiB"));
  top->Press({"q"});
  EXPECT_TRUE(top->Shows("ENDED WITH 0")) << top->Screen();
}

TEST_F(TopTerminal, AWorkingClientHasAShare) {
  const Client client = Come("fills");
  const Result<DeviceBuffer> memory = client.AllocateDevice(std::size_t{32} << 20);
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  const auto top = Top();
  ASSERT_TRUE(top->Shows(" fills\n")) << top->Screen();
  EXPECT_TRUE(Eventually([&] {
    for (int i = 0; i < 20; ++i) {
      (void)client.default_stream().Fill(*memory, FillElement::U8(7), std::size_t{32} << 20);
    }
    (void)client.default_stream().Synchronize();
    return DevicePercent(top->Screen(), "fills") > 1;
  })) << top->Screen();
  EXPECT_THAT(top->Screen(), HasSubstr("░")) << "its class has a part of the bar";
}

TEST(TopTerminalOfGpu, ShowsPowerAndEnergy) {
  if (!std::filesystem::exists(kTmux)) GTEST_SKIP() << "tmux is not installed";
  GpuServer gpu;
  const Result<Client> client = Client::Connect({.name = "fills", .socket = gpu.socket()});
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  const Result<DeviceBuffer> memory = client->AllocateDevice(std::size_t{8} << 20);
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  const TerminalOfTmux top("env LC_ALL=C.UTF-8 TERM=screen-256color " GPUSHARED_BIN_DIR
                           "/gpusharedctl top --every 0.2 --socket " +
                               gpu.socket(),
                           {.columns = 100, .rows = 24});
  ASSERT_TRUE(top.Shows(" fills\n")) << top.Screen();
  EXPECT_THAT(top.Screen(), Not(HasSubstr("WATTS"))) << "the sensors have not answered yet";
  std::uint64_t energy_mj = 1;
  EXPECT_TRUE(Eventually([&] {
    // Every reading adds 400 kJ, of which the client's part depends on its device time.
    energy_mj += 400'000'000;
    gpu.SetMachine(R"({"gpus": [{"board": "H200", "sensors": {"power_mw": 350000, "energy_mj": )" +
                   std::to_string(energy_mj) + "}}]}");
    for (int i = 0; i < 20; ++i) {
      (void)client->default_stream().Fill(*memory, FillElement::U8(7), std::size_t{8} << 20);
    }
    (void)client->default_stream().Synchronize();
    const std::string screen = top.Screen();
    return screen.find("J ") != std::string::npos && screen.find("350 W") != std::string::npos;
  })) << top.Screen();
  EXPECT_TRUE(top.Shows("WATTS  ENERGY")) << top.Screen();
}

TEST_F(TopTerminal, KeysSortAndChoose) {
  const Client b = Come("bbb"), a = Come("aaa");
  const auto top = Top();
  ASSERT_TRUE(top->Shows(" aaa\n"));
  const auto a_is_first = [&] {
    const std::string screen = top->Screen();
    return screen.find(" aaa\n") < screen.find(" bbb\n");
  };
  top->Press({"N"});
  EXPECT_TRUE(Eventually(a_is_first)) << top->Screen();
  top->Press({"N"});
  EXPECT_TRUE(Eventually([&] { return !a_is_first(); })) << top->Screen();
  top->Press({"Down", "Down"});
  EXPECT_TRUE(Eventually([&] {
    const std::string screen = top->Screen();
    const std::size_t at = screen.find("\n>");
    return at != std::string::npos && screen.find(" aaa\n", at) < screen.find('\n', at + 1) + 1;
  })) << top->Screen();
  top->Press({"/", "b", "Enter"});
  EXPECT_TRUE(top->Shows("1 of 2 clients: 'b'"));
  EXPECT_TRUE(top->ShowsNoMore(" aaa\n"));
  top->Press({"Escape"});
  EXPECT_TRUE(top->Shows(" aaa\n"));
}

TEST_F(TopTerminal, ClassAndWeightAreChangedInPlace) {
  const Client client = Come("someone");
  const std::uint64_t id = client.session_id();
  const auto top = Top();
  ASSERT_TRUE(top->Shows(" someone\n"));
  top->Press({"Down", "c", "n"});
  EXPECT_TRUE(top->Shows("class of client " + std::to_string(id))) << top->Screen();
  EXPECT_EQ(Row(id)["class"], "low") << "nothing is changed before Enter";
  top->Press({"Enter"});
  EXPECT_TRUE(top->Shows("client " + std::to_string(id) + " has now class normal"))
      << top->Screen();
  EXPECT_EQ(Row(id)["class"], "normal");
  top->Press({"w", "2", "5", "Enter"});
  EXPECT_TRUE(top->Shows("client " + std::to_string(id) + " has now weight 25")) << top->Screen();
  EXPECT_EQ(Row(id)["weight"], 25);
  EXPECT_TRUE(top->Shows(" normal   25 ")) << top->Screen();
}

TEST_F(TopTerminal, ShowsRejectionToNonOperators) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  // Other users may enter neither the build directory nor this test's directories.
  program_ = directory_ / "gpusharedctl";
  std::filesystem::copy_file(GPUSHARED_BIN_DIR "/gpusharedctl", program_);
  ::chmod(directory_.path().c_str(), 0755);
  ::chmod(std::filesystem::path(server_->socket()).parent_path().c_str(), 0755);
  const Client client = Come("someone");
  const auto top = Top({}, "setpriv --reuid=65534 --regid=65534 --clear-groups");
  ASSERT_TRUE(top->Shows(" someone\n")) << top->Screen();
  top->Press({"Down", "c", "h", "Enter"});
  EXPECT_TRUE(top->Shows("requires the right 'operate'")) << top->Screen();
  EXPECT_EQ(Row(client.session_id())["class"], "low");
}

TEST_F(TopTerminal, HelpAndExplainArePages) {
  const Client client = Come("someone");
  const auto top = Top();
  ASSERT_TRUE(top->Shows(" someone\n"));
  top->Press({"h"});
  EXPECT_TRUE(top->Shows("keys and columns"));
  top->Press({"End"});
  EXPECT_TRUE(top->Shows("how busy the device was")) << top->Screen();
  top->Press({"Enter", "Down", "e"});
  EXPECT_TRUE(top->Shows("request")) << "it has none, and the server says so: " << top->Screen();
}

TEST_F(TopTerminal, RedrawsResizedWindow) {
  const Client client = Come("someone");
  const auto top = Top();
  ASSERT_TRUE(top->Shows(" someone\n"));
  EXPECT_THAT(top->Screen(), Not(HasSubstr("ENDPOINT")));
  top->Resize({200, 50});
  EXPECT_TRUE(top->Shows("ENDPOINT")) << top->Screen();
  top->Resize({30, 5});
  EXPECT_TRUE(top->Shows("too small: needs 40x8")) << top->Screen();
  top->Resize({40, 8});
  EXPECT_TRUE(top->Shows("someone")) << top->Screen();
  top->Resize({80, 24});
  EXPECT_TRUE(top->Shows("A-Z sort")) << top->Screen();
}

TEST_F(TopTerminal, SelectionWalksThrough128Clients) {
  std::vector<Client> clients;
  const std::filesystem::path main = server_->socket();
  const std::string second = main.parent_path() / "second" / main.filename();
  for (int i = 0; i < 128; ++i) {
    clients.push_back(ComeThrough(i < 64 ? main.string() : second, "client-" + std::to_string(i)));
  }
  const auto top = Top();
  ASSERT_TRUE(top->Shows("128 clients")) << top->Screen();
  top->Press({"I", "End"});
  EXPECT_TRUE(top->Shows(" client-127\n")) << top->Screen();
  top->Press({"PPage"});
  EXPECT_TRUE(top->Shows(" client-110\n")) << top->Screen();
  top->Press({"Home"});
  EXPECT_TRUE(top->Shows(" client-0\n")) << top->Screen();
  EXPECT_TRUE(top->ShowsNoMore(" client-127\n"));
}

TEST_F(TopTerminal, WaitsForServerToReturn) {
  {
    const Client client = Come("someone");
    const auto top = Top();
    ASSERT_TRUE(top->Shows(" someone\n"));
    server_->Crash();
    EXPECT_TRUE(top->Shows("no figures for")) << top->Screen();
    EXPECT_TRUE(top->Shows(" someone\n")) << "the last figures stay";
    server_->StartAgain();
    EXPECT_TRUE(top->ShowsNoMore("no figures for")) << top->Screen();
    EXPECT_TRUE(top->Shows("policy priority"));
    // A server that does not respond must not prevent the user from leaving.
    server_->Signal(SIGSTOP);
    top->Press({"h"});
    EXPECT_TRUE(top->Shows("keys and columns")) << top->Screen();
    top->Press({"Enter", "q"});
    EXPECT_TRUE(top->Shows("ENDED WITH 0")) << top->Screen();
    server_->Signal(SIGCONT);
  }
}

TEST_F(TopTerminal, NamesStayInTheirPlace) {
  // Wide characters, right-to-left text, and many combining accents.
  const Client wide = Come("日本語の名前"), hebrew = Come("\u05e9\u05dc\u05d5\u05dd 12"),
               heaped = Come("z\u0301\u0301\u0301\u0301\u0301z");
  const auto top = Top();
  ASSERT_TRUE(top->Shows("3 clients"));
  EXPECT_TRUE(top->Shows(" 日本語の名前\n")) << top->Screen();
  EXPECT_TRUE(top->Shows(" \u05e9\u05dc\u05d5\u05dd 12\n")) << top->Screen();
  EXPECT_TRUE(top->Shows(" z\u0301\u0301z\n")) << top->Screen();
}

TEST_F(TopTerminal, OmitsColoursIfUnwanted) {
  const Client client = Come("someone");
  const auto has_colours = [](const std::string& text) {
    for (const char digit : std::string("1234567")) {
      if (text.find(std::string("[3") + digit) != std::string::npos) return true;
    }
    return false;
  };
  {
    const auto top = Top();
    ASSERT_TRUE(top->Shows(" someone\n"));
    EXPECT_TRUE(has_colours(top->Coloured())) << top->Coloured();
  }
  for (const char* const variables : {"TERM=screen-256color NO_COLOR=1", "TERM=vt100"}) {
    const auto top = Top({}, "", variables);
    ASSERT_TRUE(top->Shows(" someone\n")) << variables;
    EXPECT_FALSE(has_colours(top->Coloured())) << variables << ": " << top->Coloured();
  }
  const auto ascii = Top({}, "", "TERM=vt100 LC_ALL=C");
  ASSERT_TRUE(ascii->Shows(" someone\n"));
  for (const char byte : ascii->Screen()) {
    ASSERT_TRUE(byte == '\n' || (byte >= 0x20 && byte < 0x7f)) << ascii->Screen();
  }
}

TEST_F(TopTerminal, RejectsOutputThatIsNoTerminal) {
  const auto dumb = Top({}, "", "TERM=dumb");
  EXPECT_TRUE(dumb->Shows("ENDED WITH 2")) << dumb->Screen();
  EXPECT_THAT(dumb->Screen(), HasSubstr("needs a terminal that can move its cursor"));
  const auto unknown = Top({}, "", "TERM=no-such-terminal");
  EXPECT_TRUE(unknown->Shows("ENDED WITH 2")) << unknown->Screen();
  const ProgramOutcome piped = server_->Ctl({"top"});
  EXPECT_EQ(piped.exit_code, 2);
  EXPECT_THAT(piped.output, HasSubstr("gpusharedctl ps --watch"));
  EXPECT_EQ(server_->Ctl({"top", "--json"}).exit_code, 2);
  server_->Crash();
  EXPECT_EQ(server_->Ctl({"top"}).exit_code, 3);
  server_->StartAgain();
}

}  // namespace
}  // namespace gpushared::testing
