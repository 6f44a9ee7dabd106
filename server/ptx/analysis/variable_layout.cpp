// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/variable_layout.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "common/ptx/text/constant.h"
#include "common/ptx/text/initializer.h"
#include "server/ptx/analysis/function_address.h"

namespace gpushared::ptx {
namespace {

bool LivesInMemory(const Variable& variable) {
  const bool placed =
      variable.space == StateSpace::kGlobal || variable.space == StateSpace::kConstant;
  return placed && variable.linkage != ".extern";
}

std::uint64_t RoundUp(std::uint64_t value, std::uint64_t step) {
  return (value + step - 1) / step * step;
}

Status Reject(const Variable& variable, const std::string& what) {
  return {StatusCode::kInvalidArgument, "ptx: line " + std::to_string(variable.position.line) +
                                            ": initialiser of '" + variable.name + "': " + what};
}

// Allowed initial values of an element (PTX ISA, Initializers; ptxas).
enum class ElementKind : std::uint8_t { kNone, kInteger, kReal, kBits };

ElementKind GetKind(const Variable& variable) {
  const std::uint32_t bytes = TypeBytes(variable.type);
  const std::string bits = std::to_string(bytes * 8);
  if (variable.type == "b" + bits) return ElementKind::kBits;
  if (bytes > 8) return ElementKind::kNone;
  if (variable.type == "u" + bits || variable.type == "s" + bits) return ElementKind::kInteger;
  const bool is_real = variable.type == "f32" || variable.type == "f64";
  return is_real ? ElementKind::kReal : ElementKind::kNone;
}

class Planner {
 public:
  explicit Planner(const Module& module) : module_(module) {}

  Result<ModuleLayout> Plan() {
    for (const Item& item : module_.items) {
      const auto* variable = std::get_if<Variable>(&item);
      if (variable == nullptr || !LivesInMemory(*variable)) continue;
      if (Status placed = Place(*variable); !placed.ok()) return placed;
    }
    layout_.initial.assign(layout_.bytes, std::byte{0});
    for (const Item& item : module_.items) {
      const auto* variable = std::get_if<Variable>(&item);
      if (variable == nullptr) continue;
      if (LivesInMemory(*variable)) {
        if (Status read = Initialise(*variable); !read.ok()) return read;
      }
      declared_.insert(variable->name);
    }
    return std::move(layout_);
  }

 private:
  Status Place(const Variable& variable) {
    const std::uint64_t alignment = std::max<std::uint64_t>(variable.NaturalAlignment(), 1);
    if (alignment > 4096) return Reject(variable, "alignment above 4096 bytes");
    const std::uint64_t offset = RoundUp(layout_.bytes, alignment);
    const std::uint64_t bytes = variable.Bytes();
    if (bytes > kModuleVariableBytesMax || offset + bytes > kModuleVariableBytesMax) {
      return Reject(variable, "variables of the module exceed " +
                                  std::to_string(kModuleVariableBytesMax) + " bytes");
    }
    // Rejects a second variable of the same name, because an initializer of one would be written to
    // the place of the other.
    if (!offsets_.emplace(variable.name, offset).second) {
      return Reject(variable, "the name is declared twice");
    }
    layout_.variables.push_back({variable.name, offset, bytes});
    layout_.bytes = offset + bytes;
    layout_.alignment = std::max(layout_.alignment, alignment);
    return {};
  }

  Status Initialise(const Variable& variable) {
    if (!variable.initializer) return {};
    if (GetKind(variable) == ElementKind::kNone)
      return Reject(variable, "type " + variable.type + " cannot be initialised");
    if (variable.Bytes() == 0) return Reject(variable, "an array without elements");
    InitializerReader reader(*variable.initializer);
    std::uint64_t at = offsets_[variable.name];
    Status read = ReadLevel(variable, reader, 0, at);
    if (read.ok() && !reader.AtEnd()) return Reject(variable, "has too many braces");
    return read;
  }

  // Like ptxas, requires braces for each dimension of an array and for each vector. A vector must
  // be complete, but a row may have too few values; those of the next row then follow immediately.
  Status ReadLevel(const Variable& variable, InitializerReader& reader, std::size_t level,
                   std::uint64_t& at) {
    const bool is_array = level < variable.extents.size();
    const bool is_vector = level == variable.extents.size() && variable.vector_size != 1;
    if (!is_array && !is_vector) {
      Status read = ReadElement(variable, reader, at);
      at += TypeBytes(variable.type);
      return read;
    }
    const std::uint64_t count = is_array ? variable.extents[level] : variable.vector_size;
    if (!reader.Accept("{")) return Reject(variable, "expected '{'");
    std::uint64_t done = 0;
    if (reader.Accept("}")) return is_vector ? Reject(variable, "has too few elements") : Status();
    do {
      if (done == count) return Reject(variable, "has too many elements");
      Status read = ReadLevel(variable, reader, level + 1, at);
      if (!read.ok()) return read;
      ++done;
    } while (reader.Accept(","));
    if (!reader.Accept("}")) return Reject(variable, "expected ',' or '}'");
    if (is_vector && done < count) return Reject(variable, "has too few elements");
    return {};
  }

