// SPDX-License-Identifier: Apache-2.0
// atom and red. Accesses to global and generic memory are real atomic operations, because other
// executor threads run blocks of the same launch. Shared memory of a block is used by a single
// thread.
#include "server/device/cpu/executor/ops/half_float.h"
#include "server/device/cpu/executor/ops/memory.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

enum class Atomic {
  kAdd,
  kAnd,
  kOr,
  kXor,
  kExchange,
  kCompare,
  kMin,
  kMax,
  kIncrement,
  kDecrement
};

template <typename T>
GPUSHARED_INLINE T AddValues(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<u64>(a) + static_cast<u64>(b));
  } else if constexpr (kIsHalf<T>) {
    return Compute<HalfOp::kAdd, T, false, false, false>(a, b, b);
  } else {
    return a + b;
  }
}

// Two halves in a word. They are added separately.
template <typename H>
struct Pair {
  u32 bits;
};
template <typename H>
GPUSHARED_INLINE Pair<H> AddValues(Pair<H> a, Pair<H> b) {
  return {GetPair(AddValues(GetHalf<H>(a.bits, 0), GetHalf<H>(b.bits, 0)),
                  AddValues(GetHalf<H>(a.bits, 1), GetHalf<H>(b.bits, 1)))};
}

template <Atomic A, typename T>
GPUSHARED_INLINE T Next(T old, T b, T c) {
  if constexpr (A == Atomic::kAdd) return AddValues(old, b);
  if constexpr (A == Atomic::kExchange) return b;
  if constexpr (std::is_integral_v<T>) {
    if constexpr (A == Atomic::kAnd) return static_cast<T>(old & b);
    if constexpr (A == Atomic::kOr) return static_cast<T>(old | b);
    if constexpr (A == Atomic::kXor) return static_cast<T>(old ^ b);
    if constexpr (A == Atomic::kCompare) return old == b ? c : old;
    if constexpr (A == Atomic::kMin) return b < old ? b : old;
    if constexpr (A == Atomic::kMax) return b > old ? b : old;
    if constexpr (A == Atomic::kIncrement) return old >= b ? T{0} : static_cast<T>(old + 1);
    if constexpr (A == Atomic::kDecrement) return old == 0 || old > b ? b : static_cast<T>(old - 1);
  }
}

template <typename T>
struct GetWord {
  using Type =
      std::conditional_t<sizeof(T) == 8, u64, std::conditional_t<sizeof(T) == 4, u32, u16>>;
};

template <Atomic A, typename T>
GPUSHARED_INLINE T Apply(std::byte* at, T b, T c) {
  using Word = typename GetWord<T>::Type;
  Word* word = reinterpret_cast<Word*>(at);
  if constexpr (A == Atomic::kAdd && std::is_integral_v<T>) {
    return static_cast<T>(__atomic_fetch_add(word, static_cast<Word>(b), __ATOMIC_ACQ_REL));
  } else if constexpr (A == Atomic::kExchange) {
    return Bits<T>(__atomic_exchange_n(word, Bits<Word>(b), __ATOMIC_ACQ_REL));
  } else if constexpr (A == Atomic::kCompare) {
    Word expected = Bits<Word>(b);
    __atomic_compare_exchange_n(word, &expected, Bits<Word>(c), false, __ATOMIC_ACQ_REL,
                                __ATOMIC_ACQUIRE);
    return Bits<T>(expected);
  } else {
    Word old = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &old, Bits<Word>(Next<A, T>(Bits<T>(old), b, c)),
                                        true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
    return Bits<T>(old);
  }
}

// Pairs and halves are stored in rows as words.
template <typename T>
GPUSHARED_INLINE T GetValue(const std::byte* row, u32 lane) {
  if constexpr (std::is_integral_v<T> || std::is_floating_point_v<T> || kIsHalf<T>) {
    return Get<T>(row, lane);
  } else {
    return Bits<T>(Get<u32>(row, lane));
  }
}
template <typename T>
GPUSHARED_INLINE void PutValue(std::byte* row, u32 lane, T value) {
  if constexpr (std::is_integral_v<T> || std::is_floating_point_v<T> || kIsHalf<T>) {
    Put<T>(row, lane, value);
  } else {
    Put<u32>(row, lane, Bits<u32>(value));
  }
}

// Stores the old value to the destination if `extra` is not 0 (atom). red has no destination.
template <Atomic A, typename T, bool IsShared>
__attribute__((noinline)) const MicroOp* ApplyEach(Warp& w, const MicroOp* op,
                                                   FindHostAddresses find) {
  const u32 lanes = Lanes(w, op);
  const std::byte* b = w.frame + op->b;
  const std::byte* c = w.frame + op->c;
  alignas(64) std::byte* host[kLanes];
  if (!find(w, op, lanes, static_cast<u32>(sizeof(T)), host)) return nullptr;
  for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(rest));
    const T operand = GetValue<T>(b, l), second = GetValue<T>(c, l);
    T old;
    if constexpr (IsShared) {
      old = Read<T>(host[l]);
      Write<T>(host[l], Next<A, T>(old, operand, second));
    } else {
      old = Apply<A, T>(host[l], operand, second);
    }
    if (op->extra != 0) PutValue<T>(w.frame + op->destination, l, old);
  }
  // These operations are used in spin locks, so the scheduler should run other lanes afterwards.
  if constexpr (A == Atomic::kCompare || A == Atomic::kExchange) Polled(w);
  return op + 1;
}

template <Atomic A, typename T, Space S, typename Index>
const MicroOp* AtomicOp(Warp& w, const MicroOp* op) {
  return ApplyEach<A, T, S == Space::kShared>(w, op, HostAddresses<S, Index>);
}

