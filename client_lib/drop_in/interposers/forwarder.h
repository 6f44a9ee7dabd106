// SPDX-License-Identifier: Apache-2.0
// Common part of all interposers. An interposer has the file name of one of NVIDIA's libraries and
// exports all functions of that library. A function without a handler jumps to the real library,
// which the first call loads.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_FORWARDER_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_FORWARDER_H_

#include <string>

namespace gpushared::drop_in {

// Returns a function of the real library; null if the library or the function does not exist, which
// the log reports. Thread-safe, as are the functions below.
void* RealFunction(const char* symbol);

// Returns why there is no real library; empty if there is one.
const std::string& WhyNoRealLibrary();

// Calls a function of the real library, or returns the interposer's kNoRealLibrary. The arguments
// must have the exact types of the function.
int NoRealLibraryCode();
template <typename... Arguments>
int CallReal(const char* symbol, Arguments... arguments) {
  void* const function = RealFunction(symbol);
  if (function == nullptr) return NoRealLibraryCode();
  return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_FORWARDER_H_
