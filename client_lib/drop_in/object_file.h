// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_OBJECT_FILE_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_OBJECT_FILE_H_

#include <string_view>
#include <vector>

namespace gpushared::drop_in {

// The fatbins in an object file of the host, as nvcc -dc writes it: one for each source. They point
// into `object`. Empty when it is no object file of x86-64, is broken, or has none.
std::vector<std::string_view> GetFatbins(std::string_view object);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_OBJECT_FILE_H_
