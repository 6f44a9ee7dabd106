// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/variable_layout.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "server/ptx/analysis/function_address.h"
#include "server/ptx/text/literal.h"

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

Status Refuse(const Variable& variable, const std::string& what) {
  return {StatusCode::kInvalidArgument, "ptx: line " + std::to_string(variable.position.line) +
                                            ": initialiser of '" + variable.name + "': " + what};
}

// One element of an initialiser: a number, or an address with the part of it wanted.
struct Element {
  Literal literal;
  bool negative = false;
  std::string symbol;  // Empty for numbers.
  std::int64_t symbol_offset = 0;
  std::uint64_t mask = ~std::uint64_t{0};
};

// Reads "{1, -2, {0f3F800000}, generic(x)+4, 0xFF00(y)}" element by element.
class InitializerReader {
 public:
  explicit InitializerReader(std::string_view text) : text_(text) {}

  // Nothing at the end; `*bad` is set for text it cannot read.
  std::optional<Element> Next(bool* bad) {
    SkipSeparators();
    if (position_ >= text_.size()) return std::nullopt;
    Element element;
    *bad = !ReadElement(&element);
    return element;
  }

 private:
  // Braces only group; nested arrays are laid out flat.
  void SkipSeparators() {
    while (position_ < text_.size() &&
           (std::isspace(static_cast<unsigned char>(text_[position_])) != 0 ||
            std::strchr("{},", text_[position_]) != nullptr)) {
      ++position_;
    }
  }
  void SkipSpace() {
    while (position_ < text_.size() &&
           std::isspace(static_cast<unsigned char>(text_[position_])) != 0) {
      ++position_;
    }
  }
  bool Take(char c) {
    SkipSpace();
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  std::string_view Word() {
    SkipSpace();
    const std::size_t begin = position_;
    const auto belongs = [&](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr("_$%.", c) != nullptr;
    };
    while (position_ < text_.size() && belongs(text_[position_])) ++position_;
    return text_.substr(begin, position_ - begin);
  }

  bool ReadElement(Element* element) {
    element->negative = Take('-');
    const std::string_view word = Word();
    if (word.empty()) return false;
    const auto literal = ParseLiteral(word);
    if (literal && Take('(')) {  // mask(address)
      element->mask = literal->bits;
      return ReadAddress(element, Word()) && Take(')');
    }
    if (literal) {
      element->literal = *literal;
      return true;
    }
    return ReadAddress(element, word);
  }

  bool ReadAddress(Element* element, std::string_view word) {
    const bool is_generic = word == "generic";
    if (is_generic && !Take('(')) return false;
    element->symbol = is_generic ? Word() : word;
    if (!ReadOffset(element)) return false;
    return !is_generic || (Take(')') && ReadOffset(element));
  }

  bool ReadOffset(Element* element) {
    const bool minus = Take('-');
    if (!minus && !Take('+')) return !element->symbol.empty();
    const auto offset = ParseLiteral(Word());
    if (!offset || offset->is_float) return false;
    const std::int64_t value = static_cast<std::int64_t>(offset->bits);
    element->symbol_offset += minus ? -value : value;
    return !element->symbol.empty();
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

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
      if (variable == nullptr || !LivesInMemory(*variable)) continue;
      if (Status read = Initialise(*variable); !read.ok()) return read;
    }
    return std::move(layout_);
  }

 private:
  Status Place(const Variable& variable) {
    const std::uint64_t alignment = std::max<std::uint64_t>(variable.NaturalAlignment(), 1);
    if (alignment > 4096) return Refuse(variable, "alignment above 4096 bytes");
    const std::uint64_t offset = RoundUp(layout_.bytes, alignment);
    const std::uint64_t bytes = variable.Bytes();
    if (bytes > kModuleVariableBytesMax || offset + bytes > kModuleVariableBytesMax) {
      return Refuse(variable, "variables of the module exceed " +
                                  std::to_string(kModuleVariableBytesMax) + " bytes");
    }
    // Else an initialiser of the one would be written to the place of the other.
    if (!offsets_.emplace(variable.name, offset).second) {
      return Refuse(variable, "the name is declared twice");
    }
    layout_.variables.push_back({variable.name, offset, bytes});
    layout_.bytes = offset + bytes;
    layout_.alignment = std::max(layout_.alignment, alignment);
    return {};
  }

  Status Initialise(const Variable& variable) {
    if (!variable.initializer) return {};
    const std::uint32_t element_bytes = TypeBytes(variable.type);
    if (element_bytes == 0 || element_bytes > 8) return Refuse(variable, "type " + variable.type);
    InitializerReader reader(*variable.initializer);
    std::uint64_t at = offsets_[variable.name];
    const std::uint64_t end = at + variable.Bytes();
    bool bad = false;
    while (const auto element = reader.Next(&bad)) {
      if (bad) return Refuse(variable, "cannot be read");
      if (at + element_bytes > end) return Refuse(variable, "has too many elements");
      if (Status written = Write(variable, *element, at, element_bytes); !written.ok()) {
        return written;
      }
      at += element_bytes;
    }
    return {};
  }

  Status Write(const Variable& variable, const Element& element, std::uint64_t at,
               std::uint32_t bytes) {
    if (!element.symbol.empty()) return WriteAddress(variable, element, at, bytes);
    std::uint64_t bits = element.literal.bits;
    if (element.literal.is_float && element.literal.float_bytes == 8 && bytes == 4) {
      const float narrow = static_cast<float>(__builtin_bit_cast(double, bits));
      bits = __builtin_bit_cast(std::uint32_t, narrow);
    }
    if (element.negative) {
      bits = element.literal.is_float ? bits ^ (std::uint64_t{1} << (bytes * 8 - 1)) : 0 - bits;
    }
    std::memcpy(layout_.initial.data() + at, &bits, bytes);
    return {};
  }

  Status WriteAddress(const Variable& variable, const Element& element, std::uint64_t at,
                      std::uint32_t bytes) {
    const auto target = offsets_.find(element.symbol);
    const std::uint32_t shift =
        element.mask == 0 ? 0 : static_cast<std::uint32_t>(__builtin_ctzll(element.mask));
    const auto offset = static_cast<std::uint64_t>(element.symbol_offset);
    if (target == offsets_.end()) {
      return WriteFunctionAddress(variable, element.symbol, offset, {at, 0, bytes, shift});
    }
    layout_.address_slots.push_back({at, target->second + offset, bytes, shift});
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
    // Addresses of kernels stay zero: no kernel can be launched through them here.
    if (module_.FindFunction(name) != nullptr) return {};
    return Refuse(variable, "unknown symbol " + name);
  }

  const Module& module_;
  ModuleLayout layout_;
  std::unordered_map<std::string, std::uint64_t> offsets_;
  std::optional<std::unordered_map<std::string_view, std::uint64_t>> functions_;  // When asked for.
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
