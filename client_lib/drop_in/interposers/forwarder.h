// SPDX-License-Identifier: Apache-2.0
// What every interposer is: all functions of a library of NVIDIA's, under its name. A function that
// the rules have no handler for jumps into the real library, which its first call looks for.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_FORWARDER_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_FORWARDER_H_

#include <string>

namespace gpushared::drop_in {

// A function of the real library; null when the library or the function is not there, which the log
// says. Thread-safe, as the others here.
void* RealFunction(const char* symbol);

// Why there is no real library; empty when there is one.
const std::string& WhyNoRealLibrary();

// Calls a function of the real library, or answers kNoRealLibrary of the rules. Arguments must have
// the function's own types.
int NoRealLibraryCode();
template <typename... Arguments>
int CallReal(const char* symbol, Arguments... arguments) {
  void* const function = RealFunction(symbol);
  if (function == nullptr) return NoRealLibraryCode();
  return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_FORWARDER_H_
