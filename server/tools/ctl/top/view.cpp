// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/top/view.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "server/tools/ctl/top/units.h"

namespace gpushared::server::top {
namespace {

constexpr std::size_t kWeightDigitsMax = 4;  // Number of digits of kWeightMax.
constexpr std::ptrdiff_t kFar = 1 << 30;     // Distance larger than any number of clients.

// Returns the sort key of a client; the largest comes first. Clients without a key come last.
Figure SortFigure(const ClientFigures& client, SortBy by) {
  const auto less_first = [](Figure figure) -> Figure {
    return figure ? Figure(-*figure) : std::nullopt;
  };
  switch (by) {
    case SortBy::kBusy:
      return client.PerSecond("device_time_s");
    case SortBy::kWaits:
      if (!client.waits) return std::nullopt;
      return *client.waits + client.now["starved_for_s"].value_or(0);
    case SortBy::kMemory:
      return client.now["memory_bytes"];
    case SortBy::kRequests:
      return client.PerSecond("requests");
    case SortBy::kRequestP99:
      return client.now["request_p99_us"];
    case SortBy::kMet:
      return less_first(client.met);
    case SortBy::kClass: {
      const auto* found = std::ranges::find(kClassNames, client.now.scheduling_class);
      return static_cast<double>(kClassNames.end() - found);
    }
    case SortBy::kId:
    case SortBy::kName:
      break;
  }
  return std::nullopt;
}

bool IsBefore(const ClientFigures& a, const ClientFigures& b, SortBy by, bool is_reversed) {
  if (by == SortBy::kName && a.now.name != b.now.name) {
    return (a.now.name < b.now.name) != is_reversed;
  }
  if (by == SortBy::kId) return (a.now.id < b.now.id) != is_reversed;
  const Figure mine = SortFigure(a, by), other = SortFigure(b, by);
  if (mine.has_value() != other.has_value()) return mine.has_value();
  if (mine && *mine != *other) return (*mine > *other) != is_reversed;
  return a.now.id < b.now.id;
}

bool Matches(const ClientFigures& client, const std::string& filter) {
  const ClientSample& now = client.now;
  return std::ranges::any_of(
      std::initializer_list<std::string>{now.name, now.scheduling_class, now.device, now.endpoint,
                                         std::to_string(now.id), WholeText(now["uid"])},
      [&](const std::string& text) { return text.find(filter) != std::string::npos; });
}

std::string Who(const ClientFigures& client) {
  return "client " + std::to_string(client.now.id) + " '" + client.now.name + "'";
}

}  // namespace

std::vector<const ClientFigures*> View::Clients() const {
  std::vector<const ClientFigures*> clients;
  for (const ClientFigures& client : figures_.clients) {
    if (Matches(client, filter_)) clients.push_back(&client);
  }
  std::ranges::sort(clients, [this](const ClientFigures* a, const ClientFigures* b) {
    return IsBefore(*a, *b, sort_, is_reversed_);
  });
  return clients;
}

const ClientFigures* View::Selected() const {
  if (!selected_) return nullptr;
  const auto found = std::ranges::find_if(
      figures_.clients, [this](const ClientFigures& each) { return each.now.id == *selected_; });
  return found == figures_.clients.end() ? nullptr : &*found;
}

void View::Take(Figures figures) {
  const ClientFigures* const before = Selected();
  const std::string who = before == nullptr ? "" : Who(*before);
  figures_ = std::move(figures);
  if (before == nullptr || Selected() != nullptr) return;
  selected_.reset();
  if (edit_ == Edit::kClass || edit_ == Edit::kWeight) {
    edit_ = Edit::kNothing;
    ShowMessage(who + " has left; nothing was changed", true);
  }
}

void View::ShowMessage(std::string message, bool is_bad) {
  message_ = std::move(message);
  is_bad_ = is_bad;
}

void View::ShowText(std::string title, std::string text) {
  title_ = std::move(title);
  text_ = std::move(text);
  page_ = Page::kText;
  line_ = 0;
}

std::size_t View::FirstClient(std::size_t rows) {
  rows_ = std::max<std::size_t>(rows, 1);
  const std::vector<const ClientFigures*> clients = Clients();
  const std::size_t last_first = clients.size() - std::min(clients.size(), rows_);
  const auto at = std::ranges::find(clients, Selected());
  if (selected_ && at != clients.end()) {
    const auto row = static_cast<std::size_t>(at - clients.begin());
    first_ = std::clamp(first_, row < rows_ ? 0 : row - rows_ + 1, row);
  } else {
    first_ = 0;
  }
  first_ = std::min(first_, last_first);
  return first_;
}

std::size_t View::FirstLine(std::size_t rows, std::size_t lines) {
  rows_ = std::max<std::size_t>(rows, 1);
  line_ = std::min(line_, lines - std::min(lines, rows_));
  return line_;
}

ViewAction View::On(KeyPress press) {
  message_.clear();
  if (edit_ != Edit::kNothing) return OnEdit(press);
  if (page_ == Page::kTable) return OnTable(press);
  if (press.key == Key::kCharacter || press.key == Key::kEscape || press.key == Key::kEnter) {
    page_ = Page::kTable;
    line_ = 0;
    return {};
  }
  Move(press.key == Key::kUp         ? -1
       : press.key == Key::kDown     ? 1
       : press.key == Key::kPageUp   ? -static_cast<std::ptrdiff_t>(rows_)
       : press.key == Key::kPageDown ? static_cast<std::ptrdiff_t>(rows_)
       : press.key == Key::kHome     ? -kFar
                                     : kFar);
  return {};
}

ViewAction View::OnTable(KeyPress press) {
  const auto page = static_cast<std::ptrdiff_t>(rows_);
  switch (press.key) {
    case Key::kUp:
      Move(-1);
      break;
    case Key::kDown:
      Move(1);
      break;
    case Key::kPageUp:
      Move(-page);
      break;
    case Key::kPageDown:
      Move(page);
      break;
    case Key::kHome:
      Move(-kFar);
      break;
    case Key::kEnd:
      Move(kFar);
      break;
    case Key::kEscape:
      selected_.reset();
      filter_.clear();
      break;
    case Key::kCharacter:
      return OnCharacter(press.character);
    case Key::kEnter:
    case Key::kBackspace:
      break;
  }
  return {};
}

ViewAction View::OnCharacter(char letter) {
  for (const SortKey& key : kSortKeys) {
    if (key.letter == letter) Sort(key.by);
  }
  switch (letter) {
    case 'q':
      return {.what = ViewAction::What::kQuit, .question = {}};
    case 'h':
    case '?':
      page_ = Page::kHelp;
      line_ = 0;
      break;
    case ' ':
      is_paused_ = !is_paused_;
      break;
    case '/':
      Begin(Edit::kFilter);
      break;
    case 'c':
    case 'w':
    case 'e':
      if (Selected() == nullptr) {
        ShowMessage("choose a client with the arrow keys first", true);
      } else if (letter == 'e') {
        return {.what = ViewAction::What::kAsk,
                .question = {.verb = ipc::AdminVerb::kExplain, .client = *selected_}};
      } else {
        Begin(letter == 'c' ? Edit::kClass : Edit::kWeight);
      }
      break;
    default:
      break;
  }
  return {};
}

void View::Begin(Edit edit) {
  edit_ = edit;
  typed_ = edit == Edit::kFilter  ? filter_
           : edit == Edit::kClass ? Selected()->now.scheduling_class
                                  : std::string();
}

void View::Sort(SortBy by) {
  is_reversed_ = sort_ == by && !is_reversed_;
  sort_ = by;
}

// Moves the selection, or scrolls a page.
void View::Move(std::ptrdiff_t by) {
  if (page_ != Page::kTable) {
    line_ = static_cast<std::size_t>(
        std::clamp(static_cast<std::ptrdiff_t>(line_) + by, std::ptrdiff_t{0}, kFar));
    return;
  }
  const std::vector<const ClientFigures*> clients = Clients();
  if (clients.empty()) return;
  const auto at = std::ranges::find(clients, Selected());
  const auto last = static_cast<std::ptrdiff_t>(clients.size()) - 1;
  // The first key selects the topmost client on the screen, or the last one for End.
  std::ptrdiff_t row = static_cast<std::ptrdiff_t>(first_) + (by == kFar ? by : 0);
  if (selected_ && at != clients.end()) row = (at - clients.begin()) + by;
  selected_ = clients[static_cast<std::size_t>(std::clamp(row, std::ptrdiff_t{0}, last))]->now.id;
}

ViewAction View::OnEdit(KeyPress press) {
  if (press.key == Key::kEscape) {
    if (edit_ == Edit::kFilter) filter_.clear();
    edit_ = Edit::kNothing;
    return {};
  }
  if (press.key == Key::kEnter) return Finish();
  const char c = press.key == Key::kCharacter ? press.character : '\0';
  if (edit_ == Edit::kClass) {
    const auto* at = std::ranges::find(kClassNames, typed_);
    if (press.key == Key::kUp && at != kClassNames.begin()) typed_ = *(at - 1);
    if (press.key == Key::kDown && at < kClassNames.end() - 1) typed_ = *(at + 1);
    for (const std::string_view name : kClassNames) {
      if (name.front() == c) typed_ = name;
    }
    return {};
  }
  if (press.key == Key::kBackspace && !typed_.empty()) typed_.pop_back();
  const bool is_weight = edit_ == Edit::kWeight;
  const bool fits = typed_.size() < (is_weight ? kWeightDigitsMax : kFilterBytesMax);
  if (c != '\0' && fits && (!is_weight || (c >= '0' && c <= '9'))) typed_ += c;
  if (edit_ == Edit::kFilter) filter_ = typed_;
  return {};
}

// Applies the input, as Enter does.
ViewAction View::Finish() {
  const Edit edit = std::exchange(edit_, Edit::kNothing);
  const ClientFigures* const client = Selected();
  if (edit == Edit::kFilter || client == nullptr) return {};
  ipc::Admin question = {.verb = ipc::AdminVerb::kSet, .client = client->now.id};
  if (edit == Edit::kClass) {
    const auto* at = std::ranges::find(kClassNames, typed_);
    if (at == kClassNames.end()) return {};
    question.client_class = static_cast<SchedulingClass>(at - kClassNames.begin());
  } else {
    if (typed_.empty()) return {};
    std::uint32_t weight = 0;
    std::from_chars(typed_.data(), typed_.data() + typed_.size(), weight);
    if (weight < 1 || weight > kWeightMax) {
      ShowMessage(
          "weight rejected: asked for " + typed_ + ", allowed: 1 to " + std::to_string(kWeightMax),
          true);
      return {};
    }
    question.weight = weight;
  }
  ShowMessage("asking the server ...", false);
  return {.what = ViewAction::What::kAsk, .question = question};
}

}  // namespace gpushared::server::top
