// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_DRIVER_OUTPUT_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_DRIVER_OUTPUT_H_

#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "gpushared/result.h"

#include "ipc/unique_fd.h"
#include "server/worker/control/kernel_output.h"

namespace gpushared::server {

// Output of kernels on a GPU. The driver writes it to the process's stdout at a launch, a wait or
// the unloading of a module. It does not say whose it is. Here stdout is a pipe. Its lines go to
// the log like other output of kernels, bounded and without control characters. The driver's writes
// never wait: bytes that the pipe (64 KiB) cannot take are lost.
//
// Confined to the thread that runs `context`.
class DriverOutput {
 public:
  // From then on stdout of this process comes here. Nothing was written to it before. `log`
  // outlives the object.
  static Result<std::unique_ptr<DriverOutput>> TakeStdout(boost::asio::io_context& context,
                                                          KernelOutputLog& log);
  DriverOutput(const DriverOutput&) = delete;
  DriverOutput& operator=(const DriverOutput&) = delete;
  ~DriverOutput() = default;

 private:
  DriverOutput(boost::asio::io_context& context, KernelOutputLog& log, ipc::UniqueFd pipe)
      : log_(log), pipe_(context, pipe.Release()) {}
  void Wait();
  void Read();

  KernelOutputLog& log_;
  boost::asio::posix::stream_descriptor pipe_;
  std::string line_;  // Its beginning.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_DRIVER_OUTPUT_H_
