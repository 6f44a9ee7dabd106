// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_LOAD_MODULE_H_
#define GPUSHARED_TESTS_SUPPORT_LOAD_MODULE_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "gpushared/result.h"

#include "server/device/prepare.h"

namespace gpushared::testing {

// Reads, compiles and places a module in this process, for tests that use a device without a
// worker.
inline Result<std::shared_ptr<const device::Module>> LoadModule(device::Space& space,
                                                                std::string_view image) {
  std::vector<std::byte> flat;
  device::FlatWriter to([&](auto piece) { flat.insert(flat.end(), piece.begin(), piece.end()); });
  Status prepared = device::PrepareModule(space.recipe(),
                                          std::as_bytes(std::span(image.data(), image.size())), to);
  if (!prepared.ok()) return prepared;
  to.Flush();
  Result<std::shared_ptr<const device::PreparedModule>> module =
      device::TakePrepared(space.recipe(), flat);
  if (module.ok()) module = space.CompileModule(*std::move(module), true);
  if (!module.ok()) return module.status();
  return space.PlaceModule(*std::move(module));
}

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_LOAD_MODULE_H_