  Status ReadElement(const Variable& variable, InitializerReader& reader, std::uint64_t at) {
    const Result<InitialElement> element = reader.TakeElement();
    if (!element) return Reject(variable, std::string(element.status().message()));
    if (!element->symbol.empty()) return WriteAddress(variable, *element, at);
    return WriteConstant(variable, element->value, at);
  }

  Status WriteConstant(const Variable& variable, const Constant& value, std::uint64_t at) {
    const ElementKind kind = GetKind(variable);
    const bool fits =
        kind == ElementKind::kBits || (kind == ElementKind::kInteger) == value.IsInteger();
    if (!fits) return Reject(variable, "a number that does not fit type " + variable.type);
    const std::uint32_t bytes = TypeBytes(variable.type);
    std::uint64_t bits = value.bits;
    if (value.kind == Constant::Kind::kDouble && bytes == 4) {
      const auto narrow = static_cast<float>(__builtin_bit_cast(double, bits));
      bits = __builtin_bit_cast(std::uint32_t, narrow);
    }
    // Sixteen bytes consist of the eight bytes of a constant, followed by zeros.
    std::memcpy(layout_.initial.data() + at, &bits, std::min<std::size_t>(bytes, sizeof bits));
    return {};
  }

  // ptxas accepts complete addresses in unsigned words, and a single byte of an address also in
  // .u8.
  Status WriteAddress(const Variable& variable, const InitialElement& element, std::uint64_t at) {
    const bool is_word = variable.type == "u32" || variable.type == "u64";
    if (!is_word && !(element.has_mask && variable.type == "u8")) {
      return Reject(variable, "an address cannot have type " + variable.type);
    }
    const std::uint32_t bytes = element.has_mask ? 1 : TypeBytes(variable.type);
    const auto target = offsets_.find(element.symbol);
    const auto offset = static_cast<std::uint64_t>(element.offset);
    const ModuleLayout::AddressSlot slot{at, 0, bytes, element.mask_shift};
    if (target == offsets_.end()) {
      return WriteFunctionAddress(variable, element.symbol, offset, slot);
    }
    if (!declared_.contains(element.symbol)) {
      return Reject(variable, "'" + element.symbol + "' is not declared before it");
    }
    layout_.address_slots.push_back(slot);
    layout_.address_slots.back().target_offset = target->second + offset;
    return {};
  }

  Status WriteFunctionAddress(const Variable& variable, const std::string& name,
                              std::uint64_t offset, const ModuleLayout::AddressSlot& slot) {
    if (!functions_) functions_ = FunctionAddresses(module_);
    const auto function = functions_->find(name);
    if (function != functions_->end()) {
      const std::uint64_t value = (function->second + offset) >> slot.shift;
      std::memcpy(layout_.initial.data() + slot.offset, &value, slot.bytes);
      return {};
    }
    // Addresses of kernels remain zero, because kernels cannot be launched through them here.
    if (module_.FindFunction(name) != nullptr) return {};
    return Reject(variable, "unknown symbol " + name);
  }

  const Module& module_;
  ModuleLayout layout_;
  std::unordered_map<std::string, std::uint64_t> offsets_;
  std::unordered_set<std::string_view> declared_;  // Names declared so far.
  // Addresses of the module's functions by name; computed on first use.
  std::optional<std::unordered_map<std::string_view, std::uint64_t>> functions_;
};

}  // namespace

std::vector<std::byte> ModuleLayout::InitialBytes(std::uint64_t base) const {
  std::vector<std::byte> image = initial;
  for (const AddressSlot& slot : address_slots) {
    const std::uint64_t value = (base + slot.target_offset) >> slot.shift;
    std::memcpy(image.data() + slot.offset, &value, slot.bytes);
  }
  return image;
}

const VariablePlacement* ModuleLayout::Find(const std::string& name) const {
  const auto found = std::ranges::find(variables, name, &VariablePlacement::name);
  return found == variables.end() ? nullptr : &*found;
}

Result<ModuleLayout> LayOutModule(const Module& module) { return Planner(module).Plan(); }

}  // namespace gpushared::ptx
