// SPDX-License-Identifier: Apache-2.0
// Constant expressions and initial values, compared with those that ptxas writes into a cubin. The
// tables contain the values of the ptxas of CUDA 13.0; random expressions are compared with the
// installed ptxas.
#include "common/ptx/text/constant.h"

#include <elf.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/ptx/text/parser.h"
#include "server/ptx/analysis/variable_layout.h"
#include "tests/support/read_file.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::ptx {
namespace {

using ::testing::HasSubstr;

constexpr const char* kConstantHeader = ".version 8.3\n.target sm_80\n.address_size 64\n";

// Returns the initial bytes of variable `v`; nothing if the declarations are rejected.
std::optional<std::string> GetInitialValue(const std::string& declarations) {
  const Result<Module> module = Parse(kConstantHeader + declarations);
  if (!module) return std::nullopt;
  const Result<ModuleLayout> layout = LayOutModule(*module);
  if (!layout) return std::nullopt;
  const VariablePlacement* const v = layout->Find("v");
  if (v == nullptr) return std::nullopt;
  const std::vector<std::byte> bytes = layout->InitialBytes(0);
  return std::string(reinterpret_cast<const char*>(bytes.data()) + v->offset, v->bytes);
}

std::optional<std::uint64_t> ValueFor(const std::string& type, const std::string& expression) {
  const auto bytes = GetInitialValue(".global ." + type + " v = " + expression + ";");
  if (!bytes) return std::nullopt;
  std::uint64_t value = 0;
  std::memcpy(&value, bytes->data(), std::min(bytes->size(), sizeof value));
  return value;
}

struct Example {
  const char* type;
  const char* expression;
  std::uint64_t value;
};
constexpr std::uint64_t kAllOnes = ~std::uint64_t{0};

// Cases that the random expressions below do not contain.
constexpr Example kExamples[] = {
    {"u64", "0x8000000000000000/-1", 0},
    {"u64", "(-9223372036854775807-1)/-1", std::uint64_t{1} << 63},
    {"u64", "-(-(-(5)))", kAllOnes - 4},
    {"u64", "5--3", 8},
    {"u64", "5-+3", 2},
    {"u64", "18446744073709551617", 1},
    {"u32", "4294967296", 0},
    {"u32", "-2147483649", 0x7fffffff},
    {"s8", "-129", 0x7f},
    {"b32", "1.5", 0x3fc00000},
    {"b32", "0f3F800000", 0x3f800000},
    {"b32", "0d3FF8000000000000", 0x3fc00000},
    {"b64", "1.5", 0x3ff8000000000000},
    {"b16", "0f3F801234", 0x1234},
    {"b128", "-1", kAllOnes},
    {"f32", "(0f3F800000)", 0x3f800000},
    {"f32", "0d3FF8000000000000", 0x3fc00000},
    {"f32", "1.0/3.0", 0x3eaaaaab},
    {"f32", "0.1+0.2", 0x3e99999a},
    {"f32", "1e39", 0x7f800000},
    {"f32", "1e-45", 1},
    {"f32", "1.0000000596046448", 0x3f800000},
    {"f64", "-.5e1", 0xc014000000000000},
    {"f64", "5.", 0x4014000000000000},
    {"f64", "1e308*10.0", 0x7ff0000000000000},
    {"f64", "1.0e-200*1.0e-120", 0x7e8},
    {"f64", "2.0--1.5", 0x400c000000000000},
};

TEST(Constants, HaveTheValuesThatPtxasGivesThem) {
  for (const Example& example : kExamples) {
    EXPECT_EQ(ValueFor(example.type, example.expression), std::optional(example.value))
        << "." << example.type << " " << example.expression;
  }
}

TEST(Constants, AreRejectedIfPtxasRejectsThem) {
  const std::map<std::string, std::vector<const char*>> rejected = {
      {"u64",
       {"1/0",  "1 % 0", "0&&1/0",       "1?2:1/0",   "7%4",     "1+1.5",   "1.5&1",  "1.5 % 2.0",
        "~1.5", "!1.5",  "1.5?2:3",      "(.s64)1.5", "(.u32)5", "(.f64)5", "1.5",    "0f3F800000",
        "08",   "5u",    "5L",           "'a'",       "1 2",     "(1,2)",   "1?2",    "()",
        "5+",   "1=1",   "1&&&2",        "sizeof(v)", "0x1p3",   "(5)(6)",  "3*(2+1", "v*2",
        "8+v",  "(v)",   "generic(v+8)", "v+v",       "v+1.5",   "v",       "nowhere"}},
      {"f64", {"1.0/0.0", "1?1.5:2.5", "WARP_SZ", "1e400", "2.5e-310"}},
      {"f32", {"-0f3F800000", "0f3F800000+1.0", "1"}},
      {"f16", {"1.5"}},
      {"f16x2", {"1"}},
      {"pred", {"1"}},
      {"b64", {"v"}},
      {"s64", {"v"}},
      {"u8", {"v", "0xFF0(v)", "0xF0(v)", "(0xFF)(v)", "0xFF(v)+1"}},
      {"u16", {"0xFF(v)"}},
      {"u32", {"0xFFFF(v)"}},
  };
  for (const auto& [type, expressions] : rejected) {
    for (const char* expression : expressions) {
      EXPECT_EQ(ValueFor(type, expression), std::nullopt) << "." << type << " " << expression;
    }
  }
}

TEST(Constants, NestOnlyToMaximumDepth) {
  const auto repeat = [](const std::string& part, std::size_t times) {
    std::string all;
    for (std::size_t i = 0; i < times; ++i) all += part;
    return all;
  };
  EXPECT_EQ(ValueFor("u64", repeat("(", 60) + "7" + repeat(")", 60)),
            std::optional<std::uint64_t>(7));
  EXPECT_EQ(ValueFor("u64", repeat("1+", 100000) + "1"), std::optional<std::uint64_t>(100001));
  for (const char* part :
       {"(", "-", "!", "(.s64)", "1?", "1?2:", "1+(", "1||1&&1|1^1&1==1<1<<1+1*("}) {
    const std::string deep = repeat(part, 100000) + "1";
    const Result<Module> module = Parse(kConstantHeader + (".global .u32 a[" + deep + "];"));
    EXPECT_THAT(std::string(module.status().message()), HasSubstr("nested deeper than 64")) << part;
  }
}

// Declarations of the variable `v`, and its initial bytes.
struct Shape {
  const char* declarations;
  std::vector<std::uint8_t> bytes;
};

TEST(InitialValues, FillTheElementsOfTheirBraces) {
  const Shape shapes[] = {
      {".u8 v[4] = {2-1,5}", {1, 5, 0, 0}},
      {".u8 v[2] = {}", {0, 0}},
      {".u8 v[] = {1+1,2*3}", {2, 6}},
      {".u8 v[][3] = {{1,2,3},{4,5}}", {1, 2, 3, 4, 5, 0}},
      {".s8 v[][2] = {{-1,0},{0,-1}}", {255, 0, 0, 255}},
      {".u8 v[2][2] = {{1},{2}}", {1, 2, 0, 0}},
      {".u8 v[2][2] = {{},{1}}", {1, 0, 0, 0}},
      {".u8 v[2][2][2] = {{{1,2},{3,4}},{{5},{6}}}", {1, 2, 3, 4, 5, 6, 0, 0}},
      {".v2 .u8 v = {1,2}", {1, 2}},
      {".v2 .u8 v[2] = {{1,2},{3,4}}", {1, 2, 3, 4}},
      {".v2 .u8 v[] = {{1,2},{3,4}}", {1, 2, 3, 4}},
      {".u8 v[3] = {(1?2:3),0?1:2,(1,2,3)}", {}},
      {".u8 v[2] = {1,2,}", {}},
      {".u8 v[2] = {1,2,3}", {}},
      {".u8 v[2] = {1,,2}", {}},
      {".u8 v[2] = {1 2}", {}},
      {".u8 v[2] = 1", {}},
      {".u8 v = {7}", {}},
      {".u8 v[] = {}", {}},
      {".u8 v[2][2] = {1,2,3,4}", {}},
      {".u8 v[2][2] = {{1},2}", {}},
      {".u8 v[2][2] = {{1,2,3},{4}}", {}},
      {".u8 v[2][2] = {{{1}},{{2}}}", {}},
      {".u8 v[][3] = {1,2,3,4}", {}},
      {".v2 .u8 v = {1}", {}},
      {".v2 .u8 v = {{1,2}}", {}},
      {".v2 .u8 v[2] = {1,2,3,4}", {}},
      {".v2 .u8 v[2] = {{1},{3,4}}", {}},
      {".u8 v[2] = {1}}", {}},
  };
  for (const Shape& shape : shapes) {
    const auto value = GetInitialValue(std::string(".global ") + shape.declarations + ";");
    EXPECT_EQ(value.has_value(), !shape.bytes.empty()) << shape.declarations;
    const std::string wanted(shape.bytes.begin(), shape.bytes.end());
    EXPECT_EQ(value.value_or(""), wanted) << shape.declarations;
  }
}

TEST(InitialValues, HoldAddressesWithExpressionsAsOffsets) {
  // `w` is the first of the module's variables, at address 0 here.
  const std::string w = ".global .align 256 .b8 w[4096];\n";
  for (const auto& [declaration, value] :
       std::initializer_list<std::pair<const char*, std::uint64_t>>{
           {".u64 v = w+8-4", 4},
           {".u64 v = w+4-8", kAllOnes - 3},
           {".u64 v = w-4+8", 4},
           {".u64 v = w-0", 0},
           {".u64 v = w+1<<2", 4},
           {".u64 v = w+1?4:2", 4},
           {".u64 v = w+WARP_SZ", 32},
           {".u64 v = generic(w)+(4)", 4},
           {".u64 v = generic(w)+2*4", 8},
           {".u32 v = w+4", 4},
           {".u8 v = 0xFF(w+0x123)", 0x23},
           {".u8 v = 0xFF00(generic(w)+0x123)", 1},
           {".u32 v = 0xFF(w+0x123)", 0x23},
           {".u8 v = 255(w+3)", 3}}) {
    const auto bytes = GetInitialValue(w + ".global " + declaration + ";");
    ASSERT_TRUE(bytes) << declaration;
    std::uint64_t found = 0;
    std::memcpy(&found, bytes->data(), bytes->size());
    EXPECT_EQ(found, value) << declaration;
  }
}

// ---- against ptxas

constexpr std::size_t kRandomConstants = 10000;
constexpr std::size_t kRejectedOnes = 20;  // ptxas reads a separate file for each.

class RandomConstants {
 public:
  // Returns an expression of an integer, or of a double. Either may be rejected because of a
  // division by zero.
  std::string Integer(int depth) {
    if (depth == 0 || Pick(6) == 0) return Literal();
    switch (Pick(9)) {
      case 0:
        return "(" + Integer(depth - 1) + ")";
      case 1:
        return Any({"-", "+", "!", "~", "- "}) + Primary(depth - 1);
      case 2:
        return Any({"(.s64)", "(.u64)"}) + Primary(depth - 1);
      case 3:
        return Primary(depth - 1) + " ? " + Integer(depth - 1) + " : " + Integer(depth - 1);
      case 4:
        return Double(depth - 1) + Any({"<", ">", "<=", ">=", "==", "!="}) + Double(depth - 1);
      default:
        return Integer(depth - 1) +
               Any({"*", "/", " % ", "+", "-", "<<", ">>", "<", ">", "<=", ">=", "==", "!=", "&",
                    "^", "|", "&&", "||"}) +
               Integer(depth - 1);
    }
  }

