// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/print.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

namespace gpushared::device::executor {
namespace {

// Limit for the width and the precision of a conversion.
constexpr int kFieldMax = 512;

bool ReadBytes(Warp& warp, const MicroOp* op, std::uint32_t lane, std::uint64_t address,
               std::uint32_t bytes, void* out) {
  const std::byte* from = ResolveGeneric(warp, op, lane, address, bytes, 1, Access::kRead);
  if (from == nullptr) return false;
  std::memcpy(out, from, bytes);
  return true;
}

// Reads at most `limit` bytes, without the terminating zero.
bool ReadString(Warp& warp, const MicroOp* op, std::uint32_t lane, std::uint64_t address,
                std::size_t limit, std::string* text) {
  for (std::size_t i = 0; i < limit; ++i) {
    char c = 0;
    if (!ReadBytes(warp, op, lane, address + i, 1, &c)) return false;
    if (c == '\0') break;
    text->push_back(c);
  }
  return true;
}

// Reads packed arguments in order, each naturally aligned. Compilers pass null for a call without
// arguments; conversions then get zero.
class Arguments {
 public:
  Arguments(Warp& warp, const MicroOp* op, std::uint32_t lane, std::uint64_t address)
      : warp_(warp), op_(op), lane_(lane), address_(address) {}

