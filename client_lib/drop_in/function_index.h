// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_FUNCTION_INDEX_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_FUNCTION_INDEX_H_

#include <cstddef>

namespace gpushared::drop_in {

// Index of each symbol in functions.inc and in every table generated from it.
enum FunctionIndex : std::size_t {
#define GPUSHARED_FUNCTION(name, version, symbol, stream, handler, hook) kIndexOf_##symbol,
#include "client_lib/drop_in/functions.inc"
#undef GPUSHARED_FUNCTION
  kFunctionCount
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_FUNCTION_INDEX_H_
