-- SPDX-License-Identifier: Apache-2.0
-- Called by the job_submit.lua of slurmctld. Adds up the nodes' usage reports of a job in the job's AdminComment.
-- Concurrent reports of nodes cannot be lost, because slurmctld calls slurm_job_modify under its own lock.
--
-- A node reports "gpushared+ device_us=N bytes=N ..." (server/tools/cluster/slurm/plugin.c). The comment then contains
-- "gpushared(device_s=1.234567 bytes=N requests=N with_target=N met=N)"; any other text in it is preserved.
local gpushared = {}

local counts = { "bytes", "requests", "with_target", "met" }
local told = "^gpushared%+ "
local kept = "gpushared%(([^)]*)%)"

local function number(text, key)
  return tonumber(string.match(" " .. text, " " .. key .. "=([%d.]+)") or 0)
end

-- Returns the comment updated with a node's report `text`, or nil if `text` is no report.
function gpushared.merged(text, comment)
  if not string.find(text, told) then return nil end
  comment = comment or ""
  local sums = string.match(comment, kept) or ""
  local device_us = number(sums, "device_s") * 1e6 + number(text, "device_us")
  local parts = { string.format("device_s=%.6f", device_us / 1e6) }
  for _, key in ipairs(counts) do
    table.insert(parts, string.format("%s=%.0f", key, number(sums, key) + number(text, key)))
  end
  local section = "gpushared(" .. table.concat(parts, " ") .. ")"
  local from, to = string.find(comment, kept)
  if from then return string.sub(comment, 1, from - 1) .. section .. string.sub(comment, to + 1) end
  return comment == "" and section or comment .. " " .. section
end

-- To be called from slurm_job_modify. Only Slurm's operators may modify this comment.
function gpushared.account(change, job)
  local merged = change.admin_comment and gpushared.merged(change.admin_comment, job.admin_comment)
  if merged then change.admin_comment = merged end
end

-- Returns a request such as "gpushared:h100:25,gpushared_memory:8G" with the share's type also for the memory. Slurm
-- allocates each gres separately, and would otherwise take the memory of any device of the node.
function gpushared.typed(gres)
  local share_type = string.match("," .. gres, "[,:]gpushared:([^:,]+):")
  if not share_type then return gres end
  local add_type = function(count) return "gpushared_memory:" .. share_type .. ":" .. count .. "," end
  return string.sub(string.gsub(gres .. ",", "gpushared_memory:(%d[^:,]*),", add_type), 1, -2)
end

-- To be called from slurm_job_submit.
function gpushared.submit(change)
  if change.gres then change.gres = gpushared.typed(change.gres) end
end

return gpushared
