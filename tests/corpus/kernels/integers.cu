// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic, bits, comparisons and conversions, for every width and sign.
#include "tests/corpus/kernels/apply.h"

namespace gpushared::corpus {
namespace {

// Unsigned type of the same size, because overflow wraps only in unsigned types in C++.
template <typename T>
using Wrapping = std::make_unsigned_t<T>;
template <typename T>
__host__ __device__ std::uint64_t Wide(T value) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
}

struct Arithmetic {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    const std::uint64_t x = Wide(a), y = Wide(b);
    return static_cast<T>((x + y) * 3 ^ (x - y) ^ x * y);
  }
};
struct Division {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    if (b == 0 || b == static_cast<T>(-1)) return a;
    return static_cast<T>(a / b + a % b);
  }
};
struct Extremes {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    const T low = a < b ? a : b, high = a < b ? b : a;
    return static_cast<T>(Wide(low) * 5 + Wide(high));
  }
};
struct Bits {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    const int shift = static_cast<int>(Wide(b) % (sizeof(T) * 8));
    const auto up = static_cast<T>(static_cast<Wrapping<T>>(a) << shift);
    return static_cast<T>((a & b) ^ (a | ~b) ^ up ^ static_cast<T>(a >> shift));
  }
};
struct Relations {
  template <typename T>
  __host__ __device__ int operator()(T a, T b) const {
    return (a < b) | (a <= b) << 1 | (a > b) << 2 | (a >= b) << 3 | (a == b) << 4 | (a != b) << 5;
  }
};
struct ToReal {
  template <typename T>
  __host__ __device__ double operator()(T a, T b) const {
    return static_cast<double>(a) + static_cast<double>(static_cast<float>(b));
  }
};
struct ToNarrow {
  template <typename T>
  __host__ __device__ std::int64_t operator()(T a, T b) const {
    return static_cast<std::int8_t>(a) + static_cast<std::int16_t>(b) * 1000LL +
           static_cast<std::uint8_t>(b) * 100000000LL;
  }
};

struct CountedBits {
  __host__ __device__ int operator()(std::uint32_t a, std::uint32_t b) const {
    const std::uint32_t base = b & 31;
    const int offset = static_cast<int>(b >> 5 & 15) - 7;
#ifdef __CUDA_ARCH__
    return __popc(a) + __clz(static_cast<int>(b)) * 100 + __ffs(static_cast<int>(a)) * 10000 +
           __popcll(a * 0x100000001ull) + static_cast<int>(__fns(a, base, offset)) * 1000000;
#else
    const int leading = b == 0 ? 32 : __builtin_clz(b);
    int nth = -1, left = offset == 0 ? 1 : offset < 0 ? -offset : offset;
    for (int at = static_cast<int>(base); nth < 0 && at >= 0 && at < 32;
         at += offset < 0 ? -1 : 1) {
      if ((a >> at & 1) != 0 && --left == 0) nth = at;
      if (offset == 0) break;
    }
    return __builtin_popcount(a) * 3 + leading * 100 + __builtin_ffs(static_cast<int>(a)) * 10000 +
           nth * 1000000;
#endif
  }
};
struct HighProducts {
  __host__ __device__ std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const {
    const auto x = static_cast<std::uint32_t>(a), y = static_cast<std::uint32_t>(b);
#ifdef __CUDA_ARCH__
    return __umul64hi(a, b) + __umulhi(x, y) +
           static_cast<std::uint64_t>(
               __mul64hi(static_cast<long long>(a), static_cast<long long>(b)));
#else
    const auto high = static_cast<std::uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
    const auto signed_high = static_cast<std::uint64_t>(
        (static_cast<__int128>(static_cast<long long>(a)) * static_cast<long long>(b)) >> 64);
    return high + (std::uint64_t{x} * y >> 32) + signed_high;
#endif
  }
};
// nvcc compiles the division of 128-bit numbers to chains of additions and subtractions that pass
// the carry on to each other.
struct WideDivision {
  using Wide = unsigned __int128;
  __host__ __device__ std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const {
    const Wide x = static_cast<Wide>(a) << 64 | (a * 0x9e3779b97f4a7c15 ^ b);
    const Wide y = (static_cast<Wide>(b) << 64 | (a ^ ~b)) >> (b % 120) | 1;
    const auto signed_x = static_cast<__int128>(x), signed_y = static_cast<__int128>(y);
    Wide sum = x / y;
    for (const Wide part : {x % y, x / (b | 1), x % (b | 1), x / 10, x % 1000000007}) {
      sum = sum * 31 + part;
    }
    for (const __int128 part : {signed_x / signed_y, signed_x % signed_y, signed_x / -7,
                                signed_x % static_cast<std::int64_t>(b | 1)}) {
      sum = sum * 31 + static_cast<Wide>(part);
    }
    return static_cast<std::uint64_t>(sum) ^ static_cast<std::uint64_t>(sum >> 64);
  }
};
struct ByteTricks {
  __host__ __device__ std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const {
#ifdef __CUDA_ARCH__
    return __byte_perm(a, b, 0x6143) ^ __funnelshift_l(a, b, b & 31) ^ __brev(a) ^
           __usad(a, b, 3u) ^
           static_cast<std::uint32_t>(__dp4a(static_cast<int>(a), static_cast<int>(b), 5));
#else
    const auto byte = [&](int i) { return (i < 4 ? a >> (8 * i) : b >> (8 * (i - 4))) & 0xff; };
    const std::uint32_t permuted = byte(3) | byte(4) << 8 | byte(1) << 16 | byte(6) << 24;
    const std::uint32_t shift = b & 31;
    const auto funnel = static_cast<std::uint32_t>(((std::uint64_t{b} << 32 | a) << shift) >> 32);
    std::uint32_t reversed = 0, dot = 5;
    for (int i = 0; i < 32; ++i) reversed |= (a >> i & 1) << (31 - i);
    for (int i = 0; i < 32; i += 8) {
      dot += static_cast<std::uint32_t>(static_cast<std::int8_t>(a >> i) *
                                        static_cast<std::int8_t>(b >> i));
    }
    return permuted ^ funnel ^ reversed ^ ((a < b ? b - a : a - b) + 3u) ^ dot;
#endif
  }
};

}  // namespace

std::string IntegerArithmetic() {
  return CheckIntegers<Arithmetic>("arithmetic") + CheckIntegers<Division>("division");
}
std::string IntegerExtremes() { return CheckIntegers<Extremes>("extremes"); }
std::string IntegerBits() { return CheckIntegers<Bits>("bits"); }
std::string IntegerRelations() { return CheckIntegers<Relations>("relations"); }
std::string IntegerConversions() {
  return CheckIntegers<ToReal>("to real") + CheckIntegers<ToNarrow>("to narrow");
}
std::string IntegerIntrinsics() {
  return CheckApply<CountedBits, std::uint32_t>("counted bits") +
         CheckApply<HighProducts, std::uint64_t>("high products") +
         CheckApply<WideDivision, std::uint64_t>("wide division") +
         CheckApply<ByteTricks, std::uint32_t>("byte tricks");
}

}  // namespace gpushared::corpus
