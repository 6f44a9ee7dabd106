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

// Forwards the printed output of GPU kernels to the log. The driver writes that output to the
// process's stdout during a launch, a wait or the unloading of a module, without identifying the
// kernel. Here stdout is a pipe, whose lines go to the log like other kernel output, limited and
// without control characters. The driver's writes never block: bytes that do not fit the pipe (64
// KiB) are lost.
//
// Confined to the thread that runs `context`.
class DriverOutput {
 public:
  // Redirects the stdout of this process to the log. Must be called before any output is written to
  // stdout. `log` must outlive the object.
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
  std::string line_;  // Incomplete last line.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_DRIVER_OUTPUT_H_
