// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_LOG_TEXT_H_
#define GPUSHARED_TESTS_SUPPORT_LOG_TEXT_H_

#include <cstddef>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

namespace gpushared::testing {

// Collects the log output during its lifetime.
class LogText {
 public:
  LogText() {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
  }
  ~LogText() { spdlog::set_default_logger(usual_); }
  LogText(const LogText&) = delete;
  LogText& operator=(const LogText&) = delete;
  std::string text() const { return text_.str(); }
  std::size_t Count(std::string_view what) const {
    const std::string text = this->text();
    std::size_t count = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
    return count;
  }

 private:
  std::ostringstream text_;
  const std::shared_ptr<spdlog::logger> usual_ = spdlog::default_logger();
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_LOG_TEXT_H_
