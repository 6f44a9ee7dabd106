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

// The requests of a session that have begun and, as far as we can know, not ended: the server
// ends a session that opens more than it may.
//
// Thread-compatible.
class RequestList {
 public:
  // Whether the stream has begun one whose end was not submitted.
  bool IsOpen(std::uint32_t stream) const { return FindOpen(stream) != list_.end(); }
  void Begin(std::uint32_t stream) { list_.push_back({.stream = stream, .sequence = 0}); }
  // Its end was submitted. Only when it is open.
  void End(StreamPoint end) { *FindOpen(end.stream) = end; }

  // Room for one more? Forgets what has ended.
  bool HasRoom(const Progress& progress) {
    std::erase_if(list_, [&](const StreamPoint& each) {
      return each.sequence != 0 && progress.HasEnded(each);
    });
    return list_.size() < kOpenRequestsMax;
  }
  // One that will end by itself; empty when all wait for their end to be submitted.
  std::optional<StreamPoint> NextEnd() const {
    for (const StreamPoint& each : list_) {
      if (each.sequence != 0) return each;
    }
    return {};
  }

 private:
  using List = std::vector<StreamPoint>;  // The sequence of the end; 0 while there is none.

  List::const_iterator FindOpen(std::uint32_t stream) const {
    return std::ranges::find_if(list_, [&](const StreamPoint& each) {
      return each.stream == stream && each.sequence == 0;
    });
  }
  List::iterator FindOpen(std::uint32_t stream) {
    return list_.begin() + (std::as_const(*this).FindOpen(stream) - list_.cbegin());
  }

  List list_;  // In the order in which they began.
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_REQUEST_LIST_H_
