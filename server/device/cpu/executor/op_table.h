// SPDX-License-Identifier: Apache-2.0
// Maps the canonical spelling of an operation ("add.s32", "ld.shared.v4.b32") to its handler. The
// decoder normalizes modifiers before the lookup.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OP_TABLE_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OP_TABLE_H_

#include <cstdint>
#include <string_view>

#include "server/device/cpu/executor/code.h"
#include "server/device/cpu/executor/op_rule.h"
#include "server/device/cpu/executor/program.h"

namespace gpushared::device::executor {

// Returns null if the operation is unsupported.
Handler FindHandler(Flavour flavour, std::string_view key);

// An operation. Its number is its position among the sorted keys of a flavour, which is the same in
// every process of a program.
struct OpEntry {
  std::string_view key;  // Static lifetime.
  Handler handler;
  OpRule rule;
};
// Returns null if no operation has the number.
const OpEntry* OpOfNumber(Flavour flavour, std::uint64_t number);
// Returns the number of a handler in the table of the flavour. If several keys have the handler,
// returns the number of any of them, because all have the same rule.
std::uint32_t GetNumber(Flavour flavour, Handler handler);

// Receives the handlers of op files. A plain function pointer, because op files may be compiled for
// a different machine and therefore must not instantiate a template that the rest of the program
// could link against.
struct OpSink {
  void (*add)(void* table, const char* key, Handler handler, const OpRule& rule);
  void* table;
};

// One function per op file. Each exists in both flavours, except control, which is built once.
#define GPUSHARED_OP_FILES(X) \
  X(Integer)                  \
  X(Bit)                      \
  X(Float)                    \
  X(Double)                   \
  X(Approximate)              \
  X(Half)                     \
  X(HalfPair)                 \
  X(Compare)                  \
  X(Convert)                  \
  X(FloatConvert)             \
  X(HalfConvert)              \
  X(Move)                     \
  X(Load)                     \
  X(Store)                    \
  X(Atomic)                   \
  X(Texture)                  \
  X(Mbarrier)                 \
  X(WarpWide)                 \
  X(Matrix)

#define GPUSHARED_DECLARE_OPS(name) void Add##name##Ops(const OpSink& sink);
namespace baseline {
GPUSHARED_OP_FILES(GPUSHARED_DECLARE_OPS)
}
namespace v3 {
GPUSHARED_OP_FILES(GPUSHARED_DECLARE_OPS)
}
#undef GPUSHARED_DECLARE_OPS
void AddControlOps(const OpSink& sink);

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OP_TABLE_H_
