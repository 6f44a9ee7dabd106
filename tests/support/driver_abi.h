// SPDX-License-Identifier: Apache-2.0
// Compares our declarations with the CUDA toolkit's at compile time.

#ifndef GPUSHARED_TESTS_SUPPORT_DRIVER_ABI_H_
#define GPUSHARED_TESTS_SUPPORT_DRIVER_ABI_H_

#include <cstddef>
#include <type_traits>

#include <cuda.h>

#include "common/cuda_driver/driver_types.h"

namespace gpushared::testing {

// Whether `Ours` corresponds to `Theirs`. GPUSHARED_SAME declares such pairs in this namespace.
template <typename Ours, typename Theirs>
struct SamePair : std::false_type {};
#define GPUSHARED_SAME(ours, theirs) \
  template <>                        \
  struct SamePair<ours, theirs> : std::true_type {}

// The type that is passed for a T: the underlying integer of an enumeration, otherwise T.
template <typename T, bool = std::is_enum_v<T>>
struct Plain {
  using Type = T;
};
template <typename T>
struct Plain<T, true> {
  using Type = std::underlying_type_t<T>;
};

template <typename Ours, typename Theirs>
constexpr bool Same() {
  if constexpr (std::is_same_v<Ours, Theirs> || SamePair<Ours, Theirs>::value) {
    return true;
  } else if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using A = std::remove_pointer_t<Ours>;
    using B = std::remove_pointer_t<Theirs>;
    // A pointer to void matches any pointer, because the callee does not dereference it.
    return std::is_void_v<std::remove_const_t<A>> ||
           (std::is_const_v<A> == std::is_const_v<B> &&
            Same<std::remove_const_t<A>, std::remove_const_t<B>>());
  } else if constexpr ((std::is_integral_v<Ours> || std::is_enum_v<Ours>)&&(
                           std::is_integral_v<Theirs> || std::is_enum_v<Theirs>)) {
    using A = typename Plain<Ours>::Type;
    using B = typename Plain<Theirs>::Type;
    // Compilers choose unsigned for enumerations without negative values.
    const bool sign = std::is_enum_v<Theirs> || std::is_signed_v<A> == std::is_signed_v<B>;
    return sizeof(A) == sizeof(B) && sign;
  } else {
    return false;
  }
}

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename... Ours, typename... Theirs>
requires(sizeof...(Ours) ==
         sizeof...(Theirs)) struct SameCall<device::cuda::Code(Ours...), CUresult (*)(Theirs...)>
    : std::bool_constant<(Same<Ours, Theirs>() && ...)> {
};

// The targets of opaque handles, and structures, whose members the tests compare one by one.
GPUSHARED_SAME(device::cuda::ContextTarget, CUctx_st);
GPUSHARED_SAME(device::cuda::ModuleTarget, CUmod_st);
GPUSHARED_SAME(device::cuda::FunctionTarget, CUfunc_st);
GPUSHARED_SAME(device::cuda::StreamTarget, CUstream_st);
GPUSHARED_SAME(device::cuda::EventTarget, CUevent_st);
GPUSHARED_SAME(device::cuda::ArrayTarget, CUarray_st);
GPUSHARED_SAME(device::cuda::GreenContextTarget, CUgreenCtx_st);
GPUSHARED_SAME(device::cuda::GraphTarget, CUgraph_st);
GPUSHARED_SAME(device::cuda::GraphNodeTarget, CUgraphNode_st);
GPUSHARED_SAME(device::cuda::GraphExecTarget, CUgraphExec_st);
GPUSHARED_SAME(device::cuda::KernelTarget, CUkern_st);
GPUSHARED_SAME(device::cuda::Uuid, CUuuid);
GPUSHARED_SAME(device::cuda::AllocationProperties, CUmemAllocationProp);
GPUSHARED_SAME(device::cuda::AccessDescription, CUmemAccessDesc);
GPUSHARED_SAME(device::cuda::Copy2d, CUDA_MEMCPY2D);
GPUSHARED_SAME(device::cuda::LaunchConfig, CUlaunchConfig);
GPUSHARED_SAME(device::cuda::CopyNode, CUDA_MEMCPY3D);
GPUSHARED_SAME(device::cuda::FillNode, CUDA_MEMSET_NODE_PARAMS);

}  // namespace gpushared::testing

#define GPUSHARED_LAYOUT(ours, theirs) \
  static_assert(sizeof(ours) == sizeof(theirs) && alignof(ours) == alignof(theirs))
#define GPUSHARED_FIELD(ours, mine, theirs, its)                 \
  static_assert(offsetof(ours, mine) == offsetof(theirs, its) && \
                sizeof(ours::mine) == sizeof(theirs::its))

#endif  // GPUSHARED_TESTS_SUPPORT_DRIVER_ABI_H_
