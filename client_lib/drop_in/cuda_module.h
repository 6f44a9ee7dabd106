// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_CUDA_MODULE_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_CUDA_MODULE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpushared/client.h"
#include "gpushared/mutex.h"
#include "gpushared/result.h"

#include "client_lib/drop_in/context.h"
#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// Returns the bytes of an image that a program passes without a size: PTX text up to its NUL, a
// fatbin, the wrapper of one, or an ELF file. Empty if the pointer is null or the size is invalid.
std::span<const std::byte> ImageBytes(const void* image);

// A module of one context, or a library, which is loaded into each session that uses it.
//
// Thread-safe.
class CudaModule {
 public:
  // Loads a module that belongs to this context.
  static Result<std::shared_ptr<CudaModule>> Load(const std::shared_ptr<Context>& context,
                                                  std::span<const std::byte> image);
  // Loads a library, immediately into this session.
  static Result<std::shared_ptr<CudaModule>> LoadLibrary(const std::shared_ptr<Session>& session,
                                                         std::span<const std::byte> image);

  ~CudaModule();
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;

  bool is_library() const { return is_library_; }
  bool BelongsTo(const Context& context) const;
  // Handle of the module, and handles of the kernels that were looked up; null for a kernel that
  // was not.
  ModuleHandle handle() const { return handle_.load(std::memory_order_relaxed); }
  void set_handle(ModuleHandle handle) { handle_.store(handle, std::memory_order_relaxed); }
  FunctionHandle GetHandle(const std::string& kernel) const;
  void SetHandleOf(const std::string& kernel, FunctionHandle handle);
  // Whether kernels of this module launch kernels (common/ptx/link/child_kernels.h). Every launch
  // of a kernel of such a module holds `children_mutex` until the launched kernels have ended,
  // because all kernels of the module write to one queue.
  bool starts_kernels() const { return starts_kernels_.load(std::memory_order_relaxed); }
  Mutex children_mutex;  // Held from such a launch to its end.
  // Returns the module as loaded in this session. Loads a library that the session has not loaded
  // yet; kNotFound for a module of another session.
  Result<Module> In(const std::shared_ptr<Session>& session);

 private:
  struct Loaded {
    std::weak_ptr<Session> session;
    Module module;
  };
  CudaModule(std::span<const std::byte> image, bool is_library);
  // Stores the module and adds its variables to the address book of the session.
  void Add(const std::shared_ptr<Session>& session, Module module) GPUSHARED_REQUIRES(mutex_);

  const bool is_library_;
  const std::vector<std::byte> image_;    // Empty for a module.
  std::weak_ptr<const Context> context_;  // Null for a library.
  const std::uint64_t variables_id_;      // Block::buffer_id of the variables in address books.
  std::atomic<ModuleHandle> handle_{nullptr};
  std::atomic<bool> starts_kernels_{false};
  mutable Mutex mutex_;
  std::vector<Loaded> loaded_ GPUSHARED_GUARDED_BY(mutex_);
  std::map<std::string, FunctionHandle> handles_ GPUSHARED_GUARDED_BY(mutex_);
};

// CUfunction and CUkernel: a kernel by name.
//
// Thread-safe.
class CudaKernel {
 public:
  static constexpr int kAttributesMax = 18;  // CUfunction_attribute.

  CudaKernel(std::shared_ptr<CudaModule> of, std::string with_name, Kernel kernel,
             const std::shared_ptr<Session>& session);

  const std::shared_ptr<CudaModule> module;
  const std::string name;

  // Returns the kernel in the session of this context.
  Result<Kernel> In(const Context& context) const;
  // Returns the kernel in the session in which it was looked up. The properties of the kernel are
  // the same in every session.
  const Kernel& first() const { return first_; }
  // Attributes that the program has set.
  static constexpr int kUnset = std::numeric_limits<int>::min();
  std::array<std::atomic<int>, kAttributesMax> set_attributes;
  // Launch being prepared by the launch calls of CUDA 3.
  struct LegacyLaunch {
    int block[3] = {1, 1, 1};
    unsigned shared_bytes = 0;
    std::vector<std::byte> parameters;
  };
  Mutex legacy_mutex;
  LegacyLaunch legacy GPUSHARED_GUARDED_BY(legacy_mutex);

 private:
  const Kernel first_;
  const std::weak_ptr<Session> first_session_;
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_CUDA_MODULE_H_
