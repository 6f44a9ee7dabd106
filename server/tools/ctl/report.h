// SPDX-License-Identifier: Apache-2.0
// Formats the server's JSON as human-readable text: aligned columns with a unit in every heading.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_REPORT_H_
#define GPUSHARED_SERVER_TOOLS_CTL_REPORT_H_

#include <span>
#include <string>

#include "server/tools/ctl/table.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::server {

// Format the answers to status, ps, devices and endpoints. Missing fields are shown as "-".
std::string StatusReport(const nlohmann::json& reply, const View& view);
std::string ClientsReport(const nlohmann::json& reply, const View& view);
// Sets `device_share_percent` of each client: its share of the device's time since the earlier
// answer.
void AddShares(nlohmann::json& reply, const nlohmann::json& earlier);
std::string DevicesReport(const nlohmann::json& reply, const View& view);
std::string EndpointsReport(const nlohmann::json& reply, const View& view);
// Return all available columns.
std::span<const Column> StatusColumns();
std::span<const Column> ClientColumns();
std::span<const Column> DeviceColumns();
std::span<const Column> EndpointColumns();
// Formats the answers to park and wake.
std::string ParkedReport(const nlohmann::json& reply);
std::string MovedReport(const nlohmann::json& reply);
// Formats the answer to explain as sentences.
std::string ExplainReport(const nlohmann::json& reply);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_REPORT_H_