// A 128-bit value. All x86-64 processors except the first ones of 2003 have cmpxchg16b.
struct Both {
  u64 low = 0, high = 0;
};
GPUSHARED_INLINE Both BothOf(const Warp& w, const MicroOp* op, u32 first, u32 lane) {
  return {Get<u64>(w.frame + op->rows[first], lane), Get<u64>(w.frame + op->rows[first + 1], lane)};
}
// Stores `next` if memory equals `expected`; `expected` is set to the old value.
GPUSHARED_INLINE bool CompareExchange(std::byte* at, Both& expected, Both next) {
  bool is_done;
  asm volatile("lock cmpxchg16b %1"
               : "=@ccz"(is_done), "+m"(*reinterpret_cast<Both*>(at)), "+a"(expected.low),
                 "+d"(expected.high)
               : "b"(next.low), "c"(next.high)
               : "memory");
  return is_done;
}

template <bool Compares>
GPUSHARED_INLINE Both ExchangeBoth(std::byte* at, bool is_alone, Both b, Both c) {
  Both old = Read<Both>(at);
  if (is_alone) {
    if (!Compares || (old.low == b.low && old.high == b.high)) Write(at, Compares ? c : b);
    return old;
  }
  if constexpr (Compares) {
    old = b;
    CompareExchange(at, old, c);
  } else {
    while (!CompareExchange(at, old, b)) {
    }
  }
  return old;
}

template <bool Compares, Space S, typename Index>
const MicroOp* AtomicBoth(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  alignas(64) std::byte* host[kLanes];
  if (!HostAddresses<S, Index>(w, op, lanes, sizeof(Both), host)) return nullptr;
  for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(rest));
    // No atomic access for shared memory, because one thread executes all warps of a block, and
    // none for misaligned memory, which can only be local and is private to its thread.
    const bool is_alone = S == Space::kShared || reinterpret_cast<u64>(host[l]) % 16 != 0;
    const Both old =
        ExchangeBoth<Compares>(host[l], is_alone, BothOf(w, op, 0, l), BothOf(w, op, 2, l));
    Put<u64>(w.frame + op->destination, l, old.low);
    Put<u64>(w.frame + op->extra, l, old.high);
  }
  Polled(w);
  return op + 1;
}

template <bool Compares>
void AddBoth(const OpSink& sink, const char* name) {
  AddOp(sink, kFifthRow, AtomicBoth<Compares, Space::kGlobal, u64>, "atom.global.a64", name,
        "b128");
  AddOp(sink, kFifthRow, AtomicBoth<Compares, Space::kGeneric, u64>, "atom.generic.a64", name,
        "b128");
  AddOp(sink, kFifthRow, AtomicBoth<Compares, Space::kShared, u64>, "atom.shared.a64", name,
        "b128");
  AddOp(sink, kFifthRow, AtomicBoth<Compares, Space::kShared, u32>, "atom.shared.a32", name,
        "b128");
}

template <Atomic A, typename T>
void AddAtomic(const OpSink& sink, const char* name, const char* type) {
  AddOp(sink, kRows, AtomicOp<A, T, Space::kGlobal, u64>, "atom.global.a64", name, type);
  AddOp(sink, kRows, AtomicOp<A, T, Space::kGeneric, u64>, "atom.generic.a64", name, type);
  AddOp(sink, kRows, AtomicOp<A, T, Space::kShared, u64>, "atom.shared.a64", name, type);
  AddOp(sink, kRows, AtomicOp<A, T, Space::kShared, u32>, "atom.shared.a32", name, type);
}

template <typename T>
void AddBits(const OpSink& sink, const char* type) {
  AddAtomic<Atomic::kAnd, T>(sink, "and", type);
  AddAtomic<Atomic::kOr, T>(sink, "or", type);
  AddAtomic<Atomic::kXor, T>(sink, "xor", type);
}

template <typename T>
void AddInteger(const OpSink& sink, const char* type) {
  AddAtomic<Atomic::kAdd, T>(sink, "add", type);
  AddAtomic<Atomic::kMin, T>(sink, "min", type);
  AddAtomic<Atomic::kMax, T>(sink, "max", type);
}

}  // namespace

void AddAtomicOps(const OpSink& sink) {
  AddInteger<u32>(sink, "u32");
  AddInteger<s32>(sink, "s32");
  AddInteger<u64>(sink, "u64");
  AddInteger<s64>(sink, "s64");
  AddBits<u32>(sink, "b32");
  AddBits<u64>(sink, "b64");
  AddAtomic<Atomic::kExchange, u32>(sink, "exch", "b32");
  AddAtomic<Atomic::kExchange, u64>(sink, "exch", "b64");
  AddAtomic<Atomic::kCompare, u16>(sink, "cas", "b16");
  AddAtomic<Atomic::kCompare, u32>(sink, "cas", "b32");
  AddAtomic<Atomic::kCompare, u64>(sink, "cas", "b64");
  AddBoth<false>(sink, "exch");
  AddBoth<true>(sink, "cas");
  AddAtomic<Atomic::kIncrement, u32>(sink, "inc", "u32");
  AddAtomic<Atomic::kDecrement, u32>(sink, "dec", "u32");
  AddAtomic<Atomic::kAdd, float>(sink, "add", "f32");
  AddAtomic<Atomic::kAdd, double>(sink, "add", "f64");
  AddAtomic<Atomic::kAdd, _Float16>(sink, "add", "f16");
  AddAtomic<Atomic::kAdd, bf16>(sink, "add", "bf16");
  AddAtomic<Atomic::kAdd, Pair<_Float16>>(sink, "add", "f16x2");
  AddAtomic<Atomic::kAdd, Pair<bf16>>(sink, "add", "bf16x2");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
