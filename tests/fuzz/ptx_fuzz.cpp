// SPDX-License-Identifier: Apache-2.0
// Module images are hostile until parsed: any bytes are a module or an error, and what
// parses prints to something that parses to the same.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <variant>

#include "server/ptx/control_flow.h"
#include "server/ptx/fatbin.h"
#include "server/ptx/parser.h"
#include "server/ptx/printer.h"

using gpushared::ptx::AnalyseControlFlow;
using gpushared::ptx::ExtractPtx;
using gpushared::ptx::Function;
using gpushared::ptx::Parse;
using gpushared::ptx::Print;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = ExtractPtx({reinterpret_cast<const std::byte*>(data), size});
  if (!text) return 0;
  const auto module = Parse(*text);
  if (!module) return 0;
  const std::string printed = Print(*module);
  const auto again = Parse(printed);
  if (!again || Print(*again) != printed) std::abort();
  for (const auto& item : module->items) {
    const auto* function = std::get_if<Function>(&item);
    if (function != nullptr && function->body) (void)AnalyseControlFlow(*function);
  }
  return 0;
}
