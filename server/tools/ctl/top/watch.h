// SPDX-License-Identifier: Apache-2.0
// Polls a server, and sends the requests of keys, without ever blocking on it.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TOP_WATCH_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TOP_WATCH_H_

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpushared/status.h"

#include "ipc/wire/control.h"
#include "server/telemetry/admin/ask.h"
#include "server/tools/ctl/top/figures.h"
#include "server/tools/ctl/top/view.h"

namespace gpushared::server::top {

// Keeps a view's figures up to date. Owns at most two connections to the server: one for figures,
// one for the request of a key.
//
// Thread-compatible.
class Watch {
 public:
  using Clock = std::chrono::steady_clock;

  Watch(std::string socket, Clock::duration every, View& view)
      : socket_(std::move(socket)), every_(every), view_(view) {}

  // Returns why there are no figures, if the first request failed.
  const Status& first_failure() const { return first_failure_; }
  bool has_figures() const { return before_.has_value(); }
  const History& history() const { return history_; }

  // Sends a request of a key, after those of earlier keys.
  void AskFor(const ipc::Admin& question);
  // Sends due requests and reads answers. Returns true if the screen must be redrawn.
  bool Go(Clock::time_point now);
  // Adds the descriptors to wait for. Returns the time at which Go must be called at the latest.
  Clock::time_point Wait(std::vector<pollfd>& fds) const;

 private:
  // A request in progress.
  struct Asked {
    admin::Inquiry inquiry;
    ipc::Admin question;
    Clock::time_point overdue;
  };

  bool Due(Clock::time_point now) const;
  std::optional<Asked> Begin(const ipc::Admin& question, Clock::time_point now, Status& why);
  bool GoFigures(Clock::time_point now);
  bool GoKeys(Clock::time_point now);
  void TakeFigures(const nlohmann::json& answer, Clock::time_point now);
  void Lose(const Status& why, Clock::time_point now);
  void ShowLost(Clock::time_point now);
  void ShowDone(const ipc::Admin& question, const nlohmann::json& answer);

  const std::string socket_;
  const Clock::duration every_;
  View& view_;
  Clock::time_point next_{};  // Time of the next refresh.
  std::optional<Asked> figures_, key_;
  std::vector<ipc::Admin> keys_waiting_;
  std::optional<Sample> before_;
  Sample now_;
  History history_;
  Status first_failure_;
  std::optional<Clock::time_point> lost_since_;
  std::string lost_why_;
};

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TOP_WATCH_H_
