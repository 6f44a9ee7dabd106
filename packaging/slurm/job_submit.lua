-- SPDX-License-Identifier: Apache-2.0
-- For a site without a job_submit.lua; other sites add the three lines with gpushared to their own file.
local gpushared = dofile("/usr/share/gpushared/slurm/gpushared.lua")

function slurm_job_submit(change, partitions, uid)
  gpushared.submit(change)
  return slurm.SUCCESS
end

function slurm_job_modify(change, job, partitions, uid)
  gpushared.account(change, job)
  return slurm.SUCCESS
end

return slurm.SUCCESS