  std::string Double(int depth) {
    if (depth == 0 || Pick(4) == 0) return DoubleLiteral();
    if (Pick(4) == 0) return "(" + Double(depth - 1) + ")";
    if (Pick(5) == 0) return Any({"-", "+"}) + ("(" + Double(depth - 1) + ")");
    return Double(depth - 1) + Any({"*", "/", "+", "-"}) + Double(depth - 1);
  }

  std::size_t Pick(std::size_t count) { return random_() % count; }

 private:
  std::string Any(std::initializer_list<const char*> texts) {
    return texts.begin()[Pick(texts.size())];
  }
  std::string Primary(int depth) {
    return Pick(2) == 0 || depth <= 0 ? Literal() : "(" + Integer(depth) + ")";
  }
  std::string Literal() {
    switch (Pick(6)) {
      case 0:
        return Any({"0", "1", "2", "63", "64", "WARP_SZ", "4294967296", "0x7fffffffffffffff",
                    "0x8000000000000000", "0xffffffffffffffff", "9223372036854775808", "0U", "017",
                    "0b101U", "0XFFu", "08"});
      case 1:
        return std::to_string(random_()) + (Pick(2) == 0 ? "U" : "");
      default:
        return std::to_string(Pick(20)) + (Pick(5) == 0 ? "U" : "");
    }
  }
  std::string DoubleLiteral() {
    return Any({"0.0", "1.0", "1.5", "2.", ".25", "1e3", "1.5e-3", "1.e+2", "7.25E1", "0.1", "3.0",
                "1e300", "1e-300", "0d3FF8000000000000", "123456789.125"});
  }

