// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_SESSION_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_SESSION_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "gpushared/client.h"
#include "gpushared/mutex.h"
#include "gpushared/status.h"

#include "client_lib/drop_in/address_book.h"
#include "client_lib/drop_in/driver_types.h"
#include "client_lib/drop_in/graph_memory.h"
#include "client_lib/drop_in/memory_pool.h"
#include "client_lib/drop_in/texture_book.h"
#include "client_lib/drop_in/virtual_memory.h"

namespace gpushared::drop_in {

// Returns the driver's code for a failed connection: 805 no server, 806 no answer in time, 807
// draining, 808 full, 803 another version, 800 not allowed, 101 no such device.
Code ConnectCode(const Status& status);

// Session with one device, shared by all contexts of that device. Ends with the last of them.
//
// Thread-safe.
class Session {
 public:
  static Result<std::shared_ptr<Session>> Open(const std::string& device);

  const Client& client() const { return client_; }
  AddressBook& addresses() { return addresses_; }
  MirroredMemory& mirrored() { return mirrored_; }
  TextureBook& textures() { return textures_; }
  KeptMemory& kept_memory() { return kept_memory_; }
  VirtualMemory& virtual_memory() { return virtual_memory_; }
  const std::shared_ptr<GraphMemories>& graph_memories() const { return graph_memories_; }

  // Returns the driver's code for a status of this session and stores its message for the log.
  // Kernel faults and the end of the session are sticky: every later call then returns sticky().
  Code GetCode(const Status& status);
  // As GetCode, for a call that may have observed the end of work. Writes the text that kernels
  // have printed to stdout, fetches mirrored memory, and releases pool memory that no work needs.
  Code AfterWork(const Status& status);
  // Called before a command uses the program's bytes at this address. Fetches what kernels have
  // written if the address is in page-locked memory without a device address of its own.
  Code TakeBack(std::uint64_t address);
  // Number of limits that apply to the kernels of all contexts: the first of CUlimit, which are
  // stack, printed text and heap.
  static constexpr int kKernelLimits = 3;
  std::size_t KernelLimit(int limit) const GPUSHARED_EXCLUDES(limits_mutex_);
  // Makes at least `value` available to kernels. kInvalidValue if that is not possible.
  Code SetKernelLimit(int limit, std::size_t value) GPUSHARED_EXCLUDES(limits_mutex_);
  Code sticky() const { return sticky_.load(std::memory_order_relaxed); }

 private:
  explicit Session(Client client);
  Code MakeSticky(Code code);
  void PrintAssertion(const std::string& message);
  // Records the fault of a kernel; its kind is the driver's code.
  Code StickFault();

  const Client client_;
  MirroredMemory mirrored_;
  KeptMemory kept_memory_;
  const std::shared_ptr<GraphMemories> graph_memories_ = std::make_shared<GraphMemories>();
  AddressBook addresses_;
  TextureBook textures_;
  VirtualMemory virtual_memory_;
  mutable Mutex limits_mutex_;
  std::array<std::size_t, kKernelLimits> kernel_limits_ GPUSHARED_GUARDED_BY(limits_mutex_);
  std::atomic<Code> sticky_{Code::kSuccess};
  std::atomic<bool> has_printed_assertion_{false};
  std::atomic<bool> has_reported_end_{false};
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_SESSION_H_
