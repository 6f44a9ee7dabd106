// SPDX-License-Identifier: Apache-2.0
// State of the screen, controlled by keys.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TOP_VIEW_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TOP_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/wire/control.h"
#include "server/tools/ctl/top/figures.h"

namespace gpushared::server::top {

enum class Key : std::uint8_t {
  kCharacter,
  kUp,
  kDown,
  kPageUp,
  kPageDown,
  kHome,
  kEnd,
  kEnter,
  kEscape,
  kBackspace,
};
struct KeyPress {
  Key key = Key::kCharacter;
  char character = 0;  // Printable ASCII; used for kCharacter only.
};

// Sort orders. kMet, ids and names are sorted in ascending order, all other figures in descending
// order, and classes from high to low.
enum class SortBy : std::uint8_t {
  kBusy,
  kWaits,
  kMemory,
  kRequests,
  kRequestP99,
  kMet,
  kId,
  kClass,
  kName,
};
struct SortKey {
  SortBy by;
  char letter;
  std::string_view what;
};
inline constexpr SortKey kSortKeys[] = {
    {SortBy::kBusy, 'D', "device time"}, {SortBy::kWaits, 'W', "waiting"},
    {SortBy::kMemory, 'M', "memory"},    {SortBy::kRequests, 'R', "requests"},
    {SortBy::kRequestP99, 'P', "p99"},   {SortBy::kMet, 'K', "target met"},
    {SortBy::kClass, 'C', "class"},      {SortBy::kId, 'I', "id"},
    {SortBy::kName, 'N', "name"},
};

// Action requested by a key.
struct ViewAction {
  enum class What : std::uint8_t { kNothing, kQuit, kAsk };
  What what = What::kNothing;
  ipc::Admin question;  // For kAsk: kSet or kExplain.
};

// Thread-compatible.
class View {
 public:
  static constexpr std::size_t kFilterBytesMax = 32;

  enum class Page : std::uint8_t { kTable, kHelp, kText };
  enum class Edit : std::uint8_t { kNothing, kClass, kWeight, kFilter };

  ViewAction On(KeyPress press);

  // Replaces the figures. If a client that is being edited has disconnected, the view reports that.
  void Take(Figures figures);
  // Shows the answer to a request of a key.
  void ShowMessage(std::string message, bool is_bad);
  void ShowText(std::string title, std::string text);
  // Sets why the server does not answer; no value while it answers.
  void SetLost(std::optional<std::string> why) { lost_ = std::move(why); }

  // Returns the clients that match the filter, in order.
  std::vector<const ClientFigures*> Clients() const;
  // Returns the client to which keys apply; null initially and after it has left.
  const ClientFigures* Selected() const;

  const Figures& figures() const { return figures_; }
  Page page() const { return page_; }
  SortBy sort() const { return sort_; }
  bool is_reversed() const { return is_reversed_; }
  Edit edit() const { return edit_; }
  const std::string& typed() const { return typed_; }
  const std::string& filter() const { return filter_; }
  bool is_paused() const { return is_paused_; }
  const std::string& message() const { return message_; }
  bool is_bad() const { return is_bad_; }
  const std::optional<std::string>& lost() const { return lost_; }
  const std::string& title() const { return title_; }
  const std::string& text() const { return text_; }

  // Return the first client or line to draw. Called during drawing with the available space, in
  // rows, and the length of the page.
  std::size_t FirstClient(std::size_t rows);
  std::size_t FirstLine(std::size_t rows, std::size_t lines);

 private:
  ViewAction OnTable(KeyPress press);
  ViewAction OnCharacter(char letter);
  ViewAction OnEdit(KeyPress press);
  ViewAction Finish();
  void Begin(Edit edit);
  void Move(std::ptrdiff_t by);
  void Sort(SortBy by);

  Figures figures_;
  Page page_ = Page::kTable;
  SortBy sort_ = SortBy::kBusy;
  bool is_reversed_ = false;
  std::optional<std::uint64_t> selected_;
  // First row of the table that is shown, and number of rows that fit.
  std::size_t first_ = 0, rows_ = 1;
  std::size_t line_ = 0;  // First visible line of a page other than kTable.
  Edit edit_ = Edit::kNothing;
  std::string typed_;  // Input so far: a class, digits, or the filter.
  std::string filter_;
  bool is_paused_ = false;
  std::string message_;
  bool is_bad_ = false;
  std::optional<std::string> lost_;
  std::string title_, text_;
};

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TOP_VIEW_H_
