// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/address_value.h"

namespace gpushared::ptx {
namespace {

using Kind = AddressValue::Kind;

void TakeForeignPart(AddressValue& value, const AddressValue& other) {
  if (value.IsForeign()) return;
  value.foreign = other.foreign;
  value.foreign_line = other.foreign_line;
}

// Whether the value is a number without roots other than words, so that adding it to an address
// only moves the address.
bool IsPlainNumber(const AddressValue& value) {
  return value.kind == Kind::kNumber && !value.HasOtherRoots();
}

AddressValue MovedBy(const AddressValue& pointer, const AddressValue& number) {
  AddressValue moved = pointer;
  moved.others |= number.Words();
  moved.is_difference |= number.is_difference;
  TakeForeignPart(moved, number);
  return moved;
}

}  // namespace

bool AddressValue::Join(const AddressValue& other) {
  if (other.IsNothing()) return false;
  if (IsNothing()) {
    *this = other;
    return true;
  }
  const AddressValue before = *this;
  if (kind == Kind::kPointer && other.kind == Kind::kPointer) {
    roots |= other.roots;
    others |= other.others;
    parameters |= other.parameters;
    is_variable |= other.is_variable;
    is_own |= other.is_own;
    is_difference |= other.is_difference;
    TakeForeignPart(*this, other);
  } else {
    *this = Mixed(*this, other);
  }
  return kind != before.kind || foreign != before.foreign || roots != before.roots ||
         others != before.others || parameters != before.parameters ||
         is_variable != before.is_variable || is_own != before.is_own ||
         is_difference != before.is_difference;
}

AddressValue AddressValue::Number() {
  AddressValue value;
  value.kind = Kind::kNumber;
  return value;
}

AddressValue AddressValue::FromElsewhere(Foreign how, std::uint32_t line) {
  AddressValue value = Number();
  value.foreign = how;
  value.foreign_line = line;
  return value;
}

AddressValue AddressValue::Own() {
  AddressValue value;
  value.kind = Kind::kPointer;
  value.is_own = true;
  return value;
}

AddressValue AddressValue::Variable() {
  AddressValue value;
  value.kind = Kind::kPointer;
  value.is_variable = true;
  return value;
}

AddressValue AddressValue::Mixed(const AddressValue& a, const AddressValue& b) {
  AddressValue value = Number();
  value.others = a.Words() | b.Words();
  value.parameters = a.parameters | b.parameters;
  value.is_variable = a.is_variable || b.is_variable;
  value.is_own = a.is_own || b.is_own;
  value.is_difference = a.is_difference || b.is_difference;
  TakeForeignPart(value, a);
  TakeForeignPart(value, b);
  return value;
}

AddressValue AddressValue::Sum(const AddressValue& a, const AddressValue& b) {
  if (a.kind == Kind::kPointer && IsPlainNumber(b)) return MovedBy(a, b);
  if (b.kind == Kind::kPointer && IsPlainNumber(a)) return MovedBy(b, a);
  return Mixed(a, b);
}

AddressValue AddressValue::Difference(const AddressValue& a, const AddressValue& b) {
  return Sum(a, Negative(b));
}

AddressValue AddressValue::Negative(const AddressValue& a) {
  AddressValue value = Mixed(a, Number());
  value.is_difference |= value.others.any();
  return value;
}

AddressValue AddressValue::Reduced(const AddressValue& a) {
  AddressValue value = Number();
  value.others = a.Words();
  value.is_difference = a.is_difference;
  return value;
}

AddressValue AddressValue::AsPointer(const AddressValue& a) {
  // Leaves a sum with a foreign part unchanged, because it is unknown which part is the address.
  if (a.kind != Kind::kNumber || a.IsForeign()) return a;
  if (a.others.none() && !a.HasOtherRoots()) return a;
  AddressValue pointer = a;
  pointer.kind = Kind::kPointer;
  pointer.roots = a.others;
  pointer.others.reset();
  return pointer;
}

AddressValue AddressValue::Loaded(const AddressValue& address, std::uint32_t line) {
  const bool is_parameter = address.kind == Kind::kPointer && address.parameters.any() &&
                            address.roots.none() && !address.is_variable && !address.is_own;
  if (!is_parameter) return FromElsewhere(Foreign::kMemory, line);
  AddressValue value = Number();
  value.others = address.parameters;
  return value;
}

}  // namespace gpushared::ptx