  std::mt19937_64 random_{41};
};

// Whether ptxas may crash on the expression: it does if the smallest number is divided by -1.
bool MayEndPtxas(const std::string& expression) {
  return expression.find('/') != std::string::npos &&
         (expression.find("9223372036854775808") != std::string::npos ||
          expression.find("8000000000000000") != std::string::npos);
}

template <typename T>
T FromFile(const std::string& file, std::uint64_t offset) {
  T value = {};
  if (offset + sizeof value <= file.size()) std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

// Returns the initial bytes of a variable in a cubin; empty if there is no such symbol.
std::string BytesOfSymbol(const std::string& cubin, const std::string& name) {
  const auto header = FromFile<Elf64_Ehdr>(cubin, 0);
  const auto section = [&](std::uint64_t index) {
    return FromFile<Elf64_Shdr>(cubin, header.e_shoff + index * header.e_shentsize);
  };
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr symbols = section(i);
    if (symbols.sh_type != SHT_SYMTAB) continue;
    const std::uint64_t names = section(symbols.sh_link).sh_offset;
    for (std::uint64_t at = 0; at < symbols.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = FromFile<Elf64_Sym>(cubin, symbols.sh_offset + at);
      if (name != cubin.c_str() + names + symbol.st_name) continue;
      const Elf64_Shdr memory = section(symbol.st_shndx);
      return cubin.substr(memory.sh_offset + symbol.st_value, symbol.st_size);
    }
  }
  return {};
}

// Returns the cubin, or nothing if ptxas rejects the text.
std::optional<std::string> Assembled(const std::string& declarations) {
  const testing::ScratchDirectory scratch;
  const std::string in = scratch / "in.ptx", out = scratch / "out.cubin";
  std::ofstream(in) << kConstantHeader << declarations;
  const std::string command = std::string(GPUSHARED_TEST_CUDA_BIN) + "/ptxas -arch=sm_80 " + in +
                              " -o " + out + " 2> " + (scratch / "report");
  if (std::system(command.c_str()) != 0) return std::nullopt;
  return testing::ReadFile(out);
}

TEST(Constants, AgreeWithPtxasOnTenThousandRandomExpressions) {
  if (!std::filesystem::exists(std::string(GPUSHARED_TEST_CUDA_BIN) + "/ptxas")) {
    GTEST_SKIP() << "needs ptxas";
  }
  constexpr std::array<const char*, 8> kTypes = {"u64", "s64", "u32", "s16",
                                                 "u8",  "f64", "f32", "b32"};
  RandomConstants random;
  std::array<std::vector<std::string>, kTypes.size()> taken;
  std::vector<std::string> rejected;
  std::size_t count = 0;
  while (count < kRandomConstants) {
    const std::size_t t = count % kTypes.size();
    const bool is_real = std::string(kTypes[t]).starts_with('f');
    const std::string expression = is_real ? random.Double(4) : random.Integer(5);
    if (MayEndPtxas(expression)) continue;
    if (ValueFor(kTypes[t], expression)) {
      taken[t].push_back(expression);
      ++count;
    } else if (rejected.size() < kRejectedOnes) {
      rejected.push_back(std::string(".global .") + kTypes[t] + " v = " + expression + ";\n");
    }
  }
  std::string declarations;
  for (std::size_t t = 0; t < kTypes.size(); ++t) {
    declarations +=
        std::string(".visible .global .") + kTypes[t] + " v" + std::to_string(t) + "[] = {\n";
    for (std::size_t i = 0; i < taken[t].size(); ++i) {
      declarations += (i == 0 ? "" : ",\n") + taken[t][i];
    }
    declarations += "};\n";
  }
  const auto cubin = Assembled(declarations);
  ASSERT_TRUE(cubin) << "ptxas rejects expressions that the parser accepts";
  const Result<Module> module = Parse(kConstantHeader + declarations);
  ASSERT_TRUE(module) << module.status().message();
  const Result<ModuleLayout> layout = LayOutModule(*module);
  ASSERT_TRUE(layout) << layout.status().message();
  for (std::size_t t = 0; t < kTypes.size(); ++t) {
    const std::string theirs = BytesOfSymbol(*cubin, "v" + std::to_string(t));
    const VariablePlacement& ours = layout->variables[t];
    ASSERT_EQ(theirs.size(), ours.bytes);
    const std::size_t bytes = TypeBytes(kTypes[t]);
    for (std::size_t i = 0; i < taken[t].size(); ++i) {
      ASSERT_EQ(std::memcmp(theirs.data() + i * bytes,
                            layout->initial.data() + ours.offset + i * bytes, bytes),
                0)
          << "." << kTypes[t] << " " << taken[t][i] << " is " << *ValueFor(kTypes[t], taken[t][i]);
    }
  }
  for (const std::string& each : rejected) EXPECT_FALSE(Assembled(each)) << each;
}

}  // namespace
}  // namespace gpushared::ptx
