// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_REQUEST_LIST_H_
#define GPUSHARED_CLIENT_LIB_REQUEST_LIST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "client_lib/progress.h"
#include "ipc/wire/layout.h"

namespace gpushared::client {

// Requests of a session that have begun and, as far as the client has observed, have not ended. The
// client counts them, because the server ends a session that opens too many.
//
// Thread-compatible.
class RequestList {
 public:
  // Returns whether the stream has begun a request whose end has not been submitted.
  bool IsOpen(std::uint32_t stream) const { return FindOpen(stream) != list_.end(); }
  void Begin(std::uint32_t stream) { list_.push_back({.stream = stream, .sequence = 0}); }
  // Records that the end of the stream's open request was submitted.
  void End(StreamPoint end) { *FindOpen(end.stream) = end; }

  // Drops requests that have ended, then returns whether another one may begin.
  bool HasRoom(const Progress& progress) {
    std::erase_if(list_, [&](const StreamPoint& each) {
      return each.sequence != 0 && progress.HasEnded(each);
    });
    return list_.size() < kOpenRequestsMax;
  }
  // Returns the submitted end of a request, for which a caller can wait; no value if no end was
  // submitted.
  std::optional<StreamPoint> NextEnd() const {
    for (const StreamPoint& each : list_) {
      if (each.sequence != 0) return each;
    }
    return {};
  }

 private:
  // The point of a request's end. Its sequence is 0 until the end is submitted.
  using List = std::vector<StreamPoint>;

  List::const_iterator FindOpen(std::uint32_t stream) const {
    return std::ranges::find_if(list_, [&](const StreamPoint& each) {
      return each.stream == stream && each.sequence == 0;
    });
  }
  List::iterator FindOpen(std::uint32_t stream) {
    return list_.begin() + (std::as_const(*this).FindOpen(stream) - list_.cbegin());
  }

  List list_;  // In the order in which the requests began.
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_REQUEST_LIST_H_
