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

// The thread's last error, as cudaGetLastError tells it. Returns `error`.
cudaError_t Noted(cudaError_t error);
// The same of a status, whose sentence goes to stderr: at most kSentencesMax of a process.
cudaError_t Noted(const Status& status);
inline constexpr int kSentencesMax = 20;
// The thread's last error, and none afterwards if it is taken.
cudaError_t LastError(bool takes);

// Programs are told that one block and one multiprocessor may have so much.
inline constexpr int kBlocksPerMultiprocessor = 2;
inline constexpr std::size_t kPitchBytes = 512;

// One session with a gpushared server (GPUSHARED_SOCKET) behind the calls of the CUDA runtime
// that programs make; for tests. Owns the session, all memory, modules, streams and events.
// Connects at the first call that needs the server. Modules are loaded when one of their
// kernels or variables is needed.
//
// Thread-safe.
class Runtime {
 public:
  // The one that this process' cuda... calls go to. Never destroyed: programs call until the end.
  static Runtime& Instance();

  // Before main: what nvcc's host code registers.
  void* RegisterFatbin(const void* wrapper);
  void RegisterFunction(void* module, const void* host_function, const char* name);
  void RegisterVariable(void* module, const void* host_variable, const char* name,
                        std::size_t bytes, bool is_constant);

  // Null after an error, which is noted.
  const Client* Connected();
  // "sm_75" of the newest module is 75.
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
  // Host memory that copies need not stage; ordinary memory where there is no more of it.
  void* AllocateHost(std::size_t bytes);
  void FreeHost(void* memory);
  bool IsOnDevice(const void* memory);
  // Rectangles of `shape`; a kind other than cudaMemcpyDefault is taken at its word.
  Status Copy(void* to, const void* from, const CopyShape& shape, cudaMemcpyKind kind,
              cudaStream_t stream);

  // ---- order
  // The stream, made to wait for what its next command has to wait for: the default stream waits
  // for all others and they for it, unless they are non-blocking. Null when there is no such handle
  // or no server; else valid until the stream is removed.
  const Stream* Ordered(cudaStream_t handle);
  Result<cudaStream_t> AddStream(bool is_blocking);
  Status RemoveStream(cudaStream_t handle);
  Result<cudaEvent_t> AddEvent(EventTiming timing);
  Status RemoveEvent(cudaEvent_t handle);
  // An invalid event when there is no such handle.
  Event FindEvent(cudaEvent_t handle);

 private:
  struct Module;
  struct OrderedStream;

  Status Load(Module& module);
  Status FindAddresses(Module& module);
  // As Copy, where one end is a module's variable: only kernels reach those.
  Status CopyByKernel(DeviceAddress to, DeviceAddress from, std::size_t bytes,
                      const Stream& stream);
  // The module that has a variable there; null when none has.
  Module* ModuleAt(DeviceAddress address);

  struct Function {
    Module* module = nullptr;
    std::string name;
    Kernel kernel;  // Once it was needed.
  };

  std::recursive_mutex mutex_;  // Guards all below; not held while a call waits for the device.
  std::optional<Client> client_;
  std::vector<std::unique_ptr<Module>> modules_;
  std::map<const void*, Function> functions_;
  std::map<const void*, Module*> variables_;
  std::map<std::uint64_t, DeviceBuffer> memory_;  // By address.
  std::map<void*, HostBuffer> host_memory_;
  std::map<cudaStream_t, std::unique_ptr<OrderedStream>> streams_;
  std::map<cudaEvent_t, std::unique_ptr<Event>> events_;
  Stream default_stream_;               // Valid once connected, as is the next.
  Event default_order_;                 // Last point of the default stream others waited for.
  std::uint64_t default_commands_ = 0;  // How often the default stream was asked for.
};

}  // namespace gpushared::cudart

#endif  // GPUSHARED_TESTS_CORPUS_CUDART_RUNTIME_H_
