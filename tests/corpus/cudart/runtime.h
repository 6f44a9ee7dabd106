// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_CORPUS_CUDART_RUNTIME_H_
#define GPUSHARED_TESTS_CORPUS_CUDART_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "gpushared/client.h"

namespace gpushared::cudart {

// Sets the thread's last error, which cudaGetLastError returns, unless `error` is cudaSuccess or
// cudaErrorNotReady. Returns `error`.
cudaError_t Noted(cudaError_t error);
// Calls Noted with the code for a status. Prints the message of a failure to stderr, but at most
// kMessagesMax messages per process.
cudaError_t Noted(const Status& status);
inline constexpr int kMessagesMax = 20;
// Returns the thread's last error. Clears the error if `takes`.
cudaError_t LastError(bool takes);

// Values that are reported to programs: the occupancy of every kernel, and the alignment of
// pitches.
inline constexpr int kBlocksPerMultiprocessor = 2;
inline constexpr std::size_t kPitchBytes = 512;

// The implementation of the CUDA runtime calls that programs make, for tests: one session with a
// gpushared server (GPUSHARED_SOCKET). Owns the session, all memory, modules, streams and events.
// Connects at the first call that needs the server. Modules are loaded when one of their kernels or
// variables is needed.
//
// Thread-safe.
class Runtime {
 public:
  // Returns the instance for this process' cuda... calls. It is never destroyed, because programs
  // make calls until the end.
  static Runtime& Instance();

  // Called before main by the code that nvcc generates.
  void* RegisterFatbin(const void* wrapper);
  void RegisterFunction(void* module, const void* host_function, const char* name);
  void RegisterVariable(void* module, const void* host_variable, const char* name,
                        std::size_t bytes, bool is_constant);

  // Returns null after an error, which is recorded.
  const Client* Connected();
  // Returns 75 if the newest module is for "sm_75".
  int TargetVersion();

  struct LaunchSpec {
    LaunchShape shape;
    void** arguments = nullptr;
    cudaStream_t stream = nullptr;
  };
  Status Launch(const void* host_function, const LaunchSpec& spec);
  Result<Kernel> FindKernel(const void* host_function);

  struct Variable {
    DeviceAddress address = 0;
    std::size_t bytes = 0;
  };
  Result<Variable> FindVariable(const void* host_variable);

  // ---- memory
  Result<void*> Allocate(std::size_t bytes);
  Status Free(void* memory);
  // Host memory that copies need not stage; ordinary memory if no more of it is available.
  void* AllocateHost(std::size_t bytes);
  void FreeHost(void* memory);
  bool IsOnDevice(const void* memory);
  // Copies rectangles of `shape`; every kind except cudaMemcpyDefault is trusted.
  Status Copy(void* to, const void* from, const CopyShape& shape, cudaMemcpyKind kind,
              cudaStream_t stream);

  // ---- order
  //
  // Returns the stream after queueing the waits that its next command needs: the default stream
  // waits for all others and they for it, unless they are non-blocking. Null if the handle is
  // invalid or there is no server; otherwise valid until the stream is removed.
  const Stream* Ordered(cudaStream_t handle);
  Result<cudaStream_t> AddStream(bool is_blocking);
  Status RemoveStream(cudaStream_t handle);
  Result<cudaEvent_t> AddEvent(EventTiming timing);
  Status RemoveEvent(cudaEvent_t handle);
  // Returns an invalid event if the handle is invalid.
  Event FindEvent(cudaEvent_t handle);

 private:
  struct Module;
  struct OrderedStream;

  Status Load(Module& module);
  Status FindAddresses(Module& module);
  // Copies with a kernel, for copies from or to module variables, which only kernels can access.
  Status CopyByKernel(DeviceAddress to, DeviceAddress from, std::size_t bytes,
                      const Stream& stream);
  // Returns the module with the variable that contains the address, or null.
  Module* ModuleAt(DeviceAddress address);

  struct Function {
    Module* module = nullptr;
    std::string name;
    Kernel kernel;  // Valid once it has been needed.
  };

  // Guards all members below; not held while a call waits for the device.
  std::recursive_mutex mutex_;
  std::optional<Client> client_;
  std::vector<std::unique_ptr<Module>> modules_;
  std::map<const void*, Function> functions_;
  std::map<const void*, Module*> variables_;
  std::map<std::uint64_t, DeviceBuffer> memory_;  // By address.
  std::map<void*, HostBuffer> host_memory_;
  std::map<cudaStream_t, std::unique_ptr<OrderedStream>> streams_;
  std::map<cudaEvent_t, std::unique_ptr<Event>> events_;
  Stream default_stream_;               // Valid once connected, like default_order_.
  Event default_order_;                 // Last point of the default stream that others waited for.
  std::uint64_t default_commands_ = 0;  // How often the default stream was requested.
};

}  // namespace gpushared::cudart

#endif  // GPUSHARED_TESTS_CORPUS_CUDART_RUNTIME_H_
