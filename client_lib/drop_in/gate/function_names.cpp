// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/gate/function_names.h"

namespace gpushared::drop_in::gate {

FunctionNames& FunctionNames::Get() {
  static FunctionNames& names = *new FunctionNames;
  return names;
}

void FunctionNames::Add(const void* function, const char* name) {
  if (!fork_guard_.InOwner()) return;
  const MutexLock lock(mutex_);
  names_.insert_or_assign(function, name);
}

void FunctionNames::AddAlias(const void* function, const void* of) {
  if (!fork_guard_.InOwner()) return;
  const MutexLock lock(mutex_);
  if (const auto found = names_.find(of); found != names_.end()) names_[function] = found->second;
}

std::string FunctionNames::Find(const void* function) {
  if (!fork_guard_.InOwner()) return {};
  const MutexLock lock(mutex_);
  const auto found = names_.find(function);
  return found == names_.end() ? std::string() : found->second;
}

}  // namespace gpushared::drop_in::gate
