// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_FUNCTION_NAMES_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_FUNCTION_NAMES_H_

#include <string>
#include <unordered_map>

#include "gpushared/mutex.h"

#include "client_lib/fork_guard.h"

namespace gpushared::drop_in::gate {

// Names of kernels by their handles. They are recorded when the program obtains a handle, because
// a driver before CUDA 12.3 does not tell them.
//
// Thread-safe. Does nothing in a forked child, where the lock may have been held by a thread of the
// parent.
class FunctionNames {
 public:
  // A process has one. Never destroyed, because threads may launch until the process ends.
  static FunctionNames& Get();

  // A handle that the driver gives out again has the later name.
  void Add(const void* function, const char* name) GPUSHARED_EXCLUDES(mutex_);
  // Gives `function` the name of a handle that was added before, if there is one.
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
