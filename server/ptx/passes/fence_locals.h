// SPDX-License-Identifier: Apache-2.0
// The local variables of a fenced function as one array, so that one bound holds for whatever
// points into them.

#ifndef GPUSHARED_SERVER_PTX_PASSES_FENCE_LOCALS_H_
#define GPUSHARED_SERVER_PTX_PASSES_FENCE_LOCALS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "server/ptx/passes/fence_flow.h"
#include "server/ptx/text/editor.h"
#include "server/ptx/text/module.h"

namespace gpushared::ptx {

// Borrows the flow. Thread-compatible.
class FenceLocals {
 public:
  explicit FenceLocals(const FenceFlow& flow) : flow_(flow) {}

  // To be called first, and once. Declares the array, aligned to at least `alignment`, where no
  // variable of the function's own can serve as it.
  void Merge(ModuleEditor& names, FunctionEditor& editor, std::uint32_t alignment);

  // Null when the function has no local variables.
  const Variable* array() const { return array_ ? &*array_ : nullptr; }
  // Whether the array is none of the function's own variables.
  bool merges() const { return merges_; }

  struct Place {
    std::int64_t offset = 0;  // In the array.
    std::uint64_t bytes = 0;
  };
  // Of the variable of this name, as ControlFlow has it; null when there is none.
  const Place* Find(const std::string& name) const;

  // What register `r` holds at instruction `k`, counted from the array's start; nothing when that
  // is not the same for every way to get there.
  std::optional<std::int64_t> OffsetIn(std::uint32_t r, std::uint32_t k) const;

 private:
  std::optional<std::int64_t> OffsetIn(std::uint32_t r, std::uint32_t k, int chain) const;

  const FenceFlow& flow_;
  std::optional<Variable> array_;
  bool merges_ = false;
  std::unordered_map<std::string, Place> places_;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_FENCE_LOCALS_H_
