// SPDX-License-Identifier: Apache-2.0
// Fuzzes decoded code as it arrives from another process: every three bytes of input change one
// byte, by position and value. tests/executor/flat_code_test.cpp also runs accepted code, which
// needs the real operations.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "common/ptx/text/parser.h"
#include "server/device/cpu/executor/flat_code.h"
#include "tests/executor/brief_run.h"

namespace {

using namespace gpushared;
using namespace gpushared::device::executor;

constexpr Flavour kFlavour = Flavour::kBaseline;

std::vector<std::byte> GoodCode() {
  const Result<ptx::Module> module = ptx::Parse(testing::kManyForms);
  if (!module.ok()) std::abort();
  const Result<ModuleLayout> layout = LayOutModule(*module);
  if (!layout.ok()) std::abort();
  const auto image = DecodeModule(*module, *layout, 0, kFlavour);
  if (!image.ok()) std::abort();
  std::vector<std::byte> bytes;
  device::FlatWriter to([&](auto piece) { bytes.insert(bytes.end(), piece.begin(), piece.end()); });
  PutProgram((*image)->program(0), kFlavour, to);
  to.Flush();
  device::FlatReader from(bytes);
  // Aborts at once, because otherwise no input would get beyond this error.
  if (!TakeProgram(from, kFlavour).ok()) std::abort();
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<std::byte> good = GoodCode();
  std::vector<std::byte> bytes = good;
  for (std::size_t i = 0; i + 3 <= size; i += 3) {
    bytes[(data[i] | std::size_t{data[i + 1]} << 8) % bytes.size()] = std::byte{data[i + 2]};
  }
  device::FlatReader from(bytes);
  (void)TakeProgram(from, kFlavour);
  return 0;
}
