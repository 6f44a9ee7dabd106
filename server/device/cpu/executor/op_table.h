// SPDX-License-Identifier: Apache-2.0
// Finds the handler of an operation by its canonical spelling ("add.s32",
// "ld.shared.v4.b32"). The decoder normalises modifiers before it asks.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OP_TABLE_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OP_TABLE_H_

#include <functional>
#include <string_view>

#include "server/device/cpu/executor/code.h"
#include "server/device/cpu/executor/program.h"

namespace gpushared::device::executor {

// Null when the executor has no such operation.
Handler FindHandler(Flavour flavour, std::string_view key);

// Calls visit(key, handler) for every operation, in no order. Several keys may have one
// handler.
void VisitHandlers(Flavour flavour,
                   const std::function<void(std::string_view key, Handler handler)>& visit);

// Handed to the op files to enter their handlers. A plain function pointer: op files
// are compiled for a machine that may not be this one, so nothing in them may
// instantiate a template that the rest of the program could link against.
struct OpSink {
  void (*add)(void* table, const char* key, Handler handler);
  void* table;
};

// One per op file; each exists in both flavours, except control, which is built once.
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
