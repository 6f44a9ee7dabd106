// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/stream_table.h"

#include <algorithm>
#include <utility>

#include "gpushared/check.h"

namespace gpushared::device::cuda {

std::size_t StreamTable::Enter(StreamKey stream, std::uint8_t priority) {
  auto found = entries_.find(stream);
  if (found == entries_.end()) {
    const Entry entry{.channel = Choose(priority), .works = 0};
    ++streams_[entry.channel];
    if (spare_.empty()) {
      found = entries_.emplace(stream, entry).first;
    } else {
      Entries::node_type node = std::move(spare_.back());
      spare_.pop_back();
      node.key() = stream;
      node.mapped() = entry;
      found = entries_.insert(std::move(node)).position;
    }
  }
  ++found->second.works;
  return found->second.channel;
}

void StreamTable::Leave(StreamKey stream) {
  const auto found = entries_.find(stream);
  Check(found != entries_.end(), "a stream that work leaves has work");
  if (--found->second.works > 0) return;
  --streams_[found->second.channel];
  spare_.push_back(entries_.extract(found));
}

std::size_t StreamTable::Choose(std::uint8_t priority) const {
  const std::size_t level = std::min<std::size_t>(priority, kChannels.size() - 1);
  std::size_t first = 0;
  for (std::size_t i = 0; i < level; ++i) first += kChannels[i];
  const auto begin = streams_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = begin + static_cast<std::ptrdiff_t>(kChannels[level]);
  return static_cast<std::size_t>(std::min_element(begin, end) - streams_.begin());
}

}  // namespace gpushared::device::cuda
