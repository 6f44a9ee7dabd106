// SPDX-License-Identifier: Apache-2.0
#include "server/worker/control/driver_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <utility>

namespace gpushared::server {

Result<std::unique_ptr<DriverOutput>> DriverOutput::TakeStdout(boost::asio::io_context& context,
                                                               KernelOutputLog& log) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return Status(StatusCode::kInternal,
                  "making a pipe for stdout failed: " + std::generic_category().message(errno));
  }
  ipc::UniqueFd from(ends[0]);
  const ipc::UniqueFd to(ends[1]);
  if (::dup2(to.get(), STDOUT_FILENO) < 0) {
    return Status(StatusCode::kInternal,
                  "replacing stdout failed: " + std::generic_category().message(errno));
  }
  // Into a pipe, stdio would by default write 4 KiB at a time, long after the kernel printed.
  (void)std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::unique_ptr<DriverOutput> output(new DriverOutput(context, log, std::move(from)));
  output->Wait();
  return output;
}

void DriverOutput::Wait() {
  pipe_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                   [this](const boost::system::error_code& error) {
                     if (error) return;
                     Read();
                     Wait();
                   });
}

void DriverOutput::Read() {
  std::array<char, 4096> text{};
  const ssize_t bytes = ::read(pipe_.native_handle(), text.data(), text.size());
  if (bytes <= 0) return;
  line_.append(text.data(), static_cast<std::size_t>(bytes));
  const std::size_t end = line_.rfind('\n');
  std::size_t whole = end == std::string::npos ? 0 : end + 1;
  if (line_.size() - whole >= KernelOutputLog::kLineBytesMax) whole = line_.size();
  log_.Write(std::string_view(line_).substr(0, whole));
  line_.erase(0, whole);
}

}  // namespace gpushared::server
