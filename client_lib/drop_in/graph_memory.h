// SPDX-License-Identifier: Apache-2.0
// Memory allocated by graph nodes.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GRAPH_MEMORY_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GRAPH_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "gpushared/client.h"
#include "gpushared/mutex.h"
#include "gpushared/result.h"

#include "client_lib/drop_in/address_book.h"

namespace gpushared::drop_in {

class GraphMemories;

// Memory of one node. Exists from the creation of the node until the node, the executable graph and
// the program have released it, so its address remains the same.
//
// Constant; thread-safe.
class GraphMemory {
 public:
  GraphMemory(std::weak_ptr<GraphMemories> owner, std::uint64_t address, std::size_t bytes)
      : owner_(std::move(owner)), address_(address), bytes_(bytes), buffer_id_(NextBufferId()) {}
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  std::uint64_t address() const { return address_; }
  std::size_t bytes() const { return bytes_; }
  // Number of the block in an address book while the memory is allocated to the program.
  std::uint64_t buffer_id() const { return buffer_id_; }
  bool IsOf(const std::shared_ptr<GraphMemories>& memories) const {
    return owner_.lock() == memories;
  }

 private:
  const std::weak_ptr<GraphMemories> owner_;
  const std::uint64_t address_;
  const std::size_t bytes_;
  const std::uint64_t buffer_id_;
};

// All graph memory of one session; freed when the session ends. Must be owned by a shared pointer.
//
// Thread-safe.
class GraphMemories : public std::enable_shared_from_this<GraphMemories> {
 public:
  struct Bytes {
    std::uint64_t now = 0;
    std::uint64_t high = 0;  // Maximum since the start or since ForgetHigh.
  };

  // Allocates memory, which counts against the session's quota from now on.
  Result<std::shared_ptr<GraphMemory>> Make(const Client& client, std::size_t bytes);
  // Returns whether graph memory begins at `address`, allocated or not.
  bool BeginsAt(std::uint64_t address) const;
  // Returns whether graph memory contains `address`.
  bool Holds(std::uint64_t address) const;
  Bytes bytes() const;
  void ForgetHigh();

 private:
  friend class GraphMemory;
  void Free(std::uint64_t address);

  mutable Mutex mutex_;
  std::map<std::uint64_t, DeviceBuffer> buffers_ GPUSHARED_GUARDED_BY(mutex_);  // By address.
  Bytes bytes_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GRAPH_MEMORY_H_