  template <typename T>
  bool Next(T* value) {
    if (address_ == 0) {
      *value = T{};
      return true;
    }
    offset_ = (offset_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    if (!ReadBytes(warp_, op_, lane_, address_ + offset_, sizeof(T), value)) return false;
    offset_ += sizeof(T);
    return true;
  }

 private:
  Warp& warp_;
  const MicroOp* op_;
  std::uint32_t lane_;
  std::uint64_t address_;
  std::uint64_t offset_ = 0;
};

// A parsed conversion: "%-8.3llf" has flags "-", width 8, precision 3, and 'f'.
struct Specification {
  std::string flags;
  int width = -1;
  int precision = -1;
  bool wide = false;  // l, ll, z, t or j.
  char conversion = '\0';
};

template <typename T>
void AppendFormatted(std::string* out, const Specification& spec, const char* length, T value) {
  std::string format = "%" + spec.flags;
  if (spec.width >= 0) format += std::to_string(std::min(spec.width, kFieldMax));
  if (spec.precision >= 0) format += "." + std::to_string(std::min(spec.precision, kFieldMax));
  format += length;
  format += spec.conversion;
  char text[2 * kFieldMax];
  // The format was assembled above from validated parts.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int written = std::snprintf(text, sizeof(text), format.c_str(), value);
#pragma GCC diagnostic pop
  if (written > 0) out->append(text, std::min(static_cast<std::size_t>(written), sizeof(text) - 1));
}

// Reads no more of the client's memory than is added to the text, so that the work is bounded by
// the size of the output.
bool AppendString(Warp& warp, const MicroOp* op, std::uint32_t lane, std::uint64_t address,
                  const Specification& spec, std::string* out) {
  std::size_t limit = kPrintBytesMax - out->size();
  if (spec.precision >= 0) limit = std::min(limit, static_cast<std::size_t>(spec.precision));
  std::string text;
  if (address == 0) {
    text = std::string("(null)").substr(0, limit);  // As the C libraries of hosts do.
  } else if (!ReadString(warp, op, lane, address, limit, &text)) {
    return false;
  }
  const auto width = static_cast<std::size_t>(std::clamp(spec.width, 0, kFieldMax));
  const std::string padding(width > text.size() ? width - text.size() : 0, ' ');
  const bool is_left = spec.flags.find('-') != std::string::npos;
  *out += is_left ? text + padding : padding + text;
  return true;
}

// Parses a number or '*' at *position.
bool ReadField(const std::string& format, std::size_t* position, Arguments* arguments, int* field) {
  if (*position < format.size() && format[*position] == '*') {
    ++*position;
    std::int32_t value = 0;
    if (!arguments->Next(&value)) return false;
    *field = std::clamp(value, -1, kFieldMax);
    return true;
  }
  while (*position < format.size() && format[*position] >= '0' && format[*position] <= '9') {
    *field = std::min(std::max(*field, 0) * 10 + (format[*position] - '0'), kFieldMax);
    ++*position;
  }
  return true;
}

bool IsOneOf(char c, const char* set) { return c != '\0' && std::strchr(set, c) != nullptr; }

// Parses a conversion. `position` is after the '%' and is moved past the conversion.
bool ReadSpecification(const std::string& format, std::size_t* position, Arguments* arguments,
                       Specification* spec) {
  while (*position < format.size() && IsOneOf(format[*position], "-+ #0")) {
    if (spec->flags.find(format[*position]) == std::string::npos) spec->flags += format[*position];
    ++*position;
  }
  if (!ReadField(format, position, arguments, &spec->width)) return false;
  if (*position < format.size() && format[*position] == '.') {
    ++*position;
    spec->precision = 0;
    if (!ReadField(format, position, arguments, &spec->precision)) return false;
  }
  while (*position < format.size() && IsOneOf(format[*position], "hlLzjt")) {
    spec->wide |= format[*position] != 'h';
    ++*position;
  }
  if (*position < format.size()) spec->conversion = format[(*position)++];
  return true;
}

bool AppendArgument(Warp& warp, const MicroOp* op, std::uint32_t lane, const Specification& spec,
                    Arguments* arguments, std::string* out) {
  std::uint64_t word = 0;
  std::int32_t narrow = 0;
  double real = 0;
  if (IsOneOf(spec.conversion, "diuxXo")) {
    if (spec.wide) {
      if (!arguments->Next(&word)) return false;
      AppendFormatted(out, spec, "ll", word);
    } else {
      if (!arguments->Next(&narrow)) return false;
      AppendFormatted(out, spec, "", narrow);
    }
  } else if (spec.conversion == 'c') {
    if (!arguments->Next(&narrow)) return false;
    AppendFormatted(out, spec, "", narrow & 0xff);
  } else if (IsOneOf(spec.conversion, "fFeEgGaA")) {
    if (!arguments->Next(&real)) return false;
    AppendFormatted(out, spec, "", real);
  } else if (spec.conversion == 'p') {
    if (!arguments->Next(&word)) return false;
    AppendFormatted(out, spec, "", reinterpret_cast<void*>(word));
  } else if (spec.conversion == 's') {
    if (!arguments->Next(&word) || !AppendString(warp, op, lane, word, spec, out)) return false;
  } else {  // Unknown conversions are printed literally and take no argument.
    out->push_back('%');
    if (spec.conversion != '\0') out->push_back(spec.conversion);
  }
  return true;
}

std::string Bracketed(const Dim3& place) {
  return "[" + std::to_string(place.x) + "," + std::to_string(place.y) + "," +
         std::to_string(place.z) + "]";
}

}  // namespace

bool PrintFormatted(Warp& warp, const MicroOp* op, std::uint32_t lane, std::uint64_t format_address,
                    std::uint64_t argument_address, std::int32_t* conversions) {
  std::string format;
  if (!ReadString(warp, op, lane, format_address, kPrintBytesMax, &format)) return false;
  Arguments arguments(warp, op, lane, argument_address);
  std::string out;
  for (std::size_t i = 0; i < format.size() && out.size() < kPrintBytesMax;) {
    const char c = format[i++];
    if (c != '%') {
      out.push_back(c);
    } else if (i < format.size() && format[i] == '%') {
      out.push_back(format[i++]);
    } else {
      Specification spec;
      if (!ReadSpecification(format, &i, &arguments, &spec)) return false;
      if (!AppendArgument(warp, op, lane, spec, &arguments, &out)) return false;
      ++*conversions;
    }
  }
  if (out.size() > kPrintBytesMax) out.resize(kPrintBytesMax);
  const PrintFunction* print = warp.block->launch->print;
  if (print != nullptr && *print) (*print)(out);
  return true;
}

void RaiseAssert(Warp& warp, const MicroOp* op, std::uint32_t lane, std::uint64_t message,
                 std::uint64_t file, std::uint32_t line, std::uint64_t function) {
  std::string message_text, file_text, function_text;
  if (!ReadString(warp, op, lane, message, kPrintBytesMax, &message_text)) return;
  if (!ReadString(warp, op, lane, file, kPrintBytesMax, &file_text)) return;
  if (!ReadString(warp, op, lane, function, kPrintBytesMax, &function_text)) return;
  RaiseFault(warp, op, Fault::Kind::kAssert, lane, 0, 0);
  // The message ends in the format that CUDA prints to the program's stderr, which the drop-in
  // library parses.
  Fault& fault = *warp.block->fault;
  fault.message += ", " + file_text + ":" + std::to_string(line) + ": " + function_text +
                   ": block: " + Bracketed(fault.block) + ", thread: " + Bracketed(fault.thread) +
                   " Assertion `" + message_text + "` failed.";
}

}  // namespace gpushared::device::executor
