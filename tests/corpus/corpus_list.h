// SPDX-License-Identifier: Apache-2.0
// The names of all programs. Each is a function `std::string name()` in this namespace, defined in
// a .cu file.

#ifndef GPUSHARED_TESTS_CORPUS_CORPUS_LIST_H_
#define GPUSHARED_TESTS_CORPUS_CORPUS_LIST_H_

#include <string>

// kernels/
#define GPUSHARED_OWN_PROGRAMS(X) \
  X(VectorAdd)                    \
  X(IntegerArithmetic)            \
  X(IntegerExtremes)              \
  X(IntegerBits)                  \
  X(IntegerRelations)             \
  X(IntegerConversions)           \
  X(IntegerIntrinsics)            \
  X(RealArithmetic)               \
  X(RealComparisons)              \
  X(RealRounding)                 \
  X(RealFunctions)                \
  X(VectorsThroughMemory)         \
  X(ModuleVariables)              \
  X(AddressesOfAnySpace)          \
  X(AtomicOperations)             \
  X(MatrixProducts)               \
  X(PipelinedMatrixProduct)       \
  X(ReductionsOfAWarp)            \
  X(LanesExchange)                \
  X(LanesVote)                    \
  X(ThreadsVote)                  \
  X(LoopsOfManyLengths)           \
  X(RecursiveCalls)               \
  X(SwitchesAndReturns)

// programs/. The cuRAND one exists only if the toolkit has cuRAND's headers.
#ifdef GPUSHARED_CORPUS_CURAND
#define GPUSHARED_CURAND_PROGRAMS(X) X(CurandPhilox)
#else
#define GPUSHARED_CURAND_PROGRAMS(X)
#endif
#define GPUSHARED_TOOLKIT_PROGRAMS(X) \
  GPUSHARED_CURAND_PROGRAMS(X)        \
  X(GroupTiles)                       \
  X(GroupsOfCoalescedThreads)         \
  X(GroupCopies)                      \
  X(GroupsOfLabels)                   \
  X(GridBarrier)                      \
  X(GridBarrierByHand)                \
  X(HalfArithmetic)                   \
  X(BfloatArithmetic)                 \
  X(CudaAtomics)                      \
  X(CudaBarrier)

// programs/ that use CUB and Thrust, in a separate library.
#define GPUSHARED_CUB_PROGRAMS(X) \
  X(CubDeviceScan)                \
  X(CubRadixSort)                 \
  X(CubSegmentedSort)             \
  X(CubSelect)                    \
  X(CubPartition)                 \
  X(CubReduce)                    \
  X(CubReduceByKey)               \
  X(CubRunLengths)                \
  X(CubSegmentedReduce)           \
  X(CubHistogram)                 \
  X(CubMergeSort)                 \
  X(ThrustTransformReduce)        \
  X(ThrustSortByKey)              \
  X(ThrustScanAndUnique)          \
  X(ThrustSetIntersection)

#define GPUSHARED_DECLARE_PROGRAM(name) std::string name();
namespace gpushared::corpus {
GPUSHARED_OWN_PROGRAMS(GPUSHARED_DECLARE_PROGRAM)
GPUSHARED_TOOLKIT_PROGRAMS(GPUSHARED_DECLARE_PROGRAM)
GPUSHARED_CUB_PROGRAMS(GPUSHARED_DECLARE_PROGRAM)
}  // namespace gpushared::corpus
#undef GPUSHARED_DECLARE_PROGRAM

#endif  // GPUSHARED_TESTS_CORPUS_CORPUS_LIST_H_
