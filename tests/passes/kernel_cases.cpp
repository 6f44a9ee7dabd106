// SPDX-License-Identifier: Apache-2.0
#include "tests/passes/kernel_cases.h"

#include <cstring>
#include <random>

namespace gpushared::testing {
namespace {

Argument Zeros(std::uint32_t words) { return {.kind = Argument::Kind::kZeros, .count = words}; }
Argument Bytes(std::uint32_t count) { return {.kind = Argument::Kind::kBytes, .count = count}; }
Argument Words(std::uint32_t count, std::uint32_t below = 256) {
  return {.kind = Argument::Kind::kWords, .count = count, .below = below};
}
Argument Floats(std::uint32_t count) { return {.kind = Argument::Kind::kFloats, .count = count}; }
template <typename T>
Argument Value(T value) {
  static_assert(sizeof value == 4);
  Argument argument;
  std::memcpy(argument.value.data(), &value, sizeof value);
  return argument;
}
Argument Int(int value) { return Value(value); }

}  // namespace

const std::vector<Case>& Cases() {
  static const std::vector<Case> kCases = {
      {"claims", "place", {5, 3, 4}, {3, 5, 2}, {Zeros(60 * 30 * 4), Zeros(60 * 30 * 4)}},
      {"claims", "place", {7}, {45}, {Zeros(7 * 45 * 4), Zeros(7 * 45 * 4)}},
      {"claims", "place", {1, 1, 6}, {1}, {Zeros(24), Zeros(24)}},
      {"claims", "columns", {5, 3, 2}, {33}, {Zeros(32)}},
      {"claims", "columns", {17}, {33}, {Zeros(32)}},
      {"claims", "rows", {5, 3, 2}, {32}, {Zeros(32)}},
      {"claims", "planes", {2, 3, 5}, {32}, {Zeros(32)}},
      {"claims", "sizes_only", {2, 3, 5}, {1, 40}, {Zeros(64)}},
      {"claims", "no_parameters", {23}, {64}, {}},
      {"claims", "dynamic_shared", {9}, {40}, {Zeros(9 * 40 * 3), Int(0)}, 0},
      {"claims", "dynamic_shared", {9}, {40}, {Zeros(9 * 40 * 3), Int(1)}, 1},
      {"claims", "dynamic_shared", {9}, {40}, {Zeros(9 * 40 * 3), Int(77)}, 77},
      {"claims", "dynamic_shared", {9}, {40}, {Zeros(9 * 40 * 3), Int(128)}, 128},
      {"claims", "aligned_shared", {6}, {50}, {Zeros(300)}, 800},
      {"claims", "bounded", {9}, {64}, {Words(9 * 64)}},
      {"claims", "leaves", {11}, {72}, {Zeros(11 * 72)}},
      {"claims", "last_block", {19}, {32}, {Zeros(32), Zeros(1), Zeros(1)}},
      {"claims", "grid_stride", {6}, {32}, {Words(1000), Zeros(1000), Int(1000)}},
      {"claims", "look_back_scan", {24}, {32}, {Words(768), Zeros(768), Zeros(64)}},
      {"claims", "retried", {12}, {32}, {Zeros(2)}},
      {"barriers", "many_rounds", {5}, {70}, {Zeros(350), Int(4)}, 280},
      {"barriers", "producer_consumer", {7}, {128}, {Zeros(160)}},
      {"barriers", "reductions", {7}, {100}, {Zeros(300), Int(40), Int(1)}},
      {"barriers", "parted_warp", {5}, {64}, {Zeros(64)}},
      {"barriers", "counts_whole_warps", {5}, {80}, {Zeros(80)}},
      {"classic", "vector_add", {9}, {64}, {Floats(550), Floats(550), Zeros(550), Int(550)}},
      {"classic", "saxpy", {5}, {96}, {Int(1000), Value(2.5f), Floats(1000), Floats(1000)}},
      {"classic",
       "matrix_product_tiled",
       {2, 2},
       {16, 16},
       {Floats(1024), Floats(1024), Zeros(1024), Int(32)}},
      {"classic",
       "matrix_product_naive",
       {2, 4},
       {8, 4},
       {Floats(256), Floats(256), Zeros(256), Int(16)}},
      {"classic", "reduce", {5}, {256}, {Floats(2000), Zeros(1), Int(2000)}},
      {"classic", "histogram", {4}, {256}, {Bytes(3000), Zeros(256), Int(3000)}},
      {"classic", "mandelbrot", {3, 4}, {8, 4}, {Zeros(384), Int(24), Int(16), Int(20)}},
      {"classic", "n_body", {3}, {32}, {Floats(400), Zeros(400), Int(9)}},
      {"classic", "scan_blocks", {4}, {256}, {Words(1000), Zeros(1000), Int(1000)}},
      {"classic", "transpose", {3, 2}, {16, 16}, {Floats(1500), Zeros(1500), Int(40), Int(30)}},
      {"classic", "bitonic_sort", {2}, {512}, {Words(2048, 100000)}},
      {"classic", "stencil", {2, 5}, {32, 4}, {Floats(1200), Zeros(1200), Int(60), Int(20)}},
      {"classic", "softmax", {6}, {128}, {Floats(900), Zeros(900), Int(150)}},
      {"classic",
       "tanh_layer",
       {2, 4},
       {32},
       {Floats(2000), Floats(60), Floats(200), Zeros(300), Int(20), Int(50)}},
      {"divergence", "walk", {9}, {64}, {Zeros(600), Int(550)}},
      {"divergence", "select_case", {5}, {64}, {Words(64), Zeros(64)}},
      {"divergence", "early_return", {5}, {64}, {Zeros(64)}},
      {"divergence", "exchange_after_parting", {5}, {64}, {Zeros(64), Int(5)}},
      {"fences", "module_variables", {7}, {32}, {Zeros(224)}},
      {"fences", "generic_addresses", {7}, {48}, {Zeros(2048), Int(0)}},
      {"fences", "generic_addresses", {7}, {48}, {Zeros(2048), Int(1)}},
      {"fences",
       "constant_parameter",
       {7},
       {32},
       {Words(1024), Int(40), Int(3), Int(1), Int(4), Int(1), Int(5), Int(9), Int(2), Int(1)}},
      {"fences", "vectors", {7}, {32}, {Words(896), Zeros(896), Zeros(896)}},
      {"fences", "walking_pointers", {5}, {32}, {Words(4096), Zeros(96), Int(50)}},
      {"fences", "far_offsets", {5}, {32}, {Zeros(20100)}},
      {"fences", "local_arrays", {5}, {64}, {Zeros(64), Int(7)}},
      {"fences", "atomics", {7}, {64}, {Zeros(32)}},
      {"fences", "seldom", {5}, {64}, {Words(1280, 0xffffffff), Zeros(1280)}},
      {"functions", "pass_structs", {4}, {40}, {Zeros(128)}},
      {"functions", "recurse", {4}, {40}, {Zeros(64)}},
      {"functions", "call_each_other", {4}, {40}, {Zeros(64)}},
      {"functions", "exchange_in_function", {4}, {64}, {Zeros(64)}},
      {"functions", "barrier_in_function", {4}, {128}, {Zeros(128)}},
      {"functions", "exit_in_function", {4}, {64}, {Zeros(64)}},
  };
  return kCases;
}

std::vector<std::byte> FillBuffers(const Case& what, std::byte* memory, std::uint64_t& used_bytes) {
  std::vector<std::byte> parameters;
  for (const Argument& argument : what.arguments) {
    if (argument.kind == Argument::Kind::kValue) {
      parameters.insert(parameters.end(), argument.value.begin(), argument.value.end());
      continue;
    }
    used_bytes = (used_bytes + 255) / 256 * 256;
    std::byte* const at = memory + used_bytes;
    used_bytes += std::uint64_t{argument.count} * 4;
    std::mt19937 random(argument.count);
    std::memset(at, 0, std::size_t{argument.count} * 4);
    for (std::uint32_t i = 0; i < argument.count; ++i) {
      const auto word = static_cast<std::uint32_t>(random() % argument.below);
      const auto real = static_cast<float>(word);
      if (argument.kind == Argument::Kind::kBytes) at[i] = static_cast<std::byte>(word);
      if (argument.kind == Argument::Kind::kWords) std::memcpy(at + 4 * i, &word, 4);
      if (argument.kind == Argument::Kind::kFloats) std::memcpy(at + 4 * i, &real, 4);
    }
    parameters.resize((parameters.size() + 7) / 8 * 8);
    const auto* bytes = reinterpret_cast<const std::byte*>(&at);
    parameters.insert(parameters.end(), bytes, bytes + sizeof at);
  }
  return parameters;
}

}  // namespace gpushared::testing
