// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_FUNCTION_NAMES_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_FUNCTION_NAMES_H_

#include <string>
#include <unordered_map>

#include "gpushared/mutex.h"

#include "client_lib/fork_guard.h"

namespace gpushared::drop_in::gate {

// Names of kernels by their handles. A name is recorded when the program obtains the handle,
// because drivers before CUDA 12.3 have no function that returns the name.
//
// Thread-safe. Does nothing in a forked child, where the lock may have been held by a thread of the
// parent.
class FunctionNames {
 public:
  // Returns the names of this process. Never destroyed, because threads may launch until the
  // process ends.
  static FunctionNames& Get();

  // If the driver has reused the handle, the new name replaces the earlier one.
  void Add(const void* function, const char* name) GPUSHARED_EXCLUDES(mutex_);
  // Records the name of `of` for `function` as well, if that name is known.
  void AddAlias(const void* function, const void* of) GPUSHARED_EXCLUDES(mutex_);
  // Returns the name; empty if it is not known.
  std::string Find(const void* function) GPUSHARED_EXCLUDES(mutex_);

 private:
  const client::ForkGuard fork_guard_;
  Mutex mutex_;
  std::unordered_map<const void*, std::string> names_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::drop_in::gate

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_FUNCTION_NAMES_H_
